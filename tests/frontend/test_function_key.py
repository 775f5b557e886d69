"""Functions that are written in a loop mean the same in each round, unless something that they find has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.frontend import einsum as einsum_module
from tilewright.frontend.function_key import function_key
from tilewright.runtime import cpu_entry

A, B = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
SCALE: Any = 2.0


def doubled(x: Any) -> Any:
    return x * 2


def endless(x: Any) -> Any:
    return endless(x)


def of_cell(value: Any) -> Callable[..., Any]:
    return lambda x: x * value


def of_default(value: Any) -> Callable[..., Any]:
    return lambda x, by=value: x * by


def of_keyword(value: Any) -> Callable[..., Any]:
    def scaled(x: Any, *, by: Any = value) -> Any:
        return x * by

    return scaled


def of_inner(value: Any) -> Callable[..., Any]:
    def scaled(x: Any) -> Any:
        return next(y * value for y in (x,))

    return scaled


MAKERS = [of_cell, of_default, of_keyword, of_inner]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "value", [2, 2.5, True, 1j, "text", None, np.float32(3), np.pi, tw, np.exp, len, (1, (2.0,)), doubled]
)
def test_equal(make: Callable[[Any], Callable[..., Any]], value: Any) -> None:
    assert make(value) is not make(value)
    assert function_key(make(value)) == function_key(make(value))
    assert hash(function_key(make(value))) == hash(function_key(make(value)))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("one", "other"),
    [(2, 3), (2, 2.0), (1, True), (0.0, -0.0), (np.float32(1), 1.0), (np.sin, np.cos), ((1, 2), (2, 1))],
)
def test_others_are_other_functions(make: Callable[[Any], Callable[..., Any]], one: Any, other: Any) -> None:
    assert function_key(make(one)) != function_key(make(other))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("value", [[2.0], {}, np.ones(2), object(), pytest, (1, [2]), endless], ids=type)
def test_what_may_change_is_not_relied_on(make: Callable[[Any], Callable[..., Any]], value: Any) -> None:
    function = make(value)
    assert function_key(function) is function
    assert function_key(function) != function_key(make(value))


def test_what_is_no_function_is_its_own_key() -> None:
    assert function_key(None) is None
    assert function_key(np.exp) is np.exp


def test_other_code() -> None:
    assert function_key(lambda x: x + 1) != function_key(lambda x: x + 2)


def test_variables_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled() -> Any:
        return tw.einsum("ij,jk->ik", A, B, epilogue=lambda x: x * SCALE)

    for _ in range(3):
        np.testing.assert_array_equal(scaled(), A @ B * 2)
    for value in (3.0, np.float64(4.0), 5):
        monkeypatch.setitem(globals(), "SCALE", value)
        np.testing.assert_array_equal(scaled(), A @ B * value)
    held = np.array([6.0])
    monkeypatch.setitem(globals(), "SCALE", held)
    for value in (6.0, 7.0):
        held[0] = value
        np.testing.assert_array_equal(tw.einsum("ij,jk->ik", A, B, epilogue=lambda x: x * SCALE[0]), A @ B * value)


@pytest.mark.skipif(not cpu_entry.entries_are_possible(), reason="this interpreter has no native entries")
@pytest.mark.parametrize("operands", ["", "plain", "labelled", "both"])
def test_functions_in_a_loop_take_the_short_way(operands: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bias, full = np.arange(4.0), np.arange(8.0).reshape(2, 4)
    given = {"": [], "plain": [full], "labelled": [(bias, "k")], "both": [full, (bias, "k")]}[operands]
    wanted = A @ B + {"": 0, "plain": full, "labelled": bias, "both": full + bias}[operands] - 5

    def once() -> Any:
        offset = 5
        return tw.einsum(
            "ij,jk->ik", A, B, target="cpu", epilogue=lambda x, *more: sum(more, x) - offset, epilogue_operands=given
        )

    for _ in range(3):
        np.testing.assert_array_equal(once(), wanted)
    monkeypatch.setattr(einsum_module, "_by_form", None)
    np.testing.assert_array_equal(once(), wanted)


@pytest.mark.parametrize(
    ("operands", "added"),
    [([1.0], 1), ([np.float64(2)], 2), ([(np.ones(4), ["k"])], 1), ([np.ones(8)[::-2]], 1), ((np.ones((2, 4)),), 1)],
)
def test_operands_that_are_no_plain_arrays(operands: Any, added: int) -> None:
    for _ in range(3):
        found = tw.einsum("ij,jk->ik", A, B, target="cpu", epilogue=lambda x, y: x + y, epilogue_operands=operands)
        np.testing.assert_array_equal(found, A @ B + added)


@pytest.mark.parametrize("operands", ["ab", {"a": 1}, 5, [np.ones(4), np.ones(4)], [(np.ones(4), "j")], [None]])
def test_wrong_operands_are_refused_by_the_long_way(operands: Any) -> None:
    tw.einsum("ij,jk->ik", A, B, target="cpu", epilogue=lambda x, y: x + y, epilogue_operands=[np.ones(4)])
    for _ in range(3):
        with pytest.raises((TypeError, ValueError), match=r"epilogue|operand"):
            tw.einsum("ij,jk->ik", A, B, target="cpu", epilogue=lambda x, y: x + y, epilogue_operands=operands)
