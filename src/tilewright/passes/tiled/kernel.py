"""The block- and register-tiled kernel of a contraction [S0 4.2], written from a `TileForm`.

block coordinates; registers = neutral
for each piece Q of the contracted dimensions:
    collective copies of both tiles into shared memory; barrier
    for q in Q: registers = combine(registers, map(left[q, r_left], right[q, r_right])); barrier
out = epilogue(registers)

An operand that is held in registers is not copied: each thread reads its elements where it uses them.
"""

from __future__ import annotations

import math
from functools import partial

from tilewright.contraction.form import Operand
from tilewright.contraction.normalise import constant
from tilewright.ir.scalars import ScalarType
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Name, Store, VectorType, multiply, operation
from tilewright.kernel.launch import Launch
from tilewright.passes.items.lower_scalar import lower_lambda
from tilewright.passes.items.scalar_values import Value, load_element, store_element
from tilewright.passes.tiled.accumulate import Registers, accumulate, contracted_loops, initialise, prepare_loads
from tilewright.passes.tiled.copy import prepare_copy
from tilewright.passes.tiled.form import StagedOperand, TileForm
from tilewright.passes.tiled.held import prepare_held
from tilewright.passes.tiled.tiling import blocks_along
from tilewright.passes.tiled.writer import TileWriter, all_of, element_of_thread


def write_kernel(form: TileForm, name: str = "contraction") -> Launch:
    """The kernel of a form and everything that its launch needs."""
    w = TileWriter(form)
    emit = w.emit
    left = w.global_buffer(form.contraction.left, "left", True)
    right = w.global_buffer(form.contraction.right, "right", True)
    out = w.global_buffer(form.contraction.out, "out", False)
    emit.emit(kernel.Comment(_describe(form)))
    sizes = [w.parameter(f"n_{d.name}", constant(d.size)) for d in (*form.parallel, *form.contracted)]
    starts = _block_starts(w)
    threads = _thread_coordinates(w)
    operands = ((form.left, left), (form.right, right))
    copies = [prepare_copy(w, one, buffer, starts, sizes) for one, buffer in operands if isinstance(one, StagedOperand)]
    loads = [
        prepare_loads(w, one, threads)
        if isinstance(one, StagedOperand)
        else prepare_held(w, one, buffer, starts, threads, sizes)
        for one, buffer in operands
    ]
    accumulators = initialise(w)
    contracted_loops(w, sizes, copies, lambda piece, limits: accumulate(w, loads, accumulators, piece, limits))
    _write_back(w, out, accumulators, starts, threads, sizes)
    blocks = math.prod(blocks_along(d, block) for d, block in zip(form.parallel, form.tiling.block, strict=True))
    return w.launch(name, blocks, form.tiling.threads)


def _describe(form: TileForm) -> str:
    parts = [
        f"{d.name}:{d.kind.value} T={t} R={r}"
        for d, t, r in zip(form.parallel, form.tiling.thread, form.tiling.register, strict=True)
    ]
    parts += [f"{d.name}:K Q={q}" for d, q in zip(form.contracted, form.tiling.sequential, strict=True)]
    held = "".join(f"  {one.name} in registers" for one in (form.left, form.right) if one not in form.staged)
    return f"{'  '.join(parts)}{held}  (partial tiles: {form.partial.value})"


def _block_starts(w: TileWriter) -> list[Expression]:
    """First element of this block along each parallel dimension; the last dimension varies fastest over blocks."""
    rest: Expression = kernel.BlockIndex(w.index)
    starts: list[Expression] = []
    pairs = list(zip(w.form.parallel, w.form.tiling.block, strict=True))
    for position, (dimension, block) in reversed(list(enumerate(pairs))):
        count = blocks_along(dimension, block)
        if count == 1:
            starts.append(w.integer(0))
            continue
        is_outermost = all(blocks_along(d, b) == 1 for d, b in pairs[:position])
        blocks = w.parameter(f"blocks_{dimension.name}", count)
        rest = w.emit.let(rest, "rest")
        coordinate = rest if is_outermost else operation("mod", rest, blocks)
        starts.append(w.emit.let(multiply(coordinate, w.integer(block)), f"start_{dimension.name}"))
        rest = operation("floordiv", rest, blocks)
    return starts[::-1]


