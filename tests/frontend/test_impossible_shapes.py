"""Shapes that no array can have are refused when they are planned."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw


@tw.program
def sums(x: tw.f64["n", "m"]) -> Any:
    return x.sum(axis=1)


@pytest.mark.parametrize("shape", [(2**63,), (2**40, 2**30), (0, 2**70), (-1,), (2**60,)])
def test_operands_are_refused_with_their_number(shape: tuple[int, ...]) -> None:
    labels = "ijkl"[: len(shape)]
    with pytest.raises(ValueError, match=r"plan '.*': operand 1 has the shape \(.*\), which no array can have"):
        tw.plan(f"z,{labels}->{labels}", (3,), shape)


@pytest.mark.parametrize("extent", [2**30, 2**40])
def test_results_are_refused(extent: int) -> None:
    with pytest.raises(ValueError, match=r"einsum 'i,j->ij': the result would have the shape \(.*\), which no array"):
        tw.plan("i,j->ij", (extent,), (extent,))


def test_thresholds_are_given_by_name() -> None:
    with pytest.raises(TypeError, match=r"thresholds map names to values, as in \{'outer_0': 2\}; \[1\] of type list"):
        sums.with_thresholds([1])  # type: ignore[arg-type]
