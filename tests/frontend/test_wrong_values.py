"""A value that cannot be used is told by name or number, with what was needed, in a message of a line or two."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

A, B = np.ones((3, 4)), np.ones((4, 5))
MILLION = list(range(1_000_000))
TREE = "[a,b],[b,c]->[a,c]"


@tw.program
def doubled(xs: tw.f64["n"]) -> Any:
    return xs * 2


def reshaped(x: tw.f64["n", "m"]) -> Any:
    return tw.reshape(x, (2, 3))


def traced(function: Callable[[Any], Any], annotation: Any = tw.f64["n", "m"]) -> Callable[[], object]:
    def body(x: Any) -> Any:
        return function(x)

    body.__annotations__ = {"x": annotation}
    return lambda: tw.program(body).trace()


CASES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (traced(lambda x: tw.rearrange(x, (1.9, 0))), TypeError, "a permutation is a sequence of integers, not (1.9, 0)"),
    (traced(lambda x: tw.rearrange(x, 1)), TypeError, "rearrange: a permutation is a sequence of integers, not 1 of"),
    (traced(lambda x: tw.transpose(x, "ba")), TypeError, "a permutation is a sequence of integers, not 'ba' of type"),
    (lambda: tw.einsum("ij,jk", A, None), TypeError, "None of type NoneType is no array of numbers (operand 1)"),
    (lambda: tw.einsum(A), TypeError, "it was given only an array of shape (3, 4) and dtype float64"),
    (lambda: tw.einsum(A, [0, 1], B), TypeError, "einsum: an array of shape (5,) and dtype float64 among the indices"),
    (
        lambda: tw.einsum("ij->ij", A, epilogue=lambda x, y: x + y, epilogue_operands=[(None, "j")]),
        TypeError, "epilogue operand 0: None of type NoneType is no array",
    ),
    (
        lambda: tw.plan("ij,jk->ik", (3, 4), (4, 5.5)),
        TypeError, "plan 'ij,jk->ik': operand 1 has the shape (4, 5.5), whose sizes are not all integers",
    ),
    (lambda: tw.plan("i,i->", 3, 3), TypeError, "plan 'i,i->': operand 0 is 3; a shape is a tuple, (3,) of a vector"),
    (lambda: tw.plan("i,i->", (3,), np.int64(3)), TypeError, "plan 'i,i->': operand 1 is 3; a shape is a tuple, (3,)"),
    (
        lambda: tw.plan("i,i->i", (3,), (3,), epilogue=lambda x, y: x + y, epilogue_operands=[3]),
        TypeError, "plan: epilogue operand 0 is 3; a shape is a tuple, (3,) of a vector",
    ),
    (lambda: tw.einsum(b"ij->ji", A), TypeError, "(a str), not b'ij->ji' of type bytes; write .decode() of it"),
    (
        lambda: tw.einsum("i,->i", A[0], 2**64),
        TypeError, "18446744073709551616 of type int has an integer that 64 bits cannot hold; write it as a",
    ),
    (
        lambda: tw.einsum("i,i->i", [1.5, np.int64(2), 2**70, 1j], [1, 2, 3, 4]),
        TypeError, "has an integer that 64 bits cannot hold; write it as a float (operand 0)",
    ),
    (lambda: tw.einsum("i->i", [None, 2**70]), TypeError, "is no array of numbers (operand 0)"),
    (lambda: tw.plan("ij,jk->ik", A, B)(A, None), TypeError, "plan 'ij,jk->ik': None of type NoneType is no array"),
    (lambda: tw.tensordot(A, B, axes=-1), ValueError, "of 2 and 2 dimensions; it must be from 0 to 2"),
    (lambda: tw.tensordot(A, None, axes=1), TypeError, "tensordot: None of type NoneType is no array of numbers"),
    (lambda: tw.einsum_tree(TREE, None, [A, None]), TypeError, "einsum_tree: None of type NoneType is no array of"),
    (lambda: tw.einsum_tree(TREE, A, B), TypeError, "einsum_tree: sizes must be None or give the size of each index"),
    (lambda: tw.einsum_tree("[0,1],[1,2]->[0,2]", 3, [A, B]), TypeError, "it is 3 of type int"),
    (
        lambda: tw.Semiring("add", lambda a, b: a + b, 0),  # type: ignore[arg-type]
        TypeError, "semiring custom: map must be a function of two scalars, not 'add'",
    ),
    (lambda: tw.program(3), TypeError, "tw.program needs a function, not 3 of type int"),  # type: ignore[call-overload]
    (traced(lambda x: x, "tw.f64['n' "), TypeError, "program body: an annotation cannot be read: "),
    (traced(lambda x: x, "np.nothing"), TypeError, "an annotation cannot be read: module 'numpy' has no attribute"),
    (traced(lambda x: x.sum(axis="a")), TypeError, "sum: an axis is an integer, not 'a' of type str"),
    (traced(np.linalg.inv), TypeError, "numpy.linalg.inv cannot be traced"),
    (traced(np.fft.fft), TypeError, "numpy.fft.fft cannot be traced"),
    (traced(np.sort), TypeError, "numpy.sort cannot be traced"),
    (lambda: tw.program(reshaped)(A), ValueError, "program reshaped: x of shape (3, 4) cannot be reshaped to (2, 3)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), CASES, ids=[re.sub(r"\W+", "_", one[2])[:40] for one in CASES])
def test_wrong_values_are_named(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: tw.einsum("ij,jk->ik", x, x), "einsum 'ij,jk->ik': index 'j' has size m in operand 0"),
        (lambda x: tw.einsum("ij,ij,ij->i", x, x, x, optimize=[(0, 7)]), r"path \(\(0, 7\),\): step 0 is \(0, 7\)"),
    ],
)
def test_einsums_in_programs_say_where_they_are(function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^test_wrong_values\.py:\d+: in program body: {message}"):
        traced(function)()


@pytest.mark.parametrize(
    "call",
    [
        lambda: doubled(MILLION),
        lambda: tw.einsum("i->", [*MILLION, None]),
        lambda: tw.einsum("ij->", [MILLION, [1]]),
        lambda: tw.einsum("i->i", np.ones(3), out=MILLION),
        lambda: tw.set_num_threads(MILLION),
        lambda: tw.tensordot(A, B, axes=MILLION),
    ],
)
def test_long_values_are_told_briefly(call: Callable[[], object]) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert len(str(caught.value)) < 400
    assert "[0, 1, 2, 3, 4, 5, ...]" in str(caught.value)
