"""Trials: a random program with random arguments, compiled and run in every way, against the interpreter.

A trial is made from its number alone, so that a number is all that is needed to repeat it. It decides the program (how
deep, of which scalar types, inside how many maps), how the arguments lie in memory, how many threads there are, and
whether the sizes from which on work is shared out are made small, so that small arrays take those ways too. Then every
flattening of the program is run with thresholds that reach each of its versions, and with all of them at 0, at 1 and
without limit; each twice, because the second call goes by the bound plan, then with arguments of other sizes on another
number of threads, again as before, and into arrays of the caller. What the first call gave must not change meanwhile.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest import mock

import numpy as np
from flatten_cases import batched
from fuzz_grains import ALWAYS, grains, random_grains
from fuzz_tolerance import Tolerance, difference, tolerances
from random_programs.generator import random_arguments, random_program
from random_programs.variety import PLAIN, random_variety

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.ir.printer import print_program
from tilewright.ir.scalars import ScalarType
from tilewright.ir.verifier import verify
from tilewright.passes.compile import compile_program
from tilewright.passes.flattening.flatten_tree import version_settings
from tilewright.passes.flattening.kinds import FLATTENINGS, Flattening
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.rewrite.rules.flatten_versions import thresholds_of
from tilewright.runtime import cpu_jit
from tilewright.runtime.devices import Device
from tilewright.runtime.executable import Executable
from tilewright.runtime.thread_count import num_threads

DEPTH = 5
MOST_SETTINGS = 12
"""Of the thresholds, for each program: the three common ones, and as many of the others drawn by chance."""

MOST_ROWS = (100, 17, 9)
"""The largest size, by the number of maps put around a random program."""


@dataclass(frozen=True)
class Trial:
    """What is run, and how."""

    number: int
    program: Program
    arguments: Sequence[Any]
    threads: int = 1
    small_grains: bool = False
    optimise: bool = True
    contractions: bool = True
    quick: bool = False
    further: Sequence[Any] = ()
    flattenings: tuple[Flattening | None, ...] = (None, *FLATTENINGS)
    further_grains: tuple[str, ...] = ()

    def __str__(self) -> str:
        values = "\n".join(f"  {p}: {_shown(a)}" for p, a in zip(self.program.parameters, self.arguments, strict=True))
        ways = f"threads={self.threads} small_grains={self.small_grains} optimise={self.optimise}"
        ways += f" contractions={self.contractions} quick={self.quick} further_grains={self.further_grains}"
        also = "\n".join(f"  then {_shown(one)}" for one in self.further)
        return f"trial {self.number}: {ways}\n{print_program(self.program)}\nwith\n{values}\n{also}"


@dataclass(frozen=True)
class Failure:
    """A way of running a trial that went wrong, and how."""

    trial: Trial
    way: str
    problem: str

    def __str__(self) -> str:
        return f"{self.trial}\n{self.way}: {self.problem}"


@dataclass
class Counts:
    """What a run of trials did."""

    trials: int = 0
    refused: int = 0
    executables: int = 0
    versions: int = 0
    out_of_range: int = 0
    dropped: int = 0


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}, strides {value.strides}, {np.array2string(value, threshold=200, separator=', ')}"
    return repr(value)


# --- making trials ----------------------------------------------------------------------------------------------------


def make_trial(number: int, varied: bool | None = None, always: tuple[ScalarType, ...] = ()) -> Trial:
    """The trial of this number; `varied`: of all scalar types and larger sizes, or not; else as chance has it.

    With `always`, types that programs of all types compute on besides.
    """
    random = Random(f"trial {number}")
    careless = 0.15 if random.random() < 0.1 else 0.0
    variety = (
        random_variety(random, careless, always) if (random.random() < 0.7 if varied is None else varied) else PLAIN
    )
    maps = random.choice((0, 0, 0, 1, 1, 2))
    depth = random.randint(1, DEPTH - maps)
    segmented = random.random() < 0.15 and not maps  # only the host asks for thresholds
    program = random_program(number, depth, random.randint(2, 7 - maps), segmented=segmented, variety=variety)
    for outer in range(maps):
        program = batched(program, f"outer{outer}")
    verify(program)
    fewer = tuple(one for one in variety.sizes if one <= MOST_ROWS[maps])  # or the interpreter takes too long
    variety = dataclasses.replace(variety, sizes=fewer)
    arguments = random_arguments(program, number, variety)
    return Trial(
        number,
        program,
        tuple(laid_out(one, random, repeated=True) for one in arguments),
        threads=random.choice((1, 2)),
        small_grains=random.random() < 0.5,
        further_grains=random_grains(random),
        optimise=random.random() < 0.85,
        contractions=random.random() < 0.8,
        quick=random.random() < 0.95,
        further=tuple(laid_out(one, random, True) for one in random_arguments(program, number + 1, variety)),
    )


def laid_out(value: Any, random: Random, repeated: bool = False) -> Any:
    """The same values otherwise in memory: strided, turned over, transposed, unaligned, read-only.

    `repeated`: or some of them over and over, along a dimension without a stride or in windows that overlap.
    """
    if not isinstance(value, np.ndarray) or not value.ndim or random.random() < 0.4:
        return value
    if repeated and value.size and random.random() < 0.15:
        axis = random.randrange(value.ndim)
        if axis == value.ndim - 1 and value.ndim > 1:
            long = np.concatenate([value[..., 0, :], value[..., 1:, 0]], -1)
            return np.lib.stride_tricks.sliding_window_view(long, value.shape[-1], -1)
        return np.broadcast_to(value.take([0], axis), value.shape)
    match random.randrange(6):
        case 0:
            wide = np.zeros(tuple(2 * one for one in value.shape), value.dtype)
            place = wide[tuple(slice(None, None, 2) for _ in value.shape)]
        case 1:
            place = np.zeros_like(value)[tuple(slice(None, None, -1) for _ in value.shape)]
        case 2:
            place = np.zeros(value.shape, value.dtype, order="F")
        case 3:
            place = np.zeros(value.nbytes + 1, np.uint8)[1:].view(value.dtype).reshape(value.shape)
        case 4:
            place = np.zeros((*value.shape[:-1], value.shape[-1] + 3), value.dtype)[..., 1 : 1 + value.shape[-1]]
        case _:
            place = np.zeros_like(value)
    place[...] = value
    place.flags.writeable = random.random() < 0.7
    return place


# --- running trials ---------------------------------------------------------------------------------------------------


@contextmanager
def surroundings(
    threads: int, quick: bool, small_grains: bool = False, further_grains: Sequence[str] = ()
) -> Iterator[None]:
    """The threads and the grains of a trial."""
    with ExitStack() as stack:
        stack.enter_context(num_threads(threads))
        stack.enter_context(grains((*ALWAYS, *further_grains) if small_grains else further_grains))
        if quick:
            target = functools.partial(_target_machine, cpu_jit._target_machine)
            optimised = functools.partial(_hardly_optimised, cpu_jit._optimised)
            stack.enter_context(mock.patch.object(cpu_jit, "_target_machine", target))
            stack.enter_context(mock.patch.object(cpu_jit, "_optimised", optimised))
            stack.enter_context(mock.patch.object(cpu_jit, "_short_pipeline", _least_pipeline))
        yield


def surroundings_for(trial: Trial) -> AbstractContextManager[None]:
    """Those that a trial asks for."""
    return surroundings(trial.threads, trial.quick, trial.small_grains, trial.further_grains)


def _target_machine(make: Callable[[int, Any], Any], level: int, cpu: Any) -> Any:
    """A machine for which LLVM makes code quickly, instead of quick code: most of a trial is LLVM's work."""
    return make(0, cpu)


