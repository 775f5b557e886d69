"""The arrays that a caller gives for results: what can be written, and shares no element with what is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from tilewright.ir.nodes import Atom

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_OVERLAP_WORK: Any = 100_000  # how long to look for a shared element before two arrays count as overlapping


class Placed(Protocol):
    """An array, or what is known of one before its data."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The elements' type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent of each dimension."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next."""


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
        which = f"out[{position}]"
        check_is_array(one, name, which)
        if one.dtype != atom.type.element.numpy:
            raise TypeError(f"{name}: {which} has dtype {one.dtype}, the result has {atom.type.element}")
        if not one.flags.writeable:
            raise ValueError(f"{name}: {which} is read-only")
        if not one.flags.forc and overlaps_itself(one):
            raise ValueError(f"{name}: elements of {which} lie on one another in memory (strides {one.strides})")
        for earlier, other in enumerate(given[:position]):
            if other is not None and share_elements(one, other):
                raise ValueError(f"{name}: out[{earlier}] and {which} share memory; give each result its own array")
    return given


def check_is_array(out: Any, caller: str, which: str = "out") -> None:
    """Refuse an `out` that is no NumPy array, or one whose mask would hide elements of the result.

    Raises:
        TypeError: beginning with the caller, and with which result it is for.
    """
    if type(out) is np.ndarray:
        return
    if not isinstance(out, np.ndarray):
        from tilewright.runtime.messages import value_text  # calls from the disk do without

        raise TypeError(f"{caller}: {which} must be a NumPy array, not {value_text(out)}")
    if is_masked(out):
        raise TypeError(
            f"{caller}: {which} is a masked array (of shape {out.shape}), whose mask would hide elements of the "
            "result; give its .data"
        )


def is_masked(array: Any) -> bool:
    """Whether an array is one of `numpy.ma`.

    >>> is_masked(np.ma.masked_less(np.arange(3), 1)), is_masked(np.arange(3))
    (True, False)
    """
    return hasattr(array, "mask") and hasattr(array, "filled")


def overlap(arguments: Sequence[Any], out: Sequence[Array | None]) -> bool:
    """Whether results cannot be written straight to the caller's arrays."""
    arrays = [one for one in arguments if isinstance(one, np.ndarray)]
    given = [one for one in out if one is not None]
    return any(
        np.may_share_memory(one, other)
        for position, one in enumerate(given)
        for other in (*arrays, *given[position + 1 :])
    )


def share_elements(left: Array, right: Array) -> bool:
    """Whether two arrays share an element; arrays for which that is too hard to tell count as overlapping."""
    if not np.may_share_memory(left, right):
        return False
    try:
        return np.shares_memory(left, right, max_work=_OVERLAP_WORK)
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(array: Placed) -> bool:
    """Whether two elements of an array are one in memory, so that it cannot be written to.

    >>> windows = np.lib.stride_tricks.as_strided(np.zeros(5), (3, 3), (8, 8))
    >>> overlaps_itself(windows), overlaps_itself(np.zeros((3, 3)).T)
    (True, False)
    """
    itemsize = array.dtype.itemsize
    moving = sorted(
        (abs(stride), extent) for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1
    )
    reached = itemsize  # bytes that the dimensions up to here span
    apart = True  # whether each dimension steps over all that those before it span
    for stride, extent in moving:
        apart = apart and stride >= reached
        reached += stride * (extent - 1)
    if apart or 0 in array.shape:
        return False
    if moving[0][0] < itemsize or math.prod(array.shape) * itemsize > reached:  # more elements than there is room for
        return True
    offsets: Array = reduce(np.add.outer, (np.arange(extent) * stride for stride, extent in moving))
    places = np.unique(offsets)
    return len(places) != offsets.size or bool(np.any(np.diff(places) < itemsize))
