"""Contractions whose nests do something that is no epilogue: apart from it, and right."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw
from tilewright.ir.nodes import Map, Program
from tilewright.ir.traversal import host_statements
from tilewright.ir.verifier import verify
from tilewright.passes.core.found_contractions import contractions
from tilewright.passes.core.free_contractions import free_contractions
from tilewright.passes.core.fuse import fuse
from tilewright.passes.core.simplify import simplify
from tilewright.rewrite.derivation import Recording


def biased(a: tw.f32["n", "k"], b: tw.f32["m", "k"], at: tw.i64["m"], bias: tw.f32["n", "r"]) -> Any:
    """What is added to an element is looked up in a table."""
    return a @ b.T / 2 + bias[:, at]


def picked(a: tw.f32["n", "k"], b: tw.f32["m", "k"], at: tw.i64["m"], bias: tw.f32["n", "r"]) -> Any:
    """Which rows of an operand are multiplied is looked up, too."""
    return a @ b.T * bias[:, at] + a[0, 0]


def looped(a: tw.f32["n", "k"], b: tw.f32["m", "k"], at: tw.i64["m"], bias: tw.f32["n", "r"]) -> Any:
    """Something is done to an element as often as an array says, which tiles do."""

    def element(value: Any, times: Any) -> Any:
        return tw.loop(times, value, lambda _, now: now * np.float32(0.5))

    return tw.map(lambda row: tw.map(element, row, at), a @ b.T)


def counted(a: tw.f32["n", "k"], b: tw.f32["m", "k"], at: tw.i64["m"], bias: tw.f32["n", "r"]) -> Any:
    """An epilogue of tiles."""
    return a @ b.T + bias[:, 0][:, None]


def in_rounds(a: tw.f32["n", "k"], b: tw.f32["m", "k"], at: tw.i64["m"], bias: tw.f32["n", "r"]) -> Any:
    """In each round of a loop of the host."""
    square, columns = b.T @ b, tw.iota(a.shape[1])
    return tw.loop(3, a, lambda i, now: np.clip(now @ square + bias[:, (columns + i) % bias.shape[1]], -3, 3))


def rounds(now: np.ndarray, square: np.ndarray, bias: np.ndarray) -> np.ndarray:
    for i in range(3):
        now = np.clip(now @ square + bias[:, (np.arange(now.shape[1]) + i) % bias.shape[1]], -3, 3)
    return now


EXPECTED: dict[str, Callable[..., Any]] = {
    "biased": lambda a, b, at, bias: a @ b.T / 2 + bias[:, at],
    "picked": lambda a, b, at, bias: a @ b.T * bias[:, at] + a[0, 0],
    "looped": lambda a, b, at, bias: a @ b.T * 0.5**at,
    "counted": lambda a, b, at, bias: a @ b.T + bias[:, :1],
    "in_rounds": lambda a, b, at, bias: rounds(a, b.T @ b, bias),
}
PROGRAMS = {one.__name__: one for one in (biased, picked, looped, counted, in_rounds)}
FREED = {"biased": 1, "picked": 1, "looped": 0, "counted": 0, "in_rounds": 1}
DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]


def fused(name: str) -> Program:
    return simplify(fuse(simplify(tw.program(PROGRAMS[name]).trace())))


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_what_is_no_epilogue_is_done_afterwards(name: str) -> None:
    before = fused(name)
    recording = Recording(before)
    freed = free_contractions(before, recording)
    verify(freed)
    steps = [one for one in recording.derivation.steps if one.rule == "free_contraction"]
    assert len(steps) == FREED[name]
    assert len(contractions(freed)) == len(contractions(before)) + FREED[name]
    if not FREED[name]:
        assert freed is before


def test_a_sum_that_reads_each_element_once_is_left_alone() -> None:
    @tw.program
    def function(a: tw.f32["n", "k"], x: tw.f32["k"], at: tw.i64["n"], bias: tw.f32["r"]) -> Any:
        return a @ x + bias[at]

    before = simplify(fuse(simplify(function.trace())))
    assert free_contractions(before) is before
    assert sum(isinstance(one.expression, Map) for one in host_statements(before.body)) == 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_results(name: str, device: str) -> None:
    program = tw.program(PROGRAMS[name])

    @settings(max_examples=examples(12 if device == "cpu" else 3))
    @given(n=st.integers(1, 40), m=st.integers(1, 40), k=st.integers(1, 30), seed=st.integers(0, 99))
    def sizes(n: int, m: int, k: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        a, b, bias = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((n, k), (m, k), (n, 7)))
        at = rng.integers(0, 7, m)
        # Whole numbers, halved seven times at most: all sums are exact.
        np.testing.assert_array_equal(program(a, b, at, bias, target=device), EXPECTED[name](a, b, at, bias))

    sizes()


def test_a_place_out_of_range_is_told() -> None:
    ones = np.ones((4, 4), np.float32)
    with pytest.raises(IndexError, match="9"):
        tw.program(biased)(ones, ones, np.array([0, 1, 9, 2]), ones)
