"""Elements of traced arrays that arrays of indices pick, as in NumPy: `xs[at]`, `take`, `searchsorted`, `interp`.

Indices below 0 count from the end, which takes a comparison for each; those that are then out of range are an
`IndexError` of the call, as of every index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.frontend import array_functions, control_functions, scalar_functions
from tilewright.frontend.array_arguments import dimension_of
from tilewright.frontend.array_proxy import ArrayProxy, known_as, subscript
from tilewright.frontend.listed_arrays import MOST_LISTED, array_of, operand_of
from tilewright.frontend.program_tracing import IndexProxy, is_array
from tilewright.frontend.scalar_tracing import ScalarProxy, apply
from tilewright.frontend.shape_functions import ravel, stack
from tilewright.ir.scalars import BOOL, C128, F64, I64
from tilewright.ir.sizes import ONE


def gathered(array: ArrayProxy, keys: Sequence[Any]) -> Any:
    """array[keys] where some keys are arrays of indices, or a list of constants; the others are as of `subscript`.

    Arrays of indices meet as in elementwise operations, integers with them. What they pick stands where they do, or in
    front where something else is between them.

    Raises:
        TypeError: for masks, whose number of elements is known only when the program runs, and for other arrays.
    """
    listed = [place for place, one in enumerate(keys) if isinstance(one, list | np.ndarray)]
    if listed:
        return _listed(array, keys, listed)
    advanced = [place for place, one in enumerate(keys) if not (one is None or isinstance(one, slice))]
    for place in advanced:
        _check_indices(array, keys[place])
    whole = subscript(array, tuple(slice(None) if place in advanced else one for place, one in enumerate(keys)))
    indices = [keys[place] for place in advanced]
    if advanced == list(range(advanced[0], advanced[-1] + 1)):
        return _for_rows(whole, advanced[0], lambda part: _picked(part, indices))
    others = [place for place in range(len(keys)) if place not in advanced]
    return _picked(array_functions.rearrange(whole, (*advanced, *others)), indices)


def _for_rows(array: ArrayProxy, outer: int, function: Callable[[Any], Any]) -> Any:
    """A function of the parts of an array, over so many of its first dimensions."""
    if not outer:
        return function(array)

    def of_part(part: Any) -> Any:
        name, dimensions = known_as(array)
        array.builder.parts_of[part.variable.name] = (name, dimensions[1:])
        return _for_rows(part, outer - 1, function)

    return array_functions.map(of_part, array)


def _picked(rows: ArrayProxy, indices: Sequence[Any]) -> Any:
    """The rows at these indices along the first dimensions."""
    extents = [rows.shape[number] for number in range(len(indices))]

    def row(*places: Any) -> Any:
        return rows[tuple(_from_the_end(one, extent) for one, extent in zip(places, extents, strict=True))]

    return array_functions.elementwise(row, indices)


def _check_indices(array: ArrayProxy, key: Any) -> None:
    if is_array(key) and key.scalar == BOOL:
        origins = array.builder.origins
        name, mask = (
            "xs" if array.variable.name in origins else array.variable,
            "mask" if key.variable.name in origins else key.variable,
        )
        raise TypeError(
            f"{name}[{mask}]: a mask is no index: how many elements it keeps is not known while the function is "
            f"traced. Write tw.where({mask}, {name}, 0) for an array of the same size, keep elements as "
            f"examples/filter.py does, or gather: tw.map(lambda i: {name}[i], indices)"
        )
    scalar = key.scalar if is_array(key) or isinstance(key, ScalarProxy) else I64
    if not scalar.is_integer:
        raise TypeError(f"{array.variable}[...]: indices are integers, not {scalar}")


def _from_the_end(index: Any, extent: Any) -> Any:
    """An index of an array; one below 0 counts from the end. What is out of range stays as it is."""
    if not isinstance(index, ScalarProxy) or isinstance(index, IndexProxy) or index.scalar.kind != "i":
        return index
    wide = index.astype(I64)
    return scalar_functions.where((wide < 0) & (wide >= -extent), wide + extent, wide)


def _listed(array: ArrayProxy, keys: Sequence[Any], places: Sequence[int]) -> Any:
    """A list of constants in place of one index."""
    numbers = np.asarray(keys[places[0]])
    others = [one for place, one in enumerate(keys) if place not in places]
    plain = all(one is None or isinstance(one, slice) for one in others)
    if len(places) > 1 or not plain or numbers.ndim != 1 or not 0 < numbers.size <= MOST_LISTED:
        raise TypeError(
            f"{array.variable}[...]: of constants one list of 1 to {MOST_LISTED} indices may stand beside slices; give "
            "an array of indices as a parameter"
        )
    if numbers.dtype.kind not in "iu":
        raise TypeError(f"{array.variable}[...]: a list of indices has integers, not {numbers.dtype}")
    (place,) = places
    parts = [subscript(array, (*keys[:place], int(one), *keys[place + 1 :])) for one in numbers]
    return stack(parts, axis=place) if is_array(parts[0]) else _row_of(parts)


def _row_of(values: Sequence[Any]) -> Any:
    return array_functions.concat(*(array_functions.replicate(1, one) for one in values))


def take(a: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    """`numpy.take`: `mode` is "raise", "clip" (indices below 0 are 0 then) or "wrap"."""
    values = ravel(a) if axis is None else a
    place = dimension_of("take", values, axis or 0)
    extent = values.shape[place]
    if mode not in ("raise", "clip", "wrap"):
        raise TypeError(f"numpy.take: mode is 'raise', 'clip' or 'wrap', not {mode!r}")
    indices = list(indices) if isinstance(indices, tuple) else indices
    if isinstance(indices, list | np.ndarray) and (mode != "raise" or np.ndim(indices) != 1):
        indices = array_of("numpy.take: indices", indices)
    if mode != "raise" and (is_array(indices) or isinstance(indices, ScalarProxy)):
        _check_indices(values, indices)
        indices = indices if isinstance(indices, IndexProxy) else indices.astype(I64)  # which holds the extent
    if mode == "clip":
        indices = scalar_functions.clip(indices, 0, extent - 1)
    elif mode == "wrap":
        indices = indices % extent
    return subscript(values, (*(slice(None),) * place, indices))


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """`numpy.take_along_axis`: in each row those elements that the same row of the indices names."""
    if axis is None:
        arr, axis = ravel(arr), 0
    if arr.ndim != indices.ndim:
        raise TypeError(f"numpy.take_along_axis: indices of {indices.ndim} dimensions for an array of {arr.ndim}")
    place = dimension_of("take_along_axis", arr, axis)
    order = (*(d for d in range(arr.ndim) if d != place), place)
    taken = _in_rows(array_functions.rearrange(arr, order), array_functions.rearrange(indices, order))
    return array_functions.rearrange(taken, [order.index(d) for d in range(arr.ndim)])


def _in_rows(values: Any, indices: Any) -> Any:
    if values.ndim == 1:
        return values[indices]
    single = [one.variable.type.shape[0] == ONE for one in (values, indices)]
    if single[0] and not single[1]:
        return array_functions.map(lambda at: _in_rows(values[0], at), indices)
    if single[1] and not single[0]:
        return array_functions.map(lambda row: _in_rows(row, indices[0]), values)
    return array_functions.map(_in_rows, values, indices)


# --- places in sorted arrays ------------------------------------------------------------------------------------------


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """`numpy.searchsorted`: where elements would be put into a sorted array; nans are the greatest."""
    if side not in ("left", "right"):
        raise TypeError(f"numpy.searchsorted: side is 'left' or 'right', not {side!r}")
    a, v = array_of("numpy.searchsorted: a", a), operand_of("numpy.searchsorted: v", v)
    sorter = None if sorter is None else array_of("numpy.searchsorted: sorter", sorter)
    if a.ndim != 1:
        raise TypeError(f"numpy.searchsorted: a is a vector, not of {a.ndim} dimensions")
    before: Callable[[Any, Any], Any] = _less if side == "left" else lambda one, other: ~_less(other, one)

    def place(value: Any) -> Any:
        def halved(low: Any, high: Any) -> Any:
            middle = low + (high - low) // 2
            right = before(a[middle if sorter is None else sorter[middle]], value)
            return scalar_functions.where(right, middle + 1, low), scalar_functions.where(right, high, middle)

        zero = scalar_functions.cast(0, I64)
        return control_functions.while_loop(lambda low, high: low < high, (zero, a.shape[0]), halved)[0]

    return array_functions.elementwise(place, [v])


def _less(one: Any, other: Any) -> Any:
    if one.scalar.is_complex:
        raise TypeError("numpy.searchsorted: complex numbers have no order here")
    less = apply("lt", one, other)
    if one.scalar.is_float:
        less = less | (apply("ne", other, other) & apply("eq", one, one))
    return less


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    """`numpy.interp`: on the lines between points, of which there is one at least; computed in f64, of complex `fp` in
    c128.
    """
    x, points, heights = (
        operand_of("numpy.interp: x", x),
        array_of("numpy.interp: xp", xp),
        array_of("numpy.interp: fp", fp),
    )
    _check_points(x, points, heights)
    points, heights = points.astype(F64), heights.astype(C128 if heights.scalar.is_complex else F64)
    last = points.shape[0] - 1

    def height(at: Any) -> Any:
        place = scalar_functions.clip(searchsorted(points, at, "right") - 1, 0, last)
        following = scalar_functions.minimum(place + 1, last)
        slope = (heights[following] - heights[place]) / (points[following] - points[place])
        on_line = slope * (at - points[place]) + heights[place]
        inside = scalar_functions.where((place == last) | (at == points[place]), heights[place], on_line)
        before = heights[0] if left is None else left
        after = heights[last] if right is None else right
        found = scalar_functions.where(at < points[0], before, scalar_functions.where(at > points[last], after, inside))
        return scalar_functions.where(at == at, found, at)  # noqa: PLR0124  # nan

    return array_functions.elementwise(lambda one: height(one.astype(F64)), [x])


def _check_points(x: Any, points: Any, heights: Any) -> None:
    for name, one in (("x", x), ("xp", points)):
        if one.scalar.is_complex:
            raise TypeError(f"numpy.interp: {name} is real, not {one.scalar}; give {name}.real")
    if points.ndim != 1 or heights.ndim != 1:
        raise TypeError(f"numpy.interp: xp and fp are vectors, not of {points.ndim} and {heights.ndim} dimensions")
    counts = [one.variable.type.shape[0] for one in (points, heights)]
    if counts[0].constant is not None and counts[1].constant is not None and counts[0] != counts[1]:
        raise TypeError(f"numpy.interp: xp has {counts[0]} elements and fp {counts[1]}; they must be equally many")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "take": take, "take_along_axis": take_along_axis, "searchsorted": searchsorted, "interp": interp,
}  # fmt: skip
"""What NumPy has as functions."""

METHODS: dict[str, Callable[..., Any]] = {"take": take, "searchsorted": searchsorted}
"""What arrays have as methods."""