def _hardly_optimised(make: Callable[..., Any], text: str, optimisation: str, cpu: Any) -> Any:
    return make(text, "none", cpu)


def _least_pipeline(binding: Any, unroll: bool) -> Any:
    passes = binding.create_new_module_pass_manager()
    passes.add_sroa_pass()
    return passes


def settings_of(executable: Executable, random: Random) -> list[dict[str, float]]:
    """Values of the thresholds that reach each version, and everything at 0, at 1 and without limit."""
    names = executable.thresholds
    if not names:
        return [{}]
    common: list[dict[str, float]] = [dict.fromkeys(names, value) for value in (0.0, 1.0, math.inf)]
    reached = [{**dict.fromkeys(names, math.inf), **one} for one in version_settings(executable.program)]
    room = MOST_SETTINGS - len(common)
    return [*common, *(reached if len(reached) <= room else random.sample(reached, room))]


def run_trial(trial: Trial, device: Device, counts: Counts | None = None) -> Failure | None:
    """The first way of running a trial that gives an error or another answer than the interpreter."""
    counts = counts or Counts()
    counts.trials += 1
    cases: list[Case] = []
    try:
        for arguments in (trial.arguments, trial.further) if trial.further else (trial.arguments,):
            expected = interpret(trial.program, arguments)
            cases.append(Case(arguments, expected, tolerances(trial.program, arguments, expected)))
    except IndexError:
        counts.out_of_range += not cases
    except Exception as error:
        return Failure(trial, "interpreter", _text(error))
    with surroundings_for(trial), np.errstate(all="ignore"):
        return run_all(trial, device, counts, cases)


