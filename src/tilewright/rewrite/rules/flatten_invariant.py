"""What does not vary in a nest is taken out of the parallelism inside it, so that it is computed once for all points.

    map (\\s -> map (\\y -> exp(y) * s) ys ...) ss  =>  es = map exp ys; map (\\s -> map (\\e -> e * s) es ...) ss

Inside a sequential loop of every point nothing could be taken out without an array for every round; once the loop has
been interchanged with the nest around it [S2], a round is computed for all points at once, and what they share is
computed once. Values cross over as arrays, so only what is dear is taken: folds, and functions that cost more than
reading a number. Cheap scalars that both sides need are computed on both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Body, Expression, Lambda, Statement, Variable
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import FreshNames, bodies_of, bound, mentioned, with_fresh_names
from tilewright.rewrite.names import used
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.flatten_fusion import DEAR
from tilewright.rewrite.rules.flatten_nest import Nest, holds_operation, in_segment, nest_of, without_unused, write_nest
from tilewright.rewrite.rules.flatten_regular import SOAC, is_regular
from tilewright.rewrite.rules.hoisting import can_fail

_OPENED = nodes.Map | nodes.Redomap | nodes.Scanomap
_FOLDS = nodes.Fold | nodes.Hist | nodes.Loop | nodes.SegRed | nodes.SegScan | nodes.SegHist


@rule("flattening", nodes.Map)
def split_invariant(at: Place) -> Body | Declined:
    """S |- (ys = map (\\x -> v = e1; e2) xs; e3)  =>  vs = map (\\x -> e1) xs; S |- (ys = map (\\x v -> e2) xs vs; e3)

    Where xs and e1 do not vary in S and e1 is dear: a fold, a division or an elementary function. The same in the
    functions of redomap and scanomap, and at any depth; e3 stands for the rest of an imperfect nest.
    """
    if in_segment(at) or holds_operation(at.expression):
        return no_match("it is flattened already")
    nest = nest_of(at.statement)
    if nest.sole is not None:
        return no_match("the nest is perfect around one statement")
    parameters = frozenset(one.name for level in nest.levels for one in level.parameters)
    scalars = frozenset(one.name for made in nest.body.statements if _is_scalar(made) for one in made.targets)
    entries = _entries(nest.body, parameters, at.names, scalars)
    own = frozenset(one.name for one in nest.body.results if isinstance(one, Variable))
    divided = _taken_out(entries, own, top=True)
    if not divided.moved:
        return no_match("nothing dear inside is the same at all points")
    before = _with_scalars(divided, at.names)
    rounds = _rounds(at)
    for one in before:
        if can_fail(one.expression, at.definition, rounds):
            names = ", ".join(target.name for target in one.targets)
            return Declined(f"{names} does not vary, but it could fail, and it is not certain that it runs at all")
    rest = without_unused(Nest(nest.levels, Body(divided.kept, nest.body.results)))
    return at.replace(*before, *write_nest(rest, at.statement.targets, at.names))


def _rounds(at: Place) -> dict[str, Size]:
    """The indices of the loops around a place, with what they are below."""
    found: dict[str, Size] = {}
    for body, index in at.chain[:-1]:
        expression = body.statements[index].expression
        if isinstance(expression, nodes.Loop) and isinstance(expression.form, nodes.ForLoop):
            found[expression.form.index.name] = expression.form.bound
    return found


# --- what varies, and what is worth an array --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Divided:
    """Statements taken out, those that stay, and the values that the latter need of the former."""

    moved: tuple[Statement, ...]
    kept: tuple[Statement, ...]
    crossing: tuple[Variable, ...]


def _entries(
    body: Body, varying: frozenset[str], names: FreshNames, scalars: frozenset[str] = frozenset()
) -> list[tuple[Statement, bool]]:
    """The statements of a body, each with whether it is the same at all points; opened where parts of it are.

    Arrays that need one of `scalars` outside a function count as varying: there is no place for those before a nest.
    """
    found: list[tuple[Statement, bool]] = []
    for statement in body.statements:
        if used(statement).isdisjoint(varying) and (
            _is_scalar(statement) or _outside_function(statement).isdisjoint(scalars)
        ):
            found.append((statement, True))
            continue
        before, rest = _opened(statement, varying, names)
        found += [(one, True) for one in before]
        found.append((rest, False))
        varying = varying.union(one.name for one in statement.targets)
    return found


def _opened(
    statement: Statement, varying: frozenset[str], names: FreshNames
) -> tuple[tuple[Statement, ...], Statement]:
    """What is dear in a function and does not vary, as a map before the statement; and the statement without it."""
    expression = statement.expression
    if not isinstance(expression, _OPENED) or not mentioned(expression.width).isdisjoint(varying):
        return (), statement
    rows = list(zip(expression.function.parameters, expression.arrays, strict=True))
    fixed = [pair for pair in rows if pair[1].name not in varying]
    if not fixed:
        return (), statement
    inside = varying.union(one.name for one, array in rows if array.name in varying)
    body = expression.function.body
    own = frozenset(one.name for one in body.results if isinstance(one, Variable))
    divided = _taken_out(_entries(body, inside, names), own)
    if not divided.moved or not is_regular(divided.crossing, bound(expression)):
        return (), statement
    needed = mentioned(divided.moved)
    taken = [pair for pair in fixed if pair[0].name in needed] or fixed[:1]
    targets = tuple(Variable(names(one.name), one.type.array_of(expression.width)) for one in divided.crossing)
    function = Lambda(tuple(one for one, _ in taken), Body(divided.moved, divided.crossing))
    whole = nodes.Map(expression.width, function, tuple(array for _, array in taken))
    rows += zip(divided.crossing, targets, strict=True)
    rest = Body(divided.kept, body.results)
    read = [pair for pair in rows if pair[0].name in mentioned(rest)] or rows[:1]
    function = Lambda(tuple(one for one, _ in read), rest)
    left = dataclasses.replace(expression, function=function, arrays=tuple(array for _, array in read))
    return (Statement(targets, with_fresh_names(whole, names)),), Statement(statement.targets, left)


def _taken_out(entries: Sequence[tuple[Statement, bool]], results: frozenset[str], top: bool = False) -> _Divided:
    """Of the entries that do not vary the dear ones, with all that they need."""
    needed: set[str] = set()
    moved: set[int] = set()
    for k, (statement, same) in reversed(list(enumerate(entries))):
        makes = {one.name for one in statement.targets}
        if same and (is_dear(statement, top) or not makes.isdisjoint(needed)):
            moved.add(k)
            needed |= used(statement)
    dear: set[str] = set()  # arrays, and what comes of anything dear: recomputing that would bring it all back
    for k in sorted(moved):
        statement = entries[k][0]
        costs = is_dear(statement) or not used(statement).isdisjoint(dear)
        if not _is_scalar(statement) or (costs and not top):
            dear.update(one.name for one in statement.targets)
    kept: list[Statement] = []
    live = set(results)
    for k, (statement, _) in reversed(list(enumerate(entries))):
        makes = {one.name for one in statement.targets}
        if k not in moved or (makes.isdisjoint(dear) and not makes.isdisjoint(live)):
            kept.insert(0, statement)
            live |= used(statement)
    statements = tuple(entries[k][0] for k in sorted(moved))
    crossing = tuple(one for made in statements for one in made.targets if one.name in dear and one.name in live)
    return _Divided(statements, tuple(kept), crossing) if crossing else _Divided((), (), ())


def _is_scalar(statement: Statement) -> bool:
    return not bodies_of(statement.expression) and all(one.type.rank == 0 for one in statement.targets)


def is_dear(statement: Statement, top: bool = False) -> bool:
    """Whether something costs more than reading it; of a nest's own statements (`top`), all parallelism does."""
    expression = statement.expression
    if isinstance(expression, nodes.Apply):
        return expression.operator in DEAR and not top
    if top:
        return isinstance(expression, SOAC)
    if isinstance(expression, _FOLDS):
        return True
    return any(is_dear(one) for body in bodies_of(expression) for one in body.statements)


