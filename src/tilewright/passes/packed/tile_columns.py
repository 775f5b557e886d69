"""Packing of the vector side into tiles, where pairs of vectors are consecutive in the operand, as they are as a rule.

    panels[p][k][i] = (source[i, e * k], source[i, e * k + 1], ...)      e elements side by side in a lane

A panel's row of two vectors at each step of the sum is put together by shuffles of what each of these steps has there:
half as many instructions as to widen elements and to shift them into their place. Several panels are packed at once, so
that what lies together in the operand is read together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.scalars import U16, U32
from tilewright.kernel import ir as kernel
from tilewright.kernel.dots import Bits
from tilewright.kernel.ir import Expression, VectorType, add, element_of, integer, load, multiply, operation
from tilewright.kernel.tiles import LANES
from tilewright.passes.packed.dots import as_bits
from tilewright.passes.packed.reading import all_along, steps_of
from tilewright.passes.packed.runs import WHOLE
from tilewright.passes.packed.writer import PackedWriter, Side, run_is

READ_TOGETHER = 256  # bytes of a row
STEPS_AHEAD = 8  # that packing is ahead with its requests for what lies beyond the second cache
PAIR = 2 * LANES


def may_pack_columns(w: PackedWriter, side: Side) -> bool:
    """Whether panels are pairs of vectors, some of which may be consecutive."""
    return w.form.in_tiles and side.width == PAIR and WHOLE in side.runs.source


def pack_columns(
    w: PackedWriter, side: Side, count: Expression, depth: Expression, other: Callable[[Expression], None]
) -> None:
    """All panels of a block of `count` elements; `other(panel)` packs one whose elements are not consecutive."""
    several = max(1, READ_TOGETHER // (PAIR * side.operand.element.bytes))
    panels = w.panels(count, side.width)
    groups = w.emit.let(operation("floordiv", panels, integer(several)), "groups")

    def of_panels(first: Expression, number: int) -> None:
        starts = [
            w.emit.let(load(side.source_table, multiply(add(first, integer(panel)), integer(PAIR))), "from")
            for panel in range(number)
        ]

        def one_by_one() -> None:
            if number == 1:
                other(first)
            else:
                w.loop("panel", first, add(first, integer(number)), lambda panel: of_panels(panel, 1))

        consecutive = _are_runs(w, side, first, starts)
        w.branch(consecutive, lambda: _copy_pairs(w, side, first, starts, depth), one_by_one)

    w.loop("group", integer(0), groups, lambda group: of_panels(multiply(group, integer(several)), several))
    rest = w.emit.let(multiply(groups, integer(several)), "rest")
    w.loop("panel", rest, panels, lambda panel: of_panels(panel, 1))


def _are_runs(w: PackedWriter, side: Side, first: Expression, starts: Sequence[Expression]) -> Expression:
    """Whether the elements of each of these panels are consecutive."""
    broken: Expression = integer(0)
    for panel, start in enumerate(starts):
        at = multiply(add(first, integer(panel)), integer(PAIR))
        second = load(side.source_table, add(at, integer(LANES)))
        broken = operation("or", broken, operation("xor", second, add(start, integer(LANES))))
        broken = w.emit.let(broken, "broken")
    condition = operation("eq", broken, integer(0))
    for vector in range(0 if side.runs.source == {WHOLE} else 2 * len(starts)):
        number = add(multiply(first, integer(2)), integer(vector))
        condition = operation("and", condition, run_is(load(side.source_runs, number), WHOLE))
    return condition


def _copy_pairs(
    w: PackedWriter, side: Side, first: Expression, starts: Sequence[Expression], depth: Expression
) -> None:
    """At each step, the pairs of these panels."""
    emit, (panel,) = w.emit, side.panels
    size = emit.let(multiply(side.pitch, integer(side.width)), "panel_size")
    bases = [emit.let(multiply(add(first, integer(number)), size), "panel") for number in range(len(starts))]
    steps = steps_of(w, depth)
    last = emit.let(operation("sub", steps, integer(1)), "last_step")

    def step(k: Expression) -> None:
        if w.form.far:
            later = emit.let(operation("min", add(k, integer(STEPS_AHEAD)), last), "later")
            for ahead in all_along(w, side, later):
                w.ask_for(side.source, starts, ahead)
        along = all_along(w, side, k)
        row = emit.let(multiply(k, integer(side.width)), "row")
        for start, base in zip(starts, bases, strict=True):
            to = emit.let(add(base, row), "to")
            for half, vector in enumerate(_pair(w, side, [add(start, one) for one in along])):
                w.fill(panel, add(to, integer(half * LANES)), vector, aligned=True)

    w.loop("k", integer(0), steps, step)


def _pair(w: PackedWriter, side: Side, places: list[Expression]) -> list[Expression]:
    """Two vectors of lanes: of each lane the element of each of these places, the lane's number further on."""
    emit, raw = w.emit, as_bits(side.source)
    rows: list[Expression] = [emit.let(load(raw, emit.let(at, "at"), PAIR), "elements") for at in places]
    if len(rows) > 2:  # bytes: those of two steps are first joined
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [_bits(w, _in_turns(w, one, other, 0, PAIR), VectorType(U16, PAIR)) for one, other in pairs]
    lanes = VectorType(U32, LANES)
    return [_bits(w, _in_turns(w, rows[0], rows[1], half * LANES, LANES), lanes) for half in range(2)]


def _bits(w: PackedWriter, value: Expression, type_: VectorType) -> Expression:
    return w.emit.let(Bits((value,), type_), "packed")


def _in_turns(w: PackedWriter, one: Expression, other: Expression, first: int, count: int) -> Expression:
    """`count` elements of either vector from element `first` on, in turns."""
    assert isinstance(one.type, VectorType)
    lanes = one.type.lanes
    order = tuple(lane + part * lanes for lane in range(first, first + count) for part in (0, 1))
    return w.emit.let(kernel.Shuffle(one, other, order, VectorType(element_of(one.type), 2 * count)), "in_turns")
