"""Loops of the host that run as one kernel while their rounds are small."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.kernel.ir import Kernel
from tilewright.runtime import cpu_device, cpu_jit, steps


@tw.program
def smoothed(xs: tw.f64["n"], rounds: tw.i64) -> Any:
    (n,) = xs.shape

    def step(number: Any, now: Any, largest: Any) -> Any:
        def point(i: Any) -> Any:
            return now[tw.maximum(i - 1, 0)] + now[tw.minimum(i + 1, n - 1)] + number

        after = tw.map(point, tw.iota(n))
        return tw.scan("max", -np.inf, after), tw.maximum(largest, tw.reduce("max", -np.inf, after))

    return tw.loop(rounds, (xs, xs[0]), step)


@tw.program
def halved(xs: tw.f64["n"], limit: tw.f64) -> Any:
    def too_large(now: Any, count: Any) -> Any:
        return tw.reduce("add", 0, now) > limit

    return tw.while_loop(too_large, (xs, 0), lambda now, count: (tw.map(lambda x: x / 2, now), count + 1))


def reference(xs: np.ndarray, rounds: int) -> tuple[np.ndarray, float]:
    now, largest, places = xs, xs[0], np.arange(len(xs))
    for number in range(rounds):
        after = now[np.maximum(places - 1, 0)] + now[np.minimum(places + 1, len(xs) - 1)] + number
        now, largest = np.maximum.accumulate(after), max(largest, after.max())
    return now, largest


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=30), st.integers(0, 6), st.booleans())
def test_both_ways_of_a_loop_agree(values: list[int], rounds: int, alone: bool) -> None:
    xs = np.array(values, float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays_alone", lambda *_: alone)
        program = tw.program(smoothed.function)  # a fresh one: recorded calls keep their choice
        for given_xs in (xs, xs, xs[::-1], xs):
            now, largest = program(given_xs, rounds, target="cpu")
            expected, most = reference(given_xs, rounds)
            np.testing.assert_array_equal(now, expected)
            assert largest == most


@given(st.lists(st.integers(0, 99), min_size=1, max_size=30), st.booleans())
def test_while_loops(values: list[int], alone: bool) -> None:
    xs = np.array(values, float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays_alone", lambda *_: alone)
        now, count = tw.program(halved.function)(xs, 3.0, target="cpu")
    expected, rounds = xs, 0
    while expected.sum() > 3:
        expected, rounds = expected / 2, rounds + 1
    np.testing.assert_array_equal(now, expected)
    assert count == rounds


@pytest.mark.parametrize(("size", "whole"), [(100, True), (100_000, False)])
def test_the_size_of_a_round_decides(size: int, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compiling(kernel: Kernel, _compile: Any = cpu_device._compile) -> Any:
        compiled.append(kernel.name)
        return _compile(kernel)

    monkeypatch.setattr(cpu_device, "_compile", compiling)
    tw.program(smoothed.function)(np.ones(size), 3, target="cpu")
    assert any("whole" in name for name in compiled) == whole


def test_the_choice_is_explained() -> None:
    assert "run by the host; small rounds (26*n + 10) as one sequential kernel" in smoothed.explain(target="cpu")


def test_what_loops_in_a_round_replace_is_no_work_of_its_size() -> None:
    @tw.program
    def running(xs: tw.f64["n"], rounds: tw.i64) -> Any:
        def step(_: Any, now: Any) -> Any:
            doubled = tw.map(lambda x: 2.0 * x, now)
            return tw.loop(xs.shape[0], doubled, lambda i, ys: tw.update(ys, i, ys[i] + 1.0))

        return tw.loop(rounds, xs, step)

    explained = running.explain(target="cpu")
    assert "small rounds (" in explained and "n*n" not in explained
    np.testing.assert_array_equal(running(np.arange(3.0), 2, target="cpu"), [3, 7, 11])


def test_results_go_where_they_are_asked_for() -> None:
    out, largest = np.zeros(4), np.zeros(())
    smoothed(np.arange(4.0), 2, out=(out, largest), target="cpu")
    expected, most = reference(np.arange(4.0), 2)
    np.testing.assert_array_equal(out, expected)
    assert largest == most


def test_work_that_is_not_known_before() -> None:
    @tw.program
    def growing(xs: tw.f64["n"], counts: tw.i64["n"]) -> Any:
        def step(i: Any, total: Any) -> Any:
            return total + tw.reduce("add", 0, tw.map(lambda x: x * 1.0, xs[: counts[i]]))

        return tw.loop(xs.shape[0], 0.0, step)

    assert "small rounds" not in growing.explain(target="cpu")
    assert growing(np.ones(4), np.array([1, 4, 0, 2]), target="cpu") == 7


@tw.program
def cholesky(a: tw.f64["n", "n"]) -> Any:
    (n, _) = a.shape

    def row(i: Any, factor: Any) -> Any:
        def element(j: Any, factor: Any) -> Any:
            total = tw.reduce("add", 0.0, tw.map(lambda k: factor[i, k] * factor[j, k], tw.iota(j)))
            rest = a[i, j] - total
            factor = tw.update(factor, (i, j), tw.where(i == j, tw.sqrt(rest), rest / factor[j, j]))
            return factor

        return tw.loop(i + 1, factor, element)

    return tw.loop(n, tw.replicate((n, n), 0.0), row)


@tw.program
def solved_below(a: tw.f64["n", "n"], b: tw.f64["n"]) -> Any:
    def step(i: Any, x: Any) -> Any:
        x = tw.update(x, i, (b[i] - tw.reduce("add", 0.0, a[i, :i] * x[:i])) / a[i, i])
        return x

    return tw.loop(b.shape[0], tw.replicate(b.shape[0], 0.0), step)


@tw.program
def reversed_sums(x: tw.f64["n"]) -> Any:
    """Rows that are read at places that are not side by side, and some of them only where a condition holds."""

    def step(i: Any, sums: Any) -> Any:
        products = tw.map(lambda j: tw.cond(j < i, lambda: x[j] * x[i - j], 0.0), tw.iota(x.shape[0]))
        sums = tw.update(sums, i, tw.reduce("add", 0.0, products))
        return sums

    return tw.loop(x.shape[0], tw.replicate(x.shape[0], 0.0), step)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("size", [0, 1, 2, 23, 24, 25, 33, 70])
def test_sums_as_long_as_the_rounds_before(size: int, alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "pays_alone", lambda *_: alone)
    if not alone and size > 25:
        return  # thousands of launches say no more
    random = np.random.default_rng(size)
    rows = random.standard_normal((size, size))
    positive, lower = rows @ rows.T + size * np.eye(size), np.tril(rows) + 9 * np.eye(size)
    right = random.standard_normal(size)
    # Errors of a few hundred additions and products, for matrices of small condition (a diagonal of about the size).
    factor = tw.program(cholesky.function)(positive, target="cpu")
    np.testing.assert_allclose(factor @ factor.T, positive, rtol=0, atol=1e-12 * (1 + size) ** 2)
    solution = tw.program(solved_below.function)(lower, right, target="cpu")
    np.testing.assert_allclose(lower @ solution, right, rtol=0, atol=1e-12 * (1 + size))
    expected = [sum(right[j] * right[i - j] for j in range(i)) for i in range(size)]
    sums = tw.program(reversed_sums.function)(right, target="cpu")
    np.testing.assert_allclose(sums, expected, rtol=0, atol=1e-14 * (1 + size) ** 2)


def test_loops_in_loops_are_one_kernel_where_rounds_of_either_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compiling(kernel: Kernel, _compile: Any = cpu_device._compile) -> Any:
        compiled.append(kernel.name)
        return _compile(kernel)

    monkeypatch.setattr(cpu_device, "_compile", compiling)
    tw.program(cholesky.function)(np.eye(9), target="cpu")
    assert sum("whole" in name for name in compiled) == 1
    assert len(compiled) <= 3  # the loop, the zeros that it begins with, and a copy of them


def test_slices_outside_of_an_array_are_found_in_one_kernel() -> None:
    @tw.program
    def sums(x: tw.f64["n"], shift: tw.i64) -> Any:
        def step(i: Any, total: Any) -> Any:
            return total + tw.reduce("add", 0.0, x[: i + shift])

        return tw.loop(x.shape[0], 0.0, step)

    xs = np.arange(5.0)
    assert sums(xs, 1, target="cpu") == np.cumsum(xs).sum()
    with pytest.raises(IndexError):
        sums(xs, 2, target="cpu")


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names instructions of x86")
def test_recurrences_of_least_values_do_not_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    @tw.program
    def distance(a: tw.u8["n"], b: tw.u8["m"]) -> Any:
        (m,) = b.shape

        def row(i: Any, before: Any) -> Any:
            def cell(j: Any, now: Any) -> Any:
                change = before[j] + tw.where(a[i] == b[j], 0, 1)
                now = tw.update(now, j + 1, tw.minimum(tw.minimum(before[j + 1] + 1, now[j] + 1), change))
                return now

            return tw.loop(m, tw.map(lambda j: tw.where(j == 0, i + 1, 0), tw.iota(m + 1)), cell)

        return tw.loop(a.shape[0], tw.iota(m + 1), row)[m]

    text: list[str] = []

    def compiling(kernel: Kernel, _compile: Any = cpu_device._compile) -> Any:
        text.append(cpu_jit.assembly(kernel, cpu_device.optimisation_of(kernel)))
        return _compile(kernel)

    monkeypatch.setattr(cpu_device, "_compile", compiling)
    kitten, sitting = (np.frombuffer(one, np.uint8) for one in (b"kitten", b"sitting"))
    assert distance(kitten, sitting, target="cpu") == 3
    (loop,) = (one for one in text if "_whole" in one)
    assert loop.count("cmov") >= 8  # two for a cell, whose loop is unrolled four times


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names instructions of x86")
def test_others_who_use_llvm_are_left_its_branches() -> None:
    """The option that keeps conditional moves is one of the process: it is given back."""
    steps_of_four = "".join(
        f"""
      %place{i} = getelementptr i32, ptr %start, i64 {i}
      %value{i} = load i32, ptr %place{i}
      %sum{i} = add i32 %least{i}, %value{i}
      %smaller{i} = icmp slt i32 %sum{i}, %value{i}
      %least{i + 1} = select i1 %smaller{i}, i32 %sum{i}, i32 %value{i}"""
        for i in range(4)
    )
    text = f"""
    define i32 @least(ptr %values, i64 %count) {{
    entry:
      br label %next
    next:
      %at = phi i64 [ 0, %entry ], [ %at.next, %next ]
      %least0 = phi i32 [ 0, %entry ], [ %least4, %next ]
      %start = getelementptr i32, ptr %values, i64 %at{steps_of_four}
      %at.next = add i64 %at, 1
      %more = icmp slt i64 %at.next, %count
      br i1 %more, label %next, label %done
    done:
      ret i32 %least4
    }}"""
    binding = cpu_jit._binding()

    def moves() -> int:
        machine = binding.Target.from_default_triple().create_target_machine("znver4", "", opt=3)
        return int(machine.emit_assembly(binding.parse_assembly(text)).count("cmov"))

    with cpu_jit._emitting():
        assert moves() == 4
    assert moves() == 0
