"""Folds that keep the first of the best rows: in lanes they give what rows in their order give, with nan too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import I64
from tilewright.passes.compile import compile_program
from tilewright.passes.items.first_best import first_best
from tilewright.passes.items.item_memory import IotaArray
from tilewright.runtime.devices import device_for

STRICT = {
    "less": "let (c: bool) = b < a",
    "more": "let (c: bool) = b > a",
    "turned": "let (c: bool) = a > b",
    "less or nan": "let (p: bool) = a == a let (q: bool) = b < a let (r: bool) = b != b let (s: bool) = q | r "
    "let (c: bool) = p & s",
    "nan or more": "let (p: bool) = a == a let (q: bool) = a < b let (r: bool) = b != b let (s: bool) = r | q "
    "let (c: bool) = s & p",
}
TAKEN = "let (d: T) = select(c, b, a) let (k: i64) = select(c, j, i)"
KEPT = "let (d: T) = select(c, a, b) let (k: i64) = select(c, i, j)"
BRANCHES = "let (d: T, k: i64) = if c then (b, j) else (a, i)"


def best(element: str, condition: str, chosen: str, neutral: str, numbers: str = "t") -> Program:
    code = f"{condition} {chosen}".replace("T", element)
    return parse_program(f"""
def best (x: [n]{element}, p: [n]i64) =
  let (t: [n]i64) = iota n i64
  let (v: {element}, at: i64) = reduce n (\\(a: {element}, i: i64, b: {element}, j: i64) -> {code} in (d, k))
    ({neutral}, -1i64) x {numbers}
  in (v, at)""")


def merges(program: Program) -> bool:
    item: Any = SimpleNamespace(arrays={"t": IotaArray(program.parameters[0].type.shape[0], I64)})
    return first_best(item, program.body.statements[1].expression) is not None  # type: ignore[arg-type]


def check(program: Program, x: np.ndarray) -> None:
    arguments = x, np.arange(len(x))[::-1].copy()
    wanted = interpret(program, arguments)
    found = compile_program(program, device_for("cpu"))(*arguments)
    for one, other in zip(found, wanted, strict=True):
        assert one == other or (np.isnan(one) and np.isnan(other)), (found, wanted)
        assert np.signbit(one) == np.signbit(other)


VALUES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0]


@pytest.mark.parametrize("chosen", [TAKEN, BRANCHES])
@pytest.mark.parametrize("name", STRICT)
@given(st.sampled_from([0, 1, 31, 64, 65, 200, 700]), st.integers(1, len(VALUES)), st.integers(0, 999))
@settings(deadline=None, max_examples=25)
def test_the_first_of_equal_floats(name: str, chosen: str, count: int, kinds: int, seed: int) -> None:
    """Many are equal, and any may be nan, or what the neutral element is."""
    program = best("f32", STRICT[name], chosen, "-f32.inf" if "more" in name else "f32.inf")
    assert merges(program)
    random = np.random.default_rng(seed)
    check(program, random.choice(random.permutation(VALUES)[:kinds], count).astype("f4"))


@pytest.mark.parametrize(
    ("condition", "chosen"),
    [("let (c: bool) = a <= b", KEPT), ("let (c: bool) = b >= a", KEPT), ("let (c: bool) = b > a", TAKEN)],
)
@given(st.sampled_from([0, 3, 64, 300]), st.integers(0, 999))
@settings(deadline=None, max_examples=15)
def test_the_first_of_equal_integers(condition: str, chosen: str, count: int, seed: int) -> None:
    program = best("i32", condition, chosen, "5i32")
    assert merges(program)
    check(program, np.random.default_rng(seed).integers(-9, 9, count).astype("i4"))


LOOSE = "let (c: bool) = a <= b"
DECLINED = {
    "a nan would be kept": ("f32", LOOSE, KEPT, "f32.inf", "t"),
    "the last of equal ones": ("i32", "let (c: bool) = b >= a", TAKEN, "5i32", "t"),
    "nothing is less than nan": ("f32", STRICT["less"], TAKEN, "f32.nan", "t"),
    "numbers of other rows": ("f32", STRICT["less"], TAKEN, "f32.inf", "p"),
    "only one is chosen": (
        "f32",
        STRICT["less"],
        "let (d: T) = select(c, b, a) let (k: i64) = max(i, j)",
        "f32.inf",
        "t",
    ),
    "both ways": ("f32", STRICT["less"], "let (d: T) = select(c, b, a) let (k: i64) = select(c, i, j)", "f32.inf", "t"),
    "nan of the wrong value": (
        "f32",
        "let (p: bool) = a == a let (q: bool) = b < a let (r: bool) = a != a let (s: bool) = q | r "
        "let (c: bool) = p & s",
        TAKEN,
        "f32.inf",
        "t",
    ),
    "nan of the numbers": (
        "f32",
        "let (p: bool) = i == i let (q: bool) = b < a let (r: bool) = j != j let (s: bool) = q | r "
        "let (c: bool) = p & s",
        TAKEN,
        "f32.inf",
        "t",
    ),
    "by the number": ("f32", "let (c: bool) = j < i", TAKEN, "f32.inf", "t"),
}


@pytest.mark.parametrize("why", DECLINED)
def test_others_are_combined_in_the_order_of_the_rows(why: str) -> None:
    assert not merges(best(*DECLINED[why]))
