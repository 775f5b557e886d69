"""Maps inside a point that become folds: the same results, and no rows in memory."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_programs.generator import random_program
from stream_programs import floats

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Body, Map, Program, Redomap, Statement
from tilewright.ir.parser import parse_program
from tilewright.ir.traversal import all_statements
from tilewright.ir.verifier import verify
from tilewright.passes.core.nest_folds import with_folds

ADD = "(\\(p{0}: f32, q{0}: f32) -> let (sum{0}: f32) = p{0} + q{0} in (sum{0}))"
MAX = ADD.replace("+ q{0}", "* q{0}")
ROWS = """\
  let (a: [m]f32, b: [m]f32) = map m (\\(row: [k]f32) ->
    let (s: f32) = reduce k ADD1 (0.0f32) row
    let (t: f32) = s * y
    in (s, t)) x
"""
KINDS = {
    "one": ("let (c: f32) = reduce m ADD2 (0.0f32) a", 1, 0),
    "two": ("let (c: f32) = reduce m ADD2 (0.0f32) a\n  let (d: f32) = reduce m MAX3 (1.0f32) b", 1, 0),
    "with_function": ("let (c: f32) = redomap m ADD2 (0.0f32) (\\(u: f32, v: f32) -> "
                      "let (w: f32) = u - v in (w)) a b", 1, 0),
    "mapped_out": ("let (c: f32, e: [m]f32) = redomap m ADD2 (0.0f32) (\\(u: f32) -> (u, u)) a\n"
                   "  let (f: f32) = e[0i64]", 1, 0),
    "also_indexed": ("let (c: f32) = reduce m ADD2 (0.0f32) a\n  let (f: f32) = a[0i64]", 0, 1),
    "in_order": ("let (c: f32) = reduce m ADD2 (0.0f32) a\n  let (d: f32) = reduce m MAX3 (c) b", 0, 1),
}  # fmt: skip


def program(kind: str) -> Program:
    lines = KINDS[kind][0].replace("ADD2", ADD.format(2)).replace("MAX3", MAX.format(3))
    body = ROWS.replace("ADD1", ADD.format(1)) + f"  {lines}\n  in (c)"
    text = (
        f"def f (xs: [n][m][k]f32, ys: [n]f32) =\n let (r: [n]f32) = map n (\\(x: [m][k]f32, y: f32) ->\n{body}) xs ys"
    )
    return parse_program(f"{text}\n in (r)")


def folded(source: Program) -> Program:
    statements = tuple(Statement(one.targets, with_folds(one.expression)) for one in source.body.statements)
    return dataclasses.replace(source, body=Body(statements, source.body.results))


@pytest.mark.parametrize("kind", KINDS)
def test_folds_of_rows(kind: str) -> None:
    source = program(kind)
    verify(source)
    result = folded(source)
    verify(result)
    (outer,) = result.body.statements
    inside = [one.expression for one in all_statements(result.body) if one is not outer]
    _, folds, maps = KINDS[kind]
    assert sum(isinstance(one, Map) for one in inside) == maps
    assert any(isinstance(one, Redomap) and one.function.body.statements for one in inside) is bool(folds)
    arguments = [floats(3, 4, 5), floats(3, seed=1)]
    for actual, expected in zip(interpret(result, arguments), interpret(source, arguments), strict=True):
        assert (actual == expected).all()


@given(st.integers(0, 10_000))
def test_random_programs_stay_well_formed(seed: int) -> None:
    source = random_program(seed)
    verify(folded(source))


def test_a_convolution_is_a_contraction_of_nested_reductions() -> None:
    @tw.program
    def convolved(x: tw.f32["c", "h", "w"], k: tw.f32["o", "c", "p", "q"], bias: tw.f32["o"]) -> Any:
        _, height, width = x.shape
        count, channels, p, q = k.shape

        def taps(o: Any, i: Any, j: Any, c: Any, a: Any) -> Any:
            return tw.reduce("add", 0, tw.map(lambda b: x[c, i + a, j + b] * k[o, c, a, b], tw.iota(q)))

        def point(o: Any, i: Any, j: Any) -> Any:
            rows = tw.map(
                lambda c: tw.reduce("add", 0, tw.map(lambda a: taps(o, i, j, c, a), tw.iota(p))), tw.iota(channels)
            )
            return tw.maximum(tw.reduce("add", 0, rows) + bias[o], 0)

        columns, lines = tw.iota(width - q + 1), tw.iota(height - p + 1)
        return tw.map(lambda o: tw.map(lambda i: tw.map(lambda j: point(o, i, j), columns), lines), tw.iota(count))

    assert "a contraction over o:" in convolved.explain()
    rng = np.random.default_rng(0)
    x, k, bias = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((3, 8, 9), (5, 3, 3, 2), (5,)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(1, 2))
    wanted = np.maximum(np.einsum("chwpq,ocpq->ohw", windows, k) + bias[:, None, None], 0)
    np.testing.assert_array_equal(convolved(x, k, bias), wanted)
