"""Histograms that compute their own bins and values, against NumPy and the interpreter."""

# ruff: noqa: F821

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_checks import check
from naive import examples
from segment_cases import in_pieces

import tilewright as tw
from tilewright.frontend.program import TracedProgram
from tilewright.ir import nodes
from tilewright.ir.interpreter import interpret
from tilewright.ir.parser import parse_program
from tilewright.ir.traversal import all_statements
from tilewright.passes.core.fills import without_fills
from tilewright.passes.last_rewrites import fill_histograms
from tilewright.passes.segments.bins import BATCH
from tilewright.passes.segments.hist import narrowed

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]
SPECIAL = [-1.0, -0.5, -0.0, 0.99999, 2.0**31, -(2.0**31) - 1]
BEYOND = [np.nan, np.inf, -np.inf, 2.0**63, 1e30, -1e30]  # what these become as integers is defined on the CPU only


def counts_of_floats(dtype: str) -> TracedProgram:
    """How many of n floats, made i64, are each of the bins, and the sum and the largest of their weights."""

    @tw.program
    def counts(values: tw.f64["n"], weights: tw.f32["n"], bins: tw.i64) -> Any:
        at = tw.map(lambda x: (x.astype(dtype) * 2).astype("i64"), values)
        number = tw.hist("add", 0, bins, at, tw.replicate(values.shape[0], 1, "i32"))
        double = tw.map(lambda w: w + w, weights)
        largest = tw.hist(tw.maximum, -np.inf, bins, at, double)
        where = tw.hist(tw.maximum, -1, bins, at, tw.iota(values.shape[0]))
        return number, largest, where

    return counts


