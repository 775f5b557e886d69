"""Programs are run as they are written where that fills the machine; versions are made when they are needed."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import math
import os
import threading
from typing import Any

import numpy as np
import pytest
from children import true_in_a_child
from hypothesis import given
from hypothesis import strategies as st
from needed_cores import two_cores
from shared_rounds import aged

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.parser import parse_program
from tilewright.ir.sizes import size
from tilewright.machine.named import CPU_AVX512 as CPU
from tilewright.passes.compile import compile_program, prepare_program
from tilewright.passes.flattening.as_written import LEAST_POINTS
from tilewright.passes.pipelines import run_pipeline
from tilewright.runtime import versions
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.executable import Executable
from tilewright.runtime.versions import MOST_ROUNDS, FillsMachine, NestPoints

LONG = 1 << 19  # more points than are left to one thread


@tw.program
def row_sums(xss: tw.f64["n", "m"]) -> Any:
    return tw.map(lambda xs: tw.reduce("add", 0, xs), xss)


@tw.program
def scaled(xss: tw.f32["n", "k"], yss: tw.f32["k", "m"]) -> Any:
    """A product whose rows are divided by their sums."""

    def row(xs: Any) -> Any:
        products = tw.map(lambda ys: tw.reduce("add", 0, tw.map(lambda x, y: x * y, xs, ys)), tw.transpose(yss))
        total = tw.reduce("add", 0, products)
        return tw.map(lambda one: one / total, products)

    return tw.map(row, xss)


@tw.program
def unit_rows(xss: tw.f32["n", "m"]) -> Any:
    """Rows divided by their lengths: a sum of squares, which uses nothing twice."""

    def row(xs: Any) -> Any:
        total = tw.sqrt(tw.reduce("add", 0, tw.map(lambda x: x * x, xs)))
        return tw.map(lambda x: x / total, xs)

    return tw.map(row, xss)


@tw.program
def matmul(xss: tw.f32["n", "k"], yss: tw.f32["k", "m"]) -> Any:
    columns = tw.transpose(yss)
    return tw.map(lambda x: tw.map(lambda y: tw.reduce("add", 0, tw.map(lambda s, t: s * t, x, y)), columns), xss)


@tw.program
def doubled(xs: tw.f32["n"]) -> Any:
    return tw.map(lambda x: x + x, xs)


def compiled(program: tw.TracedProgram) -> Executable:
    return compile_program(program.trace(), device_for("cpu"), flattening="incremental")


def made(executable: Executable) -> bool:
    """Whether the versions of a program have been made."""
    assert executable._versions is not None
    return executable._versions._made is not None


@pytest.fixture
def two_threads() -> Any:
    before = tw.get_num_threads()
    tw.set_num_threads(2)
    yield
    tw.set_num_threads(before)


# --- when a program is run as it is written ---------------------------------------------------------------------------


@two_cores
def test_versions_are_made_by_the_first_call_that_needs_them(two_threads: None) -> None:
    executable = compiled(row_sums)
    plain = compile_program(row_sums.trace(), device_for("cpu"))
    many = np.random.default_rng(0).normal(size=(50, 60))
    np.testing.assert_array_equal(executable(many), plain(many))  # the same kernel, to the last bit
    np.testing.assert_array_equal(executable(many[:1]), plain(many[:1]))  # few points, but little work
    assert executable(np.ones((0, 3))).shape == (0,)
    assert not made(executable)
    few = np.random.default_rng(1).normal(size=(1, LONG))
    error = LONG * np.finfo("f8").eps * np.abs(few).sum()
    for _ in range(3):  # the step by step run, and repeated ones
        np.testing.assert_allclose(executable(few), few.sum(axis=1), rtol=0, atol=error)
    assert made(executable)
    np.testing.assert_array_equal(executable(many), plain(many))


def test_which_version_it_is_does_not_depend_on_the_number_of_threads() -> None:
    executable = compiled(row_sums)
    few = np.random.default_rng(2).normal(size=(1, LONG))
    found = set()
    for threads in (1, 2, 3):
        with tw.num_threads(threads):
            found.add(executable(few).tobytes())
    assert len(found) == 1


def test_a_program_without_nested_parallelism_has_no_versions() -> None:
    executable = compiled(doubled)
    assert not executable.has_versions and not executable.thresholds and not doubled.has_versions
    assert row_sums.has_versions and matmul.has_versions
    assert not tw.program(flattening="full")(row_sums.function).has_versions


def test_contractions_are_run_as_written_until_thresholds_are_set() -> None:
    executable = compiled(matmul)
    for n in (1, 40):
        executable(np.ones((n, 7), "f4"), np.ones((7, 3), "f4"))
    assert not made(executable) and not executable.asks
    forced = executable.with_thresholds({"contraction_0": math.inf, "outer_0": math.inf})
    assert made(executable) and forced.asks
    np.testing.assert_array_equal(forced(np.ones((4, 7), "f4"), np.ones((7, 3), "f4")), np.full((4, 3), 7, "f4"))


def test_a_hidden_product_is_laid_bare_whatever_the_sizes() -> None:
    written, further = prepare_program(scaled.trace(), Device("cpu", CPU, ""), flattening="incremental")
    assert written is None and further is not None
    assert any("a contraction over" in note.lowered for note in further.made[0].notes)
    xss, yss = (np.random.default_rng(n).uniform(1, 2, (20, 20)).astype("f4") for n in range(2))
    exact = xss.astype("f8") @ yss
    # Sums of 20 products, and of 20 of these, of positive terms; then a division.
    np.testing.assert_allclose(scaled(xss, yss), exact / exact.sum(axis=1, keepdims=True), rtol=82 * 2.0**-24)


def test_rounds_that_share_their_work_are_versions_however_many_points_there_are() -> None:
    _, further = prepare_program(aged.trace(), Device("cpu", CPU, ""), flattening="incremental")
    assert further is not None and further.fills is not None
    is_beaten: Any = further.fills.is_beaten
    sizes = {"n": 1000, "m": 100}
    few, most = -(-LEAST_POINTS // 10**5), MOST_ROUNDS
    for steps in (0, few - 1, most + 1):  # little to do, or rounds that are launched one by one and are small
        assert further.fills({**sizes, "steps": steps}) and is_beaten.cache_info().misses == 0  # nothing is flattened
    for steps in (few, most):
        assert not further.fills({**sizes, "steps": steps}) and is_beaten.cache_info().misses == 1
    assert not further.fills({"n": 1000, "m": 1000, "steps": most + 1})
    assert further.fills({"n": 1, "m": 100_000, "steps": most})  # a round is only more parallel
    assert str(further.fills) == (
        f"(steps) * (m*n) < {LEAST_POINTS} or (steps > {most} or n < {CPU.cores}) and m*n < {LEAST_POINTS}"
    )
    executable = compiled(aged)
    xss, factors = np.random.default_rng(3).uniform(1, 2, (600, 500)), np.random.default_rng(4).uniform(0, 1, 500)
    want = xss.copy()
    for t in range(3):
        want = np.cumsum(want / np.maximum.accumulate(np.exp(t * factors)), axis=1)
    np.testing.assert_allclose(executable(xss[:7], factors, 3), want[:7], rtol=1e-10)
    assert not made(executable)
    np.testing.assert_allclose(executable(xss, factors, 3), want, rtol=1e-10)
    assert made(executable)


@tw.program
def turned(starts: tw.f64["b", "d"], by: tw.f64["d", "d"], rounds: tw.i64) -> Any:
    """Products in the rounds of each point's loop, with a square matrix of its own."""

    def product(left: Any, right: Any) -> Any:
        columns = tw.transpose(right)
        return tw.map(lambda x: tw.map(lambda y: tw.reduce("add", 0, tw.map(lambda s, t: s * t, x, y)), columns), left)

    def point(start: Any) -> Any:
        matrix = tw.map(lambda x: tw.map(lambda y: x * y, start), start)
        return tw.loop(rounds, matrix, lambda _, now: product(by, now))

    return tw.map(point, starts)


