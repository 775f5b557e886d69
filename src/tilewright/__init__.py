"""Tilewright: a compiler for regular data-parallel array programs.

>>> import numpy as np
>>> import tilewright as tw
>>> tw.einsum("i,i->", np.arange(3.0), np.arange(3.0)).item()
5.0

Names are imported when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.frontend.einsum import einsum as einsum
    from tilewright.frontend.einsum_plan import EinsumPlan as EinsumPlan
    from tilewright.frontend.einsum_plan import plan as plan
    from tilewright.frontend.semiring import Semiring as Semiring
    from tilewright.runtime.cpu_pool import get_num_threads as get_num_threads
    from tilewright.runtime.cpu_pool import set_num_threads as set_num_threads
    from tilewright.runtime.devices import Device as Device
    from tilewright.runtime.devices import device_for as device_for
    from tilewright.runtime.devices import devices as devices

__version__ = "0.1.0"

_MODULES = {
    "tilewright.frontend.einsum": ("einsum",),
    "tilewright.frontend.einsum_plan": ("EinsumPlan", "plan"),
    "tilewright.frontend.semiring": ("Semiring",),
    "tilewright.runtime.devices": ("Device", "device_for", "devices"),
    "tilewright.runtime.cpu_pool": ("get_num_threads", "set_num_threads"),
    "tilewright.frontend.scalar_functions": (
        "acos", "asin", "atan", "atan2", "cast", "ceil", "conj", "cos", "cosh", "exp", "expm1", "floor", "fma", "isinf",
        "isnan", "log", "log1p", "maximum", "minimum", "relu", "rint", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh",
        "trunc", "where",
    ),
}  # fmt: skip
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(["__version__", *_HOMES])  # noqa: PLE0605  # one table serves both


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
