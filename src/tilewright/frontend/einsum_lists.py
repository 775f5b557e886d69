"""Calls of `einsum` that give operands and label lists in turns, read without the compiler."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilewright.runtime.messages import value_text

Label: TypeAlias = Hashable


def interleaved(operands: Sequence[Any]) -> tuple[Hashable, tuple[Any, ...]]:
    """The expression and the operands of a call that gives operands and indices in turns."""
    if not operands:
        raise ValueError(
            "einsum needs an expression and operands, or operands and their indices; it was given no argument"
        )
    if isinstance(operands[0], bytes):
        raise TypeError(f"einsum needs an expression (a str), not {value_text(operands[0])}; write .decode() of it")
    if len(operands) == 1:
        raise TypeError(
            "einsum needs an expression (a str) and operands, or operands and their indices; it was given only "
            f"{value_text(operands[0])}"
        )
    return interleaved_key(operands), tuple(operands[0 : len(operands) - len(operands) % 2 : 2])


def interleaved_key(arguments: Sequence[Any]) -> tuple[tuple[tuple[Label, ...], ...], tuple[Label, ...] | None]:
    """The label lists of `einsum(a, [0, 1], b, [1, 2], [0, 2])` in a hashable form: (inputs, output or None).

    Raises:
        TypeError: for a label list that is none.
    """
    pairs = len(arguments) // 2
    inputs = tuple(_interleaved_labels(arguments[2 * n + 1], f"operand {n}") for n in range(pairs))
    return inputs, _interleaved_labels(arguments[-1], "the output") if len(arguments) % 2 else None


def _interleaved_labels(labels: Any, what: str) -> tuple[Label, ...]:
    if isinstance(labels, bytes) or not isinstance(labels, Iterable):
        raise TypeError(f"einsum: {what} needs a sequence of indices, not {value_text(labels)}")
    if type(labels) is str and not {"-", ","}.isdisjoint(labels):
        raise TypeError(f"einsum: the expression comes first, einsum({labels!r}, ...), and {what} after it")
    read: list[Label] = []
    for written in labels:
        one: Any = written
        if isinstance(one, np.generic | np.ndarray):
            if one.ndim or one.dtype.kind not in "iu":
                raise TypeError(
                    f"einsum: {value_text(one)} among the indices of {what} is no index; indices are whole or names"
                )
            one = operator.index(written)
        if not isinstance(one, Hashable):
            raise TypeError(f"einsum: index {one!r} of {what} is of type {type(one).__name__}, which is not hashable")
        if one is Ellipsis and Ellipsis in read:
            raise ValueError(f"einsum: {what} has more than one ellipsis")
        read.append(one)
    return tuple(read)
