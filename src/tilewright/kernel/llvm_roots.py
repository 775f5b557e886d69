"""The reciprocal square root of vectors: an estimate of the processor's, refined by Newton's method.

A step for y ~ 1 / sqrt(x) is y + y (1/2 - x y y/2): an error e of y becomes 3/2 e^2 (Newton; for processors: Intel 64
and IA-32 Architectures Optimization Reference Manual, section 18.16.1). AVX-512's estimates are within 2^-14, also for
numbers below the normal ones, so that one step is enough for f32 (2^-27) and two are for f64 (2^-54); with the
roundings of the last step the result is right to less than 1.5 units in the last place. So it is by a square root and a
division, each rounded once, which other vectors and scalars use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.scalars import F32
from tilewright.kernel.llvm_emitter import splat, vector_of
from tilewright.kernel.llvm_estimates import has_wide_floats, wide_call

if TYPE_CHECKING:
    from tilewright.kernel.llvm_operators import Context

_MOST = 2.0**-10  # above the correction of any first step


def reciprocal_root(c: Context, x: str) -> str:
    """The instructions; gives the register of the result. 0 gives infinity, infinity 0, negative numbers nan."""
    if not has_wide_floats(c):
        return c.binary("fdiv", c.constant(1.0), c.intrinsic("sqrt", x))
    half = c.constant(0.5)
    y = wide_call(c, "rsqrt14", x)
    for _ in range(1 if c.element == F32 else 2):
        error = c.binary("fmul", x, y)
        error = c.intrinsic("fma", c.emitter.emit(f"fneg {c.text} {error}"), _half(c, y), half)
        # Where x is 0 or infinite the error is nan, for 0 * infinity: then any small number leaves y as it is.
        error = c.select(c.compare("fcmp olt", error, c.constant(_MOST)), error, c.constant(_MOST))
        y = c.intrinsic("fma", y, error, y)
    return y


def _half(c: Context, y: str) -> str:
    """y / 2 for normal numbers, by their exponents: multipliers have enough to do."""
    bits, ones = ("i32", 23) if c.element == F32 else ("i64", 52)
    whole = vector_of(bits, c.lanes)
    held = c.emitter.emit(f"bitcast {c.text} {y} to {whole}")
    less = c.emitter.emit(f"sub {whole} {held}, {splat(str(1 << ones), bits, c.lanes)}")
    return c.emitter.emit(f"bitcast {whole} {less} to {c.text}")
