"""Einsums from the disk: the same results without the compiler, and never in place of another call's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.frontend import einsum as einsum_module
from tilewright.frontend import einsum_calls, einsum_stored
from tilewright.frontend.einsum_stored import StoredEinsum
from tilewright.runtime import fingerprint as fingerprint_module
from tilewright.runtime import flat_plan, plan_record
from tilewright.runtime.cpu_jit import host_cpu
from tilewright.runtime.errors import CacheWarning
from tilewright.runtime.fingerprint import fingerprint, source_stamp

E2 = "ij,jk->ik"
COMPILER = ("tilewright.passes", "tilewright.rewrite", "tilewright.contraction", "tilewright.kernel", "tilewright.ir",
            "tilewright.frontend.einsum_bind", "tilewright.runtime.cpu_jit", "llvmlite", "hashlib", "pathlib",
            "dataclasses", "importlib.metadata", "tempfile")  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache on the disk, and sources that have not changed since the import (as they do under development)."""
    if not host_cpu().is_x86:
        pytest.skip("images are made for 64-bit x86")
    known = ("this version", source_stamp(str(Path(tw.__file__).parent))[0])
    monkeypatch.setattr(einsum_stored, "fingerprint", lambda: known)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    forget(monkeypatch)
    yield tmp_path / "cache"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new process does not know."""
    monkeypatch.setattr(einsum_module, "_CALLS", {})
    monkeypatch.setattr(einsum_module, "_RECENT", {})
    plan_record._KERNELS.clear()


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise AssertionError("the einsum was compiled")

    forget(monkeypatch)
    monkeypatch.setattr(einsum_calls, "bound_call", fail)


def some(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def only_bound() -> Any:
    (bound,) = einsum_module._CALLS.values()
    return bound


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


def modules_of_a_process(cache: Path, threads: int) -> list[str]:
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": str(cache), "TILEWRIGHT_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
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
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr


# --- the same results -------------------------------------------------------------------------------------------------

CASES: list[tuple[str, dict[str, Any]]] = [
    (E2, {}), ("ij,jk->ki", {}), ("ij,jk->ik", {"order": "F"}), ("ij,ij->", {}), ("bij,bjk->bik", {}), ("ij->j", {}),
    ("ij,jk,kl->il", {}), ("ij,jk,kl->il", {"optimize": False}), (E2, {"semiring": "max_plus"}), (E2, {"alpha": 2}),
    (E2, {"dtype": np.float64}), (E2, {"dtype": "f64"}), ("ij,k->ikj", {"order": "K"}), (E2, {"target": "cpu"}),
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


def files(disk: Path) -> list[Path]:
    return sorted(one for one in disk.rglob("*") if one.is_file())


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


# --- other calls, other versions, damage ------------------------------------------------------------------------------

CALLS = st.fixed_dictionaries({
    "expression": st.sampled_from([E2, "ij,jk->ki", "ij,jk->k"]),
    "shape": st.sampled_from([(3, 3), (4, 4)]),
    "reverse": st.booleans(),
    "types": st.sampled_from(["f4", "f8", "i4"]),
    "out": st.booleans(),
    "dtype": st.sampled_from([None, "f8", "f64", np.float64, "i8", np.int64, np.int8]),
    "order": st.sampled_from([None, "C", "F"]),
    "optimize": st.sampled_from([True, False, "greedy"]),
    "semiring": st.sampled_from(["plus_times", "min_plus"]),
    "alpha": st.sampled_from([1, 1.0, True, 2, 0.0, -0.0]),
    "cores": st.sampled_from([1, 2]),
})  # fmt: skip


def key_of(call: dict[str, Any]) -> tuple[str, ...] | None:
    a = np.zeros(call["shape"], call["types"])[:: -1 if call["reverse"] else 1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(einsum_stored, "fingerprint", lambda: ("version",))
        patch.setattr(einsum_stored, "available_cores", lambda: call["cores"])
        options = (call["dtype"], call["order"], "safe", call["optimize"], call["semiring"], None, (), call["alpha"])
        return einsum_stored.record_key((call["expression"], *options, 0, None, ()), (a, a), a if call["out"] else None)


@given(CALLS, CALLS)
def test_other_calls_have_other_keys(left: dict[str, Any], right: dict[str, Any]) -> None:
    same = {name: repr(value) for name, value in left.items()} == {name: repr(value) for name, value in right.items()}
    keys = key_of(left), key_of(right)
    assert None not in keys
    assert (keys[0] == keys[1]) == same


def test_a_change_of_the_sources_makes_records_stale(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = some(4, 4)
    tw.einsum(E2, a, a)
    monkeypatch.setattr(einsum_stored, "fingerprint", lambda: ("this version", "other sources"))
    forget(monkeypatch)
    tw.einsum(E2, a, a)
    assert not isinstance(only_bound(), StoredEinsum)
    forget(monkeypatch)
    tw.einsum(E2, a, a)
    assert isinstance(only_bound(), StoredEinsum)


def test_the_stamp_tells_every_change(tmp_path: Path) -> None:
    (tmp_path / "package" / "inner").mkdir(parents=True)
    (tmp_path / "package" / "a.py").write_text("1")
    (tmp_path / "package" / "inner" / "b.py").write_text("1")
    folder = str(tmp_path / "package")
    stamps = [source_stamp(folder)]

    def changed() -> None:
        stamps.append(source_stamp(folder))
        assert len({stamp for stamp, _ in stamps}) == len(stamps)

    (tmp_path / "package" / "inner" / "b.py").write_text("22")
    changed()
    later = time.time_ns() + 10**9
    os.utime(tmp_path / "package" / "a.py", ns=(later, later))  # as after an edit that keeps the length
    changed()
    assert stamps[-1][1] == later
    (tmp_path / "package" / "c.py").write_text("")
    changed()
    (tmp_path / "package" / "c.py").rename(tmp_path / "package" / "inner" / "c.py")
    changed()
    (tmp_path / "package" / "notes.txt").write_text("no source")
    assert source_stamp(folder) == stamps[-1]
    assert source_stamp(str(tmp_path / "no folder"))[1] == 0


@pytest.fixture
def fresh_fingerprint() -> Iterator[None]:
    fingerprint.cache_clear()
    yield
    fingerprint.cache_clear()


def test_sources_that_changed_after_the_import_are_not_trusted(
    monkeypatch: pytest.MonkeyPatch, fresh_fingerprint: None
) -> None:
    monkeypatch.setattr(tw, "_IMPORTED_AT", 0)
    assert fingerprint() is None
    monkeypatch.setattr(tw, "_IMPORTED_AT", 1 << 62)
    fingerprint.cache_clear()
    assert fingerprint() is not None


def test_what_belongs_to_the_fingerprint(
    monkeypatch: pytest.MonkeyPatch, fresh_fingerprint: None, tmp_path: Path
) -> None:
    monkeypatch.setattr(tw, "_IMPORTED_AT", 1 << 62)
    found = {fingerprint()}
    for change in ("version", "processor", "variable", "llvmlite", "sources"):
        with monkeypatch.context() as patch:
            if change == "version":
                patch.setattr(tw, "__version__", "0.0.99")
            elif change == "processor":
                patch.setattr(fingerprint_module, "_processor", lambda: "flags : none at all")
            elif change == "variable":
                patch.setenv("TILEWRIGHT_CPU", "haswell")
            elif change == "llvmlite":
                patch.setattr(fingerprint_module, "_file_stamp", lambda module: f"another {module}")
            else:
                patch.setattr(fingerprint_module, "source_stamp", lambda folder: ("other sources", 0))
            fingerprint.cache_clear()
            found.add(fingerprint())
    assert len(found) == 6
    processors = tmp_path / "cpuinfo"
    processors.write_text("processor : 0\nflags : fpu avx2\ncpu MHz : 2000\n\nprocessor : 1\nflags : fpu\n")
    assert fingerprint_module._processor(str(processors)) == "flags : fpu avx2"
    processors.write_text("processor : 0\n\n")
    assert fingerprint_module._processor(str(processors)) is None
    assert fingerprint_module._processor(str(tmp_path / "nothing")) is None


def record_of(disk: Path) -> Path:
    (record,) = [one for one in files(disk) if b'"facts"' in one.read_bytes()]
    return record


def test_damaged_and_foreign_records_are_made_again(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = some(4, 4)
    tw.einsum(E2, a, a)
    good = record_of(disk).read_bytes()
    for damage in ("flip", "cut", "foreign"):
        path = record_of(disk)
        if damage == "flip":
            path.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
        elif damage == "cut":
            path.write_bytes(good[: len(good) // 2])
        else:
            path.chmod(0o666)
        forget(monkeypatch)
        with pytest.warns(CacheWarning, match="is damaged|can be written by other users"):
            np.testing.assert_array_equal(tw.einsum(E2, a, a), a @ a)
        assert not isinstance(only_bound(), StoredEinsum)
        forget(monkeypatch)
        np.testing.assert_array_equal(tw.einsum(E2, a, a), a @ a)
        assert isinstance(only_bound(), StoredEinsum)
        assert record_of(disk).read_bytes() == good


def test_a_record_without_its_image_is_made_again(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = some(4, 4)
    tw.einsum(E2, a, a)
    for path in files(disk):
        if b"TWIMAGE1" in path.read_bytes():
            path.unlink()
    forget(monkeypatch)
    np.testing.assert_array_equal(tw.einsum(E2, a, a), a @ a)
    assert not isinstance(only_bound(), StoredEinsum)
    without_compiler(monkeypatch)
    np.testing.assert_array_equal(tw.einsum(E2, a, a), a @ a)


class Folder:
    """A cache on the disk, for records alone."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, ...], bytes] = {}

    def get(self, key: tuple[str, ...]) -> bytes | None:
        return self.entries.get(key)

    def put(self, key: tuple[str, ...], data: bytes) -> None:
        self.entries[key] = data


