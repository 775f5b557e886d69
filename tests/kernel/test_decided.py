"""Kernels without the branches that a launch does not take do what whole kernels do, and are compiled when taken."""

# ruff: noqa: F821

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.scalars import BOOL, I64
from tilewright.kernel import ir
from tilewright.kernel.decided import LARGE, Questions, as_decided, evaluated, questions_of
from tilewright.kernel.ir import Buffer, Constant, Name, integer, load, operation
from tilewright.kernel.traversal import walk
from tilewright.passes.compile import compile_program
from tilewright.runtime import cpu_device
from tilewright.runtime.backends import argument_block
from tilewright.runtime.cpu_device import MOST_VERSIONS, compile_for_cpu, taken_by
from tilewright.runtime.cpu_pool import launch
from tilewright.runtime.devices import device_for

OUT, GIVEN = Buffer("out", I64), Buffer("given", I64)
N, M, CHANGED, ROUND = (Name(name, I64) for name in ("n", "m", "changed", "round"))
COMPARED = st.sampled_from(("lt", "le", "gt", "ge", "eq", "ne"))


@st.composite
def quantities(draw, depth=2):
    """Integers of scalars, of what a kernel reads and changes, and of what is computed from these."""
    if not depth or draw(st.booleans()):
        return draw(st.sampled_from((N, M, CHANGED, ROUND, load(GIVEN, integer(0)), integer(3), integer(-2))))
    operator = draw(st.sampled_from(("add", "sub", "mul", "floordiv", "mod", "min", "max")))
    return operation(operator, draw(quantities(depth - 1)), draw(quantities(depth - 1)))


@st.composite
def conditions(draw, depth=1):
    one = operation(draw(COMPARED), draw(quantities()), draw(quantities()))
    if depth and draw(st.booleans()):
        both = one, draw(conditions(depth - 1))
        return operation(draw(st.sampled_from(("and", "or"))), *both)
    return operation("not", one) if draw(st.booleans()) else one


class Writer:
    """Makes bodies in which every name is bound once, and each large one writes what tells it from others."""

    def __init__(self, draw):
        self.draw, self.count = draw, 0

    def number(self):
        self.count += 1
        return self.count

    def body(self, depth):
        kind = self.draw(st.sampled_from(("leaf", "if", "if", "let", "loop"))) if depth else "leaf"
        if kind == "if":
            asked = self.draw(conditions())
            if self.draw(st.booleans()):
                name = f"asked_{self.number()}"
                return (ir.Let(name, asked), ir.If(Name(name, BOOL), self.body(depth - 1), self.body(depth - 1)))
            return (ir.If(asked, self.body(depth - 1), self.body(depth - 1)),)
        if kind == "let":
            return (*self.body(depth - 1), *self.body(depth - 1))
        if kind == "loop":
            return (ir.For(f"i_{self.number()}", integer(0), integer(2), self.body(depth - 1)),)
        mark = self.number()
        stores = [ir.Store(OUT, integer(mark % 7), operation("add", load(OUT, integer(mark % 7)), integer(mark)))]
        return (*stores * self.draw(st.sampled_from((1, LARGE))), ir.Assign("changed", integer(mark)))


@st.composite
def kernels(draw):
    body = Writer(draw).body(3)
    rounds = ir.For("round", integer(0), integer(2), body)
    scalars = ir.ScalarParameter("n", I64), ir.ScalarParameter("m", I64)
    return ir.Kernel("asks", (OUT, GIVEN), scalars, (), (ir.Declare("changed", integer(0)), rounds))


def written(kernel, n, m):
    out, read = np.zeros(7, np.int64), np.array([5], np.int64)
    block = argument_block(kernel, (n, m))
    block[0], block[1] = out.ctypes.data, read.ctypes.data
    launch(compile_for_cpu(kernel), block, 1)
    return out.tolist()


@settings(max_examples=40, deadline=None)
@given(kernels(), st.integers(-3, 6), st.integers(-3, 6))
def test_kernels_without_branches_write_the_same(kernel, n, m):
    whole = written(kernel, n, m)
    for known in ({"n": n, "m": m}, {"n": n}, {"m": m}):
        less = as_decided(kernel, questions_of(kernel).answers(known))
        assert len(list(walk(less.body))) <= len(list(walk(kernel.body)))
        assert written(less, n, m) == whole


def test_what_changes_or_is_read_decides_nothing():
    large = (ir.Store(OUT, integer(0), integer(1)),) * LARGE
    for asked in (CHANGED, ROUND, load(GIVEN, integer(0))):
        many = ir.If(operation("ge", asked, integer(0)), large)
        body = (ir.Declare("changed", N), ir.For("round", integer(0), M, (many, ir.Assign("changed", M))))
        kernel = ir.Kernel("k", (OUT, GIVEN), (ir.ScalarParameter("n", I64), ir.ScalarParameter("m", I64)), (), body)
        assert questions_of(kernel).answers({"n": 1, "m": 1}) == ()


