"""NumPy's functions of neighbours in traced arrays: differences, borders, convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.frontend import array_functions, fold_functions, scalar_functions
from tilewright.frontend.array_arguments import dimension_of
from tilewright.frontend.array_proxy import subscript
from tilewright.frontend.decided_truth import is_surely
from tilewright.frontend.listed_arrays import operand_of
from tilewright.frontend.program_tracing import is_array
from tilewright.frontend.scalar_tracing import common_type
from tilewright.ir.scalars import BOOL, F64
from tilewright.ir.sizes import ZERO


def _along(axis: int, *cut: Any) -> tuple[Any, ...]:
    """The subscript that cuts along one dimension."""
    return (*(slice(None),) * axis, slice(*cut))


def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    """`numpy.diff`: what is between neighbours, `!=` of truth values."""
    if not isinstance(n, int) or n < 0:
        raise TypeError(f"numpy.diff: n is a constant of at least 0, not {n!r}")
    for _ in range(n):
        place = dimension_of("diff", a, axis)
        later, earlier = a[_along(place, 1, None)], a[_along(place, None, -1)]
        a = later != earlier if a.scalar == BOOL else later - earlier
    return a


def gradient(f: Any, *varargs: Any, axis: int | Sequence[int] | None = None) -> Any:
    """`numpy.gradient` with one distance for all dimensions or for each: half the difference of both neighbours, and
    at the two ends that of the one; of the type of `f`, or f64 of integers.
    """
    given = range(f.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    places = [dimension_of("gradient", f, one) for one in given]
    distances = list(varargs) * (len(places) if len(varargs) == 1 else 1) or [1.0] * len(places)
    if len(distances) != len(places) or any(is_array(one) for one in distances):
        raise TypeError(
            f"numpy.gradient of {len(places)} dimensions: give one distance, or as many, as scalars; where they differ "
            "from point to point write (ys[2:] - ys[:-2]) / (xs[2:] - xs[:-2]) and the like"
        )
    values = f if f.scalar.kind in "fc" else f.astype(F64)

    def along(place: int, distance: Any) -> Any:
        def between(later: Any, earlier: Any, steps: int) -> Any:
            return (values[_along(place, *later)] - values[_along(place, *earlier)]) / (steps * distance)

        ends = between((1, 2), (None, 1), 1), between((-1, None), (-2, -1), 1)
        found = array_functions.concat(ends[0], between((2, None), (None, -2), 2), ends[1], axis=place)
        return found if found.scalar == values.scalar else found.astype(values.scalar)

    found = [along(*one) for one in zip(places, distances, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0, end_values: Any = 0) -> Any:
    """`numpy.pad`: the modes "constant", "edge", "linear_ramp" (of floats), "reflect", "symmetric" and "wrap".

    Raises:
        TypeError: for other modes, and widths that are not given for all dimensions.
        ValueError: if there is nothing to be reflected or repeated.
    """
    if mode not in _BORDERS:
        raise TypeError(f"numpy.pad: mode {mode!r} cannot be traced; traceable: {', '.join(_BORDERS)}")
    widths = _pairs("pad_width", pad_width, array.ndim)
    named, given = ("end_values", end_values) if mode == "linear_ramp" else ("constant_values", constant_values)
    values = _pairs(named, given, array.ndim)
    for place, (pair, outside) in enumerate(zip(widths, values, strict=True)):
        kept = [side for side, width in enumerate(pair) if not (isinstance(width, int) and width == 0)]
        if not kept:
            continue
        if mode != "constant" and array.variable.type.shape[place] == ZERO:
            raise ValueError(f"numpy.pad: mode {mode!r} has nothing to put around a dimension of size 0")
        sides = {side: _BORDERS[mode](array, place, pair[side], side, outside[side]) for side in kept}
        parts = [sides.get(0), array, sides.get(1)]
        array = array_functions.concat(*(one for one in parts if one is not None), axis=place)
    return array


def _pairs(what: str, given: Any, rank: int) -> list[tuple[Any, Any]]:
    """Before and after each dimension, from one number, one pair or a pair for each dimension."""
    if not isinstance(given, list | tuple):
        return [(given, given)] * rank
    listed = [tuple(one) if isinstance(one, list | tuple) else one for one in given]
    if all(isinstance(one, tuple) for one in listed):
        pairs = listed * rank if len(listed) == 1 else listed
        if len(pairs) == rank and all(len(one) in (1, 2) for one in pairs):
            return [(one[0], one[-1]) for one in pairs]
    elif len(listed) in (1, 2) and not any(isinstance(one, tuple) for one in listed):
        return [(listed[0], listed[-1])] * rank
    raise TypeError(f"numpy.pad: {what}={given!r} for {rank} dimensions; a number, a pair, or a pair for each is meant")


def _constant_border(array: Any, place: int, width: Any, side: int, value: Any) -> Any:
    shape = list(array.shape)
    shape[place] = width
    return array_functions.replicate(shape, value, array.scalar)


def _edge_border(array: Any, place: int, width: Any, side: int, value: Any) -> Any:
    row = array[(*(slice(None),) * place, -side)]
    border = array_functions.replicate(width, row)
    return array_functions.rearrange(border, (*range(1, place + 1), 0, *range(place + 1, array.ndim)))


def _ramp_border(array: Any, place: int, width: Any, side: int, value: Any) -> Any:
    """On a line, in 64 bits, from the value at the end to the edge, which it does not reach."""
    scalar = array.scalar
    if scalar.kind not in "fc":
        raise TypeError(f"numpy.pad: mode 'linear_ramp' of {scalar}: convert it with .astype(tw.f64), then back")
    edge = array[_along(place, *((-1, None) if side else (0, 1)))].astype(common_type([scalar, F64]))
    steps = array_functions.iota(width)[(slice(None), *(None,) * (array.ndim - 1 - place))]
    return (value + (width - 1 - steps if side else steps) * ((edge - value) / width)).astype(scalar)


def _mirrored_border(array: Any, place: int, width: Any, side: int, beside: int) -> Any:
    """Rows backwards, from the first or last on, or from the one beside it."""
    extent = array.shape[place]
    if is_surely(extent >= width + beside) or (isinstance(width, int) and width == 1 and not beside):
        start = extent - width - beside if side else beside
        return array[_along(place, start, start + width)][_along(place, None, None, -1)]
    period = scalar_functions.maximum(2 * extent - 2 * beside, 1)
    at = _places(extent, width, side) % period
    return array[(*(slice(None),) * place, scalar_functions.minimum(at, period - 1 + beside - at))]


def _wrapped_border(array: Any, place: int, width: Any, side: int, _: Any) -> Any:
    extent = array.shape[place]
    if is_surely(extent >= width) or (isinstance(width, int) and width == 1):
        return array[_along(place, 0, width)] if side else array[_along(place, extent - width, extent)]
    return array[(*(slice(None),) * place, _places(extent, width, side) % extent)]


def _places(extent: Any, width: Any, side: int) -> Any:
    """Where the rows of a border lie beside the first row."""
    return array_functions.iota(width) + (extent if side else -width)


_BORDERS: dict[str, Callable[..., Any]] = {
    "constant": _constant_border,
    "edge": _edge_border,
    "linear_ramp": _ramp_border,
    "reflect": lambda array, place, width, side, _: _mirrored_border(array, place, width, side, 1),
    "symmetric": lambda array, place, width, side, _: _mirrored_border(array, place, width, side, 0),
    "wrap": _wrapped_border,
}


def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """`numpy.convolve` of vectors, each element a sum over the second one; of no elements, which NumPy refuses, sums of
    nothing, or an error.
    """
    if mode not in ("full", "same", "valid"):
        raise TypeError(f"numpy.convolve: mode is 'full', 'same' or 'valid', not {mode!r}")
    a, v = _vector("numpy.convolve: a", a), _vector("numpy.convolve: v", v)
    if a.ndim != 1 or v.ndim != 1:
        raise TypeError(f"numpy.convolve of {a.ndim} and {v.ndim} dimensions; both are vectors")
    first, count = a.shape[0], v.shape[0]
    scalar = common_type([a.scalar, v.scalar])
    values, turned = a.astype(scalar), v.astype(scalar)[::-1]
    longer, shorter = scalar_functions.maximum(first, count), scalar_functions.minimum(first, count)
    begin, found = {
        "full": (0, first + count - 1),
        "same": ((shorter - 1) // 2, longer),
        "valid": (shorter - 1, longer - shorter + 1),
    }[mode]

    def whole(place: Any) -> Any:
        """Of all of `v`; sums of one length go on in vectors."""
        start = place + begin - (count - 1)
        return _product_sum(values, start, turned, 0, count)

    def cut(place: Any) -> Any:
        """Of what of `v` meets elements of `a`: no zeros stand for others, as these times an infinity are nan."""
        last = place + begin
        low, high = scalar_functions.maximum(last - count + 1, 0), scalar_functions.minimum(last + 1, first)
        return _product_sum(values, low, turned, low + (count - 1 - last), high - low)

    to_whole = scalar_functions.clip(count - 1 - begin, 0, found)
    to_end = scalar_functions.clip(first - begin, to_whole, found)
    parts = ((cut, 0, to_whole), (whole, to_whole, to_end), (cut, to_end, found))
    sums = [_sums(function, start, stop) for function, start, stop in parts]
    return array_functions.concat(*sums)


def _sums(function: Callable[[Any], Any], start: Any, stop: Any) -> Any:
    return array_functions.map(lambda i: function(i + start), array_functions.iota(stop - start))


def _product_sum(left: Any, start: Any, right: Any, other: Any, count: Any) -> Any:
    """The sum of `count` products of elements from two places on, which are sure to be in range."""
    one, two = (
        subscript(array, slice(place, place + count), checked=False) for array, place in ((left, start), (right, other))
    )
    return fold_functions.reduce("add", 0, one * two)


def _vector(what: str, value: Any) -> Any:
    """An array, or one element of it."""
    operand = operand_of(what, value)
    return operand if is_array(operand) else array_functions.replicate(1, operand)


FUNCTIONS: dict[str, Callable[..., Any]] = {"diff": diff, "gradient": gradient, "pad": pad, "convolve": convolve}
"""What NumPy has as functions."""
