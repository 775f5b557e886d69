"""LLVM instructions for every operator of `tilewright.ir.operators`, on scalars and, elementwise, on vectors."""

from __future__ import annotations

import functools
from collections.abc import Callable

from tilewright.ir.cached import cached_property
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, F32, ScalarType
from tilewright.kernel.ir import ValueType, VectorType, element_of
from tilewright.kernel.llvm_division import divides_by_floats, float_remainder, whole_quotient
from tilewright.kernel.llvm_elementary import (
    exponential_f32,
    exponential_f64,
    logarithm_f32,
    logarithm_f64,
    power_of_two_f32,
    power_of_two_f64,
    unless_vanishing,
)
from tilewright.kernel.llvm_emitter import Emitter, lanes_of, literal, scalar_spelling, splat, suffix, vector_of
from tilewright.kernel.llvm_estimates import REGISTER_BITS, has_wide_floats
from tilewright.kernel.llvm_power import has_wide_power, wide_power
from tilewright.kernel.llvm_roots import reciprocal_root
from tilewright.kernel.llvm_vector_math import FUNCTIONS, advertise, call_in_pieces, in_pieces

INTRINSICS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint"}
# Symbols that code for these operators may call, directly or because an intrinsic becomes a call.
LIBRARY_SYMBOLS = tuple(
    f"{name}{end}"
    for name in (*FUNCTIONS, *INTRINSICS.values(), "fmod", "fma", "sincos", "nearbyint", "ldexp", "exp10")
    for end in ("", "f")
)


@dataclass(frozen=True)
class Context:
    """The emitter and the type on which one operator is being printed."""

    emitter: Emitter
    type: ValueType

    @cached_property
    def element(self) -> ScalarType:
        """The scalar type."""
        return element_of(self.type)

    @cached_property
    def lanes(self) -> int:
        """Lanes, 0 for a scalar."""
        return lanes_of(self.type)

    @cached_property
    def text(self) -> str:
        """LLVM's name of the type."""
        return vector_of(scalar_spelling(self.element), self.lanes)

    @cached_property
    def bool_text(self) -> str:
        """LLVM's name of the type of comparisons."""
        return vector_of("i1", self.lanes)

    def constant(self, value: int | float) -> str:
        """A constant in all lanes."""
        return splat(literal(value, self.element), scalar_spelling(self.element), self.lanes)

    def integers(self, value: int) -> str:
        """A constant i32 in as many lanes."""
        return splat(str(value), "i32", self.lanes)

    def binary(self, instruction: str, left: str, right: str) -> str:
        """An instruction on two values of this type."""
        return self.emitter.emit(f"{instruction} {self.text} {left}, {right}")

    def logic(self, instruction: str, left: str, right: str) -> str:
        """An instruction on two truth values."""
        return self.emitter.emit(f"{instruction} {self.bool_text} {left}, {right}")

    def compare(self, predicate: str, left: str, right: str) -> str:
        """`predicate` includes icmp or fcmp."""
        return self.emitter.emit(f"{predicate} {self.text} {left}, {right}")

    def select(self, condition: str, then: str, otherwise: str) -> str:
        """Elementwise choice."""
        return self.emitter.emit(f"select {self.bool_text} {condition}, {self.text} {then}, {self.text} {otherwise}")

    def intrinsic(self, name: str, *operands: str, extra: tuple[tuple[str, str], ...] = ()) -> str:
        """An overloaded intrinsic llvm.`name` on operands of this type."""
        arguments = [(self.text, operand) for operand in operands]
        return self.emitter.call(f"llvm.{name}.{suffix(self.text)}", self.text, *arguments, *extra)


def emit_operator(context: Context, operator: str, operands: list[str]) -> str:
    """Print one operator; `context.type` is the type of its (last) operand. Gives the register of the result."""
    kind = context.element.kind
    emit = _BY_KIND.get((operator, kind)) or _BY_KIND.get((operator, "*"))
    if emit is None:
        raise TypeError(f"operator {operator} is not defined on {context.element} in a kernel")
    return emit(context, *operands)


# --- integers ---------------------------------------------------------------------------------------------------------


def _shift(instruction: str) -> Callable[..., str]:
    def emit(c: Context, left: str, right: str) -> str:
        return c.binary(instruction, left, c.binary("and", right, c.constant(c.element.bits - 1)))

    return emit


