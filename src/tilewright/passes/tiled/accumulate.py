"""The loops over the contracted dimensions, and what each thread adds up in its registers [S0 4.2.2]."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TypeAlias

from tilewright.contraction.normalise import constant
from tilewright.kernel.ir import Barrier, Expression, Lane, Name, add, load, multiply, operation
from tilewright.passes.items.lower_scalar import lower_lambda
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.items.scalar_values import constant as constant_value
from tilewright.passes.tiled.copy import Copy
from tilewright.passes.tiled.form import StagedOperand
from tilewright.passes.tiled.tiling import in_left, in_right
from tilewright.passes.tiled.writer import TileWriter

# --- the contracted dimensions ----------------------------------------------------------------------------------------


Registers: TypeAlias = tuple[int, ...]


def contracted_loops(
    w: TileWriter,
    sizes: list[Expression],
    copies: list[Copy],
    accumulate: Callable[[list[Expression], list[Expression | None]], None],
) -> None:
    """Loops over the pieces of the contracted dimensions.

    Where nothing can be padded in and one dimension is contracted, the last, partial piece is split off the loop, so
    that full pieces run unguarded [S0 4.3.1.1]; with several dimensions the inner loops get a run-time bound.
    """
    form, emit = w.form, w.emit
    count = len(form.parallel)
    needs_limit = [form.guarded[count + p] and form.padding is None for p in range(len(form.contracted))]

    def piece_body(piece: list[Expression], limits: list[Expression | None]) -> None:
        for copy in copies:
            copy(piece)
        if copies:
            emit.emit(Barrier())
        accumulate(piece, limits)
        if copies:
            emit.emit(Barrier())

    if len(form.contracted) == 1 and needs_limit[0]:
        q = form.tiling.sequential[0]
        size = constant(form.contracted[0].size)
        full = w.parameter("full_pieces_end", size // q * q)
        if size // q:
            _loop(w, full, q, lambda start: piece_body([start], [None]), f"k_{form.contracted[0].name}")
        remaining = emit.let(operation("sub", sizes[count], full), "remaining")
        piece_body([full], [remaining])
        return

    def nest(position: int, piece: list[Expression], limits: list[Expression | None]) -> None:
        if position == len(form.contracted):
            piece_body(piece, limits)
            return
        q, size = form.tiling.sequential[position], sizes[count + position]

        def inside(start: Expression) -> None:
            limit: Expression | None = None
            if needs_limit[position]:
                limit = emit.let(operation("min", w.integer(q), operation("sub", size, start)), "limit")
            nest(position + 1, [*piece, start], [*limits, limit])

        _loop(w, size, q, inside, f"k_{form.contracted[position].name}")

    nest(0, [], [])


def _loop(w: TileWriter, stop: Expression, step: int, write: Callable[[Expression], None], hint: str) -> None:
    w.emit.loop(hint, w.integer(0), stop, write, step)


# --- accumulation -----------------------------------------------------------------------------------------------------


def initialise(w: TileWriter) -> dict[Registers, tuple[Name, ...]]:
    """One variable (a pair for complex values) per element that this thread computes, at the neutral element."""
    neutral = constant_value(w.form.contraction.neutral.value, w.form.contraction.neutral.scalar)
    return {
        registers: tuple(w.emit.declare(part, "sum") for part in neutral)
        for registers in itertools.product(*(range(r) for r in w.form.tiling.register))
    }


Loaded: TypeAlias = dict[int, Value]
"""What was read of a staged operand in one step of the sum, by the constant part of its address."""

LoadElement: TypeAlias = Callable[[Registers, list[Expression], list[Expression], Loaded], Value]
"""The element for registers and q, in the piece of the sum that begins at given indices."""


def prepare_loads(w: TileWriter, staged: StagedOperand, threads: list[Expression]) -> LoadElement:
    """How this thread reads the tile: its own base address, then constants for registers and q; neighbours at once."""
    layout = staged.layout
    tiles = [b for b in w.arrays if b.name.startswith(f"{staged.name}_tile")]
    base = w.emit.let(
        w.sum(
            [
                multiply(threads[axis.position], w.integer(stride))
                for axis, stride in zip(layout.axes, layout.thread_strides, strict=True)
                if not axis.contracted
            ]
        ),
        f"{staged.name}_read",
    )

    group = math.prod(axis.group for axis in layout.axes)

    def read(registers: Registers, q: list[Expression], piece: list[Expression], loaded: Loaded) -> Value:
        terms: list[Expression] = [base]
        fixed = lane = 0
        for axis, stride in zip(layout.axes, layout.register_strides, strict=True):
            if axis.contracted:
                terms.append(multiply(q[axis.position], w.integer(stride)))
            else:
                fixed += registers[axis.position] // axis.group * stride
                lane += registers[axis.position] % axis.group
        if fixed not in loaded:
            address = add(w.sum(terms), w.integer(fixed))
            loaded[fixed] = tuple(
                w.emit.let(load(tile, address, group, aligned=group > 1), staged.name) for tile in tiles
            )
        if group == 1:
            return loaded[fixed]
        return tuple(w.emit.let(Lane(one, lane, staged.shared_element), staged.name) for one in loaded[fixed])

    return read


def accumulate(
    w: TileWriter,
    loads: list[LoadElement],
    accumulators: dict[Registers, tuple[Name, ...]],
    piece: list[Expression],
    limits: list[Expression | None],
) -> None:
    """for q: every register combines in the product of its left and right elements, each loaded once."""
    form, emit = w.form, w.emit
    contraction = form.contraction

    def step(q: list[Expression]) -> None:
        held: tuple[dict[Registers, Value], dict[Registers, Value]] = ({}, {})
        loaded: tuple[Loaded, Loaded] = ({}, {})
        for registers, accumulator in accumulators.items():
            operands: list[Value] = []
            for side, (has, read) in enumerate(((in_left, loads[0]), (in_right, loads[1]))):
                key = tuple(r if has(d) else 0 for d, r in zip(form.parallel, registers, strict=True))
                if key not in held[side]:
                    held[side][key] = read(key, q, piece, loaded[side])
                operands.append(held[side][key])
            mapped = lower_lambda(contraction.map, operands, emit)[0]
            combined = lower_lambda(contraction.combine, [accumulator, mapped], emit)[0]
            for variable, part in zip(accumulator, combined, strict=True):
                emit.assign(variable, part)

    def nest(position: int, q: list[Expression]) -> None:
        if position == len(form.contracted):
            step(q)
            return
        extent, limit = form.tiling.sequential[position], limits[position]
        if extent == 1 and limit is None:
            nest(position + 1, [*q, w.integer(0)])
            return
        stop = w.integer(extent) if limit is None else limit
        emit.loop("q", w.integer(0), stop, lambda index: nest(position + 1, [*q, index]), unroll=limit is None)

    nest(0, [])
