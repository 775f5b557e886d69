"""Variables that become what others were are known early: rounds do not wait for products of them."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw
from tilewright.ir.scalars import F64, I64
from tilewright.kernel.ir import Assign, Buffer, If, Let, Name, Statement, load, operation
from tilewright.kernel.traversal import walk
from tilewright.passes.points.products_apart import with_products_apart
from tilewright.passes.points.waiting_last import shifted

Y, Z, T, U = (Name(one, F64) for one in "yztu")
CARRIED = {"y", "z"}


def test_only_what_was_there_before_the_round() -> None:
    later = (Assign("y", operation("add", Y, Z)), Assign("z", Y))
    assert shifted(later, CARRIED) == set()
    assert shifted((Let("t", Y), *later[:1], Assign("z", T)), CARRIED) == {"z"}
    assert shifted((Let("t", Y), Let("u", Z), Assign("y", U), Assign("z", T)), CARRIED) == CARRIED


def test_what_stays_or_is_changed_twice_is_no_other_one() -> None:
    assert shifted((Let("t", Z), Assign("z", T)), CARRIED) == set()
    twice = (Let("t", Y), Assign("z", T), Assign("z", operation("add", Z, T)))
    assert shifted(twice, CARRIED) == set()
    sometimes: Statement = If(operation("lt", Y, Z), (Assign("z", operation("add", Z, Z)),))
    assert shifted((Let("t", Y), sometimes, Assign("z", T)), CARRIED) == set()
    assert shifted((Let("t", Y), Assign("z", T), sometimes), CARRIED) == set()


def test_the_product_of_the_older_one_is_apart() -> None:
    """y, z = x + a * y + b * z, y"""
    x = load(Buffer("x", F64), Name("i", I64))
    body = (
        Let("e", x),
        Let("p", operation("mul", T, Y)),
        Let("q", operation("mul", U, Z)),
        Let("r", operation("add", Name("e", F64), Name("p", F64))),
        Let("s", operation("add", Name("r", F64), Name("q", F64))),
        Let("old", Y),
        Assign("y", Name("s", F64)),
        Assign("z", Name("old", F64)),
    )
    found = [one.name for one in walk(with_products_apart(body, "i")) if isinstance(one, Let)
             and getattr(one.value, "operator", "") == "mul_apart"]  # fmt: skip
    assert found == ["q"]


@tw.program
def regressed(x: tw.f64["n"], a: tw.f64[3]) -> Any:
    """Each number with three before it."""

    def step(i: Any, one: Any, two: Any, three: Any, out: Any) -> Any:
        now = x[i] + a[0] * one + a[1] * two + a[2] * three
        return now, one, two, tw.update(out, i, now)

    return tw.loop(x.shape[0], (0.0, 0.0, 0.0, tw.replicate(x.shape[0], 0.0)), step)[3]


@settings(deadline=None, max_examples=examples(20))
@given(n=st.integers(0, 40), seed=st.integers(0, 99))
def test_numbers_with_those_before(n: int, seed: int) -> None:
    """Of whole numbers, which are exact."""
    random = np.random.default_rng(seed)
    x, a = random.integers(-4, 5, n).astype(float), random.integers(-1, 2, 3).astype(float)
    wanted: list[float] = []
    for one in x:
        before = [*reversed(wanted), 0.0, 0.0, 0.0]
        wanted.append(one + a @ before[:3])
    np.testing.assert_array_equal(regressed(x, a, target="cpu"), wanted)
