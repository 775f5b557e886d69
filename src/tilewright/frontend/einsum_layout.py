"""Where the operands and the result of an einsum lie in memory: views of diagonals, orders, and overlaps.

>>> import numpy as np
>>> PlainView((0, 1, 0), (1, 0))(np.arange(12).reshape(2, 3, 2)).tolist()
[[0, 7], [2, 9], [4, 11]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontend.einsum_arrays import Array, Strides
from tilewright.frontend.einsum_parse import BROADCAST, Labels
from tilewright.ir.dataclass import dataclass


@dataclass(frozen=True)
class Signature:
    """What is known of an operand before its data: its dtype, shape, and strides in bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: Strides

    @property
    def is_c(self) -> bool:
        """Row-major without gaps."""
        return _contiguous(zip(reversed(self.shape), reversed(self.strides), strict=True), self)

    @property
    def is_f(self) -> bool:
        """Column-major without gaps."""
        return _contiguous(zip(self.shape, self.strides, strict=True), self)


def _contiguous(innermost_first: Any, signature: Signature) -> bool:
    expected = signature.dtype.itemsize
    if 0 in signature.shape:
        return True
    for extent, stride in innermost_first:
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def signature_of(array: Array) -> Signature:
    """The signature of an array."""
    return Signature(array.dtype, array.shape, array.strides)


class PlainView:
    """How arrays with such labels are viewed without broadcast dimensions and repeated labels, all in one place.

    Example:
        >>> view = PlainView((0, 0))
        >>> view(np.arange(9).reshape(3, 3)).tolist(), view.labels
        ([0, 4, 8], (0,))
    """

    def __init__(self, labels: Labels, output: Labels | None = None) -> None:
        """Of arrays with these labels; the dimensions of the view are in the order of `output`, if that is given."""
        left = [one for one in labels if one != BROADCAST]
        self._first: tuple[Any, ...] = ()
        if BROADCAST in labels:
            self._first = (*(0 if one == BROADCAST else slice(None) for one in labels), Ellipsis)
        diagonals: list[tuple[int, int]] = []
        while (repeated := next((one for one in left if left.count(one) > 1), None)) is not None:
            first = left.index(repeated)
            second = left.index(repeated, first + 1)
            diagonals.append((first, second))
            left = [one for n, one in enumerate(left) if n not in (first, second)] + [repeated]
        self._diagonals = tuple(diagonals)
        axes = tuple(left.index(one) for one in (left if output is None else output))
        self._axes = None if axes == tuple(range(len(left))) else axes
        self.labels: Labels = tuple(left) if output is None else output
        """Of the view."""

    def __call__(self, array: Array) -> Array:
        """The view; it can be written to if the array can."""
        view = array[self._first] if self._first else array
        if self._diagonals:
            for first, second in self._diagonals:
                view = view.diagonal(0, first, second)
            if array.flags.writeable:
                view.setflags(write=True)  # a twentieth of what view.flags takes
        return view if self._axes is None else view.transpose(self._axes)


def output_axes(order: str, operands: Sequence[tuple[Signature, Labels]], output: Labels) -> tuple[int, ...]:
    """The axes of the result from the outermost in memory to the innermost.

    Args:
        order: "C", "F", "A" (F if all operands are F-ordered and not all C-ordered), "K" (follows the operands), or
            "any", which is C.
        operands: their signatures and labels.
        output: the labels of the result.
    """
    natural = tuple(range(len(output)))
    if order == "F":
        return natural[::-1]
    if order == "A":
        signatures = [one for one, _ in operands]
        fortran = all(one.is_f for one in signatures) and not all(one.is_c for one in signatures)
        return natural[::-1] if fortran else natural
    if order == "K" and len(set(output)) == len(output):
        return _kept_axes(operands, output)
    return natural


def _kept_axes(operands: Sequence[tuple[Signature, Labels]], output: Labels) -> tuple[int, ...]:
    """The order in which NumPy's iterator walks: a stable insertion sort by the operands' strides.

    Two axes are compared by the operands that move along both; where these disagree, C order wins.
    """
    contracted = [one for _, labels in operands for one in labels if one != BROADCAST and one not in output]
    axes = (*output, *dict.fromkeys(contracted))
    strides = {label: [_stride(signature, labels, label) for signature, labels in operands] for label in axes}
    inner_first = list(range(len(axes)))[::-1]
    for position in range(1, len(axes)):
        axis = inner_first[position]
        target = position
        for other in range(position - 1, -1, -1):
            larger = _is_larger(strides[axes[inner_first[other]]], strides[axes[axis]])
            if larger is False:
                break
            if larger:
                target = other
        inner_first.insert(target, inner_first.pop(position))
    return tuple(axis for axis in reversed(inner_first) if axis < len(output))


def _stride(signature: Signature, labels: Labels, label: int) -> int:
    mine = [n for n, one in enumerate(labels) if one == label and signature.shape[n] != 1]
    return abs(sum(signature.strides[n] for n in mine))


def _is_larger(left: Sequence[int], right: Sequence[int]) -> bool | None:
    """Whether `left` moves by more than `right`; None if no operand moves along both."""
    compared = [a > b for a, b in zip(left, right, strict=True) if a and b]
    return all(compared) if compared else None
