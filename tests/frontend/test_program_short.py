"""Calls of little work: their short cut does not ask for the number of threads."""

# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.frontend import program_quick
from tilewright.frontend.program import TracedProgram


@tw.program
def scaled(factor: tw.f32, xs: tw.f32["n"]) -> Any:
    return tw.map(lambda x: factor * x, xs)


@tw.program
def product(a: tw.f32["n", "k"], b: tw.f32["k", "m"]) -> Any:
    return a @ b


@pytest.fixture(autouse=True)
def in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs keep the cores busy while tests run."""
    monkeypatch.delenv("TILEWRIGHT_TARGET", raising=False)
    monkeypatch.setattr(program_quick, "_SHORT", 0.5)


def taught(program: TracedProgram, *arguments: Any, threads: int = 1, **options: Any) -> TracedProgram:
    own = program.with_thresholds({})
    with tw.num_threads(threads):
        for _ in range(4):
            own(*arguments, **options)
    assert own._quick.entries
    return own


def short_ones(program: TracedProgram) -> int:
    return len(program._quick.calls[None]) - 1


SMALL = np.arange(9, dtype=np.float32)


@pytest.mark.parametrize("threads", [1, 2])
def test_calls_that_were_always_given_their_result_are_short_too(threads: int) -> None:
    out = np.empty_like(SMALL)
    own = taught(scaled, 2.0, SMALL, threads=threads, out=out)
    assert short_ones(own) == 1
    assert own(3.0, SMALL, out=out) is out
    np.testing.assert_array_equal(out, 3 * SMALL)


@pytest.mark.parametrize("threads", [1, 2])
def test_short_calls_do_not_ask_for_the_number(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.random.default_rng(0).integers(-9, 9, (64, 64)).astype(np.float32)
    for own, arguments, wanted in (
        (taught(scaled, 2.0, SMALL, threads=threads), (3.0, SMALL), 3 * SMALL),
        (taught(product, SMALL.reshape(3, 3), SMALL.reshape(3, 3), threads=threads), (SMALL.reshape(3, 3),) * 2, None),
        (taught(product, a, a, threads=1), (a, a), a @ a),
    ):
        assert short_ones(own) == 1

        def asked() -> int:
            raise AssertionError("asked")

        with monkeypatch.context() as patch:
            patch.setattr(program_quick, "get_num_threads", asked)
            for number in (1, 2, 3):
                with tw.num_threads(number):
                    found = own(*arguments)
                    np.testing.assert_array_equal(found, arguments[0] @ arguments[1] if wanted is None else wanted)
                    out = np.empty_like(found)
                    assert own(*arguments, out=out) is out
                    np.testing.assert_array_equal(out, found)


def test_calls_of_other_forms_are_still_learned_for_their_number_of_threads() -> None:
    own = taught(scaled, 2.0, SMALL)
    big = np.ones(1 << 20, np.float32)
    for threads in (1, 2):
        with tw.num_threads(threads):
            for _ in range(3):
                np.testing.assert_array_equal(own(2.0, big), 2 * big)
            assert own._quick.calls[None][-1](2.0, big) is not None
    with tw.num_threads(3):
        assert own._quick.calls[None][-1](2.0, big) is None


def test_what_has_several_blocks_is_not_short() -> None:
    assert short_ones(taught(scaled, 2.0, np.ones(1 << 20, np.float32), threads=2)) == 0


def test_what_takes_its_time_is_not_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_quick, "_SHORT", 0.0)
    own = taught(scaled, 2.0, SMALL)
    assert own._quick._timings
    with tw.num_threads(1):
        for _ in range(program_quick._TIMINGS):
            np.testing.assert_array_equal(own(2.0, SMALL), 2 * SMALL)
    assert short_ones(own) == 0 and not own._quick._timings
    np.testing.assert_array_equal(own(2.0, SMALL), 2 * SMALL)


def test_more_forms_than_are_kept() -> None:
    own = scaled.with_thresholds({})
    for size in range(1, 20):
        xs = np.arange(size, dtype=np.float32)
        for _ in range(4):
            np.testing.assert_array_equal(own(2.0, xs), 2 * xs)
    assert short_ones(own) == program_quick.MOST_ENTRIES - 1
