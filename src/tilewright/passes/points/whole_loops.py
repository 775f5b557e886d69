"""Choices and loops as one sequential kernel: those without parallel code, and loops whose rounds are so small that a
launch costs more than its work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum

from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Statement, Variable
from tilewright.ir.sizes import ZERO, Size, maximum, product, size
from tilewright.ir.traversal import bound_variables, is_plain, rows_of, sub_bodies
from tilewright.machine.model import Machine
from tilewright.passes.core.overwriting import overwriting, taken_over
from tilewright.passes.core.own_elements import with_own_elements
from tilewright.passes.items.all_replaced import all_replaced
from tilewright.passes.items.changed_ranges import changed_range
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_columns import has_simple_rows
from tilewright.passes.items.rounds_left import RoundLeft
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.items.upper_bounds import defined_size, upper_bound
from tilewright.passes.lanes.masked_lanes import WRITTEN_OUT
from tilewright.passes.points.lower_general import Places, Points, write_whole
from tilewright.runtime.host import KernelStep, LoopStep

SCALAR = 5
"""Functions in vectors that take as long as one that is not."""
FRESH = 3
"""Elements that are written where no cache holds the place yet take as long as so many that one does."""
FINE = 4
"""Averages are told in parts of a sixteenth of a nanosecond: the cheapest functions in vectors are one each."""
_LONG = frozenset({"pow", "floordiv", "mod", "atan2"})


def with_whole(
    step: LoopStep,
    statement: Statement,
    counted: Collection[str],
    machine: Machine,
    lower: Callable[[Statement, Points, str], KernelStep],
) -> tuple[LoopStep, str]:
    """The loop with the choice of running as one kernel, and what becomes of it as text.

    Args:
        step: the loop with its rounds on the host.
        statement: the loop.
        counted: arrays that do not lie in memory.
        machine: has vectors, in whose lanes the points of maps inside may go on.
        lower: makes a kernel of points; the last argument is a suffix for its name.
    """
    changed = with_own_elements(statement, counted)
    work = work_of_round(changed)
    if work is None:
        return step, ""
    points = control_points(changed, counted, machine)
    try:
        whole = lower(changed, points, "_whole")
    except LoweringError:
        return step, ""
    shared = _Works(_Measure.AVERAGE, counted).of_round(changed), _Works(_Measure.LAUNCHED).of_round(statement)
    told = f"; small rounds ({work}) as one sequential kernel"
    return dataclasses.replace(step, whole=whole, work=work, shared=shared), told


def control_points(statement: Statement, counted: Collection[str], machine: Machine) -> Points:
    """A choice or loop as a single point, whose arrays begin as copies of those that they are over and over again.

    Those in `counted` do not lie in memory.
    """
    over, inside = taken_over(statement, counted)
    begun = {place: over[target.name] for place, target in enumerate(statement.targets) if target.name in over}
    unseen = all_replaced(statement.expression)

    def write_all(item: Item, at: Sequence[Size], places: Places) -> None:
        item.arrays |= {array.name: places[place] for place, array in begun.items()}
        item.overwrites |= inside
        item.round = RoundLeft(item.emit)
        write_whole(item, statement.expression, statement.targets, places)

    copied = tuple((place, array) for place, array in begun.items() if place not in unseen)
    return Points((), write_all, copied, machine=machine)


def work_of_round(statement: Statement) -> Size | None:
    """How long one core takes for what the host would launch in a round of a loop, in sixteenths of a nanosecond; None
    if that is not known before.

    A function of a point in a vector is one of them, and so is an element that is written; a scalar one is `SCALAR`.
    Arrays that are written over others (`core/overwriting.py`) are not written as a whole. Rounds of a loop within a
    round follow one another, so that of these one counts. Sizes that change from round to round are taken at their
    largest.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> text = '''def f (x: [n]f64, t: i64) =
        ...   let (y: [n]f64) = loop (a: [n]f64) = (x) for i: i64 < t do
        ...     let (b: [n]f64) = map n (\\\\(e: f64) ->
        ...       let (s: f64) = e + 1.0f64
        ...       in (s)) a
        ...     in (b)
        ...   in (y)'''
        >>> print(work_of_round(parse_program(text).body.statements[0]))
        3*n
    """
    try:
        return _Works(_Measure.LARGEST).of_round(statement)
    except LoweringError:
        return None


class _Measure(Enum):
    """The largest round of a kernel; six times its average round; six times what launches do, on all cores together.

    The latter two are `FINE` times as much, in which one of the cheapest functions in vectors is one.
    """

    LARGEST = "largest"
    AVERAGE = "average"
    LAUNCHED = "launched"


class _Works:
    """How much work there is inside of a loop; LoweringError where what is known of its sizes does not bound one."""

    def __init__(self, measure: _Measure, counted: Collection[str] = ()) -> None:
        self.measure, self.counted = measure, set(counted)
        self.fine = 1 if measure is _Measure.LARGEST else FINE
        self.ranges: dict[str, Size] = {}
        self.definitions: dict[str, Size] = {}
        self.inside: set[str] = set()

    def _largest(self, extent: Size) -> Size:
        return upper_bound(extent, "work of a round", self.inside, self.definitions, self.ranges)

    def of_round(self, statement: Statement) -> Size:
        """The work of what is launched between two rounds of a loop, or of a loop in it."""
        loop = statement.expression
        assert isinstance(loop, nodes.Loop)
        self.inside |= {variable.name for variable in bound_variables(loop)}
        if isinstance(loop.form, nodes.ForLoop):
            self.ranges[loop.form.index.name] = loop.form.bound
        over = {} if self.measure is _Measure.LAUNCHED else overwriting(statement)
        rounds, total = ZERO, ZERO
        for body in sub_bodies(loop):
            for one in body.statements:
                if isinstance(one.expression, nodes.Loop):
                    inner = self.of_round(one)
                    rounds = maximum(rounds, inner) if rounds != ZERO else inner
                    total = total + self._written(one.targets, over.keys())
                else:
                    total = total + self._share(one, over) * self.of_body(Body((one,), ()), over.keys(), SCALAR)
        return maximum(rounds, total) if rounds != ZERO else total

    def _share(self, statement: Statement, over: Mapping[str, Variable]) -> int:
        """How much of a statement's work counts. Points that an index of the loop bounds are half of all on average,
        and a third where those in each of them are bounded, too.
        """
        if isinstance(statement.expression, nodes.Iota):
            self.counted.add(statement.targets[0].name)
        if self.measure is _Measure.LARGEST:
            return 1
        return 6 // (1 + min(_bounded_levels(statement, over, self.counted), 2))

    def _written(self, targets: Sequence[Variable], kept: AbstractSet[str]) -> Size:
        """The work of writing arrays."""
        shapes = (one.type.shape for one in targets if one.type.rank and one.name not in kept)
        each = self.fine * (FRESH if self.measure is _Measure.LAUNCHED else 1)
        return sum((each * product(map(self._largest, shape)) for shape in shapes), ZERO)

    def of_body(self, body: Body, in_place: AbstractSet[str], each: int) -> Size:
        """The work of a body, of whose scalar functions each one takes so long."""
        total = ZERO
        for statement in body.statements:
            expression = statement.expression
            defined = defined_size(expression)
            if defined is not None:
                self.definitions[statement.targets[0].name] = defined
            if isinstance(expression, nodes.Loop) and isinstance(expression.form, nodes.ForLoop):
                self.ranges[expression.form.index.name] = expression.form.bound
            inside = 1 if _runs_in_vectors(expression) else SCALAR
            inner = size(inside)
            for one in sub_bodies(expression):
                inner = inner + self.of_body(one, in_place | _inside(statement), inside)
            times = self._largest(_times(expression))
            functions = _functions(expression)
            total = total + times * inner + (functions if functions * each == 1 else self.fine * each * functions)
            if isinstance(expression, nodes.Sweep):  # its second function, and the prefixes that this is given
                total = total + times * self.fine * SCALAR * (1 + len(expression.neutral))
            kept = in_place if not isinstance(expression, nodes.Map) else frozenset()
            total = total + self._written(statement.targets, kept)
            if isinstance(expression, nodes.Update) and statement.targets[0].name in kept:
                total = total + self.fine * product(map(self._largest, expression.value.type.shape))
        return total


def _bounded_levels(points: Statement, over: Mapping[str, Variable], counted: Collection[str]) -> int:
    """Of a map, written over an array, and the map of its rows: how many have points that change nothing."""
    array, expression = over.get(points.targets[0].name), points.expression
    if not isinstance(expression, nodes.Map) or len(points.targets) > 1 or array not in expression.arrays:
        return 0
    inside = [one for one in expression.function.body.statements if one.targets == expression.function.body.results]
    here = bool(changed_range(expression, array, 0, counted))
    return here + sum(_bounded_levels(one, over, counted) for one in inside)


def _inside(statement: Statement) -> AbstractSet[str]:
    """What is written over something in the rounds of a loop within a round."""
    return overwriting(statement).keys() if isinstance(statement.expression, nodes.Loop) else frozenset()


def _runs_in_vectors(expression: nodes.Expression) -> bool:
    """Whether what an expression does again and again is done in vectors (inner_maps.py, register_folds.py)."""
    match expression:
        case nodes.Map(function=function):
            return is_plain(function.body)
        case nodes.Reduce() | nodes.Redomap():
            return has_simple_rows(expression)
    return False


def _functions(expression: nodes.Expression) -> int:
    """How many of the cheapest functions take as long as a statement of scalars."""
    match expression:
        case nodes.Apply(operator) if operator in WRITTEN_OUT or operator in _LONG:
            return 24
        case nodes.Apply("div" | "sqrt") | nodes.Index():
            return 4
        case nodes.Apply() | nodes.Cast() | nodes.If():
            return 1
    return 0


def _times(expression: nodes.Expression) -> Size:
    """How often an expression runs its bodies."""
    match expression:
        case nodes.SegMap(space=space) | nodes.SegRed(space=space) | nodes.SegScan(space=space):
            return product(space.shape)
        case nodes.Loop(form=nodes.ForLoop(bound=bound)):
            return bound
        case nodes.Loop() | nodes.StreamSeq() | nodes.SegHist() | nodes.OffsetFolds():
            raise LoweringError("nobody knows how often it runs its bodies")
    return rows_of(expression) or ZERO
