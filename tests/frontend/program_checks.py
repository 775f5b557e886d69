"""Running traced programs in every way and comparing with what NumPy says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.frontend.program import TracedProgram
from tilewright.ir.interpreter import interpret
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.runtime.devices import DeviceError, device_for

TOLERANCE = {2: 5e-3, 4: 2e-5, 8: 1e-10, 16: 1e-10}


def opencl_or_skip() -> None:
    try:
        device_for("opencl")
    except DeviceError as error:
        pytest.skip(str(error))


def assert_same(actual: Any, expected: Any) -> None:
    """Equal structure, shapes and dtypes; equal values, floats up to rounding."""
    if isinstance(expected, tuple):
        assert isinstance(actual, tuple) and len(actual) == len(expected)
        for one, wanted in zip(actual, expected, strict=True):
            assert_same(one, wanted)
        return
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    if expected.dtype.kind in "fc":
        relative = TOLERANCE[expected.dtype.itemsize // (2 if expected.dtype.kind == "c" else 1)]
        np.testing.assert_allclose(actual, expected, rtol=relative, atol=relative)
    else:
        np.testing.assert_array_equal(actual, expected)


def check(
    program: TracedProgram, arguments: tuple[Any, ...], expected: Any, targets: tuple[str, ...] = ("cpu",)
) -> None:
    """The interpreter and the compiled program give what is expected; the printed program reads back."""
    traced = program.trace(*(np.asarray(one).dtype for one in arguments))
    assert parse_program(print_program(traced)) == traced
    wanted = expected if isinstance(expected, tuple) else (expected,)
    assert_same(tuple(np.asarray(one) for one in interpret(traced, arguments)), tuple(map(np.asarray, wanted)))
    for target in targets:
        assert_same(program(*arguments, target=target), expected)
