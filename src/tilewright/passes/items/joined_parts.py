"""Parts of a concatenation in a work item: where they lie, and maps that are written there at once.

y = map f x; r = concat (y, z)   =>   r[:n] = map f x; r[n:] = z
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Variable
from tilewright.ir.sizes import Size, maximum, minimum, size
from tilewright.ir.traversal import bound_variables, mentioned
from tilewright.ir.views import ArrayView
from tilewright.passes.items.item_memory import Item
from tilewright.rewrite.names import definitions, users


def parts_of(memory: ArrayView, axis: int, shapes: Sequence[Sequence[Size]]) -> list[ArrayView]:
    """Where the parts of these shapes lie in what they are joined to.

    A part whose size is below 0 makes the whole shorter than the other parts, which must not be written past it.
    """
    start, found = size(0), []
    for shape in shapes:
        extent = minimum(maximum(shape[axis], 0), memory.lmad.shape[axis] - start)
        dimensions = [
            nodes.SliceDimension(start if d == axis else size(0), extent if d == axis else one)
            for d, one in enumerate(shape)
        ]
        found.append(ArrayView(memory.buffer, memory.element, memory.lmad.slice(dimensions)))
        start = start + extent
    return found


def place_parts(item: Item, body: Body, position: int) -> None:
    """Let maps of a body that only a concatenation reads, all other parts of which have known sizes, be written where
    it has them.
    """
    (target,), expression = body.statements[position].targets, body.statements[position].expression
    assert isinstance(expression, nodes.Concat)
    own = [number for number, one in enumerate(expression.arrays) if _is_own(body, one, position)]
    others = [one for number, one in enumerate(expression.arrays) if number not in own]
    sizes = [one.type.shape[expression.axis].constant for one in others]
    made = definitions(body).keys()
    known = all(made.isdisjoint(one.names) for array in (target, *expression.arrays) for one in array.type.shape)
    if len(own) != 1 or any(one is None or one < 0 for one in sizes) or not known:
        return
    if item.lanes is not None or not item.vector_lanes or target.name in item.overwrites:
        return
    item.destinations[target.name] = memory = item.target(target)
    read = [item.arrays.get(name) for name in mentioned(body) - {one.name for one in bound_variables(body)}]
    if any(isinstance(one, ArrayView) and one.buffer == memory.buffer for one in read):
        return  # what is joined later may be read from there
    parts = parts_of(memory, expression.axis, [one.type.shape for one in expression.arrays])
    item.destinations[expression.arrays[own[0]].name] = parts[own[0]]


def _is_own(body: Body, array: Variable, position: int) -> bool:
    """Whether a map of the body gives an array that is read once, by the statement at this position."""
    index = definitions(body).get(array.name)
    if index is None or index >= position or users(body).get(array.name) != (position,):
        return False
    concat = body.statements[position].expression
    assert isinstance(concat, nodes.Concat)
    return isinstance(body.statements[index].expression, nodes.Map) and concat.arrays.count(array) == 1
