"""Records of einsums are never used in place of another call's, of other sources, or damaged."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_checks import E2, files, forget, only_bound, some, without_compiler

import tilewright as tw
from tilewright.frontend import einsum_stored
from tilewright.frontend.einsum_stored import StoredEinsum
from tilewright.runtime import fingerprint as fingerprint_module
from tilewright.runtime import plan_record
from tilewright.runtime.errors import CacheWarning
from tilewright.runtime.fingerprint import fingerprint, source_stamp

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
        patch.setattr(einsum_stored, "get_num_threads", lambda: call["cores"])
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
                patch.setattr(fingerprint_module, "build_of", lambda module: f"another {module}")
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
    (record,) = [one for one in files(disk) if b'"masks"' in one.read_bytes()]
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
