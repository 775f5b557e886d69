"""The contractions, sizes and tile sizes of the thesis's evaluation, as the benchmarks have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FACTS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "benchmarks" / "thesis.json").read_text())
CONTRACTIONS: list[str] = list(FACTS["contractions"].values())
DATASETS: dict[str, dict[str, int]] = FACTS["datasets"]
SHAPES: dict[str, list[list[list[int]]]] = FACTS["validation_shapes"]


def tile_sizes(einsum: str) -> list[dict[str, tuple[int, int] | int]]:
    """The thesis's tile sizes for one of its contractions: (T, R) by parallel dimension, Q for the contracted one."""
    name = next(key for key, value in FACTS["contractions"].items() if value == einsum)
    family = name[:2]
    tiles = FACTS["validation_tiles"]
    labels = [column[1:] for column in tiles["columns"][family] if column.startswith("T")]
    found = []
    for sizes in tiles["mm" if family == "mm" else name]:
        count = len(labels)
        pairs = zip(sizes[:count], sizes[count + 1 :], strict=True)
        found.append({**dict(zip(labels, pairs, strict=True)), "q": sizes[count]})
    return found
