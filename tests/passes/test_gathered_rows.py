"""Rows that the points of a map gather and fold: read where they lie, in vectors, against NumPy."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_checks import check
from naive import examples

import tilewright as tw
from tilewright.ir import nodes
from tilewright.ir.interpreter import interpret
from tilewright.ir.traversal import all_statements
from tilewright.passes.pipelines import run_pipeline

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]


def sums(table: tw.f64["v", "d"], at: tw.i64["n", "k"]) -> Any:
    return tw.map(lambda row: table[row].sum(axis=0), at)


def greatest(table: tw.f64["v", "d"], at: tw.i64["n", "k"]) -> Any:
    return tw.map(lambda row: np.maximum(table[row].max(axis=0), 0.0), at)


def weighted(table: tw.f64["v", "d"], at: tw.i64["n", "k"]) -> Any:
    def one(row: Any) -> Any:
        weights = tw.map(lambda j: 1.0 * j, tw.iota(row.shape[0]))
        return weights @ table[row]

    return tw.map(one, at)


EXPECTED = {
    "sums": (sums, lambda rows: rows.sum(axis=1)),
    "greatest": (greatest, lambda rows: np.maximum(rows.max(axis=1), 0.0)),
    "weighted": (weighted, lambda rows: np.einsum("k,nkd->nd", np.arange(rows.shape[1]), rows)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_gathered_rows_are_folded(name: str, device: str) -> None:
    function, expected = EXPECTED[name]
    program = tw.program(function).trace()

    @settings(max_examples=examples(20 if device == "cpu" else 4))
    @given(
        n=st.sampled_from([1, 2, 9]),
        k=st.sampled_from([1, 3, 4, 11]),
        d=st.sampled_from([1, 5, 6, 16, 33, 70]),
        turned=st.booleans(),
        seed=st.integers(0, 99),
    )
    def run(n: int, k: int, d: int, turned: bool, seed: int) -> None:
        random = np.random.default_rng(seed)
        table, at = random.integers(-9, 9, (7, d)).astype(float), random.integers(-7, 7, (n, k))
        given_table = np.asfortranarray(table) if turned else table
        np.testing.assert_array_equal(interpret(program, [table, at])[0], expected(table[at]))
        check(program, [given_table, at], device, optimise=True)

    run()


@pytest.mark.parametrize("place", [7, -8, 2**62])
def test_places_out_of_range_are_told(place: int) -> None:
    program = tw.program(sums)
    at = np.zeros((5, 6), np.int64)
    at[3, 4] = place
    with pytest.raises(IndexError, match="is out of range in dimension 0 of extent 7"):
        program(np.ones((7, 40)), at)
    at[3, 4] = 0
    np.testing.assert_array_equal(program(np.ones((7, 40)), at), np.full((5, 40), 6.0))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_no_array_holds_gathered_rows(name: str) -> None:
    program = tw.program(EXPECTED[name][0]).trace()
    simpler = run_pipeline(program)
    made = [target for one in all_statements(simpler.body) for target in one.targets]
    assert [str(one.type) for one in made if one.type.rank == 2] == ["[n][d]f64"]
    random = np.random.default_rng(1)
    arguments = random.integers(-9, 9, (7, 5)).astype(float), random.integers(0, 7, (2, 3))
    np.testing.assert_array_equal(interpret(simpler, arguments)[0], interpret(program, arguments)[0])


def test_rows_that_are_read_otherwise_too_are_stored() -> None:
    @tw.program
    def both(table: tw.f64["v", "d"], at: tw.i64["n", "k"]) -> Any:
        def one(row: Any) -> Any:
            rows = table[row]
            return rows.sum(axis=0), rows.sum(axis=1)

        return tw.map(one, at)

    stored = [one for one in all_statements(run_pipeline(both.trace()).body) if isinstance(one.expression, nodes.Map)]
    assert any(target.type.rank == 2 for one in stored for target in one.targets[:1])
    random = np.random.default_rng(1)
    table, at = random.integers(-9, 9, (7, 20)).astype(float), random.integers(0, 7, (4, 3))
    down, along = both(table, at)
    np.testing.assert_array_equal(down, table[at].sum(axis=1))
    np.testing.assert_array_equal(along, table[at].sum(axis=2))
