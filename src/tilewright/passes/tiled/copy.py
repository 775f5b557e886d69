"""Collective copies of a tile from global to shared memory, in the order of the operand's own layout [S0 4.3]."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from tilewright.contraction.normalise import constant
from tilewright.ir.nodes import Literal
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Load, Store, VectorType, add, multiply, operation
from tilewright.passes.items.scalar_values import Value, component_types, load_element
from tilewright.passes.items.scalar_values import constant as constant_value
from tilewright.passes.tiled.form import StagedOperand, axis_place
from tilewright.passes.tiled.tiling import UNROLLED_COPY_STEPS
from tilewright.passes.tiled.writer import TileWriter, all_of

Copy: TypeAlias = Callable[[list[Expression]], None]


class _Staging:
    """What is the same for all pieces of an operand: its strides, where a block's elements begin, and its tiles."""

    def __init__(
        self, w: TileWriter, staged: StagedOperand, source: Buffer, starts: list[Expression], sizes: list[Expression]
    ) -> None:
        self.w, self.staged, self.source, self.starts, self.sizes = w, staged, source, starts, sizes
        parts = component_types(staged.operand.element)
        space, count = kernel.Space.SHARED, staged.layout.size
        self.tiles = [Buffer(w.emit.name(f"{staged.name}_tile"), part, space, count) for part in parts]
        w.arrays.extend(self.tiles)
        self.strides = [
            w.parameter(f"{staged.name}_stride_{d.name}", stride)
            for d, stride in zip((*w.form.parallel, *w.form.contracted), staged.strides, strict=True)
        ]
        base = [w.parameter(f"{staged.name}_offset", constant(staged.operand.offset))]
        base += [
            multiply(starts[axis.position], self.strides[axis.position])
            for axis in staged.layout.axes
            if not axis.contracted
        ]
        self.base = w.emit.let(w.sum(base), f"{staged.name}_base")
        self.padding = w.form.padding[0 if staged.name == "left" else 1] if w.form.padding else None

    def step(self, element: Expression) -> Copy:
        """Decompose one copy step; the result emits its load and store for the piece that starts at given positions."""
        w, staged, axes = self.w, self.staged, self.staged.layout.axes
        parallel = len(w.form.parallel)
        indices = _axis_indices(w, staged, element)
        moved = [
            multiply(index, self.strides[axis_place(axis, parallel)]) for axis, index in zip(axes, indices, strict=True)
        ]
        offset = w.emit.let(w.sum([self.base, *moved]), f"{staged.name}_from")
        address = w.emit.let(_shared_address(w, staged, indices), f"{staged.name}_to")
        inside = _inside(w, staged, indices, self.starts, self.sizes)

        def copy(piece: list[Expression]) -> None:
            at = w.sum([offset] + [multiply(k, self.strides[parallel + p]) for p, k in enumerate(piece)])
            conditions = list(inside)
            for axis, index in zip(axes, indices, strict=True):
                place = axis_place(axis, parallel)
                if axis.contracted and w.form.guarded[place]:
                    conditions.append(operation("lt", add(piece[axis.position], index), self.sizes[place]))
            _copy_element(w, staged, self.source, self.tiles, at, address, conditions, self.padding)

        return copy


