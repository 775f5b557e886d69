"""What differs between the C-family languages, and the pieces of text of which expressions are put together."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import F32, ScalarType
from tilewright.kernel.ir import Buffer, ValueType, VectorType, element_of

# C's precedence levels, the tighter the higher.
PRIMARY, UNARY, MULTIPLY, ADD, SHIFT, RELATION, EQUALITY, BITS, LOGIC, CHOICE = range(10, 0, -1)
PREFIX = "tw_"  # of every helper function and type that the printers define


@dataclass(frozen=True)
class Piece:
    """The text of an expression and how tightly it binds.

    `unsigned` is the same value computed modulo 2**width in the unsigned type, where this piece is a cast of that; a
    chain of wrapping operations needs a cast only at its leaves and its root. `chain` is the sign of a && b or a || b.
    """

    code: str
    level: int = PRIMARY
    unsigned: Piece | None = None
    chain: str = ""

    def at(self, level: int) -> str:
        """The text, in parentheses if it binds less tightly than `level`."""
        return self.code if self.level >= level else f"({self.code})"


Helpers = dict[str, str]
"""Helper functions that a text needs: name to definition, each after those that it uses."""


@dataclass(frozen=True)
class Dialect:
    """One C-family language.

    `types` spells the types of values, `function` begins the definition of a helper function, `suffixes` end integer
    literals, `float_suffix` ends the f32 versions of math functions. `lane(code, lane, element)` reads a lane of a
    vector, `vector(name, type, parts)` builds one. `load` and `store` print an access to a buffer, given its
    spelling and its index. `atomic` names the function of an atomic update. `coherent` is a pointer to a buffer's
    elements through which all accesses are made as they stand; `ordered` defines the functions of ordered accesses.
    `own_extrema`: `min` and `max` of all types of integers are functions of the language. `unrolls_calls`: loops that
    are to be unrolled are so although they call functions.
    """

    name: str
    types: Mapping[str, str]
    function: str
    suffixes: Mapping[str, str]
    float_suffix: str
    special: Callable[[float, ScalarType], Piece]
    vector_name: Callable[[VectorType], str]
    lane: Callable[[str, int, ScalarType], Piece]
    vector: Callable[[VectorType, Sequence[Piece]], Piece]
    native_vectors: bool
    own_extrema: bool
    unrolls_calls: bool
    load: Callable[[Helpers, Access], Piece]
    store: Callable[[Helpers, Access, Piece], str]
    thread: str
    block: str
    barrier: str
    atomic: Callable[[str], str]
    coherent: Callable[[Buffer], str]
    ordered: Mapping[str, str]

    def type_name(self, type_: ValueType) -> str:
        """The spelling of a type of values.

        Raises:
            TypeError: for complex types, for f16 and bf16 (values of which do not exist in kernels), and for vectors
                of a number of lanes that the languages do not have.
        """
        element = element_of(type_)
        if element.name not in self.types:
            raise TypeError(f"values of type {element} do not exist in the kernel language ({self.name} printer)")
        if isinstance(type_, VectorType):
            if type_.lanes not in (2, 4, 8, 16):
                raise TypeError(f"vectors have 2, 4, 8 or 16 lanes in {self.name}, not {type_.lanes}")
            return self.vector_name(type_)
        return self.types[element.name]


@dataclass(frozen=True)
class Access:
    """A load or store to be printed: the buffer and its spelling, the index, the type of the value, the promises."""

    buffer: Buffer
    name: str
    index: Piece
    type: ValueType
    aligned: bool

    @property
    def pointer(self) -> str:
        """The address of the first element, as a C expression of level ADD."""
        return self.name if self.index.code in ("0", "0L", "0ll") else f"{self.name} + {self.index.at(MULTIPLY)}"


def listed(parts: Sequence[str]) -> str:
    """The parts with commas between them, on lines of their own where they are too many for one."""
    joined = ", ".join(parts)
    if len(joined) <= 90:
        return joined
    return "\n        " + ",\n        ".join(parts)


def unsigned_of(scalar: ScalarType) -> ScalarType:
    """The type in which wrapping arithmetic on an integer type is done; narrow types compute in 32 bits."""
    bits = max(32, scalar.bits)
    return ScalarType(f"u{bits}", "u", bits)


def cast_piece(dialect: Dialect, scalar: ScalarType, operand: Piece) -> Piece:
    """`(type)operand`."""
    code = operand.at(UNARY)
    return Piece(f"({dialect.type_name(scalar)}){code}", UNARY)


def unsigned_piece(dialect: Dialect, scalar: ScalarType, operand: Piece) -> Piece:
    """The operand in the unsigned type of wrapping arithmetic."""
    if operand.unsigned is not None:
        return operand.unsigned
    if scalar.kind == "u" and scalar.bits >= 32:
        return operand
    return cast_piece(dialect, unsigned_of(scalar), operand)


# --- literals ---------------------------------------------------------------------------------------------------------


def literal(dialect: Dialect, value: int | float | bool, scalar: ScalarType) -> Piece:
    """A constant, exactly: integers wrapped to the width, floats in decimal if that is exact, else in hexadecimal."""
    dialect.type_name(scalar)
    if scalar.kind == "b":
        return Piece("true" if value else "false")
    if scalar.is_float:
        return _float_literal(dialect, float(value), scalar)
    if value != int(value):
        raise TypeError(f"the constant {value} is not of the integer type {scalar}")
    return _integer_literal(dialect, int(value), scalar)


def _integer_literal(dialect: Dialect, value: int, scalar: ScalarType) -> Piece:
    value &= (1 << scalar.bits) - 1
    suffix = dialect.suffixes.get(scalar.name, "")
    if scalar.kind == "i" and value >> (scalar.bits - 1):
        value -= 1 << scalar.bits
        if value == -(1 << (scalar.bits - 1)) and scalar.bits >= 32:
            return Piece(f"-{-(value + 1)}{suffix} - 1", ADD)  # its absolute value is no literal of the type
        return Piece(f"-{-value}{suffix}", UNARY)
    return Piece(f"{value}{suffix}", PRIMARY, Piece(f"{value}{dialect.suffixes[unsigned_of(scalar).name]}"))


def round_to_f32(value: float) -> float:
    """The nearest f32, infinite where the value is too large."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _float_literal(dialect: Dialect, value: float, scalar: ScalarType) -> Piece:
    number = round_to_f32(value) if scalar == F32 else value
    if not math.isfinite(number):
        return dialect.special(number, scalar)
    decimal = repr(number)
    exact = len(decimal) <= 12 and Decimal(decimal) == Decimal(number)
    code = (decimal if exact else number.hex()) + ("f" if scalar == F32 else "")
    return Piece(code, UNARY if code.startswith("-") else PRIMARY)
