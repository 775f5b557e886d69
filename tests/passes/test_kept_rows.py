"""Folds of rows that are kept in memory, in the versions of a nest."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["b", "n"]
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.nodes import Map, Redomap, Reduce
from tilewright.machine.named import named_machine
from tilewright.passes.compile import compile_program
from tilewright.passes.segments.streams import nest_of_streams
from tilewright.runtime.devices import device_for


@tw.program
def softmax(xs: tw.f32["b", "n"]) -> Any:
    def row(x: Any) -> Any:
        top = tw.reduce("max", -math.inf, x)
        weights = tw.map(lambda one: tw.exp(one - top), x)
        total = tw.reduce("add", 0, weights)
        return tw.map(lambda one: one / total, weights)

    return tw.map(row, xs)


@pytest.mark.parametrize("machine", ["cpu-avx512", "h100"])
def test_rows_are_folded_as_they_are_kept(machine: str) -> None:
    versions = compile_program(softmax.trace(), device_for("cpu"), flattening="incremental").program
    (statement,) = next(
        one.expression.then.statements for one in versions.body.statements if hasattr(one.expression, "then")
    )
    (nest,) = nest_of_streams(statement, statement.expression, named_machine(machine))
    assert [type(one.expression) for one in nest.expression.function.body.statements] == [Reduce, Redomap, Map]


def test_the_first_version_is_the_nest_as_written() -> None:
    xs = np.random.default_rng(0).normal(size=(40, 7)).astype("f4")
    written = compile_program(softmax.trace(), device_for("cpu"))
    first = compile_program(softmax.trace(), device_for("cpu"), flattening="incremental").with_thresholds(
        {"outer_0": 0}
    )
    np.testing.assert_array_equal(first(xs), written(xs))
    texts = [one.explain().partition("not otherwise")[0] for one in (written, first)]
    assert [text.count("changes with") for text in texts] == [1, 1]
    assert [text.count("\n      ") for text in texts] == [4, 4], "as many reads in a point"
