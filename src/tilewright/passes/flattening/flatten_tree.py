"""The versions of an incrementally flattened program as a tree of decisions: to read, to count and to reach them.

>>> from tilewright.ir.parser import parse_program
>>> from tilewright.passes.flattening.flatten import flatten_incrementally
>>> program = parse_program('''
... def sums (xss: [n][m]i64) =
...   let (sums: [n]i64) = map n (\\\\(xs: [m]i64) ->
...     let (sum: i64) = reduce m (\\\\(a: i64, b: i64) -> let (c: i64) = a + b in (c)) (0i64) xs
...     in (sum)) xss
...   in (sums)''')
>>> print(explain_versions(flatten_incrementally(program)))
sums: 3 versions
sums: n >= outer_0?
  yes: sums_1 = segmap@thread (n), in each: reduce
  no: n >= block_0 and m < threads_per_block?
    yes: sums_3 = segmap@block (n), in each:
      sum_2 = segred@thread (m)
    no: sums_4 = segred@thread (n, m)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from math import inf
from typing import TypeAlias

from tilewright.contraction.form import Kind
from tilewright.ir.dataclass import dataclass
from tilewright.ir.interpreter import DEFAULT_THRESHOLD
from tilewright.ir.nodes import Body, ForLoop, If, Loop, Program, SegMap, Segmented, Statement, Threshold
from tilewright.ir.sizes import ZERO, Size, maximum
from tilewright.ir.traversal import all_statements, bodies_of
from tilewright.ir.verifier import kind_of
from tilewright.machine.model import Machine
from tilewright.passes.core.found_contractions import kinds_of
from tilewright.rewrite.rules.flatten_invariant import is_dear
from tilewright.rewrite.rules.flatten_regular import SOAC
from tilewright.rewrite.rules.flatten_versions import (
    BLOCK_BYTES,
    BLOCK_THREADS,
    MOST_QUESTIONS,
    comparisons,
    inner_parallelism,
    thresholds_of,
)
from tilewright.runtime.thresholds import bands_of

CONTRACTION = "contraction_"
"""How the thresholds begin that pick the tiling of a contraction (`flatten_contractions`)."""


@dataclass(frozen=True)
class Work:
    """A statement that is no decision: an operation, or a loop or an if with more inside."""

    statement: Statement
    inside: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Decision:
    """A question with the nodes on both sides: `asked` has the thresholds and the answers that lead to `yes`."""

    statement: Statement
    asked: tuple[tuple[Threshold, bool], ...]
    yes: tuple[Node, ...]
    no: tuple[Node, ...]

    @property
    def question(self) -> str:
        """The question as text."""
        return self.question_with({})

    def question_with(self, values: Mapping[str, float]) -> str:
        """The question as text, with the values of thresholds: n >= outer_0 = 32 (2 where m <= 90)."""
        return " and ".join(
            f"{one.parallelism} {'>=' if true else '<'} {one.name}"
            + (f" = {values[one.name]:.17g}{self._bands(values, one.name)}" if one.name in values else "")
            for one, true in self.asked
        )

    def _bands(self, values: Mapping[str, float], name: str) -> str:
        shown = [f"{value:.17g} where {inside_of(self)} <= {most}" for most, value in bands_of(values, name)]
        return f" ({', '.join(shown)})" if shown else ""


Node: TypeAlias = Work | Decision


def decisions(body: Body) -> tuple[Node, ...]:
    """The segmented operations of a body and the decisions between them, in order."""
    nodes: list[Node] = []
    for statement in body.statements:
        expression = statement.expression
        if isinstance(expression, If) and (asked := comparisons(body, expression.condition)):
            yes, no = decisions(expression.then), decisions(expression.otherwise)
            nodes.append(Decision(statement, tuple(asked), yes, no))
            continue
        inside = tuple(one for inner in bodies_of(expression) for one in decisions(inner))
        if isinstance(expression, Segmented) or inside:
            nodes.append(Work(statement, inside))
    return tuple(nodes)


def inside_of(one: Decision) -> Size | None:
    """How many points of one construct, at most, each point of the version holds that is asked about.

    Of a contraction that is tiled: how many it has with those that are summed; None where the number varies.
    """
    blocks = [threshold.parallelism for threshold, _ in one.asked if threshold.name == BLOCK_THREADS]
    if blocks:
        return blocks[0]
    expression = one.statement.expression
    version = expression.then if isinstance(expression, If) else Body((), ())
    points = [statement.expression.body if isinstance(statement.expression, Segmented) else Body((statement,), ())
              for statement in version.statements]  # fmt: skip
    found = [inner_parallelism(point, frozenset()) for point in points]
    known = [size for size in found if size is not None and size != ZERO]
    return functools.reduce(maximum, known) if known and len(known) == len(found) else None


def points_inside(program: Program) -> dict[str, Size]:
    """`inside_of` by threshold (the largest, where there are several), where it is said by the sizes of arguments."""
    known, found = frozenset(program.size_names), dict[str, Size]()
    for one in decisions_in(decisions(program.body)):
        name, size = one.asked[0][0].name, inside_of(one)
        if size is not None and size.names <= known:
            found[name] = maximum(found[name], size) if name in found else size
    return found


def version_settings(program: Program) -> tuple[dict[str, float], ...]:
    """For every version of every nest, values of the thresholds with which it runs; names not given do not matter."""
    return tuple(_settings(decisions(program.body), {}))


def _settings(nodes: tuple[Node, ...], so_far: Mapping[str, float]) -> Iterator[dict[str, float]]:
    for one in nodes:
        if isinstance(one, Work):
            yield from _settings(one.inside, so_far)
            continue
        (first, true), *_ = one.asked
        taken = {**so_far, **{threshold.name: 0.0 if wanted else inf for threshold, wanted in one.asked}}
        for side, values in ((one.yes, taken), (one.no, {**so_far, first.name: inf if true else 0.0})):
            deeper = list(_settings(side, values))
            yield from deeper or [dict(values)]


def machine_thresholds(program: Program, machine: Machine) -> dict[str, float]:
    """What a machine's numbers say about a program's thresholds, before anything is tuned.

    `outer_k`: as many points as threads are resident; where threads are the lanes of vectors, which also take what is
    sequential, a point for each core. `block_k`: a block for each core; what fits a block is the machine's limit (none
    for threads that are lanes). `contraction_k`: always, since the tiling has forms for every size. Versions that a
    later one surely beats are never taken: nests are opened to get at the contractions in them, except where the points
    of a nest share what they read as it is; and to get at rounds of a loop that compute once what all points share.
    """
    limits: dict[str, float] = {
        BLOCK_THREADS: machine.max_threads_per_block + 1 if machine.max_threads_per_block > 1 else inf,
        BLOCK_BYTES: machine.shared_bytes_per_block + 1 if machine.shared_bytes_per_block else inf,
    }
    resident, opened = resident_points(machine), never_taken(program, machine)
    values: dict[str, float] = {}
    for name in thresholds_of(program):
        points = 0 if name.startswith(CONTRACTION) else resident if name.startswith("outer_") else machine.cores
        values[name] = limits.get(name, inf if name in opened else points)
    return values


def threads_are_lanes(machine: Machine) -> bool:
    """Whether the threads of a machine are the lanes of vectors."""
    return machine.max_threads_per_block == 1 and machine.vector_bytes > 0


def resident_points(machine: Machine) -> int:
    """How many points fill a machine: see `machine_thresholds`."""
    return machine.cores * (1 if threads_are_lanes(machine) else machine.max_threads_per_core) or DEFAULT_THRESHOLD


def never_taken(program: Program, machine: Machine) -> frozenset[str]:
    """The thresholds of the versions that are never taken, for what later versions have."""
    return frozenset(
        one.asked[0][0].name
        for one in decisions_in(decisions(program.body))
        if hides_product(one, program, machine) or shares_rounds(one)
    )


def hides_product(one: Decision, program: Program, machine: Machine) -> bool:
    """Whether a version without a form of its own hides a product, which later versions have.

    A product is a contraction that uses the elements of both its operands more than once. One that does not (the sum of
    the squares of each row, say) is as well computed where its operands are read or made.
    """
    hidden = any(_is_product(inner, program) for inner in decisions_in(one.no))
    return hidden and not any(_has_form(version, machine) for version in one.yes)


def _is_product(decision: Decision, program: Program) -> bool:
    """Whether it is asked here if a contraction with reuse of both operands is tiled."""
    expression = decision.statement.expression
    if not decision.asked[0][0].name.startswith(CONTRACTION) or not isinstance(expression, If):
        return False
    return any({Kind.M, Kind.N} <= kinds_of(one, program) for one in expression.then.statements)


def shares_rounds(one: Decision) -> bool:
    """Whether a later version computes once in each round of a loop what all points share."""
    return _asked_in_rounds(one.asked[0][0], one.no)


def _asked_in_rounds(question: Threshold, nodes: tuple[Node, ...], loop: bool = False, shared: bool = False) -> bool:
    """Whether it is asked again in the rounds of a loop beside dear work, which all points share."""
    shared = shared or (loop and any(isinstance(one, Work) and is_dear(one.statement) for one in nodes))
    for one in nodes:
        if isinstance(one, Work):
            within = loop or isinstance(one.statement.expression, Loop)
            found = _asked_in_rounds(question, one.inside, within, shared)
        else:
            again = shared and _same_question(question, one.asked[0][0])
            found = again or any(_asked_in_rounds(question, side, loop, shared) for side in (one.yes, one.no))
        if found:
            return True
    return False


def _same_question(one: Threshold, other: Threshold) -> bool:
    kinds = {threshold.name.rsplit("_", 1)[0] for threshold in (one, other)}
    return one.parallelism == other.parallelism and len(kinds) == 1


def _has_form(version: Node, machine: Machine) -> bool:
    from tilewright.passes.segments.streams import form_of_streams

    expression = version.statement.expression
    return isinstance(expression, SegMap) and form_of_streams(version.statement, expression, machine)


def decisions_in(nodes: tuple[Node, ...]) -> Iterator[Decision]:
    """All decisions, outer before inner."""
    for one in nodes:
        if isinstance(one, Decision):
            yield one
        yield from decisions_in(one.inside if isinstance(one, Work) else (*one.yes, *one.no))


def names_in(nodes: tuple[Node, ...]) -> Iterator[str]:
    """The names of the thresholds that belong to one version each, outer before inner."""
    return (one.asked[0][0].name for one in decisions_in(nodes))


# --- as text ----------------------------------------------------------------------------------------------------------


def explain_versions(program: Program, values: Mapping[str, float] | None = None) -> str:
    """The tree of decisions: what is compared with which threshold (and its value, if given), and what runs then."""
    count = len(version_settings(program))
    head = f"{program.name}: {count} version{'s' if count > 1 else ''}" if count else f"{program.name}: one version"
    nodes = decisions(program.body)
    if len(set(names_in(nodes))) >= MOST_QUESTIONS:
        head += f" ({MOST_QUESTIONS} questions, no more are asked: what is left has the one with all parallelism)"
    return "\n".join([head, *_lines(nodes, 0, values or {})])


def _lines(nodes: tuple[Node, ...], indent: int, values: Mapping[str, float]) -> Iterator[str]:
    margin = "  " * indent
    for one in nodes:
        names = ", ".join(target.name for target in one.statement.targets)
        if isinstance(one, Work):
            yield f"{margin}{names} = {_work(one)}"
            yield from _lines(one.inside, indent + 1, values)
            continue
        yield f"{margin}{names}: {one.question_with(values)}?"
        yield from _answer("yes", one.yes, indent + 1, values)
        yield from _answer("no", one.no, indent + 1, values)


def _answer(word: str, nodes: tuple[Node, ...], indent: int, values: Mapping[str, float]) -> Iterator[str]:
    """The nodes after a word; one alone on the word's line."""
    margin = "  " * indent
    if not nodes:
        yield f"{margin}{word}: a contraction, tiled"
        return
    if len(nodes) != 1:
        yield f"{margin}{word}:"
        yield from _lines(nodes, indent + 1, values)
        return
    first, *rest = _lines(nodes, indent, values)
    if isinstance(nodes[0], Decision):
        first = margin + f"{nodes[0].question_with(values)}?"
    yield f"{margin}{word}: {first.strip()}"
    yield from rest


def _work(one: Work) -> str:
    expression = one.statement.expression
    if isinstance(expression, Segmented):
        shape = ", ".join(map(str, expression.space.shape))
        text = f"{kind_of(expression)}@{expression.level.value} ({shape})"
        sequential = [kind_of(inner.expression) for inner in all_statements(expression.body)
                      if isinstance(inner.expression, SOAC)]  # fmt: skip
        if one.inside:
            return f"{text}, in each:"
        return f"{text}, in each: {', '.join(dict.fromkeys(sequential))}" if sequential else text
    if isinstance(expression, Loop):
        return f"loop for {expression.form.bound} rounds:" if isinstance(expression.form, ForLoop) else "loop:"
    return f"{kind_of(expression)}:"
