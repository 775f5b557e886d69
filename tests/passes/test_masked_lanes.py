"""Loops over independent iterations in the lanes of vectors: the same results as one iteration after the other."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from named_cpus import machine_for, processor_at_hand, region_of

import tilewright as tw
from tilewright.ir.scalars import BOOL, F32, F64, I32, I64, ScalarType
from tilewright.kernel.ir import (
    AnyLane,
    Assign,
    Buffer,
    Cast,
    Constant,
    Declare,
    Expression,
    For,
    If,
    Kernel,
    Let,
    Name,
    ScalarParameter,
    Statement,
    Store,
    While,
    add,
    integer,
    load,
    operation,
)
from tilewright.kernel.opencl import opencl_text
from tilewright.kernel.traversal import walk
from tilewright.passes.items.scalar_values import KernelBuilder
from tilewright.passes.lanes import masked_lanes
from tilewright.passes.lanes.lane_variance import NotInLanes, lane_variance
from tilewright.passes.lanes.masked_lanes import OneByOne, emit_in_lanes

N = Name("n", I64)
TABLE = 16
INDEX = Name("j", I64)


class Generator:
    """Random code on three variables of one type; every loop ends after at most a few rounds."""

    def __init__(self, seed: int, scalar: ScalarType) -> None:
        self.random = random.Random(seed)
        self.scalar = scalar
        self.count = 0
        self.variables = [Name(one, scalar) for one in "abc"]
        self.source, self.table = Buffer("source", scalar, read_only=True), Buffer("table", scalar, read_only=True)

    def fresh(self, type_: ScalarType) -> Name:
        self.count += 1
        return Name(f"t{self.count}", type_)

    def number(self) -> Constant:
        value = self.random.randint(-3, 3)
        return Constant(float(value) if self.scalar.is_float else value, self.scalar)

    def value(self) -> Expression:
        kind = self.random.random()
        if kind < 0.2:
            return self.number()
        one = self.random.choice(self.variables)
        if kind < 0.4:
            return one
        if self.scalar.is_float:
            return operation(self.random.choice(("add", "sub", "min", "max")), one, self.random.choice(self.variables))
        operators = ("add", "sub", "mul", "min", "max", "and", "xor", "floordiv", "mod")
        return operation(self.random.choice(operators), one, self.random.choice((*self.variables, self.number())))

    def place(self, depth: int = 2) -> Expression:
        """An index that grows with the point's, but for edges; or one of the values' own."""
        kind = self.random.random()
        if depth and kind < 0.4:
            operator = self.random.choice(("min", "max", "mod", "add", "sub"))
            by = N if operator in ("min", "mod") else integer(self.random.randint(-2, 2))
            return operation(operator, self.place(depth - 1), by)
        if depth and kind < 0.5:
            return operation("select", self.condition(), integer(0), self.place(depth - 1))
        return INDEX if kind < 0.9 else Cast(self.random.choice(self.variables), I64)

    def read(self) -> list[Statement]:
        """Read the source where it has an element, or the table anywhere."""
        at, inside, variable = self.fresh(I64), self.fresh(BOOL), self.random.choice(self.variables)
        if self.random.random() < 0.3:
            there = operation("and", Cast(variable, I64), integer(TABLE - 1))
            return [Assign(variable.name, load(self.table, there))]
        within = operation("and", operation("ge", at, integer(0)), operation("lt", at, N))
        found = Assign(variable.name, load(self.source, at))
        return [Let(at.name, self.place()), Let(inside.name, within), If(inside, (found,))]

    def condition(self) -> Expression:
        return operation(self.random.choice(("lt", "le", "eq", "ne")), self.value(), self.value())

    def rounds(self) -> Expression:
        """A number of rounds from 0 to 7, often another one in each lane."""
        if self.random.random() < 0.4:
            return Constant(self.random.randint(0, 5), I64)
        whole = Cast(self.random.choice(self.variables), I64)
        return operation("and", whole, Constant(7, I64))

    def block(self, depth: int) -> tuple[Statement, ...]:
        found: list[Statement] = []
        for _ in range(self.random.randint(1, 4)):
            found += self.statement(depth)
        return tuple(found)

    def statement(self, depth: int) -> list[Statement]:
        kind = self.random.random() if depth else 0.0
        if self.random.random() < 0.2:
            return self.read()
        if kind < 0.4:
            held = self.fresh(self.scalar)
            return [Let(held.name, self.value()), Assign(self.random.choice(self.variables).name, held)]
        if kind < 0.6:
            return [If(self.condition(), self.block(depth - 1), self.block(depth - 1) if kind < 0.5 else ())]
        if kind < 0.75:
            index = self.fresh(I64)
            return [For(index.name, Constant(0, I64), self.rounds(), self.block(depth - 1))]
        # while: a variable of its own counts, and the condition asks for something else too
        counter, most, own = self.fresh(I64), self.fresh(I64), self.fresh(self.scalar)
        going, further = self.fresh(BOOL), self.fresh(BOOL)
        prelude = (
            Let(going.name, operation("lt", counter, most)),
            Let(further.name, operation("and", going, self.condition())),
        )
        self.variables.append(own)
        body = (*self.block(depth - 1), Assign(counter.name, add(counter, integer(1))))
        self.variables.remove(own)
        return [
            Declare(counter.name, integer(0)), Declare(own.name, self.value()), Let(most.name, self.rounds()),
            While(prelude, further, body),
        ]  # fmt: skip


def kernels(seed: int, scalar: ScalarType, machine: Any) -> tuple[Kernel, Kernel]:
    """The same work one by one and in lanes."""
    generator = Generator(seed, scalar)
    source, table = generator.source, generator.table
    out, other = Buffer("out", scalar), Buffer("other", scalar)
    first = Let("x", load(source, INDEX))
    start = [Declare("a", Name("x", scalar)), Declare("b", generator.number()), Declare("c", Name("s", scalar))]
    inner = For("k", integer(0), integer(2), generator.block(3))
    stores = [
        Store(out, INDEX, Name("a", scalar)),
        Store(other, INDEX, operation("add", Name("b", scalar), Name("c", scalar))),
    ]
    body = (first, *start, inner, *stores)
    buffers, scalars = (source, table, out, other), (ScalarParameter("n", I64), ScalarParameter("s", scalar))
    emit = KernelBuilder()
    with patch.object(masked_lanes, "_gathers_pay", return_value=True):
        assert isinstance(emit_in_lanes(emit, (integer(0), N), INDEX, body, machine), int)
    one = Kernel("one", buffers, scalars, (), (For(INDEX.name, integer(0), N, body),))
    return one, Kernel("lanes", buffers, scalars, (), emit.statements)


def compare(seed: int, scalar: ScalarType, count: int, name: str) -> None:
    machine = machine_for(name)
    rng = np.random.default_rng(seed)
    xs, table = (rng.integers(-9, 9, length).astype(scalar.numpy) for length in (count, TABLE))
    found = []
    for kernel in kernels(seed, scalar, machine):
        outs = [np.full(count + 3, 77, scalar.numpy) for _ in range(2)]
        regions = [region_of(one) for one in (xs, table, *outs)]
        processor_at_hand(name).run(kernel, "none", regions, (count, scalar.numpy.type(2)), 1)
        found.append(outs)
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
        assert (two[count:] == 77).all()  # nothing is written past the end


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from([I32, I64, F32, F64]), st.integers(1, 70))
def test_lanes_give_what_one_by_one_gives(seed: int, scalar: ScalarType, count: int) -> None:
    compare(seed, scalar, count, "x86-64" if seed % 5 == 0 else "haswell")


@pytest.mark.parametrize("name", ["x86-64", "haswell", "znver4", "neoverse-n1"])
def test_on_other_processors(name: str) -> None:
    for seed in range(4 if "neoverse" in name else 25):
        compare(seed, (I32, F32, I64, F64)[seed % 4], 37 + seed, name)


# --- programs


@tw.program
def collatz(xs: tw.i64["n"]) -> Any:
    def steps(x: Any) -> Any:
        def next_one(value: Any, count: Any) -> Any:
            return tw.where(value % 2 == 0, value // 2, 3 * value + 1), count + 1

        return tw.while_loop(lambda value, count: value > 1, (x, tw.cast(0, "i32")), next_one)[1]

    return tw.map(steps, xs)


@tw.program
def roots(xs: tw.f64["n"], limit: tw.i32) -> Any:
    """Newton's method until the step is small; a loop inside of a branch that few points take."""

    def root(x: Any) -> Any:
        def improve(y: Any, count: Any, change: Any) -> Any:
            better = 0.5 * (y + x / y)
            return better, count + 1, abs(better - y)

        def inside(y: Any, count: Any, change: Any) -> Any:
            return (change > 1e-9) & (count < limit)

        def found() -> Any:
            return tw.while_loop(inside, (x, tw.cast(0, "i32"), x), improve)[0]

        return tw.cond(x > 0, found, lambda: 0 * x)

    return tw.map(root, xs)


