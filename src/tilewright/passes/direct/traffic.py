"""What it takes to bring bytes from a level of the memory, or to write them, in the units of direct/cost.py."""

from __future__ import annotations

from tilewright.machine.model import Machine
from tilewright.passes.direct.form import LINE
from tilewright.passes.packed.blocks import is_past_caches, level_of

FAR_PIECE = 120.0  # cycles until a piece of main memory comes that no prefetcher of the processor foresees


def read_once(
    sizes: tuple[int, int],
    pieces: tuple[int, int],
    out: int,
    machine: Machine,
    asked: tuple[bool, bool] = (False, False),
    foreseen: tuple[bool, bool] = (True, True),
) -> float:
    """Cycles to read the vector and the scalar side (whose tiles read so many bytes together, may be asked for ahead,
    and come from the third cache before they are needed if that is `foreseen`) beside such an output.
    """
    level = level_of(sum(sizes) + out, machine)
    pace = machine.pace
    cycles = sum(sizes) / pace.bytes_from(level)
    if level > 2:
        for size, piece, ahead, near in zip(sizes, pieces, asked, foreseen, strict=True):
            if size > machine.l2_bytes and level == 4:
                cycles += size / piece * (pace.asked if ahead else FAR_PIECE * pace.waiting)
            elif size > machine.l2_bytes and not (ahead or near):
                cycles += size / max(piece, LINE) * pace.near
    return cycles


def written_once(out: int, others: int, may_pass: bool, machine: Machine) -> float:
    """Cycles to write the output: past the caches if it is larger than they are, else its lines are read before."""
    level, pace = level_of(out + others, machine), machine.pace
    if may_pass and is_past_caches(out, machine):
        return out / pace.past
    return (2 if level > 3 else pace.written) * out / pace.bytes_from(level)
