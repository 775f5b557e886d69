"""Einsums from the disk: the same results without the compiler, in other processes, threads, and children."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import true_in_a_child
from stored_checks import E2, files, forget, only_bound, some, without_compiler

import tilewright as tw
from tilewright.frontend import einsum_stored
from tilewright.frontend.einsum_stored import StoredEinsum
from tilewright.runtime import cpu_pool, flat_plan
from tilewright.runtime.cpu_jit import host_cpu

COMPILER = ("tilewright.passes", "tilewright.rewrite", "tilewright.contraction", "tilewright.kernel", "tilewright.ir",
            "tilewright.frontend.einsum_bind", "tilewright.runtime.cpu_jit", "llvmlite", "hashlib", "pathlib",
            "dataclasses", "importlib.metadata", "tempfile")  # fmt: skip


# --- in processes of their own ----------------------------------------------------------------------------------------

SCRIPT = """
import sys
import numpy as np
import tilewright as tw
before = set(sys.modules)
a, b = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5)
for _ in range(4):
    assert (tw.einsum("ij,jk->ik", a, b) == a @ b).all()
    big = np.ones((300, 300), np.float32)
    assert (tw.einsum("ij,jk->ik", big, big) == 300).all()
    assert tw.einsum("ij,ij->", a, a) == (a * a).sum()
print(" ".join(sorted(set(sys.modules) - before)))
"""


WITHOUT_IMAGES = """
import tilewright.runtime.cpu_jit
from tilewright.runtime.elf_image import Foreign
def image_of(data):
    raise Foreign("as on other processors")
tilewright.runtime.cpu_jit.image_of = image_of
"""


def modules_of_a_process(cache: Path, threads: int, script: str = SCRIPT) -> list[str]:
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": str(cache), "TILEWRIGHT_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(not host_cpu().is_x86, reason="images are made for 64-bit x86")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_later_process_imports_no_compiler(tmp_path: Path, threads: int) -> None:
    first = modules_of_a_process(tmp_path / "c", threads)
    assert "llvmlite" in first and "tilewright.passes" in first
    later: list[str] = []
    for _ in range(3):  # a process whose sources change meanwhile stores nothing
        later = modules_of_a_process(tmp_path / "c", threads)
        if "llvmlite" not in later:
            break
    assert [name for name in later if name.startswith(COMPILER)] == []


def test_where_there_are_no_images_llvm_links(tmp_path: Path) -> None:
    for _ in range(2):
        assert "llvmlite.binding" in modules_of_a_process(tmp_path / "c", 2, WITHOUT_IMAGES + SCRIPT)
    assert not any(b'"facts"' in one.read_bytes() or b"TWIMAGE1" in one.read_bytes() for one in files(tmp_path / "c"))


EXIT = """
import threading, time
import numpy as np
import tilewright as tw
small, large = np.ones((8, 8), np.float32), np.ones((300, 300), np.float32)
def work(one):
    while True:
        tw.einsum("ij,jk->ik", one, one)
for _ in range(3):
    tw.einsum("ij,jk->ik", small, small), tw.einsum("ij,jk->ik", large, large)
for one in (small, large, small):
    threading.Thread(target=work, args=(one,), daemon=True).start()
