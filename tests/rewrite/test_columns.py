"""Columns that are computed and then joined are rows that are computed; others are joined as they are."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs.generator import random_arguments

import tilewright as tw
from tilewright.ir.nodes import Concat
from tilewright.machine.named import named_machine
from tilewright.passes.pipelines import machine_pipeline, run_pipeline
from tilewright.rewrite.derivation import Recording

CPU = named_machine("cpu-avx512")
SIZES = st.sampled_from([0, 1, 2, 5, 40])


@tw.program
def stacked(x: tw.f64["n"]) -> Any:
    return np.stack([x * 2, x + 1], axis=1)


@tw.program
def joined(x: tw.f64["n"]) -> Any:
    return np.concatenate([(x * 2).reshape(-1, 1), (x + 1)[:, None], (x * x)[:, None]], axis=1)


@tw.program
def coloured(x: tw.f64["n", "m"]) -> Any:
    """Computed by two nests."""
    return np.stack([x * 2, x.T.T + 1, x * x], axis=-1)


@tw.program
def rotated(p: tw.f64["n", 2], c: tw.f64, s: tw.f64) -> Any:
    x, y = p[:, 0], p[:, 1]
    return np.stack([c * x - s * y, s * x + c * y], axis=1).reshape(p.shape[0], 2, 1)


@tw.program
def shared(x: tw.f64["n"]) -> Any:
    """A column is a result, too."""
    y = x * 2
    return np.stack([y, x + 1], axis=1), y


@tw.program
def given_too(x: tw.f64["n"]) -> Any:
    """A column lies in memory already."""
    return np.stack([x, x + 1], axis=1)


@tw.program
def twice(x: tw.f64["n"]) -> Any:
    y = x * 2
    return np.stack([y, y], axis=1)


@tw.program
def rows(x: tw.f64["n"]) -> Any:
    return np.stack([x * 2, x + 1])


def lowered(program: Any) -> tuple[Any, Recording]:
    before = run_pipeline(program.trace(), verify=True)
    recording = Recording(before)
    return run_pipeline(before, machine_pipeline(CPU), recording, verify=True), recording


def joins(program: Any) -> int:
    """Concatenations of arrays in memory."""
    return sum(isinstance(one.expression, Concat) for one in program.body.statements)


@pytest.mark.parametrize("program", [stacked, joined, coloured, rotated])
def test_nothing_is_joined(program: Any) -> None:
    assert joins(run_pipeline(program.trace())) == 1
    after, recording = lowered(program)
    assert joins(after) == 0
    recording.derivation.check([random_arguments(program.trace(), seed) for seed in range(3)])


@pytest.mark.parametrize("program", [shared, given_too, twice, rows])
def test_these_are_joined(program: Any) -> None:
    assert joins(lowered(program)[0]) == 1


def test_not_on_gpus() -> None:
    before = run_pipeline(stacked.trace())
    assert joins(run_pipeline(before, machine_pipeline(named_machine("h100")))) == 1


@given(SIZES, SIZES, st.integers(0, 99))
@settings(deadline=None, max_examples=25)
def test_results_stay(n: int, m: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(-9, 9, (n, m)).astype("f8")
    np.testing.assert_array_equal(coloured(x), np.stack([x * 2, x + 1, x * x], axis=-1))
    y = np.ascontiguousarray(x[:, :1].ravel())
    np.testing.assert_array_equal(stacked(y), np.stack([y * 2, y + 1], axis=1))
    np.testing.assert_array_equal(joined(y), np.stack([y * 2, y + 1, y * y], axis=1))
    for found, wanted in zip(shared(y), (np.stack([y * 2, y + 1], axis=1), y * 2), strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(given_too(y), np.stack([y, y + 1], axis=1))
    np.testing.assert_array_equal(twice(y), np.stack([y * 2, y * 2], axis=1))
    points = np.stack([y, y + 3], axis=1)
    turned = np.stack([0.0 * y - (y + 3), y + 0.0 * (y + 3)], axis=1)
    np.testing.assert_array_equal(rotated(points, 0.0, 1.0)[:, :, 0], turned)
