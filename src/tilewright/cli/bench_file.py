"""What `tilewright bench` reads: a file with programs, their data sets, and how much work a call is."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilewright.frontend.program import TracedProgram

UNITS = {"flops": "GFLOP/s", "bytes": "GB/s"}


@dataclass(frozen=True)
class BenchFile:
    """A file that has been read.

    Attributes:
        path: where it lies.
        programs: its programs by name, without those whose names begin with an underscore.
        datasets: functions that make the arguments, by name.
        work: how many operations and bytes a call with these arguments stands for; nothing if the file does not say.
    """

    path: Path
    programs: dict[str, TracedProgram]
    datasets: dict[str, Callable[[], tuple[Any, ...]]]
    work: Callable[..., Mapping[str, float]] | None


def read_file(path: Path, data: list[Path]) -> BenchFile:
    """Run a Python file, and take what it offers.

    Args:
        path: the file. It has functions decorated with `tilewright.program`, and may have `datasets()`, which gives
            arguments (or functions that make them) by name, and `work(*arguments)`, which gives `flops`, `bytes`.
        data: .npz files that are used as data sets instead.

    Raises:
        ValueError: for a file that is not there or that has no programs or no data sets, naming what is missing.
    """
    module, programs = read_programs(path)
    work = getattr(module, "work", None)
    if work is not None and not callable(work):
        raise ValueError(f"{path}: work must be a function of a program's arguments, not {type(work).__name__}")
    datasets = {one.stem: _from_npz(one) for one in data} if data else _datasets(path, module)
    return BenchFile(path, programs, datasets, work)


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tilewright_bench_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    with _found_first(path.parent):
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise ValueError(f"{_place(path, error)}: {type(error).__name__}: {error}") from error
    return module


def _place(path: Path, error: Exception) -> str:
    """Where in a file an error came up: path:line."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{error.filename}:{error.lineno}"
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


@contextmanager
def _found_first(folder: Path) -> Iterator[None]:
    """The folder of a script is where it looks for other modules, as when Python runs it."""
    sys.path.insert(0, str(folder.resolve()))
    try:
        yield
    finally:
        sys.path.remove(str(folder.resolve()))


def read_programs(path: Path) -> tuple[ModuleType, dict[str, TracedProgram]]:
    """Run a Python file; what it defines, and its programs by name.

    Raises:
        ValueError: for a file that is not there, that has no programs, or that raises an error, with its line.
    """
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    module = _module(path)
    programs = _programs(module)
    if not programs:
        raise ValueError(f"{path} has no program: decorate a function with @tilewright.program")
    return module, programs


def _programs(module: ModuleType) -> dict[str, TracedProgram]:
    from tilewright.frontend.program import TracedProgram

    found = {name: one for name, one in vars(module).items() if isinstance(one, TracedProgram)}
    return {name: one for name, one in found.items() if not name.startswith("_")}


def _datasets(path: Path, module: ModuleType) -> dict[str, Callable[[], tuple[Any, ...]]]:
    offered = getattr(module, "datasets", None)
    if not callable(offered):
        raise ValueError(
            f"{path} has no function datasets(), which gives arguments by name; write one, or give --data FILE.npz"
        )
    given = offered()
    if not isinstance(given, Mapping) or not given:
        raise ValueError(f"{path}: datasets() must give a dictionary of arguments by name, not {given!r}")
    return {str(name): _made(path, str(name), one) for name, one in given.items()}


def _made(path: Path, name: str, given: Any) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        arguments = given() if callable(given) else given
        if not isinstance(arguments, tuple | list):
            raise ValueError(
                f"{path}: the data set {name} must be a tuple of arguments, or a function that makes one, not "
                f"{type(arguments).__name__}"
            )
        return tuple(arguments)

    return make


class NamedArguments(tuple[Any, ...]):
    """The arrays of a .npz file, with the names that they have there."""

    names: tuple[str, ...] = ()


def _from_npz(path: Path) -> Callable[[], tuple[Any, ...]]:
    import numpy as np

    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise ValueError(f"it holds one array of shape {file.shape} without a name: use np.savez")
        with file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError, OSError, TokenError) as error:
        raise ValueError(f"{path} is no .npz file of arrays: {error}") from None
    arguments = NamedArguments(arrays.values())
    arguments.names = tuple(arrays)
    return lambda: arguments


def arguments_for(program: TracedProgram, dataset: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a program: by position, or those of a .npz file by the names of the parameters.

    Raises:
        ValueError: naming the parameters that are missing, and what there is.
    """
    wanted = [one.name for one in program.parameters]
    shown = f"{program.function.__name__}({', '.join(f'{one.name}: {one.annotation}' for one in program.parameters)})"
    if isinstance(given, NamedArguments) and any(not name.startswith("arr_") for name in given.names):
        by_name = dict(zip(given.names, given, strict=True))
        missing = [name for name in wanted if name not in by_name]
        if missing:
            raise ValueError(f"data set {dataset} has no {', '.join(missing)} for {shown}; it has {', '.join(by_name)}")
        given = tuple(by_name[name] for name in wanted)
    if len(given) != len(wanted):
        raise ValueError(f"data set {dataset} has {len(given)} arguments; {shown} takes {len(wanted)}")
    pairs = zip(program.parameters, given, strict=True)
    return tuple(one if parameter.annotation.shape else _scalar(one) for parameter, one in pairs)


def _scalar(value: Any) -> Any:
    """A scalar that a .npz file holds as an array without dimensions."""
    return value[()] if getattr(value, "shape", None) == () else value


def work_of(file: BenchFile, arguments: tuple[Any, ...]) -> dict[str, float]:
    """The operations and bytes of a call, if the file tells them.

    Raises:
        ValueError: for anything but numbers named flops and bytes.
    """
    if file.work is None:
        return {}
    try:
        inspect.signature(file.work).bind(*arguments)
    except TypeError as error:
        raise ValueError(f"{file.path}: work() does not take the {len(arguments)} arguments: {error}") from None
    told = file.work(*arguments)
    if not isinstance(told, Mapping) or not told or set(told) - set(UNITS):
        raise ValueError(f"{file.path}: work() must give flops, bytes or both as a dictionary, not {told!r}")
    return {name: float(amount) for name, amount in told.items()}
