"""The scalar types of the language and what each device may assume about them."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from tilewright.ir.dataclass import dataclass


@dataclass(frozen=True)
class ScalarType:
    """A scalar type: `name` is its spelling in printed IR, `kind` one of b, i, u, f, c, `bits` its size in memory."""

    name: str
    kind: str
    bits: int

    @property
    def bytes(self) -> int:
        """Size of one element in memory, in bytes."""
        return max(8, self.bits) // 8

    @property
    def is_float(self) -> bool:
        """True for real floating-point types."""
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        """True for complex types."""
        return self.kind == "c"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers (not for bool)."""
        return self.kind in "iu"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that holds this type; bf16 needs the package ml_dtypes."""
        if self.name == "bf16":
            try:
                import ml_dtypes
            except ImportError as error:
                raise TypeError("bf16 arrays need the package ml_dtypes (pip install ml_dtypes)") from error
            dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return dtype
        return _DTYPES[self.name]

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


BOOL = ScalarType("bool", "b", 1)
I8, I16, I32, I64 = (ScalarType(f"i{n}", "i", n) for n in (8, 16, 32, 64))
U8, U16, U32, U64 = (ScalarType(f"u{n}", "u", n) for n in (8, 16, 32, 64))
F16 = ScalarType("f16", "f", 16)
BF16 = ScalarType("bf16", "f", 16)
F32 = ScalarType("f32", "f", 32)
F64 = ScalarType("f64", "f", 64)
C64 = ScalarType("c64", "c", 64)
C128 = ScalarType("c128", "c", 128)

SCALAR_TYPES: dict[str, ScalarType] = {
    t.name: t for t in (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64, C64, C128)
}

_NUMPY_NAMES = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128",
}  # fmt: skip
_DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(numpy_name) for name, numpy_name in _NUMPY_NAMES.items()}
_FROM_NUMPY = {dtype: SCALAR_TYPES[name] for name, dtype in _DTYPES.items()}


def scalar_type_of(dtype: object) -> ScalarType:
    """The scalar type of a NumPy dtype, a dtype name, or one of our own names (`"f32"`).

    Raises:
        TypeError: if the dtype has no counterpart (object, strings, dates, longdouble).
    """
    if isinstance(dtype, ScalarType):
        return dtype
    if isinstance(dtype, str) and dtype in SCALAR_TYPES:
        return SCALAR_TYPES[dtype]
    try:
        numpy_dtype = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError as error:
        raise TypeError(f"{reprlib.repr(dtype)} is no dtype; supported: {', '.join(SCALAR_TYPES)}") from error
    native = numpy_dtype.newbyteorder("=")
    if native in _FROM_NUMPY:
        return _FROM_NUMPY[native]
    if numpy_dtype.name == "bfloat16":
        return BF16
    raise TypeError(f"dtype {numpy_dtype} is not supported; supported: {', '.join(SCALAR_TYPES)}")


def real_of(scalar: ScalarType) -> ScalarType:
    """The type of the real part: f32 for c64, f64 for c128, otherwise the type itself."""
    return {"c64": F32, "c128": F64}.get(scalar.name, scalar)


def compute_type(scalar: ScalarType) -> ScalarType:
    """The type in which values are computed on: f16 and bf16 are carried in f32 and rounded when stored."""
    return F32 if scalar.name in ("f16", "bf16") else scalar


def wrapped_i64(value: int) -> np.int64:
    """An integer of any size as an i64, as arithmetic of i64 would have made it.

    >>> int(wrapped_i64(2**63 + 5)) == 5 - 2**63
    True
    """
    return np.int64((value + 2**63) % 2**64 - 2**63)