def _thread_coordinates(w: TileWriter) -> list[Expression]:
    rest: Expression = kernel.ThreadIndex(w.index)
    coordinates: list[Expression] = []
    shape = w.form.tiling.thread
    for position, extent in reversed(list(enumerate(shape))):
        is_outermost = math.prod(shape[:position]) == 1
        if extent == 1:
            coordinates.append(w.integer(0))
            continue
        coordinate = rest if is_outermost else w.remainder(rest, extent)
        coordinates.append(w.emit.let(coordinate, f"t_{w.form.parallel[position].name}"))
        rest = w.divide(rest, extent)
    return coordinates[::-1]


# --- results ----------------------------------------------------------------------------------------------------------


def _write_back(
    w: TileWriter,
    out: Buffer,
    accumulators: dict[Registers, tuple[Name, ...]],
    starts: list[Expression],
    threads: list[Expression],
    sizes: list[Expression],
) -> None:
    """Each thread writes its elements; those outside the output are left out."""
    form, emit, contraction = w.form, w.emit, w.form.contraction
    targets = [_Target(w, contraction.out, out, "out", [constant(d.stride_out) for d in form.parallel])]
    positions = {d.name: place for place, d in enumerate(contraction.dimensions)}
    for number, one in enumerate(contraction.epilogue_operands):
        buffer = w.global_buffer(one.operand, f"further_{number}", True)
        strides = [constant(one.strides[positions[d.name]]) for d in form.parallel]
        targets.append(_Target(w, one.operand, buffer, f"further_{number}", strides))
    indices: dict[tuple[int, int], Expression] = {}
    inside: dict[tuple[int, int], Expression] = {}
    for position, r in enumerate(form.tiling.register):
        name = form.parallel[position].name
        for number in range(r):
            index = w.sum([starts[position], *element_of_thread(form, position, threads[position], number)])
            indices[position, number] = emit.let(index, f"at_{name}")
            if form.guarded[position]:
                inside[position, number] = emit.let(
                    operation("lt", indices[position, number], sizes[position]), f"in_{name}"
                )

    def result(registers: Registers) -> Value:
        if contraction.epilogue is None:
            return accumulators[registers]
        further = [one.read([indices[place] for place in enumerate(registers)]) for one in targets[1:]]
        return lower_lambda(contraction.epilogue, [accumulators[registers], *further], emit)[0]

    def write(registers: Registers, together: int) -> None:
        at = targets[0].flat([indices[place] for place in enumerate(registers)])
        if together == 1:
            store_element(out, contraction.out.element, at, result(registers), emit)
            return
        lanes = [result(_moved(registers, form.stored, lane))[0] for lane in range(together)]
        emit.emit(Store(out, at, vector_of(lanes), aligned=True))

    together = 1 if form.stored is None else form.groups[form.stored]
    for registers in accumulators:
        if form.stored is not None and registers[form.stored] % together:
            continue
        conditions = [inside[place] for place in enumerate(registers) if place in inside]
        if conditions:
            emit.when(all_of(conditions), partial(write, registers, together))
        else:
            write(registers, together)


def _moved(registers: Registers, position: int | None, steps: int) -> Registers:
    return tuple(one + steps if place == position else one for place, one in enumerate(registers))


def vector_of(lanes: list[Expression]) -> Expression:
    """A vector of two or four scalars."""
    scalar = lanes[0].type
    assert isinstance(scalar, ScalarType)
    wide = VectorType(scalar, len(lanes))
    pairs: list[Expression] = [
        kernel.Shuffle(
            kernel.Broadcast(one, wide),
            kernel.Broadcast(other, wide),
            tuple(range(0, 2 * len(lanes), len(lanes))) * (len(lanes) // 2),
            wide,
        )
        for one, other in zip(lanes[::2], lanes[1::2], strict=True)
    ]
    return pairs[0] if len(pairs) == 1 else kernel.Shuffle(pairs[0], pairs[1], (0, 1, 4, 5), wide)


class _Target:
    """An array addressed by output element."""

    def __init__(self, w: TileWriter, operand: Operand, buffer: Buffer, hint: str, strides: list[int]) -> None:
        self.w, self.operand, self.buffer, self.hint = w, operand, buffer, hint
        self.offset = w.parameter(f"{hint}_offset", constant(operand.offset))
        self.strides = [
            w.parameter(f"{hint}_stride_{d.name}", stride) for d, stride in zip(w.form.parallel, strides, strict=True)
        ]

    def flat(self, at: list[Expression]) -> Expression:
        terms = [multiply(i, s) for i, s in zip(at, self.strides, strict=True)]
        return self.w.emit.let(self.w.sum([self.offset, *terms]), f"{self.hint}_at")

    def read(self, at: list[Expression]) -> Value:
        return load_element(self.buffer, self.operand.element, self.flat(at), self.w.emit, self.hint)