def run_all(trial: Trial, device: Device, counts: Counts, cases: Sequence[Case]) -> Failure | None:
    """The first way to go wrong; there are no cases of a program that reads out of range."""
    for flattening in trial.flattenings:
        way = f"{device.name}, flattening={flattening}"
        here = dataclasses.replace(trial, flattenings=(flattening,))
        try:
            executable = compile_program(
                trial.program, device, optimise=trial.optimise, flattening=flattening, contractions=trial.contractions
            )
        except LoweringError as error:
            if flattening is None:
                counts.refused += 1
                return None  # what cannot be lowered at all is refused with its reason
            return Failure(here, way, _text(error))
        except Exception as error:
            return Failure(here, way, _text(error))
        counts.executables += 1
        asks = bool(thresholds_of(trial.program))  # a program that asks itself has results of each answer
        for setting in settings_of(executable, Random(trial.number)):
            counts.versions += 1
            version = executable.with_thresholds(setting)
            if cases:
                ready = [one.asking(trial.program, setting) for one in cases] if asks else cases
                problem = run_version(version, ready, trial.threads)
            else:
                problem = refuse_version(version, trial.arguments, counts)
            if problem is not None:
                return Failure(here, f"{way}, thresholds {setting}", problem)
    return None


@dataclass(frozen=True)
class Case:
    """Arguments, the interpreter's results, and how far others may be from them."""

    arguments: Sequence[Any]
    expected: Sequence[Any]
    allowed: Sequence[Tolerance]

    def asking(self, program: Program, setting: Mapping[str, float]) -> Case:
        """The results with these thresholds."""
        return dataclasses.replace(self, expected=interpret(program, self.arguments, setting))


def run_version(executable: Executable, cases: Sequence[Case], threads: int = 1) -> str | None:
    """What is wrong with the first or a later call."""
    first = cases[0]
    kept: list[Any] = []
    given = [(one, np.copy(one)) for case in cases for one in case.arguments]
    calls = [("first", first, threads), ("second", first, threads)]
    calls += [(f"call of other sizes {shapes_of(one)}", one, 3 - threads) for one in cases[1:]]
    calls += [(f"call on {3 - threads} threads", first, 3 - threads), ("last", first, threads)]
    for name, case, workers in calls:
        try:
            with num_threads(workers):
                results = executable(*case.arguments)
        except Exception as error:
            return f"the {name} call: {_text(error)}"
        values = results if len(first.expected) > 1 else (results,)
        problem = _wrong(values, case)
        if problem is not None:
            return f"the {name} call{problem}"
        kept = kept or [(one, np.copy(one)) for one in values]
        if case is first and not all(same_bits(one, copy) for one, (_, copy) in zip(values, kept, strict=True)):
            return f"the {name} call: other bits than of the first one"
    if not all(np.array_equal(one, copy, equal_nan=True) for one, copy in kept):
        return "the last call: changes what the first one gave"
    if not all(np.array_equal(one, copy, equal_nan=True) for one, copy in given):
        return "the last call: an argument was written to"
    return into_arrays(executable, first) or over_an_argument(executable, first)


