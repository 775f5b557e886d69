"""Loops that compare their index, or clamp it at an edge, in parts where the answers are known.

    for i from low below high: ... if i < 1 then a[0] else b[i - 1] ... max(i - 1, 0) ...
=>  for i from low below first: ...;  for i from first below last: ... b[i - 1] ... i - 1 ...;  for i from last ...

In the middle, which is nearly everything, neighbours are read at consecutive places, so in vectors. (Index set
splitting [Wolfe, High Performance Compilers for Parallel Computing, 1996, section 9.7].) Where a comparison that does
not change in the loop comes out otherwise than in the middle of an array, all of the loop is at an edge. Beyond a cut
that may lie anywhere (one array ends there and another one begins) the loop is split again, and so are both its sides
where there are more of them.

Indices that count with a loop are checked at its ends, so that it reads at consecutive places:

    for i from low below high: bad = bad or not (0 <= i + c < n); ...
=>  if 0 <= low + c and high - 1 + c < n: for i from low below high: ...   else: bad = true
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, For, Name, Statement, While
from tilewright.kernel.traversal import walk
from tilewright.passes.items.loop_checks import certain_at_ends, checks_of, without_checks
from tilewright.passes.items.loop_cuts import NEAR, Cut, cuts_of, simplified, without_unused
from tilewright.passes.items.renaming import renamed
from tilewright.passes.items.scalar_values import KernelBuilder

Bounds: TypeAlias = tuple[Expression, Expression]
_DEEPEST = 4
_SHORT = 64
"""Statements that are written twice."""
_FIRST = 4
"""Iterations that are done apart."""
_FEW = 4
"""Iterations at an edge whose indices are not worth being checked together."""
_MOST_SIDES = 2
"""Splits, one inside of another, at cuts that may lie anywhere, and at choices that are the same in a whole loop."""


@dataclass(frozen=True)
class _Loop:
    """Iterations that may run together, and how many of them cuts leave beyond: see `emit_split`."""

    index: Name
    body: Sequence[Statement]
    left_from: Callable[[Expression], int | None]
    is_small: Callable[[Expression], bool]
    bad: Name | None = None

    def knowing(self, values: Mapping[str, Expression]) -> _Loop:
        """The loop where some of its statements' values are known."""
        body = without_unused(simplified(self.body, values))
        if self.bad is not None:
            body = without_checks(body, self.bad)
        return dataclasses.replace(self, body=body)

    def is_near_end(self, edge: Expression) -> bool:
        """Whether little of the loop lies from this index on."""
        left = self.left_from(edge)
        return left is not None and left <= NEAR

    def is_last(self, edge: Expression) -> bool:
        """Whether hardly any iterations are left from this index on."""
        left = self.left_from(edge)
        return left is not None and left <= _FEW


def emit_split(
    emit: KernelBuilder,
    bounds: Bounds,
    index: Name,
    body: Sequence[Statement],
    left_from: Callable[[Expression], int | None],
    is_small: Callable[[Expression], bool],
    bad: Name | None = None,
) -> None:
    """Emit a loop whose iterations may run together, in parts if that frees it from comparisons and clamps.

    Args:
        emit: where to.
        bounds: the first index and the one after the last.
        index, body: the loop's index and what is done for it.
        left_from: how many iterations there are from an index on, if that is known.
        is_small: whether what does not change in the loop is known to be as small as sizes are (`cuts_of`).
        bad: a variable that the body sets where an index is out of range; all iterations are done once more then.
    """
    loop = _Loop(index, body, left_from, is_small, bad)
    long = bad is not None and len(body) > _SHORT
    if long or any(isinstance(one, For | While) for one in walk(tuple(body))):
        _emit_loop(emit, bounds, loop)
    else:
        _emit_parts(emit, bounds, loop, 0)


def emit_first_apart(emit: KernelBuilder, bound: Expression, index: Name, body: Sequence[Statement]) -> None:
    """Emit a loop from 0 whose iterations follow one another; those before which something else is done, apart.

        for i below n: if i > 0: a = x[i - 1] else: a = 0 ...   =>   a = 0 ...;   for i from 1 below n: a = x[i - 1] ...

    What an iteration reads of the last one's results then waits in registers: LLVM sees that it is always written.
    """
    short = len(body) <= _SHORT and not any(isinstance(one, For | While) for one in walk(tuple(body)))
    cuts = [one for one in cuts_of(body, index, lambda _: False) if _begins(one)] if short else []
    if not cuts:
        emit.emit(For(index.name, Constant(0, I64), bound, tuple(body)))
        return
    edge = max(one.edge.value for one in cuts if isinstance(one.edge, Constant))
    first = emit.let(kernel.operation("min", Constant(edge, I64), bound), "first")
    before, early = renamed(emit, index, body)
    emit.emit(For(before.name, Constant(0, I64), first, early))
    emit.emit(For(index.name, first, bound, simplified(body, {one.name: one.value for one in cuts})))


def _begins(cut: Cut) -> bool:
    """Whether the first iterations are on the other side of a cut."""
    return (
        cut.above
        and not cut.wraps
        and cut.fits is None
        and isinstance(cut.edge, Constant)
        and 0 < cut.edge.value <= _FIRST
    )


