"""Launches find a device's kernel by the kernel itself: its text is made once, however often it runs."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from runtime_kernels import constant_kernel, scale_kernel

import tilewright as tw
from tilewright.kernel.ir import Kernel
from tilewright.passes.compile import compile_program
from tilewright.runtime import opencl_device
from tilewright.runtime.cache import IdentityCache
from tilewright.runtime.devices import device_for
from tilewright.runtime.opencl_device import OpenCLRuntime

pytestmark = pytest.mark.opencl


@tw.program
def halved_until(x: tw.f64["n"], end: tw.f64) -> Any:
    def total(y: Any) -> Any:
        return tw.reduce("add", 0.0, y)

    return tw.while_loop(lambda y: total(y) > end, x, lambda y: tw.map(lambda e: e / 2, y))


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each kernel's text was made."""
    counts: Counter[int] = Counter()
    original = opencl_device.opencl_text

    def counted(kernel: Kernel) -> str:
        counts[id(kernel)] += 1
        return original(kernel)

    monkeypatch.setattr(opencl_device, "opencl_text", counted)
    return counts


def test_a_loop_prints_its_kernels_once(printed: Counter[int]) -> None:
    found = halved_until(np.full(64, 1024.0), 1.0, target="opencl")
    np.testing.assert_array_equal(found, np.full(64, 2.0**-6))
    assert printed
    assert set(printed.values()) == {1}


def test_a_kernel_is_found_by_itself_and_by_its_text(opencl_runtime: OpenCLRuntime, printed: Counter[int]) -> None:
    runtime = OpenCLRuntime(opencl_runtime.device)
    first, second = scale_kernel(), scale_kernel()
    assert first is not second
    compiled = [runtime.compile(kernel) for kernel in (first, first, second, second, first)]
    assert all(one is compiled[0] for one in compiled)
    assert [printed[id(kernel)] for kernel in (first, second)] == [1, 1]


def test_kernels_that_equal_each_other_in_python_are_told_apart(opencl_runtime: OpenCLRuntime) -> None:
    zeros = [opencl_runtime.compile(constant_kernel(value)) for value in (0.0, -0.0)]
    assert zeros[0] is not zeros[1]


def test_a_short_lived_kernel_leaves_no_wrong_one_behind(opencl_runtime: OpenCLRuntime) -> None:
    runtime = OpenCLRuntime(opencl_runtime.device)
    for value in range(40):  # each kernel may get the place in memory of the last one
        assert f"{value}" in runtime.compile(constant_kernel(float(value))).text


def test_an_object_and_what_was_built_of_it_stay_together() -> None:
    cache: IdentityCache[list[int], int] = IdentityCache(capacity=2)
    for value in range(40):  # lists may lie where the last one lay, unless it is kept
        assert cache.get_or_build([value], sum) == value
    one, equal = [7], [7]
    assert cache.get_or_build(one, lambda _: 1) == 1
    assert cache.get_or_build(equal, lambda _: 2) == 2
    assert cache.get_or_build(one, lambda _: 3) == 1


@tw.program
def risen(x: tw.f32["n"], rate: tw.f32, count: tw.i64) -> Any:
    """What a round multiplies by depends on an argument and on the round's number."""

    def one_round(i: Any, y: Any) -> Any:
        factor = rate * (i.astype("f32") + 1) + rate
        return tw.scan("max", -np.inf, tw.map(lambda e: e * factor, y))

    return tw.loop(count, x, one_round)


def test_rounds_that_compute_with_arguments_are_recorded() -> None:
    """A second call repeats the launches of the first one, with its own values of the arguments."""
    x = np.arange(1, 50, dtype="f4")
    executable = compile_program(risen.trace(), device_for("opencl"))
    for rate in (2.0, 3.0, 0.5):
        np.testing.assert_allclose(executable(x, rate, 3), x * rate**3 * (2 * 3 * 4), rtol=1e-5)
        assert len(executable.bound.plans) == 1
