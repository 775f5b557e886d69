"""Programs from the disk: later processes run what an earlier one compiled, with the same results and errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import true_in_a_child

import tilewright as tw
from tilewright.frontend import program_stored
from tilewright.frontend.program import TracedProgram
from tilewright.frontend.program_options import ProgramOptions
from tilewright.runtime import bound_record, plan_record
from tilewright.runtime.cpu_jit import host_cpu
from tilewright.runtime.errors import CacheWarning
from tilewright.runtime.stored_program import StoredProgram
from tilewright.tune.keys import TuningWarning, device_key, program_digest
from tilewright.tune.text import Tuning, write_tunings

# ruff: noqa: F821, UP037
pytestmark = pytest.mark.skipif(not host_cpu().is_x86, reason="images are made for 64-bit x86")

COMPILER = ("tilewright.passes.compile", "tilewright.passes.pipelines", "tilewright.passes.statements",
            "tilewright.kernel.ir", "tilewright.kernel.llvm", "tilewright.runtime.cpu_jit",
            "tilewright.runtime.executable", "llvmlite", "sqlite3")  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and sources that have not changed since the import (as they do under development)."""
    monkeypatch.setattr(program_stored, "fingerprint", lambda: ("this version",))
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEWRIGHT_TUNINGS", str(tmp_path / "tunings.sqlite3"))
    return tmp_path / "cache"


def later(program: TracedProgram) -> TracedProgram:
    """The program as a new process knows it."""
    plan_record._KERNELS.clear()
    return TracedProgram(program.function, program._around, program.options)


