"""NumPy's functions over the axes of traced arrays (`xs.sum(axis=1)`, `np.argmax(xs)`), as maps, folds and scans.

Results and their types are NumPy's. Folds of no elements give their neutral element where NumPy refuses them (`argmax`
and `argmin` give 0), and means nan, of which it warns: how many there are is known only when the program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.frontend import array_functions, fold_functions, scalar_functions
from tilewright.frontend.array_arguments import dimension_of
from tilewright.frontend.named_types import type_named
from tilewright.frontend.program_tracing import IndexProxy, describe_value, is_array
from tilewright.frontend.scalar_tracing import apply, common_type
from tilewright.frontend.shape_functions import ravel, with_new_dimensions
from tilewright.ir.counts import is_natural
from tilewright.ir.scalars import BOOL, F32, F64, I64, U8, U64, ScalarType, real_of
from tilewright.ir.sizes import ZERO, maximum, product
from tilewright.runtime.messages import value_text

Axis = int | Sequence[int] | None


def sum(array: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """`numpy.sum`: small integers and truth values are added up in 64 bits, f16 and bf16 in f32."""
    return _folded_as("sum", "add", 0, array, axis, dtype, keepdims)


def prod(array: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """`numpy.prod`, in the types of `sum`."""
    return _folded_as("prod", "mul", 1, array, axis, dtype, keepdims)


def max(array: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """`numpy.max`: nan if there is one."""
    _refuse_complex("max", array)
    return _folded("max", "or" if array.scalar == BOOL else "max", -np.inf, array, axis, keepdims)


def min(array: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """`numpy.min`: nan if there is one."""
    _refuse_complex("min", array)
    return _folded("min", "and" if array.scalar == BOOL else "min", np.inf, array, axis, keepdims)


def any(array: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """`numpy.any`."""
    return _folded("any", "or", False, _truth(array), axis, keepdims)


def all(array: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """`numpy.all`."""
    return _folded("all", "and", True, _truth(array), axis, keepdims)


def count_nonzero(array: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """`numpy.count_nonzero`."""
    return sum(_truth(array), axis, I64, keepdims)


def mean(array: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """`numpy.mean`: of integers in f64, of f16 and bf16 in f32."""
    result, wide = _mean_types(array, dtype)
    total = sum(_converted(array, wide), _axes("mean", array, axis), wide, keepdims)
    return _converted(total / _count(array, axis), result)


def average(a: Any, axis: Axis = None, weights: Any = None, *, keepdims: bool = False) -> Any:
    """`numpy.average`: weights of the array's shape, or a vector of them along one axis."""
    if weights is None:
        return mean(a, axis, keepdims=keepdims)
    along = is_array(weights) and weights.ndim == 1 and isinstance(axis, int | np.integer)
    if not is_array(weights) or (weights.ndim != a.ndim and not along):
        raise TypeError(
            f"numpy.average: weights are an array of {a.ndim} dimensions, or a vector along one axis, not "
            f"{describe_value(weights)}"
        )
    axes = _axes("average", a, axis)
    if along:
        weights = with_new_dimensions(weights, [d for d in range(a.ndim) if d not in axes])
    scalar = common_type([a.scalar, weights.scalar, *([] if a.scalar.kind in "fc" else [F64])])
    values, factors = _converted(a, scalar), _converted(weights, scalar)
    return sum(values * factors, axes, None, keepdims) / sum(factors, axes, None, keepdims)


def var(array: Any, axis: Axis = None, dtype: Any = None, ddof: int | float = 0, keepdims: bool = False) -> Any:
    """`numpy.var`: the squares of what is off the mean, which is computed first."""
    result, wide = _mean_types(array, dtype)
    axes, values = _axes("var", array, axis), _converted(array, wide)
    off = values - mean(values, axes, wide, keepdims=True)
    squares = off.real * off.real + off.imag * off.imag if wide.is_complex else off * off
    count = _count(array, axis)
    left = count - ddof if isinstance(ddof, int) else count.astype(real_of(wide)) - ddof
    return _converted(sum(squares, axes, None, keepdims) / left, real_of(result))


