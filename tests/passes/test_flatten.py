"""Flattening as a whole: the slides' running example step by step [S2], the pipelines, what stays sequential."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from flatten_cases import (
    RUNNING_EXAMPLE,
    full_flattening_pipeline,
    incremental_flattening_pipeline,
    outer_flattening_pipeline,
    verified,
)

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Level, Loop, Program, SegHist, SegMap, SegRed, SegScan, Statement
from tilewright.ir.printer import print_program
from tilewright.ir.sizes import Size, product, size
from tilewright.ir.traversal import all_statements, sub_bodies
from tilewright.ir.verifier import verify
from tilewright.passes.flattening.flatten import flatten_fully, flatten_incrementally, flatten_outer
from tilewright.passes.pipelines import Pass, run_pipeline
from tilewright.rewrite.derivation import Derivation, Recording, agree
from tilewright.rewrite.rule import Site, rule_named
from tilewright.rewrite.strategy import State, apply

# The slides' steps: what they call it, the rule, where. (d) skips scalar code, (g) finds an irregular array: no rule.
SLIDES = (
    ("(b) distribution", "distribute", Site((), 0)),
    ("(c) interchanging the outermost map inwards", "interchange_loop", Site((), 1)),
    ("(e) distributing the reduction", "distribute", Site(((1, 0),), 0)),
    ("(f) distributing the inner map", "distribute", Site((), 0)),
    ("(h) these statements are sequentialised", "flatten_map", Site((), 0)),
    ("a kernel of m*m*m", "flatten_map", Site((), 1)),
    ("a kernel of m*m*m in the loop", "flatten_redomap", Site(((2, 0),), 0)),
    ("a kernel of m*m in the loop", "flatten_map", Site(((2, 0),), 1)),
)


def example_arguments(m: int = 3, n: int = 2) -> list[object]:
    return [np.random.default_rng(m).integers(0, 4, (m, m)), n]


def operations(program: Program) -> list[Statement]:
    """The segmented operations of a program, in order."""
    kinds = SegMap | SegRed | SegScan | SegHist
    return [one for one in all_statements(program.body) if isinstance(one.expression, kinds)]


def parallelism(program: Program) -> list[tuple[str, Size]]:
    """Of every segmented operation its kind and the number of its points."""
    return [(type(one.expression).__name__, product(one.expression.space.shape)) for one in operations(program)]


def test_the_running_example_of_the_slides(golden: Callable[[str, str], None]) -> None:
    source = verified(RUNNING_EXAMPLE)
    state = State(source)
    text = ["(a) initial program", print_program(source)]
    for title, rule, site in SLIDES:
        outcome = apply(rule_named(rule))(state.at(site))
        assert isinstance(outcome, State), f"{title}: {outcome}"
        state = outcome
        verify(state.program)
        text += [f"{title}: {rule} at {site}", print_program(state.program)]
    golden("passes/flatten_running_example.txt", "\n".join(text))
    derivation = Derivation(source, state.steps)
    derivation.check([example_arguments(), example_arguments(1, 3), example_arguments(0, 1), example_arguments(4, 0)])
    assert derivation.replay(source) == state.program


def test_the_running_example_becomes_four_kernels() -> None:
    recording = Recording(verified(RUNNING_EXAMPLE))
    flat = flatten_fully(recording.derivation.source, recording)
    verify(flat)
    m = size("m")
    assert parallelism(flat) == [("SegMap", m * m), ("SegMap", m * m * m),
                                 ("SegRed", m * m * m), ("SegMap", m * m)]  # fmt: skip
    (loop,) = [one for one in flat.body.statements if isinstance(one.expression, Loop)]
    inside = [one for body in sub_bodies(loop.expression) for one in body.statements]
    assert operations(flat)[2:] == inside
    assert sorted(step.rule for step in recording.derivation.steps) == sorted(rule for _, rule, _ in SLIDES)
    recording.derivation.check([example_arguments()])
    assert any("is has type [p]i64" in one.reason for one in recording.derivation.refusals)


SUMS = """\
def sums (xss: [n][m]f32) =
  let (sums: [n]f32) = map n (\\(xs: [m]f32) ->
    let (sum: f32) = reduce m (\\(s: f32, t: f32) ->
      let (u: f32) = s + t
      in (u)) (0.0f32) xs
    in (sum)) xss
  in (sums)
"""


def test_the_outermost_parallelism_alone() -> None:
    flat = flatten_outer(verified(SUMS))
    assert parallelism(flat) == [("SegMap", size("n"))]
    assert parallelism(flatten_fully(verified(SUMS))) == [("SegRed", size("n") * "m")]


def test_a_fold_outside_of_nests_is_parallel_in_both() -> None:
    operator = "(\\(a: i64, b: i64) -> let (c: i64) = a + b in (c)) (0i64)"
    text = f"def f (x: [n]i64) = let (y: i64) = reduce n {operator} x in (y)"
    for flatten in (flatten_outer, flatten_fully, flatten_incrementally):
        assert parallelism(flatten(verified(text))) == [("SegRed", size("n"))]


def test_inside_a_block_everything_is_for_threads() -> None:
    flat = flatten_incrementally(verified(SUMS))
    levels = [one.expression.level for one in operations(flat)]
    assert levels == [Level.THREAD, Level.BLOCK, Level.THREAD, Level.THREAD]
    inner = [one for body in sub_bodies(operations(flat)[1].expression) for one in body.statements]
    assert operations(flat)[2] in inner


@pytest.mark.parametrize(
    "pipeline", [full_flattening_pipeline, outer_flattening_pipeline, incremental_flattening_pipeline]
)
def test_the_pipelines_fuse_before_they_flatten(pipeline: tuple[Pass, ...]) -> None:
    source = verified(
        """\
def f (xss: [n][m]f32) =
  let (yss: [n][m]f32) = map n (\\(xs: [m]f32) ->
    let (ys: [m]f32) = map m (\\(x: f32) ->
      let (y: f32) = x * x
      in (y)) xs
    in (ys)) xss
  let (sums: [n]f32) = map n (\\(zs: [m]f32) ->
    let (sum: f32) = reduce m (\\(s: f32, t: f32) ->
      let (u: f32) = s + t
      in (u)) (0.0f32) zs
    in (sum)) yss
  in (sums)
"""
    )
    recording = Recording(source)
    flat = run_pipeline(source, pipeline, recording, verify=True)
    xss = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    recording.derivation.check([[xss]])
    assert agree(interpret(source, [xss]), interpret(flat, [xss])) is None
    assert all("yss" not in target.name for one in all_statements(flat.body) for target in one.targets)


def test_sizes_of_a_loop_index_are_regular_for_a_nest_around_the_loop() -> None:
    source = verified(
        """\
def f (xs: [n]i64, k: i64) =
  let (ys: [n]i64) = map n (\\(x: i64) ->
    let (y: i64) = loop (a: i64) = (x) for i: i64 < k do
      let (is: [i]i64) = iota i i64
      let (b: i64) = redomap i (\\(s: i64, t: i64) ->
        let (u: i64) = s + t
        in (u)) (0i64) (\\(e: i64) ->
        let (f1: i64) = e * a
        in (f1)) is
      in (b)
    in (y)) xs
  in (ys)
"""
    )
    flat = flatten_fully(source)
    (loop,) = [one.expression for one in flat.body.statements if isinstance(one.expression, Loop)]
    assert ("SegRed", size("n") * "i") in parallelism(flat)
    assert operations(flat)[-1] in loop.body.statements
    arguments = [np.arange(3), 4]
    assert agree(interpret(source, arguments), interpret(flat, arguments)) is None
