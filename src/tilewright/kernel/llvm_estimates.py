"""AVX-512's instructions for floats that no others have: estimates of reciprocals, exponents, fractions and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.ir.scalars import F32
from tilewright.kernel.llvm_emitter import literal, scalar_spelling, splat, vector_of

if TYPE_CHECKING:
    from tilewright.kernel.llvm_operators import Context

FROM_THREE_QUARTERS = 0b1011
"""Fractions from 3/4 to 3/2; nan for negative numbers."""
FROM_ONE = 0b1100
"""Fractions from 1 to 2; nan for negative numbers."""
REGISTER_BITS = 512
_ROUNDED_AS_SET = ("i32", "4")


def has_wide_floats(c: Context) -> bool:
    """Whether the processor has these instructions for vectors of this type."""
    bits, target = c.lanes * c.element.bits, c.emitter.target
    fits = bits == REGISTER_BITS or (target.has("avx512vl") and bits in (128, 256))
    return fits and target.is_x86 and target.has("avx512f")


def wide_call(c: Context, name: str, *operands: str, control: int | None = None) -> str:
    """One of these instructions in all lanes:

    - `rsqrt14` and `rcp14`: within 2^-14 of 1 / sqrt(x) and 1 / x;
    - `getexp`: floor(log2(|x|)) as a float; `getmant`: the fraction, in the interval that `control` names;
    - `rndscale`: the nearest multiple of 2^-n with n = `control` / 16;
    - `scalef`: x * 2^floor(y), rounded once.
    """
    bits = c.lanes * c.element.bits
    kind = "ps" if c.element == F32 else "pd"
    mask = f"i{max(8, c.lanes)}"
    estimate = name in ("rsqrt14", "rcp14")
    given = [(c.text, one) for one in operands]
    if control is not None:
        given.append(("i32", str(control)))
    given += [(c.text, "zeroinitializer"), (mask, "-1")]
    if bits == REGISTER_BITS and not estimate:
        given.append(_ROUNDED_AS_SET)
    types = ", ".join(f"{type_} immarg" if type_ == "i32" else type_ for type_, _ in given)
    full = f"llvm.x86.avx512.{'' if estimate else 'mask.'}{name}.{kind}.{bits}"
    c.emitter.declarations.setdefault(full, f"declare {c.text} @{full}({types})")
    return c.emitter.call(full, c.text, *given)


def table_of_sixteen(c: Context, places: str, table: Sequence[float]) -> str:
    """In each lane of 512 bits the one of 16 numbers that the first four bits of the fraction of a float say."""
    integer, zeros = ("i32", 19) if c.element == F32 else ("i64", 48)
    whole = vector_of(integer, c.lanes)
    bits = c.emitter.emit(f"bitcast {c.text} {places} to {whole}")
    index = (whole, c.emitter.emit(f"lshr {whole} {bits}, {splat(str(zeros), integer, c.lanes)}"))
    scalar = scalar_spelling(c.element)
    numbers = [f"{scalar} {literal(one, c.element)}" for one in table]
    parts = [(c.text, f"<{', '.join(numbers[start : start + c.lanes])}>") for start in range(0, 16, c.lanes)]
    if len(parts) == 1:
        return c.emitter.call("llvm.x86.avx512.permvar.sf.512", c.text, *parts, index)
    return c.emitter.call("llvm.x86.avx512.vpermi2var.pd.512", c.text, parts[0], index, parts[1])
