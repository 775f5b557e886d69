"""Further fusion: before and after, where it declines, random programs; it never duplicates work."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_programs.generator import random_arguments, random_program
from rewrite_programs import body_text, everywhere_once, operations, program

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import If, Program
from tilewright.ir.verifier import verify
from tilewright.passes.core.fuse import fuse, fuse_further
from tilewright.passes.core.simplify import simplify
from tilewright.rewrite.derivation import Recording, agree
from tilewright.rewrite.rule import Declined, Site, resolve, rule_named, rules_of

EXP = "map n (\\(p: f32) ->\n  let (q: f32) = exp(p)\n  in (q)) a"
ADD = "(\\(s: f32, t: f32) ->\n  let (u: f32) = s + t\n  in (u)) (0.0f32)"
MAX = "(\\(e: f32, f: f32) ->\n  let (g: f32) = max(e, f)\n  in (g)) (0.0f32)"
DOUBLE = "map n (\\(v: f32) ->\n  let (w: f32) = v + v\n  in (w)) x"

# rule, parameters, before, after
FIRES = [
    (
        "map_kept",
        "a: [n]f32",
        f"let (x: [n]f32) = {EXP}\nlet (y: f32) = reduce n {ADD} x\nin (y, x)",
        f"""\
let (y: f32, x: [n]f32) = redomap n {ADD} (\\(p: f32) ->
  let (q: f32) = exp(p)
  in (q, q)) a
in (y, x)""",
    ),
    (
        "map_kept",
        "a: [n]f32",
        f"let (x: [n]f32) = {EXP}\nlet (y: [n]f32) = {DOUBLE}\nlet (z: [n]f32) = scan n {ADD} x\nin (y, z)",
        f"""\
let (z: [n]f32, y: [n]f32) = scanomap n {ADD} (\\(p: f32) ->
  let (q: f32) = exp(p)
  let (w: f32) = q + q
  in (q, w)) a
in (y, z)""",
    ),
    (
        "scan_beside_scan",
        "a: [n]f32",
        f"let (x: [n]f32) = scan n {ADD} a\nlet (y: [n]f32) = scan n {MAX} a\nin (x, y)",
        """\
let (x: [n]f32, y: [n]f32) = scanomap n (\\(s: f32, e: f32, t: f32, f: f32) ->
  let (u: f32) = s + t
  let (g: f32) = max(e, f)
  in (u, g)) (0.0f32, 0.0f32) (\\(a_1: f32) -> (a_1, a_1)) a
in (x, y)""",
    ),
    (
        "map_beside_reduce",
        "a: [n]f32",
        f"let (x: [n]f32) = {EXP}\nlet (y: f32) = reduce n {ADD} a\nin (x, y)",
        f"""\
let (y: f32, x: [n]f32) = redomap n {ADD} (\\(a_1: f32) ->
  let (q: f32) = exp(a_1)
  in (a_1, q)) a
in (x, y)""",
    ),
    (
        "map_beside_reduce",
        "a: [n]f32",
        f"let (y: f32) = reduce n {ADD} a\nlet (x: [n]f32) = {EXP}\nin (x, y)",
        f"""\
let (y: f32, x: [n]f32) = redomap n {ADD} (\\(a_1: f32) ->
  let (q: f32) = exp(a_1)
  in (a_1, q)) a
in (x, y)""",
    ),
    (
        "sink_into_branch",
        "a: [n]f32, c: bool",
        f"""\
let (x: [n]f32) = {EXP}
let (y: f32) = if c then
  let (z: f32) = reduce n {textwrap.indent(ADD, "  ").strip()} x
  in (z)
else (1.0f32)
in (y)""",
        f"""\
let (y: f32) = if c then
  let (x: [n]f32) = {textwrap.indent(EXP, "  ").strip()}
  let (z: f32) = reduce n {textwrap.indent(ADD, "  ").strip()} x
  in (z)
else (1.0f32)
in (y)""",
    ),
    (
        "consumer_into_branches",
        "a: [n]f32, b: [n]f32, c: bool",
        f"""\
let (x: [n]f32, k: f32) = if c then
  let (y: [n]f32) = {textwrap.indent(EXP, "  ").strip()}
  in (y, 1.0f32)
else (b, 2.0f32)
let (z: [n]f32) = {DOUBLE}
in (z, k)""",
        f"""\