@tw.program
def powers(xs: tw.f32["n", "m"], exponents: tw.i64["m"]) -> Any:
    """Rounds that differ from point to point."""

    def power(x: Any, k: Any) -> Any:
        return tw.loop(k, 0 * x + 1, lambda _, y: y * x)

    return tw.map(lambda row: tw.map(power, row, exponents), xs)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 16, 33, 100])
def test_while_loops(count: int) -> None:
    xs = np.arange(count)
    expected = []
    for x in xs:
        steps = 0
        while x > 1:
            x, steps = (x // 2 if x % 2 == 0 else 3 * x + 1), steps + 1
        expected.append(steps)
    np.testing.assert_array_equal(collatz(xs, target="cpu"), np.array(expected, np.int32))


@pytest.mark.parametrize("count", [1, 5, 31, 64, 200])
def test_loops_in_branches(count: int) -> None:
    """A loop that would never end where the branch is not taken (x = nan and negative numbers)."""
    xs = np.random.default_rng(count).uniform(-1, 4, count)
    xs[::7] = np.nan
    found = roots(xs, np.int32(2**31 - 1), target="cpu")
    np.testing.assert_allclose(found, np.where(xs > 0, np.sqrt(np.abs(xs)), 0 * xs), rtol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 40)])
def test_rounds_that_differ(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    xs, exponents = rng.integers(1, 3, shape).astype(np.float32), rng.integers(0, 20, shape[1])
    np.testing.assert_array_equal(powers(xs, exponents, target="cpu"), xs ** exponents.astype(np.float32))


def test_explain_tells_of_lanes() -> None:
    assert "a kernel over n points, " in roots.explain(target="cpu")
    assert "of them at once in the lanes of vectors" in roots.explain(target="cpu")


# --- memory that is not read side by side


@tw.program
def smoothed(image: tw.f32["n", "m"], radius: tw.i64) -> Any:
    """A mean weighted by distance and likeness, at clamped indices."""
    n, m = image.shape

    def pixel(i: Any, j: Any) -> Any:
        def add_one(k: Any, e: Any, total: Any, weight: Any) -> Any:
            there = image[tw.minimum(tw.maximum(i + k, 0), n - 1), tw.minimum(tw.maximum(j + e, 0), m - 1)]
            own = tw.exp(-((there - image[i, j]) ** 2) - tw.cast(k * k + e * e, "f32"))
            return total + own * there, weight + own

        def add_row(k: Any, total: Any, weight: Any) -> Any:
            return tw.loop(2 * radius + 1, (total, weight), lambda e, t, w: add_one(k - radius, e - radius, t, w))

        total, weight = tw.loop(2 * radius + 1, (tw.cast(0, "f32"), tw.cast(0, "f32")), add_row)
        return total / weight

    return tw.map(lambda i: tw.map(lambda j: pixel(i, j), tw.iota(m)), tw.iota(n))


@pytest.mark.parametrize("shape", [(1, 1), (2, 7), (5, 33), (3, 100)])
def test_clamped_neighbours(shape: tuple[int, int]) -> None:
    image, radius = np.random.default_rng(3).random(shape, dtype=np.float32), 2
    wide = np.pad(image.astype(np.float64), radius, mode="edge")
    total, weight = np.zeros(shape), np.zeros(shape)
    for k in range(2 * radius + 1):
        for j in range(2 * radius + 1):
            there = wide[k : k + shape[0], j : j + shape[1]]
            own = np.exp(-((there - image) ** 2) - (k - radius) ** 2 - (j - radius) ** 2)
            total, weight = total + own * there, weight + own
    assert "of them at once in the lanes of vectors" in smoothed.explain(target="cpu")
    # 25 terms, all positive, each with a rounding of its own and those of the sum; twice
    np.testing.assert_allclose(smoothed(image, radius, target="cpu"), total / weight, rtol=2 * 40 * 2**-23)


@tw.program
def found(table: tw.f32["k"], xs: tw.f32["n"]) -> Any:
    """Binary search: each point's own places, at checked indices."""
    (k,) = table.shape

    def place(x: Any) -> Any:
        def step(low: Any, high: Any) -> Any:
            middle = (low + high) // 2
            up = table[middle] <= x
            return tw.where(up, middle + 1, low), tw.where(up, high, middle)

        return tw.while_loop(lambda low, high: low < high, (tw.cast(0, "i64"), k), step)[0]

    return tw.map(place, xs)


@given(st.integers(1, 40), st.integers(0, 70), st.integers(0, 2**16))
def test_searches(k: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, xs = np.sort(rng.random(k, dtype=np.float32)), rng.random(n, dtype=np.float32)
    np.testing.assert_array_equal(found(table, xs, target="cpu"), np.searchsorted(table, xs, side="right"))


@tw.program
def chased(following: tw.i64["k"], starts: tw.i64["n"], rounds: tw.i64["n"]) -> Any:
    def point(start: Any, count: Any) -> Any:
        return tw.loop(count, start, lambda _, at: following[at])

    return tw.map(point, starts, rounds)


@pytest.mark.parametrize("bad", [None, 0, 13, 40])
def test_a_lane_that_reads_outside_is_named(bad: int | None) -> None:
    """And those whose rounds are over read nothing."""
    k, n = 20, 41
    rng = np.random.default_rng(4)
    following, starts = rng.permutation(k), rng.integers(0, k, n)
    rounds = rng.integers(1, 6, n)
    starts[0], rounds[0] = 10**12, 0
    if bad is not None:
        starts[bad], rounds[bad] = 77, 2
    assert "of them at once in the lanes of vectors" in chased.explain(target="cpu")
    if bad is not None:
        named = "in program chased: index 77 of following is out of range in dimension 0"
        with pytest.raises(IndexError, match=named):
            chased(following, starts, rounds, target="cpu")
        return
    expected = []
    for at, count in zip(starts, rounds, strict=True):
        for _ in range(count):
            at = following[at]
        expected.append(at)
    np.testing.assert_array_equal(chased(following, starts, rounds, target="cpu"), expected)


# --- what is declined


@tw.program
def sparse(start: tw.i64["k"], columns: tw.i64["z"], values: tw.f32["z"], x: tw.f32["m"]) -> Any:
    def row(i: Any) -> Any:
        low, high = start[i], start[i + 1]
        zero = tw.cast(0, "f32")
        return tw.loop(high - low, zero, lambda e, total: total + values[low + e] * x[columns[low + e]])

    return tw.map(row, tw.iota(start.shape[0] - 1))


def test_loops_that_count_through_places_stay_one_by_one() -> None:
    assert "one by one is as fast" in sparse.explain(target="cpu")


def test_what_is_not_side_by_side_is_declined() -> None:
    x, out = Buffer("x", F32, read_only=True), Buffer("out", F32)
    far = operation("mul", INDEX, integer(3))
    cases: list[tuple[Statement, ...]] = [
        (Store(out, far, Constant(1.0, F32)),),
        (Store(out, operation("and", INDEX, integer(7)), load(x, INDEX)),),
        (Store(out, INDEX, load(x, far)),),
        (Store(out, INDEX, load(out, INDEX)),),
        (Store(out, integer(0), Constant(1.0, F32)),),
        (Assign("outer", Constant(1.0, F32)),),
    ]
    for body in cases:
        looping = (*body, For("k", integer(0), integer(3), ()))
        emit = KernelBuilder()
        found = emit_in_lanes(emit, (integer(0), N), INDEX, looping, machine_for("haswell"))
        assert isinstance(found, OneByOne) and found.scalar
        with pytest.raises(NotInLanes, match=re.escape(found.reason)):
            lane_variance(INDEX, body)
        assert not emit.statements


def test_plain_code_is_left_to_the_compiler() -> None:
    x, out = Buffer("x", F32, read_only=True), Buffer("out", F32)
    body = (Store(out, INDEX, operation("add", load(x, INDEX), load(x, INDEX))),)
    found = emit_in_lanes(KernelBuilder(), (integer(0), N), INDEX, body, machine_for("haswell"))
    assert isinstance(found, OneByOne) and not found.scalar
    without = replace(machine_for("haswell"), vector_bytes=0)
    looping = (*body, For("k", integer(0), integer(3), ()))
    assert emit_in_lanes(KernelBuilder(), (integer(0), N), INDEX, looping, without) == OneByOne(
        "the machine has no vectors", scalar=False
    )


def test_variables_that_nobody_reads_afterwards_are_not_kept() -> None:
    """Only the count is read after the loop: lanes that are done need not keep x."""
    x, out = Buffer("x", F32, read_only=True), Buffer("out", I32)
    value, count = Name("value", F32), Name("count", I32)
    loop = While(
        (Let("going", operation("lt", value, Constant(9.0, F32))),), Name("going", BOOL),
        (Assign("value", operation("add", value, value)), Assign("count", operation("add", count, Constant(1, I32)))),
    )  # fmt: skip
    body = (Declare("value", load(x, INDEX)), Declare("count", Constant(0, I32)), loop, Store(out, INDEX, count))
    emit = KernelBuilder()
    assert emit_in_lanes(emit, (integer(0), N), INDEX, body, machine_for("znver4")) == 32  # two vectors of 16 lanes
    chosen = {
        one.name.split("_")[0] for one in walk(emit.statements) if isinstance(one, Assign) and "select" in str(one)
    }
    assert chosen == {"count"}
    with pytest.raises(TypeError, match="CPU kernels only"):
        text = Kernel("k", (x, out), (ScalarParameter("n", I64),), (), emit.statements)
        opencl_text(text)
    assert any(isinstance(one, Let) and isinstance(one.value, AnyLane) for one in walk(emit.statements))


@pytest.mark.parametrize(
    ("element", "operator", "divisor", "name", "together"),
    [
        (F32, "mod", "read", "haswell", True), (F64, "floordiv", "constant", "haswell", True),
        (I32, "floordiv", "read", "haswell", True), (I32, "mod", "constant", "znver4", False),
        (I64, "mod", "read", "znver4", True), (I64, "mod", "read", "haswell", False),
        (I64, "mod", "index", "znver4", False),
    ],
)  # fmt: skip
def test_divisions_of_what_was_read_go_on_in_lanes(
    element: ScalarType, operator: str, divisor: str, name: str, together: bool
) -> None:
    """Not those by constants, which the compiler multiplies, nor those of indices."""
    x, out = Buffer("x", element, read_only=True), Buffer("out", element)
    value = Name("value", element)
    right = {"read": value, "constant": Constant(3, element), "index": Name("n", I64)}[divisor]
    left = INDEX if divisor == "index" else Constant(7, element) if divisor == "read" else value
    body = (Let("value", load(x, INDEX)), Store(out, INDEX, operation(operator, left, right)))
    found = emit_in_lanes(KernelBuilder(), (integer(0), N), INDEX, body, machine_for(name))
    assert isinstance(found, int) == together
