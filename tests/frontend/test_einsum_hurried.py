"""Einsums of new shapes: kernels of any shape at first, their own after some calls, with the same bits throughout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stored_checks import E2, forget, only_bound, some, without_compiler

import tilewright as tw
from tilewright.frontend import einsum_hurried
from tilewright.frontend.einsum_bind import BoundEinsum
from tilewright.frontend.einsum_hurried import HurriedEinsum
from tilewright.frontend.einsum_stored import StoredEinsum
from tilewright.runtime.flat_plan import ANY_SHAPE

A, B = some(30, 40, dtype=np.float64), some(40, 50, seed=1, dtype=np.float64)
CALLS = 9


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """All contractions are hurried, and worth kernels of their own after a few calls."""
    forget(monkeypatch)
    monkeypatch.setattr(einsum_hurried, "AT_ONCE", 0)
    monkeypatch.setattr(einsum_hurried, "PATIENCE", 0)
    monkeypatch.setattr(einsum_hurried, "LEAST_CALLS", CALLS)


def kernels(einsum: Any, *arrays: Any) -> set[str]:
    plan = einsum.bound.executable.flat_plan(arrays, einsum.bound.run(arrays, None))
    return {one.native.name for one in plan.launches}


@pytest.mark.usefixtures("hurry")
def test_calls_repay_a_kernel_of_its_own() -> None:
    wanted = A @ B
    for number in range(1, 30):
        np.testing.assert_array_equal(tw.einsum(E2, A, B), wanted)
        einsum = only_bound()
        assert isinstance(einsum, HurriedEinsum)
        assert einsum.calls == CALLS and (einsum._compiled is not None) == (number <= CALLS)
    assert isinstance(einsum.bound, BoundEinsum)
    assert ANY_SHAPE not in kernels(einsum, A, B)


@pytest.mark.usefixtures("hurry")
def test_the_first_calls_have_a_kernel_of_any_shape() -> None:
    a = A[1:]
    result = tw.einsum(E2, a, B)
    plan = only_bound().bound.executable.flat_plan((a, B), result)
    assert {one.native.name for one in plan.launches} == {ANY_SHAPE}
    out = np.zeros((29, 50))
    assert tw.einsum(E2, a, B, out=out) is out
    np.testing.assert_array_equal(out, a @ B)


@pytest.mark.usefixtures("hurry")
def test_what_is_as_it_would_be_anyway_is_not_compiled_again() -> None:
    a, b = some(20, 30, dtype=np.int32), some(30, 40, seed=1, dtype=np.int32)
    for _ in range(20):
        np.testing.assert_array_equal(tw.einsum(E2, a, b), a @ b)
    einsum = only_bound()
    assert einsum.calls == 0 and einsum._compiled is None and ANY_SHAPE not in kernels(einsum, a, b)
    assert einsum.quick.entries[0](a, b, None) is not None, "calls go on taking the short way"


@pytest.mark.usefixtures("hurry")
def test_the_environment_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_HURRY", "0")
    a = A[2:]
    np.testing.assert_array_equal(tw.einsum(E2, a, B), a @ B)
    assert isinstance(only_bound(), BoundEinsum)


def test_what_the_environment_cannot_say_is_told_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)
    monkeypatch.setattr(einsum_hurried, "_begun", [0])
    monkeypatch.setenv("TILEWRIGHT_HURRY", "slowly")
    with pytest.raises(ValueError, match="TILEWRIGHT_HURRY='slowly' is neither 1 nor 0"):
        tw.einsum(E2, A[3:], B)


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("operands", [2, 3])
def test_slow_calls_repay_one_sooner(monkeypatch: pytest.MonkeyPatch, operands: int) -> None:
    """Calls of a millisecond, by the clock: after a tenth of a second, of kernels that are worth tens of thousands."""
    times = iter(range(0, 10**12, 1_000_000))
    monkeypatch.setattr(einsum_hurried, "perf_counter_ns", lambda: next(times))
    monkeypatch.setattr(einsum_hurried, "PATIENCE", 1 << 32)
    arrays, text = (A[3:], B, some(50, 20, seed=2, dtype=np.float64))[:operands], ("ij,jk->ik", "ij,jk,kl->il")
    repaid = 0
    while not repaid or only_bound()._compiled is not None:
        tw.einsum(text[operands - 2], *arrays)
        repaid += 1
        assert isinstance(only_bound(), HurriedEinsum)
    assert only_bound().calls > 10_000 and 100 < repaid / (operands - 1) < 110


@pytest.mark.usefixtures("hurry")
def test_views_and_several_operands() -> None:
    assert tw.einsum("ij->ji", A).base is A
    c = some(50, 20, seed=2, dtype=np.float64)
    for _ in range(2 * CALLS):
        np.testing.assert_array_equal(tw.einsum("ij,jk,kl->li", A, B, c), (A @ B @ c).T)
        assert tw.einsum("ij,ij->", A, A) == (A * A).sum()


def test_only_the_first_contractions_get_kernels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)
    monkeypatch.setattr(einsum_hurried, "AT_ONCE", 3)
    monkeypatch.setattr(einsum_hurried, "_begun", [0])
    from tilewright.frontend import einsum as einsum_module

    for size in range(20, 26):
        a = some(30, size, seed=size)
        tw.einsum("ij,kj->ik", a, a)
    found = [isinstance(one, HurriedEinsum) for one in einsum_module._CALLS.values()]
    assert found == [False] * 3 + [True] * 3


@pytest.mark.usefixtures("hurry")
def test_later_processes_go_on_where_one_ended(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = tw.einsum(E2, A, B)
    assert isinstance(only_bound(), HurriedEinsum)
    with monkeypatch.context() as patched:
        without_compiler(patched)
        for _ in range(CALLS):
            np.testing.assert_array_equal(tw.einsum(E2, A, B), wanted)
        einsum = only_bound()
        assert isinstance(einsum, HurriedEinsum) and isinstance(einsum.bound, StoredEinsum)
        with pytest.raises(AssertionError, match="was compiled"):
            tw.einsum(E2, A, B)
    forget(monkeypatch)
    for _ in range(2 * CALLS):
        np.testing.assert_array_equal(tw.einsum(E2, A, B), wanted)
    without_compiler(monkeypatch)
    for _ in range(2 * CALLS):  # what is on the disk now are kernels of its own
        np.testing.assert_array_equal(tw.einsum(E2, A, B), wanted)
    assert isinstance(only_bound(), StoredEinsum)
