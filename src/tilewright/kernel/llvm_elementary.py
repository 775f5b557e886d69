"""Exponentials and the logarithm written out: a loop around them needs no calls and keeps its registers.

Those of f32 work on scalars and, elementwise, on vectors, with Cephes's minimax polynomials [Moshier, Methods and
Programs for Mathematical Functions, 1989]. ln 2 is two numbers, of which the larger has so few bits that its product
with an exponent is exact [Cody and Waite, Software Manual for the Elementary Functions, 1980].

AVX-512 takes floats apart and puts them together (getexp, getmant, scalef) with all special values, which leaves little
but the polynomials: minimax ones of these intervals, by Remez's exchange. So it is for f64, which has no other form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilewright.ir.scalars import F32
from tilewright.kernel.llvm_estimates import FROM_THREE_QUARTERS, has_wide_floats, wide_call

if TYPE_CHECKING:
    from tilewright.kernel.llvm_operators import Context

_EXPONENTIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOGARITHM = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
LN2 = (0.693359375, -2.12194440e-4)
_ROUNDING = 12582912.0  # 1.5 * 2^23: what is added to it is rounded to a whole number, which its last bits hold
_ROUNDING_BITS, _ROOT_OF_HALF_BITS = 0x4B400000, 0x3F3504F3
_GREATEST, _GREATEST_F64 = 130.0, 800.0  # beyond them the result is infinite
_VANISHING, _VANISHING_F64 = -104.0, -746.0  # below them it is 0
_VANISHING_TWO, _VANISHING_TWO_F64 = -151.0, -1076.0  # the same for powers of two
_LN2_NEAREST, _LOG2_E = 0.6931471805599453, 1.44269504088896341
EXPONENTIAL_WIDE = (
    1.3815644197165966e-3, 8.368621580302715e-3, 4.1668351739645004e-2, 0.1666652262210846, 0.4999999403953552,
)  # fmt: skip
_LOGARITHM_WIDE = (
    -4.491627961397171e-2, 0.10449777543544769, -0.13163107633590698, 0.1448213905096054, -0.16647695004940033,
    0.19990593194961548, -0.25000056624412537, 0.3333345353603363, -0.5,
)  # fmt: skip
_LN2_BELOW, _LN2_REST = 0.69313812256, 9.0580006145e-6  # both positive: no infinity meets its opposite

# exp(r) = 1 + r + r^2 p(r) for |r| <= ln(2) / 2, to 2^-57.9 of it:
EXPONENTIAL_F64 = (
    2.5000157041228766e-08, 2.763031180245358e-07, 2.755758654689594e-06, 2.4801492936212067e-05,
    0.00019841269505699533, 0.0013888888943769729, 0.0083333333334952, 0.04166666666652971, 0.1666666666666641,
    0.5000000000000011,
)  # fmt: skip
# log((1 + s) / (1 - s)) = s (2 + s^2 p(s^2)) for |s| <= 1/5, to 2^-62.7 of it:
_LOGARITHM_F64 = (
    0.1383878894155486, 0.1317422879310471, 0.1539107441378754, 0.18181667026992196, 0.22222224277244407,
    0.28571428555997797, 0.4000000000005598, 0.666666666666666,
)  # fmt: skip
LN2_F64 = (0.693147180369123816490, 1.90821492927058770002e-10)  # both positive, as those of f32


def polynomial(c: Context, coefficients: Sequence[float], x: str) -> str:
    """The polynomial of these coefficients, that of the highest power first, by Horner's rule."""
    p = c.constant(coefficients[0])
    for coefficient in coefficients[1:]:
        p = c.intrinsic("fma", p, x, c.constant(coefficient))
    return p


def within(c: Context, x: str, least: float, greatest: float) -> str:
    """What is beyond two bounds becomes the nearer one; nan stays."""
    x = _not_above(c, x, greatest)
    return c.select(c.compare("fcmp olt", x, c.constant(least)), c.constant(least), x)


def unless_vanishing(c: Context, x: str, power: Callable[[Context, str], str], of_two: bool = False) -> str:
    """e^x or 2^x, which are 0 far below 0: not by arithmetic, for processors may stop where a result gets too small."""
    limits = (_VANISHING_TWO, _VANISHING_TWO_F64) if of_two else (_VANISHING, _VANISHING_F64)
    vanishes, zero = c.compare("fcmp olt", x, c.constant(limits[c.element != F32])), c.constant(0.0)
    return c.select(vanishes, zero, power(c, c.select(vanishes, zero, x)))


