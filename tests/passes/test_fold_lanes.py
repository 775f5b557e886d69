"""Folds inside a work item of a CPU: in lanes, as a tree, where there are enough rows."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples, random_values

import tilewright as tw
from tilewright.ir.scalars import C64, F16, F32, F64, I8, I32, U16, ScalarType, scalar_type_of
from tilewright.kernel.ir import For, Kernel
from tilewright.kernel.llvm import CpuTarget, llvm_text
from tilewright.kernel.traversal import walk
from tilewright.passes.flattening.kinds import Flattening
from tilewright.passes.items.lower_columns import COLUMNS
from tilewright.passes.points.lower_reduction import BRANCHES, LANES, LEAST_ROWS
from tilewright.runtime import cpu_device

ROUNDING = {F32: np.finfo("f4").eps, F64: np.finfo("f8").eps, C64: 2 * np.finfo("f4").eps, F16: np.finfo("f2").eps}
AROUND = [1, LANES, LEAST_ROWS - 1, LEAST_ROWS, LEAST_ROWS + 1, BRANCHES * LANES + 5, BRANCHES**2 * LANES + 77]


def check(text: str, arrays: list[np.ndarray], scalar: ScalarType, length: int) -> None:
    """Exact for integers; else within length units of rounding of the sum of absolute values, and its own rounding."""
    got = tw.einsum(text, *arrays)
    if scalar.is_integer:
        np.testing.assert_array_equal(got, np.einsum(text, *arrays))
        return
    wide = [one.astype("c16" if scalar.is_complex else "f8") for one in arrays]
    exact, size = np.einsum(text, *wide), np.einsum(text, *(np.abs(one) for one in wide))
    assert (np.abs(got - exact) <= ROUNDING[scalar] * ((length + 2) * size + np.abs(exact))).all()


@settings(max_examples=examples(40))
@given(
    text=st.sampled_from(["i->", "bi->b", "ib->b", "bi->", "bci->c", "i,i->", "bi,bi->b", "ib,ib->b", "bi,i->b"]),
    length=st.sampled_from(AROUND),
    scalar=st.sampled_from([F32, F64, C64, F16, I8, I32, U16]),
    step=st.sampled_from([1, 1, 2, -1]),
    seed=st.integers(0, 100),
)
def test_sums_and_dots(text: str, length: int, scalar: ScalarType, step: int, seed: int) -> None:
    sizes = {"b": 3, "c": 2, "i": length}
    generator = np.random.default_rng(seed)
    arrays: list[np.ndarray] = []
    terms = text.partition("->")[0].split(",")
    for term in terms:
        shape = [sizes[label] * (2 if step == 2 else 1) for label in term]
        values = random_values(generator, scalar, math.prod(shape)).reshape(shape)
        arrays.append(values[tuple(slice(None, None, step) for _ in term)])
    total = length * math.prod(sizes[one] for one in terms[0] if one != "i")
    check(text, arrays, scalar, total)


@pytest.mark.parametrize("length", AROUND)
@pytest.mark.parametrize("name", ["min_plus", "max_plus", "max_times"])
def test_other_operators(name: str, length: int) -> None:
    """They pick an element, so nothing is rounded but the map."""
    generator = np.random.default_rng(1)
    a, b = generator.standard_normal((2, 3, length)).astype("f4")
    function = np.multiply if name == "max_times" else np.add
    pick: Any = np.min if name == "min_plus" else np.max
    np.testing.assert_array_equal(tw.einsum("bi,bi->b", a, b, semiring=name), pick(function(a, b), axis=1))
    a[1, length // 2] = np.nan
    got = tw.einsum("bi,bi->b", a, b, semiring=name)
    assert np.isnan(got).tolist() == [False, True, False]


@pytest.mark.parametrize("value", [1.0 + 8196 * np.finfo("f8").eps, 1 / 3, 0.1])
@pytest.mark.parametrize("length", [1_000_000, 999_983])
def test_a_sum_of_a_million_terms_is_a_tree(value: float, length: int) -> None:
    """Terms that are all equal, whose rounding errors add up in one direction: a fold in a few lanes is off by
    thousands of units. A fold of b values from the neutral element on errs by at most (b - 1)/2 units of each of its
    partial sums, relative to the result; what a node of the tree adds up is within twice its mean.
    """
    nodes = 3 * BRANCHES + length // (LANES * BRANCHES**3) + math.log2(LANES) + 1
    got = float(tw.einsum("i->", np.full(length, value)))
    exact = math.fsum([value] * length)
    assert abs(got - exact) <= nodes / 2 * np.finfo("f8").eps * exact


@settings(max_examples=examples(30))
@given(
    text=st.sampled_from(["ij->j", "bij->bj", "ibj->bj", "bij->jb", "ji->j", "bji->bj"]),
    columns=st.sampled_from([1, 5, COLUMNS - 1, COLUMNS, COLUMNS + 1, 2 * COLUMNS + 3]),
    rows=st.sampled_from([1, 2, 9, LEAST_ROWS]),
    scalar=st.sampled_from([F32, F64, C64, F16, I8, I32]),
    step=st.sampled_from([1, 1, 2, -1]),
    seed=st.integers(0, 100),
)
def test_sums_of_columns(text: str, columns: int, rows: int, scalar: ScalarType, step: int, seed: int) -> None:
    sizes = {"b": 2, "i": rows, "j": columns}
    shape = [sizes[label] * (2 if step == 2 else 1) for label in text.partition("->")[0]]
    values = random_values(np.random.default_rng(seed), scalar, math.prod(shape)).reshape(shape)
    check(text, [values[tuple(slice(None, None, step) for _ in shape)]], scalar, rows)


@pytest.mark.parametrize("flattening", [None, "full", "incremental"])
@pytest.mark.parametrize("rows", [1, 6, 37])
def test_an_operator_may_use_values_of_its_point(rows: int, flattening: Flattening | None) -> None:
    """Largest for some points, sum for the others; the points are numbers in order, or given."""

    def of(number: Any, xs: Any) -> Any:
        return tw.reduce(lambda a, b: tw.where(number > 1, tw.maximum(a, b), a + b), 0.0, xs)

    @tw.program(flattening=flattening)
    def numbered(numbers: tw.i64["k"], xs: tw.f64["n"]) -> Any:
        return tw.map(lambda i: of(i, xs), tw.iota(numbers.shape[0]))

    @tw.program(flattening=flattening)
    def given_numbers(numbers: tw.i64["k"], xs: tw.f64["n"]) -> Any:
        return tw.map(lambda i: of(i, xs), numbers)

    xs = np.arange(600.0)
    want = np.where(np.arange(rows) > 1, xs.max(), xs.sum())
    for program in (numbered, given_numbers):
        np.testing.assert_array_equal(program(np.arange(rows), xs), want)


@settings(max_examples=examples(40))
@given(
    operator=st.sampled_from(["max", "min"]),
    dtype=st.sampled_from(["float32", "float64", "float16", "int32", "int64", "uint8"]),
    length=st.one_of(st.integers(1, 140), st.sampled_from([LANES * 16, LANES * 16 + 1, 1300])),
    nans=st.booleans(),
    seed=st.integers(0, 100),
)
def test_least_and_greatest_elements_of_rows(operator: str, dtype: str, length: int, nans: bool, seed: int) -> None:
    """Beside other code of the same row, which has the fold in registers; nan is the least and the greatest of all."""
    data = np.random.default_rng(seed).integers(0, 100, (5, length)).astype(dtype)
    element = getattr(tw, str(scalar_type_of(dtype)))
    if nans and data.dtype.kind == "f":
        data[np.random.default_rng(seed).random(data.shape) < 1 / length] = np.nan
    worst = data.dtype.type(101 if operator == "min" else 0)

    @tw.program
    def differences(rows: element["n", "m"]) -> Any:  # type: ignore[valid-type]
        def one(row: Any) -> Any:
            best = tw.reduce(operator, worst, row)
            return best, tw.map(lambda x: x - best, row)

        return tw.map(one, rows)

    best = (np.max if operator == "max" else np.min)(data, axis=1)
    got = differences(data)
    np.testing.assert_array_equal(got[0], best)
    np.testing.assert_array_equal(got[1], data - best[:, None])


@pytest.mark.parametrize("length", [1, 23, 24, 31, 32, 33, 200, 5000])
def test_the_first_of_the_least_elements_of_rows(length: int) -> None:
    data = np.random.default_rng(length).integers(0, 9, (7, length)).astype(np.float32)

    def earlier(a: Any, b: Any) -> Any:
        return tw.where(b[0] < a[0], b[0], a[0]), tw.where(b[0] < a[0], b[1], a[1])

    @tw.program
    def first_least(rows: tw.f32["n", "m"]) -> Any:
        def one(row: Any) -> Any:
            value, place = tw.reduce(earlier, (np.inf, 0), row, tw.iota(row.shape[0]))
            return place, tw.map(lambda x: x - value, row)

        return tw.map(one, rows)

    places, differences = first_least(data)
    np.testing.assert_array_equal(places, data.argmin(axis=1))
    np.testing.assert_array_equal(differences, data - data.min(axis=1, keepdims=True))


@pytest.mark.parametrize(("element", "lane_loops"), [("f64", 0), ("f16", 3)])
def test_only_rows_are_taken_by_loops_over_lanes(
    element: str, lane_loops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM takes far longer to make vectors of loops than to print them: partial results are vectors everywhere else.

    Numbers of two bytes are folded in three loops over lanes: whole rounds, steps, and what is left.
    """
    kernels: list[Kernel] = []

    def seen(kernel: Kernel, cpu: CpuTarget) -> str:
        kernels.append(kernel)
        return llvm_text(kernel, cpu)

    monkeypatch.setattr(cpu_device, "llvm_text", seen)

    def fold(xs: Any) -> Any:
        def one(row: Any) -> Any:
            length = tw.sqrt(tw.reduce("add", 0.0, row * row))
            return row / length

        return tw.map(one, xs)

    fold.__annotations__["xs"] = getattr(tw, element)["n", "m"]
    xs = np.random.default_rng(2).standard_normal((5, 1000)).astype(element.replace("f", "float"))
    wide = xs.astype(np.float64)
    expected = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    rounding = np.finfo(xs.dtype).eps  # of the square, of the sum's 60 levels, of the root, of the quotient
    np.testing.assert_allclose(tw.program(fold)(xs), expected, rtol=64 * rounding)
    loops = [one.index for kernel in kernels for one in walk(kernel.body) if isinstance(one, For)]
    assert sum(one.startswith("lane") for one in loops) == lane_loops, loops
