"""What programs say with arrays: `map`, `iota`, `replicate`, rearrangements, `update` and `scatter`.

The folds (`reduce`, `scan`, ...) are in `fold_functions`, `cond` and loops in `control_functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.array_proxy import ArrayProxy, index_atom
from tilewright.frontend.einsum_arrays import as_array
from tilewright.frontend.program_tracing import (
    Tracer,
    active_tracer,
    as_element,
    atom_of,
    current,
    describe_value,
    fresh_parameters,
    is_array,
    name_of,
    parameter_names,
    size_of,
    traced_lambda,
    user_location,
    values_of,
    wrap,
    wrap_results,
)
from tilewright.frontend.scalar_constants import constant
from tilewright.frontend.scalar_tracing import ScalarProxy, apply
from tilewright.ir.lexer import INFIX
from tilewright.ir.nodes import (
    Atom,
    Concat,
    Iota,
    Lambda,
    Map,
    Rearrange,
    Replicate,
    Reshape,
    Scatter,
    Type,
    Update,
)
from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import I64, scalar_type_of
from tilewright.ir.sizes import Size, exact_quotient, product


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
    return wrap_results(tracer, targets, several, "map")


def elementwise(function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """A scalar function of arrays of one shape and scalars, as nested maps.

    Raises:
        TypeError: for arrays of unequal shapes.
    """
    arrays = {one.variable.name: one for one in operands if isinstance(one, ArrayProxy)}
    if not arrays:
        return function(*operands)
    first, *others = arrays.values()
    for one in others:
        if one.variable.type.shape != first.variable.type.shape:
            describe = first.builder.describe
            raise TypeError(
                f"elementwise operation on {describe(first.variable)} of type {first.variable.type} and "
                f"{describe(one.variable)} of type {one.variable.type}: the shapes must be equal; "
                "use tw.map for anything else"
            )

    def rows(*given: Any) -> Any:
        row_of = dict(zip(arrays, given, strict=True))
        inner = [row_of[one.variable.name] if isinstance(one, ArrayProxy) else one for one in operands]
        return elementwise(function, inner)

    return map(rows, *arrays.values())


def iota(count: Any, dtype: Any = "i64") -> Any:
    """[0, 1, ..., count - 1]; its elements can be indices and sizes."""
    tracer = current("iota")
    scalar = scalar_type_of(dtype)
    result = wrap_one(tracer, Iota(size_of(count, "the count of iota"), scalar), "iota")
    result.index_like = scalar == I64
    return result


def replicate(count: Any, value: Any, dtype: Any = None) -> Any:
    """`count` copies of a scalar or an array along a new outermost dimension; a tuple of counts gives several.

    A plain number has the type `dtype` (default: bool, i64, f64 or c128, as it is written).
    """
    tracer = current("replicate")
    counts = list(count) if isinstance(count, tuple | list) else [count]
    (value,), _ = values_of(value, "replicate")
    if dtype is not None and not isinstance(value, ArrayProxy):
        scalar = scalar_type_of(dtype)
        atom: Atom = value.astype(scalar).atom if isinstance(value, ScalarProxy) else constant(value, scalar)
    else:
        atom = atom_of(value)
    for one in reversed(counts):
        atom = tracer.bind(Replicate(size_of(one, "the count of replicate"), atom))
    return wrap(tracer, atom)


def transpose(array: Any, permutation: Sequence[int] | None = None) -> Any:
    """Dimensions permuted as by `numpy.transpose`: in reverse order unless a permutation is given.

    Of an array of NumPy, outside of programs, it is NumPy's view.
    """
    if active_tracer() is None and not is_array(array):
        return np.transpose(as_array(array), permutation)
    _, (given,) = arrays_of("transpose", [array])
    return rearrange(given, range(given.ndim)[::-1] if permutation is None else permutation)


def rearrange(array: Any, permutation: Sequence[int]) -> Any:
    """Dimensions permuted: dimension d of the result is dimension permutation[d] of the array."""
    tracer, (given,) = arrays_of("rearrange", [array])
    order = tuple(int(d) + given.ndim if d < 0 else int(d) for d in permutation)
    if sorted(order) != list(range(given.ndim)):
        raise TypeError(f"rearrange of {given.variable} of type {given.variable.type}: {order} is no permutation of it")
    identity = order == tuple(range(given.ndim))
    return given if identity else wrap_one(tracer, Rearrange(given.variable, order), "rearrange")


def reshape(array: Any, shape: Any) -> Any:
    """The elements in row-major order under another shape; -1 stands for the size that is left.

    Raises:
        TypeError: if numbers of elements are known to differ, or the size that is left cannot be expressed.
    """
    tracer, (given,) = arrays_of("reshape", [array])
    entries = list(shape) if isinstance(shape, tuple | list) else [shape]
    left = [d for d, one in enumerate(entries) if isinstance(one, int) and one == -1]
    total = product(given.variable.type.shape)
    sizes = [size_of(one, "a size of reshape") if d not in left else Size(()) for d, one in enumerate(entries)]
    if left:
        others = product(one for d, one in enumerate(sizes) if d not in left)
        quotient = exact_quotient(total, others)
        if len(left) > 1 or quotient is None:
            raise TypeError(
                f"reshape of {given.variable} of type {given.variable.type} to {tuple(entries)}: what -1 stands for "
                f"cannot be said ({total} elements in {others} parts); write the size"
            )
        sizes[left[0]] = quotient
    if product(sizes) != total and product(sizes).constant is not None and total.constant is not None:
        raise TypeError(
            f"reshape of {given.variable} of type {given.variable.type}: {total} elements do not fill the shape "
            f"{tuple(sizes)} of {product(sizes)}"
        )
    return wrap_one(tracer, Reshape(given.variable, tuple(sizes)), "reshape")


def concat(*arrays: Any, axis: int = 0) -> Any:
    """Arrays joined along a dimension (given one by one or as one tuple)."""
    listed = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], tuple | list) else arrays
    tracer, given = arrays_of("concat", listed)
    first = given[0]
    place = axis + first.ndim if axis < 0 else axis
    if not 0 <= place < first.ndim:
        raise TypeError(f"concat: there is no dimension {axis} in {first.variable} of type {first.variable.type}")
    for one in given[1:]:
        equal = [a == b for a, b in zip(one.variable.type.shape, first.variable.type.shape, strict=False)]
        fits = one.ndim == first.ndim and one.scalar == first.scalar and all(equal[:place] + equal[place + 1 :])
        if not fits:
            raise TypeError(
                f"concat along dimension {place}: {tracer.describe(first.variable)} of type {first.variable.type} and "
                f"{tracer.describe(one.variable)} of type {one.variable.type} must agree in dtype and the other sizes"
            )
    return wrap_one(tracer, Concat(place, tuple(one.variable for one in given)), "concat")


def update(array: Any, indices: Any, value: Any) -> Any:
    """A copy of the array with array[indices] = value; the indices are integers, the value what lies there."""
    tracer, (given,) = arrays_of("update", [array])
    keys = list(indices) if isinstance(indices, tuple) else [indices]
    if any(isinstance(one, slice) for one in keys):
        raise TypeError(f"update of {given.variable}: slices cannot be replaced; use tw.concat or tw.scatter")
    if len(keys) > given.ndim:
        raise IndexError(f"update of {given.variable} of type {given.variable.type} with {len(keys)} indices")
    atoms = tuple(index_atom(given, d, one) for d, one in enumerate(keys))
    expected = Type(given.scalar, given.variable.type.shape[len(keys) :])
    new = fitted(tracer, value, expected, f"the value for update of {given.variable}")
    return wrap_one(tracer, Update(given.variable, atoms, new, user_location()), "update")


def scatter(destination: Any, indices: Any, values: Any) -> Any:
    """A copy of `destination` with destination[indices[i]] = values[i]; indices out of range are ignored.

    Equal indices must come with equal values. `values` may be one scalar for all.
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


