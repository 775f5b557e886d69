"""Whole programs as people write them, against NumPy, by the interpreter, on the CPU and for OpenCL."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pytest
from program_checks import check, opencl_or_skip

import tilewright as tw
from tilewright.contraction.form import Contraction
from tilewright.contraction.recognise import recognise
from tilewright.frontend.einsum_parse import EinsumSpec
from tilewright.frontend.einsum_program import einsum_program
from tilewright.ir.nodes import Program
from tilewright.ir.scalars import F32
from tilewright.ir.traversal import canonical
from tilewright.ir.views import fresh_view, parameter_view, view_of
from tilewright.passes.pipelines import run_pipeline

R = np.random.default_rng(7)
TARGETS = ("cpu", "opencl")


def run(program: Any, arguments: tuple[Any, ...], expected: Any, target: str) -> None:
    if target == "opencl":
        opencl_or_skip()
    check(program, arguments, expected, (target,))


both_targets = pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])


@tw.program
def matmul(a: tw.f32["n", "k"], b: tw.f32["k", "m"]) -> Any:
    def dot(row: Any, column: Any) -> Any:
        return tw.reduce(operator.add, 0, tw.map(operator.mul, row, column))

    return tw.map(lambda row: tw.map(lambda column: dot(row, column), tw.transpose(b)), a)


@tw.program
def matmul_redomap(a: tw.f32["n", "k"], b: tw.f32["k", "m"]) -> Any:
    columns = tw.transpose(b)
    return tw.map(lambda row: tw.map(lambda c: tw.redomap("add", 0, lambda x, y: x * y, row, c), columns), a)


@tw.program
def matmul_indexed_epilogue(a: tw.f32["n", "k"], b: tw.f32["k", "m"]) -> Any:
    columns = b.T
    return tw.map(lambda row: tw.map(lambda c: tw.maximum(tw.reduce("+", 0, row * c), 0), columns), a)


@both_targets
@pytest.mark.parametrize("program", [matmul, matmul_redomap], ids=lambda one: one.__name__)
def test_matmul(program: Any, target: str) -> None:
    a, b = R.random((6, 5), "f4"), R.random((5, 7), "f4")
    run(program, (a, b), a @ b, target)


def contraction_of(program: Program) -> Contraction:
    ready = run_pipeline(program, verify=True)
    views = {one.name: parameter_view(one) for one in ready.parameters}
    *before, last = ready.body.statements
    for one in before:
        view = view_of(one.expression, views)
        assert view is not None
        views[one.targets[0].name] = view
    found = recognise(last, views, {last.targets[0].name: fresh_view("out", last.targets[0].type)})
    assert isinstance(found, Contraction), found
    return found


@pytest.mark.parametrize("program", [matmul, matmul_redomap], ids=lambda one: one.__name__)
def test_handwritten_matmul_is_the_contraction_of_an_einsum(program: Any) -> None:
    names = {"operand0": "a", "operand1": "b", "a": "n", "b": "k", "c": "m"}
    ours = contraction_of(program.trace())
    einsum = contraction_of(einsum_program(EinsumSpec(((0, 1), (1, 2)), (0, 2)), [F32, F32], F32))
    assert [one.kind for one in ours.dimensions] == [one.kind for one in einsum.dimensions]
    assert [str(one.size) for one in ours.dimensions] == [names[str(one.size)] for one in einsum.dimensions]
    for mine, theirs in zip(ours.dimensions, einsum.dimensions, strict=True):
        renamed = str((theirs.stride_left, theirs.stride_right)).replace("operand0", "a").replace("operand1", "b")
        assert str((mine.stride_left, mine.stride_right)) == renamed
    assert (ours.left.buffer, ours.right.buffer) == ("a", "b")
    assert canonical(ours.map) == canonical(einsum.map)
    assert canonical(ours.combine) == canonical(einsum.combine)
    assert ours.neutral == einsum.neutral and ours.epilogue is None


def test_the_code_after_a_handwritten_reduction_is_its_epilogue() -> None:
    found = contraction_of(matmul_indexed_epilogue.trace())
    assert found.epilogue is not None
    a, b = R.random((3, 5), "f4") - 0.5, R.random((5, 4), "f4") - 0.5
    check(matmul_indexed_epilogue, (a, b), np.maximum(a @ b, 0))
    assert "a contraction over" in matmul_indexed_epilogue.explain()


@both_targets
def test_softmax(target: str) -> None:
    @tw.program
    def softmax(xs: tw.float_["n", "m"]) -> Any:
        def one_row(row: Any) -> Any:
            top = tw.reduce(tw.maximum, -math.inf, row)
            powers = tw.map(lambda x: tw.exp(x - top), row)
            total = tw.reduce(operator.add, 0, powers)
            return tw.map(lambda power: power / total, powers)

        return tw.map(one_row, xs)

    xs = R.normal(size=(5, 9)).astype("f4")
    powers = np.exp(xs - xs.max(1, keepdims=True))
    run(softmax, (xs,), powers / powers.sum(1, keepdims=True), target)


@both_targets
def test_filter_by_prefix_sums_and_scatter(target: str) -> None:
    @tw.program
    def positive(xs: tw.f32["n"]) -> Any:
        n = xs.shape[0]
        flags = tw.map(lambda x: (x > 0).astype(tw.i64), xs)
        places = tw.scan(operator.add, 0, flags)
        count = tw.reduce(operator.add, 0, flags)
        targets = tw.map(lambda flag, place: tw.where(flag == 1, place - 1, n), flags, places)
        kept = tw.scatter(tw.replicate(n, tw.cast(0, tw.f32)), targets, xs)
        return kept[:count], count

    xs = R.normal(size=40).astype("f4")
    run(positive, (xs,), (xs[xs > 0], np.int64((xs > 0).sum())), target)


def test_one_value_for_all_rows_of_a_histogram() -> None:
    @tw.program
    def several(xs: tw.u8["n"], begun: tw.f32[4], weight: tw.f32) -> Any:
        counts = tw.hist("add", 0, 4, xs, 1)
        both = tw.hist(lambda a, b: (a[0] + b[0], a[1] + b[1]), (0, 0.0), 4, xs, 1, 0.5)
        return counts, tw.hist("add", 0, begun, xs, 0.5), tw.hist("max", 0, 4, xs, weight), *both

    xs, begun = np.array([0, 3, 3, 9], np.uint8), np.ones(4, np.float32)
    counts = np.array([1, 0, 0, 2])
    wanted = (counts, begun + counts.astype("f4") / 2, np.where(counts > 0, np.float32(7), np.float32(0)))
    run(several, (xs, begun, np.float32(7)), (*wanted, counts, counts / 2), "cpu")

    @tw.program
    def of_text(xs: tw.i64["n"]) -> Any:
        return tw.hist("add", 0, 4, xs, "one")

    with pytest.raises(TypeError, match="must be an array, not 'one'"):
        of_text(np.arange(3))


@both_targets
def test_histogram(target: str) -> None:
    @tw.program
    def histogram(xs: tw.f32["n"], low: tw.f32, high: tw.f32, bins: tw.i64) -> Any:
        scale = bins.astype(tw.f32) / (high - low)
        places = tw.map(lambda x: tw.floor((x - low) * scale).astype(tw.i64), xs)
        return tw.hist(operator.add, 0, bins, places, tw.map(lambda _: 1, places))

    xs = R.random(200, "f4")
    expected = np.histogram(xs, 8, (0, 1))[0]
    run(histogram, (xs, np.float32(0), np.float32(1), np.int64(8)), expected, target)


@both_targets
def test_mandelbrot(target: str) -> None:
    @tw.program
    def mandelbrot(height: tw.i64, width: tw.i64, limit: tw.i64) -> Any:
        def escape(cx: Any, cy: Any) -> Any:
            def inside(x: Any, y: Any, k: Any) -> Any:
                return (x * x + y * y <= 4) & (k < limit)

            def step(x: Any, y: Any, k: Any) -> Any:
                return x * x - y * y + cx, 2 * x * y + cy, k + 1

            return tw.while_loop(inside, (0.0, 0.0, 0), step)[2]

        def row(i: Any) -> Any:
            cy = i.astype(tw.f64) * 0.25 - 1
            return tw.map(lambda j: escape(j.astype(tw.f64) * 0.25 - 2, cy), tw.iota(width))

        return tw.map(row, tw.iota(height))

    expected = np.zeros((10, 13), np.int64)
    for i, j in np.ndindex(10, 13):
        c, z = complex(j * 0.25 - 2, i * 0.25 - 1), 0j  # exact: multiply-adds may round once
        while abs(z) <= 2 and expected[i, j] < 20:
            z, expected[i, j] = z * z + c, expected[i, j] + 1
    run(mandelbrot, (np.int64(10), np.int64(13), np.int64(20)), expected, target)


@both_targets
def test_k_means_assignment_and_update(target: str) -> None:
    @tw.program
    def k_means_step(points: tw.f64["n", "d"], centres: tw.f64["k", "d"]) -> Any:
        k, d = centres.shape

        def nearer(a: Any, b: Any) -> Any:
            first = (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] <= b[1]))
            return tw.where(first, a[0], b[0]), tw.where(first, a[1], b[1])

        def nearest(point: Any) -> Any:
            distances = tw.map(lambda centre: tw.reduce("+", 0, (point - centre) ** 2), centres)
            return tw.reduce(nearer, (math.inf, k), distances, tw.iota(k))[1]

        owners = tw.map(nearest, points)
        counts = tw.hist("+", 0, k, owners, tw.map(lambda _: 1, owners))
        sums = tw.hist(lambda a, b: a + b, tw.replicate(d, 0.0), k, owners, points)
        return owners, tw.map(lambda total, count: tw.map(lambda x: x / tw.maximum(count, 1), total), sums, counts)

    points = R.normal(size=(30, 3))
    centres = points[:4]
    owners = ((points[:, None] - centres) ** 2).sum(2).argmin(1)
    means = np.stack([points[owners == one].mean(0) for one in range(4)])
    run(k_means_step, (points, centres), (owners, means), target)


@both_targets
def test_stencil_in_time(target: str) -> None:
    @tw.program
    def heat(steps: tw.i64, grid: tw.f64["n", "m"]) -> Any:
        def step(_: Any, u: Any) -> Any:
            middle = u[1:-1, 1:-1]
            around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
            new = middle + 0.1 * (around - 4 * middle)
            rows = tw.concat(u[1:-1, :1], new, u[1:-1, -1:], axis=1)
            return tw.concat(u[:1], rows, u[-1:])

        return tw.loop(steps, grid, step)

    grid = R.random((7, 6))
    expected = grid.copy()
    for _ in range(3):
        around = expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2] + expected[1:-1, 2:]
        expected[1:-1, 1:-1] += 0.1 * (around - 4 * expected[1:-1, 1:-1])
    run(heat, (np.int64(3), grid), expected, target)


@both_targets
def test_black_scholes(target: str) -> None:
    def normal(x: Any) -> Any:
        k = 1 / (1 + 0.2316419 * abs(x))
        terms = 0.0
        for factor in (1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.319381530):
            terms = (terms + factor) * k
        tail = 0.39894228 * np.exp(-x * x / 2) * terms
        return tw.where(x < 0, tail, 1 - tail)

    def call(spot: Any, strike: Any, years: Any, rate: Any, volatility: Any) -> Any:
        root = volatility * np.sqrt(years)
        d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / root
        return spot * normal(d1) - strike * np.exp(-rate * years) * normal(d1 - root)

    @tw.program
    def black_scholes(
        spots: tw.f64["n"], strikes: tw.f64["n"], years: tw.f64["n"], rate: tw.f64, volatility: tw.f64
    ) -> Any:
        return tw.map(lambda *option: call(*option, rate, volatility), spots, strikes, years)

    given = (R.uniform(5, 30, 20), R.uniform(1, 100, 20), R.uniform(0.25, 10, 20), np.float64(0.02), np.float64(0.3))
    run(black_scholes, given, call(*given), target)


@both_targets
def test_n_body(target: str) -> None:
    @tw.program
    def forces(xs: tw.f64["n"], ys: tw.f64["n"], masses: tw.f64["n"]) -> Any:
        def pull(x: Any, y: Any) -> Any:
            def part(px: Any, py: Any, mass: Any) -> Any:
                dx, dy = px - x, py - y
                factor = mass / (dx * dx + dy * dy + 0.01) ** 1.5
                return dx * factor, dy * factor

            return tw.redomap(lambda a, b: (a[0] + b[0], a[1] + b[1]), (0, 0), part, xs, ys, masses)

        return tw.map(pull, xs, ys)

    xs, ys, masses = R.random((3, 12))
    dx, dy = xs - xs[:, None], ys - ys[:, None]
    factor = masses / (dx * dx + dy * dy + 0.01) ** 1.5
    run(forces, (xs, ys, masses), ((dx * factor).sum(1), (dy * factor).sum(1)), target)


@both_targets
def test_longest_run_by_an_associative_operator_of_three_values(target: str) -> None:
    @tw.program
    def maximum_segment_sum(xs: tw.i64["n"]) -> Any:
        def joined(a: Any, b: Any) -> Any:
            best, start, end, total = a
            best_b, start_b, end_b, total_b = b
            return (
                tw.maximum(tw.maximum(best, best_b), end + start_b), tw.maximum(start, total + start_b),
                tw.maximum(end + total_b, end_b), total + total_b,
            )  # fmt: skip

        def one(x: Any) -> Any:
            up = tw.maximum(x, 0)
            return up, up, up, x

        return tw.redomap(joined, (0, 0, 0, 0), one, xs)[0]

    xs = R.integers(-9, 10, 50)
    best = max(xs[i:j].sum() for i in range(51) for j in range(i, 51))
    run(maximum_segment_sum, (xs,), np.int64(best), target)


@both_targets
def test_game_of_life(target: str) -> None:
    @tw.program
    def life(cells: tw.u8["n", "m"]) -> Any:
        n, m = cells.shape

        def cell(i: Any, j: Any) -> Any:
            around = [cells[(i + n + a) % n, (j + m + b) % m] for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
            alive = sum(around[1:], start=around[0])
            return tw.where((alive == 3) | ((alive == 2) & (cells[i, j] == 1)), 1, 0).astype(tw.u8)

        return tw.map(lambda i: tw.map(lambda j: cell(i, j), tw.iota(m)), tw.iota(n))

    cells = R.integers(0, 2, (6, 8)).astype("u1")
    alive = sum(np.roll(cells, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)
    expected = ((alive == 3) | ((alive == 2) & (cells == 1))).astype("u1")
    run(life, (cells,), expected, target)
