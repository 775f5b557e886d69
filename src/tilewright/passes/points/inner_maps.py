"""Maps inside one work item. On a CPU their points go on together in vectors, as those of a kernel do.

- Straight-line code is a loop that is split at its edges, or whose indices are checked together (point_loops.py).
- Points that run several scans each, or that fold columns (neighbouring points lie nearer to each other in memory than
  the rows of a fold), go on together in the lanes of vectors (lanes/lane_loops.py).
- Other folds are written one after another, in vectors of their own rows; functions of what they give that are better
  in vectors of points follow in a map of their own:

      for each i: y[i] = f (fold xs[i])   =>   for each i: t[i] = fold xs[i];  for each i: y[i] = f t[i]
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Lambda, Reduction, Type, Variable
from tilewright.ir.scalars import BOOL
from tilewright.ir.sizes import ONE, Size
from tilewright.ir.traversal import is_plain, mentioned
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Constant, Expression, integer, operation
from tilewright.passes.items.attempts import ItemState
from tilewright.passes.items.changed_ranges import ChangedRange, changed_range
from tilewright.passes.items.item_memory import IotaArray, Item
from tilewright.passes.items.lower_columns import has_read_rows, has_simple_rows, is_nearer
from tilewright.passes.items.lower_folds import arrays_of, function_rows
from tilewright.passes.items.lower_items import AnyValue, bind, lower_expression, row_of
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.lanes.lane_loops import in_lanes, wants_lanes
from tilewright.passes.lanes.masked_lanes import WRITTEN_OUT
from tilewright.passes.points.point_loops import emit_points

FEWEST_POINTS = 6
"""Points from which on vectors of them are faster than one after another, if their folds are as long."""
FEWEST_IN_ORDER = 3
"""The same of folds whose rows are taken in their order."""
_ALWAYS, _NEVER = Constant(True, BOOL), Constant(False, BOOL)


@lower_expression.register
def _(expression: nodes.Map, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    changed = _changed(item, expression, targets)
    if not changed:
        return _points(expression, item, targets, changed)
    kept, checks = ItemState(item), len(item.checks)
    with item.emit.scope() as statements:
        places = _points(expression, item, targets, changed)
    if len(item.checks) > checks:  # an index that is out of range is told, whether its point changes anything or not
        kept.restore(item)
        return _points(expression, item, targets, ChangedRange())
    for one in statements:
        item.emit.emit(one)
    return places


def _points(
    expression: nodes.Map, item: Item, targets: tuple[Variable, ...], changed: ChangedRange
) -> Sequence[AnyValue]:
    width, body = expression.width, expression.function.body
    together = item.vector_lanes and item.lanes is None and item.speculation is None
    # Lanes compute some points twice, which those that are written over what they read must not be.
    again = not any(target.name in item.overwrites for target in targets)
    if together and again and _read_neighbours(item, expression):
        if item.machine is not None:
            return _by_width(item, expression, targets)
        item.wanted_inside = True
    columns = _lie_nearer(item, expression) if together and again and _is_of_folds(body) else _NEVER
    if columns == _ALWAYS and item.machine is not None and _keeps_an_order(body):
        return _by_width(item, expression, targets, plain=True)
    if together and columns == _NEVER and _functions_of_folds(item, body):
        return _in_two(item, expression, targets)
    places = [item.target(target) for target in targets]
    rows = function_rows(item, expression.function, arrays_of(item, expression.arrays))

    def write_row(i: Size) -> None:
        rows(i, [row_of(place, i) for place in places])

    def one_by_one() -> None:
        item.loop_from(bounds[0], bounds[1], width, "i", write_row)

    def lanes() -> None:
        in_lanes(item, bounds, width, write_row, one_by_one)

    bounds = _bounds(item, width, changed)
    if together and is_plain(body):
        item.wanted_inside |= again and _has_functions(body)
        group = emit_points(item, bounds, width, write_row, alone=False, machine=item.machine, short=True)
        item.scalar_loops |= group > 1  # which LLVM would leave to us in a kernel with vectors
    elif again and item.vector_lanes and item.lanes is None and (wants_lanes(body) or columns == _ALWAYS):
        lanes()
    elif columns != _NEVER:
        item.emit.when(columns, lanes, one_by_one)
    else:
        one_by_one()
    return places


def _changed(item: Item, expression: nodes.Map, targets: tuple[Variable, ...]) -> ChangedRange:
    """Which points of a map change the array over which its only result is written."""
    array = item.overwrites.get(targets[0].name) if len(targets) == 1 else None
    if array is None or array not in expression.arrays:
        return ChangedRange()
    counted = [one.name for one in expression.arrays if isinstance(item.arrays.get(one.name), IotaArray)]
    return changed_range(expression, array, 0, counted)


def _bounds(item: Item, width: Size, changed: ChangedRange) -> tuple[Expression, Expression]:
    """The first point that may change and the one after the last."""
    emit = item.emit
    stop = emit.let(lower_size(width, emit), "stop")
    start: Expression = integer(0)
    for one in changed.lowest:
        start = emit.let(operation("max", start, lower_size(one, emit)), "start")
    for one in changed.highest:
        highest = operation("min", operation("sub", stop, integer(1)), lower_size(one, emit))
        stop = emit.let(operation("add", highest, integer(1)), "stop")
    return start, emit.let(operation("max", start, stop), "stop") if changed else stop


def _is_of_folds(body: Body) -> bool:
    """Whether a point is folds of numbers by straight-line code, and straight-line code around them."""
    folds = [one.expression for one in body.statements if isinstance(one.expression, Reduction)]
    others = tuple(one for one in body.statements if not isinstance(one.expression, Reduction | nodes.Iota))
    return bool(folds) and is_plain(Body(others, ())) and all(map(has_simple_rows, folds))


def _lie_nearer(item: Item, expression: nodes.Map) -> Expression:
    """Whether the points of a map of folds are nearer to each other in memory than the rows of a point are."""
    views = dict(zip(expression.function.parameters, arrays_of(item, expression.arrays), strict=True))
    folds = (one.expression for one in expression.function.body.statements if isinstance(one.expression, Reduction))
    found: Expression = _ALWAYS
    for array in (views.get(one) for fold in folds for one in fold.arrays):
        if not isinstance(array, ArrayView):
            continue  # all points fold the same row
        point, row = (abs(one.constant) if one.constant is not None else None for one in array.lmad.strides[:2])
        if row == 1 and point != 0:
            return _NEVER
        if point not in (0, 1):
            nearer = item.emit.let(is_nearer(item, array), "nearer")
            found = nearer if found == _ALWAYS else operation("and", found, nearer)
    return found


def _functions_of_folds(item: Item, body: Body) -> bool:
    """Whether a point is folds and then functions that are better in vectors of points."""
    return item.machine is not None and _is_of_folds(body) and _has_functions(body)


def _has_functions(body: Body) -> bool:
    """Whether straight-line code has functions with vector forms of their own."""
    operators = {one.expression.operator for one in body.statements if isinstance(one.expression, nodes.Apply)}
    return not operators.isdisjoint(WRITTEN_OUT)


def _halves(item: Item, expression: nodes.Map) -> tuple[nodes.Map, tuple[Variable, ...], nodes.Map]:
    """A map of folds, what it gives, and a map of what is computed of that."""
    parameters, body = expression.function.parameters, expression.function.body
    last = max(n for n, one in enumerate(body.statements) if isinstance(one.expression, Reduction)) + 1
    found = [target for one in body.statements[:last] for target in one.targets if not target.type.rank]
    whole = tuple(Variable(item.emit.name(f"{one}_all"), Type(one.type.element, (expression.width,))) for one in found)
    first, after = Body(body.statements[:last], tuple(found)), Body(body.statements[last:], body.results)
    pairs = tuple(zip(parameters, expression.arrays, strict=True))
    folded = _map_of(expression.width, first, pairs)
    return folded, whole, _map_of(expression.width, after, (*pairs, *zip(found, whole, strict=True)))


def _map_of(width: Size, body: Body, pairs: Sequence[tuple[Variable, Variable]]) -> nodes.Map:
    """The map of a body over those arrays of which it needs the rows."""
    needed = mentioned(body)
    used = [(parameter, array) for parameter, array in pairs if parameter.name in needed] or pairs[:1]
    return nodes.Map(width, Lambda(tuple(one for one, _ in used), body), tuple(array for _, array in used))


def _in_two(item: Item, expression: nodes.Map, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    """A map of folds, then one of what is computed of them."""
    folded, whole, then = _halves(item, expression)
    for one, value in zip(whole, lower_expression(folded, item, whole), strict=True):
        bind(item, one, value)
    return lower_expression(then, item, targets)


def _read_neighbours(item: Item, expression: nodes.Map) -> bool:
    """Whether points are folds of elements that they read by their own number, where those of neighbours lie together:

    map (\\j -> fold (\\k -> f x[k, j])) iota
    """
    pairs = zip(expression.function.parameters, expression.arrays, strict=True)
    numbers = {one.name for one, array in pairs if isinstance(item.arrays.get(array.name), IotaArray)}
    statements = expression.function.body.statements
    folds = [one.expression for one in statements if isinstance(one.expression, Reduction)]
    first = next((n for n, one in enumerate(statements) if isinstance(one.expression, Reduction)), 0)
    others = [one for one in statements if not isinstance(one.expression, Reduction | nodes.Index)]
    scalars = all(target.type.rank == 0 for one in statements for target in one.targets)
    if first or len(folds) != 1 or not (scalars and is_plain(Body(tuple(others), ()))):
        return False
    (fold,) = folds
    if not (isinstance(fold, nodes.Redomap) and has_read_rows(fold)):
        return False
    reads = (one.expression for one in fold.function.body.statements)
    own = [one for one in reads if isinstance(one, nodes.Index) and not numbers.isdisjoint(map(str, one.indices))]

    def is_beside(read: nodes.Index) -> bool:
        array = item.arrays.get(read.array.name)
        near = isinstance(array, ArrayView) and len(read.indices) > 1 and array.lmad.strides[-1] == ONE
        return near and numbers.isdisjoint(map(str, read.indices[:-1]))

    return bool(own) and all(map(is_beside, own))


def _keeps_an_order(body: Body) -> bool:
    """Whether a point is one fold whose rows are taken in their order, as is the first of the best, and reads nothing
    by itself.
    """
    folds = [one.expression for one in body.statements if isinstance(one.expression, Reduction)]
    reads = any(isinstance(one.expression, nodes.Index) for one in body.statements)
    return len(folds) == 1 and not folds[0].commutative and not reads


def _by_width(
    item: Item, expression: nodes.Map, targets: tuple[Variable, ...], plain: bool = False
) -> Sequence[AnyValue]:
    """Folds of what lies beside that of their neighbours: in vectors of points, if there are enough of them. What they
    read once by themselves is read in a map of its own. `plain`: the folds would else go in vectors of their rows.
    """
    places = [item.target(target) for target in targets]
    width, function = expression.width, expression.function
    stop = item.emit.let(lower_size(width, item.emit), "stop")

    def points(of: nodes.Map, into: Sequence[ArrayView], in_vectors: bool) -> None:
        rows = function_rows(item, of.function, arrays_of(item, of.arrays))

        def write_row(i: Size) -> None:
            rows(i, [row_of(place, i) for place in into])

        if in_vectors:
            around, item.vector_lanes = item.vector_lanes, item.vector_lanes and not plain
            emit_points(item, (integer(0), stop), width, write_row, alone=False, machine=item.machine, short=True)
            item.vector_lanes = around
        else:
            item.loop(width, "i", write_row)

    def vectors() -> None:
        statements = function.body.statements
        alone = plain and isinstance(statements[-1].expression, Reduction)
        if alone or not (plain or any(isinstance(one.expression, nodes.Index) for one in statements)):
            points(expression, places, True)
            return
        folded, whole, then = _halves(item, expression)
        made = [item.allocate(one.type, one.name) for one in whole]
        points(folded, made, True)
        for one, value in zip(whole, made, strict=True):
            bind(item, one, value)
        points(then, places, True)

    commutes = all(
        one.expression.commutative for one in function.body.statements if isinstance(one.expression, Reduction)
    )
    enough = operation("ge", stop, integer(FEWEST_POINTS if commutes else FEWEST_IN_ORDER))
    item.emit.when(item.emit.let(enough, "enough"), vectors, lambda: points(expression, places, False))
    return places
