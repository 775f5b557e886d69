"""Programs that random trials once found to go wrong, made smaller: each goes through all ways of a trial."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fuzz_trials import Trial, run_trial
from random_programs.generator import random_arguments

import tilewright as tw
from tilewright.ir.parser import parse_program
from tilewright.ir.verifier import verify
from tilewright.runtime.devices import device_for

FOUND = {
    "rows that are scanned are full of one scalar, as the neutral row is": """\
def random (xs: [n]f32) =
  let (row: [n]bool) = replicate n true
  let (rows: [n][n]bool) = replicate n row
  let (ones: [n]bool) = replicate n true
  let (all: [n][n]bool) = scan n (\\(a: [n]bool, b: [n]bool) ->
    let (c: [n]bool) = map n (\\(p: bool, q: bool) -> let (r: bool) = p & q in (r)) a b
    in (c)) (ones) rows
  in (all)
""",
    "rows that could be folded in registers check an index": """\
def random (xs: [n]i64, rows: [n][n]f64, flags: [n]bool) =
  let (least: [n][n]f64, t: [n][n]i64, b: [n][n]bool) = segscan@thread (i: i64 < n, j: i64 < n) (\\(p: f64, q: f64) ->
    let (r: f64) = min(p, q)
    in (r)) (f64.inf) do
    let (flag: bool) = flags[1i64]
    in (1.0f64, j, flag)
  in (least, t, b)
""",
    "the index of a point is what a stream folds": """\
def random (a: [n]i32, rows: [n][n]f64) =
  let (ys: [2][n]i64) = segmap@thread (i: i64 < 2, j: i64 < n) do
    let (s: i64) = redomap n (\\(p: i64, q: i64) -> let (r: i64) = p + q in (r)) (0i64) (\\(x: [n]f64) -> (j)) rows
    in (s)
  in (ys)
""",
    "nobody reads a scan and a map of it": """\
def random (xs: [n]f32) =
  let (zs: [n]f32) = scan n (\\(p: f32, q: f32) -> let (r: f32) = p + q in (r)) (0.0f32) xs
  let (ys: [n]f32) = map n (\\(z: f32) -> let (c: f32) = min(z, 8.0f32) in (c)) zs
  in (xs)
""",
    "arrays of negative sizes are empty": """\
def random (xs: [n]f32) =
  let (a: [n - 2]f32) = xs[0 :+ n - 2]
  let (b: [n - 2]f32) = xs[2 :+ n - 2]
  let (c: [n - 2]f32) = map (n - 2) (\\(p: f32, q: f32) -> let (t: f32) = p + q in (t)) a b
  let (zeros: [n - 2]f32) = replicate (n - 2) 0.0f32
  let (ranks: [n - 2]i64) = iota (n - 2) i64
  in (c, zeros, ranks)
""",
    "a map gives its rows as they are": """\
def random (xs: [n]f32, yss: [n][m]f32) =
  let (a: [n]f32) = map n (\\(x: f32) -> (x)) xs
  let (b: [n][m]f32, c: [n]f32) = map n (\\(ys: [m]f32, z: f32) -> (ys, z)) yss xs
  let (d: [n][m]f32) = map n (\\(us: [m]f32) -> let (e: [m]f32) = map m (\\(u: f32) -> (u)) us in (e)) yss
  in (a, b, c, d)
""",
    "an array of a negative size is reshaped": """\
def random (xs: [n]f32) =
  let (a: [n - 2]f32) = xs[0 :+ n - 2]
  let (b: [1][n - 2]f32) = reshape (1, n - 2) a
  let (c: [n - 2][1]f32) = map (n - 2) (\\(p: f32) -> let (t: [1]f32) = replicate 1 p in (t)) a
  let (d: [n - 2]f32) = reshape (n - 2) c
  in (b, d)
""",
    "bools are folded between offsets": """\
def random (flags: [n]bool, starts: [n + 1]i64) =
  let (none: [n]bool) = replicate n false
  let (all: [n + 1]bool) = replicate (n + 1) true
  let (first: [n]bool) = scatter none starts all
  let (folds: [n]bool, t: [n]bool) = scan n (\\(old: bool, before: bool, new: bool, anew: bool) ->
    let (both: bool) = old & new
    let (kept: bool) = select(anew, new, both)
    let (one: bool) = before | anew
    in (kept, one)) (true, false) flags first
  let (places: [n]i64) = iota n i64
  let (ys: [n]bool) = map n (\\(i: i64) ->
    let (low: i64) = starts[i]
    let (next: i64) = i + 1i64
    let (high: i64) = starts[next]
    let (some: bool) = high > low
    let (y: bool) = if some then
      let (last: i64) = high - 1i64
      let (fold: bool) = folds[last]
      in (fold)
    else (false)
    in (y)) places
  in (ys)
""",
    "distribution leaves a map that gives nothing": """\
