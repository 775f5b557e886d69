"""The text of every operator of `tilewright.ir.operators` on scalars, in C.

What is one C operator or one function of the language prints as that; what needs an operand twice becomes a helper
function, defined once per text and named after the operator and its type (`tw_floordiv_i32`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.cached import cached_property
from tilewright.ir.dataclass import dataclass
from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import F32, ScalarType
from tilewright.kernel.c_dialect import (
    ADD,
    BITS,
    CHOICE,
    EQUALITY,
    LOGIC,
    MULTIPLY,
    PREFIX,
    RELATION,
    SHIFT,
    UNARY,
    Dialect,
    Helpers,
    Piece,
    cast_piece,
    literal,
    unsigned_of,
    unsigned_piece,
)

_SIGNS = {"add": ("+", ADD), "sub": ("-", ADD), "mul": ("*", MULTIPLY)}
_RELATIONS = {
    "eq": ("==", EQUALITY), "ne": ("!=", EQUALITY), "lt": ("<", RELATION),
    "le": ("<=", RELATION), "gt": (">", RELATION), "ge": (">=", RELATION),
}  # fmt: skip
_SAME_NAMES = """
    pow fma sqrt rsqrt exp exp2 log log2 log10 log1p expm1 cbrt hypot sin cos tan asin acos atan atan2 sinh cosh tanh
    asinh acosh atanh erf erfc copysign floor ceil trunc
"""
FUNCTIONS = {name: name for name in _SAME_NAMES.split()} | {"round": "rint", "abs": "fabs"}


@dataclass(frozen=True)
class Facts:
    """What is known of an operation's operands.

    `fits`: the result cannot leave the type; `plain_division`: dividend not negative and divisor positive;
    `right`: the value of a constant right operand.
    """

    fits: bool = False
    plain_division: bool = False
    right: int | None = None


_NO_FACTS = Facts()


@dataclass(frozen=True)
class _Context:
    """One operator being printed on operands of the scalar `type`."""

    dialect: Dialect
    helpers: Helpers
    operator: str
    type: ScalarType
    facts: Facts

    @cached_property
    def name(self) -> str:
        """The spelling of the type."""
        return self.dialect.type_name(self.type)

    @property
    def narrow(self) -> bool:
        """True for integers that C promotes to int."""
        return self.type.is_integer and self.type.bits < 32

    def back(self, piece: Piece) -> Piece:
        """A piece of the unsigned type of wrapping arithmetic, in the type again."""
        if self.type.kind == "u" and not self.narrow:
            return piece
        return Piece(cast_piece(self.dialect, self.type, piece).code, UNARY, piece)

    def unsigned(self, piece: Piece) -> Piece:
        """An operand in that type."""
        return unsigned_piece(self.dialect, self.type, piece)

    def function(self, name: str) -> str:
        """A math function's name for the type."""
        return name + (self.dialect.float_suffix if self.type == F32 else "")

    def number(self, value: int) -> str:
        """A small non-negative literal of the type."""
        return literal(self.dialect, value, self.type).code

    def helper(self, operands: Sequence[Piece], *lines: str) -> Piece:
        """A call of a helper function with these lines as its body, of parameters a, b, ..."""
        name = f"{PREFIX}{self.operator}_{self.type}"
        if name not in self.helpers:
            parameters = ", ".join(f"{self.name} {letter}" for letter in "abc"[: len(operands)])
            body = "\n".join(f"    {line}" for line in lines)
            self.helpers[name] = f"{self.dialect.function}{self.name} {name}({parameters}) {{\n{body}\n}}"
        return call(name, operands)


def call(function: str, operands: Sequence[Piece]) -> Piece:
    """`function(operands)`."""
    return Piece(f"{function}({', '.join(operand.code for operand in operands)})")


def infix(left: Piece, sign: str, right: Piece, level: int) -> Piece:
    """`left sign right`; the sign groups to the left. Mixtures of bitwise signs always get parentheses."""
    if level in (RELATION, EQUALITY):
        return Piece(f"{left.at(ADD)} {sign} {right.at(ADD)}", level)
    if level == BITS:
        return Piece(f"{left.at(UNARY)} {sign} {right.at(UNARY)}", level)
    return Piece(f"{left.at(level)} {sign} {right.at(level + 1)}", level)


