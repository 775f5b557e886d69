"""`tw.einsum` in programs: what it gives, what is fused to it, and what it refuses."""
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from einsum_checks import assert_close, reference, roundings
from hypothesis import given, settings
from test_einsum_properties import SEMIRING_KINDS, Case, cases

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.scalars import scalar_type_of


def _program(case: Case, numbers: bool) -> Any:
    """A program of one einsum; extents other than 1 are names in it unless they shall be numbers."""

    def contraction(*operands: Any) -> Any:
        return tw.einsum(case.expression, *operands, semiring=case.semiring, optimize=case.optimize)

    def of_one(p: Any) -> Any:
        return contraction(p)

    def of_two(p: Any, q: Any) -> Any:
        return contraction(p, q)

    def of_three(p: Any, q: Any, r: Any) -> Any:
        return contraction(p, q, r)

    def of_four(p: Any, q: Any, r: Any, s: Any) -> Any:
        return contraction(p, q, r, s)

    function: Callable[..., Any] = (of_one, of_two, of_three, of_four)[len(case.operands) - 1]
    for name, labels, array in zip("pqrs", case.inputs, case.operands, strict=False):
        shape = tuple(
            extent if extent == 1 or numbers else one for one, extent in zip(labels, array.shape, strict=True)
        )
        scalar = getattr(tw, "bool_" if array.dtype == bool else scalar_type_of(array.dtype).name)
        function.__annotations__[name] = scalar[shape] if shape else scalar
    return tw.program(function)


