"""Histograms of rows that are joined: one after another, without joining them."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir import nodes
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.ir.traversal import all_statements
from tilewright.ir.verifier import verify
from tilewright.passes.last_rewrites import fill_histograms
from tilewright.passes.pipelines import run_pipeline


@tw.program
def deposited(x: tw.f64["n"], y: tw.i64["k"], q: tw.f64["n"], bins: tw.i64) -> Any:
    left = np.floor(x).astype("int64")
    right = x - np.floor(x)
    at = tw.concat(left, left + 1, y)
    return tw.hist("add", 0.0, bins, at, tw.concat(q * (1.0 - right), q * right, tw.replicate(y.shape[0], 2.0)))


def kinds(program: Program) -> list[type]:
    return [type(one.expression) for one in all_statements(program.body)]


@settings(max_examples=20, deadline=None)
@given(n=st.sampled_from([0, 1, 7, 300]), k=st.sampled_from([0, 1, 5]), bins=st.integers(0, 9), seed=st.integers(0, 99))
def test_joined_rows(n: int, k: int, bins: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, y, q = random.random(n) * 9 - 1, random.integers(-2, 9, k), random.random(n)
    left = np.floor(x).astype(int)
    at, values = (
        np.concatenate([left, left + 1, y]),
        np.concatenate([q * (1 - x + left), q * (x - left), np.full(k, 2)]),
    )
    expected, inside = np.zeros(bins), (at >= 0) & (at < bins)
    np.add.at(expected, at[inside], values[inside])
    np.testing.assert_allclose(deposited(x, y, q, bins), expected, rtol=1e-12, atol=1e-12)


def test_nothing_is_joined_in_memory() -> None:
    before = run_pipeline(deposited.trace())
    after = fill_histograms(before)
    verify(after)
    assert kinds(before).count(nodes.Concat) == 2 and nodes.Concat not in kinds(after)
    assert kinds(after).count(nodes.SegHist) + kinds(after).count(nodes.Hist) == 3
    random = np.random.default_rng(0)
    arguments = random.random(20) * 5, random.integers(0, 5, 4), random.random(20), np.int64(6)
    np.testing.assert_allclose(interpret(after, arguments)[0], interpret(before, arguments)[0], rtol=1e-12)


def test_what_others_read_is_joined() -> None:
    @tw.program
    def both(a: tw.i64["n"], b: tw.i64["m"]) -> Any:
        at = tw.concat(a, b)
        return tw.hist("add", 0, 4, at, at), at

    assert nodes.Concat in kinds(fill_histograms(run_pipeline(both.trace())))
