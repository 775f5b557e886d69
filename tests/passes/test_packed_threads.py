"""The packed form in whole programs: work is shared out among the threads that may be used."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime import cpu_pool

SIZE = 300


@pytest.mark.parametrize("threads", [1, 2, 5], indirect=True)
def test_as_many_blocks_as_threads_need(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread packs each side once; several get several blocks each, and all compute the same."""
    blocks: list[int] = []
    prepare = cpu_pool.prepare

    def prepared(native, arguments, count, *rest, **named):  # type: ignore[no-untyped-def]
        blocks.append(count)
        return prepare(native, arguments, count, *rest, **named)

    monkeypatch.setattr(cpu_pool, "prepare", prepared)
    generator = np.random.default_rng(threads)
    left, right = generator.random((SIZE, SIZE)), generator.random((SIZE, SIZE))
    got = tw.einsum("ij,jk->ik", left, right, out=np.empty((SIZE, SIZE)))
    bound = (SIZE + 2) * np.finfo(np.float64).eps
    np.testing.assert_allclose(got, left @ right, rtol=2 * bound)
    assert blocks
    assert max(blocks) == 1 if threads == 1 else max(blocks) >= threads
