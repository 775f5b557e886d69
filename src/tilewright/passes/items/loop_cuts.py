"""Where a loop's comparisons and clamps of its index change, and its body where their values are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64, U64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Cast, Constant, Expression, If, Let, Name, Operation, Statement
from tilewright.kernel.traversal import expressions, expressions_in, parts, walk

NEAR = 64
"""A cut at most so far from one end of an array leaves nearly all of it on its other side."""

SMALL = 2**61
"""Indices and sizes are below it. What is added to an index and is not may make the sum wrap around."""

_FALSE, _TRUE = Constant(False, BOOL), Constant(True, BOOL)
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


@dataclass(frozen=True)
class Cut:
    """A statement whose value is simpler in a part of a loop.

    Attributes:
        name: what the statement binds.
        value: what it is there.
        above, edge: it is there from `edge` on (`above`), or below it.
        beyond: what it is on the other side, if that is known.
        holds: in place of an edge, for what does not change in the loop: whether it has this value at all.
        wraps: the index begins anew there, so that it is worth it only near the end.
        fits: whether what is added to the index is so small that the sum does not wrap around, if that is not known;
            only then the statement has this value.
    """

    name: str
    value: Expression
    above: bool = True
    edge: Expression | None = None
    beyond: Expression | None = None
    holds: Expression | None = None
    wraps: bool = False
    fits: Expression | None = None


def cuts_of(
    body: Sequence[Statement], index: Name, is_small: Callable[[Expression], bool] = lambda _: True
) -> list[Cut]:
    """The cuts of the comparisons that decide something and of the clamps in a body without loops.

    A cut near the beginning leaves the indices above it, any other one those below it. `is_small` tells of what does
    not change in the loop whether it is known to be from -SMALL to SMALL; the index is from 0 below SMALL.

    >>> i, n = Name("i", I64), Name("n", I64)
    >>> shifted = kernel.add(i, Constant(-1, I64))
    >>> clamp = Let("t", kernel.operation("max", shifted, Constant(0, I64)))
    >>> [(one.edge.value, one.above) for one in cuts_of([clamp], i)]
    [(1, True)]
    """
    bound = {one.name: one.value if isinstance(one, Let) else None for one in body if hasattr(one, "name")}
    deciding = _deciding(body)
    found = []
    for one in body:
        if not isinstance(one, Let) or not isinstance(one.value, Operation):
            continue
        operator, operands = one.value.operator, one.value.operands
        if len(operands) != 2 or any(operand.type != I64 for operand in operands):
            continue
        left, right = (linear_in(operand, index, bound) for operand in operands)
        if left is None or right is None:
            continue
        if operator in _MIRRORED and one.name in deciding:
            if left[0] or right[0] or not _chooses_alike(body, one.name, index, bound):
                found.append(_comparison(one.name, operator, left, right, is_small))
        elif operator in ("min", "max"):
            found.append(_clamp(one.name, operator, operands, (left, right), is_small))
        elif operator == "mod" and left[0] and not right[0]:
            found += _wrapped(one.name, operands[0], left, right[1], is_small)
    return [one for one in found if one is not None and one.fits != _FALSE]


Linear = tuple[int, Expression]
"""(-1, 0 or 1 times the index, and what is added to it, which does not change in the loop)."""


def _fits(shift: Expression, is_small: Callable[[Expression], bool]) -> Expression | None:
    """Whether an index and this do not wrap around; None if that is known."""
    if isinstance(shift, Constant):
        return None if abs(shift.value) <= SMALL else _FALSE
    if is_small(shift):
        return None
    return kernel.operation("le", Cast(kernel.add(shift, Constant(SMALL, I64)), U64), Constant(2 * SMALL, U64))


def _nearest(value: Expression, is_small: Callable[[Expression], bool]) -> Expression:
    """A value, or the nearest to it with which sums of an index and what fits compare in the same way."""
    if isinstance(value, Constant):
        return Constant(max(-2 * SMALL, min(value.value, 2 * SMALL)), I64)
    if is_small(value):
        return value
    most = kernel.operation("min", value, Constant(2 * SMALL, I64))
    return kernel.operation("max", most, Constant(-2 * SMALL, I64))


def _comparison(
    name: str, operator: str, left: Linear, right: Linear, is_small: Callable[[Expression], bool]
) -> Cut | None:
    if left[0] == right[0]:
        if left[0] == 0 and isinstance(left[1], Constant):
            operator, left, right = _MIRRORED[operator], right, left
        return _fixed(name, operator, left[1], right[1]) if left[0] == 0 else None
    sign = left[0] - right[0]
    if abs(sign) != 1:
        return None
    # The index, compared with what is on the other side.
    (own, shift), (_, other) = (left, right) if left[0] else (right, left)
    fits, other = _fits(shift, is_small), _nearest(other, is_small)
    edge = _minus(other, shift) if own == 1 else _minus(shift, other)
    operator = operator if sign == 1 else _MIRRORED[operator]
    is_start = isinstance(edge, Constant) and edge.value <= NEAR
    if operator in ("eq", "ne"):
        value = _FALSE if operator == "eq" else _TRUE
        return Cut(name, value, is_start, kernel.add(edge, Constant(1, I64)) if is_start else edge, fits=fits)
    edge = kernel.add(edge, Constant(1, I64)) if operator in ("le", "gt") else edge
    below, beyond = (_TRUE, _FALSE) if operator in ("lt", "le") else (_FALSE, _TRUE)
    if is_start:
        return Cut(name, beyond, True, edge, below, fits=fits)
    return Cut(name, below, False, edge, beyond, fits=fits)


def _fixed(name: str, operator: str, left: Expression, right: Expression) -> Cut | None:
    """What does not change is as far from constants, and as far below other values, as most indices are."""
    if isinstance(left, Constant):
        return None
    comparison = kernel.operation(operator, left, right)
    large = isinstance(right, Constant)
    holds = operator == "ne" or (operator in ("gt", "ge") if large else operator in ("lt", "le"))
    return Cut(name, Constant(holds, BOOL), holds=comparison if holds else kernel.operation("not", comparison))


def _clamp(
    name: str,
    function: str,
    operands: Sequence[Expression],
    sides: tuple[Linear, Linear],
    is_small: Callable[[Expression], bool],
) -> Cut | None:
    for (sign, shift), (other, stop), linear in zip(sides, sides[::-1], operands, strict=True):
        if sign and not other:
            # max(index + shift, stop) is index + shift from stop - shift on; max(shift - index, stop) to shift - stop.
            above = (function == "max") == (sign == 1)
            near = _nearest(stop, is_small)
            edge = _minus(near, shift) if sign == 1 else _minus(shift, near)
            if not above:
                edge = kernel.add(edge, Constant(1, I64))
            return Cut(name, linear, above, edge, stop, fits=_fits(shift, is_small))
    return None


def _wrapped(
    name: str, value: Expression, left: Linear, extent: Expression, is_small: Callable[[Expression], bool]
) -> tuple[Cut, Cut]:
    """(index + shift) mod extent is index + shift from -shift on, below extent - shift; mirrored for -index."""
    sign, shift = left
    fits, extent = _fits(shift, is_small), _nearest(extent, is_small)
    if sign == 1:
        first, last = _minus(Constant(0, I64), shift), _minus(extent, shift)
    else:
        first, last = (kernel.add(one, Constant(1, I64)) for one in (_minus(shift, extent), shift))
    ends = Cut(name, value, True, first, wraps=True, fits=fits), Cut(name, value, False, last, wraps=True, fits=fits)
    return ends


def _deciding(body: Sequence[Statement]) -> set[str]:
    """Names of bools that decide which value is taken, directly or in conjunctions and the like."""
    names: set[str] = set()
    for one in reversed(tuple(walk(tuple(body)))):
        conditions = [one.condition] if isinstance(one, If) else []
        if isinstance(one, Let) and isinstance(one.value, Operation):
            operands = one.value.operands
            if one.value.operator == "select":
                conditions = [operands[0]]
            elif one.name in names and one.value.operator in ("and", "or", "not"):
                conditions = list(operands)
        names.update(condition.name for condition in conditions if isinstance(condition, Name))
    return names


def linear_in(expression: Expression, index: Name, bound: Mapping[str, Expression | None]) -> Linear | None:
    """An expression in terms of the index and of names from outside; None if it is not linear, or reads memory."""
    match expression:
        case Constant():
            return 0, expression
        case Name(name):
            if name == index.name:
                return 1, Constant(0, I64)
            if name not in bound:
                return 0, expression
            value = bound[name]
            return None if value is None else linear_in(value, index, bound)
        case Cast(operand):
            inner = linear_in(operand, index, bound)
            return (0, Cast(inner[1], expression.type)) if inner is not None and inner[0] == 0 else None
        case Operation(operator, operands):
            parts = [linear_in(one, index, bound) for one in operands]
            known = [one for one in parts if one is not None]
            if len(known) < len(parts):
                return None
            if all(sign == 0 for sign, _ in known):
                return 0, dataclasses.replace(expression, operands=tuple(rest for _, rest in known))
            if operator in ("add", "sub"):
                (one, a), (two, b) = known
                sign = one + two if operator == "add" else one - two
                return (sign, kernel.add(a, b) if operator == "add" else _minus(a, b)) if abs(sign) <= 1 else None
            if operator == "mul" and Constant(-1, I64) in operands:
                sign, rest = known[1 - operands.index(Constant(-1, I64))]
                return -sign, _minus(Constant(0, I64), rest)
    return None


def _chooses_alike(body: Sequence[Statement], name: str, index: Name, bound: Mapping[str, Expression | None]) -> bool:
    """Whether a comparison chooses among indices only that, like itself, do not change in the loop."""

    def is_alike(value: Expression) -> bool:
        linear = linear_in(value, index, bound)
        return linear is not None and linear[0] == 0

    for one in walk(tuple(body)):
        if not any(isinstance(value, Name) and value.name == name for value in parts(expressions(one))):
            continue
        chosen = one.value if isinstance(one, Let) else None
        if not isinstance(chosen, Operation) or chosen.operator != "select" or not all(map(is_alike, chosen.operands)):
            return False
    return True


def _minus(left: Expression, right: Expression) -> Expression:
    if left == right:
        return Constant(0, I64)
    if isinstance(right, Constant):
        return kernel.add(left, Constant(-right.value, I64))
    return kernel.operation("sub", left, right)


# --- bodies where values are known ------------------------------------------------------------------------------------


def simplified(body: Sequence[Statement], values: Mapping[str, Expression]) -> tuple[Statement, ...]:
    """A body in which the statements that bind these names have these values, and what follows from that.

    >>> small = Name("small", BOOL)
    >>> choice = If(small, (Let("a", Constant(1, I64)),), (Let("b", Constant(2, I64)),))
    >>> [one.name for one in simplified([choice], {"small": Constant(False, BOOL)})]
    ['b']
    """
    known = {name: value.value for name, value in values.items() if isinstance(value, Constant) and value.type == BOOL}
    result: list[Statement] = []
    for one in body:
        if isinstance(one, If) and isinstance(one.condition, Name) and one.condition.name in known:
            taken = one.then if known[one.condition.name] else one.otherwise
            result += simplified(taken, {name: Constant(value, BOOL) for name, value in known.items()})
        elif isinstance(one, Let):
            value = values.get(one.name, one.value)
            if isinstance(value, Operation) and value.type == BOOL and value.operator in ("and", "or", "not"):
                decided = _decided(value, known)
                if decided is not None:
                    known[one.name] = decided
                    value = Constant(decided, BOOL)
            if isinstance(value, Operation) and value.operator == "select":
                condition, yes, no = value.operands
                if isinstance(condition, Name) and condition.name in known:
                    value = yes if known[condition.name] else no
            result.append(Let(one.name, value))
        else:
            result.append(one)
    return tuple(result)


def without_unused(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """A body without what is bound in it and used by nothing.

    >>> i = Name("i", I64)
    >>> without_unused((Let("a", i), Let("b", Name("a", I64))))
    ()
    """
    kept: list[Statement] = []
    used: set[str] = set()
    for one in reversed(tuple(body)):
        if not isinstance(one, Let) or one.name in used:
            kept.append(one)
            used |= {part.name for part in expressions_in((one,)) if isinstance(part, Name)}
    return tuple(reversed(kept))


def _decided(expression: Operation, known: Mapping[str, object]) -> bool | None:
    """The value of a conjunction, disjunction or negation of names, if it follows from what is known."""
    operands = [known.get(one.name) if isinstance(one, Name) else None for one in expression.operands]
    if expression.operator == "not":
        return None if operands[0] is None else not operands[0]
    decisive = expression.operator == "or"
    if decisive in operands:
        return decisive
    return None if None in operands else not decisive