def test_small_branches_stay():
    few = (ir.Store(OUT, integer(0), integer(1)),) * (LARGE - 1)
    kernel = ir.Kernel(
        "k", (OUT,), (ir.ScalarParameter("n", I64),), (), (ir.If(operation("ge", N, integer(0)), few, few),)
    )
    assert questions_of(kernel) == Questions((), {})


@pytest.mark.parametrize("operator, left, right", [("add", 2**63 - 1, 1), ("mul", 2**40, 2**40), ("sub", -(2**63), 1)])
def test_what_would_wrap_around_is_unknown(operator, left, right):
    assert evaluated(operation(operator, integer(left), integer(right)), dict[str, int]().get) is None


def test_one_side_may_decide():
    unknown = operation("ge", CHANGED, integer(0))
    for operator, side, expected in (("and", False, 0), ("or", True, 1), ("and", True, None), ("or", False, None)):
        for sides in ((Constant(side, BOOL), unknown), (unknown, Constant(side, BOOL))):
            assert evaluated(operation(operator, *sides), dict[str, int]().get) == expected


def _asking(conditions_count):
    """A kernel with a large branch for each of several scalars."""
    scalars = tuple(ir.ScalarParameter(f"n{k}", I64) for k in range(conditions_count))
    branches = tuple(
        ir.If(operation("ge", Name(one.name, I64), integer(0)), (ir.Store(OUT, integer(k), integer(1)),) * LARGE)
        for k, one in enumerate(scalars)
    )
    return ir.Kernel("many", (OUT,), scalars, (), branches)


def test_a_kernel_has_few_versions():
    kernel = _asking(4)
    found = {id(taken_by(kernel, {f"n{k}": (number >> k & 1) - 1 for k in range(4)})) for number in range(16)}
    assert len(found) == MOST_VERSIONS + 1  # and the whole kernel, for all others


def test_launches_of_several_threads_get_one_version_each():
    kernel, start = _asking(2), threading.Barrier(8)

    def find(number):
        start.wait()
        return taken_by(kernel, {"n0": number % 2 - 1, "n1": -1})

    with ThreadPoolExecutor(8) as pool:
        assert len({id(one) for one in pool.map(find, range(8))}) == 2


@tw.program
def rows_scanned(xs: tw.f64["n", "m"], ys: tw.f64["n", "m"]):
    """Two scans of each row: in lanes where there are rows enough, and piece by piece where they are long."""

    def row(x, y):
        def times(a, b):
            return a[0] * b[0], a[1] * b[0] + b[1]

        first, second = tw.scan(times, (1.0, 0.0), x, y)
        return tw.map(lambda a, b: a + b, first, second)

    return tw.map(row, xs, ys)


def _expected(xs, ys):
    result = np.empty_like(xs)
    first, second = np.ones(len(xs)), np.zeros(len(xs))
    for k in range(xs.shape[1]):
        first, second = first * xs[:, k], second * xs[:, k] + ys[:, k]
        result[:, k] = first + second
    return result


def test_ways_are_compiled_when_a_call_takes_them(monkeypatch):
    compiled = []

    def noting(kernel):
        if "rows_scanned" in kernel.name:
            compiled.append(len(list(walk(kernel.body))))
        return compile_for_cpu(kernel)

    monkeypatch.setattr(cpu_device, "compile_for_cpu", noting)
    executable = compile_program(rows_scanned.trace(), device_for("cpu"))
    random = np.random.default_rng(1)
    shapes = [(40, 5), (3, 7), (50, 6), (33, 300), (2, 200), (17, 1), (0, 4), (16, 0)]
    for n, m in shapes * 2:
        xs, ys = random.uniform(0.5, 1.5, (2, n, m))
        np.testing.assert_allclose(executable(xs, ys), _expected(xs, ys), rtol=1e-12)
    assert len(set(compiled)) > 1
    assert max(compiled) < sum(set(compiled))


def test_threads_call_with_sizes_that_take_different_ways():
    executable = compile_program(rows_scanned.trace(), device_for("cpu"))
    random = np.random.default_rng(2)
    start = threading.Barrier(6)

    def call(number):
        start.wait()
        for n, m in [(40, 5), (3, 7), (33, 300), (2, 200)][number % 4 :] * 2:
            xs, ys = random.uniform(0.5, 1.5, (2, n, m))
            np.testing.assert_allclose(executable(xs, ys), _expected(xs, ys), rtol=1e-12)
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(call, range(6)))