@pytest.mark.parametrize("numbers", [False, True])
@settings(max_examples=max(8, settings().max_examples // 8))
@given(case=cases())
def test_programs_of_one_einsum_are_it(numbers: bool, case: Case) -> None:
    dtype = np.result_type(*(one.dtype for one in case.operands))
    if dtype.kind not in SEMIRING_KINDS[case.semiring]:
        return
    expected, magnitude = reference(case.inputs, case.output, case.operands, dtype, case.semiring)
    program = _program(case, numbers)
    arguments = [one[()] if one.ndim == 0 else one for one in case.operands]
    count = roundings(case.inputs, case.output, case.sizes)
    interpreted = interpret(program.trace(*(one.dtype for one in case.operands)), arguments)
    for result in (program(*arguments), *interpreted):
        assert np.asarray(result).dtype == dtype
        assert_close(result, expected, magnitude, dtype, count, case.semiring)


def test_what_follows_is_fused() -> None:
    @tw.program
    def layer(x: tw.f64["n", "k"], weights: tw.f64["m", "k"], bias: tw.f64["m"]):
        return tw.map(lambda row: tw.relu(row + bias), tw.einsum("nk,mk->nm", x, weights))

    random = np.random.default_rng(1)
    x, weights, bias = random.normal(size=(7, 5)), random.normal(size=(4, 5)), random.normal(size=4)
    np.testing.assert_allclose(layer(x, weights, bias), np.maximum(x @ weights.T + bias, 0), rtol=1e-13, atol=1e-13)
    explained = layer.explain()
    assert explained.count("a contraction over") == 1 and "a kernel over" not in explained.split("versions")[0]


def test_in_nests_loops_and_with_scalars() -> None:
    @tw.program
    def nested(a: tw.f64["n", "n"], xs: tw.f64["b", "n"], factor: tw.f64):
        products = tw.map(lambda x: tw.einsum("ij,j->i", a, x), xs)
        power = tw.loop(3, xs[0], lambda _, x: np.einsum(",ij,j", factor, a, x))
        return products, power, np.tensordot(xs, a, axes=([1], [0])), tw.tensordot(xs, xs), tw.einsum(xs, [0, 1], [1])

    random = np.random.default_rng(2)
    a, xs = random.normal(size=(4, 4)), random.normal(size=(3, 4))
    powers = xs[0]
    for _ in range(3):
        powers = 0.5 * a @ powers
    expected = (xs @ a.T, powers, xs @ a, (xs * xs).sum(), xs.sum(0))
    for result, one in zip(nested(a, xs, 0.5), expected, strict=True):
        np.testing.assert_allclose(result, one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [0, 2])
def test_empty_sums_of_integers_are_neutral(count: int) -> None:
    @tw.program
    def shortest(x: tw.i8[1, "b"], y: tw.i8["a"]):
        return tw.einsum("ab,a->", x, y, semiring="min_plus")

    # Folding y first gave 127, and -1 more than the neutral element is less than it.
    assert shortest(np.array([[-1]], np.int8), np.zeros(count, np.int8)) == (-1 if count else 127)


def test_numbers_adapt_to_the_arrays_and_dtypes_are_taken() -> None:
    @tw.program
    def scaled(x: tw.f32["n"], counts: tw.i8["n"]):
        return tw.einsum(",n->n", 2.5, x), tw.einsum("n,n->", counts, counts, dtype=tw.i64), tw.einsum("n,n", x, counts)

    x, counts = np.arange(3, dtype=np.float32), np.array([100, -100, 3], np.int8)
    halves, squares, mixed = scaled(x, counts)
    assert halves.dtype == np.float32 and halves.tolist() == [0.0, 2.5, 5.0]
    assert squares == 20009 and squares.dtype == np.int64
    assert mixed == -94.0 and mixed.dtype == np.float32


def test_chains_are_contracted_in_a_good_order_whatever_the_sizes() -> None:
    @tw.program
    def chain(a: tw.f64["n", "m"], b: tw.f64["m", "k"], v: tw.f64["k"]):
        return tw.einsum("nm,mk,k->n", a, b, v)

    assert "k->n" not in chain.ir or chain.ir.count("redomap") == 2
    a, b, v = np.ones((3, 4)), np.ones((4, 5)), np.ones(5)
    assert chain(a, b, v).tolist() == [20.0] * 3


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda a, b: tw.einsum("ij,jk->ik", a, b), "index 'j' has size k in operand 0, but size m .* write one name"),
        (lambda a, b: tw.einsum("ijk->i", a), r"operand 0 \(ijk\) needs 3 dimensions, but has 2$"),
        (lambda a, b: tw.einsum("ij,kl,lm", a, b), "of 3 operands .*, but 2 were given$"),
        (lambda a, b: tw.einsum("ij->k", a), "output index 'k' occurs in no operand"),
        (lambda a, b: tw.einsum("ij,kj", a, b, out=a), "out has no meaning in a program"),
        (lambda a, b: tw.einsum("ij,kj", a, b, order="F"), "order has no meaning in a program"),
        (lambda a, b: tw.einsum("ij,kj", a, b, alpha=2), "alpha has no meaning .* write a product"),
        (lambda a, b: tw.einsum("ij,kj", a, b, epilogue=tw.relu), "epilogue has no meaning .* tw.map"),
        (lambda a, b: tw.einsum("ij,kj", a, b, casting="no"), "casting has no meaning"),
        (lambda a, b: tw.einsum("ij,kj", a, b, memory_limit=99), "memory_limit has no meaning .* outside"),
        (lambda a, b: tw.tensordot(a, b, ([1], [1]), memory_limit=99), "memory_limit has no meaning .* outside"),
        (lambda a, b: tw.einsum("ij,kj", a, np.ones((2, 3))), "a NumPy array of shape .* are its parameters"),
        (lambda a, b: tw.einsum("ij,kj", a, "b"), "operand 1 must be an array or a scalar, not 'b'"),
        (lambda a, b: tw.einsum("ij,kj", a, b, semiring="plus"), "semiring"),
        (lambda a, b: tw.einsum("ij,kj", a, b, optimize=[(0, 2)]), "2 operands are left"),
        (lambda a, b: np.tensordot(a, b, 2), "write one name"),
    ],
)
def test_errors(write: Callable[..., Any], message: str) -> None:
    write.__annotations__.update(a=tw.f64["n", "k"], b=tw.f64["m", "k"])
    with pytest.raises((TypeError, ValueError), match=message):
        tw.program(write).trace()
