"""Products of matrices, `x @ y`, of traced arrays, as maps and sums of products."""

from __future__ import annotations

from typing import Any

from tilewright.frontend import array_functions, fold_functions
from tilewright.frontend.array_arguments import arrays_of, divided_advice
from tilewright.frontend.array_proxy import ArrayProxy
from tilewright.ir.sizes import ONE, Size


def matmul(left: Any, right: Any) -> Any:
    """left @ right: of vectors, matrices, and stacks of matrices, which are broadcast as in NumPy.

    Raises:
        TypeError: for scalars, and sizes that do not fit, naming both arrays with their sizes.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def layer(x: tw.f64["n", "k"], w: tw.f64["k", "m"], bias: tw.f64["m"]):
        ...     return tw.map(lambda row: tw.relu(row + bias), x @ w)
        >>> layer(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.0, -3.0])).tolist()
        [[1.0, 0.0], [3.0, 1.0]]
    """
    _, (left, right) = arrays_of("@", (left, right))
    ours, theirs = left.variable.type.shape, right.variable.type.shape
    summed = (ours[-1], theirs[max(right.ndim - 2, 0)])
    if summed[0] != summed[1]:
        which = "first" if right.ndim == 1 else "last but one"
        raise _unfit(left, right, f"the last size of the left array and the {which} of the right one", summed)
    for pair in zip(reversed(ours[:-2]), reversed(theirs[:-2]), strict=False):
        if pair[0] != pair[1] and ONE not in pair:
            raise _unfit(left, right, "the numbers of matrices", pair)
    return _product(left, right)


def _unfit(left: ArrayProxy, right: ArrayProxy, what: str, sizes: tuple[Size, Size]) -> TypeError:
    first, second = (f"{one.builder.describe(one.variable)} of type {one.variable.type}" for one in (left, right))
    advice = "must be equal"
    if any(one.constant is None for one in sizes):
        advice = (
            "are not known to be equal; write one name for both in the annotations of the parameters, or say so with "
            f"tw.reshape, which is checked when the program runs{divided_advice(sizes)}"
        )
    return TypeError(f"@ of {first} and {second}: {what}, {sizes[0]} and {sizes[1]}, {advice}")


def _product(left: Any, right: Any) -> Any:
    if left.ndim > 2 and right.ndim > 2:
        return _stacked(left, right)
    if left.ndim >= 2 and right.ndim <= 2:
        return array_functions.map(lambda row: _product(row, right), left)
    if right.ndim > 2:
        return array_functions.map(lambda matrix: _product(left, matrix), right)
    if right.ndim == 2:
        return array_functions.map(lambda column: _product(left, column), array_functions.transpose(right))
    return fold_functions.reduce("add", 0, left * right)


def _stacked(left: Any, right: Any) -> Any:
    """The products of two stacks of matrices, of which one of one matrix, or of fewer dimensions, goes with all."""
    if left.ndim > right.ndim:
        return array_functions.map(lambda matrix: _product(matrix, right), left)
    if left.ndim < right.ndim:
        return array_functions.map(lambda matrix: _product(left, matrix), right)
    single = [one.variable.type.shape[0] == ONE for one in (left, right)]
    if single[0] != single[1]:
        return _product(left[0], right) if single[0] else _product(left, right[0])
    return array_functions.map(_product, left, right)
