"""Sums of f16 and bf16: read in vectors, rounded once by a kernel, and repeated without deciding anything again."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.cli.stages import follow
from tilewright.ir.scalars import BF16
from tilewright.passes.compile import compile_program
from tilewright.runtime.devices import device_for


def halves(dtype: str, count: int) -> np.ndarray:
    values = np.random.default_rng(8).random(count).astype("f4") / 8
    return values.astype("f2") if dtype == "f16" else (values.view("u4") >> 16).astype("u2").view(BF16.numpy)


def exact(array: np.ndarray) -> np.ndarray:
    """The values as f64."""
    return array.astype("f8") if array.dtype == "f2" else (array.view("u2").astype("u4") << 16).view("f4").astype("f8")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("expression", "shape"), [("i->", (3001,)), ("ij->", (37, 53)), ("i->", (200_000,))])
def test_a_sum_is_rounded_once_and_repeated(dtype: str, expression: str, shape: tuple[int, ...]) -> None:
    if dtype == "bf16":
        pytest.importorskip("ml_dtypes", reason="NumPy has bf16 by ml_dtypes only")
    letters = expression.removesuffix("->")
    optimised = follow(expression, dict(zip(letters, shape, strict=True)), dtype).optimised
    executable = compile_program(optimised, device_for("cpu"), optimise=False)
    array = halves(dtype, int(np.prod(shape))).reshape(shape)
    result = executable(array)
    assert result.dtype == array.dtype
    total = exact(array).sum()
    digits = 11 if dtype == "f16" else 8  # rounded once, after a sum in f32 whose tree is some 20 additions deep
    assert abs(float(exact(np.array([result]))[0]) - total) <= total * (2.0**-digits + 40 * 2.0**-24)
    assert len(executable.bound.plans) == 1
    assert executable(array) == result
