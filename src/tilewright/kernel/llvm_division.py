"""Quotients and remainders on vectors, by the division of floats: processors have none for vectors of integers.

Integers of up to 32 bits become floats of which the quotient, rounded to the nearest, has the same whole part: it lies
at least 1 / |divisor| below the next integer, relatively 2^-16 (2^-32), and the rounding moves it by 2^-24 (2^-53) at
the most. Those of 64 bits are divided in two steps, the second one for what the first has left, and put right by ones.

The remainder of floats is x - trunc(x / y) y, rounded once by a fused multiply-add, where the quotient has fewer bits
than the fraction of a float: rounding it to an integer makes it too large by one at the most, and what is then left is
a multiple of y's last bit and no larger than y, so that no bit is lost, nor when y is added again. Where a quotient is
larger, or infinite, C's function computes all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.scalars import F32
from tilewright.kernel.llvm_emitter import splat, suffix, vector_of

if TYPE_CHECKING:
    from tilewright.kernel.llvm_operators import Context

_BELOW_2_63 = 9223372036854774784.0  # the largest float of 64 bits below 2^63


def divides_by_floats(c: Context, divisor: str) -> bool:
    """Whether integers of this type are divided so: vectors by a vector that is no literal."""
    if c.lanes < 2 or divisor.startswith("<"):
        return False
    return c.element.bits < 64 or (c.element.kind == "i" and c.emitter.target.has("avx512dq"))


def whole_quotient(c: Context, left: str, right: str) -> str:
    """left / right without its fraction; for signed types the divisor is neither 0 nor -1, for others not 0."""
    if c.element.bits == 64:
        return _long_quotient(c, left, right)
    kind = "float" if c.element.bits <= 16 else "double"
    floats = vector_of(kind, c.lanes)
    sign = "s" if c.element.kind == "i" else "u"
    parts = [c.emitter.emit(f"{sign}itofp {c.text} {one} to {floats}") for one in (left, right)]
    quotient = c.emitter.emit(f"fdiv {floats} {parts[0]}, {parts[1]}")
    return c.emitter.emit(f"fpto{sign}i {floats} {quotient} to {c.text}")


def _long_quotient(c: Context, left: str, right: str) -> str:
    """The quotient of floats is wrong by 2^13 at the most; that of the rest by one in either direction."""
    doubles = vector_of("double", c.lanes)

    def about(value: str) -> str:
        parts = [c.emitter.emit(f"sitofp {c.text} {one} to {doubles}") for one in (value, right)]
        quotient = c.emitter.emit(f"fdiv {doubles} {parts[0]}, {parts[1]}")
        most = splat(f"{_BELOW_2_63:e}", "double", c.lanes)
        large = c.emitter.emit(f"fcmp ogt {doubles} {quotient}, {most}")
        quotient = c.emitter.emit(f"select {c.bool_text} {large}, {doubles} {most}, {doubles} {quotient}")
        return c.emitter.emit(f"fptosi {doubles} {quotient} to {c.text}")

    def rest(value: str, quotient: str) -> str:
        return c.binary("sub", value, c.binary("mul", quotient, right))

    zero = c.constant(0)
    first = about(left)
    second = about(rest(left, first))
    quotient = c.binary("add", first, second)
    remainder = rest(left, quotient)
    # Truncation: the remainder has the dividend's sign or is 0, and is less than the divisor.
    upward = c.compare("icmp slt", c.binary("xor", left, right), zero)
    one = c.select(upward, c.constant(-1), c.constant(1))
    size, least = (c.intrinsic("abs", value, extra=(("i1", "false"),)) for value in (right, remainder))
    larger = c.compare("icmp uge", least, size)
    is_other = c.compare("icmp slt", c.binary("xor", remainder, left), zero)
    is_other = c.logic("and", is_other, c.compare("icmp ne", remainder, zero))
    quotient = c.select(is_other, c.binary("sub", quotient, one), quotient)
    return c.select(c.logic("and", larger, _negated(c, is_other)), c.binary("add", quotient, one), quotient)


def _negated(c: Context, condition: str) -> str:
    return c.logic("xor", condition, splat("true", "i1", c.lanes))


def float_remainder(c: Context, left: str, right: str, ratio: str) -> str:
    """What is left of `left` after whole multiples of `right`, with its sign but for zeros; `ratio` is left / right."""
    if not c.emitter.target.has_fma:
        return c.binary("frem", left, right)
    emitter = c.emitter
    zero = c.constant(0.0)
    most, infinity = c.constant(2.0**23 if c.element == F32 else 2.0**52), c.constant(float("inf"))
    whole = c.intrinsic("trunc", ratio)
    near = c.intrinsic("fma", emitter.emit(f"fneg {c.text} {whole}"), right, left)
    beyond = c.logic("xor", c.compare("fcmp olt", near, zero), c.compare("fcmp olt", left, zero))
    beyond = c.logic("and", beyond, c.compare("fcmp une", near, zero))
    fast = c.select(beyond, c.binary("fadd", near, c.intrinsic("copysign", right, left)), near)
    # A quotient that is nan (of lanes that are masked, too) has a remainder that is nan, either way.
    small = c.compare("fcmp ult", c.intrinsic("fabs", ratio), most)
    small = c.logic("and", small, c.compare("fcmp ult", c.intrinsic("fabs", right), infinity))
    every = small
    if c.lanes:
        every = emitter.call(f"llvm.vector.reduce.and.{suffix(c.bool_text)}", "i1", (c.bool_text, small))
    here, slow, after = (emitter.fresh(hint)[1:] for hint in ("quick", "slow", "after"))
    emitter.effect(f"br label %{here}")
    emitter.label(here)
    emitter.effect(f"br i1 {every}, label %{after}, label %{slow}")
    emitter.label(slow)
    exact = c.binary("frem", left, right)
    emitter.effect(f"br label %{after}")
    emitter.label(after)
    return emitter.emit(f"phi {c.text} [ {fast}, %{here} ], [ {exact}, %{slow} ]")
