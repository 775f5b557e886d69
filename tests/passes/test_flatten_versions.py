"""Incremental flattening: which versions there are, that thresholds reach each of them, and that all agree [S2]."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from flatten_cases import RUNNING_EXAMPLE, incremental_flattening_pipeline, verified
from locvolcalib_program import locvolcalib, reference, sweep
from lowering_checks import check

from tilewright.ir import interpreter
from tilewright.ir.interpreter import DEFAULT_THRESHOLD, interpret
from tilewright.ir.nodes import (
    Alias,
    Apply,
    Body,
    Literal,
    Program,
    SegHist,
    SegMap,
    SegRed,
    SegScan,
    SizeValue,
    Statement,
    Threshold,
    Type,
    Variable,
    index_literal,
)
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import size
from tilewright.ir.traversal import FreshNames, replace_bodies
from tilewright.machine.model import Machine
from tilewright.machine.named import named_machine
from tilewright.passes.core.simplify import simplify
from tilewright.passes.flattening import flatten_tree
from tilewright.passes.flattening.flatten_tree import (
    Decision,
    Work,
    decisions,
    explain_versions,
    machine_thresholds,
    version_settings,
)
from tilewright.passes.pipelines import run_pipeline
from tilewright.rewrite.rules import flatten_versions
from tilewright.rewrite.rules.flatten_versions import BLOCK_BYTES, BLOCK_THREADS, thresholds_of

RANDOM = np.random.default_rng(5)
MATMUL = """\
def matmul (a: [n][k]f64, b: [m][k]f64) =
  let (c: [n][m]f64) = map n (\\(row: [k]f64) ->
    let (c_row: [m]f64) = map m (\\(column: [k]f64) ->
      let (sum: f64) = redomap_comm k (\\(s: f64, t: f64) ->
        let (u: f64) = s + t
        in (u)) (0.0f64) (\\(x: f64, y: f64) ->
        let (xy: f64) = x * y
        in (xy)) row column
      in (sum)) b
    in (c_row)) a
  in (c)
"""
NESTED_FOLD = """\
def norm (xss: [n][m]f64) =
  let (total: f64) = redomap_comm n (\\(s: f64, t: f64) ->
    let (u: f64) = s + t
    in (u)) (0.0f64) (\\(xs: [m]f64) ->
    let (most: f64) = reduce_comm m (\\(p: f64, q: f64) ->
      let (r: f64) = max(p, q)
      in (r)) (0.0f64) xs
    let (scaled: f64) = most * most
    in (scaled)) xss
  in (total)
"""
SHARED_ROUNDS = """\
def shared (xss: [n][m]f64, factors: [m]f64, steps: i64) =
  let (out: [n][m]f64) = map n (\\(xs: [m]f64) ->
    let (row: [m]f64) = loop (now: [m]f64) = (xs) for t: i64 < steps do
      let (s: f64) = t as f64
      let (es: [m]f64) = map m (\\(f: f64) ->
        let (g: f64) = f * s
        let (e: f64) = exp(g)
        in (e)) factors
      let (ps: [m]f64) = scan m (\\(a: f64, b: f64) ->
        let (c: f64) = max(a, b)
        in (c)) (0.0f64) es
      let (next: [m]f64) = map m (\\(p: f64, x: f64) ->
        let (y: f64) = x / p
        in (y)) ps now
      let (sums: [m]f64) = scan m (\\(a_1: f64, b_1: f64) ->
        let (c_1: f64) = a_1 + b_1
        in (c_1)) (0.0f64) next
      in (sums)
    in (row)) xss
  in (out)
