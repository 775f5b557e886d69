"""Further fusion: with results that stay needed, of scans, of maps and reductions side by side, across ifs.

No work is ever duplicated. These rules come after those of `fusion` and `horizontal`, on what those leave, and only
where neither function holds parallelism of its own, so that no nest becomes imperfect.
"""

from __future__ import annotations

import dataclasses

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Statement, Variable
from tilewright.ir.traversal import mentioned, with_fresh_names
from tilewright.rewrite.names import definitions, replace_names, used
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.fusion import composed, identity, parallel_statements
from tilewright.rewrite.rules.horizontal import beside, folds_beside

Consumer = nodes.Map | nodes.Fold


def _function(at: Place, expression: Consumer, arrays: tuple[Variable, ...]) -> Lambda:
    return identity(at, arrays) if isinstance(expression, nodes.Reduce | nodes.Scan) else expression.function


def _is_flat(expression: Expression) -> bool:
    """True for a map or a fold without parallelism in its function."""
    if not isinstance(expression, Consumer):
        return False
    return isinstance(expression, nodes.Reduce | nodes.Scan) or not parallel_statements(expression.function.body)


def _folding(
    expression: Consumer, function: Lambda, arrays: tuple[Variable, ...]
) -> nodes.Map | nodes.Redomap | nodes.Scanomap:
    """The construct with another function over other arrays."""
    match expression:
        case nodes.Reduce(width, combine, neutral, _, commutative):
            return nodes.Redomap(width, combine, neutral, function, arrays, commutative)
        case nodes.Scan(width, combine, neutral, _):
            return nodes.Scanomap(width, combine, neutral, function, arrays)
    return dataclasses.replace(expression, function=function, arrays=arrays)


@rule("further fusion", nodes.Map, nodes.Reduce, nodes.Redomap, nodes.Scan, nodes.Scanomap)
def map_kept(at: Place) -> Body | Declined:
    """ys = map f xs; z = redomap op ne g ys  =>  z, ys = redomap op ne (\\x -> (g (f x), f x)) xs, ys being used later

    Also for map and scanomap: ys is not read again here, but still written for its other users.
    """
    consumer = at.expression
    if not isinstance(consumer, Consumer):
        raise TypeError("map_kept is for maps and folds")
    if not _is_flat(consumer):
        return no_match("the function holds parallelism")
    bound_at = definitions(at.body)
    declined: Declined | None = None
    for index in sorted({bound_at[one.name] for one in consumer.arrays if one.name in bound_at}, reverse=True):
        producer = at.body.statements[index]
        if not isinstance(producer.expression, nodes.Map) or not _is_flat(producer.expression):
            continue
        names = ", ".join(one.name for one in producer.targets)
        uses = {use for one in producer.targets for use in at.uses(one.name)}
        taken = mentioned(_without_arrays(consumer))
        if any(use < at.index for use in uses):
            declined = Declined(f"{names} is needed before")
        elif any(one.name in taken for one in producer.targets):
            declined = Declined(f"{names} is used as a whole inside")
        else:
            function, arrays, made = composed(producer, _function(at, consumer, consumer.arrays), consumer.arrays)
            kept = [k for k, one in enumerate(producer.targets) if any(use > at.index for use in at.uses(one.name))]
            results = (*function.body.results, *(made[k] for k in kept))
            function = Lambda(function.parameters, Body(function.body.statements, results))
            targets = (*at.statement.targets, *(producer.targets[k] for k in kept))
            old = at.body.statements
            fused = Statement(targets, _folding(consumer, function, arrays))
            return Body((*old[:index], *old[index + 1 : at.index], fused, *old[at.index + 1 :]), at.body.results)
    return declined or no_match("no input is computed by a map of scalars in the same body")


def _without_arrays(consumer: Consumer) -> tuple[object, ...]:
    fields = (getattr(consumer, f.name) for f in dataclasses.fields(consumer) if f.name != "arrays")
    return tuple(one for one in fields if not isinstance(one, bool))


@rule("further fusion", nodes.Scan, nodes.Scanomap)
def scan_beside_scan(at: Place) -> Body | Declined:
    """ys = scanomap op a f xs; zs = scanomap op' b g xs => ys, zs = scanomap (op, op') (a, b) (\\x -> (f x, g x)) xs"""
    second = at.expression
    found = _partner(at, nodes.Scan | nodes.Scanomap)
    if isinstance(found, Declined) or not isinstance(second, nodes.Scan | nodes.Scanomap):
        return found if isinstance(found, Declined) else no_match("it is no scan")
    statement = at.body.statements[found]
    first = statement.expression
    if not isinstance(first, nodes.Scan | nodes.Scanomap):
        raise TypeError("the partner of a scan is a scan")
    one, two = (
        nodes.Scanomap(each.width, each.combine, each.neutral, _function(at, each, each.arrays), each.arrays)
        for each in (first, second)
    )
    m, n, left, right = len(one.neutral), len(two.neutral), statement.targets, at.statement.targets
    fused = nodes.Scanomap(one.width, *folds_beside(one, two))
    return _at_first(at, found, Statement((*left[:m], *right[:n], *left[m:], *right[n:]), fused))


@rule("further fusion", nodes.Map, nodes.Reduce, nodes.Redomap)
def map_beside_reduce(at: Place) -> Body | Declined:
    """ys = map f xs; z = redomap op ne g xs  =>  z, ys = redomap op ne (\\x -> (g x, f x)) xs, in either order"""
    kinds = nodes.Reduction if isinstance(at.expression, nodes.Map) else nodes.Map
    found = _partner(at, kinds)
    if isinstance(found, Declined):
        return found
    pair = (at.body.statements[found], at.statement)
    fold, mapped = pair if isinstance(at.expression, nodes.Map) else (pair[1], pair[0])
    if not isinstance(fold.expression, nodes.Reduction) or not isinstance(mapped.expression, nodes.Map):
        raise TypeError("a map and a reduction are needed")
    first = _function(at, fold.expression, fold.expression.arrays)
    function, arrays = beside(first, fold.expression.arrays, mapped.expression.function, mapped.expression.arrays)
    fused = Statement(fold.targets + mapped.targets, _folding(fold.expression, function, arrays))
    return _at_first(at, found, fused)


