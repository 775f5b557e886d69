"""A matrix times few columns: the columns are copied, so that vectors run along the sum in both operands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import einsum_contraction

import tilewright as tw
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.contractions.relaid import relaid_of, sum_to_turn
from tilewright.passes.contractions.split_sums import split_of
from tilewright.passes.matrix_vector.form import MatrixVectorForm
from tilewright.report.explain import explain_contraction

FEW = {"i": 500, "j": 500, "k": 4}


@pytest.mark.parametrize(
    ("expression", "copied"), [("ij,jk->ik", "right"), ("jk,ij->ik", "left"), ("ij,jk->ki", "right")]
)
def test_the_columns_are_copied(expression: str, copied: str) -> None:
    found = relaid_of(einsum_contraction(expression, FEW, F32), CPU_AVX512)
    assert not isinstance(found, str)
    assert [(one.array, one.shape) for one in found.copies] == [(copied, (4, 500))]
    assert isinstance(found.choice.form, MatrixVectorForm)
    assert found.cycles < found.without


@pytest.mark.parametrize(("sizes", "scalar"), [
    (FEW | {"k": 16}, F32), (FEW | {"k": 8}, F64),  # rows of the output are whole vectors
    (FEW | {"k": 1}, F32),  # one column lies as it should
    (FEW | {"i": 12}, F32),  # the columns are no small part
    ({"i": 30, "j": 100, "k": 4}, F32),  # there is too little to do
])  # fmt: skip
def test_or_left_where_they_are(sizes: dict[str, int], scalar: ScalarType) -> None:
    contraction = normalise(einsum_contraction("ij,jk->ik", sizes, scalar))
    assert sum_to_turn(contraction, CPU_AVX512) is None
    assert isinstance(relaid_of(contraction, CPU_AVX512), str)


def test_many_rows_are_not_computed_in_pieces_of_the_sum() -> None:
    many, few = ({"i": rows, "j": 100_000, "k": 2} for rows in (100, 8))
    assert "read along the sum" in str(split_of(einsum_contraction("ij,jk->ik", many, F32), CPU_AVX512))
    assert not isinstance(split_of(einsum_contraction("ij,jk->ik", few, F32), CPU_AVX512), str)


def test_the_copy_is_explained() -> None:
    text = str(explain_contraction(einsum_contraction("ij,jk->ik", FEW, F32), CPU_AVX512))
    assert "4 x 500, 7.812 KiB" in text
    assert "so that dimension j, which is summed, is innermost in each of them" in text


@settings(max_examples=25)
@given(st.data())
def test_results(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(["f4", "f8", "i4", "c8"])))
    rows, steps, columns = (data.draw(st.integers(*one)) for one in ((60, 200), (400, 700), (2, 7)))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    large, small = (rng.integers(-9, 9, shape).astype(dtype) for shape in ((rows, steps), (steps, columns)))
    if data.draw(st.booleans()):
        large = np.repeat(large, 2, axis=0)[::2]  # rows lie apart
    expression = data.draw(st.sampled_from(["ij,jk->ik", "ij,jk->ki"]))
    result = tw.einsum(expression, large, small)
    exact = np.einsum(expression, large.astype("c16"), small.astype("c16"))
    np.testing.assert_array_equal(result, exact)  # small integers have exact sums in all types
