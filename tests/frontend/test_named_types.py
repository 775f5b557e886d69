"""Names of dtypes in programs mean what they mean in NumPy; those that are other types here are refused."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

SAME = ["f2", "f4", "f8", "<f4", "=f8", "i1", "i2", "i4", "u1", "u2", "u4", "c8", "c16", "int8", "int64", "uint64", "?"]
SAME += ["float32", "single", "double", "bool", float, int, bool, complex, np.int64, np.dtype("i8"), np.dtype("u8")]
MADE: list[Callable[[Any, Any], Any]] = [
    lambda x, dtype: x.astype(dtype),
    lambda x, dtype: np.zeros_like(x, dtype=dtype),
    lambda x, dtype: np.full_like(x, 1, dtype),
    lambda x, dtype: x.astype(dtype)[0],
    np.ones_like,
]


@pytest.mark.parametrize("dtype", SAME, ids=str)
def test_names_of_types_are_those_of_numpy(dtype: Any) -> None:
    @tw.program
    def made(x: tw.f32["n"]) -> Any:
        return tuple(one(x, dtype) for one in MADE)

    x = np.arange(3, dtype=np.float32)
    for one, found in zip(MADE, made(x), strict=True):
        expected = one(x, dtype)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["i8", "u8"])
@pytest.mark.parametrize(
    "use",
    [
        *MADE,
        lambda x, dtype: tw.iota(3, dtype),
        lambda x, dtype: tw.replicate(3, 1, dtype),
        lambda x, dtype: tw.cast(x[0], dtype),
        lambda x, dtype: x.sum(dtype=dtype),
        lambda x, dtype: x.mean(dtype=dtype),
        lambda x, dtype: np.cumsum(x, dtype=dtype),
        lambda x, dtype: tw.einsum("i->", x, dtype=dtype),
        lambda x, dtype: tw.map(lambda one: one.astype(dtype), x),
    ],
)
def test_names_that_mean_other_types_in_numpy_are_refused(use: Callable[[Any, Any], Any], name: str) -> None:
    @tw.program
    def made(x: tw.f32["n"]) -> Any:
        return use(x, name)

    message = f"test_named_types.py:.*dtype '{name}' is u?int64 in NumPy and u?int8 as tw.{name}; write"
    with pytest.raises(ValueError, match=message):
        made(np.ones(3, np.float32))


def test_numbers_and_trees_refuse_them_too() -> None:
    with pytest.raises(ValueError, match="dtype 'i8' is int64 in NumPy"):
        tw.cast(2.5, "i8")
    with pytest.raises(ValueError, match="dtype 'u8' is uint64 in NumPy"):
        tw.plan_tree("[[0,1],[1,2]->[0,2]],[2,3]->[0,3]", [4, 5, 6, 7], dtype="u8")


@pytest.mark.parametrize("name", ["i8", "u8"])
@pytest.mark.parametrize(
    "use",
    [
        lambda dtype: tw.plan("ij,jk->ik", (2, 3), (3, 2), dtype=dtype),
        lambda dtype: tw.plan("ij,jk->ik", (2, 3), (3, 2), dtype=["f32", dtype]),
        lambda dtype: tw.plan("ij,jk->ik", (2, 3), (3, 2), out_dtype=dtype),
        lambda dtype: tw.plan("ij,jk->ik", (2, 3), (3, 2), compute_dtype=dtype),
        lambda dtype: tw.plan_tree("[0,1],[1,2]->[0,2]", [2, 3, 2], dtype=dtype),
        lambda dtype: tw.einsum("ij->", np.ones((2, 3)), dtype=dtype),
        lambda dtype: tw.einsum("ij->", np.ones((2, 3)), dtype=dtype, memory_limit=10**6),
        lambda dtype: tw.einsum_tree("[0,1],[1,2]->[0,2]", None, [np.eye(2), np.eye(2)], dtype=dtype),
        lambda dtype: tw.empty(3, dtype),
    ],
)
def test_every_function_refuses_them_in_the_same_words(use: Callable[[str], Any], name: str) -> None:
    message = f"dtype '{name}' is u?int64 in NumPy and u?int8 as tw.{name}; write 'u?int8' or 'u?int64'"
    with pytest.raises(ValueError, match=message):
        use(name)


def test_annotations_mean_eight_bits() -> None:
    @tw.program
    def small(x: tw.i8["n"]) -> Any:
        return x.astype(tw.u8), x

    unsigned, same = small(np.array([1, -1], np.int8))
    assert unsigned.dtype == np.uint8 and same.dtype == np.int8 and unsigned.tolist() == [1, 255]


@pytest.mark.parametrize("name", ["float32", "complex64", "int16", "bool"])
def test_classes_of_scalars_are_dtypes_of_generic_programs(name: str) -> None:
    @tw.program
    def twice(x: tw.array["n"]) -> Any:
        return tw.map(lambda one: one * one, x)

    scalar = np.dtype(name).type
    assert str(twice.trace(scalar)) == str(twice.trace(np.dtype(name)))
    assert twice.explain(scalar) == twice.explain(np.dtype(name))
    assert twice.thresholds(scalar) == twice.thresholds(np.dtype(name))
    assert twice.derivation(scalar).print() == twice.derivation(np.dtype(name)).print()
    assert str(twice.trace(float)) == str(twice.trace("f64")) == str(twice.trace(np.ones(2)))


def test_classes_that_are_no_dtypes_are_told() -> None:
    @tw.program
    def same(x: tw.float_["n"]) -> Any:
        return x

    with pytest.raises(TypeError, match=r"program same: parameter x: float_.* does not take dtype i32"):
        same.trace(np.int32)
    with pytest.raises(TypeError, match=r"program same: parameter x: dtype object is not supported"):
        same.trace(np.object_)
