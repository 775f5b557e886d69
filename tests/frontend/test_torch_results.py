"""Results that are written into torch's tensors: torch learns of it, and what is no plain memory is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw

torch = pytest.importorskip("torch")


@tw.program
def doubled(xs: tw.f32["n"]) -> Any:  # noqa: F821, UP037
    return xs * 2


WRITES: list[Callable[[Any], object]] = [
    lambda out: tw.einsum("i->i", torch.ones(3), alpha=2, out=out),
    lambda out: tw.plan("i->i", (3,), dtype="f32", alpha=2)(torch.ones(3), out=out),
    lambda out: tw.einsum_tree("[i],[i]->[i]", None, [torch.ones(3), torch.full((3,), 2.0)], out=out),
    lambda out: doubled(torch.ones(3), out=out),
]


@pytest.mark.parametrize("write", WRITES)
def test_no_gradient_is_computed_of_what_was_overwritten(write: Callable[[Any], object]) -> None:
    weight, x = torch.ones(3, requires_grad=True), torch.ones(3)
    loss = (weight * x).sum()
    write(x)
    assert x.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("write", WRITES)
def test_a_tensor_that_is_negated_when_it_is_read_is_refused(write: Callable[[Any], object]) -> None:
    held = torch.zeros(3, dtype=torch.complex64)
    with pytest.raises(ValueError, match="conjugated or negated when they are read"):
        write(held.conj().imag)
    assert not held.any()


def test_a_conjugated_tensor_is_refused() -> None:
    held = torch.zeros(3, dtype=torch.complex64)
    with pytest.raises(ValueError, match="conjugated or negated when they are read"):
        tw.einsum("i->i", torch.ones(3, dtype=torch.complex64), out=held.conj())
    assert tw.einsum("i->i", torch.ones(3, dtype=torch.complex64), out=held) is held