def _power_of_two(c: Context, divisor: str) -> int | None:
    """The exponent, where a scalar divisor is a literal power of two."""
    if c.lanes or not divisor.isdecimal() or int(divisor).bit_count() != 1:
        return None
    return int(divisor).bit_length() - 1


def _divide_unsigned(c: Context, left: str, right: str) -> str:
    if (exponent := _power_of_two(c, right)) is not None:
        return c.binary("lshr", left, str(exponent))
    zero = c.compare("icmp eq", right, c.constant(0))
    divisor = c.select(zero, c.constant(1), right)
    quotient = whole_quotient(c, left, divisor) if divides_by_floats(c, right) else c.binary("udiv", left, divisor)
    return c.select(zero, c.constant(0), quotient)


def _modulo_unsigned(c: Context, left: str, right: str) -> str:
    if _power_of_two(c, right) is not None:
        return c.binary("and", left, str(int(right) - 1))
    zero = c.compare("icmp eq", right, c.constant(0))
    divisor = c.select(zero, c.constant(1), right)  # x % 1 = 0 is the answer for a zero divisor
    if divides_by_floats(c, right):
        return c.binary("sub", left, c.binary("mul", whole_quotient(c, left, divisor), divisor))
    return c.binary("urem", left, divisor)


@dataclass(frozen=True)
class _Division:
    """The parts of a signed division with truncation: 0 and -1 as divisors are replaced by 1, which cannot trap."""

    zero: str
    minus_one: str
    quotient: Callable[[], str]
    remainder: str
    adjust: str  # true where the signs differ and the remainder is not 0: floor is one below the truncated quotient


def _signed_division(c: Context, left: str, right: str) -> _Division:
    zero = c.compare("icmp eq", right, c.constant(0))
    minus_one = c.compare("icmp eq", right, c.constant(-1))
    divisor = c.select(c.logic("or", zero, minus_one), c.constant(1), right)
    if divides_by_floats(c, right):
        truncated = whole_quotient(c, left, divisor)
        remainder = c.binary("sub", left, c.binary("mul", truncated, divisor))
        quotient: Callable[[], str] = lambda: truncated  # noqa: E731
    else:
        remainder = c.binary("srem", left, divisor)
        quotient = lambda: c.binary("sdiv", left, divisor)  # noqa: E731
    signs_differ = c.compare("icmp slt", c.binary("xor", remainder, divisor), c.constant(0))
    adjust = c.logic("and", signs_differ, c.compare("icmp ne", remainder, c.constant(0)))
    return _Division(zero, minus_one, quotient, remainder, adjust)


def _divide_signed(c: Context, left: str, right: str) -> str:
    if (exponent := _power_of_two(c, right)) is not None:
        return c.binary("ashr", left, str(exponent))
    parts = _signed_division(c, left, right)
    step = c.emitter.emit(f"sext {c.bool_text} {parts.adjust} to {c.text}")
    floor = c.binary("add", parts.quotient(), step)
    negated = c.binary("sub", c.constant(0), left)
    return c.select(parts.zero, c.constant(0), c.select(parts.minus_one, negated, floor))


def _modulo_signed(c: Context, left: str, right: str) -> str:
    if _power_of_two(c, right) is not None:
        return c.binary("and", left, str(int(right) - 1))
    parts = _signed_division(c, left, right)
    return c.binary("add", parts.remainder, c.select(parts.adjust, right, c.constant(0)))


# --- floats -----------------------------------------------------------------------------------------------------------


def _extremum(name: str) -> Callable[..., str]:
    """min/max that give nan if either operand is, as LLVM's `name`; which of two zeros they give does not matter.

    Written as comparisons and choices, LLVM makes one choice of the two, by two masks: twice as long a chain.
    """

    def emit(c: Context, left: str, right: str) -> str:
        function = f"llvm.{name}.{suffix(c.text)}"
        return c.emitter.call(function, c.text, (c.text, left), (c.text, right), flags="nsz ")

    return emit