let (k: f32, z: [n]f32) = if c then
  let (y: [n]f32) = {textwrap.indent(EXP, "  ").strip()}
  let (z_1: [n]f32) = map n (\\(v_1: f32) ->
    let (w_1: f32) = v_1 + v_1
    in (w_1)) y
  in (1.0f32, z_1)
else
  let (z_2: [n]f32) = map n (\\(v_2: f32) ->
    let (w_2: f32) = v_2 + v_2
    in (w_2)) b
  in (2.0f32, z_2)
in (z, k)""",
    ),
]
NESTED = f"""\
let (x: [n]f32) = map n (\\(p: [n]f32) ->
  let (q: f32) = reduce n {ADD} p
  in (q)) a
let (y: f32) = reduce n {MAX} x
in (y, x)"""

# rule, parameters, program, statement, words of the reason
DECLINES = [
    ("map_kept", "a: [n][n]f32", NESTED, 1, "no input is computed by a map of scalars"),
    (
        "map_kept",
        "a: [n]f32",
        f"let (x: [n]f32) = {EXP}\nlet (k: [n]f32) = x[n - 1 :+ n by -1]\nlet (y: f32) = reduce n {ADD} x\nin (y, k)",
        2,
        "x is needed before",
    ),
    (
        "map_kept",
        "a: [n]f32, i: i64",
        f"let (x: [n]f32) = {EXP}\n"
        "let (y: [n]f32) = map n (\\(v: f32) ->\n  let (k: f32) = x[i]\n  let (w: f32) = v + k\n  in (w)) x\nin (y, x)",
        1,
        "x is used as a whole inside",
    ),
    (
        "scan_beside_scan",
        "a: [n]f32",
        f"let (x: [n]f32) = scan n {ADD} a\nlet (y: [n]f32, z: [n]f32) = scanomap n {MAX} "
        "(\\(v: f32, w: f32) -> (v, w)) a x\nin (x, y, z)",
        1,
        "it needs x",
    ),
    (
        "map_beside_reduce",
        "a: [n]f32, b: [n]f32",
        f"let (x: [n]f32) = {EXP}\nlet (y: f32) = reduce n {ADD} b\nin (x, y)",
        1,
        "reads the same rows",
    ),
    (
        "sink_into_branch",
        "a: [n]f32, c: bool",
        f"let (x: [n]f32) = {EXP}\nlet (y: [n]f32) = if c then (x) else\n  let (z: [n]f32) = copy x\n  in (z)\nin (y)",
        0,
        "both branches use it",
    ),
    (
        "consumer_into_branches",
        "a: [n]f32, b: [n]f32, c: bool",
        f"let (x: [n]f32) = if c then\n  let (y: [n]f32) = {EXP}\n  in (y)\nelse (b)\n"
        f"let (z: [n]f32) = {DOUBLE}\nin (z, x)",
        1,
        "x is also used elsewhere",
    ),
    (
        "consumer_into_branches",
        "a: [n]f32, b: [n]f32, c: bool",
        f"let (x: [n]f32) = if c then (a) else (b)\nlet (z: [n]f32) = {DOUBLE}\nin (z)",
        1,
        "no branch computes it by a map",
    ),
]  # fmt: skip


def arguments_of(source: Program, condition: bool) -> list[object]:
    random = np.random.default_rng(1)
    return [
        random.normal(size=[3] * one.type.rank).astype(np.float32) if one.type.rank else condition
        for one in source.parameters
    ]


@pytest.mark.parametrize(("rule", "parameters", "before", "after"), FIRES, ids=[one[0] for one in FIRES])
def test_rule_fires(rule: str, parameters: str, before: str, after: str) -> None:
    source = program(parameters, before)
    state = everywhere_once(rule_named(rule), source)
    assert body_text(state.program) == textwrap.dedent(after).strip()
    for condition in (False, True):
        arguments = arguments_of(source, condition)
        assert agree(interpret(source, arguments), interpret(state.program, arguments)) is None
        assert operations(state.program, arguments) <= operations(source, arguments)


@pytest.mark.parametrize(("rule", "parameters", "text", "index", "reason"), DECLINES, ids=[one[0] for one in DECLINES])
def test_rule_declines(rule: str, parameters: str, text: str, index: int, reason: str) -> None:
    outcome = rule_named(rule)(resolve(program(parameters, text), Site((), index)))
    assert isinstance(outcome, Declined)
    assert reason in outcome.reason


def test_every_rule_has_a_case() -> None:
    rules = {one.name for one in rules_of("further fusion")}
    assert {one[0] for one in FIRES} == rules == {one[0] for one in DECLINES}


@given(seed=st.integers(0, 2**32 - 1))
def test_every_rule_keeps_the_meaning_and_the_work(seed: int) -> None:
    source = random_program(seed, depth=4)
    arguments = random_arguments(source, seed)
    expected, work = interpret(source, arguments), operations(source, arguments)
    for rule in rules_of("further fusion"):
        state = everywhere_once(rule, source)
        if state.steps:
            assert agree(expected, interpret(state.program, arguments)) is None, rule.name
            assert operations(state.program, arguments) <= work, rule.name


@given(seed=st.integers(0, 2**32 - 1))
def test_the_pass_keeps_the_meaning(seed: int) -> None:
    source = simplify(fuse(simplify(random_program(seed, depth=4))))
    recording = Recording(source)
    fused = fuse_further(source, recording)
    verify(fused)
    recording.derivation.check([random_arguments(source, seed)])


@pytest.mark.parametrize(("rule", "seed"), [("map_beside_reduce", 20), ("map_kept", 220), ("scan_beside_scan", 127)])
def test_rules_fire_in_random_programs(rule: str, seed: int) -> None:
    recording = Recording(simplify(fuse(simplify(random_program(seed, depth=4)))))
    fuse_further(recording.derivation.source, recording)
    assert rule in {step.rule for step in recording.derivation.steps}
    recording.derivation.check([random_arguments(recording.derivation.source, seed)])


CONSUMERS = {
    "map": "let (z: [n]f32) = " + DOUBLE,
    "reduce": f"let (z: f32) = reduce n {ADD} x",
    "scan": f"let (z: [n]f32) = scan n {ADD} x",
}


@pytest.mark.parametrize("condition", [False, True])
@pytest.mark.parametrize("mapped", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_fusion_goes_into_branches(consumer: str, mapped: tuple[bool, bool], condition: bool) -> None:
    """Whatever folds or maps what an if gives is fused with the maps in its branches."""
    maps = [EXP, EXP.replace("(p)", "(h)").replace("p: f32", "h: f32").replace("q", "k")]
    branches = [f"let (y{k}: [n]f32) = {maps[k]}\n  in (y{k})" if one else "(b)" for k, one in enumerate(mapped)]
    source = program(
        "a: [n]f32, b: [n]f32, c: bool",
        f"let (x: [n]f32) = if c then\n  {branches[0]}\nelse\n  {branches[1]}\n{CONSUMERS[consumer]}\nin (z)",
    )
    fused = fuse_further(source)
    verify(fused)
    (branch,) = [one.expression for one in fused.body.statements]
    assert isinstance(branch, If)
    assert [len(body.statements) for body in (branch.then, branch.otherwise)] == [1, 1]
    arguments = arguments_of(source, condition)
    assert agree(interpret(source, arguments), interpret(fused, arguments)) is None
    assert operations(fused, arguments) == operations(source, arguments)


@pytest.mark.parametrize("condition", [False, True])
@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("first", [False, True])
def test_maps_sink_into_the_branch_that_needs_them(consumer: str, condition: bool, first: bool) -> None:
    inside = f"{CONSUMERS[consumer]}\n  in (z)"
    other = "(0.0f32)" if consumer == "reduce" else "(b)"
    then, otherwise = (inside, other) if first else (other, inside)
    type_ = "f32" if consumer == "reduce" else "[n]f32"
    source = program(
        "a: [n]f32, b: [n]f32, c: bool",
        f"let (x: [n]f32) = {EXP}\nlet (r: {type_}) = if c then\n  {then}\nelse\n  {otherwise}\nin (r)",
    )
    fused = fuse_further(source)
    verify(fused)
    (branch,) = [one.expression for one in fused.body.statements]
    assert isinstance(branch, If)
    assert [len(body.statements) for body in (branch.then, branch.otherwise)] == [int(first), int(not first)]
    arguments = arguments_of(source, condition)
    assert agree(interpret(source, arguments), interpret(fused, arguments)) is None
    assert operations(fused, arguments) == (operations(source, arguments) if condition == first else 0)