# --- what they share --------------------------------------------------------------------------------------------------


def wrap_one(tracer: Tracer, expression: Any, what: str) -> Any:
    """Bind an expression that gives one value."""
    return wrap_results(tracer, tracer.emit(expression), False, what)


def arrays_of(what: str, values: Sequence[Any]) -> tuple[Tracer, list[ArrayProxy]]:
    """The current tracer, and the values, which must be arrays.

    Raises:
        TypeError: for what is no array of the program.
    """
    tracer = current(what)
    if not values:
        raise TypeError(f"{what} needs at least one array")
    for number, one in enumerate(values):
        if not isinstance(one, ArrayProxy):
            hint = "; of counts make arrays with tw.iota(count)" if isinstance(one, int | ScalarProxy) else ""
            raise TypeError(f"{what}: argument {number} must be an array, not {describe_value(one)}{hint}")
    return tracer, list(values)


def common_width(tracer: Tracer, what: str, arrays: Sequence[ArrayProxy]) -> Size:
    """The one outer size of arrays.

    Raises:
        TypeError: if two differ, naming both arrays with their sizes.
    """
    first = arrays[0]
    width = first.variable.type.shape[0]
    for one in arrays[1:]:
        extent = one.variable.type.shape[0]
        if extent == width:
            continue
        advice = "they must be equal"
        if extent.constant is None or width.constant is None:
            sizes = f"({width}, ...)" if one.ndim > 1 else f"({width},)"
            advice = (
                "they are not known to be equal; write the same size for both in the annotations of the parameters "
                f"that they come from, or say so with tw.reshape(..., {sizes}), which is checked when the program runs"
            )
        raise TypeError(
            f"{what} over {tracer.describe(first.variable)} with {width} rows and {tracer.describe(one.variable)} with "
            f"{extent} rows: {advice}"
        )
    return width


