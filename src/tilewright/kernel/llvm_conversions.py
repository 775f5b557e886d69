"""LLVM instructions for conversions: C's, saturating ones, and those of 16-bit floats by integers."""

from __future__ import annotations

from tilewright.ir.scalars import BOOL, F16, ScalarType
from tilewright.kernel.ir import ValueType, element_of
from tilewright.kernel.llvm_emitter import (
    Emitter,
    lanes_of,
    literal,
    scalar_spelling,
    spelling,
    splat,
    suffix,
    vector_of,
)


def convert(emitter: Emitter, value: str, source: ValueType, target: ValueType) -> str:
    """`Cast`: C's conversions; floats outside the range of an integer saturate and nan gives 0."""
    from_, to = element_of(source), element_of(target)
    source_text, text = spelling(source), spelling(target)
    if from_ == to:
        return value
    if to == BOOL:
        zero = splat(literal(0, from_), scalar_spelling(from_), lanes_of(source))
        comparison = "fcmp une" if from_.is_float else "icmp ne"
        return emitter.emit(f"{comparison} {source_text} {value}, {zero}")
    if from_.is_float and to.is_float:
        return emitter.emit(f"{'fpext' if to.bits > from_.bits else 'fptrunc'} {source_text} {value} to {text}")
    if from_.is_float:
        if emitter.target.is_x86:
            return _saturated(emitter, value, source, target)
        name = f"llvm.fpto{'s' if to.kind == 'i' else 'u'}i.sat.{suffix(text)}.{suffix(source_text)}"
        return emitter.call(name, text, (source_text, value))
    signed = from_.kind == "i"
    if to.is_float:
        return emitter.emit(f"{'s' if signed else 'u'}itofp {source_text} {value} to {text}")
    if to.bits == from_.bits:
        return value
    if to.bits < from_.bits:
        return emitter.emit(f"trunc {source_text} {value} to {text}")
    return emitter.emit(f"{'s' if signed else 'z'}ext {source_text} {value} to {text}")


def _saturated(emitter: Emitter, value: str, source: ValueType, target: ValueType) -> str:
    """LLVM's fpto*i.sat, of which it makes no vectors for a processor whose own conversions do not saturate."""
    from_, to = element_of(source), element_of(target)
    signed, lanes = to.kind == "i", lanes_of(source)
    text, result, bools = spelling(source), spelling(target), vector_of("i1", lanes)
    bits = to.bits - signed

    def number(one: int, scalar: ScalarType) -> str:
        return splat(literal(one, scalar), scalar_spelling(scalar), lanes)

    least, beyond = number(-(1 << bits) if signed else 0, from_), number(1 << bits, from_)
    below = emitter.emit(f"fcmp olt {text} {value}, {least}")
    raised = emitter.emit(f"select {bools} {below}, {text} {least}, {text} {value}")
    fits = emitter.emit(f"fcmp olt {text} {raised}, {beyond}")
    safe = emitter.emit(f"select {bools} {fits}, {text} {raised}, {text} {number(0, from_)}")
    whole = emitter.emit(f"fpto{'s' if signed else 'u'}i {text} {safe} to {result}")
    above = emitter.emit(f"fcmp oge {text} {value}, {beyond}")
    return emitter.emit(f"select {bools} {above}, {result} {number((1 << bits) - 1, to)}, {result} {whole}")


def half_to_float(emitter: Emitter, element: ScalarType, raw: str, lanes: int) -> str:
    """Values of f16 or bf16, given by their bits, in f32: for CPUs that have no instruction for it."""
    return (_f16_to_f32 if element == F16 else _bf16_to_f32)(_Bits(emitter, lanes), raw)


def float_to_half(emitter: Emitter, element: ScalarType, value: str, lanes: int) -> str:
    """The bits of f32 values rounded to f16 or bf16."""
    return (_f32_to_f16 if element == F16 else _f32_to_bf16)(_Bits(emitter, lanes), value)


