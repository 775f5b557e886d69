"""What incremental flattening leaves to forms of whole nests, and what it splits off them."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Apply, Body, Iota, Map, Program, SegMap, SegRed, SegScan
from tilewright.ir.parser import parse_program
from tilewright.ir.traversal import all_statements
from tilewright.ir.verifier import verify
from tilewright.machine.named import named_machine
from tilewright.passes.flattening.flatten_contractions import flattening_pipeline
from tilewright.passes.flattening.flatten_tree import machine_thresholds, version_settings
from tilewright.passes.pipelines import run_pipeline
from tilewright.passes.segments.rows import as_nested_maps
from tilewright.passes.segments.streams import form_of_streams, nest_of_streams
from tilewright.rewrite.rules.flatten_versions import thresholds_of

CPU = named_machine("cpu-avx512")


def incremental(source: tw.TracedProgram) -> Program:
    return run_pipeline(run_pipeline(source.trace(), verify=True), flattening_pipeline("incremental"), verify=True)


# --- what is flat as it is written ------------------------------------------------------------------------------------


@tw.program
def packed(x: tw.f32["n"], least: tw.f32) -> Any:
    """A filter: a map, a scan and a scatter of it are one pass."""
    wanted = tw.map(lambda one: one > least, x)
    places = tw.scan("add", 0, tw.map(lambda one: tw.cast(one, "i64"), wanted))
    indices = tw.map(lambda one, place: tw.where(one, place - 1, -1), wanted, places)
    return tw.scatter(tw.replicate(x.shape[0], 0.0, "f32"), indices, x)


@tw.program
def smoothed(x: tw.f32["n", "m"], rounds: tw.i64) -> Any:
    """Scalars stand between the two maps; both dimensions are one kernel's points."""
    n, m = x.shape

    def step(_: Any, now: Any) -> Any:
        def row(i: Any) -> Any:
            above = tw.maximum(i - 1, 0)
            return tw.map(lambda j: 0.5 * (now[i, j] + now[above, j]), tw.iota(m))

        return tw.map(row, tw.iota(n))

    return tw.loop(rounds, x, step)


@tw.program
def column_counts(bins: tw.i64["n"], x: tw.f32["n", "m"]) -> Any:
    """A histogram of rows: its operator adds up vectors."""
    return tw.hist(lambda one, two: tw.map("add", one, two), 0, 4, bins, x)


@pytest.mark.parametrize("source", [packed, smoothed, column_counts])
def test_what_is_flat_as_it_is_written_stays_as_it_is(source: tw.TracedProgram) -> None:
    program = incremental(source)
    assert not thresholds_of(program)
    assert program == run_pipeline(source.trace())


# --- nests whose points share what they read --------------------------------------------------------------------------


@tw.program
def nearest(points: tw.f32["n", "d"], centres: tw.f32["k", "d"]) -> Any:
    def distance(point: Any, centre: Any) -> Any:
        return tw.reduce("add", 0.0, tw.map(lambda x, y: (x - y) * (x - y), point, centre))

    return tw.map(lambda p: tw.reduce("min", math.inf, tw.map(lambda c: distance(p, c), centres)), points)


@tw.program
def shares(a: tw.f32["n", "d"], b: tw.f32["k", "d"]) -> Any:
    def row(one: Any) -> Any:
        dots = tw.map(lambda two: tw.reduce("add", 0.0, tw.map(lambda x, y: x * y, one, two)), b)
        most = tw.reduce("max", -math.inf, dots)
        return tw.map(lambda dot: tw.exp(dot - most), dots)

    return tw.map(row, a)


def test_a_nest_is_opened_for_a_contraction_unless_it_has_a_form_of_its_own() -> None:
    whole, opened = incremental(nearest), incremental(shares)
    assert "contraction_0" in thresholds_of(whole)
    assert "contraction_0" in thresholds_of(opened)
    assert machine_thresholds(whole, CPU)["outer_0"] == CPU.cores
    assert machine_thresholds(opened, CPU)["outer_0"] == math.inf


def test_the_first_version_has_the_form_of_the_nest_as_written() -> None:
    flat = tw.program(flattening="incremental")(nearest.function)
    for text in (nearest.explain(target="cpu"), flat.explain(target="cpu")):
        assert "run through the streams together" in text


def test_numbers_in_order_are_made_where_they_are_used() -> None:
    @tw.program
    def first(points: tw.f32["n", "k"]) -> Any:
        def place(row: Any) -> Any:
            return tw.reduce("add", 0, tw.map(lambda x, i: tw.where(x > 0.0, i, 0), row, tw.iota(row.shape[0])))

        return tw.map(place, points)

    program = incremental(first)
    outer = [one.expression for one in all_statements(program.body) if isinstance(one.expression, SegMap)]
    inside = [one for operation in outer for one in operation.body.statements if isinstance(one.expression, Iota)]
    assert inside


# --- maps of rows -----------------------------------------------------------------------------------------------------

