"""Rows that are folded and kept are computed and folded in one loop, in vectors, however short they are."""

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
from tilewright.ir.scalars import F32
from tilewright.ir.traversal import all_statements
from tilewright.ir.verifier import verify
from tilewright.kernel.ir import For, Operation, Store, VectorType
from tilewright.kernel.traversal import expressions, parts, walk
from tilewright.passes.last_rewrites import join_rows
from tilewright.passes.pipelines import run_pipeline
from tilewright.runtime import cpu_device


def softmax(x: tw.f32["n", "m"]) -> Any:
    def one(row: Any) -> Any:
        e = tw.exp(row - row.max())
        return e / e.sum()

    return tw.map(one, x)


def normalised(x: tw.f64["n", "m"], g: tw.f64["m"]) -> Any:
    def one(row: Any) -> Any:
        centred = row - row.mean()
        return centred * tw.rsqrt((centred * centred).mean() + 1e-5) * g, centred

    return tw.map(one, x)


def counted(x: tw.i32["n", "m"]) -> Any:
    def one(row: Any) -> Any:
        squares = row * row
        return squares - squares.sum(), squares.max()

    return tw.map(one, x)


def narrow(x: tw.f32["n", "m"]) -> Any:
    def one(row: Any) -> Any:
        halves = (row * np.float32(2)).astype("f16")
        return halves, halves.astype("f32").sum()

    return tw.map(one, x)


def ready(function: Callable[..., Any]) -> Program:
    return run_pipeline(tw.program(function).trace())


def folds(program: Program) -> list[nodes.Redomap]:
    """Those that give rows beside what they fold."""
    found = [one.expression for one in all_statements(program.body)]
    return [
        one for one in found if isinstance(one, nodes.Redomap) and len(one.function.body.results) > len(one.neutral)
    ]


@pytest.mark.parametrize("function", [softmax, normalised, counted])
def test_what_is_folded_is_kept_beside(function: Callable[..., Any]) -> None:
    program = ready(function)
    assert not folds(program)
    joined = join_rows(program)
    verify(joined)
    assert len(folds(joined)) == 1
    given_ = np.random.default_rng(0).integers(-9, 9, (3, 5)).astype({"counted": "i4", "softmax": "f4"}.get(
        function.__name__, "f8"))  # fmt: skip
    arrays = [given_, *[np.ones(5)] * (len(program.parameters) - 1)]
    for one, two in zip(interpret(joined, arrays), interpret(program, arrays), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)


def test_folds_that_keep_an_order_stay_as_they_are() -> None:
    def places(x: tw.f64["n", "m"]) -> Any:
        def one(row: Any) -> Any:
            squares = row * row
            return squares, np.argmax(squares)

        return tw.map(one, x)

    program = ready(places)
    assert any(isinstance(one.expression, nodes.Reduction) for one in all_statements(program.body))
    assert not folds(join_rows(program))


@settings(max_examples=examples(30), deadline=None)
@given(
    function=st.sampled_from([softmax, normalised, counted, narrow]),
    rows=st.sampled_from([1, 3]),
    length=st.sampled_from([1, 2, 7, 15, 16, 17, 23, 24, 31, 32, 33, 63, 100, 521, 8200]),
    order=st.sampled_from("CF"),
    seed=st.integers(0, 99),
)
def test_rows_of_any_length(function: Callable[..., Any], rows: int, length: int, order: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    program = tw.program(function).trace()
    element = program.parameters[0].type.element.numpy
    x = np.asarray(random.integers(-9, 9, (rows, length)), element, order=order)
    rest = [random.standard_normal(length) for _ in program.parameters[1:]]
    if function is softmax and length > 1000:
        x = x / np.float32(9)
    check(program, [x, *rest], optimise=True)


def test_no_rows_and_rows_of_nothing() -> None:
    for shape in ((0, 5), (4, 0), (0, 0)):
        found = tw.program(normalised)(np.ones(shape), np.ones(shape[1]))
        assert [one.shape for one in found] == [shape, shape]


def test_rows_are_written_by_the_loop_that_folds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    kernels = []
    compile_ = cpu_device._compile
    monkeypatch.setattr(cpu_device, "_compile", lambda kernel: (kernels.append(kernel), compile_(kernel))[1])
    tw.program(softmax)(np.ones((3, 70), np.float32))
    loops = [one for kernel in kernels for one in walk(kernel.body) if isinstance(one, For)]
    innermost = [one for one in loops if not any(isinstance(two, For) for two in walk(one.body))]

    def exponentials(body: Any) -> list[Operation]:
        values = [value for one in walk(body) for value in parts(expressions(one))]
        return [one for one in values if isinstance(one, Operation) and one.operator == "exp"]

    assert all(isinstance(one.type, VectorType) for kernel in kernels for one in exponentials(kernel.body))
    computing = [one for one in innermost if exponentials(one.body)]
    assert computing
    for one in computing:
        written = [two for two in walk(one.body) if isinstance(two, Store)]
        assert len(written) == 1 and written[0].buffer.element == F32
