"""Segmented maps as nested maps, for what is only known of those."""

from __future__ import annotations

from tilewright.ir.nodes import Body, Index, Iota, Lambda, Map, SegMap, Statement, Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.traversal import mentioned


def as_nested_maps(statement: Statement, segmap: SegMap) -> tuple[Statement, ...]:
    """segmap (i < n) do x = xs[i]; e  =>  map (\\x -> e) xs; with an iota for an index that e needs"""
    dimensions = segmap.space.dimensions
    levels: list[list[tuple[Variable, Variable]]] = [[] for _ in dimensions]
    places = {index.name: level for level, (index, _) in enumerate(dimensions)}
    kept: list[Statement] = []
    for one in segmap.body.statements:
        read = one.expression
        at = [places.get(str(place), -1) for place in read.indices] if isinstance(read, Index) else []
        extents = [dimensions[level][1] for level in at if level >= 0]
        if not isinstance(read, Index) or -1 in at or at != sorted(set(at)) or (
            tuple(extents) != read.array.type.shape[: len(at)]
        ):  # fmt: skip
            kept.append(one)
            continue
        array = read.array
        for number, level in enumerate(at):
            last = number == len(at) - 1
            row = one.targets[0] if last else Variable(f"{one.targets[0]}.row{number}", array.type.row)
            levels[level].append((row, array))
            array = row
    body, before = Body(tuple(kept), segmap.body.results), []
    for level in range(len(dimensions) - 1, -1, -1):
        index, extent = dimensions[level]
        if index.name in mentioned(body) or not levels[level]:
            counted = Variable(f"{index.name}.places", Type(I64, (extent,)))
            before.append(Statement((counted,), Iota(extent, I64)))
            levels[level].append((index, counted))
        rows, arrays = zip(*levels[level], strict=True)
        nest = Map(extent, Lambda(tuple(rows), body), tuple(arrays))
        targets = statement.targets
        if level:
            targets = tuple(
                Variable(f"{one.name}.row{level}", Type(one.type.element, one.type.shape[level:]))
                for one in statement.targets
            )
        body = Body((Statement(targets, nest),), targets)
    return (*before, *body.statements)
