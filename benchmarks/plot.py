"""Plots of result files: GFLOP/s of every contender at each case, with the roofline above them.

    python benchmarks/plot.py benchmarks/results/contractions-cpu-zen4-1thread.json ...

Writes NAME.svg beside each NAME.json. Needs matplotlib, which nothing else here does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

STYLES = {
    "tilewright": ("o", "#c8102e"),
    "numpy": ("s", "#4c72b0"),
    "matmul": ("v", "#9db4d6"),
    "torch": ("^", "#dd8452"),
    "pytblis": ("D", "#55a868"),
    "jax": ("x", "#8172b3"),
}


def plot(path: Path) -> Path:
    """Draw one file of `benchmarks/contractions.py`; results in C order."""
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "tilewright"  # the same drawing of the same numbers
    content = json.loads(path.read_text())
    rows: list[dict[str, Any]] = content["rows"]
    dtypes = sorted({row["dtype"] for row in rows})
    figure, axes = pyplot.subplots(len(dtypes), 1, figsize=(12, 4.2 * len(dtypes)), squeeze=False)
    for dtype, axis in zip(dtypes, axes[:, 0], strict=True):
        mine = [row for row in rows if row["dtype"] == dtype]
        names = [row["name"] for row in mine]
        axis.step(range(len(mine)), [row["roofline"] for row in mine], where="mid", color="black", label="roofline")
        for contender in mine[0]["contenders"]:
            marker, color = STYLES[contender]
            rates = [row["gflop"] / row["contenders"][contender]["C"]["best"] for row in mine]
            axis.plot(range(len(mine)), rates, marker, color=color, label=contender, linestyle="none")
        axis.set_xticks(range(len(mine)), names, rotation=90)
        axis.set_ylim(0)
        axis.set_ylabel(f"GFLOP/s, {dtype}, result in C order")
        axis.grid(axis="y", alpha=0.3)
        axis.legend(ncols=7, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0))
    machine = content["machine"]
    figure.suptitle(f"{machine['processor']}, {content['threads']} thread(s), commit {machine['commit']}")
    figure.tight_layout()
    target = path.with_suffix(".svg")
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)
    return target


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for argument in sys.argv[1:]:
        print(plot(Path(argument)))
