"""Products with short sums whose output goes past the caches: tiles go on along the rows of the output."""

from __future__ import annotations

from dataclasses import replace

import pytest
from naive import einsum_contraction

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX512
from tilewright.machine.paces import ONE_MULTIPLY_ADD, TWO_MULTIPLY_ADDS, Pace
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.form import DirectForm

SIZES = dict(a=16, k=24, v=384, s=6144)


def machine_of(pace: Pace) -> Machine:
    sizes = dict(l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)
    return replace(CPU_AVX512, cores=1, pace=pace, **sizes)  # type: ignore[arg-type]


def form_of(scalar: ScalarType, pace: Pace, **changes: int) -> object:
    contraction = normalise(einsum_contraction("akv,sk->asv", {**SIZES, **changes}, scalar))
    return choose_form(contraction, machine_of(pace)).form


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
def test_vectors_of_whole_rows_are_packed_once(scalar: ScalarType) -> None:
    form = form_of(scalar, TWO_MULTIPLY_ADDS)
    assert isinstance(form, DirectForm) and form.nontemporal
    assert form.vector_packed and form.scalar_outer
    assert (len(form.lanes), form.rows) == (4, 6)


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
def test_not_where_a_core_starts_one_multiply_add(scalar: ScalarType) -> None:
    form = form_of(scalar, ONE_MULTIPLY_ADD)
    assert not (isinstance(form, DirectForm) and form.scalar_outer)


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
def test_not_in_the_caches(scalar: ScalarType) -> None:
    form = form_of(scalar, TWO_MULTIPLY_ADDS, a=1, s=600)
    assert not (isinstance(form, DirectForm) and form.scalar_outer and form.vector_packed)