def _not_above(c: Context, x: str, greatest: float) -> str:
    return c.select(c.compare("fcmp ogt", x, c.constant(greatest)), c.constant(greatest), x)


def exponential_f64(c: Context, x: str) -> str:
    """The instructions for vectors with AVX-512; right to less than a unit in the last place, as `exponential_f32`."""
    x = _not_above(c, x, _GREATEST_F64)
    n = c.intrinsic("rint", c.binary("fmul", x, c.constant(_LOG2_E)))
    r = c.intrinsic("fma", n, c.constant(-LN2_F64[0]), x)
    r = c.intrinsic("fma", n, c.constant(-LN2_F64[1]), r)
    return wide_call(c, "scalef", polynomial(c, (*EXPONENTIAL_F64, 1.0, 1.0), r), n)


def power_of_two_f64(c: Context, x: str) -> str:
    """2^x for vectors with AVX-512: n = round(x), and x - n is exact; right to less than a unit in the last place."""
    x = _not_above(c, x, 2 * _GREATEST_F64)
    n = c.intrinsic("rint", x)
    r = c.binary("fmul", c.binary("fsub", x, n), c.constant(_LN2_NEAREST))
    return wide_call(c, "scalef", polynomial(c, (*EXPONENTIAL_F64, 1.0, 1.0), r), n)


def logarithm_f64(c: Context, x: str) -> str:
    """The instructions for vectors with AVX-512; right to less than a unit in the last place.

    x = 2^e (1 + m) with 3/4 <= 1 + m < 3/2 and s = m / (2 + m): log(1 + m) = m - m^2 / 2 + s (m^2 / 2 + s^2 p(s^2))
    [fdlibm, e_log.c].
    """
    m, e = fraction_and_exponent(c, x)
    s = c.binary("fdiv", m, c.binary("fadd", m, c.constant(2.0)))
    z = c.binary("fmul", s, s)
    half = c.binary("fmul", c.binary("fmul", m, m), c.constant(0.5))
    rest = c.intrinsic("fma", z, polynomial(c, _LOGARITHM_F64, z), half)
    rest = c.intrinsic("fma", s, rest, c.binary("fmul", e, c.constant(LN2_F64[1])))
    rest = c.binary("fsub", c.binary("fsub", half, rest), m)
    return c.intrinsic("fma", e, c.constant(LN2_F64[0]), c.emitter.emit(f"fneg {c.text} {rest}"))


def exponential_f32(c: Context, x: str) -> str:
    """The instructions; gives the register of the result, which is right to less than 2 units in the last place.

    exp(x) = 2^n exp(r) with n = round(x / ln 2) and |r| <= ln(2) / 2, where exp(r) = 1 + r + r^2 p(r). The power of two
    is applied in two halves, so that results below the normal numbers are rounded once, and those above all numbers are
    infinite. nan goes through every step.
    """
    x = _not_above(c, x, _GREATEST)
    shifted = _rounded(c, x, _LOG2_E)
    n = c.binary("fsub", shifted, c.constant(_ROUNDING))
    r = c.intrinsic("fmuladd", n, c.constant(-LN2[0]), x)
    r = c.intrinsic("fmuladd", n, c.constant(-LN2[1]), r)
    return _scaled(c, r, shifted, n)


def power_of_two_f32(c: Context, x: str) -> str:
    """2^x, in the same way: n = round(x), and x - n is exact."""
    x = _not_above(c, x, _GREATEST)
    shifted = c.binary("fadd", x, c.constant(_ROUNDING))
    n = c.binary("fsub", shifted, c.constant(_ROUNDING))
    return _scaled(c, c.binary("fmul", c.binary("fsub", x, n), c.constant(_LN2_NEAREST)), shifted, n)


def _rounded(c: Context, x: str, factor: float) -> str:
    """The whole number next to a product, plus `_ROUNDING`."""
    if has_wide_floats(c):
        return c.intrinsic("fma", x, c.constant(factor), c.constant(_ROUNDING))
    return c.binary("fadd", c.binary("fmul", x, c.constant(factor)), c.constant(_ROUNDING))


