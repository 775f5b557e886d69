"""Lanes of vectors: numbered, seen through a window, picked by masks and packed, counted, asked if there is any."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.scalars import BOOL, F32, F64, I32, I64
from tilewright.kernel.ir import AnyLane, CountLanes, Expression, LaneNumbers, PackedLanes, VectorType, Window
from tilewright.kernel.llvm_emitter import Emitter, lanes_of, scalar_spelling, spelling, suffix, vector_of

MOST_BYTES = 64
"""LLVM 22 packs longer vectors in two parts, and stores the second one as if its place were aligned."""


def emit_lanes(
    emitter: Emitter, node: Window | PackedLanes | CountLanes | LaneNumbers | AnyLane, emit: Callable[[Expression], str]
) -> str:
    """Print one of these; `emit` prints its operands.

    Packing is one instruction where the processor has it (AVX-512, SVE), else a store of each lane to the stack.

    Raises:
        TypeError: if the mask is not a bool for each lane, or bools or too long vectors are packed.
    """
    if isinstance(node, Window):
        return _window(emitter, node, [emit(one) for one in (node.first, node.second, node.begin)])
    if isinstance(node, LaneNumbers):
        element = scalar_spelling(node.type.element)
        return f"<{', '.join(f'{element} {lane}' for lane in range(node.type.lanes))}>"
    if isinstance(node, AnyLane):
        bools = spelling(node.operand.type)
        return emitter.call(f"llvm.vector.reduce.or.{suffix(bools)}", "i1", (bools, emit(node.operand)))
    lanes = lanes_of(node.mask.type)
    if lanes < 2 or node.mask.type != VectorType(BOOL, lanes):
        raise TypeError(f"lanes are picked by a bool for each of them, not by a value of type {node.mask.type}")
    flags = vector_of("i1", lanes)
    if isinstance(node, PackedLanes):
        if node.type != node.operand.type or lanes_of(node.type) != lanes or node.type.element == BOOL:
            raise TypeError(f"a mask of {lanes} lanes cannot pick lanes of {node.operand.type} as {node.type}")
        if lanes * max(4, node.type.element.bytes) > MOST_BYTES:
            raise TypeError(
                f"lanes of at most {MOST_BYTES} bytes (each counts as 4 at least) are packed, not {node.type}"
            )
        return _packed(emitter, emit(node.operand), emit(node.mask), spelling(node.type), node.type)
    bits = emitter.emit(f"bitcast {flags} {emit(node.mask)} to i{lanes}")
    count = emitter.call(f"llvm.ctpop.i{lanes}", f"i{lanes}", (f"i{lanes}", bits))
    return count if lanes == 64 else emitter.emit(f"zext i{lanes} {count} to i64")


def _packed(emitter: Emitter, operand: str, mask: str, text: str, type_: VectorType) -> str:
    """LLVM 22 cannot pack vectors of 8 or 16 bits of all lengths, so these are packed as vectors of 32 bits."""
    narrow = type_.element.bytes < 4
    wide = vector_of("i32", type_.lanes) if narrow else text
    value = emitter.emit(f"zext {text} {operand} to {wide}") if narrow else operand
    name = f"llvm.experimental.vector.compress.{suffix(wide)}"
    packed = emitter.call(name, wide, (wide, value), (vector_of("i1", type_.lanes), mask), (wide, "poison"))
    return emitter.emit(f"trunc {wide} {packed} to {text}") if narrow else packed


_PERMUTATIONS = {1: ("qi", "avx512vbmi"), 2: ("hi", "avx512bw"), 4: ("d", "avx512f"), 8: ("q", "avx512f")}
"""Of two vectors of 64 bytes: the end of the instruction's name in LLVM, and the feature that has it."""
_OF_FLOATS = {F32: ("ps", I32), F64: ("pd", I64)}
"""The same of floating-point numbers: the end of the name, and the type of the lanes' numbers."""


def _window(emitter: Emitter, node: Window, registers: list[str]) -> str:
    """One instruction where the processor has it; else both vectors go through the stack."""
    type_, element = node.type, node.type.element
    is_number = element.is_integer or element in _OF_FLOATS
    if node.first.type != type_ or node.second.type != type_ or node.begin.type != I64 or not is_number:
        kinds = f"{node.first.type} and {node.second.type}, begun at a value of type {node.begin.type}"
        raise TypeError(
            f"a window of {type_} shows two such vectors of integers, f32 or f64 and begins at an i64, not {kinds}"
        )
    first, second, begin = registers
    text = spelling(type_)
    ending, feature = _PERMUTATIONS[element.bytes]
    if not (emitter.target.is_x86 and emitter.target.has(feature) and type_.lanes * element.bytes == MOST_BYTES):
        pair = emitter.allocate(f"[2 x {text}]", "pair")
        for position, register in enumerate((first, second)):
            place = emitter.emit(f"getelementptr {text}, ptr {pair}, i64 {position}", "place")
            emitter.effect(f"store {text} {register}, ptr {place}")
        place = emitter.emit(f"getelementptr {scalar_spelling(element)}, ptr {pair}, i64 {begin}", "place")
        return emitter.emit(f"load {text}, ptr {place}, align {element.bytes}", "window")
    ending, number = _OF_FLOATS.get(element, (ending, element))
    lane, lanes = scalar_spelling(number), spelling(VectorType(number, type_.lanes))
    narrow = begin if lane == "i64" else emitter.emit(f"trunc i64 {begin} to {lane}")
    one = emitter.emit(f"insertelement {lanes} poison, {lane} {narrow}, i32 0")
    every = emitter.emit(f"shufflevector {lanes} {one}, {lanes} poison, <{type_.lanes} x i32> zeroinitializer")
    numbers = f"<{', '.join(f'{lane} {place}' for place in range(type_.lanes))}>"
    places = emitter.emit(f"add {lanes} {every}, {numbers}")
    name = f"llvm.x86.avx512.vpermi2var.{ending}.512"
    return emitter.call(name, text, (text, first), (lanes, places), (text, second))
