"""Trials of programs that are written with NumPy's functions, against NumPy: the same text is run there and traced.

A line of a program is drawn by chance, and kept if NumPy computes it and it can be traced. Then NumPy's results are
compared with the interpreter's of the traced program, also of arguments of other sizes, and the interpreter's with
those of every flattening and version on a device (fuzz_trials.py); of large arrays, which take the interpreter too
long, these are compared with NumPy's. Functions that jump (comparisons, rounding, places of greatest values) are taken
of numbers only that every order of additions gives exactly. Some arrays have elements that are infinite or undefined.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import fuzz_trials
import numpy as np
from fuzz_grains import random_grains
from fuzz_numpy_lines import LINES, NUMPYS, TRACED, Scope
from fuzz_trials import Counts, Failure, Trial, laid_out

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.passes.compile import compile_program
from tilewright.passes.flattening.kinds import FLATTENINGS
from tilewright.runtime.devices import Device

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 65)
TYPES = ("f64", "f32", "f64", "f32", "i64", "i32", "u8", "bool_", "i8", "u32", "c128", "f16")
LARGE_SIZES = (1, 5, 16, 31, 64, 100, 129, 257, 1000, 4099, 20000)
MOST_ELEMENTS, MOST_LARGE, MOST_VALUE = 600, 40_000, 30.0
LINES_TRIED = 14
_ROUNDINGS = {"float16": 2e-2, "float32": 2e-4, "complex64": 2e-4}


@dataclass(frozen=True)
class NumpyTrial:
    """Lines of a function of arrays, and arguments of two sizes."""

    number: int
    parameters: tuple[tuple[str, str, tuple[str, ...]], ...]  # name, type, sizes
    lines: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    arguments: tuple[Sequence[Any], ...] = ()
    large: bool = False
    generic: bool = False  # arrays of any type are taken
    further: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})  # names that NumPy's text has, and the traced
    exact: bool = False  # numbers are NumPy's to the last bit
    unsigned: frozenset[str] = frozenset()  # results of which zeros have any sign

    @property
    def text(self) -> str:
        """The function."""
        shown = ", ".join(
            f"{name}: tw.{'array' if self.generic else kind}[{', '.join(map(repr, sizes))}]"
            if sizes
            else f"{name}: tw.{kind}"
            for name, kind, sizes in self.parameters
        )
        return "\n    ".join([f"def f({shown}):", *self.lines, f"return ({', '.join(self.results)},)\n"])

    def __str__(self) -> str:
        shapes = " then ".join(str([np.shape(one) for one in given]) for given in self.arguments)
        return f"trial {self.number} of NumPy's functions\n{self.text}of shapes {shapes}"

    def on_arrays(self, arguments: Sequence[Any]) -> Any:
        """What NumPy gives."""
        names: dict[str, Any] = {"tw": tw, "np": np, **NUMPYS, **self.further[0]}
        exec(compile(self.text, "<random>", "exec"), names)
        return names["f"](*arguments)

    def program(self) -> Any:
        """The function, to be traced."""
        names: dict[str, Any] = {"tw": tw, "np": np, **TRACED, **self.further[1]}
        exec(compile(self.text, "<random>", "exec"), names)
        return tw.program(names["f"])

    def core(self) -> Program:
        """The core program."""
        generic = [one for one in self.arguments[0] if np.ndim(one)] if self.generic else []
        return self.program().trace(*(one.dtype for one in generic))


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@dataclass
class Writing:
    """A trial that is being written: the values of what there is so far, and why lines were refused."""

    trial: NumpyTrial
    random: Random
    scope: Scope
    others: dict[str, Any]
    refused: list[str] = field(default_factory=list)

    def tries(self) -> None:
        """One more line, if there is one to be kept."""
        write = self.random.choice(LINES)
        written = write(self.scope)
        if written is None:
            return
        text, exact = written
        name = f"v{len(self.trial.lines)}"
        here = {one.name: one.value for one in self.scope.known}
        with _quiet():
            try:
                value, other = (eval(text, {"np": np, **NUMPYS, **values}) for values in (here, self.others))
            except (ValueError, TypeError, IndexError):
                return
        if not (np.size(value) and self._is_kept(value) and self._is_kept(other)):
            return
        longer = _replaced(self.trial, lines=(*self.trial.lines, f"{name} = {text}"), results=(name,))
        try:
            longer.core()
        except (ValueError, TypeError, IndexError, AttributeError) as error:
            self.refused.append(f"{text}: {type(error).__name__}: {error}")
            return
        self.trial = longer
        self.scope.keep(name, value, exact)
        self.others[name] = other

    def _is_kept(self, value: Any) -> bool:
        value = np.asarray(value)
        most = MOST_LARGE if self.trial.large else MOST_ELEMENTS
        if value.ndim > 4 or value.size > most or value.dtype.kind not in "biufc":
            return False
        return value.dtype.kind in "biu" or bool(np.all((np.abs(value) <= MOST_VALUE) | ~np.isfinite(value)))


def _replaced(trial: NumpyTrial, **changes: Any) -> NumpyTrial:
    return NumpyTrial(**{**vars(trial), **changes})


def make_trial(number: int) -> NumpyTrial:
    """The trial of this number."""
    return written(number).trial


def written(number: int) -> Writing:
    """The trial of this number, and what was refused on the way."""
    random = Random(f"numpy trial {number}")
    names = ("n", "m", "k")
    parameters = []
    for name in "abcd"[: random.randint(1, 4)]:
        sizes = tuple(random.choice((*names, "3")) for _ in range(random.choice((0, 1, 1, 2, 2, 3))))
        parameters.append((name, random.choice(TYPES), sizes))
    arguments = []
    most = max(sum(not one.isdigit() for one in sizes) for _, _, sizes in parameters)
    large, special = random.random() < 0.3, random.random() < 0.15
    limit = MOST_LARGE if large else MOST_ELEMENTS
    fewer = [one for one in (LARGE_SIZES if large else SIZES) if one**most <= limit]
    for number_of_none in (0, random.choice((0, 0, 1))):
        sizes = dict(zip(names, random.sample(fewer, 3), strict=True))
        sizes |= dict.fromkeys(random.sample(names, number_of_none), 0)
        arguments.append(tuple(_argument(random, one, kind, sizes, special) for _, kind, one in parameters))
    shown = [(name, kind, tuple(int(s) if s.isdigit() else s for s in sizes)) for name, kind, sizes in parameters]
    scope = Scope(random, special=special)
    for (name, _, _), value in zip(parameters, arguments[0], strict=True):
        scope.keep(name, value, True)
    trial = NumpyTrial(number, tuple(shown), arguments=tuple(arguments), large=large, generic=random.random() < 0.3)  # type: ignore[arg-type]
    others = {name: value for (name, _, _), value in zip(parameters, arguments[1], strict=True)}
    writing = Writing(trial, random, scope, others)
    for _ in range(random.randint(3, LINES_TRIED)):
        writing.tries()
    made = [one.name for one in scope.known]
    results = [made[-1], *random.sample(made[:-1], min(len(made) - 1, random.randint(0, 2)))]
    writing.trial = _replaced(writing.trial, results=tuple(results))
    return writing


def _argument(random: Random, sizes: Sequence[str], kind: str, values: Mapping[str, int], special: bool) -> Any:
    shape = [values.get(one, 3) for one in sizes]
    scalar = getattr(tw, kind).scalar if hasattr(getattr(tw, kind), "scalar") else None
    dtype = scalar.numpy if scalar is not None else np.dtype({"bool_": "bool", "c128": "complex128"}.get(kind, kind))
    draw = np.random.default_rng(random.randrange(2**32))
    if dtype.kind == "b":
        value = draw.integers(0, 2, shape).astype(bool)
    elif dtype.kind in "iu":
        value = draw.integers(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype)
    else:
        value = (draw.integers(-16, 17, shape) / 8).astype(dtype)
        if dtype.kind == "c":
            value = value + 1j * (draw.integers(-16, 17, shape) / 8)
        if special:
            there = draw.random(shape) < random.choice((0.02, 0.3))
            value = np.where(there, draw.choice((np.nan, np.inf, -np.inf), shape), value).astype(dtype)
    return laid_out(np.asarray(value), random) if shape else np.asarray(value)[()]


# --- running ----------------------------------------------------------------------------------------------------------


def run_trial(trial: NumpyTrial, device: Device, counts: Counts | None = None) -> Failure | None:
    """The first way of running a trial that gives an error or another answer than NumPy."""
    counts = counts or Counts()
    counts.trials += 1
    way = "tracing"
    try:
        core = trial.core()
        with _quiet():
            expected = [(given, trial.on_arrays(given)) for given in trial.arguments]
            if not trial.large:
                way = "interpreter"
                problem = _compared(trial, expected, lambda *given: interpret(core, given), counts)
                if problem is not None:
                    return problem
            way = "call"
            problem = _calls(trial, expected, device, counts)
    except Exception as error:
        return Failure(trial, way, f"{type(error).__name__}: {error}")  # type: ignore[arg-type]
    if problem is None:
        problem = (
            _versions(trial, core, expected, device, counts) if trial.large else _ways(trial, core, device, counts)
        )
    return problem


def _compared(
    trial: NumpyTrial, expected: Sequence[tuple[Any, Any]], run: Callable[..., Any], counts: Counts, way: str = "numpy"
) -> Failure | None:
    for given, wanted in expected:
        try:
            found = run(*given)
        except (IndexError, ValueError) as error:
            if _may_be_out_of_range(trial, given) and _is_of_a_range(error):
                counts.out_of_range += 1
                continue
            raise
        found = found if isinstance(found, tuple | list) else (found,)
        problem = _difference(trial, wanted, found)
        if problem is not None:
            return Failure(_only(trial, problem[0]), way, problem[1])  # type: ignore[arg-type]
    return None


def _calls(trial: NumpyTrial, expected: Sequence[tuple[Any, Any]], device: Device, counts: Counts) -> Failure | None:
    """What is wrong with calls of the program, and of a second one, which finds what the first left on the disk and
    gets other values first; each of them twice.
    """
    with _quiet():
        others = [tuple(map(_with_other_values, given)) for given, _ in expected]
        further = [(given, trial.on_arrays(given)) for given in others]
    target = device if trial.number % 3 or device.name != "cpu" else None
    for number, cases in enumerate((expected, [*further, *expected])):
        program = trial.program()
        with _surroundings(trial):
            for case in cases:
                run = functools.partial(program, target=target)
                way = f"numpy, calls of the program, {number}"
                failure = _compared(trial, [case, case], run, counts, way) or _out(trial, case, run, way)
                if failure is not None:
                    return failure
    return None


def _out(trial: NumpyTrial, case: tuple[Any, Any], run: Callable[..., Any], way: str) -> Failure | None:
    """What is wrong with two calls that write into arrays with gaps."""
    given, wanted = case
    if _is_empty(given) or any(np.asarray(one).dtype.kind == "c" and not np.all(np.isfinite(one)) for one in wanted):
        return None
    roundings = [_ROUNDINGS.get(np.asarray(one).dtype.name, 1e-9) for one in wanted]
    into = fuzz_trials.Case(given, wanted, [fuzz_trials.Tolerance(one, one) for one in roundings])
    problem = fuzz_trials.into_arrays(run, into) or fuzz_trials.into_arrays(run, into)
    return None if problem is None else Failure(trial, way, problem)  # type: ignore[arg-type]


def _with_other_values(one: Any) -> Any:
    """Another argument of the same form, and as far from a multiple of 64 bytes: the same values in other places."""
    if not np.ndim(one):
        return one
    low, high = np.lib.array_utils.byte_bounds(one)
    room = np.zeros(high - low + 64, np.uint8)
    begin = (low - room.ctypes.data) % 64
    start = begin + one.ctypes.data - low
    other = np.ndarray(one.shape, one.dtype, room.data, start if one.size else 0, one.strides)
    other[...] = np.roll(one, 1)
    return other


def _is_empty(arguments: Sequence[Any]) -> bool:
    return any(0 in np.shape(one) for one in arguments)


def _is_of_a_range(error: Exception) -> bool:
    """Whether programs refuse so what is out of range, or slices below zero as parts of what is joined."""
    return isinstance(error, IndexError) or "of a concatenation" in str(error)


def _may_be_out_of_range(trial: NumpyTrial, arguments: Sequence[Any]) -> bool:
    """Whether programs refuse what NumPy does: constant slices of nothing, borders wider than what they repeat."""
    narrow = any(extent <= 2 for one in arguments for extent in np.shape(one))
    return _is_empty(arguments) or (narrow and re.search("'(reflect|symmetric|wrap)'", trial.text) is not None)


def _surroundings(trial: NumpyTrial) -> AbstractContextManager[None]:
    """The threads, how quickly code is made, and what counts as large."""
    some = random_grains(Random(f"grains {trial.number}"))
    return fuzz_trials.surroundings(1 + trial.number % 2, trial.number % 20 > 0, further_grains=some)


def _versions(
    trial: NumpyTrial, core: Program, expected: Sequence[tuple[Any, Any]], device: Device, counts: Counts
) -> Failure | None:
    """What differs from NumPy in any flattening and version."""
    for flattening in FLATTENINGS:
        way = f"{device.name}, flattening={flattening}"
        with _surroundings(trial), _quiet():
            try:
                executable = compile_program(core, device, flattening=flattening)
                counts.executables += 1
                for setting in fuzz_trials.settings_of(executable, Random(trial.number)):
                    counts.versions += 1
                    here = f"{way}, thresholds {setting}"
                    version = executable.with_thresholds(setting)
                    problem = _compared(trial, expected, version, counts, here)
                    if problem is not None:
                        return problem
            except Exception as error:
                return Failure(trial, way, f"{type(error).__name__}: {error}")  # type: ignore[arg-type]
    return None


def _ways(trial: NumpyTrial, core: Program, device: Device, counts: Counts) -> Failure | None:
    """What differs from the interpreter in any of the ways of other trials."""
    fitting = []
    for given in trial.arguments:
        with _quiet():
            try:
                if _may_be_out_of_range(trial, given):
                    interpret(core, given)
                fitting.append(given)
            except (IndexError, ValueError) as error:
                if not _is_of_a_range(error):
                    raise
    if not fitting:
        counts.out_of_range += 1
        return None
    random = Random(trial.number)
    ways = Trial(
        trial.number, core, fitting[0], random.choice((1, 2)), random.random() < 0.5, random.random() < 0.85,
        quick=random.random() < 0.95, further=fitting[-1], flattenings=FLATTENINGS,
    )  # fmt: skip
    counts.trials -= 1
    failure = fuzz_trials.run_trial(ways, device, counts)
    return None if failure is None else Failure(failure.trial, f"{failure.way}, {trial}", failure.problem)


def _difference(trial: NumpyTrial, expected: Sequence[Any], found: Sequence[Any]) -> tuple[str, str] | None:
    for name, one, other in zip(trial.results, expected, found, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape or one.dtype != other.dtype:
            return name, f"{name}: {other.dtype} {other.shape} where NumPy gives {one.dtype} {one.shape}"
        if trial.exact:
            wrong = np.argwhere(~_same(one, other, name in trial.unsigned))
            if len(wrong):
                return name, _first_of(name, wrong, one, other)
            continue
        allowed = _ROUNDINGS.get(one.dtype.name, 1e-9) if one.dtype.kind in "fc" else 0
        if one.dtype.kind == "c":  # parts of products may be nan or infinite, as they are computed
            finite = np.isfinite(one)
            one, other = np.where(finite, one, 0), np.where(finite, other, 0)
        wrong = np.argwhere(~np.isclose(other, one, rtol=allowed, atol=allowed, equal_nan=True))
        if len(wrong):
            return name, _first_of(name, wrong, one, other)
    return None


def _first_of(name: str, wrong: Any, one: Any, other: Any) -> str:
    place = tuple(int(i) for i in wrong[0])
    return f"{name}{list(place)}: {other[place]!r} where NumPy gives {one[place]!r}, {len(wrong)} such"


def _same(one: Any, other: Any, unsigned: bool) -> Any:
    """Where numbers are the same, nan like nan, and 0.0 other than -0.0 unless its sign is not known."""
    if one.dtype.kind == "c":
        return _same(one.real, other.real, True) & _same(one.imag, other.imag, True)
    if one.dtype.kind != "f":
        return one == other
    return ((one == other) & (unsigned | (np.signbit(one) == np.signbit(other)))) | (np.isnan(one) & np.isnan(other))


def _only(trial: NumpyTrial, name: str) -> NumpyTrial:
    """The trial with this result, and the lines that it needs."""
    wanted, kept = {name}, []
    for line in reversed(trial.lines):
        target, text = line.split(" = ", 1)
        if target in wanted:
            kept.insert(0, line)
            wanted |= set(re.findall(r"\w+", text))
    return _replaced(trial, lines=tuple(kept), results=(name,))