def operator_text(
    dialect: Dialect,
    helpers: Helpers,
    operator: str,
    type_: ScalarType,
    operands: Sequence[Piece],
    facts: Facts = _NO_FACTS,
) -> Piece:
    """Print one operator on scalar operands of `type_` (of `select`: the type of its branches).

    Raises:
        TypeError: for an operator that is unknown or not defined on the type, complex ones included.
    """
    entry = OPERATORS.get(operator)
    if entry is None or type_.kind not in entry.kinds or type_.kind == "c":
        raise TypeError(f"operator {operator} is not defined on {type_} in a kernel")
    if len(operands) != entry.arity:
        raise TypeError(f"operator {operator} takes {entry.arity} operands, not {len(operands)}")
    context = _Context(dialect, helpers, operator, type_, facts)
    return _print(context, list(operands))


def _print(c: _Context, operands: list[Piece]) -> Piece:
    operator = c.operator
    if operator == "select":
        condition, then, otherwise = operands
        return Piece(f"{condition.at(LOGIC)} ? {then.at(LOGIC)} : {otherwise.at(CHOICE)}", CHOICE)
    if operator in _RELATIONS:
        sign, level = _RELATIONS[operator]
        return infix(operands[0], sign, operands[1], level)
    if c.type.kind == "b":
        return _boolean(c, operands)
    if c.type.is_float:
        return _floating(c, operands)
    return _INTEGER[operator](c, operands)


# --- bool -------------------------------------------------------------------------------------------------------------


def _boolean(c: _Context, operands: list[Piece]) -> Piece:
    if c.operator == "not":
        return Piece(f"!{operands[0].at(UNARY)}", UNARY)
    if c.operator == "xor":
        return infix(operands[0], "!=", operands[1], EQUALITY)
    sign = "&&" if c.operator in ("and", "min") else "||"
    sides = [piece.code if piece.chain == sign else piece.at(EQUALITY) for piece in operands]
    return Piece(f" {sign} ".join(sides), LOGIC, chain=sign)


# --- floats -----------------------------------------------------------------------------------------------------------


def _floating(c: _Context, operands: list[Piece]) -> Piece:
    match c.operator:
        case "add" | "sub" | "mul":
            sign, level = _SIGNS[c.operator]
            return infix(operands[0], sign, operands[1], level)
        case "div":
            return infix(operands[0], "/", operands[1], MULTIPLY)
        case "neg":
            return _negated(operands[0])
        case "min" | "max":  # a nan on the left is chosen by a != a, one on the right because a comparison fails
            sign = "<" if c.operator == "min" else ">"
            return c.helper(operands, f"return (a {sign} b || a != a) ? a : b;")
        case "mod":
            return _float_modulo(c, operands)
        case "floordiv":
            return _float_floor_divide(c, operands)
        case "isnan" | "isinf":
            return Piece(f"{call(c.operator, operands).code} != 0", EQUALITY)
    return call(c.function(FUNCTIONS[c.operator]), operands)


def _negated(operand: Piece) -> Piece:
    code = operand.at(UNARY)
    return Piece(f"-({code})" if code.startswith("-") else f"-{code}", UNARY)


def _float_modulo(c: _Context, operands: list[Piece]) -> Piece:
    zero = c.number(0)
    return c.helper(
        operands,
        f"const {c.name} remainder = {c.function('fmod')}(a, b);",
        f"if (remainder == {zero}) return {c.function('copysign')}({zero}, b);",
        f"return (b < {zero}) != (remainder < {zero}) ? remainder + b : remainder;",
    )


def _float_floor_divide(c: _Context, operands: list[Piece]) -> Piece:
    """Python's and NumPy's: (a - fmod) / b is nearly an integer; round it, one below it where the signs differ."""
    zero, one = c.number(0), c.number(1)
    return c.helper(
        operands,
        f"if (b == {zero}) return a / b;",
        f"const {c.name} remainder = {c.function('fmod')}(a, b);",
        f"{c.name} quotient = (a - remainder) / b;",
        f"if (remainder != {zero} && (b < {zero}) != (remainder < {zero})) quotient -= {one};",
        f"if (quotient == {zero}) return {c.function('copysign')}({zero}, a / b);",
        f"const {c.name} below = {c.function('floor')}(quotient);",
        f"return quotient - below > {literal(c.dialect, 0.5, c.type).code} ? below + {one} : below;",
    )


