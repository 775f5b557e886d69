"""Powers of two vectors with AVX-512: x^y = exp(y log|x|), with the sign and the exceptions of IEC 60559.

An error e of y log|x| is one of e of the result, so that the logarithm is needed to more bits than the result has: it
and the product are sums of two numbers [Dekker, A floating-point technique for extending the available precision,
1971]. Results are right to less than a unit in the last place.
"""

from __future__ import annotations

from decimal import Context as Decimals
from decimal import Decimal
from typing import TYPE_CHECKING

from tilewright.ir.cached import cached_property
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import F32
from tilewright.kernel.llvm_elementary import EXPONENTIAL_F64, EXPONENTIAL_WIDE, LN2, LN2_F64, polynomial, within
from tilewright.kernel.llvm_estimates import FROM_ONE, REGISTER_BITS, has_wide_floats, table_of_sixteen, wide_call

if TYPE_CHECKING:
    from tilewright.kernel.llvm_operators import Context

_DIGITS = Decimals(prec=45)


@dataclass(frozen=True)
class _Constants:
    """What differs between the types.

    Attributes:
        logarithm: p in log(1 + r) = r - r^2 / 2 + r^3 p(r) for |r| <= 1/32, a minimax polynomial by Remez's exchange.
        exponential: p in exp(r) = 1 + r + r^2 p(r) for |r| <= ln(2) / 2.
        ln2: the logarithm of two as the sum of two numbers, of which the first one's product with an exponent is exact.
        limit: beyond which exponents give infinity or 0.
        table_bits: multiples of 2^-`table_bits` that are less than `limit` are numbers of the type.
    """

    logarithm: tuple[float, ...]
    exponential: tuple[float, ...]
    ln2: tuple[float, float]
    limit: float
    table_bits: int

    @cached_property
    def tables(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """-log(k / 32) for k = 32, 17, 18, ..., 31 in two parts."""
        parts = [self.parts(_DIGITS.divide(Decimal(32), Decimal(k))) for k in (32, *range(17, 32))]
        return tuple(high for high, _ in parts), tuple(low for _, low in parts)

    def parts(self, number: Decimal) -> tuple[float, float]:
        """The logarithm as a multiple of 2^-`table_bits`, and what it is beyond that."""
        exact = number.ln(_DIGITS)
        high = int(exact * 2**self.table_bits) / 2**self.table_bits
        return high, float(exact - Decimal(high))


_F32 = _Constants(
    (-0.16688154549700862, 0.20019694864598145, -0.24999990995426222, 0.3333332731849805),
    EXPONENTIAL_WIDE,
    LN2,
    150.0,
    15,
)
_F64 = _Constants(
    (
        9.114738930021855e-2, -0.10021427742883288, 0.11111083663858722, -0.12499980627080616, 0.1428571430000403,
        -0.16666666673809302, 0.1999999999999681, -0.24999999999999126, 0.3333333333333333,
    ), EXPONENTIAL_F64, LN2_F64, 800.0, 42,
)  # fmt: skip


def has_wide_power(c: Context) -> bool:
    """Whether powers of this type are written out: tables of 16 numbers are one register or two."""
    return has_wide_floats(c) and c.lanes * c.element.bits == REGISTER_BITS


def wide_power(c: Context, x: str, y: str) -> str:
    """The instructions; gives the register of the result.

    Zeros and infinities give what they should by themselves, but for anything to 0 and 1 to infinity.
    """
    constants = _F32 if c.element == F32 else _F64
    one, size = c.constant(1.0), c.intrinsic("fabs", x)
    whole = c.compare("fcmp oeq", c.intrinsic("rint", y), y)
    without_sign = c.logic("or", whole, c.compare("fcmp oeq", size, c.constant(float("inf"))))
    base = c.select(without_sign, size, x)  # where it is still negative the power is nan
    power = _exponential(c, constants, *_product(c, constants, y, *_logarithm(c, constants, base)))

    is_one = c.logic("or", c.compare("fcmp oeq", base, one), c.compare("fcmp oeq", y, c.constant(0.0)))
    power = c.select(is_one, one, power)
    half = c.binary("fmul", y, c.constant(0.5))
    odd = c.logic("and", whole, c.compare("fcmp one", c.intrinsic("rint", half), half))
    return c.select(odd, c.intrinsic("copysign", power, x), power)


def _logarithm(c: Context, constants: _Constants, x: str) -> tuple[str, str]:
    """log(x) as the sum of two numbers, the second one at most 2^-11 of the first; nan for negative numbers.

    x = 2^e m with 1 <= m < 2; 1 / m is nearly k / 32 with 16 <= k <= 32, and r = m k / 32 - 1 is exact, since
    |r| <= 1/32. So log(x) = e log(2) - log(k / 32) + r - r^2 / 2 + r^3 p(r), of which the first parts of the first two
    are added exactly, and their sum is 0 or not smaller than r. k = 16 is 32 for m / 2.
    """
    m, e = wide_call(c, "getmant", x, control=FROM_ONE), wide_call(c, "getexp", x)
    near = wide_call(c, "rndscale", wide_call(c, "rcp14", m), control=5 << 4)
    r = c.intrinsic("fma", m, near, c.constant(-1.0))
    e = c.select(c.compare("fcmp oeq", near, c.constant(0.5)), c.binary("fadd", e, c.constant(1.0)), e)
    parts = zip(constants.parts(Decimal(2)), constants.tables, strict=True)
    start, low = (c.intrinsic("fma", e, c.constant(two), table_of_sixteen(c, near, table)) for two, table in parts)

    half = c.binary("fmul", r, c.constant(0.5))
    square = c.binary("fmul", half, r)
    beneath = c.intrinsic("fma", half, r, _negated(c, square))
    above = c.binary("fadd", start, r)
    lost = c.binary("fsub", r, c.binary("fsub", above, start))
    high = c.binary("fsub", above, square)
    lost_too = c.binary("fsub", c.binary("fsub", above, high), square)
    cube = c.binary("fmul", c.binary("fmul", r, r), r)
    tail = c.intrinsic("fma", cube, polynomial(c, constants.logarithm, r), c.binary("fsub", low, beneath))
    return high, c.binary("fadd", tail, c.binary("fadd", lost, lost_too))


def _product(c: Context, constants: _Constants, y: str, high: str, low: str) -> tuple[str, str]:
    """y (high + low) as the sum of two numbers. The second one may be nan where the first one is far too large."""
    product = c.binary("fmul", y, high)
    rest = c.intrinsic("fma", y, low, c.intrinsic("fma", y, high, _negated(c, product)))
    usual = c.compare("fcmp olt", c.intrinsic("fabs", product), c.constant(constants.limit))
    return within(c, product, -constants.limit, constants.limit), c.select(usual, rest, c.constant(0.0))


def _exponential(c: Context, constants: _Constants, x: str, rest: str) -> str:
    """e^(x + rest) = 2^n e^f."""
    n = c.intrinsic("rint", c.binary("fmul", c.binary("fadd", x, rest), c.constant(1.44269504088896341)))
    high, low = (c.constant(-part) for part in constants.ln2)
    f = c.binary("fadd", c.intrinsic("fma", n, high, x), c.intrinsic("fma", n, low, rest))
    return wide_call(c, "scalef", polynomial(c, (*constants.exponential, 1.0, 1.0), f), n)


def _negated(c: Context, value: str) -> str:
    return c.emitter.emit(f"fneg {c.text} {value}")
