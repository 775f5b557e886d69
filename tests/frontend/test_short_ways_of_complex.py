"""Complex products are repeated by native code, however large the workspace that their kernels could use."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.frontend import einsum as einsum_module


@pytest.mark.parametrize("text", ["cefg,eh->fghc", "abcd,cefg,eh->abdfgh", "ab,bc,cd->ad"])
def test_complex_products_have_short_ways(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(einsum_module, "_CALLS", {})
    chosen = np.random.default_rng(1)
    shapes = [(2,) * len(term) for term in text.partition("->")[0].split(",")]
    arrays = [chosen.random(shape) + 1j * chosen.random(shape) for shape in shapes]
    for _ in range(3):
        np.testing.assert_allclose(tw.einsum(text, *arrays), np.einsum(text, *arrays))
    (bound,) = einsum_module._CALLS.values()
    assert bound.quick is not None
    assert len(bound.quick.entries) == 1