# --- integers ---------------------------------------------------------------------------------------------------------


def _arithmetic(c: _Context, operands: list[Piece]) -> Piece:
    sign, level = _SIGNS[c.operator]
    if c.facts.fits and not c.narrow:
        return infix(operands[0], sign, operands[1], level)
    return c.back(infix(c.unsigned(operands[0]), sign, c.unsigned(operands[1]), level))


def _negate(c: _Context, operands: list[Piece]) -> Piece:
    if c.facts.fits and not c.narrow and c.type.kind == "i":
        return _negated(operands[0])
    return c.back(_negated(c.unsigned(operands[0])))


def _absolute(c: _Context, operands: list[Piece]) -> Piece:
    if c.type.kind == "u":
        return operands[0]
    wide = c.dialect.type_name(unsigned_of(c.type))
    return c.helper(operands, f"return ({c.name})(a < 0 ? -({wide})a : ({wide})a);")


def _divide(c: _Context, operands: list[Piece]) -> Piece:
    """// and %: plain where C means the same, shift or mask for powers of two, else a function."""
    is_mod = c.operator == "mod"
    divisor = c.facts.right
    if c.facts.plain_division or (c.type.kind == "u" and divisor):
        return infix(operands[0], "%" if is_mod else "/", operands[1], MULTIPLY)
    if divisor is not None and divisor > 0 and divisor.bit_count() == 1:
        if is_mod:
            return infix(operands[0], "&", literal(c.dialect, divisor - 1, c.type), BITS)
        return Piece(f"{operands[0].at(UNARY)} >> {divisor.bit_length() - 1}", SHIFT)
    if c.type.kind == "u":
        sign = "%" if is_mod else "/"
        return c.helper(operands, f"return b == 0 ? {c.number(0)} : ({c.name})(a {sign} b);")
    if is_mod:
        return c.helper(
            operands,
            "if (b == 0 || b == -1) return 0;",
            f"const {c.name} remainder = ({c.name})(a % b);",
            f"return remainder != 0 && (remainder ^ b) < 0 ? ({c.name})(remainder + b) : remainder;",
        )
    wide = c.dialect.type_name(unsigned_of(c.type))
    return c.helper(
        operands,
        "if (b == 0) return 0;",
        f"if (b == -1) return ({c.name})(-({wide})a);  // the least value stays",
        f"const {c.name} quotient = ({c.name})(a / b);",
        f"return quotient * b != a && (a ^ b) < 0 ? ({c.name})(quotient - 1) : quotient;",
    )


def _extremum(c: _Context, operands: list[Piece]) -> Piece:
    if c.dialect.own_extrema:  # beside shorter code: Intel's compiler crashes on many comparisons of products in a loop
        return c.helper(operands, f"return {c.operator}(a, b);")
    return c.helper(operands, f"return a {'<' if c.operator == 'min' else '>'} b ? a : b;")


def _bitwise(c: _Context, operands: list[Piece]) -> Piece:
    return infix(operands[0], {"and": "&", "or": "|", "xor": "^"}[c.operator], operands[1], BITS)


def _invert(c: _Context, operands: list[Piece]) -> Piece:
    inverted = Piece(f"~{operands[0].at(UNARY)}", UNARY)
    return cast_piece(c.dialect, c.type, inverted) if c.narrow else inverted


def _shift(c: _Context, operands: list[Piece]) -> Piece:
    """The amount modulo the width; a left shift is done unsigned, a right one keeps the sign of a signed operand."""
    width = c.type.bits
    if c.facts.right is not None:
        amount = str(c.facts.right % width)
    else:
        amount = f"({operands[1].at(UNARY)} & {width - 1})"
    if c.operator == "shl":
        return c.back(Piece(f"{c.unsigned(operands[0]).at(UNARY)} << {amount}", SHIFT))
    return Piece(f"{operands[0].at(UNARY)} >> {amount}", SHIFT)


_INTEGER: dict[str, Callable[[_Context, list[Piece]], Piece]] = {
    "add": _arithmetic, "sub": _arithmetic, "mul": _arithmetic, "neg": _negate, "abs": _absolute,
    "floordiv": _divide, "mod": _divide, "min": _extremum, "max": _extremum,
    "and": _bitwise, "or": _bitwise, "xor": _bitwise, "not": _invert, "shl": _shift, "shr": _shift,
}  # fmt: skip
