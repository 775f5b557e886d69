"""Simplification, fusion and the standard pipeline: what comes out, and that it means the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from random_programs.generator import random_arguments, random_program

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Body, Map, Program, Redomap
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.ir.traversal import all_statements
from tilewright.ir.verifier import IRError
from tilewright.passes.core.fuse import fuse
from tilewright.passes.core.simplify import simplify
from tilewright.passes.pipelines import Pass, PassError, run_pipeline, standard_pipeline
from tilewright.rewrite.derivation import Recording, agree

INCREMENT_AND_SUM = """\
def sumrows (a: [n][m]i32) =
  let (b: [n][m]i32) = map n (\\(row: [m]i32) ->
    let (new_row: [m]i32) = map m (\\(e: i32) ->
      let (f: i32) = e + 2i32
      in (f)) row
    in (new_row)) a
  let (sums: [n]i32) = map n (\\(row2: [m]i32) ->
    let (sum: i32) = reduce_comm m (\\(s: i32, t: i32) ->
      let (u: i32) = s + t
      in (u)) (0i32) row2
    in (sum)) b
  in (sums)
"""

MATMUL_WITH_A_ROW_TRANSPOSED = """\
def matmul (xss: [n][p]f32, yss: [p][m]f32) =
  let (zss: [n][m]f32) = map n (\\(xs: [p]f32) ->
    let (columns: [m][p]f32) = rearrange (1, 0) yss
    let (zs: [m]f32) = map m (\\(ys: [p]f32) ->
      let (products: [p]f32) = map p (\\(x: f32, y: f32) ->
        let (xy: f32) = x * y
        in (xy)) xs ys
      let (z: f32) = reduce_comm p (\\(s: f32, t: f32) ->
        let (u: f32) = s + t
        in (u)) (0.0f32) products
      in (z)) columns
    in (zs)) xss
  let (relu: [n][m]f32) = map n (\\(zs2: [m]f32) ->
    let (relu_row: [m]f32) = map m (\\(z2: f32) ->
      let (positive: f32) = max(z2, 0.0f32)
      in (positive)) zs2
    in (relu_row)) zss
  in (relu)
"""

MOMENTS = """\
def moments (a: [n]f64) =
  let (sum: f64) = reduce_comm n (\\(s: f64, t: f64) ->
    let (u: f64) = s + t
    in (u)) (0.0f64) a
  let (squares: [n]f64) = map n (\\(e: f64) ->
    let (f: f64) = e * e
    in (f)) a
  let (sum2: f64) = reduce_comm n (\\(s2: f64, t2: f64) ->
    let (u2: f64) = s2 + t2
    in (u2)) (0.0f64) squares
  in (sum, sum2)
"""


@pytest.mark.parametrize("text", [INCREMENT_AND_SUM, MATMUL_WITH_A_ROW_TRANSPOSED, MOMENTS])
def test_standard_pipeline_text(text: str, golden: Callable[[str, str], None]) -> None:
    source = parse_program(text)
    result = run_pipeline(source, verify=True)
    golden(f"passes/{source.name}.txt", print_program(result))


def test_a_fused_matmul_is_one_perfect_nest() -> None:
    result = run_pipeline(parse_program(MATMUL_WITH_A_ROW_TRANSPOSED), verify=True)
    constructs = [type(one.expression) for one in all_statements(result.body)]
    assert [one for one in constructs if one in (Map, Redomap)] == [Map, Map, Redomap]


@pytest.mark.parametrize("seed", range(100, 150))
def test_pipelines_keep_the_meaning(seed: int) -> None:
    source = random_program(seed)
    recording = Recording(source)
    result = run_pipeline(source, derivation=recording, verify=True)
    for arguments in (random_arguments(source, seed), random_arguments(source, seed + 1)):
        expected = interpret(source, arguments)
        assert agree(expected, interpret(result, arguments)) is None
        assert agree(expected, interpret(fuse(source), arguments)) is None
    assert recording.derivation.replay(source) == result


@pytest.mark.parametrize("seed", (3, 11, 19, 27))
def test_derivations_hold_step_by_step(seed: int) -> None:
    source = random_program(seed, depth=2, statements=4)
    recording = Recording(source)
    run_pipeline(source, derivation=recording)
    recording.derivation.check([random_arguments(source, seed)])


def test_passes_are_idempotent() -> None:
    for seed in range(20):
        once = simplify(random_program(seed))
        assert simplify(once) is once
        fused = fuse(once)
        assert fuse(fused) is fused


def test_a_broken_pass_is_named_with_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    source = parse_program(MOMENTS)

    def lose_the_first_statement(program: Program, derivation: Recording | None) -> Program:
        return Program(program.name, program.parameters, Body(program.body.statements[1:], program.body.results))

    passes = (standard_pipeline[0], Pass("lose", "to fail", lose_the_first_statement))
    with pytest.raises(PassError, match=r"pass 2, lose, broke the program: (.|\n)*sum is(.|\n)*def moments"):
        run_pipeline(source, passes, verify=True)
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")
    with pytest.raises(PassError, match="pass 2, lose"):
        run_pipeline(source, passes)
    monkeypatch.delenv("TILEWRIGHT_VERIFY")
    broken = run_pipeline(source, passes)
    with pytest.raises(IRError, match="sum"):
        run_pipeline(broken, verify=True)


def test_every_pass_says_why_it_is_there() -> None:
    names = ["simplify", "fuse", "read concatenations", "nest maps", "simplify", "free contractions"]
    assert [one.name for one in standard_pipeline] == names
    assert all(one.why for one in standard_pipeline)
