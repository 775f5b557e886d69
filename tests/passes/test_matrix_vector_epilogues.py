"""Sums of which each element is used once, and what is done to them with further arrays before they are stored."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.passes.contractions import form_choice
from tilewright.passes.matrix_vector.form import MatrixVectorForm, Way

SIZES = st.sampled_from([1, 2, 3, 7, 8, 13, 16, 17, 33, 40, 64, 100])


def _values(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Any:
    values = random.integers(-4, 5, shape)
    return (values + 1j * random.integers(-4, 5, shape) if dtype.startswith("c") else values).astype(dtype)


def _chosen(run: Any) -> tuple[Any, list[Any]]:
    """The result, and the forms of the kernels that were made for it."""
    forms: list[Any] = []
    choose = form_choice.choose_form

    def remembered(*arguments: Any) -> Any:
        found = choose(*arguments)
        forms.append(found.form)
        return found

    with mock.patch("tilewright.passes.contractions.contraction_launches.choose_form", remembered):
        return run(), forms


@given(data=st.data())
def test_further_arrays_of_any_layout(data: st.DataObject) -> None:
    """Small whole numbers, so that all results are exact."""
    text = data.draw(st.sampled_from(["ij,j->i", "ij,i->j", "bij,bj->bi", "bij,bi->bj", "ij,ij->i", "bij,j->bi"]))
    sizes = {one: data.draw(SIZES, label=one) for one in "ijb" if one in text}
    sizes["b"] = min(sizes.get("b", 1), 8)
    random = np.random.default_rng(data.draw(st.integers(0, 999)))
    dtype = data.draw(st.sampled_from(["f4", "f8", "i4", "c8", "c16"]))
    operands, result = text.split("->")
    arrays = [_values(random, dtype, tuple(sizes[one] for one in labels)) for labels in operands.split(",")]
    further = []
    for _ in range(data.draw(st.integers(1, 2))):
        labels = "".join(one for one in result if data.draw(st.booleans()))
        kind = "f4" if dtype == "f8" and data.draw(st.booleans()) else dtype
        step = data.draw(st.sampled_from([1, 1, 2, -1]))
        wide = _values(random, kind, tuple(sizes[one] * abs(step) for one in labels))
        further.append((wide[tuple(slice(None, None, step) for _ in labels)], labels))

    def epilogue(total: Any, *others: Any) -> Any:
        for one in others:
            total = total * 2 + one
        return total

    found = tw.einsum(text, *arrays, epilogue=epilogue, epilogue_operands=further, target="cpu")
    expected = np.einsum(text, *arrays)
    for array, labels in further:
        shape = [sizes[one] if one in labels else 1 for one in result]
        expected = (expected * 2 + array.reshape(shape)).astype(expected.dtype)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("count", [13, 64, 65, 300])
@pytest.mark.parametrize("text", ["ij,j->i", "ij,i->j", "ij,ij->i"])
def test_what_the_result_held_is_added_once(text: str, count: int) -> None:
    """The last rows may be computed twice, and the result is the operand."""
    random = np.random.default_rng(5)
    a = _values(random, "f8", (count, count))
    x = a if text.endswith("ij->i") else _values(random, "f8", (count,))
    out = _values(random, "f8", (count,))
    expected = np.einsum(text, a, x) * 3 + 2 * out
    tw.einsum(text, a, x, out=out, alpha=3, beta=2, target="cpu")
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("text", "way"), [("ij,j->i", Way.DOTS), ("ij,i->j", Way.SUMS)])
def test_a_bias_does_not_change_the_form(monkeypatch: pytest.MonkeyPatch, text: str, way: Way) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    a, x, bias = (
        np.ones((301, 203)),
        np.ones(203 if way is Way.DOTS else 301),
        np.arange(301.0 if way is Way.DOTS else 203),
    )

    def run() -> Any:
        return tw.einsum(text, a, x, epilogue=lambda c, b: c + b, epilogue_operands=[bias], target="cpu")

    result, forms = _chosen(run)
    assert [type(one) for one in forms] == [MatrixVectorForm] and forms[0].way is way
    np.testing.assert_array_equal(result, np.einsum(text, a, x) + bias)