def row_lambda(
    tracer: Tracer, what: str, function: Callable[..., Any], arrays: Sequence[ArrayProxy]
) -> tuple[Lambda, bool]:
    """A function of rows as a lambda, and whether it gives a tuple."""
    types = [one.variable.type.row for one in arrays]
    variables = fresh_parameters(tracer, types, parameter_names(function))
    scalars = [one.element for one in types if not one.rank] or [one.element for one in types]
    several = False

    def write() -> list[Atom]:
        nonlocal several
        rows = [
            tracer.index_proxy(variable) if one.index_like and not variable.type.rank else wrap(tracer, variable)
            for variable, one in zip(variables, arrays, strict=True)
        ]
        values, several = values_of(function(*rows), f"{what}: {name_of(function)}")
        return [atom_of(one, scalars[0]) for one in values]

    return traced_lambda(tracer, variables, write, f"{what}: {name_of(function)}"), several


def operation(function: Callable[..., Any] | str) -> Callable[..., Any]:
    """A function; a scalar operator by its name ("add") or symbol ("+"), and Python's min and max, as functions.

    Raises:
        TypeError: for anything else.
    """
    known = {min: "min", max: "max"}.get(function, function) if callable(function) else function
    if isinstance(known, str):
        name = INFIX.get(known, known)
        if name not in OPERATORS:
            raise TypeError(f"{known!r} is no operator; there are {', '.join(OPERATORS)}, or write a function")

        def operator(*operands: Any) -> Any:
            return apply(name, *operands)

        operator.__name__ = name
        return operator
    if not callable(known):
        raise TypeError(f"{describe_value(known)} is no function; give a function or the name of an operator")
    return known


def index_array(array: ArrayProxy, what: str) -> ArrayProxy:
    """Indices as an array of i64."""
    if array.ndim != 1 or not array.scalar.is_integer:
        raise TypeError(f"{what}: the indices {array.variable} have type {array.variable.type}; [n]i64 is needed")
    result: ArrayProxy = array if array.scalar == I64 else array.astype(I64)
    return result


def fitted(tracer: Tracer, value: Any, expected: Type, what: str) -> Atom:
    """A value as an atom of a certain type; a number or scalar also fills an array.

    Raises:
        TypeError: if it does not fit.
    """
    if isinstance(value, ArrayProxy):
        if value.variable.type != expected:
            raise TypeError(f"{what} must be of type {expected}, not {value.variable.type}")
        return value.variable
    atom = as_element(tracer, value, expected.element, what)
    for extent in reversed(expected.shape):
        atom = tracer.bind(Replicate(extent, atom))
    return atom
