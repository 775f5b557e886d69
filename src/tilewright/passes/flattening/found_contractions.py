"""The contractions at the level of the host, which have forms of their own and are no matter of flattening."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.recognise import recognise
from tilewright.ir.nodes import (
    Body,
    Hist,
    If,
    Iota,
    Loop,
    Map,
    Program,
    Redomap,
    Reduce,
    Scan,
    Scanomap,
    Scatter,
    Statement,
)
from tilewright.ir.scalars import I64
from tilewright.ir.traversal import all_statements, bound_variables, sub_bodies, used_variables
from tilewright.ir.views import parameter_view

NESTS = (Map, Redomap, Reduce)


def contraction_of(statement: Statement, program: Program) -> Contraction | None:
    """The contraction that a statement is, if it is one where it stands."""
    if not isinstance(statement.expression, NESTS) or len(statement.targets) != 1:
        return None
    bound = {one.name for one in bound_variables(statement.expression)}
    reads = {one.name: one for one in used_variables(statement.expression) if one.type.rank and one.name not in bound}
    iotas = {
        one.targets[0].name
        for one in all_statements(program.body)
        if isinstance(one.expression, Iota) and one.expression.scalar == I64
    }
    views = {name: parameter_view(one) for name, one in reads.items()}
    out = {target.name: parameter_view(target) for target in statement.targets}
    found = recognise(statement, views, out, iotas)
    return found if isinstance(found, Contraction) else None


def is_contraction(statement: Statement, program: Program) -> bool:
    """Whether a statement at the level of the host is recognised as a contraction."""
    return contraction_of(statement, program) is not None


def kinds_of(statement: Statement, program: Program) -> frozenset[Kind]:
    """The kinds of dimensions that a contraction has; none of what is no contraction."""
    found = contraction_of(statement, program)
    return frozenset() if found is None else frozenset(one.kind for one in found.dimensions)


def host_statements(program: Program) -> Iterator[Statement]:
    """The statements that the host runs, also those in its ifs and loops."""

    def found(body: Body) -> Iterator[Statement]:
        for one in body.statements:
            yield one
            if isinstance(one.expression, If | Loop):
                for inner in sub_bodies(one.expression):
                    yield from found(inner)

    return found(program.body)


def contractions(program: Program) -> tuple[Statement, ...]:
    """The statements of the host that are contractions."""
    return tuple(one for one in host_statements(program) if is_contraction(one, program))


def only_contractions(program: Program) -> bool:
    """Whether all combinators at the level of the host are contractions, and there is one."""
    combinators = Map | Reduce | Scan | Redomap | Scanomap | Scatter | Hist
    found = [one for one in host_statements(program) if isinstance(one.expression, combinators)]
    return bool(found) and all(is_contraction(one, program) for one in found)