time.sleep(0.05)
"""


def test_a_process_ends_while_daemon_threads_compute(tmp_path: Path) -> None:
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "c"), "TILEWRIGHT_NUM_THREADS": "2"}
    for _ in range(4):  # the first compiles, the others do not
        command = [sys.executable, "-c", EXIT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr


# --- the same results -------------------------------------------------------------------------------------------------

CASES: list[tuple[str, dict[str, Any]]] = [
    (E2, {}), ("ij,jk->ki", {}), ("ij,jk->ik", {"order": "F"}), ("ij,ij->", {}), ("bij,bjk->bik", {}), ("ij->j", {}),
    ("ii,ij->j", {}), ("ij,jk,kl->il", {}), ("ij,jk,kl->il", {"optimize": False}), (E2, {"semiring": "max_plus"}),
    (E2, {"alpha": 2}), (E2, {"dtype": np.float64}), (E2, {"dtype": "f64"}), ("ij,k->ikj", {"order": "K"}),
    (E2, {"target": "cpu"}),
]  # fmt: skip
EXTENTS = {"i": 5, "j": 7, "k": 6, "l": 4, "b": 3}


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "c8"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results(disk: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, dict[str, Any]], dtype: str) -> None:
    expression, options = case
    if dtype == "c8" and options.keys() & {"semiring", "dtype"}:
        pytest.skip("complex numbers have no maximum, and are not cast to real ones")
    terms = expression.split("->", maxsplit=1)[0].split(",")
    arrays = [some(*(EXTENTS[one] for one in term), seed=n, dtype=dtype) for n, term in enumerate(terms)]
    expected = tw.einsum(expression, *arrays, **options)
    without_compiler(monkeypatch)
    for _ in range(4):
        result = tw.einsum(expression, *arrays, **options)
        assert isinstance(only_bound(), StoredEinsum)
        np.testing.assert_array_equal(result, expected)
        assert type(result) is type(expected) and result.dtype == expected.dtype
        assert result.strides == expected.strides
        assert not result.ndim or result.flags.writeable


def test_a_given_result_and_strides(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, out = some(9, 8)[::2, ::-1], some(6, 8, seed=1).T, np.zeros((5, 12), np.float32)[:, ::2]
    tw.einsum(E2, a, b, out=out)
    expected = out.copy()
    without_compiler(monkeypatch)
    for _ in range(4):
        out[...] = 0
        assert tw.einsum(E2, a, b, out=out) is out
        np.testing.assert_array_equal(out, expected)
        out.flags.writeable = False
        with pytest.raises(ValueError, match="out is read-only"):
            tw.einsum(E2, a, b, out=out)
        out.flags.writeable = True
    with pytest.raises(AssertionError, match="was compiled"):
        tw.einsum(E2, a, b)


def test_large_results_and_several_launches(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = some(600, 520), some(520, 700, seed=1), some(700, 20, seed=2)
    expected = [tw.einsum(E2, a, b), tw.einsum("ij,jk,kl->il", a, b, c)]
    without_compiler(monkeypatch)
    for _ in range(3):
        np.testing.assert_array_equal(tw.einsum(E2, a, b), expected[0])
        np.testing.assert_array_equal(tw.einsum("ij,jk,kl->il", a, b, c), expected[1])


# --- what the record does not serve -----------------------------------------------------------------------------------


def test_misaligned_arrays_are_compiled_for(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = some(8, 8), some(8, 8, seed=1)
    tw.einsum(E2, a, b)
    forget(monkeypatch)
    raw = np.zeros(8 * 8 * 4 + 1, np.uint8)
    misaligned = raw[1:].view(np.float32).reshape(8, 8)
    misaligned[...] = a
    for one in (misaligned, a, misaligned, a):
        np.testing.assert_array_equal(tw.einsum(E2, one, b), a @ b)
    assert isinstance(only_bound(), StoredEinsum)


def test_interleaved_arrays_are_compiled_for(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = some(8, 16)
    a, out, b = pair[:, ::2], pair[:, 1::2], some(8, 8, seed=1)
    before = a.copy()
    tw.einsum(E2, a, b, out=np.zeros((8, 16), np.float32)[:, 1::2])
    forget(monkeypatch)
    for _ in range(3):
        np.testing.assert_array_equal(tw.einsum(E2, a, b, out=out), before @ b)
        np.testing.assert_array_equal(a, before)


def test_more_threads_than_were_recorded_share_the_work(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process with one thread compiled is one block; a process with two must not stay on one."""
    a = some(256, 256)
    with tw.num_threads(1):
        expected = tw.einsum(E2, a, a)
    launches: list[int] = []
    pool = cpu_pool._the_pool()
    launch = pool.driver.launch
    monkeypatch.setattr(pool.driver, "launch", lambda address: (launches.append(address), launch(address)))
    forget(monkeypatch)
    with tw.num_threads(1):
        np.testing.assert_array_equal(tw.einsum(E2, a, a), expected)
    assert isinstance(only_bound(), StoredEinsum) and not launches
    with tw.num_threads(2):
        np.testing.assert_allclose(tw.einsum(E2, a, a), expected)
    assert launches


