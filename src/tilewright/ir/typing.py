"""The type of every expression, derived from its parts; ill-formed expressions raise `TypeError` with the reason."""

from __future__ import annotations

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Type, Variable
from tilewright.ir.operators import result_type
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import ZERO, Size, product, size


def types_of(atoms: tuple[Atom, ...] | tuple[Variable, ...]) -> tuple[Type, ...]:
    """The types of atoms."""
    return tuple(atom.type for atom in atoms)


def body_types(body: Body) -> tuple[Type, ...]:
    """The types of a body's results."""
    return types_of(body.results)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise TypeError(message)


def _show(types: tuple[Type, ...]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


def _require_arrays(destinations: tuple[Variable, ...], what: str) -> None:
    for one in destinations:
        _require(one.type.rank > 0, f"{what}: the destination {one} is a scalar of type {one.type}")


def _row_types(arrays: tuple[Variable, ...], width: Size, what: str) -> tuple[Type, ...]:
    for one in arrays:
        _require(one.type.rank > 0, f"{what} needs arrays, but {one} is a scalar of type {one.type}")
        _require(
            one.type.shape[0] == width, f"{what} of width {width} over {one}, whose outer size is {one.type.shape[0]}"
        )
    return tuple(one.type.row for one in arrays)


def _apply_lambda(function: Lambda, arguments: tuple[Type, ...], what: str) -> tuple[Type, ...]:
    expected = types_of(function.parameters)
    _require(expected == arguments, f"{what}: the function takes {_show(expected)} but is given {_show(arguments)}")
    return body_types(function.body)


def _check_combine(combine: Lambda, neutral: tuple[Type, ...], what: str) -> None:
    results = _apply_lambda(combine, neutral + neutral, f"{what} operator")
    _require(
        results == neutral, f"{what}: the operator gives {_show(results)}, its neutral element is {_show(neutral)}"
    )


def _check_indices(indices: tuple[Atom, ...], array: Variable, what: str) -> None:
    _require(len(indices) <= array.type.rank, f"{what} of {array}: {len(indices)} indices for rank {array.type.rank}")
    for one in indices:
        _require(one.type == Type(I64), f"{what} of {array}: index {one} has type {one.type}, i64 is needed")


def _outer(types: tuple[Type, ...], *extents: Size) -> tuple[Type, ...]:
    return tuple(one.array_of(*extents) for one in types)


def result_types(expression: Expression) -> tuple[Type, ...]:
    """The types of the values that an expression gives.

    Raises:
        TypeError: if the expression is ill-formed, saying which part and why.
    """
    match expression:
        case nodes.Alias(atom):
            return (atom.type,)
        case nodes.Apply(operator, operands):
            for one in operands:
                _require(one.type.rank == 0, f"operator {operator} takes scalars, but {one} has type {one.type}")
            return (Type(result_type(operator, tuple(one.type.element for one in operands))),)
        case nodes.Cast(scalar, operand):
            _require(operand.type.rank == 0, f"cast takes a scalar, but {operand} has type {operand.type}")
            complex_to_real = operand.type.element.is_complex and not scalar.is_complex
            _require(not complex_to_real, f"cast of {operand} from {operand.type} to {scalar}: take real or imag first")
            return (Type(scalar),)
        case nodes.SizeValue():
            return (Type(I64),)
        case nodes.Threshold(name):
            _require(bool(name), "a threshold needs a name")
            return (Type(BOOL),)
        case nodes.If(condition, then, otherwise):
            _require(condition.type == Type(BOOL), f"if needs a bool condition, not {condition.type}")
            left, right = body_types(then), body_types(otherwise)
            _require(left == right, f"the branches of an if give {_show(left)} and {_show(right)}")
            return left
        case nodes.Loop():
            return _loop_types(expression)
        case nodes.Map(width, function, arrays):
            return _outer(_apply_lambda(function, _row_types(arrays, width, "map"), "map"), width)
        case nodes.Reduce() | nodes.Scan() | nodes.Redomap() | nodes.Scanomap():
            return _fold_types(expression)
        case nodes.Scatter(destination, indices, values):
            _require_arrays((destination,), "scatter")
            _require(indices.type.element == I64 and indices.type.rank == 1, f"scatter: indices have {indices.type}")
            _require(values.type.rank >= 1, f"scatter: values have type {values.type}")
            _require(values.type.shape[0] == indices.type.shape[0], "scatter: as many values as indices are needed")
            _require(values.type.row == destination.type.row, f"scatter of {values.type} into {destination.type}")
            return (destination.type,)
        case nodes.Hist(destinations, combine, neutral, indices, values):
            _require_arrays(destinations, "hist")
            _require(indices.type.element == I64 and indices.type.rank == 1, f"hist: indices have {indices.type}")
            rows = _row_types(values, indices.type.shape[0], "hist")
            _check_combine(combine, types_of(neutral), "hist")
            _require(rows == types_of(neutral), f"hist: values {_show(rows)}, neutral {_show(types_of(neutral))}")
            targets = tuple(one.type.row for one in destinations)
            _require(targets == rows, f"hist: values {_show(rows)} into bins of {_show(targets)}")
            return types_of(destinations)
        case nodes.Sweep():
            return _sweep_types(expression)
        case nodes.OffsetFolds():
            return _offset_types(expression)
        case nodes.StreamSeq():
            return _stream_types(expression)
        case nodes.SegMap(_, space, body):
            return _outer(body_types(body), *space.shape)
        case nodes.SegRed() | nodes.SegScan() | nodes.SegHist():
            return _segmented_types(expression)
        case _:
            return (_array_type(expression),)


def _array_type(expression: Expression) -> Type:
    match expression:
        case nodes.Index(array, indices):
            _check_indices(indices, array, "index")
            return Type(array.type.element, array.type.shape[len(indices) :])
        case nodes.Slice(array, dimensions):
            _require(
                len(dimensions) == array.type.rank,
                f"slice of {array}: {len(dimensions)} dimensions for rank {array.type.rank}",
            )
            _require(all(one.step for one in dimensions), f"slice of {array}: a step is zero")
            return Type(array.type.element, tuple(one.count for one in dimensions))
        case nodes.Update(array, indices, value):
            _check_indices(indices, array, "update")
            expected = Type(array.type.element, array.type.shape[len(indices) :])
            _require(value.type == expected, f"update of {array}: the value has type {value.type}, not {expected}")
            return array.type
        case nodes.Iota(count, scalar):
            _require(scalar.is_integer, f"iota gives integers, not {scalar}")
            return Type(scalar, (count,))
        case nodes.Replicate(count, value):
            return value.type.array_of(count)
        case nodes.Concat(axis, arrays):
            _require(bool(arrays), "concat: no arrays")
            first = arrays[0].type
            _require(0 <= axis < first.rank, f"concat: axis {axis} of arrays of rank {first.rank}")
            for one in arrays:
                same = one.type.element == first.element and one.type.rank == first.rank
                others = all(
                    a == b for d, (a, b) in enumerate(zip(one.type.shape, first.shape, strict=False)) if d != axis
                )
                _require(same and others, f"concat along {axis}: {one} has type {one.type}, {arrays[0]} has {first}")
            total = sum((one.type.shape[axis] for one in arrays), ZERO)
            return Type(first.element, (*first.shape[:axis], total, *first.shape[axis + 1 :]))
        case nodes.Reshape(array, shape):
            before, after = product(array.type.shape), product(shape)
            known_wrong = before.constant is not None and after.constant is not None and before != after
            _require(not known_wrong, f"reshape of {array}: {before} elements into a shape of {after}")
            return Type(array.type.element, shape)
        case nodes.Rearrange(array, permutation):
            _require(
                sorted(permutation) == list(range(array.type.rank)),
                f"rearrange of {array} (rank {array.type.rank}): {permutation} is not a permutation",
            )
            return Type(array.type.element, tuple(array.type.shape[d] for d in permutation))
        case nodes.Copy(array):
            return array.type
    raise TypeError(f"not an expression: {expression!r}")


def _loop_types(loop: nodes.Loop) -> tuple[Type, ...]:
    carried = types_of(loop.parameters)
    _require(
        types_of(loop.initial) == carried, f"loop starts from {_show(types_of(loop.initial))}, not {_show(carried)}"
    )
    results = body_types(loop.body)
    _require(results == carried, f"the loop body gives {_show(results)}, the loop carries {_show(carried)}")
    if isinstance(loop.form, nodes.WhileLoop):
        condition = _apply_lambda(loop.form.condition, carried, "while condition")
        _require(condition == (Type(BOOL),), f"a while condition gives one bool, not {_show(condition)}")
    else:
        _require(loop.form.index.type == Type(I64), f"loop index {loop.form.index} has type {loop.form.index.type}")
    return carried


def _fold_types(expression: nodes.Fold) -> tuple[Type, ...]:
    what = type(expression).__name__.lower()
    rows = _row_types(expression.arrays, expression.width, what)
    if isinstance(expression, nodes.Redomap | nodes.Scanomap):
        rows = _apply_lambda(expression.function, rows, what)
    neutral = types_of(expression.neutral)
    _check_combine(expression.combine, neutral, what)
    folded, mapped = rows[: len(neutral)], rows[len(neutral) :]
    _require(folded == neutral, f"{what}: elements {_show(folded)}, neutral element {_show(neutral)}")
    _require(
        not mapped or isinstance(expression, nodes.Redomap | nodes.Scanomap),
        f"{what} over more arrays than its operator",
    )
    scanned = isinstance(expression, (nodes.Scan, nodes.Scanomap))
    return (_outer(folded, expression.width) if scanned else folded) + _outer(mapped, expression.width)


def _sweep_types(sweep: nodes.Sweep) -> tuple[Type, ...]:
    _require_arrays(sweep.destinations, "sweep")
    neutral = types_of(sweep.neutral)
    _check_combine(sweep.combine, neutral, "sweep")
    rows = _apply_lambda(sweep.before, _row_types(sweep.arrays, sweep.width, "sweep"), "sweep")
    scanned = rows[: len(neutral)]
    _require(scanned == neutral, f"sweep: elements {_show(scanned)}, neutral element {_show(neutral)}")
    results = _apply_lambda(sweep.after, rows, "sweep")
    wanted = tuple(part for one in sweep.destinations for part in (Type(I64), one.type.row))
    given, mapped = results[: len(wanted)], results[len(wanted) :]
    _require(given == wanted, f"sweep: indices and values {_show(given)}, {_show(wanted)} are needed")
    return (neutral if sweep.totals else ()) + types_of(sweep.destinations) + _outer(mapped, sweep.width)


def _offset_types(folds: nodes.OffsetFolds) -> tuple[Type, ...]:
    index, neutral = Type(I64), types_of(folds.neutral)
    fits = folds.starts.type.rank == 1 and folds.starts.type.element == I64
    _require(fits, f"offset_folds: offsets of type {folds.starts.type}")
    _check_combine(folds.combine, neutral, "offset_folds")
    rows = _apply_lambda(folds.function, _row_types(folds.arrays, folds.width, "offset_folds"), "offset_folds")
    _require(rows == neutral, f"offset_folds: elements {_show(rows)}, neutral element {_show(neutral)}")
    found = _outer(_apply_lambda(folds.result, (index, index, index, *neutral), "offset_folds"), folds.count)
    other = body_types(folds.otherwise)
    _require(other == found, f"offset_folds: gives {_show(found)}, otherwise {_show(other)}")
    return found


def _stream_types(stream: nodes.StreamSeq) -> tuple[Type, ...]:
    rows = _row_types(stream.arrays, stream.width, "stream")
    _require(bool(stream.function.parameters), "stream: the function needs a parameter for the chunk length")
    length = size(stream.function.parameters[0].name)
    initial = types_of(stream.initial)
    results = _apply_lambda(stream.function, (Type(I64), *initial, *_outer(rows, length)), "stream")
    folded, mapped = results[: len(initial)], results[len(initial) :]
    _require(folded == initial, f"stream: accumulators {_show(folded)}, initially {_show(initial)}")
    for one in mapped:
        _require(one.rank > 0 and one.shape[0] == length, f"stream: result {one} has not the chunk's length")
    return folded + tuple(Type(one.element, (stream.width, *one.shape[1:])) for one in mapped)


def _segmented_types(expression: nodes.SegRed | nodes.SegScan | nodes.SegHist) -> tuple[Type, ...]:
    what = type(expression).__name__.lower()
    neutral, results, shape = types_of(expression.neutral), body_types(expression.body), expression.space.shape
    _require(bool(shape), f"{what} needs at least one dimension")
    _check_combine(expression.combine, neutral, what)
    if isinstance(expression, nodes.SegHist):
        _require(results == (Type(I64), *neutral), f"{what}: the body gives {_show(results)}")
        count = len(expression.destinations)
        _require(count == len(neutral), f"{what}: {count} destinations for {len(neutral)} values")
        for one, value in zip(expression.destinations, neutral, strict=True):
            bins = one.type.shape[len(shape) - 1 : len(shape)]
            fits = len(bins) == 1 and one.type == value.array_of(*shape[:-1], *bins)
            _require(fits, f"{what}: bins {one.type} of {one} for a space of {shape} and values {value}")
        return types_of(expression.destinations)
    folded, mapped = results[: len(neutral)], results[len(neutral) :]
    _require(folded == neutral, f"{what}: elements {_show(folded)}, neutral element {_show(neutral)}")
    return _outer(folded, *(shape[:-1] if isinstance(expression, nodes.SegRed) else shape)) + _outer(mapped, *shape)
