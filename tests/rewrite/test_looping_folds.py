"""Folds of what loops give are maps, whose points go on together, and folds of these; they give what they gave."""

# ruff: noqa: F821  # sizes in annotations are text: tw.f32["n"]

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs.generator import random_arguments

import tilewright as tw
from tilewright.ir.nodes import Program, Redomap
from tilewright.ir.traversal import all_statements
from tilewright.machine.named import CPU_AVX512, H100
from tilewright.passes.pipelines import machine_pipeline, run_pipeline
from tilewright.rewrite.derivation import Recording


def path(seed: Any, steps: Any) -> Any:
    """Numbers from 0 to 15 in a fixed order, from a seed on."""
    return tw.loop(steps, seed, lambda _, s: (s * 5 + 3) % 16)


@tw.program
def ends(seeds: tw.i64["n"], steps: tw.i64):
    return tw.map(lambda seed: path(seed, steps), seeds).sum()


@tw.program
def best(seeds: tw.i64["n"], weights: tw.i64["n"]):
    """Two folds at once, of a loop with a condition."""

    def rounds(seed, weight):
        return tw.while_loop(lambda s, k: (s < 30) & (k < 9), (seed, 0), lambda s, k: (s + weight, k + 1))

    found, counts = tw.map(rounds, seeds, weights)
    return found.max(), counts.sum()


@tw.program
def picked(x: tw.i64["n"], at: tw.i64["k"]):
    """What each round reads is checked."""
    return tw.map(lambda i: tw.loop(3, i, lambda _, j: x[j]), at).sum()


@tw.program
def plain(x: tw.i64["n"]):
    return tw.map(lambda e: e * e, x).sum()


@tw.program
def of_rows(x: tw.i64["n", "m"]):
    """Loops in rows that are folded within maps stay there."""
    return tw.map(lambda row: tw.map(lambda e: path(e, 3), row).sum(), x)


def looping(program: Program) -> int:
    folds = [one.expression for one in all_statements(program.body) if isinstance(one.expression, Redomap)]
    return sum(any(type(one.expression).__name__ == "Loop" for one in all_statements(f.function.body)) for f in folds)


@pytest.mark.parametrize("program", [ends, best, picked])
def test_loops_are_no_parts_of_folds(program: Any) -> None:
    before = run_pipeline(program.trace())
    recording = Recording(before)
    after = run_pipeline(before, machine_pipeline(CPU_AVX512), derivation=recording, verify=True)
    assert looping(before) > 0
    assert looping(after) == 0
    assert any("fold_apart" in step.rule for step in recording.derivation.steps)
    if program is not picked:
        recording.derivation.check([random_arguments(before, seed) for seed in range(3)])
    assert looping(run_pipeline(before, machine_pipeline(H100), verify=True)) == looping(before)


@pytest.mark.parametrize("program", [plain, of_rows])
def test_folds_without_loops_and_of_rows_stay(program: Any) -> None:
    before = run_pipeline(program.trace())
    recording = Recording(before)
    run_pipeline(before, machine_pipeline(CPU_AVX512), derivation=recording)
    assert not any("fold_apart" in step.rule for step in recording.derivation.steps)


@given(st.lists(st.integers(0, 40), max_size=70), st.integers(0, 6))
@settings(deadline=None, max_examples=30)
def test_folds_of_loops_stay(numbers: list[int], steps: int) -> None:
    seeds = np.array(numbers, np.int64)
    given_ends = seeds.copy()
    for _ in range(steps):
        given_ends = (given_ends * 5 + 3) % 16
    assert ends(seeds, steps) == given_ends.sum()
    if numbers:
        weights = np.arange(len(numbers)) % 4
        state, count = seeds.copy(), np.zeros(len(numbers), np.int64)
        for _ in range(9):
            on = state < 30
            state, count = state + weights * on, count + on
        most, total = best(seeds, weights)
        assert (most, total) == (state.max(), count.sum())


def test_what_rounds_read_out_of_range_is_told() -> None:
    assert picked(np.array([2, 0, 1]), np.array([0, 1, 1])) == 2
    with pytest.raises(IndexError, match="index 7 "):
        picked(np.array([2, 0, 7]), np.array([1, 0]))
