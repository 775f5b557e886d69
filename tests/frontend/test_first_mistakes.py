"""What a newcomer gets wrong in the first minutes is told with what to write instead."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw

A, B = np.ones((3, 4)), np.ones((4, 5))


def run(body: Callable[..., Any], annotation: Any = tw.f64["n"]) -> Callable[[], object]:
    def function(x: Any) -> Any:
        return body(x)

    function.__annotations__ = {"x": annotation}
    return lambda: tw.program(function)(np.arange(5.0))


def method() -> None:
    class Model:
        @tw.program
        def apply(self, x: tw.f64["n"]) -> Any:
            return x


MISTAKES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: tw.einsum("ij,jk->ik", [A, B[:, :4]]), TypeError, "operands are given one by one, einsum(expression, a, "),
    (lambda: tw.einsum(A, "ij->ji"), TypeError, "the expression comes first, einsum('ij->ji', ...), and operand 0"),
    (run(lambda x: x, "tw.f64[n]"), TypeError, "name 'n' is not defined; names of sizes are text, tw.f64['n']"),
    (run(tw.f32), TypeError, "tw.f32 is a type and converts nothing: write x.astype(tw.f32)"),
    (run(lambda x: f"{x:.3f}"), TypeError, "the elements of x are not known while the function is traced"),
    (run(lambda x: tw.exp(x, x)), TypeError, "exp takes 1 operand, not 2"),
    (method, TypeError, "a program is a function of arrays and scalars, not a method: write it outside of the class"),
]


@pytest.mark.parametrize(("call", "kind", "message"), MISTAKES, ids=[one[2][:30] for one in MISTAKES])
def test_mistakes_are_told_with_what_to_write(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert message in str(caught.value)


def test_an_error_inside_of_numpy_has_the_line_of_the_user() -> None:
    with pytest.raises(TypeError, match=r"^test_first_mistakes\.py:\d+: in program function: .*or tw\.replicate"):
        run(lambda x: np.ones(x.shape))()


def test_expressions_that_are_strings_of_a_kind() -> None:
    assert np.array_equal(tw.einsum(np.array(["ij->ji"])[0], A), A.T)
    for _ in range(3):
        assert np.array_equal(tw.einsum(np.str_("ij,jk->ik"), A, B), A @ B)


def test_a_view_of_foreign_bytes_can_be_written() -> None:
    square = np.ones((3, 3), ">f8")
    for _ in range(3):
        tw.einsum("ii->i", square)[...] = 0
        assert np.array_equal(square, 1 - np.eye(3))
    assert tw.einsum("ij->ji", square).dtype == square.dtype
    assert tw.einsum("ij->ji", square, dtype="f64").dtype.isnative


def test_the_number_of_threads_is_a_number() -> None:
    with tw.num_threads(np.int32(1)):
        assert type(tw.get_num_threads()) is int


USER = """
import numpy as np
import tilewright as tw
from typing import Any


@tw.program
def scaled(x: tw.f64["n", "m"], factor: tw.f64) -> Any:
    return tw.roll(tw.map(lambda row: tw.reduce("add", 0, row), x) * factor, 1) + tw.exp(x).sum()


result: np.ndarray[Any, np.dtype[np.float64]] = tw.einsum("ij,jk->ik", np.ones((3, 4)), np.ones((4, 5)))
plan: tw.EinsumPlan = tw.plan("ij,jk->ik", (3, 4), (4, 5), dtype="f32")
print(plan.flops, scaled(result, 2.0), scaled.explain())
try:
    tw.einsum("ij,jk->ik", result, result)
except (tw.DeviceError, tw.IllegalTiling):
    raise
"""


def checked(text: str, folder: Path) -> list[str]:
    """What mypy says of a user's file, but for the names of sizes, which no checker can know."""
    pytest.importorskip("mypy", reason="mypy is not installed: no user's file is checked")
    path = folder / "user.py"
    path.write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--disable-error-code=name-defined"]
    ran = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False, cwd=folder)
    return ran.stdout.splitlines()


def test_a_users_file_is_well_typed_and_unknown_names_are_not(tmp_path: Path) -> None:
    assert checked(USER, tmp_path)[-1].startswith("Success")
    wrong = checked(USER + 'tw.einsumm\ntw.set_num_threads("two")\n', tmp_path)
    assert any('Module has no attribute "einsumm"' in one for one in wrong)
    assert any("set_num_threads" in one and "incompatible type" in one for one in wrong)


def test_checkers_know_every_public_name() -> None:
    text = Path(tw.__file__).read_text()
    block = text.split("if TYPE_CHECKING:\n")[1].split("\n__version__")[0].splitlines()
    known = {one.split(" as ")[1] for one in block if " as " in one} | {
        one.split(":")[0].strip() for one in block[-20:]
    }
    assert set(tw.__all__) - {"__version__"} == known
