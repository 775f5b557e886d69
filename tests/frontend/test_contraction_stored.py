"""Plans, trees, epilogues and label lists from the disk: the same results, in processes that have no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_checks import E2, files, forget, only_bound, some, without_compiler

import tilewright as tw
from tilewright.frontend import contraction_stored, einsum_bind, einsum_stored, tree
from tilewright.frontend.einsum_stored import StoredEinsum
from tilewright.passes import compile
from tilewright.runtime import cpu_jit
from tilewright.runtime.cache import MemoryCache
from tilewright.runtime.stored_program import StoredProgram

pytestmark = pytest.mark.skipif(not cpu_jit.host_cpu().is_x86, reason="images are made for 64-bit x86")

COMPILER = ("tilewright.passes", "tilewright.contraction", "tilewright.kernel.ir", "tilewright.kernel.llvm",
            "tilewright.runtime.executable", "tilewright.runtime.cpu_jit", "llvmlite", "pathlib")  # fmt: skip

SCRIPT = """
import sys
import threading
import numpy as np
import tilewright as tw
before = set(sys.modules)
a, b, c = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5), np.arange(10.0).reshape(5, 2)
bias, out, shift = np.arange(5.0) - 9, np.ones((3, 5)), float(sys.argv[1])
def same(result, expected):
    assert np.array_equal(result, expected), (result, expected)
clipped = {"epilogue": lambda e, x: np.maximum(e + x - shift, 0), "epilogue_operands": [(bias, "k")]}
largest = tw.Semiring(lambda s, t: s * t, lambda s, t: np.maximum(s, t), -np.inf)
for turn in range(3):
    same(tw.einsum("ij,jk->ik", a, b, **clipped), np.maximum(a @ b + bias - shift, 0))
    same(tw.einsum("ij,jk->ik", a, b, semiring=largest), (a[:, :, None] * b).max(1))
    same(tw.einsum(a, [0, 1], b, [1, 2], [0, 2]), a @ b)
    same(tw.tensordot(a, b, 1), a @ b)
    same(tw.einsum("ij,jk->ik", a, b, alpha=2, beta=3, out=np.ones((3, 5))), 2 * (a @ b) + 3)
    same(tw.plan("ij,jk->ik", (3, 4), (4, 5))(a, b), a @ b)
    same(tw.plan("ij,jk,kl->il", (3, 4), (4, 5), (5, 2))(a, b, c), a @ b @ c)
    same(tw.plan("ij,jk->ik", a, b, **clipped)(a, b, bias), np.maximum(a @ b + bias - shift, 0))
    same(tw.einsum_tree("[[0,1],[1,2]->[0,2]],[2,3]->[3,0]r", None, [a, b, c]), (a @ b @ c).T)
    same(tw.einsum_tree("[[0,1],[1,2]->[0,2]],[2,3]->[3,0]", None, [a, b, c], memory_limit=90), (a @ b @ c).T)
    same(tw.einsum("ij,jk,kl->il", a, b, c, memory_limit=90), a @ b @ c)
print(" ".join(sorted(set(sys.modules) - before)))
"""


def modules_of(cache: Path, shift: int) -> list[str]:
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": str(cache), "TILEWRIGHT_NUM_THREADS": "2"}
    command = [sys.executable, "-c", SCRIPT, str(shift)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_later_processes_import_no_compiler(tmp_path: Path) -> None:
    assert "llvmlite" in modules_of(tmp_path / "c", 1)
    later: list[str] = []
    for _ in range(3):  # a process whose sources change meanwhile stores nothing
        later = modules_of(tmp_path / "c", 1)
        if "llvmlite" not in later:
            break
    assert [name for name in later if name.startswith(COMPILER)] == []
    assert "llvmlite" in modules_of(tmp_path / "c", 2)  # another number in the epilogue is another epilogue


# --- in one process ---------------------------------------------------------------------------------------------------


def begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new process does not know, programs included; sources count as not having changed."""
    forget(monkeypatch)
    monkeypatch.setattr(contraction_stored, "fingerprint", lambda: ("this version",))
    monkeypatch.setattr(einsum_bind, "_EXECUTABLES", MemoryCache(capacity=16))
    monkeypatch.setattr(einsum_bind, "_COMPILED", MemoryCache(capacity=16))
    monkeypatch.setattr(tree, "_PLANS", MemoryCache(capacity=16))


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_anew(monkeypatch)


def nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("something was compiled")

    begin_anew(monkeypatch)
    monkeypatch.setattr("tilewright.passes.compile.compile_program", fail)


def test_a_plan_from_the_disk_explains_itself_and_serves_other_forms(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = some(5, 7), some(7, 6, seed=1)
    made = tw.plan(E2, (5, 7), (7, 6), dtype="f4")
    np.testing.assert_array_equal(made(a, b), a @ b)
    told = made.explain()
    begin_anew(monkeypatch)
    found = tw.plan(E2, (5, 7), (7, 6), dtype="f4")
    assert isinstance(found.bound.executable, StoredProgram)
    for _ in range(4):
        np.testing.assert_array_equal(found(a, b), a @ b)
    turned, strided = np.asfortranarray(a), some(14, 6, seed=1)[::2]
    for _ in range(4):  # strides that no record is of
        np.testing.assert_array_equal(found(turned, strided), a @ strided)
    assert found.explain() == told


def test_forms_with_and_without_out(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, out = some(5, 7), some(7, 6, seed=1), np.zeros((6, 5), np.float32).T
    tw.plan(E2, a, b, epilogue=abs)(a, b, out=out)
    expected = out.copy()
    nothing_compiles(monkeypatch)
    found = tw.plan(E2, a, b, epilogue=abs)
    for _ in range(4):
        out[...] = 0
        assert found(a, b, out=out) is out
        np.testing.assert_array_equal(out, expected)
    with pytest.raises(AssertionError, match="something was compiled"):
        found(a, b[:, ::-1], out=out)


@pytest.mark.parametrize("beta", [1, -0.5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_out_held_is_read_before_it_is_written(
    disk: Path, monkeypatch: pytest.MonkeyPatch, order: Any, beta: float
) -> None:
    a, b = some(70, 90), some(90, 80, seed=1)
    held = np.array(some(70, 80, seed=2), order=order)
    expected = 2 * (a @ b) + np.float32(beta) * held
    np.testing.assert_array_equal(tw.einsum(E2, a, b, alpha=2, beta=beta, out=held.copy("K")), expected)
    without_compiler(monkeypatch)
    for _ in range(4):
        out = held.copy("K")
        assert tw.einsum(E2, a, b, alpha=2, beta=beta, out=out) is out
        np.testing.assert_array_equal(out, expected)
        assert isinstance(only_bound(), StoredEinsum)


def test_label_lists(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = some(3, 5, 7), some(7, 5, seed=1)
    calls: list[tuple[Any, ...]] = [
        (a, [0, 1, 2], b, [2, 1], [0]), (a, ["x", ..., 2], b, [2, ...]), (a, [5, "5", 1], b, [1, "5"], [5]),
    ]  # fmt: skip
    expected = [tw.einsum(*one) for one in calls]
    np.testing.assert_array_equal(expected[0], np.einsum("abc,cb->a", a, b))
    without_compiler(monkeypatch)
    for _ in range(3):
        for call, result in zip(calls, expected, strict=True):
            np.testing.assert_array_equal(tw.einsum(*call), result)


def test_labels_of_unusual_types_have_no_record(disk: Path) -> None:
    known = (None, None, "safe", True, "plus_times", None, (), 1, 0, None, ())
    a = some(4, 4)
    for label, kept in ((1, True), ("i", True), (..., True), (True, False), (1.5, False), ((1, 2), False)):
        key = (((label, 3), (3, 7)), (7,)), *known
        assert (einsum_stored.record_key(key, (a, a), None) is not None) == kept


def test_damage_is_compiled_anew(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = some(5, 7), some(7, 6, seed=1), some(6, 3, seed=2)
    text = "[[0,1],[1,2]->[0,2]],[2,3]->[3,0]"
    expected = tw.einsum_tree(text, None, [a, b, c])
    for one in files(disk):
        one.write_bytes(one.read_bytes()[:-1] + b"?")
    begin_anew(monkeypatch)
    with pytest.warns(UserWarning, match="is damaged"):
        np.testing.assert_array_equal(tw.einsum_tree(text, None, [a, b, c]), expected)
    nothing_compiles(monkeypatch)
    for _ in range(3):
        np.testing.assert_array_equal(tw.einsum_tree(text, None, [a, b, c]), expected)


@pytest.mark.parametrize("name", ["TILEWRIGHT_VERIFY", "TILEWRIGHT_CACHE"])
def test_the_environment_switches_it_off(disk: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1" if name == "TILEWRIGHT_VERIFY" else "0")
    for _ in range(2):
        begin_anew(monkeypatch)
        np.testing.assert_array_equal(tw.plan("i->i", (4,), epilogue=abs)(np.ones(4)), np.ones(4))
    assert not files(disk) or not any(b'"alignments"' in one.read_bytes() for one in files(disk))


SIZES = {"i": 3, "j": 4, "k": 5, "l": 2}
TERMS = st.text("ijkl", min_size=1, max_size=3).map(lambda one: "".join(dict.fromkeys(one)))


@given(
    st.lists(TERMS, min_size=1, max_size=4), st.data(), st.sampled_from(["f4", "f8", "i4", "c16"]),
    st.sampled_from([None, 3]), st.booleans(),
)  # fmt: skip
@settings(max_examples=15)
def test_random_plans_are_the_same_from_the_disk(
    tmp_path_factory: pytest.TempPathFactory, terms: list[str], data: Any, dtype: str, added: int | None,
    optimize: bool,
) -> None:  # fmt: skip
    output = "".join(sorted(data.draw(st.sets(st.sampled_from("".join(terms))))))
    arrays = [some(*(SIZES[one] for one in term), seed=n, dtype=dtype) for n, term in enumerate(terms)]
    expression = ",".join(terms) + "->" + output
    options: dict[str, Any] = {"optimize": optimize}
    if added is not None:
        options["epilogue"] = lambda e: e + added
    with pytest.MonkeyPatch.context() as patched:
        disk = tmp_path_factory.mktemp("disk")
        patched.setenv("TILEWRIGHT_CACHE_DIR", str(disk))
        begin_anew(patched)
        expected = tw.plan(expression, *arrays, **options)(*arrays)
        np.testing.assert_allclose(expected, np.einsum(expression, *arrays) + (added or 0), rtol=1e-5)
        kept = any(b'"alignments"' in one.read_bytes() for one in files(disk))
        # What is a view needs no program, and of several steps the host may read scalars, which is not kept.
        assert kept or len(terms) == 1 or optimize
        (nothing_compiles if kept else begin_anew)(patched)
        for _ in range(3):
            result = tw.plan(expression, *arrays, **options)(*arrays)
            np.testing.assert_array_equal(result, expected)
            assert type(result) is type(expected) and result.dtype == expected.dtype


def test_threads_that_come_first_compile_once(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    make = compile.compile_program
    monkeypatch.setattr(compile, "compile_program", lambda *given, **options: (compiled.append(1), make(*given))[1])
    a, b = some(5, 7), some(7, 6, seed=1)
    made, start, results = tw.plan(E2, a, b, epilogue=abs), threading.Barrier(4), []

    def work() -> None:
        start.wait()
        results.append(made(a, b))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert len(compiled) == 1
    for one in results:
        np.testing.assert_array_equal(one, abs(a @ b))
