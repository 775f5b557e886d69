"""What no step reads from memory: iotas, for kernels count instead; arrays full of one scalar; scalars on the way to
others, which the kernels of these compute again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.ir.nodes import Atom
from tilewright.runtime.host import KernelStep, Later, Note, Step
from tilewright.runtime.liveness import names_in


def without_unread(steps: Sequence[Step], results: Sequence[Atom], names: Collection[str]) -> tuple[Step, ...]:
    """The steps without those that write an array, or a scalar, of these names which no result, and no later step that
    is kept, reads.
    """
    used = set(names_in(tuple(results)))
    kept: list[Step] = []
    for one in reversed(steps):
        name = one.targets[0].name if isinstance(one, KernelStep) else None
        if name not in names or name in used:
            used.update(names_in(one))
            kept.append(one)
    return tuple(reversed(kept))


def without_notes(notes: Sequence[Note | Later], steps: Sequence[Step], kept: Sequence[Step]) -> list[Note | Later]:
    """The notes without those about steps that are not kept."""
    left = set(map(id, kept))
    targets = [one.targets[0] for one in steps if isinstance(one, KernelStep) and id(one) not in left]
    gone = {f"{target} = {kind}" for target in targets for kind in ("iota", "replicate", "apply", "cast")}
    return [one for one in notes if isinstance(one, Later) or one.statement not in gone]
