"""Scalar simplification: constants, exact identities, casts.

Only what gives the same bits: x*1 is x for every float, but x + 0.0 is not x for x = -0.0, and x*0 is not 0 for nan.
Operations on f16 and bf16 are not folded, since their values are carried in f32 until they are stored.
"""

from __future__ import annotations

import cmath
import math

import numpy as np

from tilewright.ir.nodes import Alias, Apply, Atom, Body, Cast, Literal, SizeValue, Type, Variable
from tilewright.ir.operators import OPERATORS, result_type
from tilewright.ir.scalars import BF16, BOOL, F16, I64, ScalarType
from tilewright.rewrite.rule import Declined, Place, no_match, rule

_CARRIED_WIDE = (F16, BF16)


def literal(value: bool | int | float | complex, scalar: ScalarType) -> Literal:
    """A literal with the value as a Python scalar of the type's kind."""
    convert = {"b": bool, "i": int, "u": int, "f": float, "c": complex}[scalar.kind]
    return Literal(convert(value), scalar)


def same_atom(left: Atom, right: Atom) -> bool:
    """Whether two atoms are the same variable or literals of the same bits."""
    if isinstance(left, Literal) and isinstance(right, Literal):
        return (repr(left.value), left.scalar) == (repr(right.value), right.scalar)
    return isinstance(left, Variable) and isinstance(right, Variable) and left.name == right.name


def is_constant(atom: Atom, value: float) -> bool:
    """Whether an atom is this constant; for a float, 0 means 0.0 and not -0.0."""
    if not isinstance(atom, Literal) or isinstance(atom.value, bool) or atom.value != value:
        return False
    return not isinstance(atom.value, float) or math.copysign(1.0, atom.value) == math.copysign(1.0, value)


@rule("simplification", Alias)
def copy_propagation(at: Place) -> Body | Declined:
    """x = y; e  =>  e[x := y]"""
    return at.bind(at.expect(Alias).atom)


@rule("simplification", Apply)
def constant_folding(at: Place) -> Body | Declined:
    """operator c1 ... cn  =>  its value, for constants"""
    apply = at.expect(Apply)
    constants = [one for one in apply.operands if isinstance(one, Literal)]
    if len(constants) < len(apply.operands):
        return no_match("an operand is not a constant")
    scalars = tuple(one.scalar for one in constants)
    if any(one in _CARRIED_WIDE for one in scalars):
        return Declined(f"{scalars[-1]} values are carried in f32 until they are stored")
    with np.errstate(all="ignore"):
        arrays = [np.array([one.value], dtype=one.scalar.numpy) for one in constants]
        result = result_type(apply.operator, scalars)
        value = np.asarray(OPERATORS[apply.operator].meaning(*arrays)).astype(result.numpy)[0].item()
    if isinstance(value, float | complex) and not cmath.isfinite(value):
        return Declined(f"{apply.operator} of these constants is {value}, which is kept as it was written")
    return at.bind(literal(value, result))


def _integer_identity(operator: str, x: Atom, y: Atom, scalar: ScalarType) -> Atom | None:
    zero = literal(0, scalar)
    match operator:
        case "add" | "or" | "xor" if is_constant(x, 0):
            return y
        case "add" | "sub" | "or" | "xor" | "shl" | "shr" if is_constant(y, 0):
            return x
        case "mul" | "and" if is_constant(x, 0) or is_constant(y, 0):
            return zero
        case "sub" | "xor" if same_atom(x, y):
            return zero
        case "and" | "or" if same_atom(x, y):
            return x
        case "floordiv" if is_constant(y, 1):
            return x
        case "mod" if is_constant(y, 1):
            return zero
    return None


def _real_identity(operator: str, x: Atom, y: Atom) -> Atom | None:
    match operator:
        case "mul" if is_constant(x, 1):
            return y
        case "mul" | "div" | "pow" if is_constant(y, 1):
            return x
        case "sub" if is_constant(y, 0):
            return x
        case "add" if is_constant(y, -0.0):
            return x
        case "add" if is_constant(x, -0.0):
            return y
        case "min" | "max" if same_atom(x, y):
            return x
        case "lt" | "gt" if same_atom(x, y):
            return Literal(False, BOOL)
    return None


def _logical_identity(operator: str, x: Atom, y: Atom) -> Atom | None:
    if isinstance(x, Literal):
        x, y = y, x
    if same_atom(x, y) and operator in ("and", "or", "min", "max"):
        return x
    if isinstance(y, Literal):
        match operator, bool(y.value):
            case ("and", True) | ("or", False) | ("xor", False):
                return x
            case ("and", False) | ("or", True):
                return y
    return None