"""
OWN_ROUNDS = (
    SHARED_ROUNDS.replace("factors: [m]f64", "factors: [n][m]f64")
    .replace("(xs: [m]f64)", "(xs: [m]f64, fs: [m]f64)")
    .replace("in (e)) factors", "in (e)) fs")
    .replace("in (row)) xss", "in (row)) xss factors")
)
LOCVOLCALIB = (
    RANDOM.normal(size=(2, 3, 4)), RANDOM.uniform(0.1, 0.5, 2), RANDOM.uniform(0.1, 1, (2, 3, 4)),
    RANDOM.uniform(0.1, 1, (2, 4, 3)), 2,
)  # fmt: skip
# name, program, arguments, the number of versions
CASES: list[tuple[str, Program, Sequence[Any], int]] = [
    ("matmul", verified(MATMUL), [RANDOM.normal(size=(3, 5)), RANDOM.normal(size=(4, 5))], 3),
    ("nested_fold", verified(NESTED_FOLD), [RANDOM.normal(size=(3, 4))], 3),
    ("running_example", verified(RUNNING_EXAMPLE), [RANDOM.integers(0, 4, (3, 3)), 2], 7),
    ("sweep", sweep.trace(), [RANDOM.normal(size=(2, 3, 4))], 3),
    ("locvolcalib", locvolcalib.trace(), LOCVOLCALIB, 8),
    ("shared_rounds", verified(SHARED_ROUNDS), [RANDOM.normal(size=(3, 4)), RANDOM.uniform(-1, 1, 4), 3], 5),
]
each_case = pytest.mark.parametrize(("name", "source", "arguments", "count"), CASES, ids=[one[0] for one in CASES])


@functools.cache
def versions(source: Program) -> Program:
    return run_pipeline(source, incremental_flattening_pipeline, verify=True)


def executed(program: Program, arguments: Sequence[Any], thresholds: dict[str, float]) -> set[int]:
    """The segmented operations that run, by identity."""
    seen: set[int] = set()
    kinds = (SegMap, SegRed, SegScan, SegHist)
    meanings = {kind: interpreter._MEANINGS[kind] for kind in kinds}

    def noting(expression: Any, environment: Any) -> Any:
        seen.add(id(expression))
        return meanings[type(expression)](expression, environment)

    interpreter._MEANINGS.update(dict.fromkeys(kinds, noting))
    try:
        interpret(program, arguments, thresholds)
    finally:
        interpreter._MEANINGS.update(meanings)
    return seen


def operations_in(nodes: Sequence[Work | Decision]) -> Iterator[int]:
    """All segmented operations in a part of the tree, by identity."""
    for one in nodes:
        if isinstance(one, Work):
            if isinstance(one.statement.expression, SegMap | SegRed | SegScan | SegHist):
                yield id(one.statement.expression)
            yield from operations_in(one.inside)
        else:
            yield from operations_in((*one.yes, *one.no))


@each_case
def test_versions(
    name: str, source: Program, arguments: Sequence[Any], count: int, golden: Callable[[str, str], None]
) -> None:
    program = versions(source)
    golden(f"passes/flatten_versions_{name}.txt", explain_versions(program))
    assert len(version_settings(program)) == count
    assert parse_program(print_program(program)) == program


@each_case
def test_every_version_is_reached_and_right(name: str, source: Program, arguments: Sequence[Any], count: int) -> None:
    program = versions(source)
    expected = interpret(source, arguments)
    reached: set[int] = set()
    for thresholds in version_settings(program):
        reached |= executed(program, arguments, thresholds)
        for want, got in zip(expected, interpret(program, arguments, thresholds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    assert reached == set(operations_in(decisions(program.body)))


@each_case
@pytest.mark.parametrize("value", [0, 1, math.inf])
def test_forced_thresholds(name: str, source: Program, arguments: Sequence[Any], count: int, value: float) -> None:
    program = versions(source)
    outer = {name: value for name in thresholds_of(program) if name.startswith("outer_")}
    for block in (0, 1, math.inf):
        thresholds = {**dict.fromkeys(thresholds_of(program), block), **outer, BLOCK_THREADS: 99, BLOCK_BYTES: 9999}
        for want, got in zip(interpret(source, arguments), interpret(program, arguments, thresholds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
        kinds = executed(program, arguments, thresholds)
        outermost = [one for one in decisions(program.body) if isinstance(one, Decision)]
        taken = set(operations_in(outermost[0].yes))
        assert (taken <= kinds) == (value <= 1)


def test_locvolcalib_is_right() -> None:
    np.testing.assert_allclose(interpret(locvolcalib.trace(), LOCVOLCALIB)[0], reference(*LOCVOLCALIB), rtol=1e-12)


def shapes(nodes: Sequence[Work | Decision]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Of the operations in a part of the tree: what, at which level, over which space."""
    found = []
    for one in nodes:
        assert isinstance(one, Work)
        expression = one.statement.expression
        assert isinstance(expression, SegMap | SegRed | SegScan | SegHist)
        found.append((type(expression).__name__, expression.level.value, tuple(map(str, expression.space.shape))))
        found += shapes(one.inside)
    return found


