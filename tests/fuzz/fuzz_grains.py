"""From which sizes on work takes another way, and what these are when they are made small.

Random programs are small, so that the interpreter gets through them. What is done for large arrays alone, because it
pays there, is right for small ones too; where such a limit is made small for a trial, its arrays take that way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from random import Random
from typing import Any
from unittest import mock

GRAINS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "POINTS_PER_BLOCK": (4, ("runtime.scheduling",)),
    "ROWS_PER_CHUNK": (2, ("passes.segments.choice", "passes.segments.bin_rows")),
    "points LEAST_ROWS": (2, ("passes.points.lower_reduction",)),
    # only now and then
    "ROWS_OF_ONE_PASS": (4, ("passes.segments.steps", "passes.sweeps.steps")),
    "MOST_ROWS_PER_THREAD": (2, ("passes.segments.choice",)),
    "ROWS_PER_THREAD": (1, ("passes.segments.choice",)),
    "BATCH": (4, ("passes.segments.bins",)),
    "bins LEAST_ROWS": (4, ("passes.segments.bins", "passes.segments.row_bins")),
    "ROWS_PER_BIN": (1, ("passes.segments.bins", "passes.segments.row_bins")),
    "ROWS_OF_PIECES": (1, ("passes.segments.bin_rows",)),
    "LEAST_SEGMENTS": (1, ("passes.segments.columns",)),
    "TOGETHER_COLUMNS": (4, ("passes.segments.columns",)),
    "COLUMNS": (8, ("passes.items.lower_columns", "passes.segments.columns")),
    "CACHED_BYTES": (64, ("passes.items.lower_columns",)),
    "LEAST_COLUMNS": (2, ("passes.items.lower_columns",)),
    "_SHORT": (2, ("passes.items.split_ranges",)),
    "lanes SHORTEST": (2, ("passes.lanes.lane_loops",)),
    "past SHORTEST": (1, ("passes.lanes.past_caches", "passes.segments.column_rows")),
    "scans LEAST_ROWS": (2, ("passes.points.scan_lanes",)),
    "FEWEST_POINTS": (1, ("passes.points.inner_maps",)),
    "FEWEST_IN_ORDER": (1, ("passes.points.inner_maps",)),
    "streams PIECE": (4, ("passes.streams.lanes",)),
    "LEAST_LENGTH": (2, ("passes.contractions.split_sums",)),
    "PIECE_CYCLES": (10, ("passes.contractions.split_sums",)),
    "any_shape MOST_POINTS": (0, ("passes.contractions.any_shape",)),
    "relaid GAIN": (100.0, ("passes.contractions.relaid",)),
    "LAUNCH": (0.0, ("passes.contractions.relaid",)),
    "lane_choice GAIN": (100.0, ("passes.contractions.lane_choice",)),
    "packed SERIAL_CYCLES": (10, ("passes.packed.blocks",)),
    "direct SERIAL_CYCLES": (10, ("passes.direct.choice",)),
    "LEAST_PIECE": (8, ("passes.packed.blocks",)),
    "copied SERIAL_BYTES": (64, ("passes.permute.copied",)),
    "GRAIN_BYTES": (1024, ("passes.permute.copied",)),
    "lanes BLOCK_BYTES": (64, ("passes.lane_products.kernel",)),
    "records BLOCK_BYTES": (64, ("passes.lane_products.record_kernel",)),
    "LEAST_RECORDS": (2, ("passes.lane_products.records",)),
    "LEAST_LARGE": (1, ("passes.lane_products.form",)),
    "SERIAL_BYTES": (64, ("passes.matrix_vector.form", "passes.matrix_vector.row_products")),
    "LEAST_POINTS": (1, ("passes.flattening.as_written",)),
    "LONG_ROWS": (2, ("rewrite.rules.joined_rows",)),
    "MANY_ROWS": (2, ("rewrite.rules.joined_rows",)),
    "MANY_ELEMENTS": (4, ("rewrite.rules.joined_rows",)),
    "SHORTEST_ROW": (1, ("rewrite.rules.divided_maps",)),
    "SMALLEST_RELEASED": (1, ("runtime.liveness",)),
    "LARGEST_SEQUENTIAL_ROUND": (1, ("runtime.steps",)),
    "FEWEST_ROUNDS": (2, ("runtime.rounds",)),
    "LONGEST_RECORDING": (8, ("runtime.executor",)),
    "MOST_ROUNDS": (2, ("runtime.versions",)),
    "SHORT_ROUND": (2, ("runtime.versions",)),
    "LARGE": (2, ("runtime.cpu_device",)),
    "DEEP": (2, ("runtime.cpu_device",)),
}
"""By a name, of which the last word is the constant's: what it becomes, and in which modules."""
ALWAYS = ("POINTS_PER_BLOCK", "ROWS_PER_CHUNK", "points LEAST_ROWS")
"""Those of all trials whose grains are small."""


def random_grains(random: Random) -> tuple[str, ...]:
    """Some of the others: often none, sometimes all."""
    others = [one for one in GRAINS if one not in ALWAYS]
    share = random.choice((0.0, 0.0, 0.1, 0.3, 1.0))
    return tuple(one for one in others if random.random() < share)


@contextmanager
def grains(names: Sequence[str]) -> Iterator[None]:
    """Inside, the limits of these names are small."""
    found = [(import_module(f"tilewright.{one}"), name) for name in GRAINS for one in GRAINS[name][1]]
    with ExitStack() as stack:  # all are imported before: what is imported inside would keep small limits
        for module, name in found:
            if name in names:
                stack.enter_context(mock.patch.object(module, name.split()[-1], GRAINS[name][0]))
        yield
