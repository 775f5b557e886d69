"""Findings of a review: what `out`, its dtype, the environment and ambiguous dtype names do."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw


def test_the_dtype_of_out_takes_part_as_in_numpy() -> None:
    ones, hundreds = np.ones(4, "int8"), np.full(4, 100, "int8")
    for kind in ("int32", "float64"):
        ours, theirs = np.zeros((), kind), np.zeros((), kind)
        tw.einsum("i,i->", hundreds, ones, out=ours)
        np.einsum("i,i->", hundreds, ones, out=theirs)
        assert ours == theirs == 400
    counted = np.zeros((), "int64")
    flags = np.ones(3, bool)
    tw.einsum("i,i->", flags, flags, out=counted)
    assert counted == np.einsum("i,i->", flags, flags, out=np.zeros((), "int64")) == 3
    single = np.full(3, 0.1, "float32")
    wide = np.zeros((), "float64")
    tw.einsum("i,i->", single, single, out=wide)
    assert wide == np.dot(single.astype("float64"), single.astype("float64"))


@pytest.mark.parametrize("name", ["i8", "u8"])
def test_ambiguous_dtype_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"dtype '{name}' is u?int64 in NumPy and .*; write 'u?int8' or 'u?int64'"):
        tw.einsum("i->", np.arange(100), dtype=name, casting="unsafe")


def test_a_plan_refuses_an_out_that_lies_on_itself_or_is_no_array() -> None:
    plan = tw.plan("ij,jk->ik", (2, 3), (3, 4))
    a, b = np.ones((2, 3)), np.ones((3, 4))
    folded = np.lib.stride_tricks.as_strided(np.zeros(8), (2, 4), (8, 8))
    for _ in range(3):
        with pytest.raises(ValueError, match="elements of out lie on one another in memory"):
            plan(a, b, out=folded)
        with pytest.raises(TypeError, match="out must be a NumPy array"):
            plan(a, b, out=[1])  # type: ignore[arg-type]
        np.testing.assert_array_equal(plan(a, b), np.full((2, 4), 3.0))


def test_the_default_target_is_read_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.ones((3, 3))
    for _ in range(3):
        tw.einsum("ij,jk->ik", a, a)
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nowhere")
    with pytest.raises(tw.DeviceError, match="nowhere"):
        tw.einsum("ij,jk->ik", a, a)
    monkeypatch.delenv("TILEWRIGHT_TARGET")
    np.testing.assert_array_equal(tw.einsum("ij,jk->ik", a, a), 3 * a)