def compiled_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the programs that are compiled from now on."""
    names: list[str] = []
    compiled = ProgramOptions.compiled

    def counted(self: ProgramOptions, program: Any, device: Any) -> Any:
        names.append(program.name)
        return compiled(self, program, device)

    monkeypatch.setattr(ProgramOptions, "compiled", counted)
    return names


def entries(disk: Path, with_text: bytes) -> list[Path]:
    files = (one for one in disk.rglob("*") if one.is_file())
    return [one for one in files if with_text in one.read_bytes()]


@tw.program
def smooth(xs: tw.f64["n"], rate: tw.f64, rounds: tw.i64) -> Any:
    def step(_: Any, now: Any) -> Any:
        return tw.map(lambda i: now[i] + rate * (now[tw.maximum(i - 1, 0)] - now[i]), tw.iota(now.shape[0]))

    return tw.loop(rounds, xs, step)


@tw.program
def picked(xs: tw.array["n"], places: tw.i64["m"]) -> Any:
    return tw.map(lambda at: xs[at], places), tw.reduce("add", 0, xs)


@tw.program
def rows(a: tw.f32["n", "m"]) -> Any:
    return tw.map(lambda row: tw.reduce("add", 0, tw.map(lambda x: x * x, row)), a)


@tw.program
def product(a: tw.f32["n", "k"], b: tw.f32["k", "m"]) -> Any:
    dot = lambda row, column: tw.reduce("add", 0, tw.map(lambda x, y: x * y, row, column))  # noqa: E731
    return tw.map(lambda row: tw.map(lambda column: dot(row, column), tw.transpose(b)), a)


@tw.program
def constants(xs: tw.f32["n"], factor: tw.f32) -> Any:
    return factor, tw.map(lambda x: x + 1, xs), 7


def matrix(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(len(shape)).integers(-9, 9, shape).astype(dtype)


CALLS: list[tuple[TracedProgram, Callable[[], tuple[Any, ...]]]] = [
    (smooth, lambda: (np.arange(50.0), 0.25, 5)),
    (smooth, lambda: (np.arange(5000.0), np.float64(0.5), np.int64(40))),
    (smooth, lambda: (np.arange(0.0), 0.25, 3)),
    (picked, lambda: (matrix(9), np.array([8, 0, 3]))),
    (picked, lambda: (matrix(9, dtype=np.int16)[::-2], np.array([1, 0, 3]))),
    (picked, lambda: (matrix(9, dtype=np.complex64), np.array([], np.int64))),
    (rows, lambda: (matrix(4, 3000),)),
    (rows, lambda: (matrix(3000, 4),)),
    (rows, lambda: (matrix(300, 400).T,)),
    (product, lambda: (matrix(33, 20), matrix(20, 17))),
    (product, lambda: (matrix(300, 320), matrix(320, 310))),
    (constants, lambda: (matrix(5), np.float32(2.5))),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_results_and_types_are_those_of_the_first_process(
    disk: Path, monkeypatch: pytest.MonkeyPatch, number: int, threads: int
) -> None:
    original, made = CALLS[number]
    first, arguments = later(original), made()
    expected = first(*arguments)
    names = compiled_in(monkeypatch)
    again = later(original)
    for _ in range(4):  # the third and fourth by native code
        result = again(*arguments)
        for one, wanted in zip(*(one if isinstance(one, tuple) else (one,) for one in (result, expected)), strict=True):
            assert type(one) is type(wanted) and one.dtype == wanted.dtype
            np.testing.assert_array_equal(one, wanted)
    assert names == []


def test_results_go_where_they_are_wanted(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, out = matrix(40, 30), np.zeros(40, np.float32)
    assert later(rows)(a, out=out) is out
    names, again = compiled_in(monkeypatch), later(rows)
    mine = np.zeros(40, np.float32)
    assert again(a, out=mine) is mine and (mine == out).all()
    with pytest.raises(TypeError, match=r"out\[0\] has dtype float64"):
        again(a, out=np.zeros(40))
    assert names == []
    with pytest.raises(ValueError, match=r"out\[0\] has shape \(39,\)"):
        again(a, out=np.zeros(39, np.float32))


def test_other_forms_of_calls_are_compiled_and_kept_too(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later(smooth)(np.arange(50.0), 0.25, 5)
    names = compiled_in(monkeypatch)
    again = later(smooth)
    np.testing.assert_array_equal(again(np.arange(50.0), 0.25, 5), smooth(np.arange(50.0), 0.25, 5))
    names.clear()
    for form in ((np.arange(50.0), 0.25, 6), (np.arange(100.0)[::2], 0.25, 5), (np.arange(51.0), 0.25, 5)):
        np.testing.assert_array_equal(again(*form), smooth(*form))
    assert names == ["smooth"]
    third = later(smooth)
    for form in ((np.arange(50.0), 0.75, 6), (np.arange(100.0)[::2], 0.25, 5), (np.arange(50.0), 0.25, 5)):
        np.testing.assert_array_equal(third(*form), smooth(*form))
    assert names == ["smooth"]


def test_arguments_that_do_not_fit_are_refused_as_ever(disk: Path) -> None:
    later(product)(matrix(33, 20), matrix(20, 17))
    again = later(product)
    again(matrix(33, 20), matrix(20, 17))
    with pytest.raises(ValueError, match="must be k = 20") as told:
        again(matrix(33, 20), matrix(21, 17))
    with pytest.raises(ValueError, match=re.escape(str(told.value))):
        later(product)(matrix(33, 20), matrix(21, 17))


@pytest.mark.parametrize("unchecked", [False, True])
def test_indices_out_of_range_have_their_message(disk: Path, monkeypatch: pytest.MonkeyPatch, unchecked: bool) -> None:
    xs, inside, outside = matrix(9), np.array([1, 2, 3]), np.array([1, 9, 3])
    first = later(picked)
    first(xs, inside)
    with pytest.raises(IndexError, match=r"test_program_stored.py:\d+: in program picked: index 9 of xs") as told:
        first(xs, outside)
    names = compiled_in(monkeypatch)
    again = later(picked)
    if unchecked:  # is another program
        again = again.with_options(ProgramOptions(unchecked=True))
        again(xs, inside)
        assert names == ["picked"]
        return
    for _ in range(4):
        with pytest.raises(IndexError, match=re.escape(str(told.value))):
            again(xs, outside)
        np.testing.assert_array_equal(again(xs, inside)[0], xs[inside])


def test_options_texts_and_lines_are_not_mixed_up(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = matrix(4, 3000)
    later(rows)(a)
    names = compiled_in(monkeypatch)
    for options in (
        ProgramOptions(flattening=None), ProgramOptions(flattening="full"), ProgramOptions(contractions=False),
        ProgramOptions(thresholds={"outer_0": 0.0}) if "outer_0" in rows.thresholds() else ProgramOptions("outer"),
    ):  # fmt: skip
        count = len(names)
        np.testing.assert_array_equal(later(rows).with_options(options)(a), rows(a))
        assert len(names) > count, options

    def at_lines(lines: int) -> TracedProgram:
        text = "\n" * lines + "def f(xs: tw.f64['n'], i: tw.i64): return xs[i]"
        space: dict[str, Any] = {"tw": tw}
        exec(compile(text, "/somewhere/written.py", "exec"), space)
        return tw.program(space["f"])

    for lines in (3, 7):
        at_lines(lines)(np.ones(3), 2)
    for lines in (3, 7):
        with pytest.raises(IndexError, match=f"written.py:{lines + 1}"):
            at_lines(lines)(np.ones(3), 3)


def test_explain_tells_what_was_found_when_it_ran(disk: Path) -> None:
    first = later(product)
    a, b = matrix(300, 320), matrix(320, 310)
    told = first.explain()
    first._executable(first._types, "cpu")[0].found["t_6 = map", "in another way"] = None  # as where a tiling declines
    first(a, b)
    again = later(product)
    again(a, b)
    assert again.explain() == first.explain() == f"{told}\n  t_6 = map, for the sizes of a call: in another way"
    np.testing.assert_array_equal(again(a, b), first(a, b))


# --- tuning -----------------------------------------------------------------------------------------------------------


def test_tunings_decide_what_is_taken(disk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    a, path = matrix(4, 3000), tmp_path / "rows.tuning"
    options = ProgramOptions(tuning=path)
    executable = rows._executable(rows._types, "cpu")[0]
    names = list(executable.thresholds)
    assert names

    def tuned(value: float, digest: str) -> None:
        device = device_key(executable.device)
        path.unlink(missing_ok=True)
        write_tunings(path, [Tuning("rows", digest, device, tuple((one, value) for one in names))])

    def called() -> int:
        compiled.clear()
        np.testing.assert_array_equal(later(rows).with_options(options)(a), rows(a))
        return len([one for one in compiled if one == "rows"])

    rows(a)
    compiled = compiled_in(monkeypatch)
    tuned(0.0, program_digest(executable.program))
    assert [called(), called()] == [1, 0]
    tuned(float("inf"), program_digest(executable.program))
    assert [called(), called()] == [1, 0]
    tuned(0.0, "another text")
    for _ in range(2):  # each process is warned
        with pytest.warns(TuningWarning, match="stale"):
            assert called() == 1


def test_a_store_that_changes_decides_too(disk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    a = matrix(4, 3000)
    later(rows)(a)
    names = compiled_in(monkeypatch)
    later(rows)(a)
    assert names == []
    (tmp_path / "tunings.sqlite3").write_bytes(b"")
    later(rows)(a)
    assert names == ["rows"]


def test_what_was_tuned_in_this_process_counts(disk: Path) -> None:
    again = later(rows)
    again(matrix(4, 3000))
    report = again.tune({"all": (matrix(4, 3000),)})
    assert again.thresholds() | report.thresholds == again.thresholds()
    np.testing.assert_array_equal(again(matrix(4, 3000)), rows(matrix(4, 3000)))


# --- what is on the disk ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b'"size_arguments"', b'"launch"', b"TWIMAGE1"])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_entries_cost_a_warning(disk: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, damage: str) -> None:
    xs = np.arange(50.0)
    expected = later(smooth)(xs, 0.25, 5)
    names = compiled_in(monkeypatch)
    damaged = entries(disk, text)
    assert damaged
    for one in damaged:
        data = one.read_bytes()
        one.write_bytes(data[:-9] if damage == "cut" else data[:-9] + b"\0" + data[-8:])
    with pytest.warns(CacheWarning, match="is damaged"):
        np.testing.assert_array_equal(later(smooth)(xs, 0.25, 5), expected)
    assert names == ["smooth"]
    names.clear()
    np.testing.assert_array_equal(later(smooth)(xs, 0.25, 5), expected)  # it has been written anew
    assert names == []


def test_other_versions_are_not_read(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    xs = np.arange(50.0)
    later(smooth)(xs, 0.25, 5)
    names = compiled_in(monkeypatch)
    for patched in ((bound_record, "_VERSION", 99), (program_stored, "fingerprint", lambda: ("another version",))):
        monkeypatch.setattr(*patched)
        later(smooth)(xs, 0.25, 5)
        assert names == ["smooth"]
        later(smooth)(xs, 0.25, 5)
        assert names == ["smooth"]
        names.clear()


def test_images_that_were_evicted_are_made_again(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    xs = np.arange(50.0)
    expected = later(smooth)(xs, 0.25, 5)
    for one in entries(disk, b"TWIMAGE1"):
        one.unlink()
    names = compiled_in(monkeypatch)
    np.testing.assert_array_equal(later(smooth)(xs, 0.25, 5), expected)
    assert names == ["smooth"]


@pytest.mark.parametrize(("variable", "value"), [("TILEWRIGHT_CACHE", "0"), ("TILEWRIGHT_VERIFY", "1")])
def test_it_can_be_switched_off(disk: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    names = compiled_in(monkeypatch)
    for _ in range(2):
        later(smooth)(np.arange(50.0), 0.25, 5)
    assert names == ["smooth", "smooth"]
    assert entries(disk, b'"launch"') == []


def test_without_a_fingerprint_nothing_is_kept(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_stored, "fingerprint", lambda: None)
    again = later(smooth)
    again(np.arange(50.0), 0.25, 5)
    assert not isinstance(next(iter(again._executables.values()))[0], StoredProgram)
    assert entries(disk, b'"launch"') == []


def test_plans_that_nothing_repeats_are_dropped(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument that overlaps the result is for the compiler."""
    later(rows)(matrix(40, 30), out=np.zeros(40, np.float32))
    names, again = compiled_in(monkeypatch), later(rows)
    memory = np.zeros(1300, np.float32)
    a, out = memory[:1200].reshape(40, 30), memory[1180:1220]
    a[:] = matrix(40, 30)
    expected = rows(a.copy())
    names.clear()
    again(a, out=out)
    np.testing.assert_array_equal(out, expected)
    assert names == ["rows"]


