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

from tilewright.ir import nodes
from tilewright.ir.nodes import Variable
from tilewright.ir.sizes import ONE
from tilewright.ir.traversal import all_statements, mentioned_names
from tilewright.ir.views import ArrayView
from tilewright.passes.core.used_names import free_variables
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.scalar_values import LoweringError


def state_of(item: Item, target: Variable, is_read: bool) -> ArrayView:
    """Where an array that a loop carries shall lie; `is_read`: its rounds see what it was before."""
    place = item.destinations.get(target.name)
    if place is None or not is_read or target.name in item.overwrites or not _lie_apart(item, place):
        return item.target(target)
    try:
        memory = item.allocate(target.type, target.name)
    except LoweringError:
        return item.target(target)
    del item.destinations[target.name]  # it is written when the loop has ended
    return memory


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
            memory = item.allocate(one.type, f"{one.name}_turned")
        except LoweringError:
            continue
        item.copy(view, memory)
        before[one.name] = view
        item.arrays[one.name] = memory
    yield
    item.arrays |= before


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
        if one.type.rank and one.name not in apart and any(one.name in mentioned_names(each) for each in inside):
            yield one


def _lie_apart(item: Item, view: ArrayView) -> bool:
    """Whether each lane has a part of its own of an array, and neighbours do not lie side by side."""
    steps = [view.lmad.offset.coefficient_of(name) for name in item.lane_names & view.lmad.offset.names]
    return bool(steps) and not any(step is not None and step[0] == ONE for step in steps)