def _with_scalars(divided: _Divided, names: FreshNames) -> tuple[Statement, ...]:
    """The statements taken out of a nest: scalars not as statements of the host, but in the functions that use them."""
    scalars: dict[str, Statement] = {}
    found: list[Statement] = []
    for statement in divided.moved:
        if _is_scalar(statement):
            scalars[statement.targets[0].name] = statement
            continue
        found.append(Statement(statement.targets, _filled(statement, scalars, names)))
    return tuple(found)


def _outside_function(statement: Statement) -> frozenset[str]:
    """The names that a statement uses elsewhere than in the function of a map."""
    expression = statement.expression
    if not isinstance(expression, _OPENED):
        return used(statement)
    types = tuple(one.type for one in statement.targets)
    parts = (getattr(expression, one.name) for one in dataclasses.fields(expression) if one.name != "function")
    return mentioned((*parts, *types, *(one.type for one in expression.function.parameters))) - bound(expression)


def _filled(statement: Statement, scalars: dict[str, Statement], names: FreshNames) -> Expression:
    """The expression with the scalars that its function needs computed there."""
    expression = statement.expression
    needed: list[Statement] = []
    wanted = set(used(statement))
    for name, one in reversed(scalars.items()):
        if name in wanted:
            needed.insert(0, one)
            wanted |= used(one)
    if not needed or not isinstance(expression, _OPENED):
        return expression
    function = expression.function
    body = Body((*needed, *function.body.statements), function.body.results)
    return dataclasses.replace(expression, function=with_fresh_names(Lambda(function.parameters, body), names))