def _float_modulo_parts(c: Context, left: str, right: str, ratio: str) -> tuple[str, str, str]:
    """C's fmod (but for the sign of 0), the same with the sign of the divisor, and whether the two differ."""
    remainder = float_remainder(c, left, right, ratio)
    zero = c.constant(0.0)
    signs_differ = c.logic("xor", c.compare("fcmp olt", right, zero), c.compare("fcmp olt", remainder, zero))
    adjust = c.logic("and", signs_differ, c.compare("fcmp une", remainder, zero))
    moved = c.select(adjust, c.binary("fadd", remainder, right), remainder)
    signed_zero = c.intrinsic("copysign", zero, right)
    return remainder, c.select(c.compare("fcmp oeq", remainder, zero), signed_zero, moved), adjust


def _float_modulo(c: Context, left: str, right: str) -> str:
    return _float_modulo_parts(c, left, right, c.binary("fdiv", left, right))[1]


def _float_floor_divide(c: Context, left: str, right: str) -> str:
    """Python's way: (left - fmod) / right is nearly an integer; round it, and step down where the signs differ."""
    zero, one = c.constant(0.0), c.constant(1.0)
    ratio = c.binary("fdiv", left, right)
    remainder, _, adjust = _float_modulo_parts(c, left, right, ratio)
    whole = c.binary("fdiv", c.binary("fsub", left, remainder), right)
    whole = c.select(adjust, c.binary("fsub", whole, one), whole)
    floor = c.intrinsic("floor", whole)
    low = c.compare("fcmp ogt", c.binary("fsub", whole, floor), c.constant(0.5))
    rounded = c.select(low, c.binary("fadd", floor, one), floor)
    quotient = c.select(c.compare("fcmp oeq", whole, zero), c.intrinsic("copysign", zero, ratio), rounded)
    return c.select(c.compare("fcmp oeq", right, zero), ratio, quotient)


def _fma(c: Context, a: str, b: str, addend: str) -> str:
    if c.emitter.target.has_fma:
        return c.intrinsic("fma", a, b, addend)
    return c.binary("fadd", c.binary("fmul", a, b), addend)


def _library(name: str) -> Callable[..., str]:
    """A function of the C library: on vectors its vector form, or lane by lane."""

    def emit(c: Context, *operands: str) -> str:
        symbol = name + ("f" if c.element == F32 else "")
        scalar = scalar_spelling(c.element)

        def call(values: list[str]) -> str:
            hint = advertise(c.emitter, symbol, scalar) if not c.lanes else ""
            return c.emitter.call(symbol, scalar, *((scalar, v) for v in values), attributes=" #1", at_call=hint)

        if not c.lanes:
            return call([*operands])
        whole = call_in_pieces(c.emitter, symbol, c.lanes, scalar, operands)
        if whole is not None:
            return whole
        result = "poison"
        for lane in range(c.lanes):
            value = call([c.emitter.emit(f"extractelement {c.text} {operand}, i32 {lane}") for operand in operands])
            result = c.emitter.emit(f"insertelement {c.text} {result}, {scalar} {value}, i32 {lane}")
        return result

    return emit


def _is_infinite(c: Context, value: str) -> str:
    return c.compare("fcmp oeq", c.intrinsic("fabs", value), c.constant(float("inf")))


# --- the table --------------------------------------------------------------------------------------------------------


def _binary(instruction: str) -> Callable[..., str]:
    return lambda c, left, right: c.binary(instruction, left, right)


def _comparison(predicate: str) -> Callable[..., str]:
    return lambda c, left, right: c.compare(predicate, left, right)


def _intrinsic(name: str) -> Callable[..., str]:
    return lambda c, *operands: c.intrinsic(name, *operands)


def _invert(c: Context, value: str) -> str:
    return c.binary("xor", value, c.constant(True if c.element == BOOL else -1))


