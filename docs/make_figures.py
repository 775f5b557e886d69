"""Writes the tables of figures in docs/performance.md and README.md from the files of benchmarks/results/.

    make docs            (or: python docs/make_figures.py)

A table stands between `<!-- figures: NAME -->` and `<!-- end of figures -->`, and `TABLES[NAME]` makes it. A test
compares the two, so that no page says what no file says.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "docs" / "performance.md", ROOT / "README.md")
MARKED = re.compile(r"<!-- figures: (\w+) -->\n.*?<!-- end of figures -->", re.DOTALL)

CONTRACTIONS = "contractions-cpu-zen5-1thread"
ON_A_SERVER = "contractions-cpu-emeraldrapids-1thread"
ON_NARROW_VECTORS = "contractions-cpu-zen3-1thread"
TYPES = ("f32", "f64")
WAYS = {"call": "as called", "C": "result in C order"}
OURS, COPY = "tilewright", "copy"
SHOWN_CONTRACTIONS = {"cefg,gdba->fedcba": "all 16", "cged,bafg->fedcba": "16 to 24", "ae,dcbe->dcba": "all 68",
                      "fbea,cedf->dcba": "all 32"}  # fmt: skip
OTHERS = {"TBLIS": "pytblis"}
SQUARES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
BATCHES = (8, 16, 24, 32, 48, 64)
LARGE_COPY = 1 << 22
"""Bytes; permutations of less are not shown, but for one."""


def result(name: str) -> dict[str, Any]:
    """What a file of results says."""
    read: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return read


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def short(value: float) -> str:
    """Two digits behind the point for small figures, fewer for large ones."""
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A table whose first columns are texts, and the others figures."""
    rule = "|" + "---|" * texts + "---:|" * (len(head) - texts)
    lines = ["|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in (head, *rows)]
    return "\n".join((lines[0], rule, *lines[1:]))


def milliseconds(seconds: float) -> str:
    """Three digits."""
    return f"{seconds * 1e3:#.3g}".rstrip(".")


def median_times(row: dict[str, Any], way: str = "") -> dict[str, float]:
    """Seconds by contender, of those that computed the right thing; `way` for contractions: `call` or `C`."""
    contenders = row.get("contenders") or row["times"]
    return {name: (one[way] if way else one)["median"] for name, one in contenders.items() if one.get("correct", True)}


def ratios(rows: Sequence[dict[str, Any]], peer: str, way: str = "") -> list[float]:
    """How many times as fast as a peer we are, by medians, where it took part; as the faster one of its two ways."""
    times = [median_times(one, way) for one in rows]
    both = [([one[name] for name in (peer, f"{peer} optimised") if name in one], one[OURS]) for one in times]
    return [min(theirs) / ours for theirs, ours in both if theirs]


# --- the tables -------------------------------------------------------------------------------------------------------


def faster() -> str:
    """Each kind of work beside each package: geometric mean and least ratio."""
    contractions, small = result(CONTRACTIONS)["rows"], result("small-cpu-zen5-1thread")["rows"]
    semirings = [one for one in result("semirings-cpu-zen5-1thread")["rows"] if "matmul" not in one["name"]]
    kinds: list[tuple[str, list[dict[str, Any]], str, str]] = [
        ("68 contractions of chemistry, results in C order", contractions, "C", "TBLIS"),
        ("the same as each package likes to return them", contractions, "call", "TBLIS"),
        ("squares of 8 to 2048", [one for one in small if one["name"].startswith("square")], "", "TBLIS"),
        ("batches of products of 8 to 64", [one for one in small if one["name"].startswith("batched")], "", "TBLIS"),
        ("trees of contractions", result("trees-cpu-zen5-1thread")["rows"], "", ""),
        ("tensor operations", result("tensor_operations-cpu-zen5-1thread")["rows"], "", "etops"),
        ("min-plus and other semirings, 1024", semirings, "", "numba"),
        ("the programs of `examples/`, two threads", result("programs-cpu-zen5-2threads")["rows"], "", "numba"),
        ("permutations of rank 2 to 6", result("permutations-zen5-1thread")["rows"], "", ""),
        ("one sum, scan, filter, scatter or histogram", result("segments-cpu-zen5-1thread")["rows"], "", "numba"),
    ]
    lines = []
    for what, rows, way, other in kinds:
        cells = []
        for peer, named in (("numpy", ""), ("torch", ""), ("jax", ""), (OTHERS.get(other, other), f"{other} ")):
            found = ratios(rows, peer, way) if peer else []
            cells.append(f"{named}{short(geometric_mean(found))} ({min(found):.2f})" if found else "")
        lines.append((what, *cells))
    return table(("what", "NumPy", "torch", "JAX", "others"), lines)


def best_peer() -> str:
    """Contractions beside the best of all packages, case by case."""
    lines = []
    files = {
        "Zen 5, one thread": CONTRACTIONS,
        "Zen 5, two threads": "contractions-cpu-zen5-2threads",
        "Zen 4, one thread": "contractions-cpu-zen4-1thread",
        "Zen 4, two threads": "contractions-cpu-zen4-2threads",
        "Emerald Rapids, one thread": ON_A_SERVER,
        "Emerald Rapids, two threads": "contractions-cpu-emeraldrapids-2threads",
        "Granite Rapids, one thread": "contractions-cpu-graniterapids-1thread-beside-all",
        "Granite Rapids, two threads": "contractions-cpu-graniterapids-2threads",
        "Zen 3, one thread": ON_NARROW_VECTORS,
    }
    for where, name in files.items():
        rows = result(name)["rows"]
        for way, words in WAYS.items():
            cells = []
            for type_ in TYPES:
                times = [median_times(one, way) for one in rows if one["dtype"] == type_]
                beside = [min(t for n, t in one.items() if n != OURS) / one[OURS] for one in times]
                cells.append(f"{geometric_mean(beside):.2f} ({min(beside):.2f})")
            lines.append((f"{where}, {words}", *cells))
    return table(("", *TYPES), lines)


def roofline() -> str:
    """Shares of the roofline on one thread, by the best rounds, and the cases furthest from it."""
    lines = []
    files = (("Zen 5", "zen5"), ("Zen 4", "zen4"), ("Emerald Rapids", "emeraldrapids"),
             ("Granite Rapids", "graniterapids"), ("Zen 3", "zen3"))  # fmt: skip
    for where, processor in files:
        rows = result(f"contractions-cpu-{processor}-1thread")["rows"]
        lines += [(f"{where}, {words}", *_shares(rows, way)) for way, words in WAYS.items()]
    return table(("one thread", "mean", "at least 0.88", "at least 0.80", "furthest"), lines)


def _shares(rows: Sequence[dict[str, Any]], way: str) -> tuple[str, ...]:
    """The mean share of either type, how many shares are large, and the contractions with the least."""
    own: dict[str, dict[str, float]] = {}
    for one in rows:
        rate = one["gflop"] / one["contenders"][OURS][way]["best"]
        own.setdefault(one["expr"], {})[one["dtype"]] = rate / one["roofline"]
    furthest = sorted(own, key=lambda expression: min(own[expression].values()))[:4]
    means = " / ".join(f"{sum(one[type_] for one in own.values()) / len(own):.2f}" for type_ in TYPES)
    every = [share for one in own.values() for share in one.values()]
    counts = [f"{sum(share >= least for share in every)} of {len(every)}" for least in (0.88, 0.8)]
    named = ", ".join(f"`{one}` {own[one]['f32']:.2f} / {own[one]['f64']:.2f}" for one in furthest)
    return means, *counts, named


def small_products(kind: str, sizes: Sequence[int], words: str) -> str:
    """Squares or batches beside the best peer, by the best rounds."""
    lines = []
    files = (("Zen 5", "zen5"), ("Zen 4", "zen4"), ("Zen 3", "zen3"), ("Emerald Rapids", "emeraldrapids"),
             ("Granite Rapids", "graniterapids"))  # fmt: skip
    for processor, name in files:
        found = result(f"small-cpu-{name}-1thread")["rows"]
        rows = {(one["name"], one["dtype"]): one["contenders"] for one in found}
        cells = []
        for extent in sizes:
            both = []
            for type_ in TYPES:
                times = {name: one["best"] for name, one in rows[f"{kind} {extent}", type_].items() if one["correct"]}
                both.append(f"{min(t for n, t in times.items() if n != OURS) / times[OURS]:.2f}")
            cells.append(" / ".join(both))
        lines.append((f"{words}, {processor}", *cells))
    return table(("f32 / f64", *map(str, sizes)), lines)


def permutations() -> str:
    """Large permutations beside the copy and other packages."""
    lines = []
    for one in result("permutations-zen5-1thread")["rows"]:
        if one["bytes"] < LARGE_COPY and one["shape"] != [128, 128]:
            continue
        times = median_times(one)
        beside = [short(times[peer] / times[OURS]) for peer in ("numpy", "torch")]
        shape = " x ".join(map(str, one["shape"]))
        rate = one["contenders"][OURS]["rate"]
        lines.append((f"`{one['expr']}`", shape, one["dtype"], f"{rate:.0f}", f"{one['share']:.2f}", *beside))
    return table(("permutation", "shape", "dtype", "GB/s", "of the copy", "NumPy", "torch"), lines, texts=3)


def in_milliseconds(file: str, first: str, peers: dict[str, str], quoted: bool) -> str:
    """Each row's time, and how many times as fast as each peer."""
    lines = []
    for one in result(file)["rows"]:
        times = median_times(one)
        beside = [short(times[peer] / times[OURS]) if peer in times else "" for peer in peers]
        lines.append((f"`{one['name']}`" if quoted else one["name"], milliseconds(times[OURS]), *beside))
    return table((first, "ms", *peers.values()), lines)


def example() -> str:
    """README's: some contractions in milliseconds, and the mean of all."""
    rows = result(CONTRACTIONS)["rows"]
    peers = {OURS: "Tilewright", "numpy": "NumPy", "torch": "torch", "jax": "JAX"}
    lines = []
    for expression, extents in SHOWN_CONTRACTIONS.items():
        (times,) = (median_times(one, "C") for one in rows if (one["expr"], one["dtype"]) == (expression, "f32"))
        lines.append((f"`{expression}`", extents, *(f"{times[peer] * 1e3:.1f}" for peer in peers)))
    means = ["1", *(f"{geometric_mean(ratios(rows, peer, 'C')):.1f}" for peer in peers if peer != OURS)]
    lines.append((f"{len(rows) // 2} contractions, f32 and f64: geometric mean of the ratios", "", *means))
    return table(("contraction", "extents", *peers.values()), lines, texts=2)


TABLES: dict[str, Callable[[], str]] = {
    "faster": faster,
    "best_peer": best_peer,
    "roofline": roofline,
    "squares": lambda: small_products("square", SQUARES, "squares of"),
    "batches": lambda: small_products("batched", BATCHES, "batches of 64 and more products of"),
    "permutations": permutations,
    "programs": lambda: in_milliseconds(
        "programs-cpu-zen5-2threads", "program",
        {"numpy": "NumPy", "numba": "numba", "jax": "JAX", "torch": "torch"}, quoted=True,
    ),
    "programs_on_a_server": lambda: in_milliseconds(
        "programs-cpu-emeraldrapids-2threads", "program",
        {"numpy": "NumPy", "numba": "numba", "jax": "JAX", "torch": "torch"}, quoted=True,
    ),
    "segments": lambda: in_milliseconds(
        "segments-cpu-zen5-1thread", "what", {"numpy": "NumPy", "numba": "numba"}, quoted=False
    ),
    "example": example,
}  # fmt: skip


def with_figures(text: str) -> str:
    """A page with all its tables made anew.

    Raises:
        KeyError: for a name that no table has.
    """
    return MARKED.sub(lambda one: f"<!-- figures: {one[1]} -->\n{TABLES[one[1]]()}\n<!-- end of figures -->", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_figures(page.read_text()))
