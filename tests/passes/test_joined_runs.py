"""Packed panels of rows that are no whole vectors: vectors of two runs of the operand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import given
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, random_buffers

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, I32, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.report.kernel_text import kernel_text

HOST = replace(host_machine(), cores=1)
TEXTS = ("cka,kb->cba", "ckda,kdb->cba", "cak,kb->cba", "kca,bk->bca", "ecka,kb->ecba")


def contraction_of(text: str, scalar: ScalarType, **sizes: int) -> Contraction:
    return einsum_contraction(text, {one: sizes[one] for one in text if one.isalpha()}, scalar)


@given(
    text=st.sampled_from(TEXTS), scalar=st.sampled_from((F32, F64)), a=st.integers(8, 80), b=st.integers(1, 9),
    c=st.integers(2, 7), k=st.integers(1, 40), far=st.booleans(),
)  # fmt: skip
def test_results_are_right(text: str, scalar: ScalarType, a: int, b: int, c: int, k: int, far: bool) -> None:
    contraction = contraction_of(text, scalar, a=a, b=b, c=c, k=k, d=3, e=2)
    form = replace(make_packed_form(normalise(contraction), HOST), far=far)
    buffers = random_buffers(contraction, 5)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}, 2), buffers, {})


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
@pytest.mark.parametrize("a", [17, 33, 50, 75])
def test_every_bit_is_the_same_as_of_elements(a: int, scalar: ScalarType, monkeypatch: pytest.MonkeyPatch) -> None:
    contraction = contraction_of("cka,kb->cba", scalar, a=a, b=6, c=9, k=11)
    form = make_packed_form(normalise(contraction), HOST)
    buffers = random_buffers(contraction, 3)
    joined = run_cpu(write_packed_kernel(form), buffers, {})
    for module in ("panels", "on_the_way", "tables"):
        monkeypatch.setattr(f"tilewright.passes.packed.{module}.may_join_runs", lambda w, side: False)
    assert np.array_equal(joined, run_cpu(write_packed_kernel(form), buffers, {}))


@pytest.mark.skipif(HOST.vector_bytes < 64, reason="narrower vectors are copied element by element")
def test_which_rows_are_joined() -> None:
    def joins(scalar: ScalarType, a: int) -> bool:
        contraction = contraction_of("cka,kb->cba", scalar, a=a, b=60, c=9, k=11)
        form = make_packed_form(normalise(contraction), HOST)
        return "joined" in kernel_text(write_packed_kernel(form).kernel)

    assert joins(F32, 33)
    assert joins(F64, 33)
    assert not joins(F32, 15)  # shorter than a vector
    assert joins(F32, 36)  # whole quarters, which register tiles could not copy on the way
    assert not joins(F32, 64)
    assert not joins(I32, 33)
