"""Repeated small calls: their short cuts give the same results and refuse the same things as the long way."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from children import true_in_a_child

import tilewright as tw
from tilewright.frontend import einsum as einsum_module
from tilewright.frontend.einsum_quick import MOST_ENTRIES
from tilewright.runtime import cpu_entry
from tilewright.runtime.errors import DeviceError

pytestmark = pytest.mark.skipif(not cpu_entry.entries_are_possible(), reason="this interpreter has no native entries")

E2 = "ij,jk->ik"
FORMS = [E2, "ij,ij->", "ij,jk,kl->il", "bij,bjk->bik", "ij,j->i"]  # a scalar, several launches, several blocks
DIAGONALS = ["ii->", "iij->j", "ii,ij->j", "iji,kk->kj", "ijij->i"]
EXTENTS = {"i": 5, "j": 7, "k": 6, "l": 4, "b": 3}


def some(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


def taught(expression: str, *arrays: Any, **options: Any) -> Any:
    """A plan that has learned to do these arrays the short way."""
    plan = tw.plan(expression, *arrays, target="cpu", **options)
    for _ in range(3):
        plan(*arrays)
    assert plan.bound.quick is not None and plan.bound.quick.entries
    return plan


def both_ways(expression: str, *arrays: Any) -> list[Callable[..., Any]]:
    """A plan and einsum, both of which know these arrays."""

    def einsum(*operands: Any, out: Any = None) -> Any:
        return tw.einsum(expression, *operands, out=out, target="cpu")

    for _ in range(3):
        einsum(*arrays)
    return [taught(expression, *arrays), einsum]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1", "c8"])
@pytest.mark.parametrize("expression", [*FORMS, "ij,jk->ki", "ij,ij->ji", "ij,k->ikj", "ij->j", *DIAGONALS])
def test_results(expression: str, dtype: str) -> None:
    inputs = expression.split("->", maxsplit=1)[0].split(",")
    arrays = [abs(some(*(EXTENTS[one] for one in term), dtype=dtype)) for term in inputs]
    for call in both_ways(expression, *arrays):
        for seed in range(3):
            fresh = [abs(some(*one.shape, seed=seed, dtype=dtype)) for one in arrays]
            expected = np.einsum(expression, *fresh, optimize=False)
            result = call(*fresh)
            np.testing.assert_array_equal(result, expected)
            assert type(result) is type(expected) and result.dtype == expected.dtype
            assert not result.ndim or (result.flags.c_contiguous and result.flags.writeable)
            out = np.empty_like(expected)
            assert call(*fresh, out=out) is out
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("shape", [(5, 6), (400, 410), (1, 6)], ids=["small", "recycled", "of one row"])
@pytest.mark.parametrize("layout", ["c", "f", "steps", "backwards"])
def test_updates(shape: tuple[int, int], layout: str) -> None:
    """With beta, kernels are given a copy of what the result held."""
    rows, columns = shape
    left, right = some(rows, 7, dtype="f8"), some(7, columns, dtype="f8")
    plan = tw.plan(E2, left, right, beta=-2.0, target="cpu")
    for call in (plan, lambda a, b, out: tw.einsum(E2, a, b, out=out, beta=-2.0, target="cpu")):
        held = (
            np.zeros((2 * rows, columns)) if layout == "steps" else np.zeros(shape, order="F" if layout == "f" else "C")
        )
        out = {"steps": held[::2], "backwards": held[:, ::-1]}.get(layout, held)
        for seed in range(4):
            before = out[...] = some(*shape, seed=seed, dtype="f8")
            assert call(left, right, out=out) is out
            np.testing.assert_array_equal(out, left @ right - 2 * before)
        assert not held[1::2].any() or layout != "steps"
        with pytest.raises(ValueError, match=r"beta( = -2\.0)? needs out"):
            call(left, right, out=None)
    assert plan.bound.quick is not None
    assert len(plan.bound.quick.entries) == 1


@pytest.mark.parametrize("expression", ["ij->ji", "ii->i", "iji->ji", "ijij->ji", "ijk->kij"])
def test_views(expression: str) -> None:
    array = some(*(EXTENTS[one] for one in expression.split("->", maxsplit=1)[0]))
    for call in both_ways(expression, array):
        for form in (array, array.copy(), np.asfortranarray(array), array[::-1]):  # which entries are for, and others
            view = call(form)
            assert np.shares_memory(view, form) and view.flags.writeable
            assert view.strides == np.einsum(expression, form).strides
            np.testing.assert_array_equal(view, np.einsum(expression, form))
        array.flags.writeable = False
        assert not call(array).flags.writeable
        array.flags.writeable = True
        out = np.empty_like(np.einsum(expression, array))
        assert call(array, out=out) is out
        np.testing.assert_array_equal(out, np.einsum(expression, array))
        assert not np.shares_memory(out, array)


def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = some(13, 13), some(13, 13, seed=1)  # of which no other test has called with the rows turned over
    calls = both_ways(E2, a, b)

    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the long way was taken")

    monkeypatch.setattr("tilewright.runtime.executable.Executable.__call__", fail)
    monkeypatch.setattr(einsum_module, "record_key", lambda *call: None)
    for call in calls:
        np.testing.assert_array_equal(call(a, b), a @ b)
        np.testing.assert_array_equal(call(b, a, out=np.empty_like(a)), b @ a)
        with pytest.raises(AssertionError, match="the long way"):
            call(a[::-1], b)


def test_arrays_of_other_forms_in_turns() -> None:
    a, b = some(8, 8), some(8, 8, seed=1)
    wide = some(16, 32, seed=2)
    raw = np.zeros(8 * 8 * 4 + 1, np.uint8)
    misaligned = raw[1:].view(np.float32).reshape(8, 8)
    misaligned[...] = a
    readonly = a.copy()
    readonly.flags.writeable = False
    forms = [a, a.T, a[::-1], wide[::2, ::4], wide[:8, 8:16], np.broadcast_to(a[0], (8, 8)), misaligned, readonly]
    for call in both_ways(E2, a, b):
        for _ in range(4):
            for one in forms:
                np.testing.assert_array_equal(call(one, b), np.einsum(E2, one, b))
                np.testing.assert_array_equal(call(b, one), np.einsum(E2, b, one))
                np.testing.assert_array_equal(call(one, one), np.einsum(E2, one, one))


def test_einsum_of_many_shapes_and_types() -> None:
    for _ in range(4):
        for n in range(1, MOST_ENTRIES + 5):
            for dtype in ("f4", "f8", ">f4", "i2"):
                a, b = some(n, 3, dtype=dtype), some(3, 4, dtype=dtype)
                result = tw.einsum(E2, a, b, target="cpu")
                np.testing.assert_array_equal(result, np.einsum(E2, a, b))
                assert result.dtype == np.dtype(dtype).newbyteorder("=")
    assert all(len(entries) <= MOST_ENTRIES for entries in einsum_module._RECENT.values())


@pytest.mark.parametrize("dtype", ["f4", "i2", "c16", "?"])
def test_arrays_with_a_dtype_of_their_own_take_the_short_way(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """As those have that come from other processes, and all that are computed from them."""
    a, b = some(3, 4, dtype=dtype), some(4, 5, dtype=dtype)
    calls = both_ways(E2, a, b)
    others = [pickle.loads(pickle.dumps(one)) for one in (a, b)]
    marked = a.view(np.dtype(dtype, metadata={"unit": "bohr"}))
    assert others[0].dtype is not a.dtype
    monkeypatch.setattr(einsum_module, "_by_form", None)
    monkeypatch.setattr("tilewright.frontend.einsum_plan.as_arrays", None)
    for call in calls:
        for left, right in (others, (a, others[1]), (marked, b)):
            result = call(left, right)
            np.testing.assert_array_equal(result, np.einsum(E2, a, b))
            assert result.dtype is a.dtype
            out = np.empty_like(others[1], shape=(3, 5))
            assert out.dtype is not a.dtype
            np.testing.assert_array_equal(call(left, right, out=out), result)


def test_indices_as_text_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = some(3, 4), some(4, 5)
    for _ in range(3):
        tw.einsum(a, "ij", b, "jk", "ik", target="cpu")
    with pytest.raises(TypeError, match="the expression comes first"):
        tw.einsum(a, "ij,jk", target="cpu")
    monkeypatch.setattr(einsum_module, "_by_form", None)
    np.testing.assert_array_equal(tw.einsum(a, "ij", b, "jk", "ik", target="cpu"), a @ b)
    np.testing.assert_array_equal(tw.einsum(a, ["i", "j"], b, ("j", "k"), "ik", target="cpu"), a @ b)


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("path", [["einsum_path", (0, 1), (0, 1)], [[1, 2], [0, 1]], [(np.int64(0), 2), (0, 1)]])
def test_paths_in_lists_take_the_short_way(monkeypatch: pytest.MonkeyPatch, path: list[Any], turns: bool) -> None:
    a, b, c = some(3, 4), some(4, 5), some(5, 6)
    given = (a, [0, 1], b, [1, 2], c, [2, 3], [0, 3]) if turns else ("ij,jk,kl->il", a, b, c)
    for _ in range(3):
        tw.einsum(*given, optimize=path, target="cpu")
    monkeypatch.setattr(einsum_module, "_by_form", None)
    np.testing.assert_array_equal(tw.einsum(*given, optimize=path, target="cpu"), a @ b @ c)


def test_options_are_not_mixed_up() -> None:
    a, b = some(4, 4), some(4, 4, seed=1)
    for _ in range(4):
        np.testing.assert_array_equal(tw.einsum(E2, a, b, target="cpu"), a @ b)
        np.testing.assert_array_equal(tw.einsum(E2, a, b, alpha=2, target="cpu"), 2 * (a @ b))
        assert tw.einsum(E2, a, b, dtype="f8", target="cpu").dtype == np.float64
        assert tw.einsum(E2, a, b, order="F", target="cpu").flags.f_contiguous
        minimum = (a[:, :, None] + b[None]).min(axis=1)
        np.testing.assert_array_equal(tw.einsum(E2, a, b, semiring="min_plus", target="cpu"), minimum)
        shifted = tw.einsum(E2, a, b, epilogue=abs, target="cpu")
        np.testing.assert_array_equal(shifted, abs(a @ b))
        out = np.ones((4, 4), np.float32)
        np.testing.assert_array_equal(tw.einsum(E2, a, b, out=out, beta=1, target="cpu"), a @ b + 1)


def test_a_result_in_another_order_than_out() -> None:
    a, b = some(8, 8), some(8, 8, seed=1)
    for call in both_ways(E2, a, b):
        for _ in range(3):
            out = np.empty((8, 8), np.float32, order="F")
            assert call(a, b, out=out) is out
            np.testing.assert_array_equal(out, a @ b)
            assert call(a, b).flags.c_contiguous


def test_refusals_stay() -> None:
    a, b = some(8, 8), some(8, 8, seed=1)
    plan = taught(E2, a, b)
    for call in both_ways(E2, a, b):
        for _ in range(2):
            out = np.zeros((8, 8), np.float32)
            call(a, b, out=out)
            before = a.copy()
            with pytest.raises(ValueError, match="out shares memory with operand 0"):
                call(a, b, out=a)
            with pytest.raises(ValueError, match="out shares memory with operand 1"):
                call(a, b, out=b)
            whole = np.zeros(128, np.float32)
            with pytest.raises(ValueError, match="out shares memory with operand 0"):
                call(whole[:64].reshape(8, 8), b, out=whole[32:96].reshape(8, 8))
            np.testing.assert_array_equal(call(whole[:64].reshape(8, 8), b, out=whole[64:].reshape(8, 8)), 0 * a)
            out.flags.writeable = False
            with pytest.raises(ValueError, match="out is read-only"):
                call(a, b, out=out)
            with pytest.raises(ValueError, match=r"out has shape \(8, 7\)"):
                call(a, b, out=np.zeros((8, 7), np.float32))
            np.testing.assert_array_equal(a, before)
    with pytest.raises(ValueError, match="takes 2 arrays, not 3"):
        plan(a, b, np.zeros_like(a))
    with pytest.raises(ValueError, match="takes 2 arrays, not 1"):
        plan(a)
    with pytest.raises(TypeError, match="operand 1 has dtype float64"):
        plan(a, b.astype("f8"))
    with pytest.raises(ValueError, match=r"operand 0 has shape \(7, 8\)"):
        plan(a[:7], b)


def test_other_things_than_arrays() -> None:
    class Sub(np.ndarray):
        pass

    a, b = some(3, 3), some(3, 3, seed=1)
    for call in both_ways(E2, a, b):
        np.testing.assert_array_equal(call(a.view(Sub), b), a @ b)
        assert type(call(a.view(Sub), b)) is np.ndarray
    np.testing.assert_array_equal(tw.einsum(E2, a.tolist(), b.tolist(), target="cpu"), a.astype("f8") @ b)
    with pytest.raises(TypeError, match="out must be a NumPy array"):
        tw.einsum(E2, a, b, out=a.tolist(), target="cpu")


def test_empty_arrays_take_the_long_way() -> None:
    plan = tw.plan(E2, (3, 0), (0, 4), target="cpu")
    for _ in range(4):
        np.testing.assert_array_equal(plan(np.ones((3, 0)), np.ones((0, 4))), np.zeros((3, 4)))
        assert tw.einsum(E2, np.ones((0, 3)), np.ones((3, 2)), target="cpu").shape == (0, 2)


def test_nothing_is_kept() -> None:
    a, b, out = some(8, 8), some(8, 8, seed=1), np.empty((8, 8), np.float32)
    for call in both_ways(E2, a, b):
        call(a, b, out=out)
        gc.collect()  # what other tests have left refers to None, too
        before = [
            sys.getrefcount(one) for one in (a, b, out, None, a.dtype)
        ]  # None: what an entry gives that does not fit
        for _ in range(1000):
            call(a, b, out=out)
            call(a, b)
            call(b, a)
        after = [sys.getrefcount(one) for one in (a, b, out, None, a.dtype)]
        assert before[:3] == after[:3]
        assert all(abs(new - old) < 100 for old, new in zip(before[3:], after[3:], strict=True))
        operand = a.copy()
        result = call(operand, b)
        dead = weakref.ref(operand), weakref.ref(result)
        del operand, result
        gc.collect()
        assert dead[0]() is None and dead[1]() is None


def _hammer(calls: list[Callable[..., Any]], seconds: float, threads: int) -> None:
    """Every thread calls with data of its own."""
    failures: list[BaseException] = []
    counts = [0] * threads
    start = threading.Barrier(threads)

    def work(number: int) -> None:
        try:
            operands = [(some(8, 8, seed=one), some(8, 8, seed=one + 99)) for one in range(number, number + 40, 8)]
            expected = [a @ b for a, b in operands]
            out = np.empty((8, 8), np.float32)
            start.wait()
            end = time.monotonic() + seconds
            while counts[number] == 0 or time.monotonic() < end:
                for call in calls:
                    for (a, b), right in zip(operands, expected, strict=True):
                        assert (call(a, b) == right).all()
                        assert (call(a, b, out=out) == right).all()
                counts[number] += 1
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert not failures and min(counts) > 0


def test_eight_threads() -> None:
    def chain(a: Any, b: Any, out: Any = None) -> Any:
        return three(a, identity, b, out=out)

    identity = np.eye(8, dtype=np.float32)
    three = taught("ij,jk,kl->il", some(8, 8), identity, some(8, 8))
    _hammer([*both_ways(E2, some(8, 8), some(8, 8)), chain], seconds=2.0, threads=8)


def test_a_scalar_and_a_place_for_it() -> None:
    a = some(4, 4)
    for call in both_ways("ij,ij->", a, a):
        gc.collect()  # what other tests have left refers to it, too
        before = sys.getrefcount(np.float32)
        for _ in range(500):
            result = call(a, a)
            assert type(result) is np.float32 and result == (a * a).sum()
            out = np.zeros((), np.float32)
            assert call(a, a, out=out) is out and out == result
        assert abs(sys.getrefcount(np.float32) - before) < 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_after_fork_goes_on() -> None:
    a, b = some(8, 8), some(8, 8, seed=1)
    calls = both_ways(E2, a, b)
    assert true_in_a_child(lambda: all((call(a, b) == a @ b).all() for call in calls for _ in range(100)))


def test_options_and_the_environment_count_after_plain_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain calls are known by their expression alone: a call with any other option must not be taken for one."""
    a, b = some(6, 6), some(6, 6, seed=1)
    for _ in range(4):
        np.testing.assert_array_equal(tw.einsum(E2, a, b), a @ b)
    assert E2 in einsum_module._RECENT
    np.testing.assert_array_equal(tw.einsum(E2, a, b, alpha=2), 2 * (a @ b))
    np.testing.assert_array_equal(tw.einsum(E2, a, b, epilogue=lambda x: x + 1), a @ b + 1)
    assert tw.einsum(E2, a, b, dtype="f8").dtype == np.float64
    assert tw.einsum(E2, a, b, order="F").flags.f_contiguous
    nearest = (a[:, :, None] + b[None]).min(1)
    np.testing.assert_array_equal(tw.einsum(E2, a, b, semiring="min_plus"), nearest)
    np.testing.assert_array_equal(tw.einsum(E2, a, b), a @ b)
    held = np.ones_like(a)
    np.testing.assert_array_equal(tw.einsum(E2, a, b, out=held, beta=1), a @ b + 1)
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nowhere")
    with pytest.raises(DeviceError, match="nowhere"):
        tw.einsum(E2, a, b)
    monkeypatch.setitem(os.environ, "TILEWRIGHT_TARGET", "cpu")
    np.testing.assert_array_equal(tw.einsum(E2, a, b), a @ b)
    monkeypatch.delenv("TILEWRIGHT_TARGET")
    np.testing.assert_array_equal(tw.einsum(E2, a, b), a @ b)