@rule("simplification", Apply)
def algebraic_identity(at: Place) -> Body | Declined:
    """x * 1  =>  x; and the like, where the bits are the same: x+0 for integers only, x-0.0, min x x, x and true"""
    apply = at.expect(Apply)
    if len(apply.operands) != 2:
        return no_match("the operator does not take two operands")
    x, y = apply.operands
    scalar = x.type.element
    value: Atom | None = None
    if scalar == BOOL:
        value = _logical_identity(apply.operator, x, y)
    elif not scalar.is_complex:
        value = _integer_identity(apply.operator, x, y, scalar) if scalar.is_integer else None
        value = value if value is not None else _real_identity(apply.operator, x, y)
    if value is None and scalar.is_integer and same_atom(x, y) and apply.operator in ("eq", "ne", "le", "ge"):
        value = Literal(apply.operator != "ne", BOOL)
    if value is None:
        if apply.operator == "add" and scalar.is_float and (is_constant(x, 0.0) or is_constant(y, 0.0)):
            return Declined("x + 0.0 is not x: -0.0 + 0.0 is 0.0")
        return no_match("no identity holds for these operands")
    return at.bind(value)


@rule("simplification", Apply)
def double_inverse(at: Place) -> Body | Declined:
    """f (f x)  =>  x for f in neg, not, conj"""
    apply = at.expect(Apply)
    if apply.operator not in ("neg", "not", "conj"):
        return no_match(f"{apply.operator} is not its own inverse")
    inner = at.definition(apply.operands[0])
    if not isinstance(inner, Apply) or inner.operator != apply.operator:
        return no_match(f"the operand is not a {apply.operator}")
    return at.bind(inner.operands[0])


@rule("simplification", Apply)
def select_known(at: Place) -> Body | Declined:
    """select true x y  =>  x; select false x y  =>  y; select c x x  =>  x"""
    apply = at.expect(Apply)
    if apply.operator != "select":
        return no_match("not a select")
    condition, then, otherwise = apply.operands
    if same_atom(then, otherwise):
        return at.bind(then)
    if not isinstance(condition, Literal):
        return no_match("the condition is not a constant")
    return at.bind(then if condition.value else otherwise)


@rule("simplification", SizeValue)
def constant_size(at: Place) -> Body | Declined:
    """size value of a constant  =>  the constant"""
    value = at.expect(SizeValue).size.constant
    return no_match("the size is not a constant") if value is None else at.bind(Literal(value, I64))


@rule("simplification", Cast)
def cast_same(at: Place) -> Body | Declined:
    """cast t x  =>  x, if x has type t"""
    cast = at.expect(Cast)
    return at.bind(cast.operand) if cast.operand.type == Type(cast.scalar) else no_match("the types differ")


@rule("simplification", Cast)
def cast_constant(at: Place) -> Body | Declined:
    """cast t c  =>  the constant of type t, if t can hold it"""
    cast = at.expect(Cast)
    if not isinstance(cast.operand, Literal):
        return no_match("the operand is not a constant")
    if cast.scalar in _CARRIED_WIDE or cast.operand.scalar in _CARRIED_WIDE:
        return Declined("f16 and bf16 values are carried in f32, so the constant would lose or gain a rounding")
    value = cast.operand.value
    if cast.scalar.is_integer and isinstance(value, float | complex) and not _fits(value, cast.scalar):
        return Declined(f"{value} is outside {cast.scalar}")
    with np.errstate(all="ignore"):
        source = np.array([value], dtype=cast.operand.scalar.numpy)
        target = source.real if cast.operand.scalar.is_complex and not cast.scalar.is_complex else source
        result = target.astype(cast.scalar.numpy)[0].item()
    if isinstance(result, float | complex) and not cmath.isfinite(result):
        return Declined(f"{value} becomes {result} as {cast.scalar}, which is kept as it was written")
    return at.bind(literal(result, cast.scalar))


def _fits(value: float | complex, scalar: ScalarType) -> bool:
    if not cmath.isfinite(value):
        return False
    low = -(1 << (scalar.bits - 1)) if scalar.kind == "i" else 0
    return low <= math.trunc(value.real) < low + (1 << scalar.bits)


@rule("simplification", Cast)
def cast_of_cast(at: Place) -> Body | Declined:
    """cast t (cast u x)  =>  cast t x, if u holds every value of x's type and x is an integer if t is one"""
    cast = at.expect(Cast)
    inner = at.definition(cast.operand)
    if not isinstance(inner, Cast):
        return no_match("the operand is not a cast")
    source = inner.operand.type.element
    if not _widens(source, inner.scalar):
        return Declined(f"the inner cast from {source} to {inner.scalar} may change the value")
    if inner.scalar.is_float and not cast.scalar.is_float:
        return Declined(f"a float outside {cast.scalar} converts differently from {source} and from {inner.scalar}")
    return at.become(Cast(cast.scalar, inner.operand))


def _widens(source: ScalarType, target: ScalarType) -> bool:
    if source == BOOL and target.is_integer:
        return True
    if source.is_float and target.is_float:
        return source not in _CARRIED_WIDE and target not in _CARRIED_WIDE and source.bits <= target.bits
    same = source.kind == target.kind and source.bits <= target.bits
    signed = source.kind == "u" and target.kind == "i" and source.bits < target.bits
    return source.is_integer and target.is_integer and (same or signed)
