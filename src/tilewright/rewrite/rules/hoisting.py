"""Moving what does not change out of loops and combinators.

A body may run no round at all, so a statement is moved only if it cannot fail: it is computed always afterwards. An
index that may be out of range is moved only where at least one round is certain. What costs nothing where it is
(iota, replicate: they need no memory while they stay next to their use) is not moved; nor is a question about a
threshold, by which the versions that it picks are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.counts import same_count
from tilewright.ir.index_ranges import is_within
from tilewright.ir.nodes import Atom, Body, Expression, Literal, Statement, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import Size, SizeFunction
from tilewright.ir.traversal import bodies_of, bound, mentioned
from tilewright.rewrite.names import with_body
from tilewright.rewrite.rule import Declined, Place, no_match, rule

Definition: TypeAlias = Callable[[Atom], Expression | None]
"""What binds a variable, if that is known."""


def _unknown(atom: Atom) -> Expression | None:
    return None


@rule("simplification", nodes.Map, nodes.Reduce, nodes.Scan, nodes.Redomap, nodes.Scanomap, nodes.Loop, nodes.StreamSeq)
def hoist_invariant(at: Place) -> Body | Declined:
    """ys = map (\\x -> v = e1; e2) xs  =>  v = e1; ys = map (\\x -> e2) xs, if e1 cannot fail and does not vary"""
    expression = at.expression
    varying = set(bound(expression))
    moved: list[Statement] = []
    kept_back: str | None = None
    for number, body in enumerate(bodies_of(expression)):
        certain = _runs_for_certain(expression, body)
        staying: list[Statement] = []
        here: list[Statement] = []
        for statement in body.statements:
            reason = _why_not(statement, varying, certain, at.definition)
            if reason is None:
                here.append(statement)
                varying -= bound(statement)
            else:
                staying.append(statement)
                kept_back = kept_back or reason or None
        if here:
            moved += here
            expression = with_body(expression, number, Body(tuple(staying), body.results))
    if moved:
        return at.replace(*moved, Statement(at.statement.targets, expression))
    return Declined(kept_back) if kept_back else no_match("everything inside varies or costs nothing")


def _runs_for_certain(expression: Expression, body: Body) -> bool:
    match expression:
        case (
            nodes.Map(width, function)
            | nodes.Redomap(width=width, function=function)
            | nodes.Scanomap(width=width, function=function)
        ):
            return body is function.body and (width.constant or 0) > 0
        case nodes.Loop(form=nodes.ForLoop(bound=rounds)):
            return (rounds.constant or 0) > 0
    return False


def _why_not(statement: Statement, varying: set[str], certain: bool, definition: Definition) -> str | None:
    """None if the statement can be moved out; "" if there is nothing to say about why not."""
    own = bound(statement)
    if not mentioned(statement).isdisjoint(varying - own):
        return ""
    if isinstance(statement.expression, nodes.Alias | nodes.Iota | nodes.Replicate | nodes.Threshold):
        return ""
    if not can_fail(statement.expression, definition) or (certain and not _may_not_end(statement.expression)):
        return None
    names = ", ".join(one.name for one in statement.targets)
    return f"{names} does not vary, but it could fail, and it is not certain that it runs at all"


def can_fail(
    expression: Expression, definition: Definition = _unknown, indices: Mapping[str, Size] = MappingProxyType({})
) -> bool:
    """Whether evaluating an expression might fail, or not end, or depends on the level it runs at.

    Args:
        expression: any.
        definition: what binds a variable around it, if that is known: elements of an iota are indices in range.
        indices: what such elements in scope are below.
    """
    match expression:
        case nodes.Index(array, places):
            return not _in_range(array, places, definition, indices)
        case nodes.Update(array, places, _):
            return not _in_range(array, places, definition, indices)
        case nodes.Slice(array, dimensions):
            return not all(
                one.step == 1 and one.start.constant == 0 and one.count == extent
                for one, extent in zip(dimensions, array.type.shape, strict=True)
            )
        case nodes.Reshape(array, shape):
            return not same_count(array.type.shape, shape)
        case nodes.SizeValue(size):
            return _can_divide_by_zero(size)
        case nodes.Iota(count) | nodes.Replicate(count, _):
            return (count.constant if count.constant is not None else -1) < 0
        case nodes.Alias() | nodes.Apply() | nodes.Cast() | nodes.Rearrange() | nodes.Concat() | nodes.Scatter():
            return False
        case nodes.Copy(_, level):
            return level is not None
        case nodes.Loop(form=form) if not isinstance(form, nodes.ForLoop):
            return True
        case (
            nodes.If()
            | nodes.Loop()
            | nodes.Map()
            | nodes.Reduce()
            | nodes.Scan()
            | nodes.Redomap()
            | nodes.Scanomap()
            | nodes.Hist()
        ):
            inner = {**indices, **_counted(expression, definition)}
            return any(_body_can_fail(body, definition, inner) for body in bodies_of(expression))
    return True  # streams, segmented operations: they stay at their level


def _body_can_fail(body: Body, definition: Definition, indices: Mapping[str, Size]) -> bool:
    own = {target.name: one.expression for one in body.statements if len(one.targets) == 1 for target in one.targets}

    def inside(atom: Atom) -> Expression | None:
        return own.get(atom.name) if isinstance(atom, Variable) and atom.name in own else definition(atom)

    return any(can_fail(one.expression, inside, indices) for one in body.statements)


def _counted(expression: Expression, definition: Definition) -> dict[str, Size]:
    """The indices that the bodies of an expression are given, with what they are below; a round runs, so it has one."""
    match expression:
        case nodes.Loop(form=nodes.ForLoop(index, bound)):
            return {index.name: bound}
        case nodes.Map(width, function, arrays):
            pairs = list(zip(function.parameters, arrays, strict=True))
        case nodes.Redomap(width=width, function=function, arrays=arrays):
            pairs = list(zip(function.parameters, arrays, strict=True))
        case nodes.Scanomap(width=width, function=function, arrays=arrays):
            pairs = list(zip(function.parameters, arrays, strict=True))
        case _:
            return {}
    found = ((parameter, definition(array)) for parameter, array in pairs)
    places = {one.name: iota.count for one, iota in found if isinstance(iota, nodes.Iota) and iota.scalar == I64}
    return {f"%round of {width}": width, **places}


def _may_not_end(expression: Expression) -> bool:
    if isinstance(expression, nodes.Loop) and not isinstance(expression.form, nodes.ForLoop):
        return True
    inside = (one for body in bodies_of(expression) for one in body.statements)
    return any(_may_not_end(one.expression) for one in inside)


def _in_range(array: Variable, places: tuple[Atom, ...], definition: Definition, indices: Mapping[str, Size]) -> bool:
    for atom, extent in zip(places, array.type.shape, strict=False):
        if isinstance(atom, Literal) and extent.constant is not None:
            if not 0 <= atom.value.real < extent.constant:
                return False
        elif isinstance(atom, Literal) and atom.value == 0 and extent in indices.values():
            continue
        elif not is_within(_as_size(atom, definition, indices), extent, indices):
            return False
    return True


def _as_size(atom: Atom, definition: Definition, indices: Mapping[str, Size]) -> Size:
    """An index in terms of those that are counted, as far as it was computed from them."""
    value = nodes.atom_size(atom)
    if isinstance(atom, Variable) and atom.name not in indices:
        computed = definition(atom)
        if isinstance(computed, nodes.SizeValue):
            return computed.size
    return value


def _can_divide_by_zero(size: Size) -> bool:
    for monomial, _ in size.terms:
        for atom in monomial:
            if isinstance(atom, SizeFunction):
                divides = atom.function in ("floordiv", "mod") and not atom.right.constant
                if divides or _can_divide_by_zero(atom.left) or _can_divide_by_zero(atom.right):
                    return True
    return False
