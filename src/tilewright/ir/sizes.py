"""Symbolic sizes: integer polynomials in a normal form, so that equal sizes are equal structurally.

    size ::= sum of (coefficient * product of atoms)
    atom ::= name | floordiv(size, size) | mod(size, size) | min(size, size) | max(size, size)

Products have sorted factors and sums sorted terms, hence a*(b*c) == (c*b)*a [S0 4.7.2.1].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from tilewright.ir.cached import cached_property
from tilewright.ir.dataclass import dataclass


@dataclass(frozen=True)
class SizeFunction:
    """An operation that polynomials cannot express, kept opaque: `function` is floordiv, mod, min or max."""

    function: str
    left: Size
    right: Size

    def text(self, name: Callable[[str], str]) -> str:
        """As `Size.text`."""
        return f"{self.function}({self.left.text(name)}, {self.right.text(name)})"

    def __str__(self) -> str:
        return self.text(str)


SizeAtom: TypeAlias = str | SizeFunction
Monomial: TypeAlias = tuple[SizeAtom, ...]


def _order(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    return (-len(monomial), tuple(str(atom) for atom in monomial))


@dataclass(frozen=True)
class Size:
    """A polynomial: `terms` maps each monomial (a sorted tuple of atoms, () for the constant) to its coefficient.

    >>> n, m = size("n"), size("m")
    >>> (n * m + 2) * n == n * 2 + m * n * n
    True
    >>> print((n + 1) * (n - 1))
    n*n - 1
    """

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: SizeLike) -> Size:
        return _from_terms([*self.terms, *size(other).terms])

    __radd__ = __add__

    def __neg__(self) -> Size:
        return Size(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: SizeLike) -> Size:
        return self + -size(other)

    def __rsub__(self, other: SizeLike) -> Size:
        return size(other) - self

    def __mul__(self, other: SizeLike) -> Size:
        return _from_terms(
            (tuple(sorted(left + right, key=str)), a * b) for left, a in self.terms for right, b in size(other).terms
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: SizeLike) -> Size:
        divisor = size(other)
        quotient = exact_quotient(self, divisor)
        if quotient is not None:
            return quotient
        whole, rest = _multiples(self, divisor)
        return whole + _opaque("floordiv", rest, divisor)

    def __mod__(self, other: SizeLike) -> Size:
        divisor = size(other)
        return (
            ZERO if exact_quotient(self, divisor) is not None else _opaque("mod", _multiples(self, divisor)[1], divisor)
        )

    @cached_property
    def constant(self) -> int | None:
        """The value, if no name occurs."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and self.terms[0][0] == () else None

    @cached_property
    def names(self) -> frozenset[str]:
        """All names that occur, also inside opaque functions."""
        found: set[str] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                found |= {atom} if isinstance(atom, str) else atom.left.names | atom.right.names
        return frozenset(found)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value when every name has the given value.

        Raises:
            KeyError: if a name has no value.
            ZeroDivisionError: if a divisor is zero.
        """
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for atom in monomial:
                product *= values[atom] if isinstance(atom, str) else _evaluate_function(atom, values)
            total += product
        return total

    def substitute(self, values: Mapping[str, Size]) -> Size:
        """Replace names by sizes."""
        if self.names.isdisjoint(values):
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            product = size(coefficient)
            for atom in monomial:
                if isinstance(atom, str):
                    product = product * values.get(atom, _from_terms([((atom,), 1)]))
                else:
                    product = product * size_function(
                        atom.function, atom.left.substitute(values), atom.right.substitute(values)
                    )
            total = total + product
        return total

    def coefficient_of(self, name: str) -> tuple[Size, Size] | None:
        """(a, b) with self == a*name + b, neither using `name`; None if `self` is not linear in it."""
        linear: list[tuple[Monomial, int]] = []
        rest: list[tuple[Monomial, int]] = []
        for monomial, coefficient in self.terms:
            others = tuple(atom for atom in monomial if atom != name)
            if any(name in (atom.left.names | atom.right.names) for atom in others if isinstance(atom, SizeFunction)):
                return None
            occurrences = len(monomial) - len(others)
            if occurrences > 1:
                return None
            (linear if occurrences else rest).append((others, coefficient))
        return _from_terms(linear), _from_terms(rest)

    def text(self, name: Callable[[str], str]) -> str:
        """The size as a person writes it, with names as `name` spells them."""
        text = ""
        for monomial, coefficient in self.terms:
            sign = ("-" if not text else " - ") if coefficient < 0 else ("" if not text else " + ")
            factors = [name(atom) if isinstance(atom, str) else atom.text(name) for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            text += sign + "*".join(factors)
        return text or "0"

    def __str__(self) -> str:
        return self.text(str)

    __repr__ = __str__


SizeLike: TypeAlias = Size | int | str


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Size:
    collected: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        collected[monomial] = collected.get(monomial, 0) + coefficient
    kept = [(monomial, coefficient) for monomial, coefficient in collected.items() if coefficient]
    return Size(tuple(sorted(kept, key=lambda term: _order(term[0]))))


def size(value: SizeLike) -> Size:
    """A size from an int, a name, or a size."""
    if isinstance(value, Size):
        return value
    if isinstance(value, str):
        return Size((((value,), 1),))
    return Size((((), int(value)),)) if value else ZERO


ZERO = Size(())
ONE = size(1)


def _apply(function: str, left: int, right: int) -> int:
    match function:
        case "floordiv":
            return left // right
        case "mod":
            return left % right
        case "min":
            return min(left, right)
        case "max":
            return max(left, right)
    raise ValueError(f"unknown size function {function}")


def _evaluate_function(atom: SizeFunction, values: Mapping[str, int]) -> int:
    # In i64, as kernels compute them: scalar arguments are among the names, and sums of them may wrap around.
    left, right = ((one.evaluate(values) + 2**63) % 2**64 - 2**63 for one in (atom.left, atom.right))
    return _apply(atom.function, left, right)


def _opaque(function: str, left: Size, right: Size) -> Size:
    if left.constant is not None and right.constant is not None:
        return size(_apply(function, left.constant, right.constant))
    if function in ("min", "max"):
        if left == right:
            return left
        left, right = sorted((left, right), key=str)
    return Size((((SizeFunction(function, left, right),), 1),))


def size_function(function: str, left: SizeLike, right: SizeLike) -> Size:
    """floordiv, mod, min or max of two sizes, simplified where the polynomials allow."""
    if function == "floordiv":
        return size(left) // size(right)
    if function == "mod":
        return size(left) % size(right)
    return _opaque(function, size(left), size(right))


def minimum(left: SizeLike, right: SizeLike) -> Size:
    """The smaller of two sizes."""
    return size_function("min", left, right)


def maximum(left: SizeLike, right: SizeLike) -> Size:
    """The larger of two sizes."""
    return size_function("max", left, right)


def ceil_division(left: SizeLike, right: SizeLike) -> Size:
    """left / right rounded up."""
    return (size(left) + size(right) - 1) // right


def whole_groups(count: SizeLike, group: int) -> Size:
    """How many whole groups of so many there are among `count`; none where it is below 0, as where it is 0.

    What is left over is then no more than `count`, so that a loop over it has no round there either.

    >>> whole = whole_groups("n", 4)
    >>> [(whole.evaluate({"n": n}), n - 4 * whole.evaluate({"n": n})) for n in (9, 3, 0, -1)]
    [(2, 1), (0, 3), (0, 0), (0, -1)]
    """
    return maximum(size(count) // group, ZERO)


def product(sizes: Iterable[SizeLike]) -> Size:
    """The product of sizes, 1 for none."""
    total = ONE
    for factor in sizes:
        total = total * factor
    return total


def _multiples(dividend: Size, divisor: Size) -> tuple[Size, Size]:
    """(q, r) with dividend = q * divisor + r, where every term of q is surely a whole number: of a constant divisor.

    >>> n = size("n")
    >>> print((2 * n + 1) // 2, "and", (n - 1) // 2, "and", (4 * n + 3) % 4)
    n and floordiv(n + 1, 2) - 1 and 3
    """
    by = divisor.constant
    if by is None or by <= 0:
        return ZERO, dividend
    parts = [
        (monomial, divmod(coefficient, by) if not monomial or coefficient % by == 0 else (0, coefficient))
        for monomial, coefficient in dividend.terms
    ]
    whole, rest = (_from_terms((monomial, part[place]) for monomial, part in parts) for place in (0, 1))
    return whole, rest


def exact_quotient(dividend: Size, divisor: Size) -> Size | None:
    """dividend / divisor where the divisor is one monomial that divides every term; None otherwise.

    Sizes that are divided by are positive, so that a*b // b == a.
    """
    if len(divisor.terms) != 1:
        return ONE if divisor.terms and dividend == divisor else None
    factors, by = divisor.terms[0]
    quotient: list[tuple[Monomial, int]] = []
    for monomial, coefficient in dividend.terms:
        remaining = list(monomial)
        for factor in factors:
            if factor not in remaining:
                return None
            remaining.remove(factor)
        if coefficient % by:
            return None
        quotient.append((tuple(remaining), coefficient // by))
    return _from_terms(quotient)
