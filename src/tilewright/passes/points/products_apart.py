"""Products that are known before what they are added to: rounded by themselves, in loops whose rounds wait for that.

    for i:  s = s + x[i] * y[i]       =>   for i:  t = x[i] * y[i], rounded;  s = s + t
    for i:  v = b * x[i] - a * v      =>   for i:  t = b * x[i], rounded;     v = t - a * v

Contracted, as sums of products otherwise may be, a round takes a fused multiply-add after what it waits for, which
takes longer than an addition. Of two products the one that is waited for is contracted: an addition less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.ir.scalars import ScalarType
from tilewright.kernel.ir import Expression, Let, Name, Operation, Statement
from tilewright.kernel.traversal import expressions_in
from tilewright.passes.points.waiting_last import depths_of, in_following_rounds

_SUMS = ("add", "sub")


def all_products_apart(statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """The statements with this done in all loops whose rounds follow one another."""
    return in_following_rounds(statements, with_products_apart)


def with_products_apart(body: Sequence[Statement], index: str = "") -> tuple[Statement, ...]:
    """The body of a loop whose rounds follow one another, with such products apart.

    Args:
        body: the body.
        index: the loop's index, which grows.

    Example:
        >>> from tilewright.ir.scalars import F64
        >>> from tilewright.kernel.ir import Assign, operation
        >>> s, x, t = Name("s", F64), Name("x", F64), Name("t", F64)
        >>> body = (Let("t", operation("mul", x, x)), Assign("s", operation("add", s, t)))
        >>> with_products_apart(body)[0].value.operator
        'mul_apart'
    """
    products = {one.name: one.value for one in body if isinstance(one, Let) and _is_product(one.value)}
    if not products:
        return tuple(body)
    depths = depths_of(body, index)
    if not depths:
        return tuple(body)
    waiting = {name for name in products if not depths.get(name, 0)}
    uses, sums = Counter(one.name for one in expressions_in(body) if isinstance(one, Name)), Counter[str]()
    for one in body:
        for operand in _added_to(getattr(one, "value", None), depths):
            sums[operand] += 1
    apart = {name for name in waiting if sums[name] and sums[name] == uses[name]}
    return tuple(_apart(one) if isinstance(one, Let) and one.name in apart else one for one in body)


def _is_product(value: Expression) -> bool:
    scalar = isinstance(value.type, ScalarType) and value.type.is_float
    return scalar and isinstance(value, Operation) and value.operator == "mul"


def _added_to(value: Expression | None, depths: Mapping[str, int]) -> list[str]:
    """The names that a sum adds to something that is waited for."""
    if not isinstance(value, Operation) or value.operator not in _SUMS:
        return []
    waited = [isinstance(one, Name) and depths.get(one.name, 0) > 0 for one in value.operands]
    names = [one.name for one, waits in zip(value.operands, waited, strict=True) if isinstance(one, Name) and not waits]
    return names if any(waited) else []


def _apart(let: Let) -> Let:
    assert isinstance(let.value, Operation)
    return Let(let.name, replace(let.value, operator="mul_apart"))