def same_bits(one: Any, other: Any) -> bool:
    """Equal elements, with zeros of the same sign; what is undefined may be so in any bits."""
    if not np.array_equal(one, other, equal_nan=True):
        return False
    if np.asarray(one).dtype.kind not in "fc":
        return True
    parts = [(np.real(one), np.real(other)), (np.imag(one), np.imag(other))]
    return all(bool(np.all((np.signbit(a) == np.signbit(b)) | np.isnan(one))) for a, b in parts)


def shapes_of(case: Case) -> str:
    """The shapes of the arguments, for readers."""
    return " ".join(str(np.shape(one)) for one in case.arguments)


def _wrong(values: Sequence[Any], case: Case) -> str | None:
    for place, (actual, wanted, tolerance) in enumerate(zip(values, case.expected, case.allowed, strict=True)):
        problem = difference(actual, wanted, tolerance)
        if problem is not None:
            return f": result {place}: {problem}"
    return None


def into_arrays(executable: Executable, case: Case) -> str | None:
    """What is wrong with a call whose results go into arrays with gaps that hold other values."""
    given: list[Any] = []
    for one in case.expected:
        wide = np.full(tuple(extent + 3 for extent in np.shape(one)), 77).astype(np.asarray(one).dtype)
        given.append(wide[tuple(slice(1, 1 + extent) for extent in np.shape(one))] if np.ndim(one) else None)
    if all(one is None for one in given):
        return None
    try:
        results = executable(*case.arguments, out=tuple(given) if len(given) > 1 else given[0])
    except Exception as error:
        return f"the out call: {_text(error)}"
    results = results if len(given) > 1 else (results,)
    values = [one if place is None else place for one, place in zip(results, given, strict=True)]
    problem = _wrong(values, case)
    if problem is not None:
        return f"the out call{problem}"
    for place in given:
        if place is not None and place.size and place.base is not None:
            outside = place.base.size - np.count_nonzero(place.base == np.asarray(77).astype(place.dtype))
            if outside > place.size:
                return "the out call: writes beside the array"
    return None


def over_an_argument(executable: Executable, case: Case) -> str | None:
    """What is wrong with a call that writes a result where an argument lies, or a part of it."""
    for place, result in enumerate(case.expected):
        for number, argument in enumerate(case.arguments):
            if not np.ndim(result) or not np.ndim(argument) or argument.dtype != result.dtype or not argument.size:
                continue
            memory = np.zeros(argument.size + result.size, result.dtype)
            read = memory[: argument.size].reshape(argument.shape)
            read[...] = argument
            start = (argument.size + result.size) // 5 % argument.size
            written = memory[start : start + result.size].reshape(result.shape)
            written = written if start % 2 else written[..., ::-1]
            out = [written if position == place else None for position in range(len(case.expected))]
            try:
                executable(*case.arguments[:number], read, *case.arguments[number + 1 :], out=tuple(out))
            except Exception as error:
                return f"the call with result {place} over argument {number}: {_text(error)}"
            problem = difference(written, result, case.allowed[place])
            return problem and f"the call with result {place} over argument {number}: {problem}"
    return None


def refuse_version(executable: Executable, arguments: Sequence[Any], counts: Counts) -> str | None:
    """What is wrong with two calls that should say that an index is out of range.

    A read whose value nobody needs is not done, so what the compiled program would read is what counts.
    """
    try:
        interpret(executable.program, arguments, executable.thresholds)
    except IndexError:
        needed = True
    else:
        needed = False
        counts.dropped += 1
    for call in ("first", "second"):
        try:
            executable(*arguments)
        except IndexError as error:
            if f"{executable.program.name}: index " not in str(error):
                return f"the {call} call: an error without the program or the index: {error}"
        except Exception as error:
            return f"the {call} call: {_text(error)}"
        else:
            if needed:
                return f"the {call} call: no error, but an index is out of range"
    return None


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
