"""The errors that kernels report, and scalars as they are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.written_indices import line_of, outside_text
from tilewright.runtime.flat_plan import Unfit

if TYPE_CHECKING:  # programs from the disk that check nothing do without the steps of the host
    from tilewright.runtime import host
    from tilewright.runtime.backends import Backend, Memory


def component_of(value: Any, component: int) -> Any:
    """The real or imaginary part of a complex scalar, or a real scalar, as a Python number."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, complex):
        return number.imag if component else number.real
    return number


def index_error(program: str, check: host.CheckedIndex, index: int, extent: int) -> Exception:
    """The error for an index out of range: of which program, where in it, and what. `Unfit` for a guard.

    For numbers of elements that differ, which `index` and `extent` then are, it is a `ValueError`.
    """
    if check.is_guard:
        return Unfit()
    if check.is_count:
        return ValueError(
            f"{program}: {check.array} of {extent} elements cannot be reshaped to a shape of {index} elements"
        )
    where = f"{line_of(check.line)}: in program {program}" if check.line else program
    return IndexError(f"{where}: {outside_text(check.line, check.array, check.dimension, index, extent)}")


def raise_errors(backend: Backend, errors: Memory, checks: Sequence[host.CheckedIndex], program: str) -> None:
    """Raise the first error that a kernel recorded."""
    record = backend.read(errors, 0, 3 * len(checks), np.dtype(np.int64)).reshape(-1, 3)
    for (code, index, extent), check in zip(record, checks, strict=True):
        if code:
            raise index_error(program, check, int(index), int(extent))
