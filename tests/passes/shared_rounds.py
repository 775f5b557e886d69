"""A program whose rounds share work between its points, for tests of versions."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import tilewright as tw


@tw.program
def aged(xss: tw.f64["n", "m"], factors: tw.f64["m"], steps: tw.i64) -> Any:
    """Rounds whose exponentials and their scan are the same for all rows."""

    def one(xs: Any) -> Any:
        def step(t: Any, now: Any) -> Any:
            most = tw.scan("max", 0.0, tw.map(lambda f: tw.exp(f * t.astype("f64")), factors))
            return tw.scan("add", 0.0, tw.map(lambda x, p: x / p, now, most))

        return tw.loop(steps, xs, step)

    return tw.map(one, xss)
