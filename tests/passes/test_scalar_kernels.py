"""Scalars that are computed from results of kernels are computed by kernels: the host does nothing between them."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]


def dot(x: Any, y: Any) -> Any:
    return tw.reduce("add", 0.0, tw.map(lambda a, b: a * b, x, y))


@tw.program
def normalised(xs: tw.f64["n"], least: tw.f64) -> Any:
    length = tw.sqrt(dot(xs, xs))
    factor = 1.0 / tw.maximum(length, least)
    return tw.map(lambda x: x * factor, xs), length


@tw.program
def solved(matrix: tw.f64["n", "n"], right: tw.f64["n"], rounds: tw.i64) -> Any:
    """Conjugate gradients."""

    def step(_: Any, x: Any, r: Any, p: Any, rr: Any) -> Any:
        q = tw.map(lambda row: dot(row, p), matrix)
        alpha = rr / dot(p, q)
        x = tw.map(lambda a, b: a + alpha * b, x, p)
        r = tw.map(lambda a, b: a - alpha * b, r, q)
        after = dot(r, r)
        beta = after / rr
        return x, r, tw.map(lambda a, b: a + beta * b, r, p), after

    start = tw.map(lambda one: 0.0 * one, right)
    return tw.loop(rounds, (start, right, right, dot(right, right)), step)[0]


@tw.program
def halved(xs: tw.f64["n"], tolerance: tw.f64) -> Any:
    """A loop whose condition is about scalars of kernels."""
    return tw.while_loop(
        lambda ys, size: tw.sqrt(size) > tolerance,
        (xs, dot(xs, xs)),
        lambda ys, size: (tw.map(lambda y: y / 2, ys), size / 4),
    )


@tw.program
def shortened(xs: tw.f64["n"]) -> Any:
    """A scalar of a kernel that decides what is done."""
    total = tw.reduce("add", 0.0, xs)
    mean = total / xs.shape[0]
    return tw.cond(mean > 1.0, lambda: tw.map(lambda x: x / mean, xs), lambda: tw.map(lambda x: x - mean, xs))


@tw.program
def centred(xs: tw.float_["n", "m"]) -> Any:
    """A scalar that is computed from a size, and used as a float by kernels and beside their results."""
    mean = tw.reduce("add", 0, tw.map(lambda row: tw.reduce("add", 0, row), xs)) / (xs.shape[0] * xs.shape[1])
    return tw.map(lambda row: tw.map(lambda x: x - mean, row), xs), mean * xs.shape[0]


@settings(max_examples=examples(30), deadline=None)
@given(n=st.integers(1, 40), m=st.integers(1, 40), kind=st.sampled_from(["f2", "f4", "f8"]), seed=st.integers(0, 50))
@pytest.mark.parametrize("target", DEVICES)
def test_a_mean_of_many_sizes(target: str, n: int, m: int, kind: str, seed: int) -> None:
    """One program, called with other sizes each time: what is kept of a call is not used for another."""
    xs = np.random.default_rng(seed).uniform(-1, 1, (n, m)).astype(kind)
    got, scaled = centred(xs, target=target)
    mean = xs.astype("f8").mean()
    # Of n * m numbers below one, in any order; of f16 the size is rounded, the quotient and the difference.
    error = (n * m + 5) * np.finfo(kind).eps
    np.testing.assert_allclose(got, xs.astype("f8") - mean, atol=error)
    np.testing.assert_allclose(scaled, mean * n, atol=n * error)


@tw.program
def spread(xs: tw.i64["n"]) -> Any:
    """A whole number that is computed from a result of a kernel and a size."""
    n = xs.shape[0]
    least = tw.reduce("min", 2**62, xs)
    room = tw.maximum(n - least, 1)
    return tw.map(lambda x: (x - least) * 255 // room, xs)


@tw.program
def learnt(xs: tw.f64["n"], rate: tw.f64) -> Any:
    """A float that is computed from an argument and a size."""
    step = rate / xs.shape[0].astype("f64")
    return tw.map(lambda x: x - step * x, xs)


@settings(max_examples=examples(30), deadline=None)
@given(values=st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=40), rate=st.floats(-4, 4))
@pytest.mark.parametrize("target", DEVICES)
def test_scalars_of_sizes(target: str, values: list[int], rate: float) -> None:
    xs = np.array(values)
    room = max(len(xs) - xs.min(), 1)
    np.testing.assert_array_equal(spread(xs, target=target), (xs - xs.min()) * 255 // room)
    want = xs - rate / len(xs) * xs
    # A quotient, a product and a difference: errors of the product's size.
    error = 3 * np.finfo("f8").eps * np.abs(rate / len(xs) * xs).max() + np.finfo("f8").eps * np.abs(want).max()
    np.testing.assert_allclose(learnt(xs.astype("f8"), rate, target=target), want, rtol=0, atol=error)


@tw.program
def descended(xs: tw.f64["n", "d"], ys: tw.f64["n", "k"], weights: tw.f64["d", "k"], rate: tw.f64) -> Any:
    """Products whose epilogue and whose sum have scalars that kernels compute."""
    size = tw.sqrt(tw.reduce("add", 0, tw.map(lambda row: dot(row, row), weights)))
    step = rate / xs.shape[0]
    columns = tw.transpose(ys)
    products = tw.map(lambda x: tw.map(lambda y: dot(x, y), columns), tw.transpose(xs))
    moved = tw.map(lambda ws, ps: tw.map(lambda w, p: w / size - step * p, ws, ps), weights, products)
    return moved, tw.map(lambda x: size * dot(x, x), xs)


@settings(max_examples=examples(20), deadline=None)
@given(sizes=st.tuples(*[st.integers(1, 20)] * 3), rate=st.floats(0, 4), seed=st.integers(0, 50))
@pytest.mark.parametrize("target", DEVICES)
def test_contractions_with_scalars_of_kernels(target: str, sizes: tuple[int, int, int], rate: float, seed: int) -> None:
    n, d, k = sizes
    generator = np.random.default_rng(seed)
    xs, ys, weights = (generator.uniform(0.1, 1, shape) for shape in ((n, d), (n, k), (d, k)))
    moved, lengths = descended(xs, ys, weights, rate, target=target)
    size = np.linalg.norm(weights)
    first, second = weights / size, rate / n * (xs.T @ ys)
    # Sums of positive terms, each with a product, a root, two quotients; and a difference of both.
    error = (n + d * k + 8) * np.finfo("f8").eps
    np.testing.assert_allclose(moved, first - second, rtol=0, atol=error * (first.max() + second.max()))
    np.testing.assert_allclose(lengths, size * (xs**2).sum(axis=1), rtol=error + d * np.finfo("f8").eps)


@settings(max_examples=examples(30), deadline=None)
@given(length=st.integers(0, 400), seed=st.integers(0, 50))
@pytest.mark.parametrize("target", DEVICES)
def test_a_vector_of_length_one(target: str, length: int, seed: int) -> None:
    xs = np.random.default_rng(seed).standard_normal(length)
    got, size = normalised(xs, 1e-3, target=target)
    # A sum of n squares in any order, its root, a quotient and a product.
    error = (length + 5) * np.finfo("f8").eps
    np.testing.assert_allclose(size, np.linalg.norm(xs), rtol=error)
    np.testing.assert_allclose(got, xs / max(np.linalg.norm(xs), 1e-3), rtol=error)


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("n", [3, 40, 300])
def test_conjugate_gradients(target: str, n: int) -> None:
    generator = np.random.default_rng(n)
    half = generator.standard_normal((n, n)) / n
    matrix, right = np.eye(n) + half @ half.T, generator.standard_normal(n)
    got = solved(matrix, right, 30, target=target) if n > 3 else solved(matrix, right, 2, target=target)
    bound = 1e-9 if n > 3 else 0.1  # after so many rounds, of eigenvalues from 1 to some 1.1
    assert np.abs(matrix @ got - right).max() <= bound * np.abs(right).max()


@pytest.mark.parametrize("target", DEVICES)
def test_what_the_host_asks(target: str) -> None:
    xs = np.linspace(1, 2, 50)
    ys, size = halved(xs, 0.5, target=target)
    np.testing.assert_allclose(ys, xs / 32)
    np.testing.assert_allclose(size, (ys**2).sum())
    for one in (xs, xs - 1.2):
        expected = one / one.mean() if one.mean() > 1 else one - one.mean()
        np.testing.assert_allclose(shortened(one, target=target), expected, atol=1e-14)


@pytest.mark.parametrize(("program", "arguments"), [
    (normalised, (np.ones(5), 1e-3)), (solved, (np.eye(40), np.ones(40), 3)), (centred, (np.ones((3, 4)),)),
    (spread, (np.arange(5),)), (learnt, (np.ones(5), 0.5)),
    (descended, (np.ones((9, 4)), np.ones((9, 3)), np.ones((4, 3)), 0.5)),
])  # fmt: skip
def test_the_host_computes_nothing_of_what_kernels_give(program: Any, arguments: tuple[Any, ...]) -> None:
    """So native code repeats the call."""
    own = tw.program(program.function)
    for _ in range(4):
        own(*arguments)
    assert own._quick.entries
