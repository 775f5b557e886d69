"""Compiling for the CPU: what is done again when a program is called again."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime import cpu_device


@tw.program
def scaled(xs: tw.f64["n"], factor: tw.f64) -> Any:
    twice = 2 * factor  # a scalar that the host computes: such calls are not recorded
    return tw.map(lambda x: twice * x, xs)


def test_a_kernel_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []

    def printing(kernel: Any, cpu: Any, _print: Any = cpu_device.llvm_text) -> str:
        printed.append(kernel.name)
        text: str = _print(kernel, cpu)
        return text

    monkeypatch.setattr(cpu_device, "llvm_text", printing)
    for factor in (1.0, 2.0, 3.0):
        assert scaled(np.ones(5), factor).tolist() == [2 * factor] * 5
    assert len(printed) == 1