def std(array: Any, axis: Axis = None, dtype: Any = None, ddof: int | float = 0, keepdims: bool = False) -> Any:
    """`numpy.std`."""
    result, wide = _mean_types(array, dtype)
    variance = var(_converted(array, wide), _axes("std", array, axis), wide, ddof, keepdims)
    return _converted(scalar_functions.sqrt(variance), real_of(result))


def norm(array: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Any:
    """`numpy.linalg.norm` of vectors by their squares, and of whole matrices the Frobenius norm."""
    axes = _axes("norm", array, axis)
    if ord is not None and not (ord == 2 and len(axes) == 1) and not (ord == "fro" and len(axes) == 2):
        raise TypeError(f"numpy.linalg.norm with ord={ord!r} of {len(axes)} dimensions cannot be traced; use tw.reduce")
    values = array if array.scalar.kind in "fc" else array.astype(F64)
    squares = values.real * values.real + values.imag * values.imag if values.scalar.is_complex else values * values
    return scalar_functions.sqrt(sum(squares, axes, None, keepdims))


def ptp(array: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """`numpy.ptp`: the greatest less the least; 0 of no elements."""
    greatest, least = max(array, axis, keepdims), min(array, axis, keepdims)
    return scalar_functions.where(greatest < least, 0, greatest - least)  # the neutral elements are that way round


def argmax(array: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """`numpy.argmax`: the first of the greatest, or of the nans if there are any."""
    return _first_best("argmax", "gt", -np.inf, array, axis, keepdims)


def argmin(array: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """`numpy.argmin`: the first of the least, or of the nans if there are any."""
    return _first_best("argmin", "lt", np.inf, array, axis, keepdims)


def cumsum(array: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """`numpy.cumsum`, in the types of `sum`."""
    return _scanned("cumsum", "add", 0, array, axis, dtype)


def cumprod(array: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """`numpy.cumprod`, in the types of `sum`."""
    return _scanned("cumprod", "mul", 1, array, axis, dtype)


# --- how --------------------------------------------------------------------------------------------------------------


def _axes(name: str, array: Any, axis: Axis) -> tuple[int, ...]:
    given: Sequence[Any] = range(array.ndim) if axis is None else axis if isinstance(axis, tuple | list) else [axis]
    wrong = [one for one in given if not isinstance(one, int | np.integer)]
    if wrong:
        raise TypeError(f"{name}: an axis is an integer, not {value_text(wrong[0])}")
    found = tuple(dimension_of(name, array, int(one)) for one in given)
    if len(set(found)) != len(found):
        raise TypeError(f"{name}: axis {axis} names a dimension twice")
    return found


def _over(name: str, array: Any, axis: Axis, keepdims: bool, fold: Callable[[Any], Any]) -> Any:
    """`fold` of the sub-arrays along some axes, for each index of the others."""
    axes = _axes(name, array, axis)
    kept = [d for d in range(array.ndim) if d not in axes]

    def inside(part: Any, outer: int) -> Any:
        return array_functions.map(lambda row: inside(row, outer - 1), part) if outer else fold(part)

    result = inside(array_functions.rearrange(array, (*kept, *axes)), len(kept))
    return with_new_dimensions(result, sorted(axes)) if keepdims else result


def _folded(name: str, operator: str, neutral: Any, array: Any, axis: Axis, keepdims: bool) -> Any:
    def fold(part: Any) -> Any:
        if not is_array(part):
            return part
        return fold_functions.reduce(operator, neutral, array_functions.map(fold, part) if part.ndim > 1 else part)

    return _over(name, array, axis, keepdims, fold)


def _folded_as(name: str, operator: str, neutral: Any, array: Any, axis: Axis, dtype: Any, keepdims: bool) -> Any:
    result, wide = _sum_types(array, dtype)
    axes = _axes(name, array, axis)
    return _converted(_folded(name, operator, neutral, _converted(array, wide), axes, keepdims), result)


def _scanned(name: str, operator: str, neutral: Any, array: Any, axis: int | None, dtype: Any) -> Any:
    result, wide = _sum_types(array, dtype)
    values = ravel(array) if axis is None else array
    place = dimension_of(name, values, axis or 0)
    values = _converted(values, wide)
    order = (*(d for d in range(values.ndim) if d != place), place)

    def inside(part: Any) -> Any:
        return fold_functions.scan(operator, neutral, part) if part.ndim == 1 else array_functions.map(inside, part)

    scanned = inside(array_functions.rearrange(values, order))
    return _converted(array_functions.rearrange(scanned, [order.index(d) for d in range(values.ndim)]), result)


def _first_best(name: str, better: str, worst: float, array: Any, axis: int | None, keepdims: bool) -> Any:
    _refuse_complex(name, array)
    values = array.astype(U8) if array.scalar == BOOL else array
    rank = values.ndim
    if axis is None:
        values = ravel(values)

    def second_is_best(first: Any, second: Any) -> Any:
        if values.scalar.kind != "f":
            return apply(better, second, first)
        return (first == first) & (apply(better, second, first) | (second != second))  # noqa: PLR0124  # nan

    def combine(first: Any, second: Any) -> Any:
        taken = second_is_best(first[0], second[0])
        return scalar_functions.where(taken, second[0], first[0]), scalar_functions.where(taken, second[1], first[1])

    def fold(part: Any) -> Any:
        # The place 0 belongs to a neutral element that no element is worse than, nor taken in place of the first.
        return fold_functions.reduce(combine, (worst, 0), part, array_functions.iota(part.shape[0]))[1]

    found = _over(name, values, 0 if axis is None else axis, keepdims and axis is not None, fold)
    return with_new_dimensions(found, range(rank)) if keepdims and axis is None else found


def _converted(value: Any, scalar: ScalarType) -> Any:
    return value if value.scalar == scalar else value.astype(scalar)


def _count(array: Any, axis: Axis) -> Any:
    extents = [array.variable.type.shape[one] for one in _axes("mean", array, axis)]
    counted = product(one if is_natural(one) else maximum(one, ZERO) for one in extents)
    return IndexProxy(counted, array.builder, weak=True)


def _sum_types(array: Any, dtype: Any) -> tuple[ScalarType, ScalarType]:
    """The type of a sum, and that in which it is computed."""
    scalar: ScalarType = array.scalar
    if dtype is not None:
        result = type_named(dtype)
    elif scalar.kind in "bi":
        result = I64
    else:
        result = U64 if scalar.kind == "u" else scalar
    return result, F32 if result.kind == "f" and result.bytes < F32.bytes else result


def _mean_types(array: Any, dtype: Any) -> tuple[ScalarType, ScalarType]:
    scalar = type_named(dtype) if dtype is not None else array.scalar
    return _sum_types(array, scalar if scalar.kind in "fc" else F64)


def _truth(array: Any) -> Any:
    return array if array.scalar == BOOL else array != 0


def _refuse_complex(name: str, array: Any) -> None:
    if array.scalar.is_complex:
        raise TypeError(f"{name} of {array.variable}: complex numbers have no order here; take .real or tw.abs")


METHODS: dict[str, Callable[..., Any]] = {
    "sum": sum, "prod": prod, "max": max, "min": min, "any": any, "all": all, "mean": mean, "var": var, "std": std,
    "argmax": argmax, "argmin": argmin, "cumsum": cumsum, "cumprod": cumprod,
}  # fmt: skip
"""What arrays have as methods."""

FUNCTIONS = METHODS | {
    "amax": max, "amin": min, "count_nonzero": count_nonzero, "norm": norm, "ptp": ptp,
    "average": average,
}  # fmt: skip
"""What NumPy has as functions."""
