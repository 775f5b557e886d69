"""Stores that nobody reads go, and so does what only they used: compared with a removal that begins again each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir.scalars import BOOL, I64
from tilewright.kernel import ir
from tilewright.kernel.ir import Buffer, Expression, Name, Statement, add, integer, load, operation
from tilewright.passes.points.dead_stores import used_names, without_stores

ARRAYS = [Buffer(name, I64) for name in "xyz"]


def removed_once(statements: Sequence[Statement], unread: set[str], used: set[str]) -> tuple[Statement, ...]:
    """Without stores to `unread` and values that are not in `used`; what these used stays."""
    kept: list[Statement] = []
    for one in statements:
        match one:
            case ir.Store(buffer=buffer) if buffer.name in unread:
                continue
            case ir.Let(name) if name not in used:
                continue
            case ir.For(body=body):
                one = replace(one, body=removed_once(body, unread, used))
            case ir.While(prelude, condition, body):
                one = ir.While(removed_once(prelude, unread, used), condition, removed_once(body, unread, used))
            case ir.If(condition, then, otherwise):
                one = ir.If(condition, removed_once(then, unread, used), removed_once(otherwise, unread, used))
        kept.append(one)
    return tuple(kept)


def removed(statements: tuple[Statement, ...], unread: set[str]) -> tuple[Statement, ...]:
    """The same until nothing changes."""
    while (fewer := removed_once(statements, unread, used_names(removed_once(statements, unread, ALL)))) != statements:
        statements = fewer
    return statements


class _All(set[str]):
    def __contains__(self, name: object) -> bool:
        return True


ALL = _All()


@st.composite
def kernels(draw: st.DrawFn) -> tuple[Statement, ...]:
    """Statements, loops in loops among them, each of which uses names that are visible where it is."""
    numbers = iter(range(1000))
    variables: list[str] = []

    def value(visible: list[str]) -> Expression:
        names: list[Expression] = [Name(one, I64) for one in visible] or [integer(1)]
        one, two = draw(st.sampled_from(names)), draw(st.sampled_from([integer(2), *names]))
        return load(draw(st.sampled_from(ARRAYS)), one) if draw(st.booleans()) else add(one, two)

    def block(visible: list[str], depth: int) -> tuple[Statement, ...]:
        visible = list(visible)
        made: list[Statement] = []
        for _ in range(draw(st.integers(0, 4))):
            kind = draw(st.sampled_from(["let", "let", "store", "declare", "assign", "for", "while", "if"]))
            name = f"{kind}{next(numbers)}"
            condition = operation("lt", value(visible), integer(3))
            if kind == "let":
                made.append(ir.Let(name, value(visible)))
                visible.append(name)
            elif kind == "store":
                made.append(ir.Store(draw(st.sampled_from(ARRAYS)), value(visible), value(visible)))
            elif kind == "declare":
                made.append(ir.Declare(name, value(visible)))
                variables.append(name)
                visible.append(name)
            elif kind == "assign" and (known := [one for one in variables if one in visible]):
                made.append(ir.Assign(draw(st.sampled_from(known)), value(visible)))
            elif kind == "for" and depth:
                made.append(ir.For(name, integer(0), value(visible), block([*visible, name], depth - 1)))
            elif kind == "while" and depth:
                prelude = block(visible, depth - 1)
                inside = [*visible, *(one.name for one in prelude if isinstance(one, ir.Let))]
                test = operation("lt", value(inside), integer(3))
                made.append(ir.While(prelude, test, block(inside, depth - 1)))
            elif kind == "if" and depth:
                made.append(ir.If(condition, block(visible, depth - 1), block(visible, depth - 1)))
        return tuple(made)

    return block([], 3)


@given(kernels(), st.sets(st.sampled_from("xyz")))
def test_what_is_left_is_what_something_uses(statements: tuple[Statement, ...], unread: set[str]) -> None:
    assert without_stores(statements, unread) == removed(statements, unread)


def test_what_only_a_removed_value_used_goes_too() -> None:
    x, y, _ = ARRAYS
    chain: list[Statement] = [ir.Let("a0", load(x, integer(0)))]
    chain += [ir.Let(f"a{k}", add(Name(f"a{k - 1}", I64), integer(k))) for k in range(1, 50)]
    chain += [ir.Store(y, integer(0), Name("a49", I64)), ir.Store(x, integer(1), integer(5))]
    assert without_stores(chain, {"y"}) == (chain[-1],)
    assert without_stores(chain, {"z"}) == tuple(chain)


def test_a_condition_keeps_what_its_prelude_makes() -> None:
    x = ARRAYS[0]
    kept = ir.Let("limit", load(x, integer(0)))
    loop = ir.While((kept, ir.Let("idle", load(x, integer(1)))), operation("lt", Name("limit", I64), integer(3)), ())
    assert loop.condition.type == BOOL
    (left,) = without_stores([loop], ())
    assert isinstance(left, ir.While)
    assert left.prelude == (kept,)
