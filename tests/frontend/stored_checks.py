"""What the tests of stored einsums share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.frontend import einsum as einsum_module
from tilewright.frontend import einsum_calls
from tilewright.runtime import plan_record

E2 = "ij,jk->ik"


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


def files(disk: Path) -> list[Path]:
    return sorted(one for one in disk.rglob("*") if one.is_file())
