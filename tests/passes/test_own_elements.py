"""Points of maps in rounds that read their own element only: written where the array lies, where it changes."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir import nodes
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Body, Program
from tilewright.ir.verifier import verify
from tilewright.passes.core import own_elements
from tilewright.passes.core.overwriting import overwriting
from tilewright.runtime import steps

Matrix = np.ndarray[Any, np.dtype[np.float64]]


# --- whole matrices in each round, as people write them ---------------------------------------------------------------


def _by_indices(a: Any, change: Callable[[Any, Any, Any, Any, Any], Any]) -> Any:
    """In round k element (i, j) becomes change(k, i, j, element, read), where read(r, c) is any element."""
    n, m = a.shape

    def step(k: Any, a: Any) -> Any:
        def point(i: Any, j: Any) -> Any:
            return change(k, i, j, a[i, j], lambda r, c: a[r, c])

        return tw.map(lambda i: tw.map(lambda j: point(i, j), tw.iota(m)), tw.iota(n))

    return tw.loop(n, a, step)


def _by_rows(a: Any, change: Callable[[Any, Any, Any, Any, Any], Any]) -> Any:
    """The same with rows as what maps go over; only row k and column k are read elsewhere."""
    n, m = a.shape

    def step(k: Any, a: Any) -> Any:
        line = a[k]

        def row(i: Any, r: Any) -> Any:
            at = tw.iota(m)
            return tw.map(lambda j, x, y: change(k, i, j, x, lambda p, q: y if p is k else r[k]), at, r, line)

        return tw.map(row, tw.iota(n), a)

    return tw.loop(n, a, step)


def _eliminated(k: Any, i: Any, j: Any, x: Any, read: Any) -> Any:
    rest = x - read(i, k) * read(k, j)
    return tw.where((i > k) & (j > k), tw.clip(rest, -9.0, 9.0), x)


def _shortest(k: Any, i: Any, j: Any, x: Any, read: Any) -> Any:
    return tw.minimum(x, read(i, k) + read(k, j))


def _mirrored(k: Any, i: Any, j: Any, x: Any, read: Any) -> Any:
    return tw.where(j < k, tw.where(i == k, x + read(k, j), x), tw.where(j <= i, x - 1, x))


CHANGES = {"eliminated": _eliminated, "shortest": _shortest, "mirrored": _mirrored}
FORMS = {"indices": _by_indices, "rows": _by_rows}


def _program(form: str, change: str) -> Any:
    @tw.program
    def rounds(a: tw.f64["n", "n"]) -> Any:
        return FORMS[form](a, CHANGES[change])

    return rounds


def _loops(body: Body) -> list[nodes.Statement]:
    return [one for one in body.statements if isinstance(one.expression, nodes.Loop)]


def _with_own(program: Program) -> Program:
    changed = [
        own_elements.with_own_elements(one) if isinstance(one.expression, nodes.Loop) else one
        for one in program.body.statements
    ]
    return Program(program.name, program.parameters, Body(tuple(changed), program.body.results))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("size", [0, 1, 4, 7])
def test_the_rule_keeps_what_programs_mean(form: str, change: str, size: int) -> None:
    program = _program(form, change).trace()
    written = _with_own(program)
    verify(written)
    before, after = _loops(program.body)[0], _loops(written.body)[0]
    assert overwriting(before) == {}
    (carried,) = (one.name for one in after.expression.parameters)  # type: ignore[union-attr]
    assert carried in overwriting(after)
    values = np.random.default_rng(size).integers(-3, 4, (size, size)).astype(float)
    (expected,), (found,) = interpret(program, [values]), interpret(written, [values])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("alone", [True, False])
def test_one_kernel_and_launches_agree(form: str, change: str, alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "pays_alone", lambda *_: alone)
    program = _program(form, change)
    for size in (0, 1, 7, 16, 33):
        values = np.random.default_rng(size).integers(-2, 3, (size, size)).astype(float)
        (expected,) = interpret(program.trace(), [values])  # small whole numbers: nothing is rounded
        for _ in range(2):
            np.testing.assert_array_equal(program(values, target="cpu"), expected)


# --- comparisons of any kind ------------------------------------------------------------------------------------------

_LEAF = st.tuples(
    st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]), st.sampled_from("ij"), st.integers(-2, 2), st.booleans()
)
_MASKS = st.recursive(
    _LEAF, lambda inside: st.tuples(st.sampled_from(["and", "or", "not"]), inside, inside), max_leaves=5
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}  # fmt: skip


def _mask(tree: Any, k: Any, i: Any, j: Any) -> Any:
    match tree:
        case ("and", one, two):
            return _mask(one, k, i, j) & _mask(two, k, i, j)
        case ("or", one, two):
            return _mask(one, k, i, j) | _mask(two, k, i, j)
        case ("not", one, _):
            return _mask(one, k, i, j) == False  # noqa: E712
    operator, index, shift, turned = tree
    left, right = (i if index == "i" else j), k + shift
    return _COMPARE[operator](right, left) if turned else _COMPARE[operator](left, right)


@settings(max_examples=20)
@given(st.lists(_MASKS, min_size=1, max_size=2), st.integers(1, 9), st.integers(1, 12), st.booleans())
def test_only_what_changes_is_left_out(masks: list[Any], n: int, m: int, both: bool) -> None:
    def step(k: Any, i: Any, j: Any, x: Any, where: Any) -> Any:
        found = where(_mask(masks[0], k, i, j), 2 * x + k, x)
        return where(_mask(masks[-1], k, i, j), x - 1, found) if both else found

    @tw.program
    def rounds(a: tw.f64["n", "m"]) -> Any:
        return _by_indices(a, lambda k, i, j, x, read: step(k, i, j, x, tw.where))

    values = np.random.default_rng(n * m).integers(-9, 9, (n, m)).astype(float)
    expected = values
    i, j = np.ogrid[:n, :m]
    for k in range(n):
        expected = step(k, i, j, expected, np.where)
    np.testing.assert_array_equal(rounds(values, target="cpu"), expected)


# --- what must not be lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq])
@pytest.mark.parametrize("bound", [-(2**63), -1, 0, 5, 99, 100, 2**63 - 1])
def test_masks_whose_bound_is_the_least_or_greatest_integer(mask: Callable[[Any, Any], Any], bound: int) -> None:
    @tw.program
    def counted(a: tw.f64["n"], bound: tw.i64, rounds: tw.i64) -> Any:
        def step(k: Any, a: Any) -> Any:
            return tw.map(lambda i, x: tw.where(mask(i, bound), x + 1.0, x), tw.iota(a.shape[0]), a)

        return tw.loop(rounds, a, step)

    expected = np.where(mask(np.arange(100), bound), 7.0, 0.0)
    np.testing.assert_array_equal(counted(np.zeros(100), bound, 7), expected)


def test_an_index_out_of_range_is_told_where_nothing_changes() -> None:
    @tw.program
    def rounds(a: tw.f64["n"], b: tw.f64["m"]) -> Any:
        def step(k: Any, a: Any) -> Any:
            return tw.map(lambda i: tw.where(i > k, a[i] + b[k + i], a[i]), tw.iota(a.shape[0]))

        return tw.loop(a.shape[0], a, step)

    values = np.arange(4.0)
    np.testing.assert_array_equal(rounds(values, np.ones(7), target="cpu"), values + np.arange(4))
    with pytest.raises(IndexError, match=r"\b6\b"):
        rounds(values, np.ones(6), target="cpu")  # round 3 reads b[6] for a point that stays as it is


def test_neighbours_are_read_before_they_change() -> None:
    @tw.program
    def rounds(a: tw.f64["n"], count: tw.i64) -> Any:
        (n,) = a.shape
        return tw.loop(count, a, lambda k, a: tw.map(lambda i: a[i] + a[tw.maximum(i - 1, 0)], tw.iota(n)))

    values = np.arange(1.0, 20)
    expected = values
    for _ in range(3):
        expected = expected + np.concatenate([expected[:1], expected[:-1]])
    np.testing.assert_array_equal(rounds(values, 3, target="cpu"), expected)


def test_two_arrays_in_one_map_each_in_its_own_memory() -> None:
    @tw.program
    def rounds(x: tw.f64["n"], r: tw.f64["n"], count: tw.i64) -> Any:
        def step(k: Any, x: Any, r: Any) -> Any:
            return tw.map(lambda a, b: (a + b, b - a), x, r)

        return tw.loop(count, (x, r), step)

    x, r = np.arange(20.0), np.arange(20.0)[::-1].copy()
    found = rounds(x, r, 5, target="cpu")
    for _ in range(5):
        x, r = x + r, r - x
    np.testing.assert_array_equal(found[0], x)
    np.testing.assert_array_equal(found[1], r)


def test_folds_of_columns_beside_their_own_element() -> None:
    """Lanes compute some points twice: x - sum is not the same once more."""

    @tw.program
    def rounds(a: tw.f64["n", "m"], x: tw.f64["m"], count: tw.i64) -> Any:
        def step(k: Any, x: Any) -> Any:
            return tw.map(lambda c, e: e - tw.reduce("add", 0.0, c), tw.transpose(a), x)

        return tw.loop(count, x, step)

    for m in (1, 15, 16, 17, 33, 50):
        a = np.random.default_rng(m).integers(-5, 5, (40, m)).astype(float)
        x = np.arange(float(m))
        np.testing.assert_array_equal(rounds(a, x, 3, target="cpu"), x - 3 * a.sum(0))
