"""Contractions in loops that the host runs are written once, not in every round; so are those that are alike."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from needed_cores import two_cores
from nests import contraction_of

import tilewright as tw
from tilewright.contraction.form import Contraction, Dimension, Kind, Operand
from tilewright.ir.nodes import Apply, Body, Lambda, Literal, Statement, Type, Variable
from tilewright.ir.scalars import F64
from tilewright.ir.sizes import size as constant
from tilewright.ir.traversal import FreshNames
from tilewright.kernel.launch import LaunchDeclined
from tilewright.machine.detect import host_machine
from tilewright.passes.contractions import bound_contraction
from tilewright.passes.pipelines import run_pipeline
from tilewright.runtime.devices import device_for


@tw.program
def sums_of_products(xss: tw.f64["n", "m"], ys: tw.f64["m"]) -> Any:
    return tw.map(lambda xs: tw.reduce("add", 0, tw.map("mul", xs, ys)), xss)


@two_cores
def test_rounds_of_a_loop_share_the_kernels_of_a_contraction(monkeypatch: pytest.MonkeyPatch) -> None:
    @tw.program
    def shrunk(x: tw.f64[300, 300], z: tw.f64[300]) -> Any:
        def step(total: Any, y: Any) -> Any:
            y = tw.map(lambda row: tw.map(lambda e: e / 2, row), y)
            rows = tw.map(lambda row: tw.reduce("add", 0, tw.map("mul", row, z)), y)
            return tw.reduce("add", 0, tw.map("mul", rows, z)), y

        return tw.while_loop(lambda total, y: total > 100, (1e9, x), step)[0]

    bound: list[int] = []
    launches = bound_contraction.bound_launches

    def counted(*given: Any) -> Any:
        bound.append(1)
        return launches(*given)

    monkeypatch.setattr(bound_contraction, "bound_launches", counted)
    x, total = np.ones((300, 300)), 1e9
    found = shrunk(x, np.ones(300))
    times = len(bound)
    while total > 100:
        x = x / 2
        total = float(np.sum(x))
    np.testing.assert_allclose(found, total, rtol=1e-12)
    assert 1 <= times <= 2, "each contraction is looked at once, not in every round"


def of(left: str, right: str, out: str, size: int = 40, start: float = 0.0, operator: str = "mul") -> Contraction:
    """A matrix product of arrays with these names, whose sums begin with `start`."""
    names = FreshNames()
    for name in (left, right, out):
        names.reserve(name)
    x, y, a, b = (Variable(names(hint), Type(F64)) for hint in "xyab")
    p, s = Variable(names("p"), Type(F64)), Variable(names("s"), Type(F64))
    n, one, none = (constant(value) for value in (size, 1, 0))
    return Contraction(
        (
            Dimension(names("m"), Kind.M, n, n, none, n),
            Dimension(names("n"), Kind.N, n, none, one, one),
            Dimension(names("k"), Kind.K, n, one, n, none),
        ),
        *(Operand(name, F64, none) for name in (left, right, out)),
        Lambda((x, y), Body((Statement((p,), Apply(operator, (x, y))),), (p,))),
        Lambda((a, b), Body((Statement((s,), Apply("add", (a, b))),), (s,))),
        Literal(start, F64),
    )


def test_contractions_that_differ_in_names_share_their_kernel() -> None:
    machine = host_machine()
    (first,), (other,) = (bound_contraction.bound_launches(of(*names), machine, None, {}) for names in ("abc", "xyz"))
    assert other.kernel is first.kernel
    assert sorted(first.buffers) == ["a", "b", "c"]
    assert other.buffers == tuple({"a": "x", "b": "y", "c": "z"}[name] for name in first.buffers)


@pytest.mark.parametrize("change", [{"size": 41}, {"start": -0.0}, {"operator": "min"}, {"right": "a"}, {"out": "b"}])
def test_other_contractions_do_not(change: dict[str, Any]) -> None:
    machine, names = host_machine(), {"left": "a", "right": "b", "out": "c"}
    (first,) = bound_contraction.bound_launches(of(**names), machine, None, {})
    (other,) = bound_contraction.bound_launches(of(**{**names, **change}), machine, None, {})
    assert other.kernel is not first.kernel


def test_what_is_declined_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, int]] = []

    def declined(_: Any, __: Any, ___: Any, values: dict[str, int]) -> Any:
        asked.append(values)
        raise LaunchDeclined("for a reason")

    monkeypatch.setattr(bound_contraction, "bound_launches", declined)
    found = contraction_of(run_pipeline(sums_of_products.trace()))
    launches = bound_contraction.launches_of(found, device_for("cpu").machine, None)
    sizes = dict.fromkeys(found.size_names, 3)
    for values in (sizes, {**sizes, "other": 7}, dict.fromkeys(found.size_names, 4), sizes):
        with pytest.raises(LaunchDeclined, match="for a reason"):
            launches(values)
    assert len(asked) == 2
