"""NumPy's functions of the shapes of traced arrays, and its products, as maps, rearrangements and einsums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.frontend import array_functions, control_functions, scalar_functions
from tilewright.frontend.array_arguments import arrays_of, dimension_of
from tilewright.frontend.array_proxy import known_as
from tilewright.frontend.einsum import einsum
from tilewright.frontend.program_tracing import IndexProxy, is_array, size_of
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


def reshape(array: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """`numpy.reshape`, rows or columns first; `copy` has no meaning in a program.

    Raises:
        TypeError: for other orders: how arguments lie in memory is not known while the function is traced.
    """
    if order not in ("C", "F"):
        raise TypeError(f"reshape: order is 'C' or 'F', not {order!r}: how an array lies in memory is not known here")
    if order == "C":
        return array_functions.reshape(array, shape)
    turned = list(shape)[::-1] if isinstance(shape, tuple | list) else shape
    return array_functions.transpose(array_functions.reshape(array_functions.transpose(array), turned))


def ravel(array: Any, order: str = "C") -> Any:
    """`numpy.ravel`."""
    flat = reshape(array, -1, order)
    if not is_array(array):
        return flat
    name, dimensions = known_as(array)
    flat.builder.parts_of[flat.variable.name] = (name, dimensions) if array.ndim == 1 else (f"{name}.ravel()", (0,))
    return flat


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


def trace(array: Any, offset: Any = 0) -> Any:
    """`numpy.trace` of the first two dimensions."""
    from tilewright.frontend.axis_functions import sum as total

    return total(diagonal(array, offset), axis=-1)


def diagonal(array: Any, offset: Any = 0) -> Any:
    """`numpy.diagonal` of the first two dimensions, or what is `offset` places right of it."""
    if array.ndim < 2:
        raise TypeError(
            f"numpy.diagonal and numpy.trace need two dimensions at least, and {array.variable} is of type "
            f"{array.variable.type}; np.diag makes a matrix of a vector"
        )
    rows, columns = array.variable.type.shape[:2]
    if _is_zero(offset) and rows == columns:
        return einsum("ii...->...i", array)
    down, right = scalar_functions.maximum(0 - offset, 0), scalar_functions.maximum(offset, 0)
    count = scalar_functions.minimum(array.shape[0] - down, array.shape[1] - right)
    if isinstance(count, IndexProxy) and (known := count.extent.constant) is not None and known < 0:
        count = 0  # beyond the last column or row
    found = array_functions.map(lambda i: array[i + down, i + right], array_functions.iota(count))
    return array_functions.rearrange(found, (*range(1, found.ndim), 0))


def diag(v: Any, k: Any = 0) -> Any:
    """`numpy.diag`: of a matrix its diagonal, of a vector the matrix that has it; or `k` places right of it."""
    if v.ndim != 1:
        return diagonal(v, k)
    if _is_zero(k):
        return einsum("i->ii", v)
    places = array_functions.iota(v.shape[0] + scalar_functions.maximum(k, 0 - k))
    down, last = scalar_functions.maximum(0 - k, 0), v.shape[0] - 1

    def element(i: Any, j: Any) -> Any:
        inside = (j - i == k) & (i >= down) & (i - down <= last)
        place = scalar_functions.where(inside, i - down, 0)
        return control_functions.cond(inside, lambda: v[place], lambda: scalar_functions.cast(0, v.scalar))

    return array_functions.map(lambda i: array_functions.map(lambda j: element(i, j), places), places)


def _is_zero(value: Any) -> bool:
    return isinstance(value, int) and value == 0


def tril(m: Any, k: Any = 0) -> Any:
    """`numpy.tril`: zeros in place of what is more than `k` places right of the diagonal."""
    return _triangle(m, lambda i, j: j - i <= k)


def triu(m: Any, k: Any = 0) -> Any:
    """`numpy.triu`: zeros in place of what is less than `k` places right of the diagonal."""
    return _triangle(m, lambda i, j: j - i >= k)


def _triangle(m: Any, kept: Callable[[Any, Any], Any]) -> Any:
    """Of the last two dimensions; a vector is every row, as in NumPy."""
    matrix = array_functions.replicate(m.shape[0], m) if m.ndim == 1 else m
    if matrix.ndim > 2:
        return array_functions.map(lambda one: _triangle(one, kept), matrix)
    columns, zero = array_functions.iota(matrix.shape[1]), scalar_functions.cast(0, matrix.scalar)

    def row(i: Any, values: Any) -> Any:
        return array_functions.map(lambda j, one: scalar_functions.where(kept(i, j), one, zero), columns, values)

    return array_functions.map(row, array_functions.iota(matrix.shape[0]), matrix)


def broadcast_to(array: Any, shape: Any) -> Any:
    """`numpy.broadcast_to`.

    Raises:
        TypeError: for a shape that has fewer dimensions, or a size that is not that of the array, where that is not 1.
    """
    extents = list(shape) if isinstance(shape, tuple | list) else [shape]
    if not is_array(array) or array.ndim > len(extents):
        raise TypeError(f"numpy.broadcast_to: an array of at most {len(extents)} dimensions is needed")
    sizes = [size_of(one, "a size of numpy.broadcast_to") for one in extents]
    own = array.variable.type.shape
    for place, (wanted, extent) in enumerate(zip(sizes[len(sizes) - len(own) :], own, strict=True)):
        if extent in (wanted, ONE):
            continue
        known = wanted.constant is not None and extent.constant is not None
        advice = "" if known else "; write the same size in the annotation, or say so with tw.reshape"
        raise TypeError(
            f"numpy.broadcast_to of {array.builder.describe(array.variable)} of type {array.variable.type} to the "
            f"shape ({', '.join(map(str, sizes))}): dimension {place}, of {extent} elements, is to have {wanted}; only "
            f"dimensions of 1 element can be broadcast{advice}"
        )
    zeros = array_functions.replicate(extents, 0, array.scalar)
    return array_functions.elementwise(lambda one, _: one, [array, zeros])


def fliplr(m: Any) -> Any:
    """`numpy.fliplr`."""
    return m[:, ::-1]


def flipud(m: Any) -> Any:
    """`numpy.flipud`."""
    return m[::-1]


def _same(value: Any, order: str = "K") -> Any:
    """A copy, which programs need not make; in which order one lies in memory has no meaning here."""
    return value


METHODS: dict[str, Callable[..., Any]] = {
    "ravel": ravel, "flatten": ravel, "squeeze": squeeze, "swapaxes": swapaxes, "repeat": repeat, "dot": dot,
    "copy": _same, "trace": trace, "diagonal": diagonal,
}  # fmt: skip
"""What arrays have as methods."""

FUNCTIONS = {name: one for name, one in METHODS.items() if name != "flatten"} | {
    "expand_dims": expand_dims, "moveaxis": moveaxis, "stack": stack, "vstack": vstack, "hstack": hstack, "tile": tile,
    "zeros_like": zeros_like, "ones_like": ones_like, "full_like": full_like, "inner": inner, "vdot": vdot,
    "outer": outer, "diag": diag, "reshape": reshape, "tril": tril, "triu": triu,
    "broadcast_to": broadcast_to, "fliplr": fliplr, "flipud": flipud,
}  # fmt: skip
"""What NumPy has as functions."""