def test_another_number_of_threads_needs_no_compiler(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = some(200, 200)
    threads = tw.get_num_threads()
    tw.set_num_threads(2)
    expected = tw.einsum(E2, a, a)
    without_compiler(monkeypatch)
    for number in (2, 1, 2, threads):
        tw.set_num_threads(number)
        np.testing.assert_array_equal(tw.einsum(E2, a, a), expected)
    assert isinstance(only_bound(), StoredEinsum)


@pytest.mark.parametrize(
    "options",
    [
        {"epilogue": abs}, {"tiles": {"i": (1, 1)}}, {"optimize": [(0, 1)]}, {"semiring": tw.Semiring},
        {"dtype": np.dtype([("x", "f4")])}, {"beta": 1}, {"target": "opencl:0"},
    ],
    ids=lambda options: next(iter(options)),
)  # fmt: skip
def test_calls_without_a_record(disk: Path, options: dict[str, Any]) -> None:
    a = some(4, 4)
    known = {
        "dtype": None, "order": None, "casting": "safe", "optimize": True, "semiring": "plus_times", "epilogue": None,
        "labels": (), "alpha": 1, "beta": 0, "target": None, "tiles": (),
    }  # fmt: skip
    assert einsum_stored.record_key((E2, *known.values()), (a, a), None) is not None
    assert einsum_stored.record_key((E2, *(known | options).values()), (a, a), None) is None


@pytest.mark.parametrize("name", ["TILEWRIGHT_VERIFY", "TILEWRIGHT_CACHE"])
def test_the_environment_switches_records_off(disk: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1" if name == "TILEWRIGHT_VERIFY" else "0")
    a = some(4, 4)
    for _ in range(2):
        np.testing.assert_array_equal(tw.einsum(E2, a, a), a @ a)
        assert not isinstance(only_bound(), StoredEinsum)
        forget(monkeypatch)


def test_unusual_arrays_have_no_record(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = some(4, 4)
    for one in (a.astype(">f4"), np.zeros((4, 0), "f4")):
        for _ in range(2):
            forget(monkeypatch)
            np.testing.assert_array_equal(tw.einsum(E2, one, one.T), np.einsum(E2, one, one.T))
            assert not isinstance(only_bound(), StoredEinsum)


# --- threads and processes --------------------------------------------------------------------------------------------


def test_threads_share_a_record(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operands = [(some(40, 60, seed=n), some(60, 50, seed=n + 9)) for n in range(6)]
    tw.einsum(E2, *operands[0])
    without_compiler(monkeypatch)
    failures: list[BaseException] = []
    start = threading.Barrier(6)

    def work(number: int) -> None:
        try:
            a, b = operands[number]
            start.wait()
            for _ in range(50):
                np.testing.assert_array_equal(tw.einsum(E2, a, b), a @ b)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_after_fork_uses_records(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = some(30, 30), some(200, 200)
    tw.einsum(E2, a, a), tw.einsum(E2, b, b)
    without_compiler(monkeypatch)
    np.testing.assert_array_equal(tw.einsum(E2, a, a), a @ a)
    assert true_in_a_child(
        lambda: all((tw.einsum(E2, one, one) == one @ one).all() for one in (a, b) for _ in range(20))
    )


def test_a_flat_plan_refuses_what_does_not_fit(disk: Path) -> None:
    a, b = some(4, 4), some(4, 4, seed=1)
    tw.einsum(E2, a, b)
    bound: Any = only_bound()
    out = np.empty((4, 4), np.float32)
    bound.run((a, b), out)
    plan = bound.executable.flat_plan((a, b), out)
    assert plan is not None
    run = flat_plan.flat_runner(plan, (a, b, out))
    run((a, b, out))
    np.testing.assert_array_equal(out, a @ b)
    before = a.copy()
    with pytest.raises(flat_plan.Unfit):
        run((a, b, a))
    raw = np.zeros(65, np.uint8)[1:].view(np.float32).reshape(4, 4)
    with pytest.raises(flat_plan.Unfit):
        run((raw, b, out))
    np.testing.assert_array_equal(a, before)
