"""Comparing compiled programs with the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.ir.parser import parse_program
from tilewright.ir.verifier import verify
from tilewright.passes.compile import compile_program
from tilewright.runtime.devices import Device, DeviceError, device_for
from tilewright.runtime.executable import Executable


def compiled(program: Program | str, device: str = "cpu", optimise: bool = False) -> Executable:
    """A verified program for a device; the test is skipped where there is no such device."""
    parsed = parse_program(program) if isinstance(program, str) else program
    verify(parsed)
    try:
        found = device_for(device)
    except DeviceError as error:
        pytest.skip(str(error))
    return compile_program(parsed, found, optimise=optimise)


def assert_close(actual: Any, expected: Any) -> None:
    """Equal shapes and dtypes; equal values, floats up to a few roundings."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    if expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(actual, expected)
        return
    relative = {2: 2e-3, 4: 1e-4, 8: 1e-4 if expected.dtype.kind == "c" else 1e-9, 16: 1e-9}[expected.dtype.itemsize]
    np.testing.assert_allclose(actual, expected, rtol=relative, atol=relative / 10)


def check(program: Program | str, arguments: Sequence[Any], device: str = "cpu", optimise: bool = False) -> Executable:
    """Run a program twice (the second time by its bound plan) and compare with the interpreter."""
    parsed = parse_program(program) if isinstance(program, str) else program
    return compare(parsed, compiled(parsed, device, optimise), arguments)


def check_on(program: str, arguments: Sequence[Any], device: Device) -> Executable:
    """The same for a device that is not one of this machine's."""
    parsed = parse_program(program)
    verify(parsed)
    return compare(parsed, compile_program(parsed, device, optimise=False), arguments)


def compare(parsed: Program, run: Executable, arguments: Sequence[Any]) -> Executable:
    """Run a compiled program twice and compare with the interpreter."""
    expected = interpret(parsed, arguments)
    for _ in range(2):
        results = run(*arguments)
        results = results if len(expected) > 1 else (results,)
        for actual, wanted in zip(results, expected, strict=True):
            assert_close(actual, wanted)
    return run