def _partner(at: Place, kinds: object) -> int | Declined:
    """An earlier flat construct over the same rows, at whose place this one could stand too."""
    second = at.expression
    if not isinstance(second, Consumer) or not _is_flat(second):
        return no_match("the function holds parallelism")
    reads = {array.name for array in second.arrays}
    bound_at = definitions(at.body)
    declined: Declined | None = None
    for index in range(at.index - 1, -1, -1):
        first = at.body.statements[index].expression
        if not isinstance(first, kinds) or not isinstance(first, Consumer) or not _is_flat(first):  # type: ignore[arg-type]
            continue
        if first.width != second.width or reads.isdisjoint(array.name for array in first.arrays):
            continue
        if all(bound_at.get(name, -1) < index for name in used(at.statement)):
            return index
        declined = declined or Declined(f"it needs {at.describe_use(index)}, or what is computed after that")
    return declined or no_match("no earlier construct of this kind reads the same rows")


def _at_first(at: Place, index: int, fused: Statement) -> Body:
    old = list(at.body.statements)
    old[index] = fused
    del old[at.index]
    return Body(tuple(old), at.body.results)


# --- across ifs -------------------------------------------------------------------------------------------------------


@rule("further fusion", nodes.Map)
def sink_into_branch(at: Place) -> Body | Declined:
    """ys = map f xs; z = if c then e1 else e2  =>  z = if c then (ys = map f xs; e1) else e2, if only e1 uses ys"""
    uses = {use for one in at.statement.targets for use in at.uses(one.name)}
    if len(uses) != 1 or (user := uses.pop()) == len(at.body.statements):
        return no_match("there is not one statement that uses the results")
    statement = at.body.statements[user]
    branch = statement.expression
    if not isinstance(branch, nodes.If):
        return no_match("what uses the results is not an if")
    made = {one.name for one in at.statement.targets}
    inside = [not mentioned(body).isdisjoint(made) for body in (branch.then, branch.otherwise)]
    if all(inside):
        return Declined("both branches use it: it would be written twice")
    bodies = [
        Body((at.statement, *body.statements), body.results) if uses_it else body
        for body, uses_it in zip((branch.then, branch.otherwise), inside, strict=True)
    ]
    old = at.body.statements
    moved = Statement(statement.targets, nodes.If(branch.condition, *bodies))
    return Body((*old[: at.index], *old[at.index + 1 : user], moved, *old[user + 1 :]), at.body.results)


@rule("further fusion", nodes.Map, nodes.Reduce, nodes.Redomap, nodes.Scan, nodes.Scanomap)
def consumer_into_branches(at: Place) -> Body | Declined:
    """ys = if c then (ys1 = map f xs; ys1) else e2; z = map g ys  =>  z = if c then (...; map g ys1) else (e2; map g)

    If a branch computes ys by a map and ys is used nowhere else: then the two fuse in that branch. Also for folds.
    """
    consumer = at.expression
    if not isinstance(consumer, Consumer):
        raise TypeError("consumer_into_branches is for maps and folds")
    bound_at = definitions(at.body)
    for index in sorted({bound_at[one.name] for one in consumer.arrays if one.name in bound_at}, reverse=True):
        statement = at.body.statements[index]
        if isinstance(statement.expression, nodes.If):
            return _into_branches(at, consumer, index, statement, statement.expression)
    return no_match("no input is computed by an if of the same body")


def _into_branches(
    at: Place, consumer: Consumer, index: int, statement: Statement, branch: nodes.If
) -> Body | Declined:
    names = ", ".join(one.name for one in statement.targets)
    read = {one.name for one in consumer.arrays}
    taken = [k for k, one in enumerate(statement.targets) if one.name in used(at.statement)]
    if any(use != at.index for k in taken for use in at.uses(statement.targets[k].name)):
        return Declined(f"{names} is also used elsewhere")
    made = {one.name for one in statement.targets}
    if any(one not in read for one in used(at.statement) & made):
        return Declined(f"{names} is used as a whole inside")
    if not all(definitions(at.body).get(name, -1) < index for name in used(at.statement) - made):
        return Declined(f"it needs what is computed after {names}")
    if not any(_is_mapped(body, taken) for body in (branch.then, branch.otherwise)):
        return no_match("no branch computes it by a map")
    kept = [k for k in range(len(statement.targets)) if k not in taken]
    bodies: list[Body] = []
    for body in (branch.then, branch.otherwise):
        copy = with_fresh_names(at.statement, at.names)
        values: dict[str, Atom] = {statement.targets[k].name: body.results[k] for k in taken}
        inner = Statement(copy.targets, replace_names(copy.expression, values))
        bodies.append(Body((*body.statements, inner), (*(body.results[k] for k in kept), *copy.targets)))
    targets = (*(statement.targets[k] for k in kept), *at.statement.targets)
    old = list(at.body.statements)
    old[index] = Statement(targets, nodes.If(branch.condition, *bodies))
    del old[at.index]
    return Body(tuple(old), at.body.results)


def _is_mapped(body: Body, results: list[int]) -> bool:
    for k in results:
        result = body.results[k]
        where = definitions(body).get(result.name) if isinstance(result, Variable) else None
        if where is not None and isinstance(body.statements[where].expression, nodes.Map):
            return True
    return False
