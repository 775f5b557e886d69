"""Folds of rows that are kept in memory: inside a point of a nest on a CPU these are a map and a fold."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["b", "n"]
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Map, Program, Redomap, Reduce
from tilewright.ir.parser import parse_program
from tilewright.ir.verifier import verify
from tilewright.machine.named import named_machine
from tilewright.passes.compile import compile_program
from tilewright.passes.core.nest_folds import without_kept_rows
from tilewright.passes.segments.streams import nest_of_streams
from tilewright.runtime.devices import device_for

ADD = "(\\(a: f64, b: f64) -> let (c: f64) = a + b in (c)) (0.0f64)"
FOLDS = {
    "kept": ("s: f64, ys: [n]f64", "(e, e)", "s, ys", True),
    "kept in another place": ("s: f64, zs: [n]f64, ys: [n]f64", "(e, d, e)", "s, ys", True),
    "not kept": ("s: f64, ys: [n]f64", "(d, e)", "s, ys", False),
    "nothing kept": ("s: f64", "(e)", "s, xs", False),
}


def program_of(name: str) -> Program:
    bound, results, given_back, _ = FOLDS[name]
    return parse_program(f"""def f (xs: [n]f64) =
      let ({bound}) = redomap n {ADD} (\\(x: f64) -> let (d: f64) = x * x let (e: f64) = exp(d) in {results}) xs
      in ({given_back})""")


@given(st.sampled_from(sorted(FOLDS)), st.integers(0, 5), st.integers(0, 99))
def test_what_is_taken_apart_means_the_same(name: str, n: int, seed: int) -> None:
    source = program_of(name)
    apart = Program("f", source.parameters, without_kept_rows(source.body))
    verify(apart)
    kinds = [type(one.expression) for one in apart.body.statements]
    assert kinds == ([Map, Reduce] if FOLDS[name][3] else [Redomap])
    arguments = [np.random.default_rng(seed).normal(size=n)]
    for want, got in zip(interpret(source, arguments), interpret(apart, arguments), strict=True):
        np.testing.assert_array_equal(got, want)


@tw.program
def softmax(xs: tw.f32["b", "n"]) -> Any:
    def row(x: Any) -> Any:
        top = tw.reduce("max", -math.inf, x)
        weights = tw.map(lambda one: tw.exp(one - top), x)
        total = tw.reduce("add", 0, weights)
        return tw.map(lambda one: one / total, weights)

    return tw.map(row, xs)


@pytest.mark.parametrize(("machine", "kind"), [("cpu-avx512", Reduce), ("h100", Redomap)])
def test_rows_are_taken_apart_where_threads_are_lanes(machine: str, kind: type) -> None:
    versions = compile_program(softmax.trace(), device_for("cpu"), flattening="incremental").program
    (statement,) = next(
        one.expression.then.statements for one in versions.body.statements if hasattr(one.expression, "then")
    )
    (nest,) = nest_of_streams(statement, statement.expression, named_machine(machine))
    inside = [type(one.expression) for one in nest.expression.function.body.statements]
    assert inside.count(kind) == (2 if kind is Reduce else 1)


def test_the_first_version_is_the_nest_as_written() -> None:
    xs = np.random.default_rng(0).normal(size=(40, 7)).astype("f4")
    written = compile_program(softmax.trace(), device_for("cpu"))
    first = compile_program(softmax.trace(), device_for("cpu"), flattening="incremental").with_thresholds(
        {"outer_0": 0}
    )
    np.testing.assert_array_equal(first(xs), written(xs))
    texts = [one.explain().partition("not otherwise")[0] for one in (written, first)]
    assert [text.count("changes with") for text in texts] == [1, 1]
    assert [text.count("\n      ") for text in texts] == [5, 5], "as many reads in a point"