@pytest.mark.parametrize(("count", "width", "written"), [
    (1, 4, True), (5_000, 4, True), (100_000, 4, True), (1, 100, False), (300, 20, False), (2, 20, True),
])  # fmt: skip
def test_small_products_in_rounds_stay_in_their_nest(count: int, width: int, written: bool) -> None:
    """Each version launches its kernels in every round, whose arrays go through memory."""
    before, further = prepare_program(turned.trace(), Device("cpu", CPU, ""), flattening="incremental")
    assert before is not None and further is not None and further.fills is not None
    assert further.fills({"b": count, "d": width, "rounds": 7}) == written
    assert further.fills({"b": 1, "d": 9, "rounds": 500})
    whole = "max(b*d*d, b*d*d*d)"
    assert str(further.fills) == (
        f"{whole} < 1024*b or (rounds) * ({whole}) < {LEAST_POINTS}"
        f" or (rounds > {MOST_ROUNDS} or b < {CPU.cores}) and {whole} < {LEAST_POINTS}"
    )


def test_both_ways_of_products_in_rounds_agree() -> None:
    executable = compiled(turned)
    generator = np.random.default_rng(5)
    for count, width in ((3, 4), (2, 70)):
        starts, by = generator.uniform(0, 1, (count, width)), generator.uniform(0, 1, (width, width))
        want = [np.linalg.matrix_power(by, 2) @ np.outer(one, one) for one in starts]
        # Two sums of so many products of positive terms, each after a rounded product.
        np.testing.assert_allclose(executable(starts, by, 2), want, rtol=(4 * width + 4) * np.finfo("f8").eps)
        assert made(executable) == (width == 70)


