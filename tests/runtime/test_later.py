"""Each version of a program is lowered when it is first run; what a program chooses itself is lowered at once."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from shared_rounds import aged

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.parser import parse_program
from tilewright.passes.compile import compile_program
from tilewright.passes.flattening.flatten_tree import version_settings
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.runtime import host
from tilewright.runtime.devices import device_for
from tilewright.runtime.executable import Executable


@tw.program
def unit_rows(xss: tw.f64["n", "m"]) -> Any:
    def row(xs: Any) -> Any:
        total = tw.reduce("add", 0.0, xs)
        return tw.map(lambda x: x / total, xs)

    return tw.map(row, xss)


def compiled(program: tw.TracedProgram) -> Executable:
    return compile_program(program.trace(), device_for("cpu"), flattening="incremental")


def branches(block: host.Block) -> Iterator[host.Block | host.Later]:
    """The branches of all choices that have been lowered."""
    for step in block.steps:
        inside: tuple[host.Block | host.Later, ...] = ()
        if isinstance(step, host.IfStep):
            inside = step.then, step.otherwise
            yield from inside
        elif isinstance(step, host.LoopStep):
            inside = (step.body,)
        for one in inside:
            if isinstance(one, host.Block) or one._made is not None:
                yield from branches(host.block_of(one))


def lowered(executable: Executable) -> list[bool]:
    return [isinstance(one, host.Block) or one._made is not None for one in branches(executable._made.block)]


@pytest.mark.parametrize("program", [unit_rows, aged])
def test_only_what_is_run_is_lowered(program: tw.TracedProgram) -> None:
    executable = compiled(program)
    xss, factors = np.random.default_rng(0).uniform(1, 2, (5, 7)), np.random.default_rng(1).uniform(0, 1, 7)
    arguments = (xss,) if program is unit_rows else (xss, factors, 3)
    (want,) = interpret(program.trace(), list(arguments))
    before = lowered(executable)
    assert before and not any(before)
    for settings in version_settings(executable.program):
        known = sum(lowered(executable))
        forced = executable.with_thresholds(settings)
        assert sum(lowered(executable)) == known  # forcing one lowers nothing
        for _ in range(2):
            np.testing.assert_allclose(forced(*arguments), want, rtol=1e-12)
        assert known < sum(lowered(executable)) or all(lowered(executable))
    text = executable.explain()
    assert text.count("\n") > len(lowered(executable)) / 2


def test_explain_tells_of_what_has_not_been_run() -> None:
    executable = compiled(unit_rows)
    executable(np.ones((50, 60)))
    text = executable.explain()
    assert "its versions otherwise:" in text
    assert text.count("segmap:") >= 2 and text == executable.explain()


def test_threads_lower_a_version_once(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compiled(unit_rows).with_thresholds({"outer_0": math.inf, "block_0": math.inf})
    made: list[int] = []
    for one in branches(executable._made.block):
        assert isinstance(one, host.Later)

        def counted(make: Any = one._make) -> Any:
            made.append(1)
            return make()

        monkeypatch.setattr(one, "_make", counted)
    start, results = threading.Barrier(4), []

    def call() -> None:
        start.wait()
        results.append(executable(np.ones((3, 4))))

    workers = [threading.Thread(target=call) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(made) == 1 and len(results) == 4
    assert all((one == 0.25).all() for one in results)


def test_what_cannot_be_lowered_is_told_by_each_call_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compiled(unit_rows)
    forced = executable.with_thresholds({"outer_0": math.inf, "block_0": math.inf})
    (_, otherwise, *_) = branches(executable._made.block)

    def fail() -> Any:
        raise LoweringError("unit_rows: a reason")

    monkeypatch.setattr(otherwise, "_make", fail)
    for _ in range(2):
        with pytest.raises(LoweringError, match="unit_rows: a reason"):
            forced(np.ones((3, 4)))
    assert (executable.with_thresholds({"outer_0": 0})(np.ones((3, 4))) == 0.25).all()


def test_a_loop_still_writes_in_place_what_a_version_replaces() -> None:
    text = """def f (xs: [n]f64, ys: [m]f64) =
      let (out: [n]f64) = loop (now: [n]f64) = (xs) for i: i64 < m do
        let (many: bool) = threshold outer_0 n
        let (y: f64) = ys[i]
        let (next: [n]f64) = if many then
          let (a: [n]f64) = now with [i] = y
          in (a)
        else
          let (b: [n]f64) = now with [0i64] = y
          in (b)
        let (twice: [m]f64) = map m (\\(e: f64) ->
          let (s: f64) = e + e
          in (s)) ys
        in (next)
      in (out)"""
    executable = compile_program(parse_program(text), device_for("cpu"), flattening="incremental")
    (loop,) = (one for one in executable._made.block.steps if isinstance(one, host.LoopStep))
    assert loop.own == (0,)
    xs, ys = np.zeros(5), np.array([1.0, 2.0, 3.0])
    assert executable.with_thresholds({"outer_0": 0})(xs, ys).tolist() == [1, 2, 3, 0, 0]
    assert executable.with_thresholds({"outer_0": math.inf})(xs, ys).tolist() == [3, 0, 0, 0, 0]
    assert not xs.any()


def test_what_full_arrays_are_full_of_lives_until_a_version_has_read_it() -> None:
    """A histogram reads the scalar in place of the bins; it is known to be needed before the version is lowered."""
    text = """def f (xs: [n]i64, at: [n]i64) =
      let (first: i64) = redomap n (\\(a: i64, b: i64) -> let (c: i64) = a + b in (c)) (0i64) (\\(x: i64) ->
        let (y: i64) = x * x
        in (y)) xs
      let (bins: [4]i64) = replicate 4 first
      let (many: bool) = threshold outer_0 n
      let (out: [4]i64) = if many then
        let (h: [4]i64) = hist (bins) (\\(a: i64, b: i64) -> let (c: i64) = a + b in (c)) (0i64) at xs
        in (h)
      else
        let (h2: [4]i64) = map 4 (\\(e: i64) ->
          let (s: i64) = e + 1i64
          in (s)) bins
        in (h2)
      in (out)"""
    program = parse_program(text)
    executable = compile_program(program, device_for("cpu"), flattening="incremental")
    xs, at = np.array([1, 2, 3]), np.array([0, 1, 1])
    for value, want in ((0, [15, 19, 14, 14]), (math.inf, [15, 15, 15, 15])):
        for _ in range(2):
            assert executable.with_thresholds({"outer_0": value})(xs, at).tolist() == want


def test_choices_of_the_program_are_lowered_at_once() -> None:
    text = """def f (xs: [n]f64, k: i64) =
      let (c: bool) = k < 3i64
      let (out: [n]f64) = if c then
        let (a: [n]f64) = map n (\\(e: f64) -> let (s: f64) = e + e in (s)) xs
        in (a)
      else
        (xs)
      in (out)"""
    executable = compile_program(parse_program(text), device_for("cpu"))
    found = list(branches(executable._made.block))
    assert found and all(isinstance(one, host.Block) for one in found)