class _Bits:
    """Arithmetic on the bits of floats held in 32-bit integers, for conversions that the CPU does not have."""

    def __init__(self, emitter: Emitter, lanes: int) -> None:
        self.emitter, self.lanes = emitter, lanes
        self.i16, self.i32, self.f32 = (vector_of(text, lanes) for text in ("i16", "i32", "float"))

    def number(self, value: int) -> str:
        return splat(str(value), "i32", self.lanes)

    def do(self, instruction: str, left: str, right: int | str) -> str:
        other = right if isinstance(right, str) else self.number(right)
        return self.emitter.emit(f"{instruction} {self.i32} {left}, {other}")

    def choose(self, condition: str, then: str, otherwise: str) -> str:
        boolean = vector_of("i1", self.lanes)
        return self.emitter.emit(f"select {boolean} {condition}, {self.i32} {then}, {self.i32} {otherwise}")

    def widen(self, half: str) -> str:
        return self.emitter.emit(f"zext {self.i16} {half} to {self.i32}")

    def narrow(self, bits: str) -> str:
        return self.emitter.emit(f"trunc {self.i32} {bits} to {self.i16}")

    def as_float(self, bits: str) -> str:
        return self.emitter.emit(f"bitcast {self.i32} {bits} to {self.f32}")

    def of_float(self, value: str) -> str:
        return self.emitter.emit(f"bitcast {self.f32} {value} to {self.i32}")

    def floating(self, instruction: str, left: str, bits: int) -> str:
        constant = self.as_float(self.number(bits))
        return self.emitter.emit(f"{instruction} {self.f32} {left}, {constant}")


def _bf16_to_f32(bits: _Bits, value: str) -> str:
    return bits.as_float(bits.do("shl", bits.widen(value), 16))


def _f32_to_bf16(bits: _Bits, value: str) -> str:
    """Round to nearest even on the upper 16 bits; a nan keeps its upper bits and is made quiet."""
    word = bits.of_float(value)
    upper = bits.do("lshr", word, 16)
    half = bits.do("add", bits.do("and", upper, 1), 0x7FFF)
    rounded = bits.do("lshr", bits.do("add", word, half), 16)
    is_nan = bits.emitter.emit(f"fcmp uno {bits.f32} {value}, {value}")
    return bits.narrow(bits.choose(is_nan, bits.do("or", upper, 0x40), rounded))


def _f16_to_f32(bits: _Bits, value: str) -> str:
    """Move exponent and mantissa into place and correct the exponent's bias by a multiplication with 2^112."""
    half = bits.widen(value)
    sign = bits.do("shl", bits.do("and", half, 0x8000), 16)
    magnitude = bits.as_float(bits.do("shl", bits.do("and", half, 0x7FFF), 13))
    scaled = bits.of_float(bits.floating("fmul", magnitude, (127 + 112) << 23))
    special = bits.do("icmp ugt", bits.do("and", half, 0x7FFF), 0x7BFF)
    return bits.as_float(bits.do("or", bits.choose(special, bits.do("or", scaled, 255 << 23), scaled), sign))


def _f32_to_f16(bits: _Bits, value: str) -> str:
    """Round to nearest even: normal numbers by integers, subnormal ones by adding a number of the right exponent."""
    word = bits.of_float(value)
    sign = bits.do("lshr", bits.do("and", word, 0x8000_0000), 16)
    magnitude = bits.do("and", word, 0x7FFF_FFFF)
    odd = bits.do("and", bits.do("lshr", magnitude, 13), 1)
    normal = bits.do("add", bits.do("add", magnitude, ((15 - 127) * (1 << 23) + 0xFFF) & 0xFFFF_FFFF), odd)
    normal = bits.do("lshr", normal, 13)
    magic = (127 - 15 + 23 - 10 + 1) << 23
    small = bits.do("sub", bits.of_float(bits.floating("fadd", bits.as_float(magnitude), magic)), magic)
    result = bits.choose(bits.do("icmp ult", magnitude, 113 << 23), small, normal)
    result = bits.choose(bits.do("icmp uge", magnitude, (127 + 16) << 23), bits.number(0x7C00), result)
    result = bits.choose(bits.do("icmp ugt", magnitude, 255 << 23), bits.number(0x7E00), result)
    return bits.narrow(bits.do("or", result, sign))
