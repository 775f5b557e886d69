"""Points with rows of their own in the lanes of vectors, and indices that folds carry in 32 bits."""

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
from tilewright.ir.parser import parse_program
from tilewright.ir.traversal import all_statements
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.passes.core.narrow_indices import with_narrow_indices
from tilewright.passes.core.nest_folds import with_folds
from tilewright.passes.streams.lane_choice import LaneForm, lane_form

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]
# Which of two distances with their places is taken: no less than one operator is associative for any of them.
CHOICES = {
    "first smallest": "let (l: bool) = a < b let (q: bool) = a == b let (w: bool) = i < j "
    "let (v: bool) = q & w let (s: bool) = l | v",
    "last smallest": "let (l: bool) = a < b let (q: bool) = a == b let (w: bool) = i > j "
    "let (v: bool) = q & w let (s: bool) = l | v",
    "smallest, the former of equals": "let (s: bool) = a <= b",
    "smallest, the latter of equals": "let (s: bool) = a < b",
}


def nearest(choice: str, element: str, start: str) -> str:
    """For each of n rows the nearest of k rows, and how far that is; `start`: the neutral place."""
    return f"""def nearest (x: [n][d]{element}, y: [k][d]{element}) =
  let (r: [n]{element}, m: [n]i64) = map n (\\(p: [d]{element}) ->
    let (far: [k]{element}) = map k (\\(c: [d]{element}) ->
      let (sum: {element}) = redomap_comm d (\\(u1: {element}, u2: {element}) ->
        let (u: {element}) = u1 + u2
        in (u)) (0.0{element}) (\\(e: {element}, f: {element}) ->
        let (g: {element}) = e - f
        let (h: {element}) = g * g
        in (h)) p c
      in (sum)) y
    let (places: [k]i64) = iota k i64
    let (best: {element}, at: i64) = reduce k (\\(a: {element}, i: i64, b: {element}, j: i64) ->
      {CHOICES[choice]}
      let (t: {element}) = select(s, a, b)
      let (z: i64) = select(s, i, j)
      in (t, z)) ({element}.inf, {start}i64) far places
    in (best, at)) x
  in (r, m)
"""


@pytest.mark.parametrize("device", DEVICES)
def test_nearest_rows(device: str) -> None:
    @settings(max_examples=examples(12 if device == "cpu" else 6))
    @given(
        choice=st.sampled_from(sorted(CHOICES)),
        element=st.sampled_from(["f32", "f64"]),
        start=st.sampled_from(["4611686018427387904", "-1", "-4611686018427387904", "2147483647", "7"]),
        points=st.sampled_from([0, 1, 7, 8, 20, 64, 75, 130]),
        rows=st.sampled_from([0, 1, 5, 16]),
        length=st.sampled_from([0, 1, 3, 8, 11, 16, 300]),
        order=st.sampled_from("CF"),
        threads=st.sampled_from([1, 2]),
        seed=st.integers(0, 99),
    )
    def run(
        choice: str, element: str, start: str, points: int, rows: int, length: int, order: Any, threads: int, seed: int
    ) -> None:
        random = np.random.default_rng(seed)
        dtype = np.dtype(element[0] + str(int(element[1:]) // 8))
        # Small integers: there are ties, and all sums are exact in any order.
        x, y = (np.asarray(random.integers(0, 3, (n, length)), dtype, order=order) for n in (points, rows))
        if points > 3 and length > 1:
            x[2, 1] = np.inf  # a distance of inf, as far as nothing at all
        before = tw.get_num_threads()
        tw.set_num_threads(threads)
        try:
            check(nearest(choice, element, start), [x, y], device)
        finally:
            tw.set_num_threads(before)

    run()


def form_of(text: str, machine: Any) -> LaneForm:
    found = lane_form(with_folds(parse_program(text).body.statements[0].expression), machine)
    assert isinstance(found, LaneForm)
    return found


def test_rows_of_points_are_staged_and_indices_narrow() -> None:
    text = nearest("first smallest", "f32", "4611686018427387904")
    for machine, lanes in ((CPU_AVX512, 16), (CPU_AVX2, 8)):
        form = form_of(text, machine)
        assert (form.lanes, form.staged, [str(one) for one in form.narrow]) == (lanes, {"p"}, ["k"])


NARROW = """def last (xs: [n][m]f32, first: i64) =
  let (r: [n]i64) = map n (\\(x: [m]f32) ->
    let (is: [m]i64) = iota m i64
    let (i: i64) = reduce m (\\(a: i64, b: i64) -> COMBINE in (c)) (START) is
    in (i)) xs
  in (r)
"""


@pytest.mark.parametrize("start", ["-1i64", "-9223372036854775808i64", "9223372036854775807i64", "2i64"])
@pytest.mark.parametrize("combine", ["let (c: i64) = max(a, b)", "let (c: i64) = min(a, b)"])
def test_narrow_indices_change_no_result(start: str, combine: str) -> None:
    program = parse_program(NARROW.replace("COMBINE", combine).replace("START", start))
    (statement,) = program.body.statements
    found, extents = with_narrow_indices(statement.expression)
    assert [str(one) for one in extents] == ["m"]
    body = nodes.Body((nodes.Statement(statement.targets, found),), program.body.results)
    narrow = nodes.Program(program.name, program.parameters, body)
    folds = [one for one in all_statements(body) if isinstance(one.expression, nodes.Reduce)]
    assert [str(one.targets[0].type) for one in folds] == ["i32"]
    for rows in (0, 1, 5):
        arrays = np.zeros((3, rows), "f4"), np.int64(0)
        assert np.array_equal(interpret(narrow, arrays)[0], interpret(program, arrays)[0])


@pytest.mark.parametrize(
    "combine", ["let (c: i64) = a + b", "let (l: bool) = a < first let (c: i64) = select(l, a, b)"]
)
def test_indices_that_are_computed_with_stay_as_they_are(combine: str) -> None:
    program = parse_program(NARROW.replace("COMBINE", combine).replace("START", "0i64"))
    _, extents = with_narrow_indices(program.body.statements[0].expression)
    assert extents == ()
