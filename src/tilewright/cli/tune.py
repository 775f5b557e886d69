"""`tilewright tune`: the thresholds of a file's programs, measured on data sets, written beside the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tilewright.cli.bench_file import BenchFile, arguments_for, read_file

if TYPE_CHECKING:
    from tilewright.tune.tuner import TuningReport


def data_files(given: Sequence[str]) -> dict[str, Path]:
    """Data sets from "name=file.npz", or "file.npz", which is named after the file.

    Raises:
        ValueError: for a name that is given twice.

    Example:
        >>> data_files(["small=a.npz", "big.npz"]) == {"small": Path("a.npz"), "big": Path("big.npz")}
        True
    """
    found: dict[str, Path] = {}
    for one in given:
        name, equals, file = one.partition("=")
        path = Path(file if equals else one)
        name = name if equals else path.stem
        if name in found:
            raise ValueError(f"--data {one}: there is a data set {name!r} already")
        found[name] = path
    return found


def read_programs(path: Path, data: Sequence[str], entries: Sequence[str]) -> BenchFile:
    """The programs of a file that can be tuned, or those asked for, with their data sets.

    Raises:
        ValueError: if there is none, and for names that the file does not have.
    """
    files = data_files(data)
    read = read_file(path, list(files.values()))
    if files:
        read = replace(read, datasets=dict(zip(files, read.datasets.values(), strict=True)))
    unknown = [name for name in entries if name not in read.programs]
    if unknown:
        raise ValueError(f"{path} has no program {', '.join(unknown)}; it has {', '.join(read.programs)}")
    chosen = {name: one for name, one in read.programs.items() if name in entries or not entries}
    if not entries:
        chosen = {name: one for name, one in chosen.items() if one.has_versions}
    if not chosen:
        raise ValueError(
            f"{path} has no program to tune: none has nested parallelism that its flattening makes versions of"
        )
    return replace(read, programs=chosen)


def tune_file(
    read: BenchFile, target: str | None, cost: Literal["sum", "mean"], seconds: float, fresh: bool
) -> list[TuningReport]:
    """Tune every program of a file on all of its data sets that fit it, with a bar of what has been done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from tilewright.runtime.devices import device_for
    from tilewright.tune.tuner import Timing

    device = device_for(target)
    given = {name: make() for name, make in read.datasets.items()}
    reports = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True) as bar:
        for name, program in read.programs.items():
            data = {dataset: arguments_for(program, dataset, one) for dataset, one in given.items()}
            task = bar.add_task(name, total=None)

            def show(what: str, done: int, total: int, task: Any = task, name: str = name) -> None:
                bar.update(task, description=f"{name}: {what}", completed=done, total=total)

            timing = Timing(seconds=seconds)
            reports.append(program.tune(data, target=device, cost=cost, timing=timing, fresh=fresh, progress=show))
    return reports
