"""Arrays that loops of points in lanes go through again and again: memory in which the lanes lie side by side.

    for all lanes i: loop k: ... x[i, j] ...
    =>  t[j, i] = x[i, j];  for all lanes i: loop k: ... t[j, i] ...

A row of each lane is then an access for each lane in every round; of a copy whose elements lie side by side it is one
vector. So a loop's state lies there until the loop ends, even if a row of a result is to hold it, and rows of the
points that rounds go through are turned before the first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tilewright.ir import nodes
from tilewright.ir.nodes import Statement, Update, Variable
from tilewright.ir.sizes import ONE, ZERO, minimum, product, size
from tilewright.ir.traversal import all_statements, mentioned
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import integer, operation
from tilewright.passes.core.used_names import free_variables
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.items.upper_bounds import upper_bound

LONGEST_TURNED = 256
"""Elements of a row: a point's own vectors go along longer ones as fast."""

MOST_TURNED = 2048
"""Elements of all rows that are copied for a point: the lanes have 256 KB of f64."""


def state_of(item: Item, loop: nodes.Loop, number: int, target: Variable) -> ArrayView:
    """Where an array that a loop carries shall lie."""
    place = item.destinations.get(target.name)
    apart = place is not None and target.name not in item.overwrites and _lie_apart(item, place)
    if not apart or not _is_read(loop.body, loop.parameters[number], loop.body.results[number]):
        return item.target(target)
    try:
        memory = item.allocate(target.type, target.name)
    except LoweringError:
        return item.target(target)
    del item.destinations[target.name]  # it is written when the loop has ended
    return memory


def _is_read(body: nodes.Body, array: Variable, result: nodes.Atom) -> bool:
    """Whether rounds do more with an array than to replace a part of it."""
    match [one for one in body.statements if array.name in mentioned(one)]:
        case [Statement((target,), Update(replaced, indices, value))] if (replaced, target) == (array, result):
            others = tuple(one for one in body.statements if one.targets != (target,))
            return not {array.name, target.name}.isdisjoint(mentioned((indices, value, others)))
    return True


@contextmanager
def turned_rows(item: Item, loop: nodes.Loop) -> Iterator[None]:
    """Inside, the rows of points in lanes that each round of a loop goes through lie with the lanes side by side.

    Only inside: nobody else comes by the copies if the loop stands where it may not be reached.
    """
    before: dict[str, ArrayView] = {}
    written = {one.name for one in item.overwrites.values()}
    for one in rows_read_again(loop) if item.lanes is not None else ():
        view = item.arrays.get(one.name)
        if one.name in written or not isinstance(view, ArrayView) or not _lie_apart(item, view):
            continue
        try:
            memory = _memory_of_few(item, one)
        except LoweringError:
            continue
        item.copy(view, memory)
        before[one.name] = view
        item.arrays[one.name] = memory
    yield
    item.arrays |= before


def _memory_of_few(item: Item, rows: Variable) -> ArrayView:
    """Memory for a copy of rows, which is not used where there are more of them than it has room for (`are_few`)."""
    made, what = len(item.scratch), f"{rows.name}_turned"
    bounds = [upper_bound(one, what, item.inner, item.definitions, item.ranges) for one in rows.type.shape]
    memory = item.allocate(rows.type, what)
    item.turned.append((bounds[-1], product(bounds)))
    most = size((item.lanes[0] if item.lanes else 1) * MOST_TURNED)
    item.scratch[made:] = [replace(one, size=minimum(one.size, most)) for one in item.scratch[made:]]
    return memory


def are_few(item: Item) -> kernel.Expression | None:
    """Whether the rows that were copied are short ones, and all of them few; None if none were."""
    if not item.turned:
        return None
    total = sum((elements for _, elements in item.turned), ZERO)
    found = operation("le", lower_size(total, item.emit), integer(MOST_TURNED))
    for length in dict.fromkeys(length for length, _ in item.turned):
        short = operation("le", lower_size(length, item.emit), integer(LONGEST_TURNED))
        found = operation("and", found, short)
    return found


def rows_read_again(loop: nodes.Loop) -> Iterator[Variable]:
    r"""The arrays from outside of a loop all of whose elements each round may read.

    A round that reads single elements at its own number, or where it computes, reads few of them.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> text = '''def f (x: [n]f64, y: [n]f64) =
        ...   let (s: f64) = loop (a: f64) = (0.0f64) for i: i64 < n do
        ...     let (b: f64) = x[i]
        ...     let (c: f64) = a + b
        ...     let (d: f64) = reduce_comm n (\\(p: f64, q: f64) ->
        ...       let (r: f64) = p + q
        ...       in (r)) (0.0f64) y
        ...     let (e: f64) = c + d
        ...     in (e)
        ...   in (s)'''
        >>> [one.name for one in rows_read_again(parse_program(text).body.statements[0].expression)]
        ['y']
    """
    statements = tuple(all_statements(loop.body))
    expressions = [one.expression for one in statements]
    elements = [one for one in expressions if isinstance(one, nodes.Index)]
    around = {target.name for one in statements for target in one.targets} | {one.name for one in loop.parameters}
    around |= {loop.form.index.name} if isinstance(loop.form, nodes.ForLoop) else set()
    apart = {one.array.name for one in elements if not around.isdisjoint(map(str, one.indices))}
    inside = [one.expression for one in loop.body.statements if not isinstance(one.expression, nodes.Index)]
    for one in free_variables(loop.body):
        if one.type.rank and one.name not in apart and any(one.name in mentioned(each) for each in inside):
            yield one


def _lie_apart(item: Item, view: ArrayView) -> bool:
    """Whether each lane has a part of its own of an array, and neighbours do not lie side by side."""
    steps = [view.lmad.offset.coefficient_of(name) for name in item.lane_names & view.lmad.offset.names]
    return bool(steps) and not any(step is not None and step[0] == ONE for step in steps)
