"""Vertical fusion: a map disappears into the one construct that consumes its results. No work is ever duplicated.

A producer may be fused if all of its results go to the consumer, as inputs of its function, and nowhere else: then each
of its rows is computed once before and once after.

Fusing is declined where it would turn two perfect nests into one imperfect nest, that is where both functions hold
parallelism of their own which does not fuse in turn: two matrix products in a row stay two matrix products.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Statement, Variable
from tilewright.ir.traversal import kinds_of, mentioned
from tilewright.rewrite.names import definitions, replace_names, users
from tilewright.rewrite.rule import Declined, Place, no_match, rule

Consumer: TypeAlias = nodes.Map | nodes.Fold
_PARALLEL = frozenset(
    (nodes.Map, nodes.Reduce, nodes.Scan, nodes.Redomap, nodes.Scanomap, nodes.Scatter, nodes.Hist, nodes.StreamSeq)
)


@rule("fusion", nodes.Map)
def map_map(at: Place) -> Body | Declined:
    """ys = map f xs; zs = map g ys  =>  zs = map (g . f) xs, if ys is used nowhere else"""
    consumer = at.expect(nodes.Map)
    return _fuse(at, consumer, consumer.function)


@rule("fusion", nodes.Reduce)
def reduce_map(at: Place) -> Body | Declined:
    """ys = map f xs; z = reduce op ne ys  =>  z = redomap op ne f xs, if ys is used nowhere else"""
    return _fuse(at, at.expect(nodes.Reduce), None)


@rule("fusion", nodes.Redomap)
def redomap_map(at: Place) -> Body | Declined:
    """ys = map f xs; z = redomap op ne g ys  =>  z = redomap op ne (g . f) xs, if ys is used nowhere else"""
    consumer = at.expect(nodes.Redomap)
    return _fuse(at, consumer, consumer.function)


@rule("fusion", nodes.Scan)
def scan_map(at: Place) -> Body | Declined:
    """ys = map f xs; zs = scan op ne ys  =>  zs = scanomap op ne f xs, if ys is used nowhere else"""
    return _fuse(at, at.expect(nodes.Scan), None)


@rule("fusion", nodes.Scanomap)
def scanomap_map(at: Place) -> Body | Declined:
    """ys = map f xs; zs = scanomap op ne g ys  =>  zs = scanomap op ne (g . f) xs, if ys is used nowhere else"""
    consumer = at.expect(nodes.Scanomap)
    return _fuse(at, consumer, consumer.function)


def _fuse(at: Place, consumer: Consumer, function: Lambda | None) -> Body | Declined:
    """Fuse the consumer here with the first of its producers that may be fused. No function is the identity."""
    bound_at = definitions(at.body)
    reasons: dict[str, None] = {}
    for index in dict.fromkeys(bound_at.get(array.name, -1) for array in consumer.arrays):
        producer = at.body.statements[index] if index >= 0 else None
        if producer is None:
            continue
        if not isinstance(producer.expression, nodes.Map):
            reasons.update(dict.fromkeys(_seen_through(at, producer)))
            continue
        reason = _used_elsewhere(at, producer, consumer) or _imperfect(at, producer, consumer, function)
        if reason:
            reasons[reason] = None
            continue
        inner, arrays, _ = composed(producer, function or identity(at, consumer.arrays), consumer.arrays)
        fused = Statement(at.statement.targets, _with_function(consumer, inner, arrays))
        old = at.body.statements
        kept = (*old[:index], *old[index + 1 : at.index])
        return Body((*kept, fused, *old[at.index + 1 :]), at.body.results)
    return Declined("; ".join(reasons)) if reasons else no_match("no input is computed by a map of the same body")


def _seen_through(at: Place, between: Statement) -> list[str]:
    """The reason for not fusing with a map that is seen only through a view, or as a further result of a fold."""
    names = ", ".join(one.name for one in between.targets)
    match between.expression:
        case nodes.Rearrange(array) | nodes.Reshape(array) | nodes.Slice(array):
            index = definitions(at.body).get(array.name)
            if index is not None and isinstance(at.body.statements[index].expression, nodes.Map):
                return [f"{names} takes the rows of {array} in another order"]
        case nodes.Redomap() | nodes.Scanomap():
            return [f"{names} is the result of a fused fold, into which no further function is fused"]
    return []


def _used_elsewhere(at: Place, producer: Statement, consumer: Consumer) -> str | None:
    fields = (getattr(consumer, f.name) for f in dataclasses.fields(consumer) if f.name != "arrays")
    inside = mentioned(tuple(one for one in fields if not isinstance(one, bool)))
    for target in producer.targets:
        for use in at.uses(target.name):
            if use != at.index:
                return f"{target} is also used by {at.describe_use(use)}"
        if target.name in inside:
            return f"{target} is used as a whole inside the function of {at.describe_use(at.index)}"
    return None


def identity(at: Place, arrays: tuple[Variable, ...]) -> Lambda:
    """The identity on rows of these arrays."""
    parameters = tuple(Variable(at.names(one.name), one.type.row) for one in arrays)
    return Lambda(parameters, Body((), parameters))


def _with_function(consumer: Consumer, function: Lambda, arrays: tuple[Variable, ...]) -> Expression:
    match consumer:
        case nodes.Reduce(width, combine, neutral, _, commutative):
            return nodes.Redomap(width, combine, neutral, function, arrays, commutative)
        case nodes.Scan(width, combine, neutral, _):
            return nodes.Scanomap(width, combine, neutral, function, arrays)
        case nodes.Map() | nodes.Redomap() | nodes.Scanomap():
            return dataclasses.replace(consumer, function=function, arrays=arrays)


def composed(
    producer: Statement, outer: Lambda, arrays: tuple[Variable, ...]
) -> tuple[Lambda, tuple[Variable, ...], tuple[Atom, ...]]:
    """outer . producer's function, what it is mapped over, and the producer's results in it.

    An array that both read is read once.
    """
    inner = producer.expression
    if not isinstance(inner, nodes.Map):
        raise TypeError(f"the producer is a {type(inner).__name__}, not a map")
    positions = {target.name: k for k, target in enumerate(producer.targets)}
    inputs: dict[str, tuple[Variable, Variable]] = {}  # array name to (parameter, array)
    same: dict[str, Atom] = {}
    for parameter, array in zip(outer.parameters, arrays, strict=True):
        pairs = [(parameter, array)]
        if array.name in positions:
            pairs = list(zip(inner.function.parameters, inner.arrays, strict=True))
        for one, read in pairs:
            known = inputs.setdefault(read.name, (one, read))
            if known[0].name != one.name:
                same[one.name] = known[0]
    first = replace_names(inner.function.body, same)
    values = dict(same)
    for parameter, array in zip(outer.parameters, arrays, strict=True):
        if array.name in positions:
            values[parameter.name] = first.results[positions[array.name]]
    second = replace_names(outer.body, values)
    parameters, read_arrays = zip(*inputs.values(), strict=True) if inputs else ((), ())
    function = Lambda(parameters, Body(first.statements + second.statements, second.results))
    return function, read_arrays, first.results


# --- nests stay perfect -----------------------------------------------------------------------------------------------


def parallel_statements(body: Body) -> list[Statement]:
    """The statements of a body that are, or hold, combinators."""
    return [one for one in body.statements if not _PARALLEL.isdisjoint(kinds_of(one))]


def _imperfect(at: Place, producer: Statement, consumer: Consumer, function: Lambda | None) -> str | None:
    """Why the fused nest would be imperfect where the two nests are not."""
    names = ", ".join(one.name for one in producer.targets)
    inputs = (None,) * len(consumer.arrays) if function is None else function.parameters
    taken = {array.name: q for array, q in zip(consumer.arrays, inputs, strict=True)}
    if _nests_fuse(producer, taken, function, fold=not isinstance(consumer, nodes.Map)):
        return None
    return (
        f"{names} is computed by parallelism inside a map, and {at.describe_use(at.index)} does not take its rows "
        "element by element: one nest of both would be imperfect"
    )


def _nests_fuse(producer: Statement, taken: Mapping[str, Variable | None], function: Lambda | None, fold: bool) -> bool:
    """Whether every combinator in the producer's function fuses into one in the consumer's function.

    `taken` gives, for each array that the consumer reads, its function's parameter (None: it has no function).
    """
    if not isinstance(producer.expression, nodes.Map):
        return False
    first = producer.expression.function.body
    inner = parallel_statements(first)
    if not inner:
        return True
    if function is None or not parallel_statements(function.body):
        return not fold  # a scalar function after the nest; but a fold would run the nest one element after another
    rows: dict[str, list[Variable]] = {}  # names in the producer's body to what they are in the consumer's
    for target, result in zip(producer.targets, first.results, strict=True):
        parameter = taken.get(target.name)
        if parameter is not None and isinstance(result, Variable):
            rows.setdefault(result.name, []).append(parameter)
    return all(_inner_fuses(one, first, rows, function.body) for one in inner)


def _inner_fuses(producer: Statement, first: Body, rows: Mapping[str, list[Variable]], second: Body) -> bool:
    parameters: dict[str, str] = {}
    consumers: set[int] = set()
    for target in producer.targets:
        if users(first).get(target.name, ()) not in ((), (len(first.statements),)):
            return False
        for parameter in rows.get(target.name, ()):
            parameters[parameter.name] = target.name
            consumers.update(users(second).get(parameter.name, ()))
    if len(consumers) != 1 or (where := consumers.pop()) == len(second.statements):
        return False
    consumer = second.statements[where].expression
    if not isinstance(consumer, nodes.Map | nodes.Fold):
        return False
    function = None if isinstance(consumer, nodes.Reduce | nodes.Scan) else consumer.function
    inputs = (None,) * len(consumer.arrays) if function is None else function.parameters
    taken = {
        parameters[array.name]: q for array, q in zip(consumer.arrays, inputs, strict=True) if array.name in parameters
    }
    if function is not None and not mentioned(function).isdisjoint(parameters):
        return False
    return bool(taken) and _nests_fuse(producer, taken, function, fold=not isinstance(consumer, nodes.Map))
