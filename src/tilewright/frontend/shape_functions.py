"""NumPy's functions of the shapes of traced arrays, and its products, as maps, rearrangements and einsums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.frontend import array_functions
from tilewright.frontend.array_arguments import arrays_of, dimension_of
from tilewright.frontend.einsum import einsum
from tilewright.frontend.program_tracing import is_array
from tilewright.frontend.tensordot import tensordot
from tilewright.ir.sizes import ONE


def with_new_dimensions(value: Any, places: Sequence[int]) -> Any:
    """The value with dimensions of size 1, which get these places in the result, in ascending order."""
    for place in places:
        value = array_functions.replicate(1, value)
        if place:
            value = array_functions.rearrange(value, (*range(1, place + 1), 0, *range(place + 1, value.ndim)))
    return value


def expand_dims(array: Any, axis: int | Sequence[int]) -> Any:
    """`numpy.expand_dims`."""
    given = [axis] if isinstance(axis, int) else list(axis)
    rank = array.ndim + len(given)
    wrong = [one for one in given if not -rank <= one < rank]
    places = sorted({one % rank for one in given})
    if wrong or len(places) != len(given):
        raise TypeError(f"expand_dims: axis {axis} for a result of {rank} dimensions")
    return with_new_dimensions(array, places)


def squeeze(array: Any, axis: int | Sequence[int] | None = None) -> Any:
    """`numpy.squeeze`: dimensions that are known to have size 1 taken out."""
    shape = array.variable.type.shape
    if axis is None:
        places = {d for d, extent in enumerate(shape) if extent == ONE}
    else:
        listed = [axis] if isinstance(axis, int) else list(axis)
        places = {dimension_of("squeeze", array, one) for one in listed}
    for place in places:
        if shape[place] != ONE:
            raise TypeError(f"squeeze of {array.variable}: dimension {place} has {shape[place]} elements, not 1")
    return array[tuple(0 if d in places else slice(None) for d in range(array.ndim))]


def swapaxes(array: Any, axis1: int, axis2: int) -> Any:
    """`numpy.swapaxes`."""
    order = list(range(array.ndim))
    first, second = (dimension_of("swapaxes", array, one) for one in (axis1, axis2))
    order[first], order[second] = second, first
    return array_functions.rearrange(array, order)


def moveaxis(array: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """`numpy.moveaxis`."""
    sources, places = (
        [dimension_of("moveaxis", array, one) for one in ([given] if isinstance(given, int) else given)]
        for given in (source, destination)
    )
    if len(set(sources)) != len(sources) or len(set(places)) != len(places) or len(sources) != len(places):
        raise TypeError(f"moveaxis: {source} and {destination} are no equally many different dimensions")
    order = [d for d in range(array.ndim) if d not in sources]
    for place, one in sorted(zip(places, sources, strict=True)):
        order.insert(place, one)
    return array_functions.rearrange(array, order)


def ravel(array: Any) -> Any:
    """`numpy.ravel` in C order."""
    return array_functions.reshape(array, -1)


def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    """`numpy.stack`."""
    _, given = arrays_of("stack", arrays)
    rank = given[0].ndim + 1
    if not -rank <= axis < rank:
        raise TypeError(f"stack: there is no dimension {axis} in a result of {rank} dimensions")
    return array_functions.concat(*(with_new_dimensions(one, [axis % rank]) for one in given), axis=axis % rank)


def vstack(arrays: Sequence[Any]) -> Any:
    """`numpy.vstack`."""
    _, given = arrays_of("vstack", arrays)
    return array_functions.concat(*(with_new_dimensions(one, [0]) if one.ndim == 1 else one for one in given))


def hstack(arrays: Sequence[Any]) -> Any:
    """`numpy.hstack`."""
    _, given = arrays_of("hstack", arrays)
    return array_functions.concat(*given, axis=0 if given[0].ndim == 1 else 1)


def repeat(array: Any, repeats: Any, axis: int | None = None) -> Any:
    """`numpy.repeat`, each element equally often."""
    values = ravel(array) if axis is None else array
    place = dimension_of("repeat", values, axis or 0)
    order = (place, *(d for d in range(values.ndim) if d != place))
    first = array_functions.rearrange(values, order)
    rows = array_functions.map(lambda row: array_functions.replicate(repeats, row), first)
    joined = array_functions.reshape(rows, (first.shape[0] * repeats, *first.shape[1:]))
    return array_functions.rearrange(joined, [order.index(d) for d in range(values.ndim)])


def tile(array: Any, reps: Any) -> Any:
    """`numpy.tile`."""
    counts = list(reps) if isinstance(reps, tuple | list) else [reps]
    value = with_new_dimensions(array, range(len(counts) - array.ndim))
    counts = [1] * (value.ndim - len(counts)) + counts
    for place, count in enumerate(counts):
        if isinstance(count, int) and count == 1:
            continue
        order = (place, *(d for d in range(value.ndim) if d != place))
        first = array_functions.rearrange(value, order)
        copies = array_functions.replicate(count, first)
        joined = array_functions.reshape(copies, (first.shape[0] * count, *first.shape[1:]))
        value = array_functions.rearrange(joined, [order.index(d) for d in range(value.ndim)])
    return value


def zeros_like(array: Any, dtype: Any = None) -> Any:
    """`numpy.zeros_like`."""
    return full_like(array, 0, dtype)


def ones_like(array: Any, dtype: Any = None) -> Any:
    """`numpy.ones_like`."""
    return full_like(array, 1, dtype)


def full_like(array: Any, fill_value: Any, dtype: Any = None) -> Any:
    """`numpy.full_like`."""
    return array_functions.replicate(array.shape, fill_value, array.scalar if dtype is None else dtype)


# --- products ---------------------------------------------------------------------------------------------------------


def dot(a: Any, b: Any) -> Any:
    """`numpy.dot`: over the last dimension of `a` and the last but one of `b`."""
    if not (is_array(a) and is_array(b)):
        return a * b
    return tensordot(a, b, ([a.ndim - 1], [max(b.ndim - 2, 0)]))


def inner(a: Any, b: Any) -> Any:
    """`numpy.inner`: over the last dimensions."""
    if not (is_array(a) and is_array(b)):
        return a * b
    return tensordot(a, b, ([a.ndim - 1], [b.ndim - 1]))


def vdot(a: Any, b: Any) -> Any:
    """`numpy.vdot`."""
    return einsum("i,i->", ravel(a.conj()), ravel(b))


def outer(a: Any, b: Any) -> Any:
    """`numpy.outer`."""
    return einsum("i,j->ij", ravel(a), ravel(b))


def trace(array: Any) -> Any:
    """`numpy.trace` of the first two dimensions."""
    from tilewright.frontend.axis_functions import sum as total

    return total(einsum("ii...->i...", array), axis=0)


def diagonal(array: Any) -> Any:
    """`numpy.diagonal` of the first two dimensions."""
    return einsum("ii...->...i", array)


def diag(v: Any) -> Any:
    """`numpy.diag`: of a matrix its diagonal, of a vector the matrix that has it."""
    return einsum("i->ii", v) if v.ndim == 1 else einsum("ii->i", v)


def _same(value: Any) -> Any:
    return value


METHODS: dict[str, Callable[..., Any]] = {
    "ravel": ravel, "flatten": ravel, "squeeze": squeeze, "swapaxes": swapaxes, "repeat": repeat, "dot": dot,
    "copy": _same, "trace": trace, "diagonal": diagonal,
}  # fmt: skip
"""What arrays have as methods."""

FUNCTIONS = {name: one for name, one in METHODS.items() if name != "flatten"} | {
    "expand_dims": expand_dims, "moveaxis": moveaxis, "stack": stack, "vstack": vstack, "hstack": hstack, "tile": tile,
    "zeros_like": zeros_like, "ones_like": ones_like, "full_like": full_like, "inner": inner, "vdot": vdot,
    "outer": outer, "diag": diag, "reshape": array_functions.reshape,
}  # fmt: skip
"""What NumPy has as functions."""
