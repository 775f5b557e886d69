"""Sums of floats: the same bits at every call, and the errors of trees.

A sum of n values in a tree whose nodes add up to `b` values each has an error of at most b log_b(n) u sum|x|, where u
is half of eps (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2, for every order of additions: the
most additions that a value takes part in, times u). Values of one sign that are all alike come near that: between two
powers of 2 each addition rounds the same way. A chain of a million of them is off by tens of thousands of eps.
"""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime.devices import DeviceError, device_for

EPS = float(np.finfo(np.float32).eps)
N = 1_000_003
BRANCHES = 8.0
"""So many log2(n) eps are allowed: a tree of nodes of 128 values has 64 / 7 of them for all additions of a node."""
each_device = pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
each_data = pytest.mark.parametrize("kind", ["tenths", "thirds", "uneven", "one large"])


def values(kind: str, count: int) -> np.ndarray[Any, Any]:
    """Values of one sign for which roundings add up."""
    if kind == "tenths":
        return np.full(count, 0.1, np.float32)
    if kind == "thirds":
        return np.full(count, np.float32(1 / 3))
    if kind == "uneven":
        return (np.random.default_rng(1).random(count) ** 4).astype(np.float32)
    result = np.full(count, 2**-24 * 0.999, np.float32)  # each of them is lost if it is added to the first
    result[0] = 1
    return result


def skip_without(target: str) -> None:
    try:
        device_for(target)
    except DeviceError as error:
        pytest.skip(str(error))


@tw.program
def total(xs: tw.f32["n"]):
    return tw.reduce("add", 0, xs)


@tw.program
def squares(xs: tw.f32["n"]):
    return tw.reduce("add", 0, tw.map(lambda x: x * x, xs))


@tw.program
def rows(xss: tw.f32["m", "n"]):
    return tw.map(lambda xs: tw.reduce("add", 0, xs), xss)


@tw.program
def columns(xss: tw.f32["m", "n"]):
    return tw.map(lambda xs: tw.reduce("add", 0, xs), tw.transpose(xss))


@tw.program
def gathered_rows(xss: tw.f32["m", "n"], at: tw.i64["n"]):
    return tw.map(lambda xs: tw.reduce("add", 0, tw.map(lambda i: xs[i], at)), xss)


@tw.program
def nested(xsss: tw.f32["m", "k", "n"]):
    return tw.map(lambda xss: tw.reduce("add", 0, tw.map(lambda xs: tw.reduce("add", 0, xs), xss)), xsss)


@tw.program(flattening="full")
def flat_rows(xss: tw.f32["m", "n"]):
    return tw.map(lambda xs: tw.reduce("add", 0, xs), xss)


@tw.program
def prefixes(xs: tw.f32["n"]):
    return tw.scan("add", 0, xs)


@tw.program
def row_prefixes(xss: tw.f32["m", "n"]):
    return tw.map(lambda xs: tw.scan("add", 0, xs), xss)


@tw.program(flattening="full")
def flat_row_prefixes(xss: tw.f32["m", "n"]):
    return tw.map(lambda xs: tw.scan("add", 0, xs), xss)


@tw.program
def bins(xs: tw.f32["n"], at: tw.i64["n"]):
    return tw.hist("add", 0, 7, at, xs)


def exact(array: np.ndarray[Any, Any], axis: int | tuple[int, ...] | None) -> np.ndarray[Any, Any]:
    return np.asarray(array.astype(np.longdouble).sum(axis=axis).astype(np.float64))


def assert_tree(found: Any, wanted: np.ndarray[Any, Any], count: int, branches: float = BRANCHES) -> None:
    """All values are of one sign, so that the sum of their absolute values is the sum."""
    error = np.max(np.abs(np.asarray(found, np.float64) - wanted) / wanted) / EPS
    assert error <= branches * math.log2(count), f"{error:.1f} eps where log2(n) is {math.log2(count):.1f}"


@each_device
@each_data
def test_errors_of_sums_are_those_of_trees(kind: str, target: str) -> None:
    skip_without(target)
    xs = values(kind, N)
    assert_tree(total(xs, target=target), exact(xs, None), N)
    assert_tree(squares(xs, target=target), exact(xs.astype(np.float64) ** 2, None), N)


