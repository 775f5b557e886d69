"""Dtypes as users write them.

>>> type_named("f32"), type_named("float32"), type_named("<f4")
(f32, f32, f32)
"""

from __future__ import annotations

from tilewright.ir.scalars import ScalarType, scalar_type_of

AMBIGUOUS = {"i8": ("int8", "int64"), "u8": ("uint8", "uint64")}
"""Dtype names that mean eight bits in the language and eight bytes in NumPy."""


def type_named(dtype: object, what: str = "") -> ScalarType:
    """The scalar type that users mean by a dtype or its name; `what` it is for begins the errors.

    Raises:
        ValueError: for the text "i8" and "u8", whose meaning here is not NumPy's.
        TypeError: for dtypes that have no counterpart.
    """
    before = f"{what}: " if what else ""
    if isinstance(dtype, str) and dtype in AMBIGUOUS:
        bits, bytes_ = AMBIGUOUS[dtype]
        raise ValueError(
            f"{before}dtype {dtype!r} is {bytes_} in NumPy and {bits} as tw.{dtype}; write {bits!r} or {bytes_!r}"
        )
    try:
        return scalar_type_of(dtype)
    except TypeError as error:
        raise TypeError(f"{before}{error}") from error