def _scaled(c: Context, r: str, shifted: str, n: str) -> str:
    """2^n exp(r), where `shifted` is n + `_ROUNDING`."""
    if has_wide_floats(c):
        return wide_call(c, "scalef", polynomial(c, (*EXPONENTIAL_WIDE, 1.0, 1.0), r), n)
    p = c.constant(_EXPONENTIAL[0])
    for coefficient in _EXPONENTIAL[1:]:
        p = c.intrinsic("fmuladd", p, r, c.constant(coefficient))
    near = c.intrinsic("fmuladd", p, c.binary("fmul", r, r), r)
    result = c.binary("fadd", near, c.constant(1.0))

    power = _integer(c, "sub", _bits(c, shifted), _ROUNDING_BITS)
    half = _integer(c, "ashr", power, 1)
    for part in (half, _integer(c, "sub", power, half)):
        scale = _integer(c, "shl", _integer(c, "add", part, 127), 23)
        result = c.binary("fmul", result, _float(c, scale))
    return result


def logarithm_f32(c: Context, x: str) -> str:
    """The instructions; gives the register of the result, which is right to less than 2 units in the last place.

    x = 2^e (1 + m) with sqrt(1/2) <= 1 + m < sqrt(2); log(x) = e ln 2 + m - m^2 / 2 + m^3 p(m). Numbers below the
    normal ones are scaled before; 0, infinity, negative numbers and nan have results of their own.
    """
    if has_wide_floats(c):
        return _wide_logarithm(c, x)
    small = c.compare("fcmp olt", x, c.constant(2.0**-126))
    scaled = c.select(small, c.binary("fmul", x, c.constant(2.0**23)), x)
    bits = _bits(c, scaled)
    # The exponent of x / sqrt(1/2), so that the cut is there: as integers, positive floats are in their order.
    exponent = _integer(c, "ashr", _integer(c, "sub", bits, _ROOT_OF_HALF_BITS), 23)
    fraction = _float(c, _integer(c, "sub", bits, _integer(c, "shl", exponent, 23)))
    m = c.binary("fadd", fraction, c.constant(-1.0))
    e = c.emitter.emit(f"sitofp {_integers(c)} {exponent} to {c.text}")
    e = c.binary("fadd", e, c.select(small, c.constant(-23.0), c.constant(0.0)))
    square = c.binary("fmul", m, m)
    p = c.constant(_LOGARITHM[0])
    for coefficient in _LOGARITHM[1:]:
        p = c.intrinsic("fmuladd", p, m, c.constant(coefficient))
    rest = c.binary("fmul", p, c.binary("fmul", m, square))
    rest = c.intrinsic("fmuladd", e, c.constant(LN2[1]), rest)
    rest = c.intrinsic("fmuladd", square, c.constant(-0.5), rest)
    result = c.intrinsic("fmuladd", e, c.constant(LN2[0]), c.binary("fadd", m, rest))
    infinity = c.constant(float("inf"))
    result = c.select(c.compare("fcmp oeq", x, infinity), infinity, result)
    result = c.select(c.compare("fcmp oeq", x, c.constant(0.0)), c.constant(float("-inf")), result)
    return c.select(c.compare("fcmp oge", x, c.constant(0.0)), result, c.constant(float("nan")))


def _wide_logarithm(c: Context, x: str) -> str:
    """x = 2^e (1 + m) with 3/4 <= 1 + m < 3/2; log(x) = e ln 2 + m + m^2 p(m)."""
    m, e = fraction_and_exponent(c, x)
    p = polynomial(c, _LOGARITHM_WIDE, m)
    rest = c.intrinsic("fma", c.binary("fmul", m, m), p, c.binary("fmul", e, c.constant(_LN2_REST)))
    return c.intrinsic("fma", e, c.constant(_LN2_BELOW), c.binary("fadd", m, rest))


def fraction_and_exponent(c: Context, x: str) -> tuple[str, str]:
    """m and e with x = 2^e (1 + m) and 3/4 <= 1 + m < 3/2, by AVX-512; m is nan for negative numbers."""
    m = c.binary("fadd", wide_call(c, "getmant", x, control=FROM_THREE_QUARTERS), c.constant(-1.0))
    floor = wide_call(c, "getexp", x)
    e = c.select(c.compare("fcmp olt", m, c.constant(0.0)), c.binary("fadd", floor, c.constant(1.0)), floor)
    return m, e


def _integers(c: Context) -> str:
    return c.text.replace("float", "i32")


def _integer(c: Context, instruction: str, left: str, right: int | str) -> str:
    other = right if isinstance(right, str) else c.integers(right)
    return c.emitter.emit(f"{instruction} {_integers(c)} {left}, {other}")


def _bits(c: Context, value: str) -> str:
    return c.emitter.emit(f"bitcast {c.text} {value} to {_integers(c)}")


def _float(c: Context, bits: str) -> str:
    return c.emitter.emit(f"bitcast {_integers(c)} {bits} to {c.text}")
