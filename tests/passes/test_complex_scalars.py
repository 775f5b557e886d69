"""Complex scalars that follow a fold, or that counts are divided into, are computed by kernels: calls are repeated."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.c64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime.devices import DeviceError, device_for
from tilewright.runtime.recording import Recording


def mean(x: tw.complex_["n", "m"]) -> Any:
    return x.mean()


def spread(x: tw.complex_["n", "m"]) -> Any:
    return x.std()


def turned(x: tw.complex_["n", "m"]) -> Any:
    total = x.sum()
    return x / total * total.conj() + abs(total) * 2j


def scaled(x: tw.complex_["n", "m"]) -> Any:
    return (x * x).sum() * x.size / (1 + 2j)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("function", [mean, spread, turned, scaled])
def test_the_host_computes_nothing(function: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    refuse = Recording.refuse
    monkeypatch.setattr(Recording, "refuse", lambda self, reason: (refused.append(reason), refuse(self, reason))[1])
    random = np.random.default_rng(8)
    x = (random.uniform(0.1, 1, (6, 5)) + 1j * random.uniform(0.1, 1, (6, 5))).astype(dtype)
    program = tw.program(function)
    first, second = program(x, target="cpu"), program(x, target="cpu")
    assert refused == []
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, function(x), rtol=1e-5)


@pytest.mark.parametrize("function", [mean, spread, turned, scaled])
def test_another_device_computes_the_same(function: Any) -> None:
    try:
        device_for("opencl")
    except DeviceError as error:
        pytest.skip(str(error))
    x = (np.arange(1, 31).reshape(6, 5) * (1 - 0.5j)).astype(np.complex64)
    np.testing.assert_allclose(tw.program(function)(x, target="opencl"), function(x), rtol=1e-5)


def test_complex_arguments_are_scalars_of_kernels() -> None:
    @tw.program
    def shifted(x: tw.c128["n"], a: tw.c128, b: tw.c128) -> Any:
        return x * (a * b + 1) + a / b

    x = np.arange(5) * (1 + 1j)
    for a, b in ((1 + 2j, 3 - 1j), (0.5j, 2 + 0j)):
        np.testing.assert_allclose(shifted(x, a, b), x * (a * b + 1) + a / b, rtol=1e-14)
