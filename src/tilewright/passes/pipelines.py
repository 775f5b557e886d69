"""Passes as values, and the lists of them that programs go through.

`TILEWRIGHT_VERIFY=1` in the environment has every pass's result verified; so does `verify=True`. It is off otherwise,
since programs are compiled while their users wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Program
from tilewright.machine.model import Machine
from tilewright.passes.core.free_contractions import free_contractions
from tilewright.passes.core.fuse import fuse
from tilewright.passes.core.nest_maps import nest_folds, nest_maps
from tilewright.passes.core.read_concatenations import read_concatenations
from tilewright.passes.core.simplify import simplify
from tilewright.passes.last_rewrites import compute_rows, fill_histograms, fold_loops, join_rows, scan_columns, sweep
from tilewright.rewrite.derivation import Recording
from tilewright.runtime.environment import is_on

PassFunction: TypeAlias = Callable[[Program, Recording | None], Program]


@dataclass(frozen=True)
class Pass:
    """A named step of a pipeline, with one line of why it stands there."""

    name: str
    why: str
    run: PassFunction


class PassError(ValueError):
    """A pass has produced an ill-formed program; the message holds the defects and the program."""


standard_pipeline: tuple[Pass, ...] = (
    Pass("simplify", "fewer statements and known views: producers stand directly before their consumers", simplify),
    Pass("fuse", "intermediate arrays disappear", fuse),
    Pass("read concatenations", "what only maps take apart is never joined in memory", read_concatenations),
    Pass("nest maps", "points that divide their number by the length of rows are nests over the rows", nest_maps),
    Pass("simplify", "fused functions repeat work and keep inputs that they no longer need", simplify),
    Pass("free contractions", "what no tile can do with its products is done after them", free_contractions),
)


def machine_pipeline(machine: Machine) -> tuple[Pass, ...]:
    """What a program goes through last, before each of its statements gets a lowering for this machine."""
    first = (Pass("fill histograms", "bins and values that only histograms read are never stored", fill_histograms),)
    if machine.is_gpu_like:
        return first
    return (
        *first,
        Pass("nest folds", "points that divide their number by the length of rows are folded row by row", nest_folds),
        Pass("fold loops", "points that loop go on together, and what they give is folded afterwards", fold_loops),
        Pass("join rows", "long rows that one map after another computes stay in the first cache", join_rows),
        Pass("free contractions", "rows that were joined may have been fused with a product", free_contractions),
        Pass(
            "compute rows", "columns that are only joined are never stored, and each row is written once", compute_rows
        ),
        Pass("scan columns", "neighbouring columns are scanned together, row by row", scan_columns),
        Pass("sweep", "a core goes through the rows of maps, scans and scatters once", sweep),
    )


def run_pipeline(
    program: Program,
    passes: Sequence[Pass] = standard_pipeline,
    derivation: Recording | None = None,
    verify: bool | None = None,
) -> Program:
    """The program after all passes.

    `verify` has the program checked before the first and after every pass (default: `TILEWRIGHT_VERIFY`).

    Raises:
        PassError: if a pass breaks the program, with the defects and the program as text.
        IRError: if the program is ill-formed before the first pass.
    """
    checking = is_on("TILEWRIGHT_VERIFY", False) if verify is None else verify
    if checking:
        return _run_checked(program, passes, derivation)
    for one in passes:
        program = one.run(program, derivation)
    return program


def _run_checked(program: Program, passes: Sequence[Pass], derivation: Recording | None) -> Program:
    from tilewright.ir.printer import print_program
    from tilewright.ir.verifier import IRError, verify

    verify(program)
    for number, one in enumerate(passes, 1):
        program = one.run(program, derivation)
        try:
            verify(program)
        except IRError as error:
            text = print_program(program)
            raise PassError(f"pass {number}, {one.name}, broke the program: {error}\n{text}") from error
    return program
