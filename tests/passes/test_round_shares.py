"""How much one core does in the rounds of a loop, beside what launches for all cores would do."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from tilewright.passes.compile import prepare_program
from tilewright.runtime import host
from tilewright.runtime.devices import device_for


@tw.program
def cholesky(a: tw.f64["n", "n"]) -> Any:
    """Rounds that change what lies below and to the right of the diagonal, where launches write all."""
    numbers = tw.iota(a.shape[0])

    def step(k: Any, m: Any) -> Any:
        root = tw.sqrt(m[k, k])
        column = tw.map(lambda i, row: tw.where(i > k, row[k] / root, tw.where(i == k, root, 0.0)), numbers, m)

        def row(i: Any, row: Any, c: Any) -> Any:
            def element(j: Any, x: Any, d: Any) -> Any:
                return tw.where((i > k) & (j > k), x - c * d, tw.where(j == k, c, x))

            return tw.map(element, numbers, row, column)

        return tw.map(row, numbers, m, column)

    return tw.loop(a.shape[0], a, step)


@tw.program
def warmed(x: tw.f64["n"], t: tw.i64) -> Any:
    """Rounds that change all of an array."""
    (n,) = x.shape

    def step(k: Any, u: Any) -> Any:
        def point(i: Any, here: Any) -> Any:
            return here + 0.1 * (u[tw.maximum(i - 1, 0)] - 2.0 * here + u[tw.minimum(i + 1, n - 1)])

        return tw.map(point, tw.iota(n), u)

    return tw.loop(t, x, step)


@tw.program
def folded(x: tw.f64["n", "m"], t: tw.i64) -> Any:
    """Rounds whose exponentials are most of their work."""

    def step(k: Any, u: Any) -> Any:
        return tw.map(lambda row: tw.map(lambda e: tw.exp(-e) / (1.0 + k.astype("f64")), row), u)

    return tw.loop(t, x, step)


def ratio(program: Any) -> float:
    """How often as much launches do, in large rounds."""
    block = prepare_program(program.trace(), device_for("cpu"))[0].block
    (loop,) = [one for one in block.steps if isinstance(one, host.LoopStep)]
    assert loop.shared is not None
    alone, launched = (one.evaluate({"n": 4000, "m": 4000}) for one in loop.shared)
    return launched / alone


def test_rounds_that_change_a_part_are_a_third_of_what_launches_do() -> None:
    assert ratio(cholesky) > 3


@pytest.mark.parametrize("program", [warmed, folded])
def test_rounds_that_change_all_are_shared_out(program: Any) -> None:
    assert 1 <= ratio(program) < 3
