"""Each flattening rule: before and after (golden file), the same meaning, and where it declines and why."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from flatten_rule_cases import DECLINES, FIRES
from rewrite_programs import program

from tilewright.ir.arguments import Argument
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.ir.verifier import verify
from tilewright.rewrite.derivation import Derivation, agree
from tilewright.rewrite.rule import Declined, Rule, Site, resolve, rule_named, rules_of
from tilewright.rewrite.strategy import State, apply, run_strategy, top_down

IDS = [f"{rule}-{number}" for number, (rule, _, _) in enumerate(FIRES)]
THRESHOLDS = ({"outer_0": 0}, {"outer_0": np.inf, "block_0": np.inf}, {"block_0": 0, "threads_per_block": np.inf})


def arguments_of(source: Program, n: int = 3) -> list[Argument]:
    """Small arguments with sizes n, 4, 5; indices run from -1 to one beyond the range."""
    random = np.random.default_rng(n)
    sizes = {"n": n, "m": 4, "k": 5}
    found: list[Argument] = []
    for one in source.parameters:
        shape = [extent.evaluate(sizes) for extent in one.type.shape]
        if one.type.element.name == "i64":
            if one.type.rank == 2:  # indices of a scatter, which must differ
                found.append(np.stack([random.permutation(7)[: shape[1]] - 1 for _ in range(n)] or [np.empty((0, 4))])
                             .astype(np.int64).reshape(shape))  # fmt: skip
            else:
                found.append(random.integers(0, 6, shape) if shape else 2)
        elif one.type.element.name == "bool":
            found.append(random.random(shape) < 0.5 if shape else True)
        else:
            found.append(random.normal(size=shape).astype(np.float32) if shape else 0.5)
    return found


def once(rule: Rule, source: Program) -> State:
    """The state after the first place where a rule fires."""
    state = run_strategy(source, top_down(apply(rule)))
    assert state.steps, f"{rule.name} does not fire"
    return state


@pytest.mark.parametrize(("rule", "parameters", "body"), FIRES, ids=IDS)
def test_rule_keeps_the_meaning(rule: str, parameters: str, body: str) -> None:
    source = program(parameters, body)
    state = once(rule_named(rule), source)
    verify(state.program)
    assert parse_program(print_program(state.program)) == state.program
    derivation = Derivation(source, state.steps)
    assert derivation.replay(source) == state.program
    for n in (0, 1, 3):
        arguments = arguments_of(source, n)
        derivation.check([arguments])
        expected = interpret(source, arguments)
        for thresholds in THRESHOLDS:
            assert agree(expected, interpret(state.program, arguments, thresholds)) is None


def test_what_the_rules_do(golden: Callable[[str, str], None]) -> None:
    texts = [str(once(rule_named(rule), program(parameters, body)).steps[0]) for rule, parameters, body in FIRES]
    golden("rewrite/flatten_rules.txt", "\n\n".join(texts))


def test_every_rule_has_a_case() -> None:
    rules = {
        one.name
        for family in ("flattening", "incremental flattening", "segment fusion", "numbering")
        for one in rules_of(family)
    }
    assert {rule for rule, _, _ in FIRES} == rules


@pytest.mark.parametrize(("rule", "parameters", "body", "reason"), DECLINES)
def test_rule_declines(rule: str, parameters: str, body: str, reason: str) -> None:
    index = 1 if rule == "segmap_into_operation" else 0
    outcome = rule_named(rule)(resolve(program(parameters, body), Site((), index)))
    assert isinstance(outcome, Declined)
    assert reason in outcome.reason


@pytest.mark.parametrize("rule", ["version_outer", "version_block"])
def test_no_versions_where_nobody_can_ask(rule: str) -> None:
    source = program(
        "xss: [n][m]f32",
        """\
        let (rows: [n][m]f32) = stream_seq n 2 (\\(c: i64, part: [c][m]f32) ->
          let (made: [c][m]f32) = map c (\\(row: [m]f32) ->
            let (twice: [m]f32) = map m (\\(x: f32) ->
              let (y: f32) = x * 2.0f32
              in (y)) row
            let (more: [m]f32) = scan m (\\(a: f32, b: f32) ->
              let (s: f32) = a + b
              in (s)) (0.0f32) twice
            in (more)) part
          in (made)) () xss
        in (rows)""",
    )
    state = run_strategy(source, top_down(apply(rule_named(rule))))
    assert not state.steps
