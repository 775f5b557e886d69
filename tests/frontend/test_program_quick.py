"""Repeated calls of programs: the short cut gives the same results and refuses the same things as the long way."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from children import true_in_a_child

import tilewright as tw
from tilewright.frontend.program import TracedProgram
from tilewright.runtime import cpu_entry
from tilewright.runtime.thread_count import get_num_threads

pytestmark = pytest.mark.skipif(not cpu_entry.entries_are_possible(), reason="this interpreter has no native entries")


@tw.program
def scaled(factor: tw.f32, xs: tw.f32["n"], ys: tw.f32["n"]) -> Any:
    return tw.map(lambda x, y: factor * x + y, xs, ys)


@tw.program
def shifted(offset: tw.i32, xs: tw.i32["n"]) -> Any:
    return tw.map(lambda x: x + offset, xs)


@tw.program
def sum_and_difference(xs: tw.f64["n"], ys: tw.f64["n"]) -> Any:
    return tw.map(lambda x, y: x + y, xs, ys), tw.reduce("add", 0, tw.map(lambda x, y: x - y, xs, ys))


@tw.program
def picked(xs: tw.f32["n"], places: tw.i64["m"]) -> Any:
    return tw.map(lambda place: xs[place], places)


@tw.program
def normalised(xs: tw.f64["n"]) -> Any:
    total = tw.reduce("add", 0, xs)
    return tw.map(lambda x: x / total, xs)


@tw.program
def rows(xss: tw.float_["n", "m"]) -> Any:
    return tw.map(lambda xs: tw.reduce("add", 0, tw.map(lambda x: x * x, xs)), xss)


@tw.program
def only(xs: tw.f32["n"]) -> Any:
    return (tw.map(lambda x: -x, xs),)


@tw.program
def counted(count: tw.i64, xs: tw.i64["n"]) -> Any:
    return tw.hist("add", 0, count, xs, tw.map(lambda _: 1, xs))


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_TARGET", raising=False)


def taught(program: TracedProgram, *arguments: Any) -> TracedProgram:
    """A copy of a program that has learned to do these arguments the short way."""
    own = program.with_thresholds({})
    for _ in range(3):
        own(*arguments)
    assert own._quick.entries
    return own


def shortly(program: TracedProgram, arguments: tuple[Any, ...], out: Any = None) -> Any:
    """What the short cut gives for a call; None where it leaves it to the long way."""
    given = arguments if out is None else (*arguments, out)
    known = program._quick.known.get((get_num_threads(), None), ())
    return next((found for entry in known if (found := entry(*given)) is not None), None)


def refused(program: TracedProgram, *arguments: Any, out: Any = None) -> bool:
    """Whether the short cut leaves a call to the long way."""
    return shortly(program, arguments, out) is None


def singles(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-99, 99, count).astype(np.float32)


def test_scalars() -> None:
    xs, ys = singles(9), singles(9, 1)
    program = taught(scaled, 2.0, xs, ys)
    for factor in (3.0, -0.5, 7, -(1 << 52), 1e300, float("nan"), float("-inf")):
        assert not refused(program, factor, xs, ys)
        with np.errstate(all="ignore"):
            expected = np.float32(factor) * xs + ys
        np.testing.assert_array_equal(program(factor, xs, ys), expected)
    for factor in (
        np.float32(3.25),
        np.float64(3.25),
        np.float64(1e300),
        np.int64(-7),
        np.int32(-7),
        np.float32("nan"),
    ):
        assert not refused(program, factor, xs, ys)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(program(factor, xs, ys), np.float32(factor) * xs + ys)
    for factor in (np.float16(3), np.int8(3), 1 << 60, np.int64(1 << 60)):
        assert refused(program, factor, xs, ys)
        np.testing.assert_array_equal(program(factor, xs, ys), scaled(factor, xs, ys, target="cpu"))
    for wrong in (True, 1j, "2", None):
        with pytest.raises(TypeError, match="factor"):
            program(wrong, xs, ys)


def test_integers() -> None:
    xs = np.arange(7, dtype=np.int32)
    program = taught(shifted, 5, xs)
    for offset in (0, -3, 2**31 - 100, -(2**31), np.int32(-3), np.int64(9)):
        assert not refused(program, offset, xs)
        np.testing.assert_array_equal(program(offset, xs), xs + np.int32(offset))
    for offset in (2**31, -(2**31) - 1, 2**70, np.int64(2**31)):
        with pytest.raises(OverflowError):
            program(offset, xs)
    with pytest.raises(TypeError):
        program(1.0, xs)


def test_integers_that_sizes_depend_on() -> None:
    xs = np.array([0, 2, 2, 5, 1, 2])
    program = taught(counted, 4, xs)
    assert not refused(program, 4, xs) and refused(program, 5, xs) and refused(program, 4.0, xs)
    for count in (4, 5, 4, 7, 1):
        wanted = np.bincount(xs[xs < count], minlength=count)
        np.testing.assert_array_equal(program(count, xs), wanted)


def test_several_results() -> None:
    xs, ys = np.arange(5.0), np.ones(5)
    program = taught(sum_and_difference, xs, ys)
    total, difference = program(xs, ys)
    assert (total == xs + ys).all() and type(difference) is np.float64 and difference == 5
    out = np.empty(5)
    found = program(xs, ys, out=(out, None))
    assert found[0] is out and (out == xs + ys).all() and type(found[1]) is np.float64
    cell = np.empty(())
    assert not refused(program, xs, ys, out=(out, cell))
    assert program(xs, ys, out=(out, cell))[1] is cell and cell == 5
    with pytest.raises(ValueError, match="2 results"):
        program(xs, ys, out=out)
    assert refused(program, xs, ys, out=(out, out))
    (single,) = taught(only, singles(4))(singles(4))
    assert (single == -singles(4)).all()


def test_steps_between_which_arrays_live() -> None:
    xs = np.arange(1.0, 6.0)
    program = taught(normalised, xs)
    for scale in (1.0, 3.0):
        np.testing.assert_allclose(program(xs * scale), xs / 15, rtol=1e-15)


def test_checked_indices() -> None:
    xs = singles(10)
    program = taught(picked, xs, np.arange(4))
    assert not refused(program, xs, np.array([9, 0, 3, 3]))
    np.testing.assert_array_equal(program(xs, np.array([9, 0, 3, 3])), xs[[9, 0, 3, 3]])
    for bad in (10, -1, -(2**63)):
        with pytest.raises(IndexError) as short:
            program(xs, np.array([0, bad, 1, bad]))
        with pytest.raises(IndexError) as long:
            picked(xs, np.array([0, bad, 1, bad]), target="cpu")
        assert str(short.value) == str(long.value)
    np.testing.assert_array_equal(program(xs, np.array([1, 2, 3, 4])), xs[1:5])
    out = np.full(4, 7, np.float32)
    with pytest.raises(IndexError):
        program(xs, np.array([0, 1, 2, 10]), out=out)
    assert (out == 7).all(), "nothing is written where the program fails"


def test_other_forms_and_types() -> None:
    program = rows.with_thresholds({})
    some = np.arange(24.0).reshape(4, 6)
    for _ in range(3):
        for one in (some, some.astype(np.float32), some[:, ::2], some.T, some[::-1]):
            np.testing.assert_array_equal(program(one), (one * one).sum(axis=1))
            assert program(one).dtype == one.dtype
    assert len(program._quick.entries) == 5
    assert not refused(program, some.T)


def test_out() -> None:
    xs, ys = singles(9), singles(9, 1)
    program = taught(scaled, 2.0, xs, ys)
    out = np.empty(9, np.float32)
    assert program(3.0, xs, ys, out=out) is out and (out == 3 * xs + ys).all()
    assert refused(program, 3.0, xs, ys, out=xs)
    expected = 3 * xs + ys
    assert program(3.0, xs, ys, out=xs) is xs and (xs == expected).all()
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        program(3.0, xs, ys, out=out)


def test_arguments_by_name_and_too_many_of_them() -> None:
    xs, ys = singles(9), singles(9, 1)
    program, out = taught(scaled, 2.0, xs, ys), np.full(9, 7, np.float32)
    expected = np.float32(2) * xs + ys
    for found in (
        program(2.0, xs, ys=ys), program(2.0, ys=ys, xs=xs), program(ys=ys, factor=2.0, xs=xs),
        program(2.0, ys=ys, xs=xs, out=np.empty(9, np.float32)),
    ):  # fmt: skip
        np.testing.assert_array_equal(found, expected)
    for positions, names in (
        ((2.0, xs, ys, out), {}), ((2.0, xs, out), {"xs": xs}), ((2.0, xs), {"zs": ys}), ((2.0,), {"ys": ys}),
        ((2.0, xs, ys), {"ys": ys}),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"program scaled\(factor: f32, xs: f32\[n\], ys: f32\[n\]\)"):
            program(*positions, **names)
    assert (out == 7).all(), "an argument too many is no place for the result"


def test_parameters_of_one_way_of_giving_them_only() -> None:
    @tw.program
    def mixed(xs: tw.f32["n"], /, ys: tw.f32["n"], *, factor: tw.f32) -> Any:
        return tw.map(lambda x, y: factor * x + y, xs, ys)

    xs, ys = singles(9), singles(9, 1)
    for _ in range(4):
        np.testing.assert_array_equal(mixed(xs, ys=ys, factor=2.0), 2 * xs + ys)
        with pytest.raises(TypeError, match=r"positional.only"):
            mixed(xs=xs, ys=ys, factor=2.0)
        with pytest.raises(TypeError, match="too many positional arguments"):
            mixed(xs, ys, 2.0)


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (scaled, (np.float32(3), singles(7), singles(7, 1))),
        (sum_and_difference, (np.arange(5.0), np.ones(5))),
        (normalised, (np.arange(1.0, 6.0),)),
        (only, (singles(4),)),
    ],
    ids=["one", "several", "steps", "tuple"],
)
def test_calls_that_always_give_arrays_are_learned(program: TracedProgram, arguments: tuple[Any, ...]) -> None:
    own = tw.program(program.function)
    wanted = program(*arguments)
    several = isinstance(wanted, tuple)
    shapes = [(np.shape(one), np.asarray(one).dtype) for one in (wanted if several else (wanted,))]

    def fresh(order: Any = "C") -> Any:
        made = tuple(np.full(shape, 7, dtype, order) for shape, dtype in shapes)
        return made if several else made[0]

    for _ in range(3):
        own(*arguments, out=fresh())
    assert own._quick.entries
    out = fresh()
    found = shortly(own, arguments, out)
    assert found is not None
    for one, array, value in zip(*((x if several else (x,)) for x in (found, out, wanted)), strict=True):
        assert one is array
        np.testing.assert_array_equal(array, value)
    without = shortly(own, arguments)  # the same entry makes new results
    for one, value in zip(*((x if several else (x,)) for x in (without, wanted)), strict=True):
        np.testing.assert_array_equal(one, value)


def test_results_that_are_not_in_c_order_are_not_learned() -> None:
    own = tw.program(scaled.function)
    xs, whole = singles(6), np.zeros(12, np.float32)
    for _ in range(3):
        own(np.float32(2), xs, xs, out=whole[::2])
    assert not own._quick.entries
    np.testing.assert_array_equal(whole[::2], 3 * xs)
    assert not whole[1::2].any()
    own(np.float32(2), xs, xs, out=xs)  # over what is read
    own(np.float32(2), xs, xs, out=xs)
    np.testing.assert_array_equal(xs, 9 * singles(6))


def test_inside_another_program_the_call_is_traced() -> None:
    program = taught(only, singles(4))

    @tw.program
    def twice(xs: tw.f32["n"]) -> Any:
        (negated,) = program(xs)
        return tw.map(lambda x: x + x, negated)

    np.testing.assert_array_equal(twice(singles(4)), -2 * singles(4))


def test_the_target_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    xs, ys = singles(9), singles(9, 1)
    program = taught(scaled, 2.0, xs, ys)
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nonsense")
    with pytest.raises(Exception, match="nonsense"):
        program(2.0, xs, ys)
    monkeypatch.delenv("TILEWRIGHT_TARGET")
    with pytest.raises(Exception, match="nonsense"):
        program(2.0, xs, ys, target="nonsense")


def test_nothing_is_kept() -> None:
    xs, ys = np.arange(5.0), np.ones(5)
    program = taught(sum_and_difference, xs, ys)
    gc.collect()  # what other tests have left refers to None, too
    before = [sys.getrefcount(one) for one in (xs, ys, None, xs.dtype)]
    for _ in range(1000):
        program(xs, ys)
        shortly(program, (xs, 3))
        shortly(program, (xs, ys), (xs, None))
    after = [sys.getrefcount(one) for one in (xs, ys, None, xs.dtype)]
    assert before[:2] == after[:2]
    assert all(abs(new - old) < 100 for old, new in zip(before[2:], after[2:], strict=True))
    operand = xs.copy()
    result = program(operand, ys)
    dead = weakref.ref(operand), weakref.ref(result[0])
    del operand, result
    gc.collect()
    assert dead[0]() is None and dead[1]() is None


def _large() -> tuple[TracedProgram, Any, Any]:
    """A program of several blocks, on two threads."""
    xss = np.random.default_rng(3).integers(-9, 9, (400, 300)).astype(np.float64)
    program = rows.with_thresholds({})
    with tw.num_threads(2):
        for _ in range(3):
            program(xss)
    return program, xss, (xss * xss).sum(axis=1)


def test_several_threads_share_a_launch() -> None:
    program, xss, expected = _large()
    assert program._quick.entries
    for threads in (2, 1, 3, 2):
        with tw.num_threads(threads):
            for _ in range(3):
                np.testing.assert_array_equal(program(xss), expected)


def _from_threads(call: Callable[[], bool]) -> None:
    failures: list[str] = []

    def work() -> None:
        for _ in range(50):
            if not call():
                failures.append("another result")

    workers = [threading.Thread(target=work) for _ in range(6)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert not failures


def test_calls_from_threads() -> None:
    program, xss, expected = _large()

    def call() -> bool:
        with tw.num_threads(2):
            return bool((program(xss) == expected).all())

    _from_threads(call)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_after_fork_goes_on() -> None:
    program, xss, expected = _large()

    def calls() -> bool:
        with tw.num_threads(2):
            return all((program(xss) == expected).all() for _ in range(20))

    assert true_in_a_child(calls)


def test_large_results_are_recycled() -> None:
    xs, ys = np.arange(1 << 18, dtype=np.float32), np.ones(1 << 18, np.float32)
    program = taught(scaled, 2.0, xs, ys)
    for factor in (1.0, 2.0):
        result = program(factor, xs, ys)
        np.testing.assert_array_equal(result, factor * xs + 1)
        assert result.ctypes.data % 64 == 0 and result.flags.c_contiguous
    out = np.empty_like(xs)
    assert program(2.0, xs, ys, out=out) is out and (out == 2 * xs + 1).all()
