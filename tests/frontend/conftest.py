"""Fixtures of the frontend's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stored_checks import forget

import tilewright as tw
from tilewright.frontend import einsum_stored
from tilewright.runtime.cpu_jit import host_cpu
from tilewright.runtime.fingerprint import source_stamp


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
