"""AVX-512's instructions for floats that no others have: estimates of reciprocals, exponents and fractions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.scalars import F32

if TYPE_CHECKING:
    from tilewright.kernel.llvm_operators import Context

_GETMANT_FROM_THREE_QUARTERS = 0b1011  # fractions from 3/4 to 3/2; nan for negative numbers


def has_wide_floats(c: Context) -> bool:
    """Whether the processor has these instructions for vectors of this type."""
    bits = c.lanes * c.element.bits
    target = c.emitter.target
    return target.is_x86 and target.has("avx512f") and (bits == 512 or (target.has("avx512vl") and bits in (128, 256)))


def wide_call(c: Context, name: str, *operands: str) -> str:
    """One of `rsqrt14` (within 2^-14 of 1 / sqrt(x)), `getexp` (floor(log2(|x|)) as a float), `getmant` (the fraction,
    from 3/4 to 3/2, with nan for negative numbers) and `scalef` (x * 2^floor(y), rounded once), in all lanes.
    """
    bits = c.lanes * c.element.bits
    kind = "ps" if c.element == F32 else "pd"
    mask = f"i{max(8, c.lanes)}"
    given = [(c.text, one) for one in operands]
    if name == "getmant":
        given.append(("i32", str(_GETMANT_FROM_THREE_QUARTERS)))
    given += [(c.text, "zeroinitializer"), (mask, "-1")]
    if bits == 512 and name != "rsqrt14":
        given.append(("i32", "4"))  # rounding as it is set
    masked = "" if name == "rsqrt14" else "mask."
    types = ", ".join(f"{type_} immarg" if type_ == "i32" else type_ for type_, _ in given)
    full = f"llvm.x86.avx512.{masked}{name}.{kind}.{bits}"
    c.emitter.declarations.setdefault(full, f"declare {c.text} @{full}({types})")
    return c.emitter.call(full, c.text, *given)
