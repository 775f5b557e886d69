"""Torch's functions of what a program or an epilogue is traced with: their namesakes, or what is written instead."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

torch = pytest.importorskip("torch")


def test_epilogues_with_functions_of_torch() -> None:
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    for function in (torch.relu, torch.nn.functional.relu, torch.sigmoid, torch.tanh, torch.exp):
        found = tw.einsum("ij,jk->ik", a, b, epilogue=lambda x, function=function: function(x))
        torch.testing.assert_close(found, function(a @ b))
    pair = tw.einsum(
        "ij,jk->ik", a, b, epilogue=lambda x: torch.where(x > 0, torch.maximum(x, x * 2), torch.abs(x) * 0)
    )
    torch.testing.assert_close(pair, torch.relu(a @ b) * 2)


def test_programs_with_functions_of_torch() -> None:
    @tw.program
    def rooted(x: tw.f64["n"]) -> Any:
        return torch.sqrt(torch.abs(x)) + tw.map(torch.square, x)

    x = np.array([-4.0, 9.0])
    np.testing.assert_allclose(rooted(x), np.sqrt(np.abs(x)) + x * x)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gelu", r"torch's gelu cannot be traced; use 0.5 \* x \* \(1 \+ tw.erf\(x / 2\*\*0.5\)\)"),
        ("softmax", "torch's softmax cannot be traced; use the functions of tilewright, as tw.relu"),
    ],
)
def test_other_functions_say_what_is_written(name: str, told: str) -> None:
    function = getattr(torch.nn.functional, name)
    with pytest.raises(TypeError, match=told):
        tw.einsum("ij,jk->ik", torch.ones(2, 2), torch.ones(2, 2), epilogue=function)