def test_the_three_options_of_the_slides_come_from_one_source() -> None:
    (first,) = decisions(versions(sweep.trace()).body)
    assert isinstance(first, Decision) and first.question == "o*y >= outer_0"
    assert shapes(first.yes) == [("SegMap", "thread", ("o", "y"))]  # option I: the scans run sequentially
    (second,) = first.no
    assert isinstance(second, Decision)
    assert second.question == f"o*y >= block_0 and x < {BLOCK_THREADS} and 16*x < {BLOCK_BYTES}"
    scans = [("SegScan", "thread", ("x",))] * 3
    assert shapes(second.yes) == [("SegMap", "block", ("o", "y")), *scans]  # option III: in a block's memory
    assert shapes(second.no) == [("SegScan", "thread", ("o", "y", "x"))] * 3  # option II: flat


def test_both_sweeps_of_locvolcalib_have_the_three_options() -> None:
    program = versions(locvolcalib.trace())

    def asked(nodes: Sequence[Work | Decision]) -> Iterator[Decision]:
        for one in nodes:
            if isinstance(one, Decision):
                yield one
                yield from asked((*one.yes, *one.no))
            else:
                yield from asked(one.inside)

    questions = {one.question: one for one in asked(decisions(program.body))}
    for points, width, number in (("o*y", "x", 1), ("o*x", "y", 2)):
        first = questions[f"{points} >= outer_{number}"]
        outer = tuple(points.split("*"))
        assert shapes(first.yes) == [("SegMap", "thread", outer)]
        (second,) = first.no
        assert isinstance(second, Decision)
        in_blocks = shapes(second.yes)
        assert in_blocks[0] == ("SegMap", "block", outer)
        assert in_blocks.count(("SegScan", "thread", (width,))) == 3
        assert shapes(second.no).count(("SegScan", "thread", (*outer, width))) == 3


def test_a_round_whose_points_share_their_work_is_asked_about_once_more() -> None:
    """The points of the nest, outside of its loop and in it; without the shared scan only outside."""
    text = explain_versions(versions(verified(SHARED_ROUNDS)))
    before, _, inside = text.partition("= loop for steps rounds")
    assert "n >= outer_0?" in before and "scan" in before
    assert "segscan@thread (m)" in inside.splitlines()[1], "what is shared is part of no version"
    assert "n >= outer_1?" in inside and "segmap@thread (n), in each: scan" in inside
    assert "outer_1" not in explain_versions(versions(verified(OWN_ROUNDS)))


@pytest.mark.parametrize("machine", ["cpu-avx512", "h100"])
def test_a_machine_takes_the_version_that_shares_the_work_of_a_round(machine: str) -> None:
    values = machine_thresholds(versions(verified(SHARED_ROUNDS)), named_machine(machine))
    assert values["outer_0"] == values["block_0"] == math.inf
    assert 0 < values["outer_1"] < math.inf
    values = machine_thresholds(versions(verified(OWN_ROUNDS)), named_machine(machine))
    assert 0 < values["outer_0"] < math.inf and 0 < values["block_0"] < math.inf