def random (a_4: [m][n]f32, a_5: [m][n]i64) =
  let (batch: [m]f32, batch_1: [m][n][n]f32, batch_2: [m][n]u64, batch_3: [m][n]f32) =
    map m (\\(a: [n]f32, a_1: [n]i64) ->
    let (t_2: [n]u64, t_3: [n]f32, t_4: [n]u64, t_5: [n][n]f32) = scanomap n (\\(a_2: u64, b: u64) ->
      let (t: u64) = max(a_2, b)
      in (t)) (0u64) (\\(x: f32) ->
      let (t_1: u64) = min(1u64, 3u64)
      in (t_1, x, t_1, a)) a
    let (t_6: f32) = abs(1.0f32)
    let (t_7: f32) = t_6 + 1.0f32
    let (t_8: f32) = -0.75f32 / t_7
    let (t_10: [n][n]f32) = rearrange (1, 0) t_5
    let (t_12: [n]f32) = map n (\\(x_1: [n]f32) ->
      let (t_11: f32) = reduce n (\\(a_3: f32, b_1: f32) ->
        let (t_9: f32) = a_3 + b_1
        in (t_9)) (0.0f32) x_1
      in (t_11)) t_10
    let (t_15: [n]f32) = map n (\\(x_2: f32) ->
      let (t_13: f32) = min(x_2, 8.0f32)
      let (t_14: f32) = max(t_13, -8.0f32)
      in (t_14)) t_12
    let (t_16: f32) = t_5[0i64, 0i64]
    in (t_16, t_5, t_2, t_3)) a_4 a_5
  in (batch)
""",
    "a fold in a scan's point keeps fewer results than its function gives": """\
def random (a: [n]i64) =
  let (ys: [n]f32, zs: [n]i64) = segscan@thread (i: i64 < n) (\\(p: f32, q: f32) ->
    let (r: f32) = p * q
    in (r)) (1.0f32) do
    let (t: [n]i64) = iota n i64
    let (s: i64, more: [n]i64) = redomap n (\\(p1: i64, q1: i64) ->
      let (r1: i64) = p1 + q1
      in (r1)) (0i64) (\\(x: i64) -> (x, x)) t
    in (1.0f32, s)
  in (zs)
""",
}
FOUND["a branch in a point gives a number and an array as it is"] = """\
def random (a: [m]i64, s: i64, flags: [n]bool) =
  let (ys: [n]i64, zs: [n][m]i64) = map n (\\(x: bool) ->
    let (r: i64) = a[0i64]
    let (t: i64, u: [m]i64) = if true then
      let (v: i64) = s | r
      in (v, a)
    else
      let (w: i64) = min(2i64, r)
      in (w, a)
    in (r, u)) flags
  in (ys, zs)
"""
SIZES = ({"n": 0, "m": 2}, {"n": 1, "m": 0}, {"n": 5, "m": 3}, {"n": 33, "m": 2})


def arguments_of(text: str, sizes: dict[str, int]) -> list[Any]:
    """Arguments of a program with these sizes; `starts` are indices that ascend."""
    program = parse_program(text)
    random = np.random.default_rng(5)
    made = random_arguments(program, 5)
    for position, one in enumerate(program.parameters):
        if one.type.rank:
            shape = [extent.evaluate(sizes) for extent in one.type.shape]
            starts = one.name == "starts"
            lowest = 0 if starts or one.type.element.kind == "u" else -9
            values = random.integers(lowest, sizes["n"] + 1 if starts else 9, shape)
            made[position] = (np.sort(values) if starts else values).astype(one.type.element.numpy)
    return made


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name: str, sizes: dict[str, int]) -> None:
    program = parse_program(FOUND[name])
    verify(program)
    for threads in (1, 2):
        for optimise in (True, False):
            arguments = arguments_of(FOUND[name], sizes)
            trial = Trial(0, program, arguments, threads=threads, small_grains=threads == 2, optimise=optimise)
            failure = run_trial(trial, device_for("cpu"))
            assert failure is None, str(failure)


@pytest.mark.opencl
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_exponentials_of_one_term(opencl_runtime: object, dtype: type) -> None:
    """A compiler made nan of what is combined with the neutral element, which it knew."""
    random = np.random.default_rng(75502431)
    left, right = (random.standard_normal(shape).astype(dtype) for shape in ((1, 48), (48, 32, 1)))
    found = tw.einsum("af,fca->fc", left, right, semiring="log_sum_exp", target="opencl")
    np.testing.assert_allclose(found, left[0][:, None] + right[:, :, 0], rtol=0, atol=16 * np.finfo(dtype).eps)


@pytest.mark.opencl
def test_the_largest_products_of_integers(opencl_runtime: object) -> None:
    """A compiler crashed on the comparisons of the products."""
    random = np.random.default_rng(5426)
    left = random.integers(0, 2**32, (8, 32, 33, 16), np.uint32).transpose(1, 0, 3, 2)
    right = random.integers(0, 2**32, (8, 32, 48), np.uint32)[::-1, ::-1, ::3]
    found = tw.einsum("daef,ade->f", left, right, semiring="max_times", target="opencl")
    products = left.transpose(1, 0, 2, 3) * right[..., None]
    np.testing.assert_array_equal(found, products.max(axis=(0, 1, 2)))
