"""Programs that other processes find by name."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import tilewright as tw


@tw.program
def doubled(xs: tw.f64["n"]):
    return tw.map(lambda x: 2.0 * x, xs)


@tw.program
def row_sums(rows: tw.f64["n", "m"]):
    return tw.map(lambda row: tw.reduce("add", 0, row), rows)


class Family:
    """A place for programs."""

    @tw.program
    def halved(xs: tw.f64["n"]):
        return tw.map(lambda x: 0.5 * x, xs)


def plus_bias(value, bias):
    return value + bias
