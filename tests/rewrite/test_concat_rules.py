"""The rule for concatenations: before and after, where it declines and why, and that the meaning stays."""

from __future__ import annotations

import textwrap

import pytest
from random_programs.generator import random_arguments
from rewrite_programs import body_text, everywhere_once, program

from tilewright.ir.interpreter import interpret
from tilewright.passes.core.read_concatenations import read_concatenations
from tilewright.rewrite.derivation import Recording, agree
from tilewright.rewrite.rule import Declined, Site, resolve, rule_named

TWICE = "(\\(p: f32) ->\n  let (q: f32) = p + p\n  in (q))"

# parameters, before, after
FIRES = [
    (
        "a: [n]f32, b: [m]f32",
        f"let (x: [n + m]f32) = concat 0 a b\nlet (y: [n + m]f32) = map (n + m) {TWICE} x\nin (y)",
        """\
        let (x: [m + n]f32) = concat 0 a b
        let (rows: [m + n]i64) = iota (m + n) i64
        let (y: [m + n]f32) = map (m + n) (\\(i: i64) ->
          let (at: i64) = size(n)
          let (below: bool) = i < at
          let (part: f32) = if below then
            let (e: f32) = a[i]
            in (e)
          else
            let (at_1: i64) = size(i - n)
            let (e_1: f32) = b[at_1]
            in (e_1)
          let (p: f32) = part
          let (q: f32) = p + p
          in (q)) rows
        in (y)""",
    ),
    (
        "a: [n][m]f32, c: f32",
        """\
        let (r: [m]f32) = replicate m c
        let (z: [1][m]f32) = replicate 1 r
        let (s: [n][m]f32) = a[n - 1 :+ n by -1, 0 :+ m]
        let (x: [n + 1][m]f32) = concat 0 s z
        let (y: [m][n + 1]f32) = rearrange (1, 0) x
        let (t: [m][n + 1]f32) = map m (\\(row: [n + 1]f32) ->
          let (o: [n + 1]f32) = map (n + 1) (\\(p: f32) ->
            let (q: f32) = exp(p)
            in (q)) row
          in (o)) y
        in (t)""",
        """\
        let (r: [m]f32) = replicate m c
        let (z: [1][m]f32) = replicate 1 r
        let (s: [n][m]f32) = a[n - 1 :+ n by -1, 0 :+ m]
        let (x: [n + 1][m]f32) = concat 0 s z
        let (y: [m][n + 1]f32) = rearrange (1, 0) x
        let (rows: [m]i64) = iota m i64
        let (t: [m][n + 1]f32) = map m (\\(i: i64) ->
          let (rows_1: [n + 1]i64) = iota (n + 1) i64
          let (o: [n + 1]f32) = map (n + 1) (\\(i_1: i64) ->
            let (at: i64) = size(n)
            let (below: bool) = i_1 < at
            let (part: f32) = if below then
              let (at_1: i64) = size(-i_1 + n - 1)
              let (e: f32) = a[at_1, i]
              in (e)
            else (c)
            let (p: f32) = part
            let (q: f32) = exp(p)
            in (q)) rows_1
          in (o)) rows
        in (t)""",
    ),
]

# parameters, program, statement, reason
DECLINES = [
    ("a: [n]f32", f"let (y: [n]f32) = map n {TWICE} a\nin (y)", 0, "no input is a concatenation"),
    (
        "a: [n]f32",
        f"let (x: [2*n]f32) = concat 0 a a\nlet (y: [2*n]f32) = map (2*n) {TWICE} x\nin (y, x)",
        1,
        "x is joined in memory: x is a result",
    ),
    (
        "a: [n]f32, i: i64",
        f"let (x: [2*n]f32) = concat 0 a a\nlet (e: f32) = x[i]\nlet (y: [2*n]f32) = map (2*n) {TWICE} x\nin (y, e)",
        2,
        "x is joined in memory: x is used by e as a whole",
    ),
    (
        "a: [n][m]f32",
        """\
        let (x: [2*n][m]f32) = concat 0 a a
        let (y: [2*n]f32) = map (2*n) (\\(row: [m]f32) ->
          let (z: f32) = reduce m (\\(s: f32, t: f32) ->
            let (u: f32) = s + t
            in (u)) (0.0f32) row
          in (z)) x
        in (y)""",
        1,
        "x is joined in memory: x is used by y as a whole",
    ),
]


@pytest.mark.parametrize(("parameters", "before", "after"), FIRES)
def test_rule_fires(parameters: str, before: str, after: str) -> None:
    source = program(parameters, before)
    state = everywhere_once(rule_named("map_concat"), source)
    assert body_text(state.program) == textwrap.dedent(after)
    arguments = random_arguments(source, 5)
    assert agree(interpret(source, arguments), interpret(state.program, arguments)) is None


@pytest.mark.parametrize(("parameters", "text", "index", "reason"), DECLINES)
def test_rule_declines(parameters: str, text: str, index: int, reason: str) -> None:
    outcome = rule_named("map_concat")(resolve(program(parameters, text), Site((), index)))
    assert isinstance(outcome, Declined)
    assert outcome.reason == reason


def test_the_pass_records_what_it_does() -> None:
    parameters, before, _ = FIRES[0]
    source = program(parameters, before)
    recording = Recording(source)
    result = read_concatenations(source, recording)
    derivation = recording.derivation
    assert [step.rule for step in derivation.steps] == ["map_concat"]
    assert derivation.replay(source) == result
