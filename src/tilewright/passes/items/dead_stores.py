"""Arrays of a work item that are written and never read: results of scans that nobody uses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
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
    kept = _without(statements, unread, None)
    while True:
        used = used_names(kept)
        fewer = _without(kept, (), used)
        if fewer == kept:
            return kept
        kept = fewer


def _without(
    statements: Iterable[Statement], unread: Collection[str], used: Collection[str] | None
) -> tuple[Statement, ...]:
    """Without stores to `unread`, and values whose names are not among `used`."""
    kept: list[Statement] = []
    for one in statements:
        match one:
            case Store(buffer=buffer) if buffer.name in unread:
                continue
            case Let(name) if used is not None and name not in used:
                continue
            case For(body=body):
                one = replace(one, body=_without(body, unread, used))
            case While(prelude=prelude, body=body):
                one = replace(one, prelude=_without(prelude, unread, used), body=_without(body, unread, used))
            case If(then=then, otherwise=otherwise):
                one = replace(one, then=_without(then, unread, used), otherwise=_without(otherwise, unread, used))
        kept.append(one)
    return tuple(kept)
