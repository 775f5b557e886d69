"""Sums of products of narrow elements that lie side by side in a lane: one instruction of x86 each.

bf16 * bf16, two in a lane, added to f32      VDPBF16PS   (AVX512_BF16)
u8 * i8, four in a lane, added to 32 bits     VPDPBUSD    (AVX512_VNNI, AVX_VNNI)
i16 * i16, two in a lane, added to 32 bits    VPDPWSSD    (the same)
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.scalars import BF16, F32, I8, I16, I32, U8, U32, ScalarType
from tilewright.kernel.dots import Bits, Dot
from tilewright.kernel.ir import Expression, VectorType
from tilewright.kernel.llvm_emitter import CpuTarget, Emitter, lanes_of, spelling

_INSTRUCTIONS: dict[tuple[ScalarType, ScalarType], tuple[str, str, tuple[ScalarType, ...]]] = {
    (BF16, BF16): ("avx512bf16.dpbf16ps", "bfloat", (F32,)),
    (U8, I8): ("avx512.vpdpbusd", "i8", (I32, U32)),
    (I16, I16): ("avx512.vpdpwssd", "i16", (I32, U32)),
}


def _has(target: CpuTarget, name: str, bits: int) -> bool:
    if not target.is_x86 or bits > target.vector_bits:
        return False
    if name.startswith("avx512bf16"):
        return target.has("avx512bf16")
    return target.has("avx512vnni") or (target.has("avxvnni") and bits < 512)


def emit_dots(emitter: Emitter, node: Bits | Dot, emit: Callable[[Expression], str]) -> str:
    """Print a sum of products, or bits as those of other elements; `emit` prints the operands.

    Raises:
        TypeError: if there is no instruction for these elements and sums, or types or sizes do not fit.
    """
    return _bits(emitter, node, emit) if isinstance(node, Bits) else _dot(emitter, node, emit)


def _bits(emitter: Emitter, node: Bits, emit: Callable[[Expression], str]) -> str:
    (operand,), target = node.operands, node.type
    source = operand.type
    if not isinstance(source, VectorType) or not source.element.is_integer or not target.element.is_integer:
        raise TypeError(f"the bits of {source} are not those of {target}: vectors of integers are needed")
    if source.lanes * source.element.bits != target.lanes * target.element.bits:
        raise TypeError(f"the bits of {source} are not those of {target}: the sizes differ")
    return emitter.emit(f"bitcast {spelling(source)} {emit(operand)} to {spelling(target)}")


def _dot(emitter: Emitter, node: Dot, emit: Callable[[Expression], str]) -> str:
    lanes = lanes_of(node.type)
    name, element, sums = _INSTRUCTIONS.get(node.elements, ("", "", ()))
    if node.type.element not in sums or lanes not in (4, 8, 16) or not _has(emitter.target, name, lanes * 32):
        first, second = node.elements
        raise TypeError(f"no instruction adds products of {first} and {second} to {node.type} here")
    held = VectorType(U32, lanes)
    factors, sums_before = node.operands[:2], node.operands[2]
    if [one.type for one in node.operands] != [held, held, node.type]:
        kinds = ", ".join(str(one.type) for one in node.operands)
        raise TypeError(f"products of what lies in {held} are added to {node.type}, not {kinds}")
    total = emit(sums_before)
    text = f"<{lanes * 4 // node.elements[0].bytes} x {element}>"
    parts = [emitter.emit(f"bitcast {spelling(held)} {emit(one)} to {text}") for one in factors]
    result = spelling(node.type)
    return emitter.call(f"llvm.x86.{name}.{lanes * 32}", result, (result, total), *((text, one) for one in parts))
