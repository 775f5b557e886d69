"""NumPy's functions of neighbours in traced arrays: differences, borders, convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.frontend import array_functions, fold_functions, scalar_functions
from tilewright.frontend.array_arguments import dimension_of
from tilewright.frontend.program_tracing import is_array
from tilewright.frontend.scalar_tracing import common_type
from tilewright.ir.scalars import BOOL, F64


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
    at the two ends that of the one.
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
        return array_functions.concat(ends[0], between((2, None), (None, -2), 2), ends[1], axis=place)

    found = [along(*one) for one in zip(places, distances, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    """`numpy.pad`: the modes "constant", "edge", "reflect", "symmetric" and "wrap".

    What is reflected or repeated is at most as wide as the array, unless both are constants: more of it is out of range
    when the program runs.

    Raises:
        TypeError: for other modes, and widths that are not given for all dimensions.
        ValueError: if there is nothing to be reflected or repeated.
    """
    if mode not in _BORDERS:
        raise TypeError(f"numpy.pad: mode {mode!r} cannot be traced; traceable: {', '.join(_BORDERS)}")
    widths = _pairs("pad_width", pad_width, array.ndim)
    values = _pairs("constant_values", constant_values, array.ndim)
    for place, (pair, outside) in enumerate(zip(widths, values, strict=True)):
        places = _places_of_wide(mode, array.variable.type.shape[place].constant, pair)
        if places is not None:
            array = array[(*(slice(None),) * place, places)]
            continue
        sides = [_BORDERS[mode](array, place, width, side, outside[side]) for side, width in enumerate(pair)]
        kept = [one for one, width in zip(sides, pair, strict=True) if not (isinstance(width, int) and width == 0)]
        if kept:
            parts = [one for one in (sides[0], array, sides[1]) if one is array or any(one is side for side in kept)]
            array = array_functions.concat(*parts, axis=place)
    return array


def _places_of_wide(mode: str, extent: int | None, pair: tuple[Any, Any]) -> Any:
    """Which rows make up a dimension with borders that are wider than what they repeat, where all of it is constant;
    None where slices do.
    """
    if extent is None or mode not in ("reflect", "symmetric", "wrap") or not all(isinstance(one, int) for one in pair):
        return None
    if max(pair) <= extent - (mode == "reflect"):
        return None
    if extent == 0:
        raise ValueError(f"numpy.pad: mode {mode!r} has nothing to put around a dimension of size 0")
    period = {"reflect": max(1, 2 * extent - 2), "symmetric": 2 * extent, "wrap": extent}[mode]
    places = (array_functions.iota(pair[0] + extent + pair[1]) + -pair[0] % period) % period
    if mode == "wrap":
        return places
    return scalar_functions.minimum(places, period - (mode == "symmetric") - places)


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


def _mirrored_border(beside: int) -> Callable[..., Any]:
    """Rows backwards, from the first or last on, or from the one beside it."""

    def border(array: Any, place: int, width: Any, side: int, value: Any) -> Any:
        start = array.shape[place] - width - beside if side else beside
        return array[_along(place, start, start + width)][_along(place, None, None, -1)]

    return border


def _wrapped_border(array: Any, place: int, width: Any, side: int, value: Any) -> Any:
    extent = array.shape[place]
    return array[_along(place, 0, width)] if side else array[_along(place, extent - width, extent)]


_BORDERS: dict[str, Callable[..., Any]] = {
    "constant": _constant_border,
    "edge": _edge_border,
    "reflect": _mirrored_border(1),
    "symmetric": _mirrored_border(0),
    "wrap": _wrapped_border,
}


def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """`numpy.convolve` of vectors, each element a sum over the second one."""
    if mode not in ("full", "same", "valid"):
        raise TypeError(f"numpy.convolve: mode is 'full', 'same' or 'valid', not {mode!r}")
    if a.ndim != 1 or v.ndim != 1:
        raise TypeError(f"numpy.convolve of {a.ndim} and {v.ndim} dimensions; both are vectors")
    first, count = a.shape[0], v.shape[0]
    scalar = common_type([a.scalar, v.scalar])
    wide, turned = pad(a.astype(scalar), (count - 1, count - 1)), v.astype(scalar)[::-1]

    def summed(start: Any) -> Any:
        return fold_functions.reduce("add", 0, wide[start : start + count] * turned)

    longer, shorter = scalar_functions.maximum(first, count), scalar_functions.minimum(first, count)
    begin, found = {
        "full": (0, first + count - 1),
        "same": ((shorter - 1) // 2, longer),
        "valid": (shorter - 1, longer - shorter + 1),
    }[mode]
    return array_functions.map(lambda i: summed(i + begin), array_functions.iota(found))


FUNCTIONS: dict[str, Callable[..., Any]] = {"diff": diff, "gradient": gradient, "pad": pad, "convolve": convolve}
"""What NumPy has as functions."""