_BY_KIND: dict[tuple[str, str], Callable[..., str]] = {
    ("select", "*"): lambda c, condition, then, otherwise: c.select(condition, then, otherwise),
    ("div", "f"): _binary("fdiv"),
    ("neg", "f"): lambda c, value: c.emitter.emit(f"fneg {c.text} {value}"),
    ("abs", "f"): _intrinsic("fabs"),
    ("abs", "i"): lambda c, value: c.intrinsic("abs", value, extra=(("i1", "false"),)),
    ("abs", "u"): lambda c, value: value,
    ("floordiv", "f"): _float_floor_divide,
    ("floordiv", "i"): _divide_signed,
    ("floordiv", "u"): _divide_unsigned,
    ("mod", "f"): _float_modulo,
    ("mod", "i"): _modulo_signed,
    ("mod", "u"): _modulo_unsigned,
    ("min", "f"): _extremum("minimum"),
    ("max", "f"): _extremum("maximum"),
    ("min", "i"): _intrinsic("smin"),
    ("max", "i"): _intrinsic("smax"),
    ("min", "u"): _intrinsic("umin"),
    ("max", "u"): _intrinsic("umax"),
    ("min", "b"): _binary("and"),
    ("max", "b"): _binary("or"),
    ("copysign", "f"): _intrinsic("copysign"),
    ("fma", "f"): _fma,
    ("shr", "i"): _shift("ashr"),
    ("shr", "u"): _shift("lshr"),
    ("isnan", "f"): lambda c, value: c.compare("fcmp uno", value, value),
    ("isinf", "f"): _is_infinite,
}
for _name, _float, _integer in (("add", "fadd", "add"), ("sub", "fsub", "sub"), ("mul", "fmul", "mul")):
    # A product that is added to may be rounded once with the sum, as compilers of CUDA and OpenCL do it.
    _BY_KIND[_name, "f"] = _binary(f"{_float} contract")
    _BY_KIND[_name, "i"] = _BY_KIND[_name, "u"] = _binary(_integer)
_BY_KIND["mul_apart", "f"] = _binary("fmul")
for _kind in "iu":
    _BY_KIND["neg", _kind] = lambda c, value: c.binary("sub", c.constant(0), value)
    _BY_KIND["shl", _kind] = _shift("shl")
for _kind in "biu":
    _BY_KIND["and", _kind], _BY_KIND["or", _kind], _BY_KIND["xor", _kind] = map(_binary, ("and", "or", "xor"))
    _BY_KIND["not", _kind] = _invert
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _ordered = _name in ("eq", "ne")
    _BY_KIND[_name, "f"] = _comparison("fcmp une" if _name == "ne" else f"fcmp o{_name}")
    _BY_KIND[_name, "i"] = _comparison(f"icmp {_name}" if _ordered else f"icmp s{_name}")
    _BY_KIND[_name, "u"] = _BY_KIND[_name, "b"] = _comparison(f"icmp {_name}" if _ordered else f"icmp u{_name}")
for _name, _symbol in INTRINSICS.items():
    _BY_KIND[_name, "f"] = _intrinsic(_symbol)
for _name in FUNCTIONS:
    _BY_KIND[_name, "f"] = _library(_name)


def _written_out(
    name: str, f32: Callable[[Context, str], str], wide_f64: Callable[[Context, str], str]
) -> Callable[..., str]:
    """A function that is written out for f32, and for f64 with AVX-512."""
    library = _library(name)

    def emit(c: Context, x: str) -> str:
        if c.element == F32:
            return f32(c, x)
        return (wide_f64 if has_wide_floats(c) else library)(c, x)

    return emit


def _power(c: Context, x: str, y: str) -> str:
    return wide_power(c, x, y) if has_wide_power(c) else _library("pow")(c, x, y)


def _by_registers(function: Callable[..., str]) -> Callable[..., str]:
    """A function with a form for the registers of AVX-512, register by register where vectors fill several."""

    def emit(c: Context, *operands: str) -> str:
        width = REGISTER_BITS // c.element.bits
        register = Context(c.emitter, VectorType(c.element, width))
        registers, rest = divmod(c.lanes, width)
        if rest or registers.bit_count() != 1 or not has_wide_floats(register):
            return function(c, *operands)
        name = scalar_spelling(c.element)
        return in_pieces(c.emitter, c.lanes, width, name, operands, functools.partial(function, register))

    return emit


_BY_KIND["rsqrt", "f"] = _by_registers(reciprocal_root)
_exponential = _written_out("exp", exponential_f32, exponential_f64)
_exponential_of_two = _written_out("exp2", power_of_two_f32, power_of_two_f64)
_BY_KIND["exp", "f"] = _by_registers(lambda c, x: unless_vanishing(c, x, _exponential))
_BY_KIND["exp2", "f"] = _by_registers(lambda c, x: unless_vanishing(c, x, _exponential_of_two, of_two=True))
_BY_KIND["log", "f"] = _by_registers(_written_out("log", logarithm_f32, logarithm_f64))
_BY_KIND["pow", "f"] = _by_registers(_power)
