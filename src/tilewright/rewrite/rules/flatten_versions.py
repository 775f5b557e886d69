"""Incremental flattening: several versions of a nest, picked when the program runs [S2].

At every nest with parallelism inside there are up to three versions: only the nest is parallel (one thread per point),
the nest runs in blocks whose threads share the parallelism inside (one block per point), or flattening goes on.

- Threshold `outer_k` >= Par(S): enough points to keep all threads busy, so nothing inside needs to be parallel.
- Threshold `block_k` >= Par(S): enough points to keep all cores busy with a block each; and the block must fit:
  `threads_per_block` and `bytes_per_block`, for all nests, are the first sizes that no longer fit the machine.

Bound: a question about Par(S) is asked once on the way inwards, and along one way there are as many different Par(S) as
nested maps; so a statement under d maps is written at most 2*d + 1 times. A perfect nest of several maps is asked about
once, as a whole: with fewer of its maps parallel the same work would be done with less parallelism. A loop that was
interchanged with maps has the questions about them asked once more, if what its points share was taken out of a round:
2*d*(l + 1) + 1 times under l loops. A program asks at most `MOST_QUESTIONS`, outer nests first; what is left then has
the version with all parallelism only, and says so.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.ir.cached import remembered
from tilewright.ir.nodes import Atom, Body, Expression, Program, Statement, Type, Variable
from tilewright.ir.scalars import BOOL
from tilewright.ir.sizes import ONE, ZERO, Size, maximum, product
from tilewright.ir.traversal import all_statements, bodies_of, bound, mentioned, rows_of, with_fresh_names
from tilewright.rewrite.names import definitions
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.flatten_distribute import INSIDE
from tilewright.rewrite.rules.flatten_nest import holds_operation, nest_of, open_space
from tilewright.rewrite.rules.flatten_regular import exploitable, holds_parallelism, is_regular
from tilewright.rewrite.rules.flatten_segments import fold_nest

BLOCK_THREADS, BLOCK_BYTES = "threads_per_block", "bytes_per_block"
_VIEWS = nodes.Rearrange | nodes.Reshape | nodes.Slice
MOST_QUESTIONS = 32
"""Each question adds a version, which takes time to make and to tune; LocVolCalib, with 10, is large."""


TOO_MANY = Declined(
    f"the program has {MOST_QUESTIONS} questions about versions already: only the one with all parallelism is made"
)


def thresholds_of(program: Program) -> dict[str, Size]:
    """The thresholds of a program and what is compared with each (the largest, where there are several)."""
    found: dict[str, Size] = {}
    for statement in all_statements(program.body):
        if isinstance(statement.expression, nodes.Threshold):
            name, size = statement.expression.name, statement.expression.parallelism
            found[name] = maximum(found[name], size) if name in found else size
    return found


@rule("incremental flattening", nodes.Map, nodes.Redomap, nodes.Scanomap)
def version_outer(at: Place) -> Body | Declined:
    """S |- e  =>  if Par(S) >= t then segmap S e else (S |- e), if e holds parallelism; also segred, segscan"""
    if holds_operation(at.expression) or not at.is_on_host:  # which asks the questions
        return INSIDE
    nest = nest_of(at.statement)
    if not holds_parallelism(nest.body, nest.varying):
        return no_match("there is no regular parallelism inside")
    if _questions(at.program) >= MOST_QUESTIONS:
        return TOO_MANY
    asked = _asked(at, "outer_")
    if nest.levels and product(nest.shape) not in asked:
        return _choice(at, whole_fold=False)
    fold = nest.sole.expression if nest.sole is not None else None
    if (
        nest.sole is None
        or not isinstance(fold, nodes.Redomap | nodes.Scanomap)
        or not exploitable(nest.sole, nest.varying)
    ):
        return no_match("it was already asked whether the points are enough")
    if not holds_parallelism(fold.function.body, nest.varying):
        return no_match("the fold inside holds no parallelism of its own")
    if product((*nest.shape, fold.width)) in asked:
        return no_match("it was already asked whether the points of the fold are enough")
    return _choice(at, whole_fold=True)


def _choice(at: Place, whole_fold: bool) -> Body:
    """The nest as it is (or with the fold inside, if that is parallel too) as an operation, if it has points enough."""
    copy = with_fresh_names(at.statement, at.names)
    outer = nest_of(copy)
    operation: nodes.SegMap | nodes.SegRed | nodes.SegScan
    fold = outer.sole.expression if outer.sole is not None else None
    if whole_fold and isinstance(fold, nodes.Redomap | nodes.Scanomap):
        outer = fold_nest(outer, fold, at.names)
        space, body = open_space(outer, at.names)
        if isinstance(fold, nodes.Redomap):
            operation = nodes.SegRed(nodes.Level.THREAD, space, fold.combine, fold.neutral, body, fold.commutative)
        else:
            operation = nodes.SegScan(nodes.Level.THREAD, space, fold.combine, fold.neutral, body)
    else:
        operation = nodes.SegMap(nodes.Level.THREAD, *open_space(outer, at.names))
    enough = Variable(at.names("enough"), Type(BOOL))
    question = Statement((enough,), nodes.Threshold(_new_name(at.program, "outer_"), product(outer.shape)))
    return _either(at, (question,), enough, Statement(copy.targets, operation))


def _either(at: Place, questions: tuple[Statement, ...], condition: Variable, version: Statement) -> Body:
    """if condition then version else what is here."""
    targets = tuple(Variable(at.names(one.name), one.type) for one in at.statement.targets)
    otherwise = Body((Statement(targets, at.expression),), targets)
    return at.replace(
        *questions, Statement(at.statement.targets, nodes.If(condition, Body((version,), version.targets), otherwise))
    )


@rule("incremental flattening", nodes.Map)
def version_block(at: Place) -> Body | Declined:
    """S |- e  =>  if Par(S) >= t and e fits a block then segmap@block S e else (S |- e), if e holds parallelism

    Inside, e is flattened for the threads of a block.
    """
    if holds_operation(at.expression) or not at.is_on_host:  # which asks the questions
        return INSIDE
    nest = nest_of(at.statement)
    if not holds_parallelism(nest.body, nest.varying):
        return no_match("there is no regular parallelism inside")
    if _questions(at.program) >= MOST_QUESTIONS:
        return TOO_MANY
    if product(nest.shape) in _asked(at, "block_"):
        return no_match("it was already asked whether the points are enough for a block each")
    threads, memory = inner_parallelism(nest.body, nest.varying), block_bytes(nest.body, nest.varying)
    if threads is None or not mentioned(memory).isdisjoint(nest.varying):
        return Declined(
            "the parallelism or the arrays inside vary in size, so that it is not known if a block holds them"
        )
    copy = with_fresh_names(at.statement, at.names)
    version = Statement(copy.targets, nodes.SegMap(nodes.Level.BLOCK, *open_space(nest_of(copy), at.names)))
    questions: list[Statement] = []

    def ask(expression: nodes.Threshold | nodes.Apply, hint: str) -> Variable:
        variable = Variable(at.names(hint), Type(BOOL))
        questions.append(Statement((variable,), expression))
        return variable

    condition = ask(nodes.Threshold(_new_name(at.program, "block_"), product(nest.shape)), "enough")
    for name, needed in ((BLOCK_THREADS, threads), (BLOCK_BYTES, memory)):
        if needed != ZERO:
            fits = ask(nodes.Apply("not", (ask(nodes.Threshold(name, needed), "beyond"),)), "fits")
            condition = ask(nodes.Apply("and", (condition, fits)), "chosen")
    return _either(at, tuple(questions), condition, version)


# --- what was asked further out ---------------------------------------------------------------------------------------


def _asked(at: Place, prefix: str) -> set[Size]:
    """The sizes for which the branches around this place say that there is not enough parallelism.

    What was asked outside a loop is asked again where the points of a round share what was taken out of them
    (`split_invariant`): they have less to do than in the version that was refused.
    """
    asked: set[Size] = set()
    for (body, index), (_, number), inner in zip(at.chain[:-1], at.site.path, at.chain[1:], strict=True):
        expression = body.statements[index].expression
        if isinstance(expression, nodes.Loop) and _shares(at.expression, *inner):
            asked.clear()
        if isinstance(expression, nodes.If) and number == 1:
            thresholds = (one for one, _ in comparisons(body, expression.condition))
            asked.update(one.parallelism for one in thresholds if one.name.startswith(prefix))
    return asked


def _shares(nest: Expression, body: Body, index: int) -> bool:
    """Whether all points of a nest use what parallel statements have made that stand before it in a body."""
    made = (target.name for one in body.statements[:index] if bodies_of(one.expression) for target in one.targets)
    return any(not mentioned(inner).isdisjoint(made) for inner in bodies_of(nest))


def comparisons(body: Body, condition: Atom, wanted: bool = True) -> list[tuple[nodes.Threshold, bool]]:
    """The thresholds that a condition, computed in this body, asks for, each with the answer that it wants.

    The first is the one that belongs to this version alone.
    """
    index = definitions(body).get(condition.name) if isinstance(condition, Variable) else None
    expression = body.statements[index].expression if index is not None else None
    match expression:
        case nodes.Threshold():
            return [(expression, wanted)]
        case nodes.Apply("and", operands) if wanted:
            return [one for operand in operands for one in comparisons(body, operand)]
        case nodes.Apply("not", (operand,)):
            return comparisons(body, operand, not wanted)
    return []


@remembered
def threshold_names(body: Body) -> frozenset[str]:
    """The names of all thresholds in a body."""
    expressions = [one.expression for one in body.statements]
    own = (one.name for one in expressions if isinstance(one, nodes.Threshold))
    return frozenset(own).union(*(threshold_names(inner) for one in expressions for inner in bodies_of(one)))


def _questions(program: Program) -> int:
    """How many versions have a threshold of their own."""
    return sum(name not in (BLOCK_THREADS, BLOCK_BYTES) for name in threshold_names(program.body))


def _new_name(program: Program, prefix: str) -> str:
    taken = threshold_names(program.body)
    return next(name for number in itertools.count() if (name := f"{prefix}{number}") not in taken)


# --- does it fit a block? ---------------------------------------------------------------------------------------------


def inner_parallelism(body: Body, varying: frozenset[str]) -> Size | None:
    """The most points of one construct in a body, as it is flattened for one block; None if that varies.

    What is irregular inside a construct runs sequentially in a thread and does not count.
    """
    sizes = _parallelisms(body, varying)
    return None if sizes is None else functools.reduce(maximum, sorted(sizes, key=str)) if sizes else ZERO


def _parallelisms(body: Body, varying: frozenset[str]) -> frozenset[Size] | None:
    """The points of the constructs in a body; None if one varies."""
    sizes: set[Size] = set()
    for statement in body.statements:
        expression = statement.expression
        width = rows_of(expression)
        inside: frozenset[Size] | None = frozenset()
        if isinstance(expression, nodes.StreamSeq) or (width is not None and not mentioned(width).isdisjoint(varying)):
            return None
        if isinstance(expression, nodes.Map | nodes.Reduce | nodes.Redomap | nodes.Scanomap):
            function = expression.combine if isinstance(expression, nodes.Reduce) else expression.function
            inside = _parallelisms(_regular(function.body, bound(expression)), varying)
            sizes.update(expression.width * one for one in inside or (ONE,))
        elif width is not None:
            sizes.add(width)
        elif isinstance(expression, nodes.Loop | nodes.If):
            found = [_parallelisms(inner, varying) for inner in bodies_of(expression)]
            known = [one for one in found if one is not None]
            inside = frozenset().union(*known) if len(known) == len(found) else None
            sizes |= inside or frozenset()
        if inside is None:
            return None
    return frozenset(sizes)


def _regular(body: Body, varying: frozenset[str]) -> Body:
    return Body(tuple(one for one in body.statements if exploitable(one, varying)), body.results)


def block_bytes(body: Body, varying: frozenset[str], points: Size | None = None) -> Size:
    """The most memory that a block needs for the arrays that its body makes, views and results aside.

    A map with parallelism inside will be distributed: what its body computes then becomes arrays over its `points`.
    """
    count = ONE if points is None else points
    results = {one.name for one in body.results if isinstance(one, Variable)}
    total = ZERO
    for statement in body.statements:
        expression = statement.expression
        kept = [one for one in statement.targets if one.name not in results]
        if isinstance(expression, nodes.Loop | nodes.If):
            if isinstance(expression, nodes.Loop):  # the values of one round, and those of the next while they are made
                kept = 2 * list(expression.parameters)
            for inner in bodies_of(expression):
                total = total + block_bytes(inner, varying, points)
        if isinstance(expression, nodes.Map | nodes.Redomap | nodes.Scanomap):
            function = expression.function
            if holds_parallelism(function.body, bound(expression)):
                total = total + block_bytes(function.body, varying, count * expression.width)
                rows = (
                    () if isinstance(expression, nodes.Map) else expression.neutral
                )  # of the map that a fold is split into
                total = total + _bytes(rows, count * expression.width)
        if (
            isinstance(expression, nodes.Scatter) and points is not None
        ):  # the places, and what is reshaped into the result
            total = total + _bytes((expression.indices, expression.destination), count)
        if not isinstance(expression, _VIEWS) and is_regular(statement.targets, varying):
            total = total + _bytes([one for one in kept if one.type.rank > 0 or points is not None], count)
    return total


def _bytes(values: Sequence[Atom], points: Size) -> Size:
    """The memory of one of these values for every point."""
    return sum((product((points, *one.type.shape)) * one.type.element.bytes for one in values), ZERO)