def test_what_uses_nothing_twice_stays_in_its_nest() -> None:
    written, further = prepare_program(unit_rows.trace(), Device("cpu", CPU, ""), flattening="incremental")
    assert written is not None and further is not None and further.fills is not None
    assert str(further.fills) == f"n >= {CPU.cores} or m*n < {LEAST_POINTS}"
    (note,) = (one for one in written.notes if "kernel" in one.lowered)
    assert "n points" in note.lowered


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=3))
def test_all_nests_must_fill_the_machine(nests: list[tuple[int, int]]) -> None:
    points = tuple(NestPoints(size(f"n{k}"), size(f"n{k}") * size(f"m{k}")) for k in range(len(nests)))
    sizes = {f"{name}{k}": value for k, pair in enumerate(nests) for name, value in zip("nm", pair, strict=True)}
    fills = FillsMachine(points, 6, 100)
    assert fills(sizes) == (not [(n, m) for n, m in nests if 0 < n < 6 and n * m >= 100])
    assert FillsMachine((), 6, 100).always and not fills.always


def test_sizes_that_the_program_computes_are_asked_for_when_it_runs() -> None:
    text = """def f (xs: [n]i64) =
      let (k: i64) = redomap n (\\(a: i64, b: i64) -> let (c: i64) = a + b in (c)) (0i64) (\\(x: i64) ->
        let (y: i64) = x * x in (y)) xs
      let (is: [k]i64) = iota k i64
      let (t: [k]i64) = map k (\\(i: i64) ->
        let (s: i64) = redomap n (\\(a: i64, b: i64) -> let (c: i64) = a + b in (c)) (0i64) (\\(x: i64) ->
            let (y: i64) = x * i in (y)) xs
        in (s)) is
      in (t)"""
    program = parse_program(text)
    executable = compile_program(program, device_for("cpu"), flattening="incremental")
    for xs in (np.array([1, 2]), np.array([0, 0]), np.array([3])):
        for want, got in zip(interpret(program, [xs]), [executable(xs)], strict=True):
            np.testing.assert_array_equal(got, want)


# --- who asks ---------------------------------------------------------------------------------------------------------


@two_cores
def test_threads_that_ask_at_once_make_the_versions_once(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compiled(row_sums)
    assert executable._versions is not None
    make, calls = executable._versions._make, []

    def counted() -> versions.Made:
        calls.append(threading.get_ident())
        return make()

    monkeypatch.setattr(executable._versions, "_make", counted)
    few, results = np.ones((1, LONG)), []
    workers = [threading.Thread(target=lambda: results.append(executable(few).item())) for _ in range(4)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert results == [LONG] * 4 and len(calls) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_makes_them_though_a_thread_held_the_lock(two_threads: None) -> None:
    executable = compiled(row_sums)
    assert executable._versions is not None
    holding, enough = threading.Event(), threading.Event()

    def hold() -> None:
        assert executable._versions is not None
        with executable._versions._lock:
            holding.set()
            enough.wait(600)

    holder = threading.Thread(target=hold)
    holder.start()
    holding.wait(600)
    good = true_in_a_child(lambda: executable(np.ones((1, LONG))).item() == LONG)
    enough.set()
    holder.join()
    assert good


@two_cores
def test_what_cannot_be_made_is_told_by_the_call(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compiled(row_sums)

    def fail() -> versions.Made:
        raise ValueError("row_sums: t cannot be lowered: a reason")

    monkeypatch.setattr(executable._versions, "_make", fail)
    assert executable(np.ones((3, 4))).tolist() == [4, 4, 4]
    for _ in range(2):
        with pytest.raises(ValueError, match="row_sums: t cannot be lowered: a reason"):
            executable(np.ones((1, LONG)))


def test_explain_tells_when_which_is_run() -> None:
    text = row_sums.explain(target="cpu")
    assert f"as it is written, where n >= {device_for('cpu').machine.cores} or " in text
    assert "its versions otherwise:" in text and "row_sums: 3 versions" in text
    flat = run_pipeline(doubled.trace())
    assert "versions" not in compile_program(flat, device_for("cpu"), flattening="incremental").explain()
