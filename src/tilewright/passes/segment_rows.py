"""A segmented map as nested maps again, for the host to run row by row where no kernel can."""

from __future__ import annotations

from tilewright.ir.nodes import Body, Iota, Lambda, Map, SegMap, Statement, Type, Variable
from tilewright.ir.scalars import I64


def as_nested_maps(statement: Statement, segmap: SegMap) -> tuple[Statement, ...]:
    """segmap (i < n, j < m) do e  =>  is = iota n; js = iota m; map (\\i -> map (\\j -> e) js) is"""
    indices, places = [], []
    for index, extent in segmap.space.dimensions:
        array = Variable(f"{index.name}.places", Type(I64, (extent,)))
        places.append(Statement((array,), Iota(extent, I64)))
        indices.append((index, array, extent))
    body, depth = segmap.body, len(indices)
    for level in range(depth - 1, -1, -1):
        index, array, extent = indices[level]
        inner = Map(extent, Lambda((index,), body), (array,))
        if level == 0:
            return (*places, Statement(statement.targets, inner))
        targets = tuple(
            Variable(f"{one.name}.row{level}", Type(one.type.element, one.type.shape[level:]))
            for one in statement.targets
        )
        body = Body((Statement(targets, inner),), targets)
    raise ValueError("a segmented map has one dimension at least")
