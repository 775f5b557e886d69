"""Contraction paths from the disk: opt_einsum is asked once, and damaged paths are not taken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.frontend import einsum_path, path_stored
from tilewright.frontend.einsum_parse import EinsumSpec
from tilewright.frontend.einsum_path import contraction_path
from tilewright.runtime.cache import default_disk_cache

SPEC = EinsumSpec(((0, 1), (1, 2), (2, 3)), (0, 3))
SIZES = (2, 50, 50, 3)

SCRIPT = """
import sys
import numpy as np
import tilewright as tw
a, b, c = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5), np.arange(10.0).reshape(5, 2)
for _ in range(2):
    result = tw.einsum("ij,jk,kl->il", a, b, c, memory_limit=90, epilogue=None)
    assert np.array_equal(result, a @ b @ c)
    largest = tw.einsum("ij,jk->ik", a, b, epilogue=lambda e: np.maximum(e, 50))
    assert np.array_equal(largest, np.maximum(a @ b, 50))
print(" ".join(sorted(sys.modules)))
"""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    contraction_path.cache_clear()
    return tmp_path / "cache"


def _without_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("opt_einsum was asked")

    contraction_path.cache_clear()
    monkeypatch.setattr(einsum_path, "_searched", fail)


def test_a_path_is_found_again(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = contraction_path(SPEC, SIZES)
    _without_search(monkeypatch)
    assert contraction_path(SPEC, SIZES) == path
    for other in ((2, 50, 50, 4), SIZES[::-1]):
        with pytest.raises(AssertionError, match="was asked"):
            contraction_path(SPEC, other)


def test_other_methods_are_asked_each_time(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contraction_path(SPEC, SIZES)
    contraction_path(SPEC, SIZES, "greedy")
    _without_search(monkeypatch)
    with pytest.raises(AssertionError, match="was asked"):
        contraction_path(SPEC, SIZES, "greedy")


def test_limits_have_paths_of_their_own(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contraction_path(SPEC, SIZES)
    _without_search(monkeypatch)
    with pytest.raises(AssertionError, match="was asked"):
        contraction_path(SPEC, SIZES, ("auto", 10))


@pytest.mark.parametrize(
    "stored", [b"", b"3", b"[[0]]", b"[[0, 5], [0, 1]]", b"[[0, 0], [0, 1]]", b'[["a", 1], [0, 1]]', b"[[0, 1]]", b"{}"]
)
def test_what_is_no_path_is_searched_anew(disk: Path, monkeypatch: pytest.MonkeyPatch, stored: bytes) -> None:
    keys = []
    put = type(default_disk_cache()).put
    monkeypatch.setattr(
        type(default_disk_cache()), "put", lambda self, key, data: (keys.append(key), put(self, key, data))
    )
    path = contraction_path(SPEC, SIZES)
    (key,) = [one for one in keys if one[0] == "path"]
    default_disk_cache().put(key, stored)
    contraction_path.cache_clear()
    assert contraction_path(SPEC, SIZES) == path


def test_without_a_fingerprint_nothing_is_kept(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_stored, "fingerprint", lambda: None)
    contraction_path(SPEC, SIZES)
    assert not any(one.is_file() for one in disk.rglob("*"))


def test_later_processes_import_neither_opt_einsum_nor_functions_of_arrays(tmp_path: Path) -> None:
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "c"), "TILEWRIGHT_NUM_THREADS": "2"}
    imported: list[str] = []
    for turn in range(4):  # a process whose sources change meanwhile stores nothing
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        imported = done.stdout.split()
        if turn and "llvmlite" not in imported:
            break
    assert "tilewright.frontend.numpy_ufuncs" in imported
    assert {"llvmlite", "opt_einsum", "tilewright.frontend.array_functions"}.isdisjoint(imported)


def test_chains_are_computed_by_stored_paths(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operands = [np.random.default_rng(k).integers(-3, 4, (k + 2, k + 3)).astype(float) for k in range(4)]
    expected = np.linalg.multi_dot(operands)
    for _ in range(2):
        contraction_path.cache_clear()
        np.testing.assert_array_equal(tw.plan("ij,jk,kl,lm->im", *operands)(*operands), expected)
        monkeypatch.setattr(einsum_path, "_searched", lambda *_: pytest.fail("opt_einsum was asked"))
