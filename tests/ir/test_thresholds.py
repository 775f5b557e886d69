"""Thresholds: a named choice compared with an amount of parallelism."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright.ir.interpreter import DEFAULT_THRESHOLD, interpret
from tilewright.ir.nodes import Threshold
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.ir.sizes import size
from tilewright.ir.typing import result_types
from tilewright.ir.verifier import IRError, verify

PROGRAM = """\
def f (x: [n][m]f32) =
  let (many: bool) = threshold `the first` (m*n)
  let (wide: bool) = threshold outer_1 m
  in (many, wide)
"""
X = np.zeros((3, 4), np.float32)


@pytest.mark.parametrize(
    ("thresholds", "expected"),
    [
        ({"the first": 12, "outer_1": 5}, (True, False)),
        ({"the first": 13, "outer_1": 4}, (False, True)),
        ({"the first": 0, "outer_1": math.inf}, (True, False)),
        ({"the first": -1}, (True, False)),
        (None, (False, False)),
    ],
)
def test_values_pick_the_answer(thresholds: dict[str, float] | None, expected: tuple[bool, bool]) -> None:
    program = parse_program(PROGRAM)
    verify(program)
    assert print_program(program) == PROGRAM
    results = interpret(program, [X], thresholds)
    assert results == expected
    assert all(one.dtype == np.bool_ for one in results)


def test_without_a_value_it_is_the_default() -> None:
    program = parse_program(
        f"def f (x: [n]i8) = let (many: bool) = threshold t (n + {DEFAULT_THRESHOLD - 2}) in (many)"
    )
    assert [interpret(program, [np.zeros(n, np.int8)])[0] for n in (1, 2)] == [False, True]


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(TypeError, match="a threshold needs a name"):
        result_types(Threshold("", size("n")))
    with pytest.raises(IRError, match="k is used before it is bound, or never bound"):
        verify(parse_program("def f (x: [n]i8) = let (many: bool) = threshold t k in (many)"))