@each_device
@each_data
@pytest.mark.parametrize("program", [rows, flat_rows, gathered_rows], ids=lambda one: one.function.__name__)
def test_errors_of_sums_of_rows_are_those_of_trees(kind: str, program: Callable[..., Any], target: str) -> None:
    skip_without(target)
    for m in (3, 40):
        xss = values(kind, N // m * m).reshape(m, -1)
        more = (np.arange(xss.shape[1]),) if program is gathered_rows else ()
        assert_tree(program(xss, *more, target=target), exact(xss, 1), N // m)


@each_device
@each_data
def test_errors_of_nested_sums_and_of_few_columns_are_those_of_trees(kind: str, target: str) -> None:
    skip_without(target)
    xsss = values(kind, 999_900).reshape(2, 3, -1)
    assert_tree(nested(xsss, target=target), exact(xsss, (1, 2)), 999_900)
    xss = values(kind, 999_900).reshape(-1, 3)
    assert_tree(columns(xss, target=target), exact(xss, 0), 333_300)


@tw.program
def total_of_doubles(xs: tw.f64["n"]):
    return tw.reduce("add", 0, xs)


@each_device
@each_data
def test_errors_of_doubles(kind: str, target: str) -> None:
    skip_without(target)
    xs = values(kind, N).astype(np.float64) / 3
    wanted = math.fsum(xs)
    bound = BRANCHES * math.log2(N) * float(np.finfo(np.float64).eps)
    assert abs(total_of_doubles(xs, target=target) - wanted) / wanted <= bound


@each_device
@each_data
def test_errors_of_prefixes_are_those_of_trees(kind: str, target: str) -> None:
    skip_without(target)
    xs = values(kind, N)
    prefix = np.cumsum(xs.astype(np.longdouble)).astype(np.float64)
    assert_tree(prefixes(xs, target=target), prefix, N)
    xss = xs[: N // 3 * 3].reshape(3, -1)
    wanted = np.cumsum(xss.astype(np.longdouble), 1).astype(np.float64)
    assert_tree(row_prefixes(xss, target=target), wanted, N // 3)


@each_data
@pytest.mark.parametrize("hit", [1, 3, 7])
def test_errors_of_bins_are_those_of_trees(kind: str, hit: int) -> None:
    """Of seven bins the first `hit` take all values: a node has 1024 rows, in four copies of the bins."""
    xs = values(kind, N)
    at = np.arange(N) % hit
    wanted = np.bincount(at, xs.astype(np.float64), 7)
    found = np.asarray(bins(xs, at), np.float64)
    assert not np.any(found[hit:])
    assert_tree(found[:hit], wanted[:hit], N)


def test_bins_of_long_histograms_are_complete() -> None:
    """Bins that are added to others and begun anew lose nothing, at every number of rows around a node's ends."""
    random = np.random.default_rng(4)
    for count in (1023, 1024, 1025, 1300, 64 * 1024, 64 * 1024 + 1, 200_003):
        xs, at = random.integers(-9, 10, count).astype(np.float32), random.integers(-1, 9, count)
        inside = (at >= 0) & (at < 7)
        np.testing.assert_array_equal(bins(xs, at), np.bincount(at[inside], xs[inside], 7))


@pytest.mark.opencl
@each_data
def test_bins_of_a_gpu_are_far_from_chains(kind: str) -> None:
    """They are sums of pieces that are added up one after another; the chain of the tenths is off by 10,000 eps."""
    skip_without("opencl")
    xs = values(kind, N)
    at = np.arange(N) % 7
    wanted = np.bincount(at, xs.astype(np.float64))
    assert np.max(np.abs(bins(xs, at, target="opencl") - wanted) / wanted) / EPS <= N / 7 / 64


@each_device
@pytest.mark.parametrize("threads", [1, 2])
def test_every_call_gives_the_same_bits(threads: int, target: str) -> None:
    """Which thread takes which blocks is chance; what is added to what is not."""
    skip_without(target)
    random = np.random.default_rng(2)
    xs = random.normal(size=N).astype(np.float32)
    xss = random.normal(size=(40, 25_003)).astype(np.float32)
    at = random.integers(0, 7, N)
    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (total, (xs,)), (squares, (xs,)), (rows, (xss,)), (flat_rows, (xss,)), (columns, (xss,)),
        (columns, (np.ascontiguousarray(xss.T),)), (prefixes, (xs,)), (row_prefixes, (xss,)), (bins, (xs, at)),
    ]  # fmt: skip
    with tw.num_threads(threads):
        for program, arguments in calls:
            first = np.asarray(program(*arguments, target=target)).tobytes()
            for _ in range(4):
                assert np.asarray(program(*arguments, target=target)).tobytes() == first, program


def test_sums_do_not_depend_on_the_number_of_threads() -> None:
    random = np.random.default_rng(3)
    xs = random.normal(size=N).astype(np.float32)
    xss = random.normal(size=(40, 25_003)).astype(np.float32)
    at = random.integers(0, 7, N)
    for program, arguments in ((total, (xs,)), (squares, (xs,)), (rows, (xss,)), (prefixes, (xs,)), (bins, (xs, at))):
        found = set()
        for threads in (1, 2, 3):
            with tw.num_threads(threads):
                found.add(np.asarray(program(*arguments)).tobytes())
        assert len(found) == 1, program


@each_data
@pytest.mark.parametrize("columns_count", [2, 5, 16, 33, 200])
def test_errors_of_sums_and_prefixes_of_columns_are_those_of_trees(kind: str, columns_count: int) -> None:
    xss = values(kind, 600_000 // columns_count * columns_count).reshape(-1, columns_count)
    count = len(xss)
    for program in (rows, flat_rows):
        assert_tree(program(xss.T), exact(xss, 0), count)
    wanted = np.cumsum(xss.astype(np.longdouble), 0).astype(np.float64).T
    for program in (row_prefixes, flat_row_prefixes):
        assert_tree(program(xss.T), wanted, count)


# --- arrays as values, rows in bins -----------------------------------------------------------------------------------


@tw.program
def sums_of_rows(xss: tw.f32["n", "m"]):
    """A fold whose values are rows."""
    zeros = tw.replicate(xss.shape[1], 0.0, "f32")
    return tw.reduce(lambda a, b: tw.map(lambda x, y: x + y, a, b), zeros, xss)


@tw.program
def sums_of_pairs(xss: tw.f32["k", "n", "m"]):
    """The same inside of a map, of rows that are computed, with a result that is no array beside."""

    def total(a, s, b, t):
        return tw.map(lambda x, y: x + y, a, b), s + t

    def one(xs):
        zeros = tw.replicate(xss.shape[2], 0.0, "f32")
        return tw.reduce(
            total, (zeros, 0.0), tw.map(lambda row: tw.map(lambda x: x * x, row), xs), tw.map(lambda row: row[0], xs)
        )

    return tw.map(one, xss)


@tw.program
def prefixes_of_rows(xss: tw.f32["n", "m"]):
    zeros = tw.replicate(xss.shape[1], 0.0, "f32")
    return tw.scan(lambda a, b: tw.map(lambda x, y: x + y, a, b), zeros, xss)


@tw.program
def rows_in_bins(xss: tw.f32["n", "m"], at: tw.i64["n"]):
    zeros = tw.replicate(xss.shape[1], 0.0, "f32")
    return tw.hist(lambda a, b: tw.map(lambda x, y: x + y, a, b), zeros, 5, at, xss)


@each_device
@each_data
def test_errors_of_folds_of_rows_are_those_of_trees(kind: str, target: str) -> None:
    skip_without(target)
    xss = values(kind, 600_000).reshape(3, -1).T
    assert_tree(sums_of_rows(xss, target=target), exact(xss, 0), len(xss))
    rows_found, first = sums_of_pairs(np.stack([xss, xss[::-1]]), target=target)
    squared = exact(xss.astype(np.float64) ** 2, 0)
    for number in range(2):
        assert_tree(np.asarray(rows_found)[number], squared, len(xss))
        assert_tree(np.asarray(first)[number], exact(xss[:, 0], None), len(xss))


@each_device
@each_data
def test_errors_of_prefixes_of_rows_are_those_of_trees(kind: str, target: str) -> None:
    skip_without(target)
    xss = values(kind, 300_000).reshape(3, -1).T
    wanted = np.cumsum(xss.astype(np.longdouble), 0).astype(np.float64)
    assert_tree(prefixes_of_rows(xss, target=target), wanted, len(xss))


@each_data
@pytest.mark.parametrize("hit", [1, 5])
@pytest.mark.parametrize("m", [2, 20])
def test_errors_of_rows_in_bins_are_those_of_trees(kind: str, hit: int, m: int) -> None:
    """Of five bins the first `hit` take all rows: a node has 1024 rows, in four copies of the bins or in one.

    A copy has 256 values, twice as many as a node of other sums: 298 eps by the bound above.
    """
    column = values(kind, 400_000)
    at = np.arange(len(column)) % hit
    wanted = np.bincount(at, column.astype(np.float64), 5)
    for xss in (np.repeat(column[:, None], m, 1), np.repeat(column[None], m, 0).T):
        found = np.asarray(rows_in_bins(xss, at), np.float64)
        assert not np.any(found[hit:])
        for number in range(m):
            assert_tree(found[:hit, number], wanted[:hit], len(column), branches=2 * BRANCHES)
