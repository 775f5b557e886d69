"""Histograms of rows, against NumPy and the interpreter."""

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
from tilewright.ir.parser import parse_program
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.segments import bin_rows as segment_bin_rows
from tilewright.passes.segments.bin_rows import row_histograms

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]
OPERATORS = {"add": "e + f", "max": "max(e, f)", "mul": "e * f"}


def sums_of_rows(operator: str, element: str) -> str:
    """Rows of n by d combined into k bins."""
    zero = {"add": "0", "max": "0", "mul": "1"}[operator] + (".0" if element[0] == "f" else "") + element
    return f"""def rows (at: [n]i64, x: [n][d]{element}, bins: [k][d]{element}) =
  let (neutral: [d]{element}) = replicate d {zero}
  let (h: [k][d]{element}) = hist (bins) (\\(a: [d]{element}, b: [d]{element}) ->
    let (c: [d]{element}) = map d (\\(e: {element}, f: {element}) ->
      let (g: {element}) = {OPERATORS[operator]}
      in (g)) a b
    in (c)) (neutral) at x
  in (h)
"""


@pytest.mark.parametrize("device", DEVICES)
def test_histograms_of_rows(device: str) -> None:
    @settings(max_examples=examples(40 if device == "cpu" else 8))
    @given(
        operator=st.sampled_from(sorted(OPERATORS)),
        element=st.sampled_from(["f32", "f64", "i32", "u8", "f16", "i64"]),
        width=st.sampled_from([0, 1, 2, 7, 33, 200]),
        length=st.sampled_from([0, 1, 3, 8, 16, 17, 40]),
        bins=st.sampled_from([0, 1, 2, 9]),
        pieces=st.sampled_from([1, 3]),
        copies=st.sampled_from([1, 4]),
        threads=st.sampled_from([1, 2]),
        turned=st.booleans(),
        seed=st.integers(0, 99),
    )
    def run(
        operator: str, element: str, width: int, length: int, bins: int, pieces: int, copies: int, threads: int,
        turned: bool, seed: int,
    ) -> None:  # fmt: skip
        random = np.random.default_rng(seed)
        dtype = np.dtype(element[0] + str(int(element[1:]) // 8))
        low, high = (1, 2) if operator == "mul" else (0, 3)
        at = random.integers(-2, bins + 2, width)
        x = random.integers(low, high, (width, length)).astype(dtype)
        given_bins = random.integers(low, high, (bins, length)).astype(dtype)
        if turned:
            x = np.asfortranarray(x)
        before = tw.get_num_threads()
        tw.set_num_threads(threads)
        try:
            with pytest.MonkeyPatch.context() as patch:
                cut = max(1, -(-width // max(1, -(-width // pieces))))
                patch.setattr(segment_bin_rows, "pieces_of_histogram", lambda *_: (cut, 0))
                patch.setattr(segment_bin_rows, "copies_of_bins", lambda *_: copies)
                check(sums_of_rows(operator, element), [at, x, given_bins], device)
        finally:
            tw.set_num_threads(before)

    run()


def test_vectors_fit_the_rows() -> None:
    program = parse_program(sums_of_rows("add", "f32"))
    found = row_histograms(program.body.statements[1].expression, CPU_AVX512)
    assert found is not None
    assert [found.fitting(length).lanes for length in (0, 1, 2, 3, 8, 9, 16, 100)] == [2, 2, 2, 4, 8, 16, 16, 16]


def test_sums_of_rows_that_exceed_one_piece() -> None:
    random = np.random.default_rng(1)
    at, x = random.integers(-1, 11, 100_000), random.integers(-9, 9, (100_000, 24)).astype("f4")

    @tw.program
    def sums(at: tw.i64["n"], x: tw.f32["n", "d"]) -> Any:
        return tw.hist(lambda a, b: a + b, tw.replicate(x.shape[1], 0.0, "f32"), 10, at, x)

    expected = np.zeros((10, 24), "f4")
    inside = (at >= 0) & (at < 10)
    np.add.at(expected, at[inside], x[inside])
    np.testing.assert_array_equal(np.asarray(sums(at, x)), expected)
