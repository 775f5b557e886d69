"""The scalar half of the random program generator: tame random scalar expressions, and operators to fold with.

Floats stay within `LIMIT` in absolute value, and no discontinuous operation is applied to them, so that two correct
evaluations of a program in different orders agree up to rounding. Integers wrap around, which is exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tilewright.ir.builder import Builder
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Lambda, Literal, Type, Variable
from tilewright.ir.scalars import BOOL, F32, F64, I32, I64, ScalarType, real_of

LIMIT = 8.0
SCALARS = (BOOL, I32, I64, F32, F64)
INTEGERS = (I32, I64)
FLOATS = (F32, F64)

Pick = Callable[[ScalarType], Atom]


def random_literal(random: Random, scalar: ScalarType) -> Literal:
    """A small constant; floats are multiples of 1/4."""
    if scalar == BOOL:
        return Literal(random.random() < 0.5, scalar)
    if scalar.is_integer:
        return Literal(random.randint(-3 if scalar.kind == "i" else 0, 3), scalar)
    if scalar.is_complex:
        return Literal(complex(random.randint(-8, 8) / 4, random.randint(-8, 8) / 4), scalar)
    return Literal(random.randint(-8, 8) / 4, scalar)


def clamp(b: Builder, atom: Atom) -> Atom:
    """A float cut to [-LIMIT, LIMIT], a complex number drawn into the unit circle; another scalar as it is."""
    scalar = atom.type.element
    if scalar.is_complex:
        return within_one(b, atom)
    if not scalar.is_float:
        return atom
    return b.apply("max", b.apply("min", atom, Literal(LIMIT, scalar)), Literal(-LIMIT, scalar))


def within_one(b: Builder, atom: Atom) -> Atom:
    """A continuous function of a float or complex number with absolute values of at most 1."""
    scalar = atom.type.element
    if not scalar.is_complex:
        return b.apply("tanh", atom)
    length = b.apply("abs", atom)
    one = Literal(1.0, real_of(scalar))
    return b.apply("mul", atom, b.cast(scalar, b.apply("div", one, b.apply("add", one, length))))


def random_scalar(
    b: Builder, random: Random, pick: Pick, scalar: ScalarType, scalars: Sequence[ScalarType] = SCALARS
) -> Atom:
    """Emit one random operation (or a few) that gives a tame value of this type; `pick` supplies operands of types
    among `scalars`.
    """
    integers = [one for one in scalars if one.is_integer]
    if scalar == BOOL:
        return _random_bool(b, random, pick, integers)
    if scalar.is_integer:
        return _random_integer(b, random, pick, scalar, integers)
    if scalar.is_complex:
        return _random_complex(b, random, pick, scalar, scalars)
    return _random_float(b, random, pick, scalar, scalars)


def _random_bool(b: Builder, random: Random, pick: Pick, integers: Sequence[ScalarType]) -> Atom:
    choice = random.randrange(4)
    if choice == 0:
        return b.apply("not", pick(BOOL))
    if choice == 1:
        return b.apply(random.choice(("and", "or", "xor", "eq", "ne", "le", "max")), pick(BOOL), pick(BOOL))
    integer = random.choice(integers)
    return b.apply(random.choice(("eq", "ne", "lt", "le", "gt", "ge")), pick(integer), pick(integer))


def _random_integer(b: Builder, random: Random, pick: Pick, scalar: ScalarType, integers: Sequence[ScalarType]) -> Atom:
    others = [one for one in integers if one != scalar]
    other = others[0] if len(others) == 1 else random.choice(others)
    match random.randrange(8):
        case 0:
            return b.apply(random.choice(("neg", "abs", "not")), pick(scalar))
        case 1:
            return b.apply("select", pick(BOOL), pick(scalar), pick(scalar))
        case 2:
            return b.cast(scalar, pick(random.choice((BOOL, other))))
        case 3:
            return b.apply(random.choice(("shl", "shr")), pick(scalar), Literal(random.randint(0, 4), scalar))
        case 4 if scalar == I32:  # exact: a double holds every i32
            return b.cast(I32, b.apply("mul", b.cast(F64, pick(I32)), Literal(-1.0, F64)))
        case _:
            names = ("add", "sub", "mul", "floordiv", "mod", "min", "max", "and", "or", "xor")
            return b.apply(random.choice(names), pick(scalar), pick(scalar))


def _random_float(b: Builder, random: Random, pick: Pick, scalar: ScalarType, scalars: Sequence[ScalarType]) -> Atom:
    def literal(value: float) -> Literal:
        return Literal(value, scalar)

    x = pick(scalar)
    match random.randrange(12):
        case 0 | 1:
            return b.apply("mul", b.apply(random.choice(("add", "sub")), x, pick(scalar)), literal(0.5))
        case 2:
            return b.apply(random.choice(("min", "max")), x, pick(scalar))
        case 3:
            return b.apply(random.choice(("neg", "abs", "tanh", "sin", "cos", "atan")), x)
        case 4:
            return b.apply("mul", b.apply("tanh", x), pick(scalar))
        case 5:
            return b.apply("div", x, b.apply("add", b.apply("abs", pick(scalar)), literal(1.0)))
        case 6:
            return b.apply("sqrt", b.apply("add", b.apply("abs", x), literal(1.0)))
        case 7:
            return b.apply("exp", b.apply("neg", b.apply("abs", x)))
        case 8:
            return b.apply("log1p", b.apply("abs", x))
        case 9:
            y = pick(scalar)  # the smaller of the two, hence continuous in both
            return b.apply("select", b.apply("lt", x, y), x, y)
        case 10:
            return clamp(b, b.apply("fma", x, b.apply("tanh", pick(scalar)), pick(scalar)))
        case _:
            source = random.choice([one for one in scalars if one != scalar])
            if source.is_complex:
                part = b.apply(random.choice(("real", "imag", "abs")), pick(source))
                return clamp(b, part if part.type.element == scalar else b.cast(scalar, part))
            return clamp(b, b.cast(scalar, pick(source)))


def _random_complex(b: Builder, random: Random, pick: Pick, scalar: ScalarType, scalars: Sequence[ScalarType]) -> Atom:
    x = pick(scalar)
    match random.randrange(6):
        case 0 | 1:
            half = Literal(0.5, scalar)
            return b.apply("mul", b.apply(random.choice(("add", "sub")), x, pick(scalar)), half)
        case 2:
            return within_one(b, b.apply("mul", x, pick(scalar)))
        case 3:
            return b.apply(random.choice(("neg", "conj")), x)
        case 4:
            return b.apply("select", pick(BOOL), x, pick(scalar))
        case _:
            source = random.choice([one for one in scalars if one not in (scalar, BOOL)])
            return within_one(b, b.cast(scalar, pick(source)))


@dataclass(frozen=True)
class FoldOperator:
    """An associative operator with its neutral element, one value of each per array that is folded.

    `bounded`: float results stay within LIMIT if the operands do. `shrink`: float operands must be within 1 first.
    """

    name: str
    combine: Lambda
    neutral: tuple[Literal, ...]
    commutative: bool
    bounded: bool = True
    shrink: bool = False


def combine_two(b: Builder, name: str, x: Atom, y: Atom) -> Atom:
    """x combined with y: a scalar operator, or `first`, the first of the two that is not zero."""
    if name == "first":
        return b.apply("select", b.apply("ne", x, Literal(0, x.type.element)), x, y)
    return b.apply(name, x, y)


def range_of(scalar: ScalarType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    if scalar.kind == "u":
        return 0, 2**scalar.bits - 1
    return -(2 ** (scalar.bits - 1)), 2 ** (scalar.bits - 1) - 1


def _neutral(name: str, scalar: ScalarType, random: Random) -> Literal:
    """Neutral on the values that the generator makes: floats are within LIMIT, so it may stand for infinity."""
    if scalar == BOOL:
        return Literal(name == "and", scalar)
    if scalar.is_integer:
        least, most = range_of(scalar)
        return Literal({"mul": 1, "and": -1 if least else most, "min": most, "max": least}.get(name, 0), scalar)
    if scalar.is_complex:
        return Literal(complex(name == "mul"), scalar)
    highest = float("inf") if random.random() < 0.3 else LIMIT
    return Literal({"mul": 1.0, "min": highest, "max": -highest}.get(name, 0.0), scalar)


def random_fold(b: Builder, random: Random, scalar: ScalarType, accumulating: bool = False) -> FoldOperator:
    """A random operator on one value per element; `accumulating`: one for `hist`, commutative and without `shrink`."""
    names = ["and", "or", "xor"] if scalar == BOOL else ["add"] if scalar.is_complex else ["add", "min", "max"]
    if scalar.is_integer:
        names += ["mul", "and", "or", "xor"] + ([] if accumulating else ["first", "first"])
    inexact = scalar.is_float or scalar.is_complex
    if inexact and not accumulating:
        names.append("mul")
    name = random.choice(names)
    neutral = _neutral(name, scalar, random)
    combine = b.function([Type(scalar)] * 2, lambda x, y: combine_two(b, name, x, y), ("a", "b"))
    unbounded = inexact and (name == "add" or abs(neutral.value) > LIMIT)
    return FoldOperator(name, combine, (neutral,), name != "first", not unbounded, shrink=inexact and name == "mul")


def affine_composition(b: Builder, scalar: ScalarType) -> FoldOperator:
    """Composition of x -> p*x + q, as pairs (p, q) of integers: associative, not commutative, exact when it wraps."""

    def compose(p: Variable, q: Variable, r: Variable, s: Variable) -> Sequence[Atom]:
        return b.apply("mul", p, r), b.apply("add", b.apply("mul", r, q), s)

    combine = b.function([Type(scalar)] * 4, compose, ("p", "q", "r", "s"))
    return FoldOperator("affine", combine, (Literal(1, scalar), Literal(0, scalar)), commutative=False)


def largest_with_place(b: Builder, scalar: ScalarType) -> FoldOperator:
    """(value, place) of the largest integer, the first such place: commutative because places decide ties."""

    def larger(x: Variable, i: Variable, y: Variable, j: Variable) -> Sequence[Atom]:
        earlier = b.apply("and", b.apply("eq", x, y), b.apply("le", i, j))
        first = b.apply("or", b.apply("gt", x, y), earlier)
        return b.apply("select", first, x, y), b.apply("select", first, i, j)

    types = [Type(scalar), Type(I64)] * 2
    neutral = (Literal(range_of(scalar)[0], scalar), Literal(2**63 - 1, I64))
    return FoldOperator("largest", b.function(types, larger, ("x", "i", "y", "j")), neutral, commutative=True)
