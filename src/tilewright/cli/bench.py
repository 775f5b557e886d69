"""Timing programs: medians with confidence intervals, as a table and as JSON, and comparisons of two results."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.bench_file import UNITS, BenchFile, arguments_for, read_file, work_of

if TYPE_CHECKING:
    from rich.table import Table

    from tilewright.runtime.devices import Device

FORMAT = "tilewright-bench-1"
CONFIDENCE = 0.95
_FEWEST_SECONDS = 2e-4  # of one measurement; shorter calls are measured several at a time


@dataclass(frozen=True)
class Row:
    """One program on one data set.

    Attributes:
        program: its name. dataset: the name of its arguments.
        seconds: the times of the runs, each the mean of `calls` calls.
        first_call: the time of the very first call, compiling included, in seconds.
        calls: how many calls one run is.
        work: operations and bytes of a call, if they are known.
    """

    program: str
    dataset: str
    seconds: tuple[float, ...]
    first_call: float
    calls: int
    work: dict[str, float]


# --- measuring --------------------------------------------------------------------------------------------------------


def run_file(
    path: Path, data: list[Path], datasets: Sequence[str], entries: Sequence[str], target: str | None, runs: int
) -> tuple[Device, list[Row]]:
    """Time the programs of a file on its data sets.

    Args:
        path: the file, see `bench_file.read_file`. data: .npz files in place of its own data sets.
        datasets: names of data sets; all if none. entries: names of programs; all if none.
        target: the device.
        runs: measurements for each program and data set, at least `LEAST_RUNS`.

    Raises:
        ValueError: for names that are not in the file, and arguments that do not fit.
    """
    from tilewright.runtime.devices import device_for

    if runs < LEAST_RUNS:
        raise ValueError(
            f"--runs {runs}: results can be compared with {CONFIDENCE:.0%} confidence from {LEAST_RUNS} on"
        )
    file, device = read_file(path, data), device_for(target)
    chosen = {name: file.programs[name] for name in picked(path, "program", entries, file.programs)}
    rows = []
    for dataset in picked(path, "data set", datasets, file.datasets):
        given = file.datasets[dataset]()
        for name, program in chosen.items():
            rows.append(_measured(file, name, dataset, arguments_for(program, dataset, given), device, runs))
    return device, rows


def picked(path: Path, what: str, wanted: Sequence[str], offered: dict[str, Any]) -> list[str]:
    """The names that are wanted of those that a file offers; all if none is.

    Raises:
        ValueError: for names that it does not offer, with those that it does.
    """
    unknown = [name for name in wanted if name not in offered]
    if unknown:
        raise ValueError(f"{path} has no {what} named {', '.join(unknown)}; it has {', '.join(offered)}")
    return list(wanted) or list(offered)


def _measured(file: BenchFile, name: str, dataset: str, arguments: tuple[Any, ...], device: Device, runs: int) -> Row:
    program, work = file.programs[name], work_of(file, arguments)

    def call() -> None:
        program(*arguments, target=device)

    first, second = _timed(call, 1), _timed(call, 1)
    calls = max(1, math.ceil(_FEWEST_SECONDS / max(second, 1e-9)))
    _timed(call, calls)  # caches and pools are warm from here on
    return Row(name, dataset, tuple(_timed(call, calls) for _ in range(runs)), first, calls, work)


def _timed(call: Callable[[], None], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


# --- statistics -------------------------------------------------------------------------------------------------------


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """The median, and order statistics between which the distribution's median lies with this confidence.

    The number of values below the true median is binomial with p = 1/2, whatever the distribution of times is, so the
    interval from the k-th smallest to the k-th largest value misses it with probability 2 P(B < k) [Conover, Practical
    Nonparametric Statistics, 3.2; Hoefler and Belli, Scientific Benchmarking of Parallel Computing Systems, 2015].

    Raises:
        ValueError: for so few values that even the whole range is less certain.

    Example:
        >>> median_interval([5.0, 1.0, 4.0, 2.0, 3.0, 6.0])
        (3.5, 1.0, 6.0)
    """
    ordered, count = sorted(values), len(values)
    below, rank = 0.0, 0
    while rank < count // 2:
        below += math.comb(count, rank) / 2.0**count
        if 2 * below > 1 - confidence:
            break
        rank += 1
    if rank == 0:
        raise ValueError(f"{count} values have no interval of {confidence:.0%} confidence; take more")
    return statistics.median(ordered), ordered[rank - 1], ordered[count - rank]


def fewest_runs(confidence: float = CONFIDENCE) -> int:
    """The least number of values that has a confidence interval: 2 * 2^-n <= 1 - confidence.

    Example:
        >>> fewest_runs()
        6
    """
    return math.ceil(1 - math.log2(1 - confidence))


COMPARING = 1 - (1 - CONFIDENCE) / 2
"""The confidence of each of two intervals that together hold with CONFIDENCE (Bonferroni)."""
LEAST_RUNS = fewest_runs(COMPARING)


# --- tables and files -------------------------------------------------------------------------------------------------


def results_table(device: Device, rows: Sequence[Row]) -> Table:
    """The results for a terminal."""
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text  # names are no markup

    from tilewright.report.text import duration

    table = Table(title=f"{escape(str(device))}; medians with {CONFIDENCE:.0%} confidence intervals")
    for name in ("program", "data set"):
        table.add_column(name, overflow="fold")
    units = [unit for unit in UNITS if any(unit in row.work for row in rows)]
    for name in ("first call", "median", "interval", *(UNITS[unit] for unit in units)):
        table.add_column(name, justify="right")
    for row in rows:
        median, low, high = median_interval(row.seconds)
        rates = [f"{row.work[unit] * 1e-9 / median:.3g}" if unit in row.work else "" for unit in units]
        interval = f"{duration(low)} to {duration(high)}"
        table.add_row(
            Text(row.program), Text(row.dataset), duration(row.first_call), duration(median), interval, *rates
        )
    return table


def results_json(path: Path, device: Device, rows: Sequence[Row]) -> str:
    """The results with the machine that they are of."""
    import platform

    import numpy as np

    from tilewright import __version__
    from tilewright.runtime.thread_count import get_num_threads

    machine = {
        "device": device.name, "description": device.description, "cores": device.machine.cores,
        "threads": get_num_threads(), "system": platform.platform(), "python": platform.python_version(),
        "numpy": np.__version__, "tilewright": __version__,
    }  # fmt: skip
    listed = []
    for row in rows:
        median, low, high = median_interval(row.seconds)
        listed.append(
            {"program": row.program, "dataset": row.dataset, "median": median, "low": low, "high": high,
             "first_call": row.first_call, "calls": row.calls, "work": row.work, "seconds": list(row.seconds)}
        )  # fmt: skip
    lines = ",\n".join(f"  {json.dumps(one)}" for one in listed)
    head = json.dumps({"format": FORMAT, "file": path.name, "machine": machine}, indent=1)
    return f'{head[:-2]},\n "rows": [\n{lines}\n ]\n}}\n'


# --- comparing --------------------------------------------------------------------------------------------------------


def read_results(path: Path) -> dict[tuple[str, str], tuple[float, ...]]:
    """The times of a JSON file by program and data set.

    Raises:
        ValueError: if it is no such file.
    """
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {FORMAT!r}")
        return {(row["program"], row["dataset"]): _times_of(row) for row in content["rows"]}
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is no result of tilewright bench --json: {reason}") from None


def _times_of(row: dict[str, Any]) -> tuple[float, ...]:
    times = tuple(map(float, row["seconds"]))
    for one in times:
        if not 0 < one < math.inf:
            raise ValueError(f"{row['program']} on {row['dataset']} took {one} seconds")
    return times


@dataclass(frozen=True)
class Change:
    """How one program's time on one data set has changed: new / old, and between what with confidence.

    Each of the two medians is within its interval with confidence COMPARING, so both are with CONFIDENCE, and then
    their ratio is between the extremes of the intervals' ratios.
    """

    program: str
    dataset: str
    ratio: float
    low: float
    high: float

    @property
    def is_significant(self) -> bool:
        """Whether the interval does not hold 1."""
        return not self.low <= 1.0 <= self.high

    @property
    def verdict(self) -> str:
        """slower, faster, or nothing."""
        return ("slower" if self.ratio > 1 else "faster") if self.is_significant else ""


def compare(
    old: dict[tuple[str, str], tuple[float, ...]], new: dict[tuple[str, str], tuple[float, ...]]
) -> list[Change]:
    """The changes of what both have, in the order of the new one.

    Raises:
        ValueError: if they have nothing in common, or too few runs.

    Example:
        >>> times = tuple(1 + 0.01 * n for n in range(10))
        >>> (change,) = compare({("f", "small"): times}, {("f", "small"): tuple(2 * one for one in times)})
        >>> change.ratio, change.verdict
        (2.0, 'slower')
    """
    common = [key for key in new if key in old]
    if not common:
        had, has = (", ".join(f"{program} on {dataset}" for program, dataset in one) or "none" for one in (old, new))
        raise ValueError(f"the two files have no program and data set in common: the old one has {had}; the new {has}")
    changes = []
    for key in common:
        before, before_low, before_high = median_interval(old[key], COMPARING)
        after, after_low, after_high = median_interval(new[key], COMPARING)
        changes.append(Change(*key, after / before, after_low / before_high, after_high / before_low))
    return changes


def comparison_table(changes: Sequence[Change]) -> Table:
    """The changes for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"new time / old time, with {CONFIDENCE:.0%} confidence intervals")
    for name in ("program", "data set"):
        table.add_column(name, overflow="fold")
    for name in ("ratio", "interval", "change"):
        table.add_column(name, justify="right")
    for one in changes:
        colour = {"slower": "red", "faster": "green", "": "default"}[one.verdict]
        interval = f"{one.low:.3f} to {one.high:.3f}"
        table.add_row(Text(one.program), Text(one.dataset), f"{one.ratio:.3f}", interval, f"[{colour}]{one.verdict}[/]")
    return table
