"""The arrays that a caller gives for a program's results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir.nodes import Atom

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def given_arrays(name: str, results: Sequence[Atom], out: Any) -> tuple[Array | None, ...]:
    """What `out` says about each result of the program of this name: an array, or None for a new one.

    Raises:
        TypeError: for what is no array, and for one of another dtype than the result.
        ValueError: for another number of arrays, one that cannot be written, and ones that share memory.
    """
    listed = isinstance(out, tuple | list)
    if not listed and len(results) > 1:
        raise ValueError(f"{name} gives {len(results)} results: out must be a tuple of as many arrays")
    given = tuple(out) if listed else (out,)
    if len(given) != len(results):
        counted = f"{len(results)} result" + "s" * (len(results) > 1)
        raise ValueError(f"{name} gives {counted}, but out is a {type(out).__name__} of {len(given)}")
    for position, (atom, one) in enumerate(zip(results, given, strict=True)):
        if one is None:
            continue
        if not isinstance(one, np.ndarray):
            raise TypeError(f"{name}: out[{position}] must be a NumPy array, not {one!r}")
        if one.dtype != atom.type.element.numpy:
            raise TypeError(f"{name}: out[{position}] has dtype {one.dtype}, the result has {atom.type.element}")
        if not one.flags.writeable:
            raise ValueError(f"{name}: out[{position}] is read-only")
        if one.size and any(stride == 0 and extent > 1 for stride, extent in zip(one.strides, one.shape, strict=True)):
            raise ValueError(
                f"{name}: elements of out[{position}] lie on one another in memory (strides {one.strides})"
            )
        for earlier, other in enumerate(given[:position]):
            if other is not None and np.may_share_memory(one, other) and np.shares_memory(one, other):
                raise ValueError(
                    f"{name}: out[{earlier}] and out[{position}] share memory; give each result its own array"
                )
    return given


def overlap(arguments: Sequence[Any], out: Sequence[Array | None]) -> bool:
    """Whether results cannot be written straight to the caller's arrays."""
    arrays = [one for one in arguments if isinstance(one, np.ndarray)]
    given = [one for one in out if one is not None]
    return any(
        np.may_share_memory(one, other)
        for position, one in enumerate(given)
        for other in (*arrays, *given[position + 1 :])
    )
