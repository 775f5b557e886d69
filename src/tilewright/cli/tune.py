"""`tilewright tune`: the thresholds of a file's programs, measured on data sets, written beside the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.bench_file import BenchFile, arguments_for, read_file

if TYPE_CHECKING:
    from tilewright.frontend.program import TracedProgram
    from tilewright.tune.search import CostKind
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
    read: BenchFile,
    target: str | None,
    cost: CostKind,
    seconds: float,
    budget: float,
    fresh: bool,
    told: Callable[[str], None],
) -> Iterator[TuningReport]:
    """Tune every program of a file on all of its data sets that fit it, with a bar of what has been done; one that none
    fits is left out.

    Args:
        read: the file.
        target: the device.
        cost: what is smallest in the end.
        seconds: how long each candidate is run.
        budget: seconds after which no further candidate of a program is tried.
        fresh: measure everything again.
        told: is given what a person should know meanwhile.

    Raises:
        ValueError: if no data set fits any program, with the reasons.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from tilewright.runtime.devices import device_for
    from tilewright.tune.tuner import Timing

    device = device_for(target)
    given = {name: make() for name, make in read.datasets.items()}
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    fitting = {name: _fitting(program, given) for name, program in read.programs.items()}
    if not any(data for data, _ in fitting.values()):
        raise ValueError("; ".join(reason for _, others in fitting.values() for reason in others))
    for name, program in read.programs.items():
        data, others = fitting[name]
        for reason in others:
            told(f"left out: {reason}")
        if not data:
            told(f"left out: {name}, which no data set fits")
            continue
        with Progress(*columns, transient=True) as bar:
            task = bar.add_task(name, total=None)

            def show(what: str, done: int, total: int, task: Any = task, name: str = name, bar: Any = bar) -> None:
                bar.update(task, description=f"{name}: {what}", completed=done, total=total)

            timing = Timing(seconds=seconds, budget=budget)
            report = program.tune(data, target=device, cost=cost, timing=timing, fresh=fresh, progress=show)
        yield report


def _fitting(
    program: TracedProgram, given: Mapping[str, tuple[Any, ...]]
) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
    """The data sets that have as many arguments as a program takes, of its types, and why others do not."""
    data, others = {}, []
    for name, one in given.items():
        try:
            arguments = arguments_for(program, name, one)
            _check_types(program, arguments)
            data[name] = arguments
        except (TypeError, ValueError) as error:
            others.append(str(error) if str(error).startswith("data set") else f"data set {name}: {error}")
    return data, others


def _check_types(program: TracedProgram, arguments: Sequence[Any]) -> None:
    """Refuse arrays whose types or ranks are not those of a program's parameters.

    Raises:
        TypeError, ValueError: naming the parameter.
    """
    import numpy as np

    from tilewright.frontend.program_arguments import accepted

    name = program.function.__name__
    for parameter, argument in zip(program.parameters, arguments, strict=True):
        if parameter.annotation.shape:
            array, rank = np.asarray(argument), len(parameter.annotation.shape)
            accepted(name, parameter, array)
            if array.ndim != rank:
                raise ValueError(f"program {name}: parameter {parameter.name} has {rank} dimensions, not {array.ndim}")
