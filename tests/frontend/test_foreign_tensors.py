"""Tensors of other libraries as operands."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.bf16["n"]
from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.scalars import BF16

INT16 = object()


class Tensor:
    """What torch's tensors of bf16 have: NumPy gets them only through a view as integers."""

    dtype = "torch.bfloat16"

    def __init__(self, values: Any, requires_grad: bool = False) -> None:
        self.values = values
        self.requires_grad = requires_grad

    def __dlpack__(self) -> None:
        raise BufferError("Unsupported dtype in DLTensor.")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Can't call numpy() on it" if self.requires_grad else "Got unsupported ScalarType BFloat16")

    def view(self, dtype: object) -> Any:
        assert dtype is INT16
        return SimpleNamespace(numpy=lambda: self.values.view(np.int16))


def test_bf16_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(int16=INT16))  # type: ignore[arg-type]
    pytest.importorskip("ml_dtypes")
    values = np.array([[1.0, -2.5], [0.5, 3.0]], BF16.numpy)
    result = tw.einsum("ij,kj->ik", Tensor(values), values)
    assert result.dtype == BF16.numpy
    np.testing.assert_array_equal(result, values @ values.T)

    @tw.program
    def doubled(xs: tw.bf16["n", "m"]) -> Any:
        return xs + xs

    np.testing.assert_array_equal(doubled(Tensor(values)), values + values)
    with pytest.raises(TypeError, match="einsum: an operand of type Tensor: Can't call numpy"):
        tw.einsum("ij->i", Tensor(values, requires_grad=True))
    with pytest.raises(TypeError, match="program doubled: parameter xs: Can't call numpy"):
        doubled(Tensor(values, requires_grad=True))


@pytest.mark.parametrize("dtype", ["O", "U1", "M8[s]", "V3", "longdouble"])
def test_arrays_of_other_than_our_numbers_are_refused_with_the_parameter(dtype: str) -> None:
    @tw.program
    def doubled(xs: tw.f64["n"]) -> Any:
        return xs + xs

    @tw.program
    def tripled(xs: tw.float_["n"]) -> Any:
        return xs + xs + xs

    with pytest.raises(TypeError, match=r"program doubled: parameter xs has type \[n\]f64, the argument has dtype"):
        doubled(np.zeros(3, dtype))
    with pytest.raises(TypeError, match=r"program tripled: parameter xs: dtype .* is not supported"):
        tripled(np.zeros(3, dtype))