def prepare_copy(
    w: TileWriter, staged: StagedOperand, source: Buffer, starts: list[Expression], sizes: list[Expression]
) -> Copy:
    """Emit what is the same for all pieces; the result emits the copy of the piece that starts at given positions."""
    staging = _Staging(w, staged, source, starts, sizes)
    thread = kernel.ThreadIndex(w.index)
    steps, threads = staged.copy_steps, w.form.tiling.threads
    rounds = -(-steps // threads)
    if rounds > UNROLLED_COPY_STEPS:
        return lambda piece: w.emit.loop(
            "element", thread, w.integer(steps), lambda element: staging.step(element)(piece), threads
        )
    prepared = []
    for number in range(rounds):
        element = w.emit.let(add(thread, w.integer(number * threads)), "element")
        prepared.append((element, staging.step(element), (number + 1) * threads > steps))

    def copy_all(piece: list[Expression]) -> None:
        for element, copy, last in prepared:
            if last:
                w.emit.when(operation("lt", element, w.integer(steps)), partial(copy, piece))
            else:
                copy(piece)

    return copy_all


def _axis_indices(w: TileWriter, staged: StagedOperand, element: Expression) -> list[Expression]:
    """Indices along the axes of copy step `element`, the unit-stride axis counted in vectors."""
    axes, order = staged.layout.axes, staged.layout.copy_order
    indices: list[Expression] = [w.integer(0)] * len(axes)
    rest = element
    for place, position in enumerate(reversed(order)):
        width = staged.vector if place == 0 else 1
        extent = axes[position].extent // width
        remaining = math.prod(axes[p].extent for p in order[: len(order) - 1 - place])
        index = w.remainder(rest, extent) if remaining > 1 else rest
        rest = w.divide(rest, extent)
        indices[position] = w.emit.let(multiply(index, w.integer(width)), f"i_{axes[position].dimension.name}")
    return indices


def _shared_address(w: TileWriter, staged: StagedOperand, indices: list[Expression]) -> Expression:
    terms: list[Expression] = []
    layout = staged.layout
    for position, (axis, index) in enumerate(zip(layout.axes, indices, strict=True)):
        if layout.is_linear(position):
            terms.append(index)
            continue
        if axis.group > 1:
            terms.append(w.remainder(index, axis.group))
        whole = w.divide(index, axis.group)
        registers = axis.register // axis.group
        if axis.thread > 1:
            thread_part = w.remainder(whole, axis.thread) if registers > 1 else whole
            terms.append(multiply(thread_part, w.integer(layout.thread_strides[position])))
        if registers > 1:
            terms.append(multiply(w.divide(whole, axis.thread), w.integer(layout.register_strides[position])))
    return w.sum(terms)


def _inside(
    w: TileWriter, staged: StagedOperand, indices: list[Expression], starts: list[Expression], sizes: list[Expression]
) -> list[Expression]:
    """The guards of parallel dimensions, bound to names."""
    conditions: list[Expression] = []
    for axis, index in zip(staged.layout.axes, indices, strict=True):
        if not axis.contracted and w.form.guarded[axis.position]:
            test = operation("lt", add(starts[axis.position], index), sizes[axis.position])
            conditions.append(w.emit.let(test, "inside"))
    return conditions


def _copy_element(
    w: TileWriter,
    staged: StagedOperand,
    source: Buffer,
    tiles: list[Buffer],
    at: Expression,
    address: Expression,
    conditions: list[Expression],
    padding: Literal | None,
) -> None:
    emit, scalar = w.emit, staged.operand.element
    pad = constant_value(padding.value if padding is not None else 0, scalar)
    if staged.vector > 1:
        pad = (kernel.Broadcast(pad[0], VectorType(staged.shared_element, staged.vector)),)
    if conditions:
        held = tuple(emit.declare(one, staged.name) for one in pad)

        def guarded() -> None:
            loaded = _load(w, staged, source, at)
            for variable, part in zip(held, loaded, strict=True):
                emit.assign(variable, part)

        emit.when(all_of(conditions), guarded)
        value: Value = held
    else:
        value = tuple(emit.let(part, staged.name) for part in _load(w, staged, source, at))
    for tile, part in zip(tiles, value, strict=True):
        _store_shared(w, staged, tile, address, part)


def _load(w: TileWriter, staged: StagedOperand, source: Buffer, at: Expression) -> Value:
    if staged.vector > 1:
        return (Load(source, at, VectorType(staged.shared_element, staged.vector), aligned=True),)
    return load_element(source, staged.operand.element, at, w.emit, staged.name)


def _store_shared(w: TileWriter, staged: StagedOperand, tile: Buffer, address: Expression, part: Expression) -> None:
    if staged.vector == 1:
        w.emit.emit(Store(tile, address, part))
        return
    layout = staged.layout
    if layout.stores_vectors(staged.vector):
        w.emit.emit(Store(tile, address, part, aligned=True))
        return
    unit = layout.copy_order[-1]
    for lane in range(staged.vector):
        place = w.integer(layout.address(unit, lane))
        w.emit.emit(Store(tile, add(address, place), kernel.Lane(part, lane, staged.shared_element)))
