"""Trials of the passes alone: a random program means the same after each pipeline, by the interpreter.

Nothing is compiled, so that many more programs are tried than by the devices. Each goes through the standard pipeline,
each flattening and what a CPU's programs, or those of a GPU, go through last; it is verified after every pass, and run
with all thresholds at 0 and without limit, and with values that reach some of the versions in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
from fuzz_grains import grains
from fuzz_tolerance import difference, tolerances
from fuzz_trials import Counts, Failure, Trial, make_trial

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.machine.named import named_machine
from tilewright.passes.flattening.flatten_contractions import flattening_pipeline
from tilewright.passes.flattening.flatten_tree import version_settings
from tilewright.passes.flattening.kinds import FLATTENINGS
from tilewright.passes.pipelines import machine_pipeline, run_pipeline
from tilewright.rewrite.rules.flatten_versions import thresholds_of
from tilewright.runtime.devices import Device

__all__ = ["make_trial", "run_trial"]

MOST_SETTINGS = 4


def run_trial(trial: Trial, device: Device, counts: Counts | None = None) -> Failure | None:
    """The first pipeline after which the program is ill-formed, or means something else."""
    counts = counts or Counts()
    counts.trials += 1
    with np.errstate(all="ignore"), grains(trial.further_grains):
        if thresholds_of(trial.program):
            return None  # the program's own questions have results of each answer
        try:
            expected = interpret(trial.program, trial.arguments)
        except IndexError:
            counts.out_of_range += 1
            return None
        allowed = tolerances(trial.program, trial.arguments, expected)
        ways = _ways(trial, device)
        while True:
            way = "the standard pipeline"
            try:
                way, program = next(ways)
                counts.executables += 1
                for setting in _settings(program, trial.number):
                    counts.versions += 1
                    found = interpret(program, trial.arguments, setting)
                    for one, wanted, tolerance in zip(found, expected, allowed, strict=True):
                        problem = difference(one, wanted, tolerance)
                        if problem is not None:
                            return Failure(trial, f"{way}, thresholds {setting}", problem)
            except StopIteration:
                return None
            except Exception as error:
                return Failure(trial, way, f"{type(error).__name__}: {error}")


def _ways(trial: Trial, device: Device) -> Iterator[tuple[str, Program]]:
    """Each pipeline's name and what it gives."""
    machine = device.machine if trial.number % 4 else named_machine("a100")
    ready = run_pipeline(trial.program, verify=True) if trial.optimise else trial.program
    for flattening in (None, *FLATTENINGS):
        flat = ready
        if flattening is not None:
            flat = run_pipeline(ready, flattening_pipeline(flattening, trial.contractions), verify=True)
        yield f"flattening={flattening} for {machine.name}", run_pipeline(flat, machine_pipeline(machine), verify=True)


def _settings(program: Program, number: int) -> list[dict[str, float]]:
    names = sorted(thresholds_of(program))
    if not names:
        return [{}]
    reached = [{**dict.fromkeys(names, float("inf")), **one} for one in version_settings(program)]
    few = reached if len(reached) < MOST_SETTINGS else Random(number).sample(reached, MOST_SETTINGS - 2)
    return [dict.fromkeys(names, 0.0), dict.fromkeys(names, float("inf")), *few]
