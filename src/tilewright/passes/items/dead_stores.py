"""Arrays of a work item that are written and never read: results of scans that nobody uses."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tilewright.kernel.ir import (
    Expression,
    For,
    If,
    Let,
    Load,
    Name,
    Statement,
    Store,
    While,
    bodies,
    children,
    expressions,
    walk,
)
from tilewright.passes.items.item_memory import Item


def without_unread_arrays(item: Item, statements: Sequence[Statement]) -> Sequence[Statement]:
    """The statements without what writes arrays of the work item that none of them reads; it forgets these arrays."""
    unread = {one.name for one in item.scratch} | {one.name for one in item.private}
    unread -= loaded_buffers(statements)
    if not unread:
        return statements
    kept = without_stores(statements, unread)
    rooms, used = {f"%room.{name}" for name in unread}, used_names(kept)
    item.scalars = {key: one for key, one in item.scalars.items() if one[1] not in rooms or key in used}
    item.scratch = [one for one in item.scratch if one.name not in unread]
    item.private = [one for one in item.private if one.name not in unread]
    item.buffers = {key: one for key, one in item.buffers.items() if one.name not in unread}
    return kept


def loaded_buffers(statements: Sequence[Statement]) -> set[str]:
    """The names of all buffers that some statement reads."""
    return {one.buffer.name for one in _expressions_in(statements) if isinstance(one, Load)}


def used_names(statements: Sequence[Statement]) -> set[str]:
    """The names whose values some statement uses."""
    return {one.name for one in _expressions_in(statements) if isinstance(one, Name)}


def _expressions_in(statements: Sequence[Statement]) -> Iterator[Expression]:
    pending = [one for statement in walk(tuple(statements)) for one in expressions(statement)]
    while pending:
        one = pending.pop()
        yield one
        pending += children(one)


def without_stores(statements: Sequence[Statement], unread: Collection[str]) -> tuple[Statement, ...]:
    """The statements without stores to these buffers, and without values that only these stores used.

    a = k * 8; t[a] = x; s = s + x  =>  s = s + x
    """
    kept = _without(tuple(statements), unread, None)
    while (fewer := _without(kept, (), used_names(kept))) is not kept:
        kept = fewer
    return kept


def _without(
    statements: tuple[Statement, ...], unread: Collection[str], used: Collection[str] | None
) -> tuple[Statement, ...]:
    """Without stores to `unread`, and values whose names are not among `used`; the same tuple if there are none."""
    kept: list[Statement] = []
    for one in statements:
        match one:
            case Store(buffer=buffer) if buffer.name in unread:
                continue
            case Let(name) if used is not None and name not in used:
                continue
            case For() | While() | If():
                inner = tuple(_without(body, unread, used) for body in bodies(one))
                one = one if all(map(operator.is_, inner, bodies(one))) else _with_bodies(one, inner)
        kept.append(one)
    same = len(kept) == len(statements) and all(map(operator.is_, kept, statements))
    return statements if same else tuple(kept)


def _with_bodies(statement: For | While | If, inner: tuple[tuple[Statement, ...], ...]) -> Statement:
    match statement:
        case For():
            return replace(statement, body=inner[0])
        case While():
            return replace(statement, prelude=inner[0], body=inner[1])
    return replace(statement, then=inner[0], otherwise=inner[1])
