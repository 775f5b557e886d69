"""Fusion of segmented operations: a segmented map disappears into the one operation that reads its points.

Distribution cuts nests at every parallel construct; what it leaves behind is often a scalar map before the next
operation over the same space.
"""

from __future__ import annotations

import dataclasses

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Segmented, Statement, Variable
from tilewright.ir.traversal import bound, mentioned, used_variables
from tilewright.rewrite.names import definitions, replace_names, used
from tilewright.rewrite.rule import Declined, Place, no_match, rule

CHEAP = nodes.Alias | nodes.Apply | nodes.Cast | nodes.Index | nodes.SizeValue
DEAR = frozenset((
    "exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "cbrt", "hypot", "sin", "cos", "tan", "asin", "acos",
    "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "pow", "sqrt", "div",
))  # fmt: skip
"""Operators that cost more than reading a number."""


@rule("segment fusion", nodes.SegMap, nodes.SegRed, nodes.SegScan, nodes.SegHist)
def segmap_into_operation(at: Place) -> Body | Declined:
    """ys = segmap S e; zs = segop (S, T) f[ys[S]]  =>  zs = segop (S, T) f[e], if ys is read nowhere else

    With further dimensions T, e is computed again for each of their points: only a few scalar operations are.
    """
    consumer = at.expression
    if not isinstance(consumer, Segmented):
        raise TypeError("segmap_into_operation is for segmented operations")
    indices = tuple(index for index, _ in consumer.space.dimensions)
    bound_at = definitions(at.body)
    declined: Declined | None = None
    for index in sorted({bound_at[name] for name in used(at.statement) if name in bound_at}, reverse=True):
        producer = at.body.statements[index]
        if not isinstance(producer.expression, nodes.SegMap):
            continue
        names = ", ".join(one.name for one in producer.targets)
        if reason := _why_not(at, producer, producer.expression, consumer, indices):
            declined = declined or Declined(f"{names} {reason}")
            continue
        return _fused(at, index, producer.expression, consumer, indices)
    return declined or no_match("no input is computed by a segmented map of the same body")


def _why_not(
    at: Place, producer: Statement, inner: nodes.SegMap, outer: Segmented, indices: tuple[Variable, ...]
) -> str | None:
    rank = len(inner.space.dimensions)
    if nodes.Level.BLOCK in (inner.level, outer.level):
        return "is computed by blocks, whose memory would have to hold more"
    if outer.space.shape[:rank] != inner.space.shape:
        return "is computed over another space"
    if len(indices) > rank and not _is_cheap(inner.body):
        return "would be computed again at every point of the further dimensions"
    made = {one.name for one in producer.targets}
    for name in made:
        if any(use != at.index for use in at.uses(name)):
            return "is also read elsewhere"
    for statement in outer.body.statements:
        expression = statement.expression
        if mentioned(statement).isdisjoint(made):
            continue
        if not isinstance(expression, nodes.Index) or expression.indices[:rank] != indices[:rank]:
            return "is read at other points too"
    elsewhere = (
        getattr(outer, f.name) for f in dataclasses.fields(outer) if f.name not in ("body", "level", "commutative")
    )
    if not mentioned((tuple(elsewhere), outer.body.results)).isdisjoint(made):
        return "is used as a whole"
    return None


def _is_cheap(body: Body) -> bool:
    return all(
        isinstance(one.expression, CHEAP)
        and not (isinstance(one.expression, nodes.Apply) and one.expression.operator in DEAR)
        and all(target.type.rank == 0 for target in one.targets)
        for one in body.statements
    )


def _fused(at: Place, index: int, inner: nodes.SegMap, outer: Segmented, indices: tuple[Variable, ...]) -> Body:
    targets = at.body.statements[index].targets
    points = [point for point, _ in inner.space.dimensions]
    values: dict[str, Atom] = {point.name: new for point, new in zip(points, indices, strict=False)}
    first = replace_names(inner.body, values)
    made = {one.name: result for one, result in zip(targets, first.results, strict=True)}
    statements: list[Statement] = []
    for statement in outer.body.statements:
        expression = statement.expression
        if isinstance(expression, nodes.Index) and expression.array.name in made:
            value, rest = made[expression.array.name], expression.indices[len(points) :]
            picked = nodes.Index(value, rest) if rest and isinstance(value, Variable) else nodes.Alias(value)
            statements.append(Statement(statement.targets, picked))
        else:
            statements.append(statement)
    body = Body((*first.statements, *statements), outer.body.results)
    fused = Statement(at.statement.targets, dataclasses.replace(outer, body=body))
    old = at.body.statements
    return Body((*old[:index], *old[index + 1 : at.index], fused, *old[at.index + 1 :]), at.body.results)


@rule("numbering", nodes.SegMap)
def iota_into_operation(at: Place) -> Body | Declined:
    """is = iota n; ys = segmap S (e is)  =>  ys = segmap S (js = iota n; e js), for threads

    There, numbers in order need no memory, and are known to be small; outside they are an array like any other.
    """
    operation = at.expression
    if not isinstance(operation, nodes.SegMap):
        raise TypeError("iota_into_operation is for segmented maps")
    if operation.level is not nodes.Level.THREAD:
        return no_match("its threads share arrays")
    free = {one.name: one for one in used_variables(operation.body)}
    values: dict[str, Atom] = {}
    made: list[Statement] = []
    for name in sorted(mentioned(operation.body) - bound(operation)):
        counted = at.definition(free[name]) if name in free else None
        if isinstance(counted, nodes.Iota):
            values[name] = inside = Variable(at.names(name), free[name].type)
            made.append(Statement((inside,), counted))
    if not made:
        return no_match("it reads no iota")
    body = replace_names(operation.body, values)
    return at.become(dataclasses.replace(operation, body=Body((*made, *body.statements), body.results)))
