"""Histograms that compute the rows which they combine, against the interpreter and NumPy."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_checks import check
from naive import examples
from segment_cases import in_pieces

import tilewright as tw
from tilewright.ir import nodes
from tilewright.ir.interpreter import interpret
from tilewright.ir.parser import parse_program
from tilewright.ir.verifier import verify
from tilewright.passes.last_rewrites import fill_histograms
from tilewright.passes.segments import bin_rows as segment_bin_rows

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]
OPERATORS = {"add": ("x + y", "0.0"), "max": ("max(x, y)", "0.0")}
ROWS = {
    "gathered": "in (row)",
    "scaled": "let (r: [d]T) = map d (\\(p: T) -> let (q: T) = p * weight in (q)) row in (r)",
    "of two": "let (r: [d]T) = map d (\\(p: T, s: T) -> let (q: T) = p - s in (q)) row own in (r)",
    "in two steps": """let (r: [d]T) = map d (\\(p: T, s: T) -> let (q: T) = p * s in (q)) row shift
    let (t: [d]T) = map d (\\(u: T, o: T) -> let (w: T) = u + o in (w)) r own in (t)""",
    "with itself": "let (r: [d]T) = map d (\\(p: T, s: T) -> let (q: T) = p * s in (q)) row row in (r)",
}


def program_of(rows: str, operator: str, element: str) -> str:
    """Rows made of n of v rows, and of n own ones, combined into k bins."""
    combined, neutral = OPERATORS[operator]
    text = f"""def rows (at: [n]i64, of: [n]i64, weights: [n]T, table: [v][d]T, owns: [n][d]T, shift: [d]T,
    bins: [k][d]T) =
  let (made: [n][d]T) = map n (\\(number: i64, weight: T, own: [d]T) ->
    let (row: [d]T) = table[number]
    {ROWS[rows]}) of weights owns
  let (neutral: [d]T) = replicate d {neutral}T
  let (h: [k][d]T) = hist (bins) (\\(a: [d]T, b: [d]T) ->
    let (c: [d]T) = map d (\\(x: T, y: T) -> let (z: T) = {combined} in (z)) a b
    in (c)) (neutral) at made
  in (h)
"""
    return text.replace("T", element)


def arguments(element: str, width: int, length: int, bins: int, seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    dtype = np.dtype(element[0] + str(int(element[1:]) // 8))

    def small(*shape: int) -> Any:
        return random.integers(0, 4, shape).astype(dtype)

    at, of = random.integers(-2, bins + 2, width), random.integers(0, 5, width)
    return [at, of, small(width), small(5, length), small(width, length), small(length), small(bins, length)]


@pytest.mark.parametrize("device", DEVICES)
def test_histograms_of_computed_rows(device: str) -> None:
    @settings(max_examples=examples(40 if device == "cpu" else 8))
    @given(
        rows=st.sampled_from(sorted(ROWS)),
        operator=st.sampled_from(sorted(OPERATORS)),
        element=st.sampled_from(["f32", "f64", "f16"]),
        width=st.sampled_from([0, 1, 7, 33, 200]),
        length=st.sampled_from([0, 1, 3, 16, 17, 40, 150]),
        bins=st.sampled_from([0, 1, 9]),
        pieces=st.sampled_from([1, 3]),
        copies=st.sampled_from([1, 4]),
        strip=st.sampled_from([0, 0, 1, 16, 33]),
        turned=st.booleans(),
        seed=st.integers(0, 99),
    )
    def run(
        rows: str, operator: str, element: str, width: int, length: int, bins: int, pieces: int, copies: int,
        strip: int, turned: bool, seed: int,
    ) -> None:  # fmt: skip
        given_arrays = arguments(element, width, length, bins, seed)
        if turned:
            given_arrays[3] = np.asfortranarray(given_arrays[3])
        with pytest.MonkeyPatch.context() as patch:
            cut = max(1, -(-width // max(1, -(-width // pieces))))
            patch.setattr(segment_bin_rows, "pieces_of_histogram", lambda *_: (cut, 0))
            patch.setattr(segment_bin_rows, "copies_of_bins", lambda *_: copies)
            patch.setattr(segment_bin_rows, "columns_of_strip", lambda *_: min(strip, length))
            with in_pieces(pieces) if device == "opencl" else nullcontext():
                check(program_of(rows, operator, element), given_arrays, device)

    run()


@pytest.mark.parametrize("rows", sorted(ROWS))
def test_no_array_holds_computed_rows(rows: str) -> None:
    program = parse_program(program_of(rows, "add", "f32"))
    found = nodes.Program(program.name, program.parameters, fill_histograms(program).body)
    verify(found)
    assert [type(one.expression) for one in found.body.statements] == [nodes.Replicate, nodes.SegHist]
    given_arrays = arguments("f32", 20, 3, 4, 1)
    np.testing.assert_array_equal(interpret(found, given_arrays)[0], interpret(program, given_arrays)[0])


def test_rows_that_something_else_reads_are_stored() -> None:
    program = parse_program(program_of("scaled", "add", "f32").replace("in (h)", "in (h, made)"))
    assert fill_histograms(program).body is program.body


def test_rows_that_depend_on_their_own_elements_are_stored() -> None:
    own = "let (first: T) = row[0i64] let (r: [d]T) = map d (\\(p: T) -> let (q: T) = p - first in (q)) row in (r)"
    text = program_of("gathered", "add", "f32").replace("in (row)", own.replace("T", "f32"))
    program = parse_program(text)
    assert not any(isinstance(one.expression, nodes.Map) for one in fill_histograms(program).body.statements)
    running = own.replace("row[0i64]", "reduce_comm d (\\(e: T, f: T) -> let (g: T) = e + f in (g)) (0.0T) row")
    text = program_of("gathered", "add", "f32").replace("in (row)", running.replace("T", "f32"))
    program = parse_program(text)
    assert fill_histograms(program).body is program.body
    check(program, arguments("f32", 20, 3, 4, 1))


def test_rows_from_out_of_range_are_told_wherever_they_go() -> None:
    @tw.program
    def bags(table: tw.f32["v", "d"], of: tw.i64["n"], at: tw.i64["n"]) -> Any:
        return tw.hist("add", np.float32(0), 3, at, table[of])

    of, at = np.zeros(40, np.int64), np.full(40, -1)
    of[-1] = 5
    with pytest.raises(IndexError, match="index 5 of table is out of range"):
        bags(np.ones((5, 2), "f4"), of, at)


def test_bags_of_gathered_rows_in_pieces() -> None:
    random = np.random.default_rng(3)
    table, of, at = random.integers(-9, 9, (50, 20)), random.integers(-50, 50, 90_000), random.integers(0, 9, 90_000)

    @tw.program
    def bags(table: tw.i64["v", "d"], of: tw.i64["n"], at: tw.i64["n"]) -> Any:
        return tw.hist("add", 0, 9, at, table[of])

    expected = np.zeros((9, 20), np.int64)
    np.add.at(expected, at, table[of])
    np.testing.assert_array_equal(bags(table, of, at), expected)