SEGMAPS = {
    "rows": """
      let (zs: [n]f32) = segmap@thread (i: i64 < n) do
        let (x: [m]f32) = xs[i]
        let (s: f32) = reduce m (\\(a: f32, b: f32) -> let (c: f32) = a + b in (c)) (0.0f32) x
        in (s)""",
    "an index": """
      let (zs: [n]f32) = segmap@thread (i: i64 < n) do
        let (y: f32) = ys[i]
        let (f: f32) = i as f32
        let (z: f32) = y * f
        in (z)""",
    "two dimensions": """
      let (zs: [n][m]f32) = segmap@thread (i: i64 < n, j: i64 < m) do
        let (x: f32) = xs[i, j]
        let (y: f32) = ys[i]
        let (w: f32) = ws[j]
        let (v: f32) = x * y
        let (z: f32) = v + w
        in (z)""",
    "turned": """
      let (zs: [m][n]f32) = segmap@thread (j: i64 < m, i: i64 < n) do
        let (x: f32) = xs[i, j]
        let (y: f32) = ys[i]
        let (z: f32) = x + y
        in (z)""",
    "another extent": """
      let (zs: [k]f32) = segmap@thread (i: i64 < k) do
        let (v: [m]f32) = vs[i]
        let (s: f32) = reduce m (\\(a: f32, b: f32) -> let (c: f32) = a + b in (c)) (0.0f32) v
        let (u: f32) = us[i]
        let (z: f32) = s * u
        in (z)""",
}


@given(st.sampled_from(sorted(SEGMAPS)), st.integers(0, 3), st.integers(0, 4), st.integers(0, 3), st.integers(0, 99))
def test_maps_of_rows_mean_the_same(name: str, n: int, m: int, k: int, seed: int) -> None:
    text = f"""def f (xs: [n][m]f32, ys: [n]f32, ws: [m]f32, vs: [k][m]f32, us: [k]f32) ={SEGMAPS[name]}
      in (zs)"""
    source = parse_program(text)
    (statement,) = source.body.statements
    assert isinstance(statement.expression, SegMap)
    maps = Program("f", source.parameters, Body(as_nested_maps(statement, statement.expression), source.body.results))
    verify(maps)
    assert isinstance(maps.body.statements[-1].expression, Map)
    random = np.random.default_rng(seed)
    arguments = [random.normal(size=s).astype("f4") for s in ((n, m), (n,), (m,), (k, m), (k,))]
    for want, got in zip(interpret(source, arguments), interpret(maps, arguments), strict=True):
        np.testing.assert_array_equal(got, want)


def test_operations_of_blocks_and_of_scalars_have_no_streams() -> None:
    for name, level in (("rows", "block"), ("two dimensions", "thread")):
        body = SEGMAPS[name].replace("@thread", f"@{level}")
        source = parse_program(f"def f (xs: [n][m]f32, ys: [n]f32, ws: [m]f32) ={body}\n      in (zs)")
        (statement,) = source.body.statements
        assert isinstance(statement.expression, SegMap)
        assert not form_of_streams(statement, statement.expression, CPU)
        assert nest_of_streams(statement, statement.expression, CPU) == ()


# --- what does not vary -----------------------------------------------------------------------------------------------


@tw.program
def damped(starts: tw.f64["o", "n"], weights: tw.f64["n"], rounds: tw.i64) -> Any:
    """Every round scans numbers that are the same for all starts."""

    def one(start: Any) -> Any:
        def step(number: Any, now: Any) -> Any:
            age = tw.cast(number, "f64")
            factors = tw.map(lambda w: tw.exp(-w * age), weights)
            sums = tw.scan("add", 0.0, factors)
            running = tw.scan("add", 0.0, tw.map(lambda x, f: x * f, now, factors))
            return tw.map(lambda r, s: r / s, running, sums)

        return tw.loop(rounds, start, step)

    return tw.map(one, starts)


def dear_over(program: Program, operator: str) -> list[tuple[str, ...]]:
    """The spaces of the segmented operations that compute with an operator."""
    found = []
    for one in all_statements(program.body):
        if isinstance(one.expression, SegMap | SegRed | SegScan):
            inside = (inner.expression for inner in all_statements(one.expression.body))
            if any(isinstance(inner, Apply) and inner.operator == operator for inner in inside):
                found.append(tuple(map(str, one.expression.space.shape)))
    return found


def test_what_all_points_share_is_computed_once_a_round_after_an_interchange() -> None:
    program = incremental(damped)
    assert ("o",) in dear_over(program, "exp"), "each point by itself computes all"
    assert ("n",) in dear_over(program, "exp"), "after the interchange once for all"
    assert not any("o" in one and "n" in one for one in dear_over(program, "exp"))


@given(st.integers(0, 3), st.integers(1, 5), st.integers(0, 3), st.integers(0, 99))
def test_versions_with_parts_split_off_agree(count: int, n: int, rounds: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    arguments = [random.normal(size=(count, n)), random.uniform(0.1, 1, n), rounds]
    program = incremental(damped)
    expected = interpret(damped.trace(), arguments)
    for thresholds in version_settings(program):
        found = interpret(program, arguments, thresholds)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-12, atol=1e-12)