def _emit_loop(emit: KernelBuilder, bounds: Bounds, loop: _Loop, few: bool = False) -> None:
    """The loop as it is, under new names; what counts with its index is checked at its ends."""

    def emit_body(body: Sequence[Statement]) -> None:
        index, inside = renamed(emit, loop.index, body)
        emit.emit(For(index.name, *bounds, inside, independent=True, scalar=few))

    checks = checks_of(loop.body, loop.index, loop.bad) if loop.bad is not None and not few else ()
    if loop.bad is None or not checks:
        emit_body(loop.body)
        return
    bad, inside = loop.bad, without_checks(loop.body, loop.bad, {one.name for one in checks})
    certain = emit.let(certain_at_ends(checks, bounds), "certain")
    emit.when(certain, lambda: emit_body(inside), lambda: emit.assign(bad, Constant(True, BOOL)))


def _emit_parts(emit: KernelBuilder, bounds: Bounds, loop: _Loop, depth: int) -> None:
    cuts = _worthwhile(cuts_of(loop.body, loop.index, loop.is_small), loop) if depth < _DEEPEST else []
    if not cuts:
        _emit_loop(emit, bounds, loop)
        return
    if _emit_sides(emit, bounds, loop, cuts, depth):
        return
    low, high = bounds
    above = [one.edge for one in cuts if one.edge is not None and one.above]
    below = [one.edge for one in cuts if one.edge is not None and not one.above]
    fixed = list(dict.fromkeys(one for cut in cuts for one in (cut.holds, cut.fits) if one is not None))
    first, last = _middle(emit, bounds, above, below, fixed)
    known = {one.name: one.value for one in cuts}
    beyond = {one.name: one.beyond for one in cuts if one.edge in below and not one.above and one.beyond is not None}
    again = len(set(below)) == 1 and len(beyond) == len(below) and not loop.is_near_end(below[0])
    parts = [(low, first)] if above or fixed else []
    few = not fixed and all(map(_is_first, above)) and (again or all(map(loop.is_last, below)))
    _emit_edges(emit, parts if again or not below else [*parts, (last, high)], loop, few)
    _emit_parts(emit, (first, last), loop.knowing(known), depth + 1)
    if again:
        _emit_parts(emit, (last, high), loop.knowing(known | beyond), depth + 1)


def _emit_sides(emit: KernelBuilder, bounds: Bounds, loop: _Loop, cuts: Sequence[Cut], depth: int) -> bool:
    """Emit both sides of a cut that may lie anywhere where there are others, and, of indices that are checked, of a
    choice that is the same in the whole loop; whether there is such a cut.
    """
    if depth >= _MOST_SIDES:
        return False
    if loop.bad is not None and (same := next((one for one in cuts if one.holds is not None), None)) is not None:
        assert isinstance(same.value, Constant) and same.holds is not None
        other = {same.name: Constant(not same.value.value, BOOL)}
        emit.when(
            same.holds,
            lambda: _emit_parts(emit, bounds, loop.knowing({same.name: same.value}), depth + 1),
            lambda: _emit_parts(emit, bounds, loop.knowing(other), depth + 1),
        )
        return True
    edges = dict.fromkeys(one.edge for one in cuts if one.edge is not None)
    for edge in edges if len(edges) > 1 else ():
        there = [one for one in cuts if one.edge == edge]
        unknown = any(one.above or one.beyond is None or one.wraps or one.fits is not None for one in there)
        if unknown or loop.is_near_end(edge):
            continue
        low, high = bounds
        middle = emit.let(kernel.operation("max", low, kernel.operation("min", edge, high)), "middle")
        _emit_parts(emit, (low, middle), loop.knowing({one.name: one.value for one in there}), depth + 1)
        beyond = {one.name: one.beyond for one in there if one.beyond is not None}
        _emit_parts(emit, (middle, high), loop.knowing(beyond), depth + 1)
        return True
    return False


def _worthwhile(cuts: Sequence[Cut], loop: _Loop) -> list[Cut]:
    """Without those of indices that begin anew in the middle, for which most of the loop is beyond a cut."""
    late = {
        one.name for one in cuts if one.wraps and not one.above and one.edge is not None and loop.is_near_end(one.edge)
    }
    return [one for one in cuts if not one.wraps or one.name in late]


def _middle(
    emit: KernelBuilder,
    bounds: Bounds,
    above: Sequence[Expression],
    below: Sequence[Expression],
    fixed: Sequence[Expression],
) -> Bounds:
    """Where all cuts have their simpler values; empty, with everything before it, if those that are fixed have not."""
    low, high = bounds
    first, last = low, high
    for edge in above:
        first = kernel.operation("max", first, edge)
    for edge in below:
        last = kernel.operation("min", last, edge)
    if fixed:
        inside = functools.reduce(lambda one, two: kernel.operation("and", one, two), fixed)
        inside = emit.let(inside, "inside")
        first, last = (kernel.operation("select", inside, one, high) for one in (first, last))
    first = emit.let(kernel.operation("min", first, high), "first")
    return first, emit.let(kernel.operation("max", first, last), "last")


def _is_first(edge: Expression) -> bool:
    """Whether hardly any indices are below one."""
    return isinstance(edge, Constant) and edge.value <= _FEW


def _emit_edges(emit: KernelBuilder, parts: Sequence[Bounds], loop: _Loop, few: bool) -> None:
    """The loop over ranges that are usually short, its code once; `few`: that always are."""
    if len(parts) < 2:
        for bounds in parts:
            _emit_loop(emit, bounds, loop, few)
        return
    (low, first), (last, high) = parts

    def edge(part: Name) -> None:
        is_first = emit.let(kernel.operation("eq", part, Constant(0, I64)), "before")
        start = emit.let(kernel.operation("select", is_first, low, last), "from")
        stop = emit.let(kernel.operation("select", is_first, first, high), "to")
        _emit_loop(emit, (start, stop), loop, few)

    emit.loop("part", Constant(0, I64), Constant(2, I64), edge)
