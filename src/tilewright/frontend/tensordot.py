"""`tilewright.tensordot`: `numpy.tensordot` by way of `einsum`."""

from __future__ import annotations

import operator
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontend.einsum import einsum
from tilewright.frontend.einsum_arrays import as_array
from tilewright.frontend.torch_tensors import is_tensor
from tilewright.runtime.messages import brief, value_text


def tensordot(left: Any, right: Any, axes: Any = 2, **options: Any) -> Any:
    """Products of two arrays summed over pairs of their axes.

    Args:
        left, right: arrays; in programs, the program's.
        axes: how many of the last axes of the left array go with as many of the first of the right one; or two lists
            (or numbers): the axes of the left array, and in the same order those of the right one.
        **options: as for `einsum` (out, dtype, semiring, target, ...).

    Returns:
        What is left of the left array's axes, then what is left of the right one's.

    Raises:
        ValueError: for axes that there are not or are named twice, and lists and sizes that do not go together.
        TypeError: for axes that are no whole numbers.

    Example:
        >>> import numpy as np
        >>> tensordot(np.ones((2, 3, 4)), np.ones((4, 3, 5)), axes=([1, 2], [1, 0])).shape
        (2, 5)
    """
    first, second = (one if _is_traced(one) or is_tensor(one) else as_array(one, "tensordot") for one in (left, right))
    ours, theirs = _pairs(axes, first.ndim, second.ndim)
    traced = _is_traced(first) or _is_traced(second)
    names = _names(first.ndim + second.ndim)
    names, others = names[: first.ndim], names[first.ndim :]
    for mine, its in zip(ours, theirs, strict=True):
        if not traced and first.shape[mine] != second.shape[its]:  # einsum compares sizes of traced arrays
            raise ValueError(
                f"tensordot: axis {mine} of the left array has size {first.shape[mine]}, axis {its} of the right one, "
                f"which goes with it, {second.shape[its]}"
            )
        others[its] = names[mine]
    kept = [one for axis, one in enumerate(names) if axis not in ours]
    kept += [one for axis, one in enumerate(others) if axis not in theirs]
    if all(isinstance(one, str) for one in names + others):  # whose calls are known again faster
        return einsum(f"{''.join(names)},{''.join(others)}->{''.join(kept)}", first, second, **options)
    return einsum(first, names, second, others, kept, **options)


def _is_traced(one: Any) -> bool:
    return getattr(one, "__tilewright_array__", False) is True  # `program_tracing.is_array`, which is long to import


def _names(count: int) -> list[Any]:
    """Letters for so many axes, or numbers where there are not enough."""
    return list(string.ascii_letters[:count]) if count <= len(string.ascii_letters) else list(range(count))


def _pairs(axes: Any, left: int, right: int) -> tuple[list[int], list[int]]:
    try:
        count = operator.index(axes)
    except TypeError:
        if (
            isinstance(axes, str | bytes)
            or not isinstance(axes, Sequence | np.ndarray)
            or getattr(axes, "ndim", 1) == 0
        ):
            raise TypeError(
                f"tensordot: axes must be a whole number or two lists of axes, not {value_text(axes)}"
            ) from None
    else:
        if not 0 <= count <= min(left, right):
            raise ValueError(
                f"tensordot: axes = {axes} of arrays of {left} and {right} dimensions; it must be from 0 to "
                f"{min(left, right)}"
            )
        return list(range(left - count, left)), list(range(count))
    if len(axes) != 2:
        raise ValueError(f"tensordot: axes must be a number or two lists of axes, not {brief(axes)}")
    ours, theirs = _axes("left", axes[0], left), _axes("right", axes[1], right)
    if len(ours) != len(theirs):
        raise ValueError(f"tensordot: {len(ours)} axes of the left array cannot go with {len(theirs)} of the right one")
    return ours, theirs


def _axes(which: str, given: Any, rank: int) -> list[int]:
    try:
        listed = list(map(operator.index, given if np.iterable(given) else (given,)))
    except TypeError as error:
        raise TypeError(f"tensordot: axes of the {which} array are whole numbers, not {value_text(given)}") from error
    found = [one + rank if one < 0 else one for one in listed]
    wrong = [one for one in listed if not -rank <= one < rank]
    if wrong or len(set(found)) != len(found):
        raise ValueError(f"tensordot: {listed} are no different axes of the {which} array, which has {rank} dimensions")
    return found
