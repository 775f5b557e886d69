"""When a program is best run as it is written: where each of its nests has points enough to fill the machine.

The first question about a nest is whether its outermost parallelism is enough (`rules.flatten_versions`). What is run
then is the nest as it is written; so the question can be answered from the sizes of a call before any version is made.
It is not asked where a version has what the nest as written hides, whatever the sizes are: a product to be tiled. Where
it hides rounds of a loop that compute once what all points share, only small nests are run as written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from tilewright.contraction.form import Kind
from tilewright.ir.nodes import Body, ForLoop, Loop, Map, Program, Redomap, Scanomap, Statement
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ONE, Size, maximum, product
from tilewright.ir.traversal import all_statements, bound, host_statements, sub_bodies
from tilewright.machine.model import Machine
from tilewright.passes.core.found_contractions import contraction_of, is_contraction
from tilewright.passes.flattening.flat_programs import is_flat_statement
from tilewright.passes.flattening.flatten_tree import (
    Decision,
    Node,
    decisions,
    hides_product,
    resident_points,
    shares_rounds,
    threads_are_lanes,
)
from tilewright.passes.segments.streams import has_stream_form
from tilewright.rewrite.rules.flatten_nest import nest_of
from tilewright.rewrite.rules.flatten_regular import SOAC, exploitable, holds_parallelism
from tilewright.rewrite.rules.flatten_versions import inner_parallelism
from tilewright.runtime.versions import FillsMachine, NestPoints

LEAST_POINTS = 1 << 18
"""Points (some 1 ns each) that a core is through with before their versions would pay."""


def fills_machine(program: Program, machine: Machine, flattened: Callable[[], Program]) -> FillsMachine | None:
    """When a program (after the standard pipeline) is run as it is written; None if always one of its versions is.

    `flattened` gives the program with its versions, looked at only where a nest may hide what beats it for all sizes.
    """
    scalars = (one.name for one in program.parameters if one.type.rank == 0 and one.type.element == I64)
    known = {*program.size_names, *scalars}
    nests: list[NestPoints] = []
    shares, hides = False, list[bool]()

    @functools.cache
    def hidden() -> bool:
        versions = flattened()
        return any(hides_product(one, versions, machine) for one in _outermost(decisions(versions.body)))

    for statement in host_statements(program.body):
        if not isinstance(statement.expression, SOAC) or is_flat_statement(statement):
            continue
        if is_contraction(statement, program):
            continue
        written, whole = _points(statement), inner_parallelism(Body((statement,), statement.targets), frozenset())
        if not written.names <= known:
            return None
        whole = whole if whole is not None and whole.names <= known else None
        hiding = _may_hide_product(statement, program, machine)
        in_rounds = hiding and whole is not None and threads_are_lanes(machine) and _has_rounds(statement)
        rounds = _rounds(statement)
        nests.append(NestPoints(written, whole, rounds if rounds.names <= known else ONE, in_rounds))
        shares = shares or _may_share_rounds(statement)
        hides += [in_rounds] * hiding
    if not all(hides) and hidden():
        return None

    @functools.cache
    def is_beaten() -> bool:
        return hidden() or any(shares_rounds(one) for one in _outermost(decisions(flattened().body)))

    least = LEAST_POINTS if threads_are_lanes(machine) else 0
    return FillsMachine(tuple(nests), resident_points(machine), least, is_beaten if shares or hides else None)


def _points(statement: Statement) -> Size:
    """What the outermost question about a nest compares; one for a fold that is asked none: it is sequential."""
    nest, expression = nest_of(statement), statement.expression
    if nest.levels:
        return product(nest.shape)
    if isinstance(expression, Redomap | Scanomap) and holds_parallelism(expression.function.body, bound(expression)):
        return expression.width
    return ONE


def _has_rounds(statement: Statement) -> bool:
    """Whether the points of a nest loop, so that versions with more parallelism launch their kernels in each round."""
    return any(isinstance(one.expression, Loop) for one in nest_of(statement).body.statements)


def _rounds(statement: Statement) -> Size:
    """How many rounds the longest loop of a nest has of those that can become loops of the host."""
    nest = nest_of(statement)
    loops = [one.expression for one in nest.body.statements if exploitable(one, nest.varying)]
    bounds = [one.form.bound for one in loops if isinstance(one, Loop) and isinstance(one.form, ForLoop)]
    return functools.reduce(maximum, bounds) if bounds else ONE


def _may_hide_product(statement: Statement, program: Program, machine: Machine) -> bool:
    """Whether there is a contraction in a nest that has no form as it is.

    One that uses the elements of an operand several times may use those of both once it is one of the whole nest.
    """
    inside = (one for body in sub_bodies(statement.expression) for one in all_statements(body))
    found = (contraction_of(one, program) for one in inside)
    if not any(one is not None and (one.of_kind(Kind.M) or one.of_kind(Kind.N)) for one in found):
        return False
    is_nest = isinstance(statement.expression, Map)
    return not (is_nest and has_stream_form(statement.expression, statement.targets, machine))


def _may_share_rounds(statement: Statement) -> bool:
    """Whether there is a loop in a nest that can be interchanged with it, since there is parallelism in its rounds."""
    nest = nest_of(statement)
    return any(isinstance(one.expression, Loop) and exploitable(one, nest.varying) for one in nest.body.statements)


def _outermost(nodes: tuple[Node, ...]) -> Iterator[Decision]:
    """The decisions that are asked first."""
    for one in nodes:
        if isinstance(one, Decision):
            yield one
        else:
            yield from _outermost(one.inside)
