"""The reference interpreter: what every node of the core language means, in plain NumPy and Python recursion.

Slow and obviously right; every pass and every backend is tested against it. Values are NumPy arrays of exactly the
declared dtypes and NumPy scalars. Integers wrap around. A scalar of type f16 or bf16 is carried in f32 (casts to these
types included) and rounded when it becomes an element of an array or leaves the program. Reductions run from the first
row to the last, starting from the neutral element.

>>> from tilewright.ir.builder import Builder
>>> from tilewright.ir.nodes import array
>>> from tilewright.ir.scalars import F32
>>> b = Builder()
>>> x = b.variable("x", array(F32, "n"))
>>> program = b.program("double", [x], [b.map([x], lambda e: b.apply("add", e, e))])
>>> interpret(program, [np.array([1, 2], np.float32)])
(array([2., 4.], dtype=float32),)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir import nodes
from tilewright.ir.arguments import Argument, Array, Value, as_scalar, convert_arguments, infer_sizes
from tilewright.ir.joined import Part, check_part
from tilewright.ir.nodes import Atom, Body, Lambda, Literal, Program, Type, Variable
from tilewright.ir.operators import OPERATORS, result_type
from tilewright.ir.scalars import compute_type, wrapped_i64
from tilewright.ir.sizes import Size
from tilewright.ir.typing import body_types, types_of
from tilewright.ir.written_indices import line_of, outside_text

__all__ = ["infer_sizes", "interpret"]

Values = tuple[Value, ...]
DEFAULT_THRESHOLD = 2**16  # [S2, Autotuning]


def interpret(program: Program, arguments: Sequence[Argument], thresholds: Mapping[str, float] | None = None) -> Values:
    """The results of a program: arrays (fresh ones, never the arguments' memory) and NumPy scalars.

    Args:
        program: any well-typed program.
        arguments: one NumPy array (any strides) or scalar per parameter.
        thresholds: values of the program's thresholds, which pick its versions; 2**16 for those not named.

    Raises:
        ValueError, TypeError: if the arguments do not fit the parameters, or a value does not fit its declared type.
        IndexError: for an Index, Slice or Update out of range, naming the array, the index and the extent.
    """
    environment = Environment(thresholds or {})
    with np.errstate(all="ignore"):
        values = convert_arguments(program, arguments)
        for name, value in infer_sizes(program, arguments).items():
            environment.values[name] = np.int64(value)
        environment.bind(program.parameters, values)
        results = environment.body(program.body)
        return tuple(
            np.array(value, dtype=atom.type.element.numpy)[()]
            for atom, value in zip(program.body.results, results, strict=True)
        )


class Environment:
    """The values of the names in scope. Names are unique in a program, so one dictionary serves all scopes."""

    def __init__(self, thresholds: Mapping[str, float]) -> None:
        self.values: dict[str, Value] = {}
        self.thresholds = thresholds

    def size(self, size: Size) -> int:
        """The value of a size."""
        if size.constant is not None:
            return size.constant
        missing = sorted(size.names - self.values.keys())
        if missing:
            raise ValueError(f"size {size} mentions {missing[0]}, which is not in scope")
        return size.evaluate({name: int(self.values[name]) for name in size.names})

    def extent(self, size: Size) -> int:
        """How many elements an array of a size has: none where it is negative, as in Python's slices and ranges."""
        return max(0, self.size(size))

    def shape(self, type: Type) -> tuple[int, ...]:
        """The value of a type's shape."""
        return tuple(map(self.extent, type.shape)) if type.shape else ()

    def atom(self, atom: Atom) -> Value:
        """The value of an atom."""
        if isinstance(atom, Literal):
            return as_scalar(atom.value, atom.scalar)
        if atom.name not in self.values:
            raise ValueError(f"variable {atom} of type {atom.type} is not in scope")
        return self.values[atom.name]

    def atoms(self, atoms: Sequence[Atom]) -> Values:
        """The values of atoms."""
        return tuple(map(self.atom, atoms))

    def array(self, variable: Variable) -> Array:
        """The value of an array variable."""
        return np.asarray(self.atom(variable))

    def bind(self, variables: Sequence[Variable], values: Sequence[Value]) -> None:
        """Give variables values, which must fit the variables' types."""
        for variable, value in zip(variables, values, strict=True):
            self.values[variable.name] = value
        for variable, value in zip(variables, values, strict=True):
            expected = self.shape(variable.type)
            if value.shape != expected:
                raise ValueError(f"{variable} has type {variable.type}, that is {expected}, not {value.shape}")
            element = variable.type.element
            if value.dtype != (element if expected else compute_type(element)).numpy:
                raise TypeError(f"{variable} has type {variable.type}, its value has dtype {value.dtype}")

    def body(self, body: Body) -> Values:
        """Run the statements; the values of the results."""
        for statement in body.statements:
            run = _MEANINGS[type(statement.expression)]
            self.bind(statement.targets, run(statement.expression, self))
        return self.atoms(body.results)

    def call(self, function: Lambda, arguments: Sequence[Value]) -> Values:
        """The results of a function."""
        self.bind(function.parameters, arguments)
        return self.body(function.body)

    def collect(self, rows: Sequence[Value], type: Type, outer: tuple[int, ...]) -> Value:
        """The values of type `type` at all points of an `outer` space, in row-major order, as one array."""
        if not outer:
            return rows[0]
        row_shape = np.shape(rows[0]) if rows else self.shape(type)
        result = np.empty((len(rows), *row_shape), type.element.numpy)
        for position, row in enumerate(rows):
            if np.shape(row) != row_shape:
                raise ValueError(f"irregular array: elements of type {type} have shapes {row_shape}, {np.shape(row)}")
            result[position] = row
        return result.reshape(*outer, *row_shape)


def _element(array: Array, type: Type, *indices: int) -> Value:
    """The sub-array or the element at `indices` of an array whose elements are of type `type`."""
    value = array[indices]
    return value if isinstance(value, np.ndarray) else as_scalar(value, type.element)


def _rows(arrays: Sequence[Variable], width: Size, e: Environment) -> list[Values]:
    """The rows of several arrays of equal outer size: one tuple per position."""
    count = e.extent(width)
    for one in arrays:
        if len(e.array(one)) != count:
            raise ValueError(f"{one} of type {one.type} has {len(e.array(one))} rows where {count} are needed")
    return [tuple(_element(e.array(one), one.type, i) for one in arrays) for i in range(count)]


def _check_index(x: nodes.Index | nodes.Update, e: Environment) -> tuple[int, ...]:
    values = tuple(map(int, e.atoms(x.indices)))
    for d, (index, extent) in enumerate(zip(values, e.array(x.array).shape, strict=False)):
        if not 0 <= index < extent:
            raise IndexError(f"{_at(x)}{outside_text(x.line, str(x.array), d, index, extent)}")
    return values


def _at(x: nodes.Index | nodes.Slice | nodes.Update) -> str:
    """Where the user wrote it."""
    return f"{line_of(x.line)}: " if x.line else ""


# --- scalars and control ----------------------------------------------------------------------------------------------


def _alias(x: nodes.Alias, e: Environment) -> Values:
    return (e.atom(x.atom),)


def _apply(x: nodes.Apply, e: Environment) -> Values:
    result = result_type(x.operator, tuple(one.type.element for one in x.operands))
    return (as_scalar(OPERATORS[x.operator].meaning(*e.atoms(x.operands)), result),)


def _cast(x: nodes.Cast, e: Environment) -> Values:
    return (as_scalar(e.atom(x.operand), x.scalar),)


def _size_value(x: nodes.SizeValue, e: Environment) -> Values:
    return (wrapped_i64(e.size(x.size)),)


def _threshold(x: nodes.Threshold, e: Environment) -> Values:
    return (np.bool_(e.size(x.parallelism) >= e.thresholds.get(x.name, DEFAULT_THRESHOLD)),)


def _if(x: nodes.If, e: Environment) -> Values:
    return e.body(x.then if e.atom(x.condition) else x.otherwise)


def _loop(x: nodes.Loop, e: Environment) -> Values:
    carried = e.atoms(x.initial)
    if isinstance(x.form, nodes.ForLoop):
        for index in range(e.size(x.form.bound)):
            e.bind((x.form.index, *x.parameters), (np.int64(index), *carried))
            carried = e.body(x.body)
        return carried
    while e.call(x.form.condition, carried)[0]:
        e.bind(x.parameters, carried)
        carried = e.body(x.body)
    return carried


# --- arrays -----------------------------------------------------------------------------------------------------------


def _index(x: nodes.Index, e: Environment) -> Values:
    return (_element(e.array(x.array), x.array.type, *_check_index(x, e)),)


def _slice(x: nodes.Slice, e: Environment) -> Values:
    places = []
    for d, (one, extent) in enumerate(zip(x.dimensions, e.array(x.array).shape, strict=True)):
        start, count = e.size(one.start), e.extent(one.count)
        last = start + one.step * (count - 1)
        if count > 0 and not (0 <= start < extent and 0 <= last < extent):
            outside = outside_text(x.line, str(x.array), d, last if 0 <= start < extent else start, extent)
            raise IndexError(
                f"{_at(x)}slice of {x.array}: {count} elements from index {start} to {last} in steps of {one.step}: "
                f"{outside}"
            )
        places.append(start + one.step * np.arange(count))
    return (e.array(x.array)[np.ix_(*places)],)


def _update(x: nodes.Update, e: Environment) -> Values:
    result = e.array(x.array).copy()
    result[_check_index(x, e)] = e.atom(x.value)
    return (result,)


def _iota(x: nodes.Iota, e: Environment) -> Values:
    return (np.arange(e.extent(x.count)).astype(x.scalar.numpy),)


def _replicate(x: nodes.Replicate, e: Environment) -> Values:
    value = np.asarray(e.atom(x.value), x.value.type.element.numpy)
    return (np.broadcast_to(value, (e.extent(x.count), *value.shape)),)


def _concat(x: nodes.Concat, e: Environment) -> Values:
    for number, one in enumerate(x.arrays):
        extent = one.type.shape[x.axis]
        check_part("program", Part(one.name, number, x.axis, extent), e.size(extent))
    return (np.concatenate([e.array(one) for one in x.arrays], axis=x.axis),)


def _reshape(x: nodes.Reshape, e: Environment) -> Values:
    value, shape = e.array(x.array), tuple(map(e.extent, x.shape))
    if value.size != int(np.prod(shape)):
        raise ValueError(f"reshape of {x.array}: {value.shape} has {value.size} elements, {shape} does not")
    return (value.reshape(shape),)


def _rearrange(x: nodes.Rearrange, e: Environment) -> Values:
    return (np.transpose(e.array(x.array), x.permutation),)


def _copy(x: nodes.Copy, e: Environment) -> Values:
    return (e.array(x.array).copy(),)


# --- combinators ------------------------------------------------------------------------------------------------------


def _collect(e: Environment, rows: Sequence[Values], types: Sequence[Type], outer: tuple[int, ...]) -> Values:
    """One array per result of a body (their types are given), from the results at all points of a space."""
    return tuple(e.collect([row[i] for row in rows], one, outer) for i, one in enumerate(types))


def _map(x: nodes.Map, e: Environment) -> Values:
    rows = [e.call(x.function, row) for row in _rows(x.arrays, x.width, e)]
    return _collect(e, rows, body_types(x.function.body), (len(rows),))


def _fold(x: nodes.Fold, e: Environment) -> Values:
    """All four: map, fold from the neutral element, keeping every prefix for a scan."""
    function = x.function if isinstance(x, nodes.Redomap | nodes.Scanomap) else None
    folded = len(x.neutral)
    accumulators = e.atoms(x.neutral)
    prefixes, rest = [], []
    for row in _rows(x.arrays, x.width, e):
        values = e.call(function, row) if function else row
        accumulators = e.call(x.combine, accumulators + values[:folded])
        prefixes.append(accumulators)
        rest.append(values[folded:])
    mapped = body_types(function.body)[folded:] if function else ()
    outer = (len(prefixes),)
    if isinstance(x, nodes.Scan | nodes.Scanomap):
        accumulators = _collect(e, prefixes, types_of(x.neutral), outer)
    return accumulators + _collect(e, rest, mapped, outer)


def _scatter(x: nodes.Scatter, e: Environment) -> Values:
    result = e.array(x.destination).copy()
    for place, value in zip(e.array(x.indices), e.array(x.values), strict=True):
        if 0 <= place < len(result):
            result[place] = value
    return (result,)


def _sweep(x: nodes.Sweep, e: Environment) -> Values:
    results = tuple(e.array(one).copy() for one in x.destinations)
    accumulators, mapped = e.atoms(x.neutral), []
    for row in _rows(x.arrays, x.width, e):
        values = e.call(x.before, row)
        accumulators = e.call(x.combine, accumulators + values[: len(x.neutral)])
        given = e.call(x.after, accumulators + values[len(x.neutral) :])
        for number, result in enumerate(results):
            place = int(given[2 * number])
            if 0 <= place < len(result):
                result[place] = given[2 * number + 1]
        mapped.append(given[2 * len(results) :])
    types = body_types(x.after.body)[2 * len(results) :]
    return (accumulators if x.totals else ()) + results + _collect(e, mapped, types, (len(mapped),))


def _offset_folds(x: nodes.OffsetFolds, e: Environment) -> Values:
    starts, count = e.array(x.starts), e.extent(x.count)
    ascend = len(starts) > count and starts[0] >= 0 and bool((starts[1:] >= starts[:-1]).all())
    if not ascend or starts[count] > e.extent(x.width):
        return e.body(x.otherwise)
    rows, found = _rows(x.arrays, x.width, e), []
    for i in range(count):
        total = e.atoms(x.neutral)
        for row in rows[starts[i] : starts[i + 1]]:
            total = e.call(x.combine, total + e.call(x.function, row))
        found.append(e.call(x.result, (np.int64(i), starts[i], starts[i + 1], *total)))
    return _collect(e, found, body_types(x.result.body), (count,))


def _combine_into(
    bins: Sequence[Array], place: tuple[int, ...], combine: Lambda, values: Values, e: Environment
) -> None:
    """bins[place] = combine(bins[place], values), or nothing if the last index is out of range."""
    types = [one.type for one in combine.parameters[: len(bins)]]
    if all(0 <= place[-1] < one.shape[len(place) - 1] for one in bins):
        old = tuple(_element(one, type_, *place).copy() for one, type_ in zip(bins, types, strict=True))
        for one, new in zip(bins, e.call(combine, old + values), strict=True):
            one[place] = new


def _hist(x: nodes.Hist, e: Environment) -> Values:
    bins = tuple(e.array(one).copy() for one in x.destinations)
    for place, *values in _rows((x.indices, *x.values), x.indices.type.shape[0], e):
        _combine_into(bins, (int(place),), x.combine, tuple(values), e)
    return bins


def _stream(x: nodes.StreamSeq, e: Environment) -> Values:
    width, chunk = e.extent(x.width), e.size(x.chunk)
    if chunk < 1:
        raise ValueError(f"stream: the chunk size {x.chunk} is {chunk}, at least 1 is needed")
    accumulators, chunks = e.atoms(x.initial), []
    arrays = [e.array(one) for one in x.arrays]
    for start in range(0, width, chunk):
        length = min(chunk, width - start)
        parts = tuple(one[start : start + length] for one in arrays)
        results = e.call(x.function, (np.int64(length), *accumulators, *parts))
        accumulators = results[: len(x.initial)]
        chunks.append(results[len(x.initial) :])
    mapped = types_of(x.function.body.results)[len(x.initial) :]
    empty = [np.empty((0, *e.shape(one.row)), one.element.numpy) for one in mapped]
    return accumulators + tuple(
        np.concatenate([nothing, *(one[i] for one in chunks)]) for i, nothing in enumerate(empty)
    )


# --- segmented operations ---------------------------------------------------------------------------------------------


def _point(space: nodes.SegSpace, point: tuple[int, ...], body: Body, e: Environment) -> Values:
    e.bind([index for index, _ in space.dimensions], [np.int64(one) for one in point])
    return e.body(body)


def _seg_map(x: nodes.SegMap, e: Environment) -> Values:
    shape = tuple(map(e.size, x.space.shape))
    rows = [_point(x.space, point, x.body, e) for point in np.ndindex(*shape)]
    return _collect(e, rows, body_types(x.body), shape)


def _seg_fold(x: nodes.SegRed | nodes.SegScan, e: Environment) -> Values:
    """Both: fold each innermost segment from the neutral element."""
    *outer, inner = map(e.size, x.space.shape)
    folded = len(x.neutral)
    totals, prefixes, rest = [], [], []
    for segment in np.ndindex(*outer):
        accumulators = e.atoms(x.neutral)
        for i in range(inner):
            values = _point(x.space, (*segment, i), x.body, e)
            accumulators = e.call(x.combine, accumulators + values[:folded])
            prefixes.append(accumulators)
            rest.append(values[folded:])
        totals.append(accumulators)
    shape = (*outer, inner)
    if isinstance(x, nodes.SegRed):
        results = _collect(e, totals, types_of(x.neutral), tuple(outer))
    else:
        results = _collect(e, prefixes, types_of(x.neutral), shape)
    return results + _collect(e, rest, body_types(x.body)[folded:], shape)


def _seg_hist(x: nodes.SegHist, e: Environment) -> Values:
    bins = tuple(e.array(one).copy() for one in x.destinations)
    for point in np.ndindex(*map(e.size, x.space.shape)):
        place, *values = _point(x.space, point, x.body, e)
        _combine_into(bins, (*point[:-1], int(place)), x.combine, tuple(values), e)
    return bins


_MEANINGS: dict[type, Callable[[Any, Environment], Values]] = {
    nodes.Alias: _alias, nodes.Apply: _apply, nodes.Cast: _cast, nodes.SizeValue: _size_value,
    nodes.Threshold: _threshold, nodes.If: _if, nodes.Loop: _loop, nodes.Index: _index, nodes.Slice: _slice,
    nodes.Update: _update, nodes.Iota: _iota, nodes.Replicate: _replicate, nodes.Concat: _concat,
    nodes.Reshape: _reshape, nodes.Rearrange: _rearrange, nodes.Copy: _copy, nodes.Map: _map, nodes.Reduce: _fold,
    nodes.Scan: _fold, nodes.Redomap: _fold, nodes.Scanomap: _fold, nodes.Scatter: _scatter, nodes.Sweep: _sweep,
    nodes.OffsetFolds: _offset_folds, nodes.Hist: _hist, nodes.StreamSeq: _stream, nodes.SegMap: _seg_map,
    nodes.SegRed: _seg_fold, nodes.SegScan: _seg_fold, nodes.SegHist: _seg_hist,
}  # fmt: skip
