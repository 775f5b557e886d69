"""Versions inside a loop with a constant number of rounds: the question stays in the loop, where versions are known."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["b", "n"]
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.nodes import Loop, Threshold
from tilewright.ir.traversal import all_statements, bodies_of
from tilewright.machine.named import named_machine
from tilewright.passes.compile import compile_program
from tilewright.passes.flattening.flatten_tree import explain_versions, machine_thresholds, version_settings
from tilewright.runtime.devices import device_for
from tilewright.tune.search import questions


@tw.program
def damped(xs: tw.f64["b", "n"], ws: tw.f64["n"]) -> Any:
    """Four rounds for every row, whose dear factors all rows share."""

    def one(x: Any) -> Any:
        def step(number: Any, now: Any) -> Any:
            factors = tw.map(lambda w: tw.exp(-w * w * tw.cast(number, "f64")), ws)
            total = tw.reduce("add", 0.0, now)
            return tw.scan("add", 0.0, tw.map(lambda x, f: x * f / (1.0 + total * total), now, factors))

        return tw.loop(4, x, step)

    return tw.map(one, xs)


def expected(xs: Any, ws: Any) -> Any:
    for number in range(4):
        factors = np.exp(-ws * ws * number) / (1 + xs.sum(axis=1, keepdims=True) ** 2)
        xs = np.cumsum(xs * factors, axis=1)
    return xs


EXECUTABLE = compile_program(damped.trace(), device_for("cpu"), flattening="incremental")


def test_the_question_stays_in_the_loop() -> None:
    loops = [one.expression for one in all_statements(EXECUTABLE.program.body) if isinstance(one.expression, Loop)]
    inside = [
        statement.expression.name
        for loop in loops
        for body in bodies_of(loop)
        for statement in all_statements(body)
        if isinstance(statement.expression, Threshold)
    ]
    assert "outer_1" in inside
    assert "b >= outer_1" in explain_versions(EXECUTABLE.program)
    assert "outer_1" in {one.name for one in questions(EXECUTABLE.program)}


@pytest.mark.parametrize("machine", ["cpu-avx512", "h100"])
def test_a_machine_takes_the_version_that_shares_the_work_of_a_round(machine: str) -> None:
    values = machine_thresholds(EXECUTABLE.program, named_machine(machine))
    assert values["outer_0"] == math.inf
    assert 0 < values["outer_1"] < math.inf


def test_every_version_is_right() -> None:
    random = np.random.default_rng(0)
    xs, ws = random.normal(size=(5, 7)), random.normal(size=7)
    for settings in version_settings(EXECUTABLE.program):
        np.testing.assert_allclose(EXECUTABLE.with_thresholds(settings)(xs, ws), expected(xs, ws), rtol=1e-12)
