"""Programs and derivations as a reader meets them at Python's prompt."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tilewright.ir.printer import print_program
from tilewright.rewrite.derivation import Derivation


@tw.program
def total(xs: tw.f64["n"]):  # type: ignore[no-untyped-def]  # noqa: F821, UP037
    return tw.reduce("add", 0, tw.map(lambda x: x * x, xs))


def test_a_program_prints_as_its_text() -> None:
    core = total.trace()
    assert str(core) == print_program(core) == total.ir
    assert f"{core}".startswith("def total (xs: [n]f64) =")


def test_a_derivation_is_short_at_the_prompt_and_whole_when_it_is_printed() -> None:
    derivation = total.derivation()
    steps = len(derivation.steps)
    assert steps >= 1
    assert repr(derivation).startswith(f"<derivation of total: {steps} steps, {len(derivation.refusals)} refusals")
    assert len(repr(derivation)) < 100
    assert str(derivation) == derivation.print()
    assert "1. reduce_map" in str(derivation)
    derivation.check([[np.arange(3.0)]])


def test_derivations_are_compared_by_what_they_hold() -> None:
    derivation = total.derivation()
    assert derivation == Derivation(derivation.source, derivation.steps, derivation.refusals)
    assert derivation != Derivation(derivation.source)
