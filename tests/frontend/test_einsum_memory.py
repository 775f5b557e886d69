"""`einsum` with a limit of memory: results, what it really takes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw

EXPRESSIONS = ("ij,jk,kl->il", "ij,jk,kl,lm->im", "ab,cb,cd,da->", "aij,jk,bk,b->ai", "ii,ij,jk->k", "...i,ij,jk->...k",
               "ij,jk->ki", "ijk->ik", "i,j,k->kji", "ij,j,jk,k->ik")  # fmt: skip


@settings(max_examples=40)
@given(
    text=st.sampled_from(EXPRESSIONS),
    sizes=st.lists(st.integers(1, 9), min_size=8, max_size=8),
    share=st.floats(0.0, 1.2),
    optimize=st.sampled_from([True, False, "greedy"]),
    order=st.sampled_from([None, "C", "F"]),
    given_out=st.booleans(),
    seed=st.integers(0, 99),
)
def test_slices_give_the_same(text, sizes, share, optimize, order, given_out, seed) -> None:
    rng = np.random.default_rng(seed)
    size = dict(zip("abcdijklm", [*sizes, 3], strict=True))
    shapes = [[2, 3][: 2 * ("..." in term)] + [size[one] for one in term if one != "."]
              for term in text.split("->")[0].split(",")]  # fmt: skip
    arrays = [rng.integers(-3, 4, shape).astype(np.float64) for shape in shapes]
    want = np.einsum(text, *arrays)
    out = np.full(want.shape, np.nan) if given_out else None
    limit = int(share * 8 * (want.size + max(one.size for one in arrays)))
    try:
        got = tw.einsum(text, *arrays, memory_limit=limit, optimize=optimize, order=order, out=out, target="cpu")
    except MemoryError as error:
        assert "at its peak, memory_limit is" in str(error)
        assert "the least that slices of its indices can reach" in str(error)
        return
    np.testing.assert_array_equal(got, want)
    assert out is None or got is out
    assert order != "F" or given_out or np.asarray(got).flags.f_contiguous


def test_operands_and_indices_in_turns_and_broadcast_sizes() -> None:
    a, b, c = np.arange(6.0).reshape(2, 3), np.arange(3.0)[None], np.arange(12.0).reshape(3, 4)
    want = np.einsum(a, [0, 1], b, [0, 1], c, [1, 2], [2, 0])
    got = tw.einsum(a, [0, 1], b, [0, 1], c, [1, 2], [2, 0], memory_limit=200, target="cpu")
    np.testing.assert_array_equal(got, want)


def test_the_limit_bounds_what_is_allocated(traced_peak: Callable[[str, str], int]) -> None:
    """ik has 8 MB, the result a number; 1 MB of slices is enough."""
    before = """
        import numpy as np
        import tilewright as tw

        arrays = np.ones((1000, 30)), np.ones((30, 1000)), np.ones((1000, 1000))
        options = {"optimize": [(0, 1), (0, 1)], "target": "cpu", "memory_limit": 1 << 20}
        tw.einsum("ij,jk,ik->", *arrays, **options)  # compiled, and told to the caches
    """
    peak = traced_peak(before, 'assert tw.einsum("ij,jk,ik->", *arrays, **options) == 30e6')
    assert peak < (1 << 20) + 200_000


def test_too_small_a_limit_is_told_with_the_peak() -> None:
    a, b, c = np.ones((10, 20)), np.ones((20, 30)), np.ones((30, 40))
    with pytest.raises(MemoryError, match=r"einsum 'ij,jk,kl->il': .* needs 5600 bytes .*memory_limit is 100 bytes"):
        tw.einsum("ij,jk,kl->il", a, b, c, memory_limit=100, target="cpu")


def test_what_does_not_go_with_a_limit() -> None:
    a, b = np.ones((3, 3)), np.ones((3, 3))
    for options, name in (
        (dict(out=np.ones((3, 3), np.float32), casting="same_kind"), "an out of dtype float32, for .* in float64"),
        (dict(semiring="min_plus"), "semiring = 'min_plus'"), (dict(alpha=2), "alpha = 2"),
        (dict(epilogue=lambda x: x), "epilogue"), (dict(tiles={"i": (1, 1)}), "tiles"),
        (dict(beta=1, out=np.ones((3, 3))), "beta = 1"), (dict(casting="unsafe"), "casting = 'unsafe'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"memory_limit does not go with {name}"):
            tw.einsum("ij,jk->ik", a, b, memory_limit=10**6, target="cpu", **options)
    with pytest.raises(ValueError, match="output index that repeats"):
        tw.einsum("i,i->ii", a[0], b[0], memory_limit=10**6, target="cpu")
    with pytest.raises(ValueError, match="memory_limit must be a number of bytes, not -1"):
        tw.einsum("ij,jk->ik", a, b, memory_limit=-1, target="cpu")
    with pytest.raises(ValueError, match="order must be"):
        tw.einsum("ij,jk->ik", a, b, memory_limit=10**6, order="Q", target="cpu")
    with pytest.raises(RuntimeError, match="'abacus' names no device"):
        tw.einsum("ij->ji", a, memory_limit=10**6, target="abacus")
    with pytest.raises(TypeError, match="out must be a NumPy array, not 3 of type int"):
        tw.einsum("ij,jk->ik", a, b, memory_limit=10**6, out=3)
    with pytest.raises(ValueError, match=r"out has shape \(3,\), but the result has shape \(3, 3\)"):
        tw.einsum("ij,jk->ik", a, b, memory_limit=10**6, out=a[0].copy())
    with pytest.raises(ValueError, match="out shares memory with operand 1"):
        tw.einsum("ij,jk->ik", a, b, memory_limit=10**6, out=b)


@pytest.mark.parametrize("limit", [None, 10**9])
def test_casts_are_checked_by_the_same_rule_as_without_a_limit(limit: int | None) -> None:
    a, b = np.full((3, 4), 2.0), np.ones((4, 3))
    single = np.ones((3, 4), np.float32)
    for _ in range(2):
        with pytest.raises(TypeError, match="operand 0 of dtype float64 may not be cast to float32 by the rule 'safe'"):
            tw.einsum("ij,jk->ik", a, b, dtype="f4", memory_limit=limit)
        with pytest.raises(TypeError, match="operand 0 of dtype float32 may not be cast to float64 by the rule 'no'"):
            tw.einsum("ij,jk->ik", single, b, casting="no", memory_limit=limit)
        with pytest.raises(TypeError, match="may not be cast to out's dtype float32 by the rule 'safe'"):
            tw.einsum("ij,jk->ik", a, b, out=np.ones((3, 3), np.float32), memory_limit=limit)
        with pytest.raises(ValueError, match="casting must be one of"):
            tw.einsum("ij,jk->ik", a, b, casting="sometimes", memory_limit=limit)
    found = tw.einsum("ij,jk->ik", a, b, dtype="f4", casting="same_kind", memory_limit=limit)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.full((3, 3), 8))


@pytest.mark.parametrize("limit", [None, 10**6])
def test_an_out_of_a_wider_dtype_is_computed_in(limit: int | None) -> None:
    hundreds, out = np.full((3, 4), 100, np.int8), np.zeros((3, 3), np.int32)
    assert tw.einsum("ij,kj->ik", hundreds, hundreds, out=out, memory_limit=limit) is out
    np.testing.assert_array_equal(out, np.full((3, 3), 40000))


@pytest.mark.parametrize("limit", [None, 10**6, 100])
@pytest.mark.parametrize("text", ["ij,jk,kl->il", "ij,jk,kl->li", "ij,jk,kl->"])
def test_an_out_of_foreign_byte_order(text: str, limit: int | None) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, shape).astype(float) for shape in ((2, 3), (3, 7), (7, 4))]
    want = np.einsum(text, *arrays)
    for _ in range(3):
        out = np.full(want.shape, np.nan, ">f8")
        assert tw.einsum(text, *arrays, out=out, memory_limit=limit) is out
        np.testing.assert_array_equal(out, want)
    with pytest.raises(TypeError, match="may not be cast to out's dtype >f8 by the rule 'no'"):
        tw.einsum(text, *arrays, out=out, memory_limit=limit, casting="no")


@pytest.mark.parametrize("text", ["ij->ji", "ij->ij", "ii->i", "kij,->jki"])
@pytest.mark.parametrize("order", [None, "K", "A", "F", "C"])
def test_views_are_views_and_take_no_memory(text: str, order: str | None) -> None:
    term = text.partition("-")[0].rstrip(",")
    a = np.arange(3.0 ** len(term)).reshape((3,) * len(term))
    arrays = (a, 1.0)[: text.count(",") + 1]
    whole = tw.einsum(text, *arrays, order=order)
    for _ in range(3):
        found = tw.einsum(text, *arrays, order=order, memory_limit=1000)
        np.testing.assert_array_equal(found, whole)
        assert found.strides == whole.strides
        assert found.flags.writeable == whole.flags.writeable
        assert np.shares_memory(found, a) == np.shares_memory(whole, a)
        if np.shares_memory(whole, a):
            assert np.shares_memory(tw.einsum(text, *arrays, order=order, memory_limit=0), a)
    with pytest.raises(ValueError, match="memory_limit must be a number of bytes, not 'much'"):
        tw.einsum(text, *arrays, order=order, memory_limit="much")


@pytest.mark.parametrize("order", ["A", "K", "F", "C"])
def test_results_lie_in_the_same_order_as_without_a_limit(order: str) -> None:
    rng = np.random.default_rng(0)
    a, b = np.asfortranarray(rng.integers(0, 9, (4, 3))), np.asfortranarray(rng.integers(0, 9, (3, 5)))
    whole = tw.einsum("ij,jk->ik", a, b, order=order)
    found = tw.einsum("ij,jk->ik", a, b, order=order, memory_limit=10**6)
    np.testing.assert_array_equal(found, whole)
    assert found.strides == whole.strides


def test_a_too_large_intermediate_is_told_by_its_indices() -> None:
    side, path, one = 2**21, [(0, 1), (0, 1)], np.float16(1)
    arrays = [np.broadcast_to(one, shape) for shape in ((side, 1, 2), (1, 2, side), (side, 2))]
    plan = tw.plan("pxj,xjq,ql->lp", *arrays, dtype="f16", out_dtype="f64", optimize=path)
    for call in (
        lambda: tw.einsum("pxj,xjq,ql->lp", *arrays, optimize=path),
        lambda: tw.einsum("pxj,xjq,ql->lp", *arrays, optimize=path, out=np.empty((2, side), np.float16)),
        lambda: tw.einsum("pxj,xjq,ql->lp", *arrays, optimize=path, semiring="min_plus"),
        lambda: plan(*arrays),
    ):
        with pytest.raises(MemoryError) as refused:
            call()
        assert str(refused.value).startswith(
            f"einsum 'pxj,xjq,ql->lp': the intermediate 'pq' of shape ({side}, {side}) in f32 needs {4 * side**2} "
            "bytes (16.0 TiB), but the host has "
        )
    with pytest.raises(MemoryError, match="the intermediate 'pq' of shape"):
        tw.einsum("pj,jq,qp->", arrays[0][:, 0], arrays[1][0], np.broadcast_to(one, (side, side)), optimize=path)