def expected_counts(values: np.ndarray, weights: np.ndarray, bins: int, dtype: str) -> tuple[np.ndarray, ...]:
    """The same by NumPy, in exact integers."""
    doubled = values.astype(dtype) * np.dtype(dtype).type(2)
    at = [0 if np.isnan(x) else int(np.clip(float(x), -(2.0**62), 2.0**62)) for x in doubled]
    number, largest = np.zeros(bins, np.int32), np.full(bins, -np.inf, np.float32)
    where = np.full(bins, -1, np.int64)
    for i, (bin_, weight) in enumerate(zip(at, weights, strict=True)):
        if 0 <= bin_ < bins:
            number[bin_] += 1
            largest[bin_] = max(largest[bin_], 2 * weight)
            where[bin_] = i
    return number, largest, where


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_bins_that_are_computed_from_floats(device: str, dtype: str) -> None:
    program = counts_of_floats(dtype)

    @settings(max_examples=examples(15 if device == "cpu" else 5))
    @given(
        width=st.sampled_from([0, 1, 3, 100, BATCH, BATCH + 1, 3 * BATCH + 2]),
        bins=st.sampled_from([0, 1, 2, 40, 1000]),
        pieces=st.sampled_from([1, 3]),
        copies=st.sampled_from([1, 4]),
        threads=st.sampled_from([1, 2]),
        seed=st.integers(0, 99),
    )
    def run(width: int, bins: int, pieces: int, copies: int, threads: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        values = np.where(random.random(width) < 0.8, random.random(width) * (bins + 4) / 2 - 1, 0)
        special = random.random(width) < 0.2
        values[special] = random.choice(SPECIAL + (BEYOND if device == "cpu" else []), special.sum())
        weights = random.integers(-9, 9, width).astype("f4")
        before = tw.get_num_threads()
        tw.set_num_threads(threads)
        try:
            with in_pieces(pieces, copies):
                found = program(values, weights, bins, target=device)
        finally:
            tw.set_num_threads(before)
        for one, other in zip(found, expected_counts(values, weights, bins, dtype), strict=True):
            np.testing.assert_array_equal(np.asarray(one), other)

    run()


def test_the_number_of_threads_changes_no_bit_of_sums_of_floats() -> None:
    @tw.program
    def sums(values: tw.f32["n"], weights: tw.f32["n"]) -> Any:
        return tw.hist("add", 0.0, 50, tw.map(lambda x: (x * 50).astype("i64"), values), weights)

    random = np.random.default_rng(0)
    given_ = random.random(200_000, np.float32), random.random(200_000, np.float32)
    threads = tw.get_num_threads()
    try:
        results = []
        for count in (1, 2, 2):
            tw.set_num_threads(count)
            results.append(np.asarray(sums(*given_)).tobytes())
    finally:
        tw.set_num_threads(threads)
    assert results[0] == results[1] == results[2]


ROWS = """def rows (x: [n]f32, w: [n]f32, bins: [k]f32) =
  let (at: [n]i64, v: [n]f32) = map n (\\(e: f32, f: f32) ->
    let (j: i64) = e as i64
    let (g: f32) = f * 2.0f32
    in (j, g)) x w
  let (h: [k]f32) = hist (bins) (\\(a: f32, b: f32) -> let (c: f32) = a + b in (c)) (0.0f32) at v
  in (RESULT)
"""


def test_maps_and_constants_are_taken_in() -> None:
    program = parse_program(ROWS.replace("RESULT", "h"))
    fused = fill_histograms(program).body
    assert [type(one.expression) for one in fused.statements] == [nodes.SegHist]
    found = nodes.Program(program.name, program.parameters, fused)
    arrays = np.array([0, 1, 5, 1.5], "f4"), np.array([1, 2, 3, 4], "f4"), np.ones(3, "f4")
    assert np.array_equal(interpret(found, arrays)[0], interpret(program, arrays)[0])


def test_maps_that_something_else_reads_are_computed_once() -> None:
    program = parse_program(ROWS.replace("RESULT", "h, at"))
    assert fill_histograms(program).body is program.body


def test_bins_from_floats_are_computed_in_32_bits() -> None:
    program = parse_program(ROWS.replace("RESULT", "h"))
    (statement,) = fill_histograms(program).body.statements
    assert isinstance(statement.expression, nodes.SegHist)
    found = narrowed(statement.expression)
    assert found is not None
    casts = [one.targets[0] for one in all_statements(found.body) if isinstance(one.expression, nodes.Cast)]
    assert str(found.body.results[0].type) == "i32" and casts[-1] == found.body.results[0]


FILLED = """def filled (at: [n]i64, x: [n][3]f32, y: [n]f32, start: f32, bins: i64) =
  let (begin: [bins]f32) = replicate bins start
  let (h: [bins]f32) = hist (begin) (\\(a: f32, b: f32) -> let (c: f32) = max(a, b) in (c)) (-1.0f32) at y
  let (neutral: [3]f32) = replicate 3 -1.0f32
  let (first: [3]f32) = replicate 3 start
  let (rows: [bins][3]f32) = replicate bins first
  let (r: [bins][3]f32) = hist (rows) (\\(a1: [3]f32, b1: [3]f32) ->
    let (c1: [3]f32) = map 3 (\\(e: f32, f: f32) -> let (g: f32) = max(e, f) in (g)) a1 b1
    in (c1)) (neutral) at x
  in (RESULT)
"""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("result", ["h, r", "h, r, begin, neutral", "r, rows"])
@pytest.mark.parametrize("width", [0, 1, 50, 3000])
def test_bins_that_begin_as_constants(device: str, result: str, width: int) -> None:
    random = np.random.default_rng(width)
    at = random.integers(-1, 6, width)
    x, y = random.random((width, 3), np.float32), random.random(width, np.float32)
    check(FILLED.replace("RESULT", result), [at, x, y, np.float32(0.5), np.int64(5)], device)


def test_replicates_that_only_begin_bins_are_not_made() -> None:
    program = parse_program(FILLED.replace("RESULT", "h, r, rows"))
    found, fills = without_fills(program.body, lambda expression: True)
    full = {"begin": "start", "neutral": "-1.0f32", "first": "start", "rows": "start"}
    assert {name: str(value) for name, value in fills.items()} == full
    made = {one.targets[0].name for one in program.body.statements} - {one.targets[0].name for one in found.statements}
    assert made == {"begin", "neutral"}
    assert without_fills(program.body, lambda expression: False) == (program.body, fills)
