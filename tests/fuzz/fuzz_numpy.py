"""Trials of programs that are written with NumPy's functions, against NumPy: the same text is run there and traced.

A line of a program is drawn by chance, and kept if NumPy computes it and it can be traced. Then NumPy's results are
compared with the interpreter's of the traced program, also of arguments of other sizes, and the interpreter's with
those of every flattening and version on a device (fuzz_trials.py). Functions that jump (comparisons, rounding, places
of greatest values) are taken of numbers only that every order of additions gives exactly.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import fuzz_trials
import numpy as np
from fuzz_numpy_lines import LINES, NUMPYS, TRACED, Scope
from fuzz_trials import Counts, Failure, Trial, laid_out

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.runtime.devices import Device

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 65)
TYPES = ("f64", "f32", "f64", "f32", "i64", "i32", "u8", "bool_", "i8", "u32", "c128", "f16")
MOST_ELEMENTS, MOST_VALUE = 600, 30.0
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

    @property
    def text(self) -> str:
        """The function."""
        shown = ", ".join(
            f"{name}: tw.{kind}[{', '.join(map(repr, sizes))}]" if sizes else f"{name}: tw.{kind}"
            for name, kind, sizes in self.parameters
        )
        return "\n    ".join([f"def f({shown}):", *self.lines, f"return ({', '.join(self.results)},)\n"])

    def __str__(self) -> str:
        shapes = " then ".join(str([np.shape(one) for one in given]) for given in self.arguments)
        return f"trial {self.number} of NumPy's functions\n{self.text}of shapes {shapes}"

    def on_arrays(self, arguments: Sequence[Any]) -> Any:
        """What NumPy gives."""
        names: dict[str, Any] = {"tw": tw, "np": np, **NUMPYS}
        exec(compile(self.text, "<random>", "exec"), names)
        return names["f"](*arguments)

    def traced(self) -> Program:
        """The core program."""
        names: dict[str, Any] = {"tw": tw, "np": np, **TRACED}
        exec(compile(self.text, "<random>", "exec"), names)
        return tw.program(names["f"]).trace()


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
        if not (np.size(value) and _is_kept(value) and _is_kept(other)):
            return
        longer = _replaced(self.trial, lines=(*self.trial.lines, f"{name} = {text}"), results=(name,))
        try:
            longer.traced()
        except (ValueError, TypeError, IndexError, AttributeError) as error:
            self.refused.append(f"{text}: {type(error).__name__}: {error}")
            return
        self.trial = longer
        self.scope.keep(name, value, exact)
        self.others[name] = other


def _replaced(trial: NumpyTrial, **changes: Any) -> NumpyTrial:
    return NumpyTrial(**{**vars(trial), **changes})


def _is_kept(value: Any) -> bool:
    value = np.asarray(value)
    if value.ndim > 4 or value.size > MOST_ELEMENTS or value.dtype.kind not in "biufc":
        return False
    return value.dtype.kind in "biu" or bool(np.all(np.abs(value) <= MOST_VALUE))


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
    fewer = [one for one in SIZES if one**most <= MOST_ELEMENTS]
    for number_of_none in (0, random.choice((0, 0, 1))):
        sizes = dict(zip(names, random.sample(fewer, 3), strict=True))
        sizes |= dict.fromkeys(random.sample(names, number_of_none), 0)
        arguments.append(tuple(_argument(random, one, kind, sizes) for _, kind, one in parameters))
    shown = [(name, kind, tuple(int(s) if s.isdigit() else s for s in sizes)) for name, kind, sizes in parameters]
    scope = Scope(random)
    for (name, _, _), value in zip(parameters, arguments[0], strict=True):
        scope.keep(name, value, True)
    trial = NumpyTrial(number, tuple(shown), arguments=tuple(arguments))  # type: ignore[arg-type]
    others = {name: value for (name, _, _), value in zip(parameters, arguments[1], strict=True)}
    writing = Writing(trial, random, scope, others)
    for _ in range(random.randint(3, LINES_TRIED)):
        writing.tries()
    made = [one.name for one in scope.known]
    results = [made[-1], *random.sample(made[:-1], min(len(made) - 1, random.randint(0, 2)))]
    writing.trial = _replaced(writing.trial, results=tuple(results))
    return writing


def _argument(random: Random, sizes: Sequence[str], kind: str, values: Mapping[str, int]) -> Any:
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
    return laid_out(np.asarray(value), random) if shape else np.asarray(value)[()]


# --- running ----------------------------------------------------------------------------------------------------------


def run_trial(trial: NumpyTrial, device: Device, counts: Counts | None = None) -> Failure | None:
    """The first way of running a trial that gives an error or another answer than NumPy."""
    counts = counts or Counts()
    try:
        program = trial.traced()
    except Exception as error:
        counts.trials += 1
        return Failure(trial, "tracing", f"{type(error).__name__}: {error}")  # type: ignore[arg-type]
    fitting = []
    for given in trial.arguments:
        with _quiet():
            expected = trial.on_arrays(given)
            try:
                found = interpret(program, given)
            except IndexError:  # constant slices of what is empty, which are out of range in programs
                counts.out_of_range += 1
                continue
        problem = _difference(trial, expected, found)
        if problem is not None:
            counts.trials += 1
            return Failure(_only(trial, problem[0]), "numpy", problem[1])  # type: ignore[arg-type]
        fitting.append(given)
    random = Random(trial.number)
    ways = Trial(
        trial.number, program, fitting[0], random.choice((1, 2)), random.random() < 0.5,
        random.random() < 0.85, quick=random.random() < 0.95, further=fitting[-1],
    )  # fmt: skip
    failure = fuzz_trials.run_trial(ways, device, counts)
    if failure is None:
        return None
    return Failure(failure.trial, f"{failure.way}, {trial}", failure.problem)


def _difference(trial: NumpyTrial, expected: Sequence[Any], found: Sequence[Any]) -> tuple[str, str] | None:
    for name, one, other in zip(trial.results, expected, found, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape or one.dtype != other.dtype:
            return name, f"{name}: {other.dtype} {other.shape} where NumPy gives {one.dtype} {one.shape}"
        allowed = _ROUNDINGS.get(one.dtype.name, 1e-9) if one.dtype.kind in "fc" else 0
        if not np.allclose(other, one, rtol=allowed, atol=allowed, equal_nan=True):
            wrong = np.argwhere(~np.isclose(other, one, rtol=allowed, atol=allowed, equal_nan=True))
            place = tuple(int(i) for i in wrong[0])
            return name, f"{name}{list(place)}: {other[place]!r} where NumPy gives {one[place]!r}, {len(wrong)} such"
    return None


def _only(trial: NumpyTrial, name: str) -> NumpyTrial:
    """The trial with this result, and the lines that it needs."""
    wanted, kept = {name}, []
    for line in reversed(trial.lines):
        target, text = line.split(" = ", 1)
        if target in wanted:
            kept.insert(0, line)
            wanted |= set(re.findall(r"\w+", text))
    return _replaced(trial, lines=tuple(kept), results=(name,))
