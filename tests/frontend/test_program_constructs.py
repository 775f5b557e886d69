"""Each construct of traced programs against NumPy, by the interpreter and on the CPU."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from program_checks import assert_same, check

import tilewright as tw

X = np.array([3.0, -1.0, 4.0, 1.5, -5.0], np.float32)
Y = np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32)
A = np.arange(12.0).reshape(3, 4) - 5
N = np.array([4, 0, 2, 7, 2], np.int64)


def test_map_over_several_arrays() -> None:
    @tw.program
    def axpy(alpha: tw.f32, xs: tw.f32["n"], ys: tw.f32["n"]) -> Any:
        return tw.map(lambda x, y: alpha * x + y, xs, ys)

    check(axpy, (np.float32(2), X, Y), 2 * X + Y)
    assert_same(axpy(2, X[::-1], ys=Y), 2 * X[::-1] + Y)


def test_map_with_a_tuple_of_results() -> None:
    @tw.program
    def both(xs: tw.f32["n"]) -> Any:
        high, low = tw.map(lambda x: (tw.maximum(x, 0), tw.minimum(x, 0)), xs)
        return low, high, 7

    check(both, (X,), (np.minimum(X, 0), np.maximum(X, 0), np.int64(7)))


def test_nested_maps_and_a_named_inner_function() -> None:
    def scale_row(row: Any) -> Any:
        total = tw.reduce("+", 0, row)
        return tw.map(lambda x: x / total, row)

    @tw.program
    def rows(xs: tw.f64["n", "m"]) -> Any:
        return tw.map(scale_row, xs)

    check(rows, (A,), A / A.sum(1, keepdims=True))


def test_map_of_constants_and_captured_scalars() -> None:
    @tw.program
    def filled(alpha: tw.f64, xs: tw.f32["n"]) -> Any:
        return tw.map(lambda x: (1, True, 0.5, alpha), xs)

    n = len(X)
    expected = (np.ones(n, "f4"), np.full(n, True), np.full(n, 0.5, "f4"), np.full(n, 3.0))
    check(filled, (np.float64(3), X), expected)


@pytest.mark.parametrize(
    ("op", "neutral", "numpy_op"),
    [
        (operator.add, 0, np.add),
        ("mul", 1, np.multiply),
        (tw.minimum, np.inf, np.minimum),
        (max, -np.inf, np.maximum),
        (np.add, 0, np.add),
        (lambda a, b: a + b, 0, np.add),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_reduce_and_scan(op: Any, neutral: Any, numpy_op: Any, dtype: str) -> None:
    @tw.program
    def folds(xs: tw.array["n"]) -> Any:
        return tw.reduce(op, neutral, xs), tw.scan(op, neutral, xs)

    xs = X.astype(dtype)
    check(folds, (xs,), (numpy_op.reduce(xs, dtype=dtype), numpy_op.accumulate(xs, dtype=dtype)))


def test_commutativity_is_found() -> None:
    @tw.program
    def folds(xs: tw.f64["n"]) -> Any:
        plain = tw.reduce(lambda a, b: b + a, 0, xs)
        not_known = tw.reduce(lambda a, b: a + b * 1, 0, xs)
        first = tw.reduce(lambda a, b: a, 0, xs)
        declared = tw.reduce(lambda a, b: a + b * 1, 0, xs, commutative=True)
        return plain, not_known, first, declared

    flags = [one.expression.commutative for one in folds.trace().body.statements]
    assert flags == [True, False, False, True]


def test_reduce_of_tuples_in_both_forms() -> None:
    def flat(best: Any, place: Any, other: Any, at: Any) -> Any:
        return tw.where(other > best, other, best), tw.where(other > best, at, place)

    def paired(left: Any, right: Any) -> Any:
        return flat(*left, *right)

    for op in (flat, paired):

        @tw.program
        def argmax(xs: tw.f32["n"]) -> Any:
            return tw.reduce(op, (-np.inf, -1), xs, tw.iota(xs.shape[0]))  # noqa: B023  # traced in this round

        check(argmax, (X,), (X.max(), X.argmax()))


def test_reduce_of_arrays() -> None:
    @tw.program
    def column_sums(xs: tw.f64["n", "m"]) -> Any:
        return tw.reduce(lambda a, b: a + b, 0, xs)

    check(column_sums, (A,), A.sum(0))


def test_redomap_and_scanomap() -> None:
    @tw.program
    def fused(xs: tw.f32["n"], ys: tw.f32["n"]) -> Any:
        dot = tw.redomap("add", 0, lambda x, y: x * y, xs, ys)
        total, doubled = tw.redomap("add", 0, lambda x: (x, 2 * x), xs)
        prefixes = tw.scanomap("add", 0, lambda x: x * x, xs)
        running, negative = tw.scanomap(tw.maximum, -np.inf, lambda x: (x, -x), xs)
        return dot, total, doubled, prefixes, running, negative

    expected = (np.sum(X * Y), X.sum(), 2 * X, np.cumsum(X * X), np.maximum.accumulate(X), -X)
    check(fused, (X, Y), expected)


def test_scatter_hist_and_gather() -> None:
    @tw.program
    def moved(places: tw.integer_["n"], xs: tw.f32["n"], bins: tw.f32["m"]) -> Any:
        scattered = tw.scatter(bins, places, xs)
        marked = tw.scatter(bins, places, 9)
        counted = tw.hist("add", 0, 8, places, tw.map(lambda _: 1, places))
        added = tw.hist(tw.maximum, -np.inf, bins, places, xs)
        gathered = tw.map(lambda i: bins[i % 5], places)
        return scattered, marked, counted, added, gathered

    bins, places = np.zeros(6, "f4"), np.array([4, 0, 2, 7, 1], np.int32)
    scattered, marked, added = bins.copy(), bins.copy(), bins.copy()
    inside = places < 6
    scattered[places[inside]] = X[inside]
    marked[places[inside]] = 9
    np.maximum.at(added, places[inside], X[inside])
    expected = (scattered, marked, np.bincount(places, minlength=8).astype(np.int32), added, bins[places % 5])
    check(moved, (places, X, bins), expected)


def test_hist_of_tuples() -> None:
    @tw.program
    def sums(places: tw.i64["n"], xs: tw.f32["n"]) -> Any:
        ones = tw.replicate(places.shape[0], 1)
        return tw.hist(lambda a, b: (a[0] + b[0], a[1] + b[1]), (0, 0), 8, places, xs, ones)

    expected = (np.bincount(N, X, 8).astype("f4"), np.bincount(N, minlength=8))
    check(sums, (N, X), expected)


def test_new_arrays() -> None:
    @tw.program
    def made(n: tw.i64, x: tw.f32, xs: tw.f32["m"]) -> Any:
        return (
            tw.iota(n), tw.iota(2 * n + 1, tw.u8), tw.replicate(n, x), tw.replicate((2, n), 1, dtype=tw.f16),
            tw.replicate(2, xs), tw.replicate(n, 0.0),
        )  # fmt: skip

    expected = (
        np.arange(3), np.arange(7, dtype="u1"), np.full(3, 2, "f4"), np.ones((2, 3), "f2"), np.stack([X, X]),
        np.zeros(3),
    )  # fmt: skip
    check(made, (np.int64(3), np.float32(2), X), expected)


def test_rearrangements() -> None:
    @tw.program
    def moved(xs: tw.f64["n", "m"]) -> Any:
        n, m = xs.shape
        cube = tw.replicate(2, xs)
        return (
            tw.transpose(xs), xs.T, tw.rearrange(cube, (1, -1, 0)), tw.reshape(xs, (m, n)), xs.reshape(-1),
            tw.reshape(cube, (n, -1)), tw.concat(xs, xs[1:], axis=0), tw.concat((xs, xs[:, ::-1]), axis=-1),
        )  # fmt: skip

    cube = np.stack([A, A])
    expected = (
        A.T, A.T, cube.transpose(1, 2, 0), A.reshape(4, 3), A.reshape(-1), cube.reshape(3, -1),
        np.concatenate([A, A[1:]]), np.concatenate([A, A[:, ::-1]], 1),
    )  # fmt: skip
    check(moved, (A,), expected)


INDEXED: list[Any] = [
    np.s_[1], np.s_[-1], np.s_[1, 2], np.s_[-1, -2], np.s_[1:], np.s_[:-1], np.s_[::-1], np.s_[::2], np.s_[-2::-1],
    np.s_[:, 1], np.s_[:, -1], np.s_[1, 1:3], np.s_[..., 0], np.s_[::-2, ::-1], np.s_[0:2, -3:-1], np.s_[:, 2:0:-1],
    np.s_[:], np.s_[..., 1:], np.s_[2:1],
]  # fmt: skip


@pytest.mark.parametrize("key", INDEXED, ids=str)
@pytest.mark.parametrize("sizes", [("n", "m"), (3, 4)], ids=["symbolic", "constant"])
def test_indexing(key: Any, sizes: Any) -> None:
    @tw.program
    def indexed(xs: tw.f64[sizes]) -> Any:
        return xs[key]

    check(indexed, (A,), A[key])


def test_slices_of_known_size_are_cut_off_as_in_python() -> None:
    @tw.program
    def cut(xs: tw.f64[5]) -> Any:
        return xs[3:99], xs[-99:2], xs[99:], xs[:-99]

    xs = np.arange(5.0)
    check(cut, (xs,), (xs[3:], xs[:2], xs[5:], xs[:0]))


def test_traced_indices_and_bounds() -> None:
    @tw.program
    def windows(i: tw.i32, k: tw.i64, xs: tw.f32["n"]) -> Any:
        middle = xs.shape[0] // 2
        sums = tw.map(lambda p: tw.reduce("add", 0, xs[p : p + 2]), tw.iota(xs.shape[0] - 1))
        return xs[i], xs[k:], xs[middle:], xs[k : k + 2], sums

    check(windows, (np.int32(2), np.int64(1), X), (X[2], X[1:], X[2:], X[1:3], X[:-1] + X[1:]))
    kept = windows.trace().body.results[3]
    assert str(kept.type) == "[2]f32"


def test_update() -> None:
    @tw.program
    def changed(i: tw.i64, xs: tw.f64["n", "m"]) -> Any:
        row = tw.map(lambda x: -x, xs[0])
        return tw.update(xs, (i, -1), 1), tw.update(xs, -1, row), xs.with_item((0, 0), xs[1, 1]), tw.update(xs, i, 0)

    one, two, three, four = A.copy(), A.copy(), A.copy(), A.copy()
    one[1, -1], two[-1], three[0, 0], four[1] = 1, -A[0], A[1, 1], 0
    check(changed, (np.int64(1), A), (one, two, three, four))


def test_elementwise_operators_on_arrays() -> None:
    @tw.program
    def arithmetic(xs: tw.f64["n", "m"], ys: tw.f64["n", "m"]) -> Any:
        return (xs + ys) * 2 - 1 / (ys * ys + 1), tw.exp(-abs(xs)), xs < ys, tw.where(xs > 0, xs, 0), xs**2, -xs

    b = A[::-1] / 3
    expected = ((A + b) * 2 - 1 / (b * b + 1), np.exp(-abs(A)), b > A, np.where(A > 0, A, 0), A**2, -A)
    check(arithmetic, (A, b), expected)


def test_astype_and_numpy_functions() -> None:
    @tw.program
    def converted(xs: tw.f64["n"]) -> Any:
        return xs.astype(tw.i32), np.sqrt(abs(xs)), tw.map(lambda x: tw.cast(x, "f32"), xs)

    xs = X.astype("f8")
    check(converted, (xs,), (xs.astype("i4"), np.sqrt(abs(xs)), X))


def test_cond() -> None:
    @tw.program
    def chosen(flag: tw.bool_, x: tw.f32, xs: tw.f32["n"]) -> Any:
        one = tw.cond(flag, lambda: tw.exp(x), lambda: 0)
        two, three = tw.cond(x > 1, lambda: (xs, x), (tw.map(lambda e: -e, xs), 0.5))
        four = tw.map(lambda e: tw.cond(e > 0, lambda: tw.sqrt(e), lambda: e), xs)
        five = tw.cond(flag, xs.shape[0], lambda: 2.5)
        return one, two, three, four, five, tw.cond(True, 1, 2)

    def expected(flag: bool, x: Any) -> Any:
        return (
            np.float32(np.exp(x) if flag else 0), X if x > 1 else -X, np.float32(x if x > 1 else 0.5),
            np.where(X > 0, np.sqrt(abs(X)), X), np.float64(5 if flag else 2.5), np.int64(1),
        )  # fmt: skip

    check(chosen, (True, np.float32(2), X), expected(True, np.float32(2)))
    check(chosen, (False, np.float32(0.5), X), expected(False, np.float32(0.5)))


def test_loops() -> None:
    @tw.program
    def looped(n: tw.i64, xs: tw.f32["m"]) -> Any:
        total = tw.loop(xs.shape[0], 0.0, lambda i, s: s + xs[i])
        doubled = tw.loop(n, xs, lambda i, ys: tw.map(lambda y: y + i.astype(tw.f32), ys))
        a, b = tw.loop(n, (0, 1), lambda i, a, b: (b, a + b))
        power = tw.while_loop(lambda p: p < 100, 1, lambda p: p * 3)
        halved, steps = tw.loop(lambda x, _: x > 1, (xs[2], 0), lambda x, k: (x / 2, k + 1))
        both = tw.loop(2, 0, lambda i, s: tw.loop(xs.shape[0], s, lambda j, t: t + xs[j]))
        return total, doubled, a, b, power, halved, steps, both

    expected = (
        X.sum(), X + 6, np.int64(3), np.int64(5), np.int64(243), np.float32(1), np.int64(2), 2 * X.sum(),
    )  # fmt: skip
    check(looped, (np.int64(4), X), expected)


def test_numbers_that_loops_start_from_take_the_type_of_the_body() -> None:
    @tw.program
    def started(xs: tw.f32["n"], ks: tw.i32["n"]) -> Any:
        return (
            tw.loop(3, 0, lambda i, s: s + xs[i]), tw.loop(3, 0, lambda i, s: s + ks[i]),
            tw.loop(3, 0.5, lambda i, s: s * 2), tw.loop(3, 0, lambda i, s: s + 1),
            tw.loop(3, 0, lambda i, s: tw.cond(xs[i] > 0, lambda: xs[i], lambda: s)),
            tw.loop(3, False, lambda i, s: s | (xs[i] < 0)),
        )  # fmt: skip

    types = [str(one.type) for one in started.trace().body.results]
    assert types == ["f32", "i32", "f64", "i64", "f32", "bool"]


def test_sizes_and_loop_indices_take_the_type_that_they_meet() -> None:
    @tw.program
    def meeting(k: tw.i64, xs: tw.f32["n"], ks: tw.i32["n"]) -> Any:
        n = xs.shape[0]
        total = tw.loop(n, xs[0], lambda i, s: s + xs[i] * i)
        halves = tw.map(lambda x: x * (n / 2), xs)
        last = tw.reduce(lambda a, b: tw.where(a > b, a, n), 0, ks)
        return xs * n, ks + n, halves, total, last, xs * k, n, tw.update(xs, 0, n)

    types = [str(one.type) for one in meeting.trace().body.results]
    assert types == ["[n]f32", "[n]i32", "[n]f32", "f32", "i32", "[n]f64", "i64", "[n]f32"]


def test_sizes_and_loop_indices_meet_floats_of_python_as_numbers_of_python_do() -> None:
    def several(xs: Any, n: Any) -> Any:
        return xs * (0.5 * n), (n - 1) * 0.25, n > 2.5, n // 2.0, n % 1.5, 1.0 - n, xs + (n * 2.0)

    @tw.program
    def traced(xs: tw.f32["n"]) -> Any:
        looped = tw.loop(3, 0, lambda i, a: a + 0.5 * i)
        return *several(xs, xs.shape[0]), looped, tw.loop(3, xs, lambda i, now: now + 0.5 * i)

    xs = A[0].astype(np.float32)
    found, expected = traced(xs), (*several(xs, len(xs)), 1.5, xs + np.float32(1.5))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == np.asarray(theirs).dtype


def test_programs_inside_programs() -> None:
    @tw.program
    def norm(xs: tw.float_["k"]) -> Any:
        return tw.sqrt(tw.reduce("add", 0, xs * xs))

    @tw.program
    def scaled(k: tw.i64, xs: tw.f64["k"], alpha: tw.f64) -> Any:
        return xs * (alpha * k)

    @tw.program
    def normal(xs: tw.f64["n", "m"]) -> Any:
        return tw.map(lambda row: scaled(row.shape[0], row, 1 / norm(row)), xs)

    check(normal, (A,), A / np.linalg.norm(A, axis=1, keepdims=True) * 4)


def test_generic_programs_are_traced_per_combination_of_dtypes() -> None:
    count = 0

    @tw.program
    def scaled(alpha: tw.any_, xs: tw.array["n"]) -> Any:
        nonlocal count
        count += 1
        return tw.map(lambda x: x * alpha, xs)

    for dtype in ("f4", "f8", "i4", "c8", "f4"):
        assert_same(scaled(2, X.astype(dtype)), 2 * X.astype(dtype))
    assert_same(scaled(2.5, N), 2.5 * N)
    assert_same(scaled(np.float64(2), X), 2 * X.astype("f8"))
    assert count == 6
    assert str(scaled.trace("f64", tw.f32).body.results[0].type) == "[n]f64"
    assert str(scaled.trace(X, X).body.results[0].type) == "[n]f32"


def test_structure_of_results_and_out() -> None:
    @tw.program
    def one(xs: tw.f32["n"]) -> Any:
        return (xs + 1,)

    @tw.program
    def two(xs: tw.f32["n"]) -> Any:
        return [xs + 1, tw.reduce("add", 0, xs)]

    assert_same(one(X), (X + 1,))
    assert_same(two(X), (X + 1, X.sum()))
    out = np.empty(10, "f4")[::2]
    one(X, out=out)
    assert_same(out, X + 1)


def test_arguments_by_name_defaults_and_array_likes() -> None:
    @tw.program
    def shifted(xs: tw.f32["n"], by: tw.f32 = 1.5) -> Any:
        return xs + by

    class Wrapped:
        def __array__(self, *_: Any, **__: Any) -> Any:
            return X

    assert_same(shifted(X), X + np.float32(1.5))
    assert_same(shifted(by=2, xs=X), X + 2)
    assert_same(shifted(Wrapped(), 2), X + 2)


def test_sizes_as_expressions_and_shared_with_scalars() -> None:
    @tw.program
    def halves(k: tw.i64, xs: tw.f32["2*n"], ys: tw.f32["n"], zs: tw.f32["k + 1"]) -> Any:
        n = ys.shape[0]
        return xs[:n] + ys, xs[n:], tw.iota(k), zs[1:]

    xs, ys = np.arange(6, dtype="f4"), np.ones(3, "f4")
    check(halves, (np.int64(2), xs, ys, ys), (xs[:3] + 1, xs[3:], np.arange(2), ys[1:]))
    with pytest.raises(ValueError, match=r"dimension 0 of parameter xs must be 2\*n = 6 \(n = 3\), but is"):
        halves(2, xs[1:], ys, ys)


def test_python_runs_while_tracing() -> None:
    @tw.program
    def unrolled(xs: tw.f64[3, "n"]) -> Any:
        first, *rest = xs
        total = first
        for row in rest:
            total = total + row
        return total, tw.replicate(len(xs), 1)

    check(unrolled, (A,), (A.sum(0), np.ones(3, "i8")))


def test_python_decides_by_sizes_that_compare_for_certain() -> None:
    @tw.program
    def padded(xs: tw.f64["n", 3]) -> Any:
        n, m = xs.shape
        if m == 3 and n + 1 > n and m >= 2 and n == n:  # noqa: PLR0124  # a size against itself
            return tw.map(lambda row: tw.reduce("+", 0, row), xs), n < m
        raise AssertionError("these sizes are known")

    check(padded, (A[:, :3],), (A[:, :3].sum(1), np.bool_(False)))


def test_sizes_said_to_be_equal_are_checked_when_the_program_runs() -> None:
    @tw.program
    def added(xs: tw.f64["n"], ys: tw.f64["m"]) -> Any:
        return xs + tw.reshape(ys, xs.shape)

    check(added, (A[0], A[1]), A[0] + A[1])
    with pytest.raises(ValueError, match="reshape"):
        added(A[0], A[1, 1:])


@pytest.mark.parametrize("dtype", ["f2", "f4", "i1", "u8", "c8", "bool"])
def test_no_rows_and_other_dtypes(dtype: str) -> None:
    @tw.program
    def folded(xs: tw.array["n", "m"]) -> Any:
        return tw.map(lambda row: tw.reduce("add", 0, row), xs), tw.scan("add", 0, xs[0]), xs == xs[::1]

    def expected(xs: Any) -> Any:
        return np.add.reduce(xs, 1, dtype=dtype), np.add.accumulate(xs[0], dtype=dtype), np.full(xs.shape, True)

    for shape in ((2, 3), (1, 0)):
        xs = (np.arange(shape[0] * shape[1]).reshape(shape) % 3).astype(dtype)
        check(folded, (xs,), expected(xs))


def test_large_index_arithmetic_wraps_around() -> None:
    @tw.program
    def hashed(n: tw.i64) -> Any:
        return tw.map(lambda i: i * 6364136223846793005 + 1442695040888963407, tw.iota(n))

    with np.errstate(over="ignore"):
        check(hashed, (np.int64(5),), np.arange(5) * 6364136223846793005 + 1442695040888963407)


def test_printed_program_and_explanation(golden: Any) -> None:
    @tw.program
    def prefix_means(xs: tw.f32["n"]) -> Any:
        sums = tw.scan("add", 0, xs)
        return tw.map(lambda total, i: total / (i + 1).astype(tw.f32), sums, tw.iota(xs.shape[0]))

    golden("frontend/prefix_means.txt", prefix_means.ir)
    assert "prefix_means on cpu" in prefix_means.explain()
    assert repr(prefix_means) == "<tilewright program prefix_means(xs: f32[n])>"


def test_a_choice_of_plain_numbers_takes_the_type_that_it_meets() -> None:
    @tw.program
    def scores(xs: tw.i32["n"], ys: tw.f32["n"]) -> Any:
        chosen = tw.map(lambda x: x + tw.where(x > 2, 3, -2), xs)
        return chosen, tw.map(lambda y: y * tw.where(y > 0, 0.5, 2), ys), tw.map(lambda y: tw.where(y > 0, 1, 2), ys)

    small = N.astype(np.int32)
    expected = small + np.where(small > 2, 3, -2).astype(np.int32), X * np.where(X > 0, 0.5, 2).astype("f")
    check(scores, (small, X), (*expected, np.where(X > 0, 1, 2)))
