"""Folds that divide their points' numbers by the length of rows fold row by row, and give what they gave."""

# ruff: noqa: F821  # sizes in annotations are text: tw.f32["n"]

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs.generator import random_arguments

import tilewright as tw
from tilewright.ir.nodes import Apply, Program, SizeValue
from tilewright.ir.traversal import all_statements
from tilewright.machine.named import CPU_AVX512, H100
from tilewright.passes.pipelines import machine_pipeline, run_pipeline
from tilewright.rewrite.derivation import Recording

SIZES = st.sampled_from([0, 1, 2, 5, 33])


@tw.program
def summed(x: tw.i64["n"], y: tw.i64["m"]):
    n, m = x.shape[0], y.shape[0]
    return tw.reduce("add", 0, tw.map(lambda i: x[i // m] * y[i % m], tw.iota(n * m)))


@tw.program
def weighted(x: tw.i64["n"], y: tw.i64["m"], z: tw.i64["n*m"]):
    """The number itself and another array of as many rows are used, too; two folds."""
    m = y.shape[0]

    def greater(a, b):
        return a[0] + b[0], tw.maximum(a[1], b[1])

    points = tw.map(lambda i, v: (x[i // m] + v, y[i % m] * i), tw.iota(z.shape[0]), z)
    return tw.reduce(greater, (0, -1), *points)


@tw.program
def pictures(x: tw.i64["n", 20, 40]):
    count = x.shape[0] * 800
    return tw.reduce("add", 0, tw.map(lambda i: x[i // 800, i // 40 % 20, i % 40] * (i % 800), tw.iota(count)))


@tw.program
def by_a_number(x: tw.i64["n"], m: tw.i64):
    return tw.reduce("add", 0, tw.map(lambda i: x[i // m], tw.iota(x.shape[0] * m)))


@tw.program
def pairs(x: tw.i64["n", 2]):
    return tw.reduce("add", 0, tw.map(lambda i: x[i // 2, i % 2], tw.iota(x.shape[0] * 2)))


def divisions(program: Program) -> int:
    operators = [one.expression.operator for one in all_statements(program.body) if isinstance(one.expression, Apply)]
    sizes = [str(one.expression.size) for one in all_statements(program.body) if isinstance(one.expression, SizeValue)]
    return sum(operator in ("floordiv", "mod") for operator in operators) + sum("(i, " in one for one in sizes)


@pytest.mark.parametrize("program", [summed, weighted, pictures])
def test_folds_divide_nothing_on_a_cpu(program: Any) -> None:
    before = run_pipeline(program.trace())
    recording = Recording(before)
    after = run_pipeline(before, machine_pipeline(CPU_AVX512), derivation=recording, verify=True)
    assert divisions(before) >= 2
    assert divisions(after) == 0
    assert any("fold_divided" in step.rule for step in recording.derivation.steps)
    recording.derivation.check([random_arguments(before, seed) for seed in range(3)])


@pytest.mark.parametrize("program", [by_a_number, pairs])
def test_other_folds_stay_as_they_are(program: Any) -> None:
    before = run_pipeline(program.trace())
    assert divisions(run_pipeline(before, machine_pipeline(CPU_AVX512), verify=True)) == divisions(before) > 0


def test_folds_for_a_gpu_stay() -> None:
    before = run_pipeline(summed.trace())
    assert divisions(run_pipeline(before, machine_pipeline(H100), verify=True)) == divisions(before) > 0


@given(SIZES, SIZES, st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_sums_stay(a: int, b: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, y, z = (generator.integers(-9, 9, extent) for extent in (a, b, a * b))
    assert summed(x, y) == np.outer(x, y).sum()
    total, most = weighted(x, y, z)
    assert total == (np.repeat(x, b) + z).sum()
    assert most == max([-1, *(np.tile(y, a) * np.arange(a * b)).tolist()])


@pytest.mark.parametrize("n", [0, 1, 3])
def test_sums_of_constant_lengths(n: int) -> None:
    x = np.random.default_rng(n).integers(0, 9, (n, 20, 40))
    assert pictures(x) == (x.ravel() * (np.arange(x.size) % 800)).sum()


def test_indices_of_divided_folds_that_are_out_of_range_are_told() -> None:
    @tw.program
    def beyond(x: tw.f64["n"], y: tw.f64["m"]):
        m = y.shape[0]
        return tw.reduce("add", 0.0, tw.map(lambda i: x[i // m + 1] * y[i % m], tw.iota(x.shape[0] * m)))

    with pytest.raises(IndexError, match="index 3 "):
        beyond(np.ones(3), np.ones(40))
