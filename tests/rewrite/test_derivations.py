"""Derivations: printing, replaying, checking, and the reasons for what was not done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rewrite_programs import program

from tilewright.ir import interpreter
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Apply, Body, Program
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.passes.core.fuse import fuse
from tilewright.passes.pipelines import run_pipeline
from tilewright.rewrite.derivation import Recording, agree
from tilewright.rewrite.rule import Declined, Place, RewriteError, no_match, rule
from tilewright.rewrite.strategy import apply, everywhere, run_strategy

NORMALISE = program(
    "a: [n]f32",
    """\
    let (x: [n]f32) = map n (\\(p: f32) ->
      let (q: f32) = exp(p)
      in (q)) a
    let (s: f32) = reduce n (\\(t: f32, u: f32) ->
      let (v: f32) = t + u
      in (v)) (0.0f32) x
    let (scale: f32) = 2.0f32 * 0.5f32
    let (y: [n]f32) = map n (\\(e: f32) ->
      let (f: f32) = e / s
      let (g: f32) = f * scale
      in (g)) x
    let (z: [n]f32) = map n (\\(h: f32) ->
      let (i: f32) = neg(h)
      in (i)) y
    in (z)""",
)
ARGUMENTS = [[np.array(values, np.float32)] for values in ([], [0.5], [1.0, -2.0, 0.25])]


@rule("test", Apply)
def wrong_negation(at: Place) -> Body | Declined:
    """neg x  =>  abs x"""
    operation = at.expect(Apply)
    return at.become(Apply("abs", operation.operands)) if operation.operator == "neg" else no_match("not neg")


@rule("test", Apply)
def ill_typed_negation(at: Place) -> Body | Declined:
    """neg x  =>  x < x"""
    operation = at.expect(Apply)
    return at.become(Apply("lt", operation.operands * 2)) if operation.operator == "neg" else no_match("not neg")


def _derive(source: Program) -> tuple[Recording, Program]:
    recording = Recording(source)
    return recording, run_pipeline(source, derivation=recording, verify=True)


def test_the_derivation_leads_from_the_source_to_the_result() -> None:
    recording, result = _derive(NORMALISE)
    derivation = recording.derivation
    assert derivation.source is NORMALISE
    assert derivation.program is result
    for before, after in zip(derivation.steps, derivation.steps[1:], strict=False):
        assert after.before is before.after
    derivation.check(ARGUMENTS)


def test_replay_gives_the_identical_program() -> None:
    recording, result = _derive(NORMALISE)
    again = parse_program(print_program(NORMALISE))
    assert recording.derivation.replay(again) == result


def test_replay_on_another_program_says_what_does_not_fit() -> None:
    recording, _ = _derive(NORMALISE)
    with pytest.raises(RewriteError, match=r"program f has no statement at 2: 1 there"):
        recording.derivation.replay(program("a: f32", "let (x: f32) = a + a\nin (x)"))


def test_check_finds_a_wrong_step() -> None:
    recording = Recording(NORMALISE)
    state = run_strategy(NORMALISE, everywhere(apply(wrong_negation)))
    recording.add(state.steps, state.refusals)
    recording.derivation.check(ARGUMENTS[:1])
    with pytest.raises(RewriteError, match=r"step 1 changes the result, result 0 is .*\n.*wrong_negation at 4.0/0"):
        recording.derivation.check(ARGUMENTS)


def test_check_finds_an_ill_formed_step() -> None:
    recording = Recording(NORMALISE)
    state = run_strategy(NORMALISE, everywhere(apply(ill_typed_negation)))
    recording.add(state.steps, state.refusals)
    with pytest.raises(RewriteError, match=r"step 1 leads to what is no program: .*\n.*f32.*bool.*\nill_typed_neg"):
        recording.derivation.check([])


def test_check_tells_the_step_after_which_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    recording, _ = _derive(NORMALISE)

    def refuse(one: Program, arguments: object) -> Any:
        if one is not NORMALISE:
            raise IndexError("8 of 7")
        return interpret(one, ARGUMENTS[0])

    monkeypatch.setattr(interpreter, "interpret", refuse)
    with pytest.raises(RewriteError, match=r"after step 1, IndexError: 8 of 7\n"):
        recording.derivation.check(ARGUMENTS[:1])


def test_a_recording_follows_one_program() -> None:
    recording, _ = _derive(NORMALISE)
    with pytest.raises(RewriteError, match="begin with another program"):
        run_pipeline(NORMALISE, derivation=recording)


def test_refusals_reach_the_user() -> None:
    recording = Recording(NORMALISE)
    fuse(NORMALISE, recording)
    reasons = [str(one) for one in recording.derivation.refusals]
    assert reasons == ["reduce_map at s: x is also used by z", "map_map at z: x is also used by s"]


def test_printed_derivation(golden: Callable[[str, str], None]) -> None:
    recording, _ = _derive(NORMALISE)
    golden("rewrite/normalise.txt", recording.derivation.print())


def test_agreement() -> None:
    one = np.array([1.0, np.nan, np.inf], np.float32)
    assert agree([one], [one * np.float32(1.00001)]) is None
    assert agree([one], [one[:2]]) == "result 0 is (2,) float32 instead of (3,) float32"
    assert agree([one], [one.astype(np.float64)]) == "result 0 is (3,) float64 instead of (3,) float32"
    assert agree([one], []) == "0 results instead of 1"
    assert "instead of" in str(agree([one], [-one]))
    assert agree([np.int32(1)], [np.int32(2)]) == "result 0 is 2 instead of 1"