def test_arrays_that_kernels_cannot_read_as_they_lie_are_copied(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = matrix(40, 30)
    expected = later(rows)(a)
    names, again = compiled_in(monkeypatch), later(rows)
    misaligned = np.frombuffer(b"x" + a.tobytes(), a.dtype, a.size, 1).reshape(a.shape)
    for one in (misaligned, a.astype(a.dtype.newbyteorder(">"))):
        np.testing.assert_array_equal(again(one), expected)
    assert names == []


# --- threads and processes --------------------------------------------------------------------------------------------


def test_threads_share_what_is_loaded(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    xs = np.arange(5000.0)
    expected = later(smooth)(xs, 0.25, 40)
    names, again = compiled_in(monkeypatch), later(smooth)
    results: list[Any] = []
    workers = [threading.Thread(target=lambda: results.append(again(xs, 0.25, 40))) for _ in range(8)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert names == [] and len(results) == 8
    for one in results:
        np.testing.assert_array_equal(one, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_children_run_what_was_loaded(disk: Path) -> None:
    xs = np.arange(5000.0)
    expected = later(smooth)(xs, 0.25, 40)
    again = later(smooth)
    again(xs, 0.25, 40)
    assert true_in_a_child(lambda: all((again(xs, 0.25, 40) == expected).all() for _ in range(3)))


SCRIPT = """
import sys
import numpy as np
sys.path.insert(0, "examples")
import heat, histogram, kmeans, matmul
for module in (heat, histogram, kmeans, matmul):
    arguments = module.datasets()["tiny"]()
    for name in module.references:
        program = getattr(module, name)
        for _ in range(3):
            result = program(*arguments)
        print(name, [np.asarray(one).tobytes().hex() for one in (result if isinstance(result, tuple) else (result,))])
print(*sorted(sys.modules), file=sys.stderr)
"""


def start(cache: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": str(cache), "TILEWRIGHT_NUM_THREADS": "2"}
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, cwd=root, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def test_a_later_process_imports_no_compiler(tmp_path: Path) -> None:
    together = [one.communicate() for one in [start(tmp_path / "c"), start(tmp_path / "c")]]
    assert together[0][0] and together[0][0] == together[1][0]
    assert "llvmlite" in together[0][1].split()
    modules: list[str] = []
    for _ in range(3):  # a process whose sources change meanwhile stores nothing
        told, names = start(tmp_path / "c").communicate()
        assert told == together[0][0]
        modules = names.split()
        if "llvmlite" not in modules:
            break
    assert [name for name in modules if name.startswith(COMPILER)] == []
