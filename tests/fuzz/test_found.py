"""Programs that random trials once found to go wrong, made smaller: each goes through all ways of a trial."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fuzz_trials import Trial, run_trial

from tilewright.ir.generator import random_arguments
from tilewright.ir.parser import parse_program
from tilewright.ir.verifier import verify
from tilewright.runtime.devices import device_for

FOUND = {
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
}
SIZES = ({"n": 0}, {"n": 1}, {"n": 5}, {"n": 33})


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
