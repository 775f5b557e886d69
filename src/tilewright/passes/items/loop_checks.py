"""Checks of indices that count with a loop: at the loop's ends in place of each round (split_ranges.py).

0 <= i + c < n for all i from low below high  <=>  low >= high, or 0 <= low + c and high - 1 + c < n

Loops inside of points, such as those over the entries of a sparse row, do so, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64, U64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Assign, Cast, Constant, Expression, For, If, Let, Name, Operation, Statement, While
from tilewright.kernel.traversal import walk
from tilewright.passes.items.loop_cuts import Linear, linear_in, simplified, without_unused

_NEVER = Constant(False, BOOL)


@dataclass(frozen=True)
class EndCheck:
    """What tells whether an index, a loop's own or its negative and something added, is outside of an extent."""

    name: str
    index: Linear
    extent: Expression

    def within(self, at: Expression) -> Expression:
        """Whether the index is in range in the round `at`."""
        sign, shift = self.index
        value = kernel.add(shift, at) if sign == 1 else kernel.operation("sub", shift, at)
        return kernel.operation("lt", Cast(value, U64), Cast(self.extent, U64))


def checks_of(body: Sequence[Statement], index: Name, bad: Name) -> tuple[EndCheck, ...]:
    """The checks of a body without loops that set `bad` whatever else holds, of indices that count with the loop."""
    bound = {one.name: one.value if isinstance(one, Let) else None for one in body if hasattr(one, "name")}
    telling = {one.value.operands[1].name for one in body if _sets(one, bad)}  # type: ignore[union-attr]
    found = []
    for one in body:
        match one:
            case Let(name, Operation("ge", (Cast(value, kind), Cast(extent, _)))) if name in telling and kind == U64:
                at, most = linear_in(value, index, bound), linear_in(extent, index, bound)
                if at is not None and at[0] and most is not None and not most[0] and value.type == I64:
                    found.append(EndCheck(name, at, most[1]))
    return tuple(found)


def inner_at_ends(body: Sequence[Statement], bad: Name, name: Callable[[str], str]) -> tuple[Statement, ...]:
    """A body whose loops without loops inside check what counts with them at their ends; `name` gives new names."""
    found: list[Statement] = []
    for one in body:
        match one:
            case For(index=index, start=start, stop=stop, body=inside, step=Constant(1)):
                checks = checks_of(inside, Name(index, I64), bad) if _is_flat(inside) else ()
                if not checks:
                    found.append(replace(one, body=inner_at_ends(inside, bad, name)))
                    continue
                certain = Let(name("certain"), certain_at_ends(checks, (start, stop)))
                quick = replace(one, body=without_checks(inside, bad, {check.name for check in checks}))
                failed = Assign(bad.name, Constant(True, BOOL))
                found += [certain, If(Name(certain.name, BOOL), (quick,), (failed,))]
            case _:
                found.append(one)
    return tuple(found)


def _is_flat(body: Sequence[Statement]) -> bool:
    return not any(isinstance(one, For | While) for one in walk(tuple(body)))


def _sets(statement: Statement, bad: Name) -> bool:
    """bad = bad or outside"""
    match statement:
        case Assign(name, Operation("or", (Name(before), Name()))):
            return name == before == bad.name
    return False


def certain_at_ends(checks: Sequence[EndCheck], bounds: tuple[Expression, Expression]) -> Expression:
    """Whether all indices are in range in all rounds."""
    low, high = bounds
    last = kernel.operation("sub", high, Constant(1, I64))
    within = dict.fromkeys(one.within(at) for one in checks for at in (low, last))
    certain, *others = within
    for one in others:
        certain = kernel.operation("and", certain, one)
    return kernel.operation("or", kernel.operation("ge", low, high), certain)


def without_checks(body: Sequence[Statement], bad: Name, inside: Collection[str] = ()) -> tuple[Statement, ...]:
    """A body where these checks, and those that are known to be, are never outside."""
    known = simplified(body, dict.fromkeys(inside, _NEVER))
    never = {one.name for one in known if isinstance(one, Let) and one.value == _NEVER}
    always = {one.name for one in known if isinstance(one, Let) and one.value == Constant(True, BOOL)}
    found: list[Statement] = []
    for one in known:
        match one:
            case Assign(name, Operation("or", (before, condition))) if name == bad.name:
                told = _told(condition, never, always)
                if told != _NEVER:
                    found.append(Assign(name, kernel.operation("or", before, told)))
            case _:
                found.append(one)
    return without_unused(found)


def _told(condition: Expression, never: Collection[str], always: Collection[str]) -> Expression:
    """A condition where it is known which names are false and which are true."""
    match condition:
        case Name(name):
            return _NEVER if name in never else condition
        case Operation("and", (one, two)):
            left, right = _told(one, never, always), _told(two, never, always)
            if _NEVER in (left, right):
                return _NEVER
            if isinstance(left, Name) and left.name in always:
                return right
            return left if isinstance(right, Name) and right.name in always else condition
    return condition
