"""Arrays of a work item that are written and never read: results of scans that nobody uses."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence

from tilewright.kernel.ir import For, If, Let, Load, Name, Statement, Store, While
from tilewright.kernel.traversal import bodies, expressions, expressions_in, parts, with_bodies
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
    return {one.buffer.name for one in expressions_in(statements) if isinstance(one, Load)}


def used_names(statements: Sequence[Statement]) -> set[str]:
    """The names whose values some statement uses."""
    return {one.name for one in expressions_in(statements) if isinstance(one, Name)}


def without_stores(statements: Sequence[Statement], unread: Collection[str]) -> tuple[Statement, ...]:
    """The statements without stores to these buffers, and without values that nothing else uses.

    a = k * 8; t[a] = x; s = s + x  =>  s = s + x
    """
    return _needed(tuple(statements), unread, set())


def _needed(statements: tuple[Statement, ...], unread: Collection[str], used: set[str]) -> tuple[Statement, ...]:
    """What is left of these; the same tuple if that is all.

    They are looked at from the last to the first, since values are used after they are made: so what follows has told
    already what it uses, in `used`.
    """
    kept: list[Statement] = []
    for one in reversed(statements):
        match one:
            case Store(buffer=buffer) if buffer.name in unread:
                continue
            case Let(name) if name not in used:
                continue
        used.update(part.name for part in parts(expressions(one)) if isinstance(part, Name))
        if isinstance(one, For | While | If):
            inner = tuple(_needed(body, unread, used) for body in reversed(bodies(one)))[::-1]
            one = one if all(map(operator.is_, inner, bodies(one))) else with_bodies(one, inner)
        kept.append(one)
    kept.reverse()
    same = len(kept) == len(statements) and all(map(operator.is_, kept, statements))
    return statements if same else tuple(kept)
