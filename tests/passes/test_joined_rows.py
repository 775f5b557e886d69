"""Maps that go on row by row as one map where rows are many and long, against the interpreter and NumPy."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_checks import check
from naive import examples

import tilewright as tw
from tilewright.ir import nodes
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.ir.traversal import all_statements
from tilewright.ir.verifier import verify
from tilewright.passes.last_rewrites import join_rows
from tilewright.passes.pipelines import run_pipeline
from tilewright.rewrite.rules import joined_rows


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of any length are long, and more than one are many."""
    for name, value in (("LONG_ROWS", 2), ("MANY_ROWS", 2), ("MANY_ELEMENTS", 1)):
        monkeypatch.setattr(joined_rows, name, value)


def softmax(x: tw.f64["n", "m"]) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def normalised(x: tw.f64["n", "m"]) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5), centred.sum(axis=0)


def softmax_of_matrices(x: tw.f64["h", "n", "m"]) -> Any:
    e = np.exp(x - x.max(axis=2, keepdims=True))
    return e / e.sum(axis=2, keepdims=True)


def normalised_in_four(x: tw.f64["b", "h", "n", "m"]) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5), centred.sum(axis=-2)


def choices(program: Program) -> list[nodes.If]:
    return [one.expression for one in program.body.statements if isinstance(one.expression, nodes.If)]


def ready(function: Callable[..., Any]) -> Program:
    return run_pipeline(tw.program(function).trace())


@pytest.mark.parametrize("function", [softmax, normalised])
def test_one_map_computes_rows_one_after_another(function: Callable[..., Any], short: None) -> None:
    joined = join_rows(ready(function))
    verify(joined)
    (choice,) = choices(joined)
    assert [type(one.expression) for one in choice.then.statements] == [nodes.Map]
    assert sum(isinstance(one.expression, nodes.Map) for one in choice.otherwise.statements) >= 3
    for shape in ((1, 5), (3, 5), (9, 20)):
        x = np.random.default_rng(0).standard_normal(shape)
        for one, two in zip(interpret(joined, [x]), interpret(ready(function), [x]), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "less the greatest": lambda x, y: x - x.max(axis=-1, keepdims=True),
    "over the sum": lambda x, y: x / (np.abs(x).sum(axis=-1, keepdims=True) + 1.0),
    "times the other": lambda x, y: x * y,
    "squares": lambda x, y: x * x,
    "plus means of the other": lambda x, y: x + y.mean(axis=-1, keepdims=True),
    "times columns' sums": lambda x, y: x * y.sum(axis=0),
    "clipped": lambda x, y: np.minimum(x, 3.0),
}


@pytest.mark.parametrize(("function", "depth", "shapes"), [
    (softmax_of_matrices, 2, [(1, 1, 5), (2, 3, 5), (3, 4, 20)]),
    (normalised_in_four, 3, [(1, 1, 1, 5), (2, 1, 3, 5), (2, 3, 2, 9)]),
])  # fmt: skip
def test_rows_of_matrices_too(
    function: Callable[..., Any], depth: int, shapes: list[tuple[int, ...]], short: None
) -> None:
    joined = join_rows(ready(function))
    verify(joined)
    (choice,) = choices(joined)
    (nest,) = (one for one in choice.then.statements if len(one.targets[0].type.shape) == depth + 1)
    for _ in range(depth - 1):
        assert isinstance(nest.expression, nodes.Map)
        (nest,) = nest.expression.function.body.statements
    assert isinstance(nest.expression, nodes.Map)
    inside = nest.expression.function.body.statements
    assert sum(isinstance(one.expression, nodes.Map | nodes.Reduction) for one in inside) >= 3
    for shape in shapes:
        x = np.random.default_rng(0).standard_normal(shape)
        for one, two in zip(interpret(joined, [x]), interpret(ready(function), [x]), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)


@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=6),
    kept=st.integers(0, 5),
    outer=st.sampled_from([(), (), (1,), (3,), (2, 2)]),
    n=st.sampled_from([1, 2, 5]),
    m=st.sampled_from([1, 2, 7, 40]),
    seed=st.integers(0, 99),
)
@settings(max_examples=examples(12), deadline=None)
def test_chains_of_rows(steps: list[str], kept: int, outer: tuple[int, ...], n: int, m: int, seed: int) -> None:
    def chain(x: Any, y: Any) -> Any:
        values = [x]
        for one in steps:
            values.append(STEPS[one](values[-1], y))
        return values[-1], values[kept % len(values)] * 2.0

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("LONG_ROWS", 2), ("MANY_ROWS", 2), ("MANY_ELEMENTS", 1)):
            patch.setattr(joined_rows, name, value)
        random = np.random.default_rng(seed)
        x, y = random.standard_normal((2, *outer, n, m))
        sizes = [f"o{place}" for place in range(len(outer))]
        chain.__annotations__ |= dict.fromkeys("xy", tw.f64[(*sizes, "n", "m")])
        program = tw.program(chain).trace()
        verify(join_rows(run_pipeline(program)))
        check(program, [x, y], optimise=True)


def test_what_others_need_before_is_computed_apart(short: None) -> None:
    def entangled(x: tw.f64["n", "m"]) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        total = e.sum()
        return e / e.sum(axis=1, keepdims=True) + total

    x = np.random.default_rng(0).standard_normal((6, 9))
    verify(join_rows(ready(entangled)))
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(tw.program(entangled)(x), e / e.sum(axis=1, keepdims=True) + e.sum(), rtol=1e-12)


def test_products_of_matrices_stay_contractions(short: None) -> None:
    def attention(q: tw.f64["n", "d"], k: tw.f64["m", "d"], v: tw.f64["m", "e"]) -> Any:
        s = q @ k.T
        e = np.exp(s - s.max(axis=1, keepdims=True))
        return (e / e.sum(axis=1, keepdims=True)) @ v

    joined = join_rows(ready(attention))
    (choice,) = choices(joined)
    inside = [one.expression for one in all_statements(choice.then) if isinstance(one.expression, nodes.Redomap)]
    assert not any(len(one.arrays) > 1 for one in inside)
    random = np.random.default_rng(0)
    q, k, v = random.standard_normal((5, 3)), random.standard_normal((7, 3)), random.standard_normal((7, 2))
    s = q @ k.T
    e = np.exp(s - s.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        tw.program(attention)(q, k, v), (e / e.sum(axis=1, keepdims=True)) @ v, rtol=1e-10, atol=1e-12
    )


def test_rows_known_to_be_short_are_not_joined() -> None:
    @tw.program
    def small(x: tw.f64["n", 8]) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    assert not choices(join_rows(run_pipeline(small.trace())))
