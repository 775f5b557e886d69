"""What programs say with arrays: `map`, `iota`, `replicate`, rearrangements, `update` and `scatter`.

The folds (`reduce`, `scan`, ...) are in `fold_functions`, `cond` and loops in `control_functions`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.frontend import program_tracing as tracing
from tilewright.frontend.array_arguments import (
    arrays_of,
    common_width,
    dimension_of,
    divided_advice,
    fitted,
    index_array,
    operation,
    row_lambda,
    wrap_one,
)
from tilewright.frontend.array_proxy import ArrayProxy, index_atom, known_as, subscript, written
from tilewright.frontend.decided_truth import plain
from tilewright.frontend.einsum_arrays import as_array
from tilewright.frontend.named_types import type_named
from tilewright.frontend.program_tracing import active_tracer, as_element
from tilewright.frontend.scalar_constants import constant
from tilewright.frontend.scalar_tracing import ScalarProxy
from tilewright.ir.counts import element_count, left_over
from tilewright.ir.nodes import Atom, Concat, Iota, Map, Rearrange, Replicate, Reshape, Scatter, Type, Update
from tilewright.ir.scalars import BOOL, I64, U64, ScalarType
from tilewright.ir.sizes import ONE, Size, minimum, product
from tilewright.runtime.messages import value_text

_BITS_OF_DIGITS = 20  # of shifts beyond i64: such a digit times an extent is within, of any array that a memory holds


def map(function: Callable[..., Any] | str, *arrays: Any) -> Any:
    """The function of every row of the arrays: [f(x[0], y[0]), f(x[1], y[1]), ...].

    Args:
        function: a Python function of as many rows (scalars, or arrays of one dimension less) as there are arrays, or
            the name of a scalar operator.
        *arrays: arrays of one outer size.

    Returns:
        One array; where the function gives a tuple, a tuple of arrays.

    Raises:
        TypeError: for what is no array, unequal sizes, and a function that gives something else.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def axpy(a: tw.f64, xs: tw.f64["n"], ys: tw.f64["n"]):
        ...     return tw.map(lambda x, y: a * x + y, xs, ys)
        >>> print(axpy(2.0, np.ones(2), np.zeros(2)))
        [2. 2.]
    """
    tracer, given = arrays_of("map", arrays)
    width = common_width(tracer, "map", given)
    row_function, several = row_lambda(tracer, "map", operation(function), given)
    targets = tracer.emit(Map(width, row_function, tuple(one.variable for one in given)), "t")
    return tracing.wrap_results(tracer, targets, several, "map")


def elementwise(function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """A scalar function of arrays and scalars, as nested maps, broadcast as in NumPy: arrays of fewer dimensions meet
    the last ones of others, and dimensions that are known to have size 1 go with any size.

    Raises:
        TypeError: for arrays whose sizes do not agree.
    """
    arrays = {one.variable.name: one for one in operands if isinstance(one, ArrayProxy)}
    if not arrays:
        return function(*operands)
    largest = max(arrays.values(), key=lambda one: one.ndim)
    for one in arrays.values():
        _check_broadcast(largest, one)
    highest = {name: one for name, one in arrays.items() if one.ndim == largest.ndim}
    mapped = {name: one for name, one in highest.items() if one.variable.type.shape[0] != ONE} or highest
    first = {name: one[0] for name, one in highest.items() if name not in mapped}
    common_width(largest.builder, "elementwise operation", list(mapped.values()))

    def rows(*given: Any) -> Any:
        row_of = first | dict(zip(mapped, given, strict=True))
        inner = [row_of.get(one.variable.name, one) if isinstance(one, ArrayProxy) else one for one in operands]
        return elementwise(function, inner)

    return map(rows, *mapped.values())


def _check_broadcast(largest: ArrayProxy, other: ArrayProxy) -> None:
    shape, its = largest.variable.type.shape, other.variable.type.shape
    if any(a != b and ONE not in (a, b) for a, b in zip(reversed(shape), reversed(its), strict=False)):
        describe = largest.builder.describe
        raise TypeError(
            f"elementwise operation on {describe(largest.variable)} of type {largest.variable.type} and "
            f"{describe(other.variable)} of type {other.variable.type}: the shapes must be equal, or one of them that "
            "of the other's rows, where 1 goes with any size (parameters of one size are annotated with one name); use "
            "tw.map for anything else"
            f"{divided_advice((*shape, *its))}"
        )


def iota(count: Any, dtype: Any = "i64") -> Any:
    """[0, 1, ..., count - 1]; its elements can be indices and sizes. A count below 0 gives no elements.

    Raises:
        TypeError: for a count that is no integer.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def squares(count: tw.i64):
        ...     return tw.map(lambda i: i * i, tw.iota(count))
        >>> print(squares(4))
        [0 1 4 9]
    """
    tracer = tracing.current("iota")
    scalar = type_named(dtype)
    result = wrap_one(tracer, Iota(tracing.size_of(count, "the count of iota"), scalar), "iota")
    result.index_like = scalar == I64
    return result


def replicate(count: Any, value: Any, dtype: Any = None) -> Any:
    """`count` copies of a scalar or an array along a new outermost dimension; a tuple of counts gives several.

    A plain number has the type `dtype` (default: bool, i64, f64 or c128, as it is written).

    Raises:
        TypeError: for counts that are no integers, and a number that the dtype does not hold.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def table(row: tw.f64["n"], k: tw.i64):
        ...     return tw.replicate(k, row), tw.replicate((k, 2), 0.5)
        >>> [part.tolist() for part in table(np.ones(3), 2)]
        [[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]
    """
    tracer = tracing.current("replicate")
    counts = list(count) if isinstance(count, tuple | list) else [count]
    (value,), _ = tracing.values_of(value, "replicate")
    if dtype is not None and not isinstance(value, ArrayProxy):
        scalar = type_named(dtype)
        atom: Atom = value.astype(scalar).atom if isinstance(value, ScalarProxy) else constant(value, scalar)
    else:
        atom = tracing.atom_of(value)
    for one in reversed(counts):
        atom = tracer.bind(Replicate(tracing.size_of(one, "the count of replicate"), atom))
    return tracing.wrap(tracer, atom)


def transpose(array: Any, permutation: Sequence[int] | None = None) -> Any:
    """Dimensions permuted as by `numpy.transpose`: in reverse order unless a permutation is given.

    Of an array of NumPy, outside of programs, it is NumPy's view, with NumPy's errors; in programs errors are those of
    `rearrange`.

    Example:
        >>> import numpy as np
        >>> transpose(np.ones((2, 3, 4))).shape
        (4, 3, 2)
    """
    if active_tracer() is None and not tracing.is_array(array):
        return np.transpose(as_array(array, "transpose"), permutation)
    _, (given,) = arrays_of("transpose", [array])
    return rearrange(given, range(given.ndim)[::-1] if permutation is None else permutation)


def rearrange(array: Any, permutation: Sequence[int]) -> Any:
    """Dimensions permuted: dimension d of the result is dimension permutation[d] of the array, and none is copied.

    Raises:
        TypeError: unless `permutation` has every dimension of the array once.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def turned(xss: tw.f64["n", "m"]):
        ...     return tw.rearrange(xss, (1, 0))
        >>> turned(np.ones((2, 3))).shape
        (3, 2)
    """
    tracer, (given,) = arrays_of("rearrange", [array])
    try:
        listed = [operator.index(d) for d in permutation]
    except TypeError:
        raise TypeError(f"rearrange: a permutation is a sequence of integers, not {value_text(permutation)}") from None
    order = tuple(d + given.ndim if d < 0 else d for d in listed)
    if sorted(order) != list(range(given.ndim)):
        raise TypeError(f"rearrange of {given.variable} of type {given.variable.type}: {order} is no permutation of it")
    if order == tuple(range(given.ndim)):
        return given
    turned = wrap_one(tracer, Rearrange(given.variable, order), "rearrange")
    name, dimensions = known_as(given)
    tracer.parts_of[turned.variable.name] = (name, tuple(dimensions[d] for d in order))
    return turned


def reshape(array: Any, shape: Any) -> Any:
    """The elements in row-major order under another shape; -1 stands for the size that is left.

    Raises:
        TypeError: if numbers of elements are known to differ, or the size that is left cannot be expressed.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def flat(xss: tw.f64["n", "m"]):
        ...     return tw.reshape(xss, -1)
        >>> flat(np.eye(2)).tolist()
        [1.0, 0.0, 0.0, 1.0]
    """
    tracer, (given,) = arrays_of("reshape", [array])
    entries = list(shape) if isinstance(shape, tuple | list) else [shape]
    left = [d for d, one in enumerate(entries) if isinstance(one, int) and one == -1]
    sizes = [tracing.size_of(one, "a size of reshape") if d not in left else Size(()) for d, one in enumerate(entries)]
    total = element_count(given.variable.type.shape)
    if len(left) > 1:
        raise TypeError(f"reshape of {given.variable} of type {given.variable.type}: -1 stands for one size only")
    if left:
        others = [one for d, one in enumerate(sizes) if d not in left]
        quotient = left_over(given.variable.type.shape, others)
        if quotient is None and total.constant is None and (product(others).constant or 0) > 0:
            quotient = total // product(others)  # that nothing remains is checked by the call
        if quotient is None:
            named = [one.atom if type(one) is ScalarProxy else sizes[d] for d, one in enumerate(entries)]  # as written
            shown = ", ".join("-1" if d in left else str(one) for d, one in enumerate(named))
            parts = " by ".join(str(one) for d, one in enumerate(named) if d not in left)
            raise TypeError(
                f"reshape of {given.variable} of type {given.variable.type} to ({shown}): what -1 stands for cannot be "
                f"said ({total} elements in {parts} parts); write the size"
            )
        sizes[left[0]] = quotient
    if product(sizes) != total and product(sizes).constant is not None and total.constant is not None:
        raise TypeError(
            f"reshape of {given.variable} of type {given.variable.type}: {total} elements do not fill the shape "
            f"{tuple(sizes)} of {product(sizes)}"
        )
    return wrap_one(tracer, Reshape(given.variable, tuple(sizes)), "reshape")


def concat(*arrays: Any, axis: int = 0) -> Any:
    """Arrays joined along a dimension (given one by one or as one tuple); lists of scalars are vectors of their type.

    Raises:
        TypeError: for arrays of unequal dtypes or of unequal sizes along the other dimensions.
        ValueError: from the call, where the size of a part (x[a:b] with b < a) is below 0.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def rolled(xs: tw.f64["n"], k: tw.i64):
        ...     return tw.concat(xs[k:], [0, -1], xs[:k])
        >>> rolled(np.arange(4.0), 1).tolist()
        [1.0, 2.0, 3.0, 0.0, -1.0, 0.0]
    """
    listed = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], tuple | list) else arrays
    scalars = [one.scalar for one in listed if isinstance(one, ArrayProxy)]
    tracer, given = arrays_of("concat", [_vector_of(one, scalars[0]) if scalars else one for one in listed])
    first = given[0]
    place = dimension_of("concat", first, axis)
    for one in given[1:]:
        equal = [a == b for a, b in zip(one.variable.type.shape, first.variable.type.shape, strict=False)]
        fits = one.ndim == first.ndim and one.scalar == first.scalar and all(equal[:place] + equal[place + 1 :])
        if not fits:
            raise TypeError(
                f"concat along dimension {place}: {tracer.describe(first.variable)} of type {first.variable.type} and "
                f"{tracer.describe(one.variable)} of type {one.variable.type} must agree in dtype and the other sizes"
            )
    return wrap_one(tracer, Concat(place, tuple(one.variable for one in given)), "concat")


def _vector_of(values: Any, scalar: ScalarType) -> Any:
    """A list of scalars as a vector; anything else as it is."""
    if not isinstance(values, list) or not values or any(isinstance(one, list | tuple | ArrayProxy) for one in values):
        return values
    return concat(*(replicate(1, one, scalar) for one in values))


def roll(array: Any, shift: Any, axis: int | tuple[int, ...] | list[int] | None = None) -> Any:
    """Rows moved on by `shift` places, those at the end to the beginning, as `numpy.roll` does it.

    Args:
        array: an array.
        shift: an integer of any size and sign, which may be computed; for several axes one, or as many.
        axis: the dimension along which to move, or several; without one all elements are moved on in their order.

    Raises:
        TypeError: for a shift that is no integer, an axis that there is not, and other numbers of shifts than of axes.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def rolled(xs: tw.f64["n"], k: tw.i64):
        ...     return tw.roll(xs, k)
        >>> rolled(np.arange(4.0), -1).tolist()
        [1.0, 2.0, 3.0, 0.0]
    """
    _, (given,) = arrays_of("roll", [array])
    if isinstance(axis, tuple | list):
        shifts = list(shift) if isinstance(shift, tuple | list) else [shift] * len(axis)
        if len(shifts) != len(axis):
            raise TypeError(f"roll along {len(axis)} axes by {len(shifts)} shifts; give one shift, or as many")
        moved: Any = given
        for one, along in zip(shifts, axis, strict=True):
            moved = roll(moved, one, along)
        return moved
    if axis is None and given.ndim != 1:
        return reshape(roll(reshape(given, -1), shift), given.shape)
    place = dimension_of("roll", given, axis or 0)
    before = (slice(None),) * place
    extent = given.variable.type.shape[place]
    constant_shift = _constant_shift(shift)
    if constant_shift in (-1, 0, 1):  # the usual ones: where neighbours lie is plain then
        if not constant_shift:
            return given
        least = minimum(1, extent)
        at: Any = tracing.IndexProxy(extent - least if constant_shift > 0 else least, given.builder)
    elif constant_shift is not None:
        at = _remainder(-constant_shift, given.shape[place])
    else:  # in a type that holds the extent, and at first less, as it is turned over
        if shift.scalar == U64:  # half of them are no i64
            shift = shift % given.shape[place]
        shift = (shift if isinstance(shift, tracing.IndexProxy) else shift.astype(I64)) % given.shape[place]
        at = (0 - shift) % given.shape[place]
    parts = [subscript(given, (*before, one), checked=False) for one in (slice(at, None), slice(None, at))]
    return concat(*parts, axis=place)


def _constant_shift(shift: Any) -> int | None:
    """A constant shift as a number of Python's, which has no ends; None of a traced integer."""
    if isinstance(shift, ScalarProxy) and (shift.scalar.is_integer or shift.scalar == BOOL) and shift.known is None:
        return None
    try:
        return operator.index(plain(shift))
    except TypeError:
        raise TypeError(f"roll: the shift must be an integer, not {tracing.describe_value(shift)}") from None


def _remainder(number: int, extent: Any) -> Any:
    """number % extent, of a number of any size: by its digits, as i64 holds one of them times an extent."""
    if -(2**63) <= number < 2**63 or extent.extent.constant is not None:
        return number % extent
    found: Any = 0
    magnitude = abs(number)
    for place in reversed(range(0, magnitude.bit_length(), _BITS_OF_DIGITS)):
        digit = (magnitude >> place) % 2**_BITS_OF_DIGITS
        found = (found * 2**_BITS_OF_DIGITS + digit) % extent
    return (0 - found) % extent if number < 0 else found


def update(array: Any, indices: Any, value: Any) -> Any:
    """A copy of the array with array[indices] = value; the indices are integers, the value what lies there.

    Raises:
        TypeError: for slices, and a value that is not what lies there.
        IndexError: for indices out of range; from the call where they are computed.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def marked(xs: tw.f64["n"], at: tw.i64):
        ...     return tw.update(xs, at, -1)
        >>> marked(np.ones(3), 1).tolist()
        [1.0, -1.0, 1.0]
    """
    tracer, (given,) = arrays_of("update", [array])
    keys = list(indices) if isinstance(indices, tuple) else [indices]
    if any(isinstance(one, slice) for one in keys):
        raise TypeError(f"update of {given.variable}: slices cannot be replaced; use tw.concat or tw.scatter")
    if len(keys) > given.ndim:
        raise IndexError(f"update of {given.variable} of type {given.variable.type} with {len(keys)} indices")
    atoms = tuple(index_atom(given, d, one) for d, one in enumerate(keys))
    expected = Type(given.scalar, given.variable.type.shape[len(keys) :])
    new = fitted(tracer, value, expected, f"the value for update of {given.variable}")
    return wrap_one(tracer, Update(given.variable, atoms, new, written(given, keys, range(len(keys)))), "update")


def scatter(destination: Any, indices: Any, values: Any) -> Any:
    """A copy of `destination` with destination[indices[i]] = values[i]; indices out of range are ignored.

    Equal indices must come with equal values. `values` may be one scalar for all.

    Raises:
        TypeError: for indices that are no integers, and values of other types or sizes than the destination's rows.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def placed(xs: tw.f64["n"], at: tw.i64["k"]):
        ...     return tw.scatter(xs, at, 9)
        >>> placed(np.zeros(4), np.array([2, 0, 7])).tolist()
        [9.0, 0.0, 9.0, 0.0]
    """
    tracer, (target, places) = arrays_of("scatter", [destination, indices])
    places = index_array(places, "scatter")
    if not isinstance(values, ArrayProxy):
        element = as_element(tracer, values, target.scalar, "the value of scatter")
        values = wrap_one(tracer, Replicate(places.variable.type.shape[0], element), "replicate")
    common_width(tracer, "scatter", [places, values])
    rows, expected = values.variable.type.row, target.variable.type.row
    if rows != expected:
        raise TypeError(
            f"scatter: values {tracer.describe(values.variable)} have rows of type {rows}, the destination "
            f"{tracer.describe(target.variable)} has {expected}"
        )
    return wrap_one(tracer, Scatter(target.variable, places.variable, values.variable), "scatter")
