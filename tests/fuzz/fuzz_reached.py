"""What trials go through: which rules fire, and which modules of the passes work.

A run that has never reached some lowering has not tested it, however long it was. So rules that fire are counted, and
(in some of the trials, for it takes time) the modules of `passes/` of which a function runs; a long run fails if one of
those that it is there for is missing. `tensor/` has an interface and tests of its own; without checks of indices
(`core/unchecked`) there is nothing to compare with, and large products in lanes (`lane_products/kernel`) are rare.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import tilewright
from tilewright.rewrite import strategy
from tilewright.rewrite.rule import all_rules

PASSES = Path(tilewright.__file__).parent / "passes"
MANY_TRIALS = 2000
"""From so many on a run fails if something was not reached."""
TRACED = 4
"""Of so many trials one is traced."""

OF_PROGRAMS = ("core", "flattening", "items", "segments", "streams")
OF_CPU_PROGRAMS = ("lanes", "points", "sweeps", "direct", "matrix_vector", "permute")
OF_CONTRACTIONS = {
    "cpu": ("contractions", "direct", "lane_products", "packed", "matrix_vector"), "gpu": ("tiled",),
}  # fmt: skip
NOT_REACHED = {"core/unchecked", "lane_products/kernel"}
NOT_ON_CPUS = {"segments/atomics", "segments/groups", "segments/scans", "streams/choice", "streams/tiles"}
ONLY_OF_LARGE_ARRAYS = {"direct/collect", "permute/lines", "permute/staged", "permute/strips", "permute/tiles"}
NOT_ON_GPUS = {
    "core/narrow_indices", "items/loop_cuts", "items/renaming", "items/speculation", "items/split_ranges",
    "segments/bin_rows", "segments/bins", "streams/lanes", "streams/rows",
}  # fmt: skip
"""Loops over points and lanes of vectors, which blocks of threads do not have."""
ONLY_ON_CPUS = {"one pass", "column scans"}
"""Families of rules."""


@contextmanager
def watched(found: set[str], traced: bool = True) -> Iterator[None]:
    """Adds what is reached inside: "rule map_map", and if it is traced modules such as "sweeps/form"."""
    folder, seen = str(PASSES), dict[int, Any]()

    def enter(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if id(code) not in seen:
            seen[id(code)] = code  # kept, so that no other one gets its number
            if code.co_filename.startswith(folder) and code.co_flags & CO_OPTIMIZED:  # not the body of a module
                found.add(Path(code.co_filename).relative_to(folder).with_suffix("").as_posix())

    def step(rule: str, *arguments: Any) -> Any:
        found.add(f"rule {rule}")
        return made(rule, *arguments)

    made, before = strategy.Step, sys.gettrace()
    with mock.patch.object(strategy, "Step", step):
        sys.settrace(enter if traced else before)
        try:
            yield
        finally:
            sys.settrace(before)


def expected(contractions: bool, on_cpu: bool) -> set[str]:
    """What a long run must reach: of contractions or of programs, on a CPU or a device of blocks of threads."""
    if contractions:
        folders, absent = OF_CONTRACTIONS["cpu" if on_cpu else "gpu"], NOT_REACHED
    else:
        folders = (*OF_PROGRAMS, *OF_CPU_PROGRAMS) if on_cpu else OF_PROGRAMS
        absent = NOT_REACHED | ONLY_OF_LARGE_ARRAYS | (NOT_ON_CPUS if on_cpu else NOT_ON_GPUS)
    modules = {
        path.relative_to(PASSES).with_suffix("").as_posix() for one in folders for path in (PASSES / one).glob("*.py")
    }
    rules = (
        set()
        if contractions
        else {f"rule {one.name}" for one in all_rules() if on_cpu or one.family not in ONLY_ON_CPUS}
    )
    return rules | {one for one in modules if not one.endswith("__init__")} - absent


def table(counts: Mapping[str, int], wanted: set[str]) -> str:
    """Lines of what was reached and in how many trials, a line for each folder and one for the rules."""
    groups: dict[str, list[str]] = {}
    for name in sorted(wanted | counts.keys()):
        group, _, rest = name.replace("rule ", "rules/").partition("/")
        groups.setdefault(group if rest else "passes", []).append(f"{rest or group} {counts.get(name, 0)}")
    return "\n".join(f"  {group}: {', '.join(names)}" for group, names in groups.items())