def test_a_program_asks_so_many_questions_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    source = locvolcalib.trace()
    for module in (flatten_versions, flatten_tree):
        monkeypatch.setattr(module, "MOST_QUESTIONS", 3)
    program = run_pipeline(source, incremental_flattening_pipeline, verify=True)
    assert len(thresholds_of(program).keys() - {BLOCK_BYTES, BLOCK_THREADS}) == 3
    assert "4 versions (3 questions, no more are asked" in explain_versions(program)
    for values in version_settings(program):
        (found,) = interpret(program, LOCVOLCALIB, values)
        np.testing.assert_allclose(found, reference(*LOCVOLCALIB), rtol=1e-12)


def test_a_machine_says_what_fits() -> None:
    program = versions(sweep.trace())
    values = machine_thresholds(program, named_machine("h100"))
    assert values[BLOCK_THREADS] == 1025
    assert values[BLOCK_BYTES] == 232448 + 1
    assert values["block_0"] == 132
    assert values["outer_0"] == 132 * 2048
    processor = machine_thresholds(program, named_machine("cpu-avx512"))
    assert processor[BLOCK_THREADS] == math.inf
    assert (processor["outer_0"], processor["block_0"]) == (8, 8), "lanes also take what is sequential"
    unknown = Machine("opencl", "unknown", cores=4, max_threads_per_block=256, shared_bytes_per_block=0)
    assert machine_thresholds(program, unknown)["outer_0"] == DEFAULT_THRESHOLD
    assert machine_thresholds(program, unknown)[BLOCK_BYTES] == math.inf


def fix_thresholds(program: Program, values: Mapping[str, float]) -> Program:
    """The program with these thresholds' values written into it; versions that can no longer be picked are gone."""
    names = FreshNames(program)

    def fixed(body: Body) -> Body:
        statements: list[Statement] = []
        for statement in body.statements:
            expression = replace_bodies(statement.expression, fixed)
            if isinstance(expression, Threshold) and expression.name in values:
                points, value = expression.parallelism, values[expression.name]
                if points.constant is None and 0 < value < math.inf:
                    number = Variable(names("parallelism"), Type(I64))
                    statements.append(Statement((number,), SizeValue(points)))
                    expression = Apply("ge", (number, index_literal(math.ceil(value))))
                else:
                    known = value <= 0 if points.constant is None else points.constant >= value
                    expression = Alias(Literal(known, BOOL))
            statements.append(Statement(statement.targets, expression))
        return Body(tuple(statements), body.results)

    return simplify(Program(program.name, program.parameters, fixed(program.body)))


@each_case
def test_thresholds_can_be_fixed(name: str, source: Program, arguments: Sequence[Any], count: int) -> None:
    program = versions(source)
    for thresholds in version_settings(program):
        fixed = fix_thresholds(program, {**dict.fromkeys(thresholds_of(program), math.inf), **thresholds})
        assert not thresholds_of(fixed)
        assert len(version_settings(fixed)) == 0
        for want, got in zip(interpret(source, arguments), interpret(fixed, arguments), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_versions_that_do_not_fit_a_machine_are_removed() -> None:
    source = verified(MATMUL.replace("[k]", "[2048]").replace("redomap_comm k", "redomap_comm 2048"))
    program = versions(source)
    fixed = fix_thresholds(program, {BLOCK_THREADS: 1025})
    assert set(thresholds_of(program)) == {"outer_0", "block_0", BLOCK_THREADS}
    assert set(thresholds_of(fixed)) == {"outer_0"}
    assert len(version_settings(fixed)) == 2


def test_what_is_compared_is_known() -> None:
    program = versions(sweep.trace())
    points = size("o") * "y"
    assert thresholds_of(program) == {
        "outer_0": points, "block_0": points, BLOCK_THREADS: size("x"), BLOCK_BYTES: 16 * size("x"),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["matmul", "sweep", pytest.param("locvolcalib", marks=pytest.mark.slow)])
def test_every_version_runs_on_the_processor(name: str) -> None:
    source, arguments = next((one[1], one[2]) for one in CASES if one[0] == name)
    program = versions(source)
    for thresholds in version_settings(program):
        fixed = fix_thresholds(program, {**dict.fromkeys(thresholds_of(program), math.inf), **thresholds})
        check(fixed, arguments)
