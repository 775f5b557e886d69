"""Trials of random programs on arrays for which the interpreter takes too long, against themselves.

What is expected is what the program gives on the CPU as it is written: no rewrite, no flattening, no contraction, one
thread. Where another way gives something else, the arguments are changed by about a rounding; results may differ by so
much as that changes them, since a loop of a thousand rounds may make much of little. Integers are the same to the bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from fuzz_grains import random_grains
from fuzz_tolerance import Tolerance
from fuzz_trials import Case, Counts, Failure, Trial, laid_out, run_all, surroundings, surroundings_for
from random_programs.generator import random_arguments, random_program
from random_programs.variety import random_variety

from tilewright.ir.printer import print_program
from tilewright.ir.verifier import verify
from tilewright.passes.compile import compile_program
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.executable import Executable

SIZES = (1, 30, 63, 128, 257, 600)
MOST_ELEMENTS = 400_000
MOST_WORK = 3_000_000
MOST_POINTS = 20_000_000
_ROUNDINGS = (("f16", 1e-3), ("f32", 1e-6), ("c64", 1e-6), ("", 1e-14))
"""Relative, of programs that mention a type."""
_TIMES = 50.0
"""Ways differ by at most so many times what a change of the arguments does."""


def make_trial(number: int) -> Trial:
    """The trial of this number."""
    random = Random(f"large {number}")
    variety = dataclasses.replace(
        random_variety(random), sizes=SIZES, most_elements=MOST_ELEMENTS, most_work=MOST_WORK, most_points=MOST_POINTS
    )
    program = random_program(number, random.randint(1, 3), random.randint(2, 5), variety=variety)
    verify(program)
    return Trial(
        number,
        program,
        tuple(laid_out(one, random, True) for one in random_arguments(program, number, variety)),
        threads=random.choice((1, 2)),
        small_grains=random.random() < 0.2,
        further_grains=random_grains(random) if random.random() < 0.3 else (),
        contractions=random.random() < 0.9,
        quick=random.random() < 0.8,
    )


def run_trial(trial: Trial, device: Device, counts: Counts | None = None) -> Failure | None:
    """The first way that differs from the program as it is written by more than roundings do."""
    counts = counts or Counts()
    counts.trials += 1
    with surroundings(1, True), np.errstate(all="ignore"):
        try:
            written = compile_program(trial.program, device_for("cpu"), optimise=False, contractions=False)
            expected = _results(written, trial.arguments)
        except LoweringError:
            counts.refused += 1
            return None
    relative = next(one for name, one in _ROUNDINGS if name in print_program(trial.program))
    allowed = [Tolerance(100 * relative, 100 * relative) if _inexact(one) else Tolerance() for one in expected]
    with surroundings_for(trial), np.errstate(all="ignore"):
        failure = run_all(trial, device, counts, [Case(trial.arguments, expected, allowed)])
        if failure is None:
            return None
        wider = [
            Tolerance(one.relative, one.absolute + _TIMES * gap)
            for one, gap in zip(allowed, _changes(written, trial, expected, relative), strict=True)
        ]
        return run_all(trial, device, counts, [Case(trial.arguments, expected, wider)])


def _inexact(value: Any) -> bool:
    return np.asarray(value).dtype.kind not in "biu"


def _results(executable: Executable, arguments: Sequence[Any]) -> list[Any]:
    results = executable(*arguments)
    return list(results) if isinstance(results, tuple) else [results]


def _changes(written: Executable, trial: Trial, expected: Sequence[Any], relative: float) -> list[float]:
    """How much each result changes at most if the arguments do so by a rounding; 0 of integers."""
    found = [0.0] * len(expected)
    for seed in range(3):
        random = np.random.default_rng(seed)
        changed = [
            (one * (1 + relative * random.uniform(-1, 1, np.shape(one)))).astype(one.dtype) if _inexact(one) else one
            for one in trial.arguments
        ]
        for place, (one, other) in enumerate(zip(_results(written, changed), expected, strict=True)):
            if _inexact(one):
                gaps = np.abs(np.asarray(one, np.complex128) - np.asarray(other, np.complex128))
                found[place] = max(found[place], float(gaps[np.isfinite(gaps)].max(initial=0.0)))
    return found
