"""The contractions at the level of the host, which have forms of their own and are no matter of flattening."""

from __future__ import annotations

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.recognise import recognise
from tilewright.ir import nodes
from tilewright.ir.cached import remembered
from tilewright.ir.nodes import Body, Program, Statement
from tilewright.ir.scalars import I64
from tilewright.ir.traversal import bodies_of, bound, host_statements, mentioned, used_variables
from tilewright.ir.views import parameter_view

NESTS = (nodes.Map, nodes.Redomap, nodes.Reduce)


def contraction_of(statement: Statement, program: Program) -> Contraction | None:
    """The contraction that a statement is, if it is one where it stands."""
    if not isinstance(statement.expression, NESTS) or len(statement.targets) != 1:
        return None
    inside, iotas = bound(statement.expression), iota_names(program.body)
    known: tuple[frozenset[str], Contraction | None] | None = statement.__dict__.get("_contraction")
    if known is not None and known[0] == (iotas & mentioned(statement.expression)):
        return known[1]
    reads = {one.name: one for one in used_variables(statement.expression) if one.type.rank and one.name not in inside}
    views = {name: parameter_view(one) for name, one in reads.items()}
    out = {target.name: parameter_view(target) for target in statement.targets}
    found = recognise(statement, views, out, iotas)
    answer = found if isinstance(found, Contraction) else None
    statement.__dict__["_contraction"] = iotas & mentioned(statement.expression), answer  # rules ask over and over
    return answer


@remembered
def iota_names(body: Body) -> frozenset[str]:
    """The names of all arrays in a body that count."""
    own = (one.targets[0].name for one in body.statements
           if isinstance(one.expression, nodes.Iota) and one.expression.scalar == I64)  # fmt: skip
    return frozenset(own).union(*(iota_names(inner) for one in body.statements for inner in bodies_of(one.expression)))


def is_contraction(statement: Statement, program: Program) -> bool:
    """Whether a statement at the level of the host is recognised as a contraction."""
    return contraction_of(statement, program) is not None


def kinds_of(statement: Statement, program: Program) -> frozenset[Kind]:
    """The kinds of dimensions that a contraction has; none of what is no contraction."""
    found = contraction_of(statement, program)
    return frozenset() if found is None else frozenset(one.kind for one in found.dimensions)


def contractions(program: Program) -> tuple[Statement, ...]:
    """The statements of the host that are contractions."""
    return tuple(one for one in host_statements(program.body) if is_contraction(one, program))


def only_contractions(program: Program) -> bool:
    """Whether all combinators at the level of the host are contractions, and there is one."""
    combinators = nodes.Map | nodes.Fold | nodes.Scatter | nodes.Hist
    found = [one for one in host_statements(program.body) if isinstance(one.expression, combinators)]
    return bool(found) and all(is_contraction(one, program) for one in found)
