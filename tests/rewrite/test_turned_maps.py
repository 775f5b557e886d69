"""Folds of columns of what is computed element by element: nothing of it is stored, and results stay as they were."""

# ruff: noqa: F821  # sizes in annotations are text: tw.f32["n"]

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.nodes import Map, Program, Rearrange, Redomap
from tilewright.ir.traversal import all_statements
from tilewright.passes.core.fuse import fuse
from tilewright.passes.core.simplify import simplify

SHAPES = st.tuples(st.sampled_from([1, 5, 140]), st.sampled_from([1, 9, 33, 600]))


@tw.program
def moments(x: tw.any_["n", "m"]):
    return x.mean(axis=0), x.std(axis=0)


@tw.program
def weighted(x: tw.f64["n", "m"], w: tw.f64["n"], c: tw.f64["m"]):
    """A number of each row and one of each column in what is summed."""
    squares = tw.map(lambda row, weight: tw.map(lambda e, mean: (e - mean) * (e - mean) * weight, row, c), x, w)
    return squares.sum(axis=0)


@tw.program
def spread(x: tw.f32["n", "m"]):
    """Two folds of the same columns, and what is computed of both."""
    part = tw.abs(x) + 1
    return tw.map(lambda column: tw.sqrt(column.max() - column.min()), tw.transpose(part))


def fused(program: Any, *kinds: str) -> Program:
    return simplify(fuse(simplify(program.trace(*kinds))))


@pytest.mark.parametrize(("program", "kinds"), [(weighted, ["f8", "f8", "f8"]), (spread, ["f4"])])
def test_no_matrix_is_between(program: Any, kinds: list[str]) -> None:
    """The only matrices are the argument and what it is turned to."""
    found = fused(program, *kinds)
    views = [one for one in all_statements(found.body) if isinstance(one.expression, Rearrange)]
    stored = [one for one in found.body.statements if isinstance(one.expression, Map) and one.targets[0].type.rank > 1]
    assert views
    assert not stored
    assert any(isinstance(one.expression, Redomap) for one in all_statements(found.body))


@given(SHAPES, st.sampled_from(["f2", "f4", "f8", "i4", "u1"]), st.booleans(), st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_moments_of_columns(shape: tuple[int, int], kind: str, turned: bool, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 9, shape).astype(kind)
    x = np.asfortranarray(x) if turned else x
    for found, wanted in zip(moments(x), (x.mean(axis=0), x.std(axis=0)), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=4e-3 if kind == "f2" else 1e-5, atol=1e-5)


@given(SHAPES, st.integers(0, 99))
@settings(deadline=None, max_examples=15)
def test_numbers_of_rows_and_of_columns(shape: tuple[int, int], seed: int) -> None:
    random = np.random.default_rng(seed)
    x, w, c = random.random(shape), random.random(shape[0]), random.random(shape[1])
    np.testing.assert_allclose(weighted(x, w, c), ((x - c) ** 2 * w[:, None]).sum(axis=0), rtol=1e-12)


@given(SHAPES, st.integers(0, 99))
@settings(deadline=None, max_examples=10)
def test_two_folds_of_the_same_columns(shape: tuple[int, int], seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal(shape).astype("f4")
    np.testing.assert_allclose(spread(x), np.sqrt(np.ptp(np.abs(x) + 1, axis=0)), rtol=1e-5)
