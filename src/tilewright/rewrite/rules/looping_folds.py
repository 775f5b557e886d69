"""Folds of what loops give, on a machine that runs loops of neighbouring points in the lanes of vectors."""

from __future__ import annotations

from tilewright.ir.nodes import Body, Loop, Map, Redomap, Reduce, Statement, Variable
from tilewright.ir.sizes import ONE
from tilewright.ir.traversal import all_statements, sub_bodies
from tilewright.rewrite.rule import Declined, Place, no_match, rule


@rule("looping folds", Redomap)
def fold_apart(at: Place) -> Body | Declined:
    """z = redomap op ne f xs  =>  ys = map f xs; z = reduce op ne ys, if f loops over numbers

    A row waits for its own last round, so that many of them go on together as points of a map, also of other cores'.
    What is stored for that is little beside a loop.
    """
    fold = at.expect(Redomap)
    if not at.is_on_host:
        return no_match("it is not the host that runs the fold")
    if not any(_loops_over_numbers(one) for one in fold.function.body.statements):
        return no_match("no row loops over numbers")
    count = len(fold.neutral)
    if any(one.type.rank for one in fold.neutral) or fold.width == ONE:
        return no_match("what is folded are not many numbers")
    rows = tuple(
        Variable(at.names(f"{target}.rows"), atom.type.array_of(fold.width))
        for target, atom in zip(at.statement.targets[:count], fold.neutral, strict=True)
    )
    mapped = Statement((*rows, *at.statement.targets[count:]), Map(fold.width, fold.function, fold.arrays))
    whole = Reduce(fold.width, fold.combine, fold.neutral, rows, fold.commutative)
    return at.replace(mapped, Statement(at.statement.targets[:count], whole))


def _loops_over_numbers(statement: Statement) -> bool:
    """Whether a statement is a loop that carries scalars alone, and has nothing but such inside."""
    if not isinstance(statement.expression, Loop):
        return False
    inside = [one for body in sub_bodies(statement.expression) for one in all_statements(body)]
    return not any(target.type.rank for one in (statement, *inside) for target in one.targets)
