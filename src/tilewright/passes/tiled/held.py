"""Operands that each thread reads from main memory into its registers, where no two threads share an element [S3].

One element of the operand then serves the thread's whole register tile, along the dimensions with which the operand
does not change. Threads past the end of a dimension read its last element and write nothing; past the end of the sum
the last element is read, and what pads the sum is taken for it.
"""

from __future__ import annotations

import itertools

from tilewright.contraction.normalise import constant
from tilewright.kernel.ir import Buffer, Expression, Operation, add, multiply, operation
from tilewright.passes.items.scalar_values import Value, load_element
from tilewright.passes.items.scalar_values import constant as constant_value
from tilewright.passes.tiled.accumulate import Loaded, LoadElement, Registers
from tilewright.passes.tiled.form import HeldOperand
from tilewright.passes.tiled.tiling import in_left, in_right
from tilewright.passes.tiled.writer import TileWriter, all_of, element_of_thread


def prepare_held(
    w: TileWriter,
    held: HeldOperand,
    source: Buffer,
    starts: list[Expression],
    threads: list[Expression],
    sizes: list[Expression],
) -> LoadElement:
    """Emit this thread's addresses, which are the same for all pieces; the result emits the load of an element."""
    emit, form = w.emit, w.form
    count = len(form.parallel)
    strides = [
        w.parameter(f"{held.name}_stride_{d.name}", stride)
        for d, stride in zip((*form.parallel, *form.contracted), held.strides, strict=True)
    ]
    addresses = _addresses(w, held, strides, starts, threads, sizes)
    padding = form.padding[0 if held.name == "left" else 1] if form.padding else None
    scalar = held.operand.element

    def read(registers: Registers, q: list[Expression], piece: list[Expression], loaded: Loaded) -> Value:
        indices = [add(start, one) for start, one in zip(piece, q, strict=True)]
        conditions: list[Expression] = []
        for p, index in enumerate(indices):
            if form.guarded[count + p] and padding is not None:  # without padding the sum itself ends in time
                conditions.append(operation("lt", index, sizes[count + p]))
                indices[p] = operation("min", index, operation("sub", sizes[count + p], w.integer(1)))
        along = [multiply(index, strides[count + p]) for p, index in enumerate(indices)]
        value = load_element(source, scalar, w.sum([addresses[registers], *along]), emit, held.name)
        if not conditions or padding is None:
            return value
        inside = emit.let(all_of(conditions), "inside")
        pads = constant_value(padding.value, scalar)
        return tuple(
            emit.let(Operation("select", (inside, part, pad), part.type), held.name)
            for part, pad in zip(value, pads, strict=True)
        )

    return read


def _addresses(
    w: TileWriter,
    held: HeldOperand,
    strides: list[Expression],
    starts: list[Expression],
    threads: list[Expression],
    sizes: list[Expression],
) -> dict[Registers, Expression]:
    """For each element of the thread's register tile: where its operand's element begins in memory."""
    emit, form = w.emit, w.form
    has = in_left if held.name == "left" else in_right
    terms: list[list[Expression]] = []
    for position, dimension in enumerate(form.parallel):
        if not has(dimension):
            terms.append([w.integer(0)])
            continue
        terms.append([])
        for number in range(form.tiling.register[position]):
            index = w.sum([starts[position], *element_of_thread(form, position, threads[position], number)])
            if form.guarded[position]:
                last = operation("sub", sizes[position], w.integer(1))
                index = emit.let(operation("min", index, last), f"{held.name}_{dimension.name}")
            terms[-1].append(multiply(index, strides[position]))
    offset = w.parameter(f"{held.name}_offset", constant(held.operand.offset))
    found: dict[Registers, Expression] = {}
    for key in itertools.product(*(range(len(one)) for one in terms)):
        parts = [along[number] for along, number in zip(terms, key, strict=True)]
        found[key] = emit.let(w.sum([offset, *parts]), f"{held.name}_from")
    return found
