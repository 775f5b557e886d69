"""Iotas that no step reads from memory, for kernels count instead; and arrays full of one scalar that none reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.ir.nodes import Atom
from tilewright.runtime.host import KernelStep, Later, Note, Step
from tilewright.runtime.liveness import names_in


def without_unread(steps: Sequence[Step], results: Sequence[Atom], names: Collection[str]) -> tuple[Step, ...]:
    """The steps without those that write an array of these names which no other step, and no result, reads."""
    written = {id(one): one.targets[0].name for one in steps if isinstance(one, KernelStep)}
    others = tuple(one for one in steps if written.get(id(one)) not in names)
    used = set(names_in((others, tuple(results))))
    return tuple(one for one in steps if (name := written.get(id(one))) not in names or name in used)


def without_notes(notes: Sequence[Note | Later], steps: Sequence[Step], kept: Sequence[Step]) -> list[Note | Later]:
    """The notes without those about steps that are not kept."""
    left = set(map(id, kept))
    targets = [one.targets[0] for one in steps if isinstance(one, KernelStep) and id(one) not in left]
    gone = {f"{target} = {kind}" for target in targets for kind in ("iota", "replicate")}
    return [one for one in notes if isinstance(one, Later) or one.statement not in gone]
