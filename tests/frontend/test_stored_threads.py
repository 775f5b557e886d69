"""Einsums from the disk, first called on fewer threads than later: compiled anew, they have a short way then, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stored_checks import E2, forget, only_bound, some

import tilewright as tw
from tilewright.frontend import einsum as einsum_module
from tilewright.frontend.einsum_stored import StoredEinsum
from tilewright.runtime import cpu_entry

N = 192  # so many multiplications that they are worth several threads


@pytest.mark.usefixtures("disk")
@pytest.mark.skipif(not cpu_entry.entries_are_possible(), reason="this interpreter has no native entries")
def test_the_short_way_on_more_threads_than_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = some(N, N), some(N, N, seed=1)
    with tw.num_threads(1):
        tw.einsum(E2, a, b, target="cpu")
        forget(monkeypatch)
        for _ in range(3):
            tw.einsum(E2, a, b, target="cpu")
    assert isinstance(only_bound(), StoredEinsum)
    with tw.num_threads(2):
        for _ in range(4):
            tw.einsum(E2, a, b, target="cpu")

    def fail(*_: Any) -> None:
        raise AssertionError("the long way was taken")

    monkeypatch.setattr(einsum_module, "_by_form", fail)
    for threads in (2, 1, 2):
        with tw.num_threads(threads):
            np.testing.assert_array_equal(tw.einsum(E2, a, b, target="cpu"), a @ b)
