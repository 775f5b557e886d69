"""The packed CPU form of a contraction, written from a `PackedForm`: BLIS's five loops with packing from any strides.

    for each batch element and chunk of both sides (the blocks of the launch; neighbours that are taken together
    are one wider chunk of the vector side):
        for scalar block: for piece of the sum: pack the scalar side
            for vector block: pack the vector side
                for each pair of panels: the register tile (micro.py)

Sums of more than FAN pieces are trees: those of FAN pieces wait in scratch memory, are added to others there, and so
on. A value goes through as many additions as a piece is long, and FAN for each level; in a chain, one for each piece.

A flat index of a side is turned into offsets once per block, in tables; an operand of any strides is read through them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from tilewright.contraction.form import Dimension, Kind, Operand
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import I64, U8, U32
from tilewright.kernel.ir import Address, BlockIndex, Buffer, Comment, Expression, add, integer, multiply, operation
from tilewright.kernel.launch import Launch
from tilewright.passes.packed.ahead import Cut, ask_ahead
from tilewright.passes.packed.blocks import BLOCK, LINE
from tilewright.passes.packed.combine import gives_no_nan
from tilewright.passes.packed.form import PackedForm, SideDimension
from tilewright.passes.packed.micro import PanelPair, write_micro_kernels
from tilewright.passes.packed.operands import panel_types
from tilewright.passes.packed.panels import pack
from tilewright.passes.packed.reading import steps_of, what_zeros_give
from tilewright.passes.packed.runs import runs_of
from tilewright.passes.packed.tables import fill_depth_tables, fill_tables, mark_runs
from tilewright.passes.packed.two_sides import Bases
from tilewright.passes.packed.waiting import Edges, Target
from tilewright.passes.packed.writer import PackedWriter, Side
from tilewright.runtime.flat_plan import ANY_SHAPE, IN_PLACE

Range: TypeAlias = tuple[Expression, Expression]
_Piece: TypeAlias = tuple[Expression, Expression, Expression | None]
"""Where a piece of the sum begins, how long it is, and whether its panels give no nan."""


def write_packed_kernel(form: PackedForm) -> Launch:
    """The kernel of a form and everything that its launch needs."""
    w = PackedWriter(form)
    contraction = form.contraction
    vector_source = w.global_buffer(form.vector_operand, "vector_side", True)
    scalar_source = w.global_buffer(form.scalar_operand, "scalar_side", True)
    out = w.global_buffer(contraction.out, "out", False)
    further = [w.global_buffer(one.operand, "further", True) for one in contraction.epilogue_operands]
    w.emit.emit(Comment(f"packed panels, register tile of {form.vectors} x {form.lanes} by {form.rows}"))
    steps = w.parameter("vector_block", form.vector_block), w.parameter("scalar_block", form.scalar_block)
    depth_step, pitch = w.parameter("depth_block", form.depth), w.parameter("pitch", form.pitch)
    vector = _make_side(w, "v", form.vector_operand, vector_source, form.vector_dimensions, len(further), pitch)
    scalar = _make_side(w, "s", form.scalar_operand, scalar_source, form.scalar_dimensions, len(further), pitch)
    depth_sizes = [w.parameter(f"k{i}_size", constant(d.size)) for i, d in enumerate(contraction.of_kind(Kind.K))]
    vector_total, scalar_total = form.total(form.vector_dimensions), form.total(form.scalar_dimensions)
    blocks = _blocks(form)
    contracted = w.parameter("contracted", form.contracted_total)
    loop_end = w.parameter("contracted_loop_end", max(1, form.contracted_total))
    loops = _Loops(w, vector, scalar, out, further, depth_sizes, (*steps, depth_step), contracted, loop_end)
    _each_part(w, vector_total, scalar_total, blocks, loops.part)
    total_blocks = math.prod(blocks) if vector_total and scalar_total else 0
    return w.launch(ANY_SHAPE if form.any_shape else IN_PLACE if further else "contraction", total_blocks)


@dataclass(frozen=True)
class _Loops:
    """The loops over blocks of either side and pieces of the sum.

    Attributes:
        w, vector, scalar, out, further: the kernel's parts.
        depth_sizes: the extents that are contracted.
        steps: elements of a vector block, of a scalar block, of a piece.
        contracted, loop_end: elements of the sum, and where the loop over pieces ends: an empty sum has a piece, too.
    """

    w: PackedWriter
    vector: Side
    scalar: Side
    out: Buffer
    further: Sequence[Buffer]
    depth_sizes: Sequence[Expression]
    steps: tuple[Expression, Expression, Expression]
    contracted: Expression
    loop_end: Expression

    def part(self, bases: Bases, vectors: Range, scalars: Range) -> None:
        """The results of ranges of either side."""
        w = self.w

        if w.form.tiles_in_place:  # tiles of rows that lie across cache lines would take twice as long to read
            start = multiply(bases.scalar, integer(w.form.scalar_operand.element.bytes))
            within = operation("and", add(start, Address(self.scalar.source)), integer(LINE - 1))
            w.tiles_lie_there = w.emit.let(operation("eq", within, integer(0)), "in_place")

        def scalar_block(start: Expression) -> None:
            count = w.minimum(operation("sub", scalars[1], start), self.steps[1])
            fill_tables(w, self.scalar, start, count, bases.scalar)
            if w.form.in_tiles and not w.form.scalar_rows:
                mark_runs(w, self.scalar, count, is_written=False)
            blocks, pieces = partial(self._vector_blocks, bases, vectors), partial(self._pieces, count)
            if w.form.levels == 1:  # the sums of one pair of blocks wait until all pieces are in
                blocks(lambda block: pieces(lambda piece: self._pair(bases, vectors, block, count, piece)))
            else:
                pieces(lambda piece: blocks(lambda block: self._pair(bases, vectors, block, count, piece)))

        w.loop("scalar_at", *scalars, scalar_block, self.steps[1])

    def _pieces(self, scalar_count: Expression, write: Callable[[_Piece], None]) -> None:
        """The loop over pieces of the sum, of which the scalar side is packed."""
        w, step = self.w, self.steps[2]

        def piece(start: Expression) -> None:
            depth = w.minimum(operation("sub", self.contracted, start), step)
            fill_depth_tables(w, self.vector, self.scalar, self.depth_sizes, start, depth)
            w.unless(w.tiles_lie_there, lambda: pack(w, self.scalar, scalar_count, depth))
            write((start, depth, gives_no_nan(w, self.scalar, scalar_count, depth)))

        w.loop("depth_at", integer(0), self.loop_end, piece, step)

    def _vector_blocks(self, bases: Bases, vectors: Range, write: Callable[[Range], None]) -> None:
        """The loop over blocks of the vector side: where each begins, and how many elements it has."""
        w, step = self.w, self.steps[0]

        def block(start: Expression) -> None:
            count = w.minimum(operation("sub", vectors[1], start), step)
            count = fill_tables(w, self.vector, start, count, bases.vector)
            mark_runs(w, self.vector, count)
            write((start, count))

        w.loop("vector_at", *vectors, block, step)

    def _pair(self, bases: Bases, vectors: Range, block: Range, scalar_count: Expression, piece: _Piece) -> None:
        """A block of either side over a piece of the sum."""
        w, vector = self.w, self.vector
        (vector_at, vector_count), (depth_start, depth, no_nan) = block, piece
        pack(w, vector, vector_count, depth)
        if no_nan is not None and (vector_too := gives_no_nan(w, vector, vector_count, depth)) is not None:
            no_nan = w.emit.let(operation("and", no_nan, vector_too), "no_nan")
        begun = what_zeros_give(w, vector, vector_count, depth)
        edges = _edges(w, Cut(depth_start, self.steps[2], self.loop_end))
        counts = vector_count, scalar_count, steps_of(w, depth)
        present = Cut(vector_at, self.steps[0], vectors[1]), Cut(depth_start, self.steps[2], self.contracted)
        sides, cuts = (vector, self.scalar), (vectors[0], present[0])
        ahead = ask_ahead(w, sides, self.depth_sizes, cuts, present[1], bases.vector, counts)
        in_row = w.form.levels >= 2
        column = w.emit.let(operation("sub", vector_at, vectors[0]), "column") if in_row else integer(0)
        target = Target(self.out, self.further, bases)
        pair = PanelPair(w, vector, self.scalar, target, counts, (vector_at, column), edges, no_nan, ahead, begun)
        write_micro_kernels(pair)


def _edges(w: PackedWriter, piece: Cut) -> Edges:
    """Where the levels of partial sums begin and end: a value of level l is of fan^l pieces."""
    count = max(1, w.form.levels)
    last: Expression = operation("ge", piece.following, piece.stop)
    edges: list[tuple[Expression, Expression]] = []
    node: Expression = integer(0)
    length = w.form.depth
    for level in range(count):
        at, ends, value = piece.at, last, node
        if level < count - 1:
            length *= w.form.fan
            node = w.parameter("node", length)
            at = w.emit.let(operation("mod", at, node), "within")
            whole = operation("eq", operation("mod", piece.following, node), integer(0))
            ends = w.emit.let(operation("or", last, whole), "ends")
        begins = operation("lt", at, value) if level else operation("eq", at, integer(0))
        edges.append((begins, ends))
    return edges


# --- coordinates ------------------------------------------------------------------------------------------------------


def _blocks(form: PackedForm) -> tuple[int, int, int]:
    batch = math.prod(constant(one.size) for one in form.contraction.of_kind(Kind.C))
    vector = -(-form.total(form.vector_dimensions) // form.vector_chunk)
    scalar = -(-form.total(form.scalar_dimensions) // form.scalar_chunk)
    return batch, scalar, vector


def _each_part(
    w: PackedWriter,
    vector_total: int,
    scalar_total: int,
    blocks: tuple[int, int, int],
    write: Callable[[Bases, Range, Range], None],
) -> None:
    """The batch element and the ranges of both sides of each part of what this call computes: a block, or neighbouring
    blocks with the same part of the scalar side, which is packed once for all of them.
    """
    form, emit = w.form, w.emit
    totals = w.parameter("vector_total", vector_total), w.parameter("scalar_total", scalar_total)
    counts = w.parameter("vector_chunks", blocks[2]), w.parameter("scalar_chunks", blocks[1])
    chunks = w.parameter("vector_chunk", form.vector_chunk), w.parameter("scalar_chunk", form.scalar_chunk)

    def chunk(side: int, first: Expression, after: Expression) -> Range:
        stop = operation("min", multiply(after, chunks[side]), totals[side])
        return emit.let(multiply(first, chunks[side]), "start"), emit.let(stop, "stop")

    def row(number: Expression, vectors: Range) -> None:
        if blocks[1] == 1:
            return write(_bases(w, number), vectors, (integer(0), totals[1]))
        at = emit.let(operation("mod", number, counts[1]), "scalar_number")
        scalars = chunk(1, at, add(at, integer(1)))
        return write(_bases(w, emit.let(operation("floordiv", number, counts[1]), "rest")), vectors, scalars)

    if blocks[2] == 1:
        return row(BlockIndex(), (integer(0), totals[0]))
    if not form.joins_blocks:
        at = emit.let(operation("mod", BlockIndex(), counts[0]), "vector_number")
        vectors = chunk(0, at, add(at, integer(1)))
        return row(emit.let(operation("floordiv", BlockIndex(), counts[0]), "row"), vectors)
    after = emit.let(BlockIndex(after=True), "after")

    def joined(number: Expression) -> None:
        begun = emit.let(multiply(number, counts[0]), "begun")
        first = emit.let(operation("max", operation("sub", BlockIndex(), begun), integer(0)), "first")
        row(number, chunk(0, first, operation("min", operation("sub", after, begun), counts[0])))

    stop = operation("floordiv", operation("sub", add(after, counts[0]), integer(1)), counts[0])
    return w.loop("row", operation("floordiv", BlockIndex(), counts[0]), stop, joined)


def _bases(w: PackedWriter, rest: Expression) -> Bases:
    form, contraction = w.form, w.form.contraction
    batch = contraction.of_kind(Kind.C)
    coordinates: list[Expression] = []
    for position, one in reversed(list(enumerate(batch))):
        size = w.parameter(f"c{position}_size", constant(one.size))
        coordinates.append(w.emit.let(operation("mod", rest, size) if position else rest, f"at_c{position}"))
        rest = operation("floordiv", rest, size)
    coordinates.reverse()
    positions = {one.name: place for place, one in enumerate(contraction.dimensions)}

    def base(hint: str, operand: Operand, stride: Callable[[Dimension], int]) -> Expression:
        total = w.parameter(f"{hint}_offset", constant(operand.offset))
        for position, (one, coordinate) in enumerate(zip(batch, coordinates, strict=True)):
            total = add(total, multiply(coordinate, w.parameter(f"c{position}_{hint}_stride", stride(one))))
        return w.emit.let(total, f"{hint}_base")

    def left(one: Dimension) -> int:
        return constant(one.stride_left)

    def right(one: Dimension) -> int:
        return constant(one.stride_right)

    further = tuple(
        base("further", one.operand, lambda d, one=one: constant(one.strides[positions[d.name]]))  # type: ignore[misc]
        for one in contraction.epilogue_operands
    )
    return Bases(
        base("vector", form.vector_operand, left if form.vector_left else right),
        base("scalar", form.scalar_operand, right if form.vector_left else left),
        base("out", contraction.out, lambda one: constant(one.stride_out)),
        further,
    )


def _make_side(
    w: PackedWriter,
    name: str,
    operand: Operand,
    source: Buffer,
    dimensions: tuple[SideDimension, ...],
    further_count: int,
    pitch: Expression,
) -> Side:
    form = w.form
    is_vector = name == "v"
    is_left = is_vector == form.vector_left
    width, panel_bytes = (form.vector_tile if is_vector else form.rows), form.panel_bytes[0 if is_vector else 1]
    held = form.contraction.map.parameters[0 if is_left else 1]
    parts = panel_types(held.type.element, form.lanes) if form.dots is None else (U32,)
    in_place = form.scalar_in_place and not is_vector
    table = BLOCK + width
    vectors = table // form.lanes + 1
    panel = form.panel_capacity(width, panel_bytes)
    return Side(
        name,
        operand,
        source,
        dimensions,
        width,
        pitch,
        tuple(w.parameter(f"{name}{i}_size", one.size) for i, one in enumerate(dimensions)),
        tuple(w.parameter(f"{name}{i}_stride", one.stride) for i, one in enumerate(dimensions)),
        tuple(
            w.parameter(f"k{i}_{name}_stride", constant(one.stride(is_left)))
            for i, one in enumerate(form.contraction.of_kind(Kind.K))
        ),
        w.workspace(f"{name}_offsets", I64, table),
        w.workspace(f"{name}_out_offsets", I64, table),
        tuple(w.workspace(f"{name}_further_offsets", I64, table) for _ in range(further_count)),
        w.workspace(f"{name}_depth_offsets", I64, form.depth_capacity),
        (source,) if in_place else tuple(w.workspace(f"{name}_panels", part, panel) for part in parts),
        w.workspace(f"{name}_runs", U8, vectors),
        w.workspace(f"{name}_heads", U8, vectors),
        w.workspace(f"{name}_out_runs", U8, vectors),
        w.workspace(f"{name}_depth_runs", U8, form.depth_capacity // form.lanes + 1),
        runs_of(form, is_vector),
    )