def test_records_of_other_versions_are_ignored(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder: Any = Folder()
    monkeypatch.setattr(einsum_stored, "default_disk_cache", lambda: folder)
    a = some(4, 4)
    tw.einsum(E2, a, a)
    (key,) = [one for one in folder.entries if one[0] == "einsum"]
    good = json.loads(folder.entries[key])
    assert plan_record.stored_plan(folder, key) is not None
    wrong: list[Any] = [
        [], 7, "text", {}, good | {"version": 0}, good | {"launches": []}, good | {"launches": [[3, 1, [0], []]]},
        good | {"masks": [0]}, good | {"kernels": [["contraction", 0, "0" * 64]]}, good | {"masks": "abc"},
        {name: value for name, value in good.items() if name != "facts"},
    ]  # fmt: skip
    for record in wrong:
        folder.entries[key] = json.dumps(record).encode()
        assert plan_record.stored_plan(folder, key) is None, record
    for data in (b"", b"{", b"\xff\xfe"):
        folder.entries[key] = data
        assert plan_record.stored_plan(folder, key) is None
    for facts in ({}, good["facts"] | {"dtype": "nothing"}, good["facts"] | {"shape": None}):
        folder.entries[key] = json.dumps(good | {"facts": facts}).encode()
        assert einsum_stored.stored_einsum(key, lambda: None) is None  # type: ignore[arg-type,return-value]
        forget(monkeypatch)
        np.testing.assert_array_equal(tw.einsum(E2, a, a), a @ a)
        assert json.loads(folder.entries[key]) == good  # written anew


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_after_fork_uses_records(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = some(30, 30), some(200, 200)
    tw.einsum(E2, a, a), tw.einsum(E2, b, b)
    without_compiler(monkeypatch)
    np.testing.assert_array_equal(tw.einsum(E2, a, a), a @ a)
    child = os.fork()
    if child == 0:
        right = all((tw.einsum(E2, one, one) == one @ one).all() for one in (a, b) for _ in range(20))
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0


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
