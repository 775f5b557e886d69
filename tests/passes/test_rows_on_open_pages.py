"""Tiles that go on along rows past the caches: few rows may be far apart, each on a page that stays open."""

from __future__ import annotations

from dataclasses import replace

import pytest
from naive import einsum_contraction

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.named import CPU_AVX512
from tilewright.machine.paces import TWO_MULTIPLY_ADDS
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.cost import OPEN_PAGES, direct_cost
from tilewright.passes.direct.form import DirectForm, Results

ZEN5 = replace(CPU_AVX512, cores=1, l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=1 << 25, pace=TWO_MULTIPLY_ADDS)
SEVEN = {"a": 24, "b": 16, "c": 16, "d": 16, "e": 24, "f": 16, "g": 24}


def chosen(text: str, sizes: dict[str, int], scalar: ScalarType) -> DirectForm:
    form = choose_form(normalise(einsum_contraction(text, sizes, scalar)), ZEN5).form
    assert isinstance(form, DirectForm)
    return form


@pytest.mark.parametrize(("text", "scalar"), [("cgfe,badg->fedcba", F64), ("deba,fca->debfc", F32)])
def test_tiles_of_few_rows_far_apart_go_on_along_them(text: str, scalar: ScalarType) -> None:
    few = {"a": 16, "e": 16, "b": 28, "d": 16, "f": 48, "c": 24}
    form = chosen(text, SEVEN if "g" in text else few, scalar)
    assert form.results is Results.VECTORS
    assert (form.vector_packed, form.scalar_outer, form.nontemporal) == (True, True, True)
    assert form.rows <= OPEN_PAGES


def test_tiles_of_many_rows_far_apart_pay_for_each_piece() -> None:
    form = chosen("cgfe,badg->fedcba", SEVEN, F64)

    def waiting(rows: int) -> float:
        return direct_cost(replace(form, lanes=form.lanes[:2], rows=rows), ZEN5).again

    assert waiting(OPEN_PAGES + 1) > 1.5 * waiting(OPEN_PAGES)
    # As many rows as turned results of this one take are slower than these.
    assert chosen("adb,beac->ced", {"a": 6, "b": 6, "d": 376, "e": 408, "c": 456}, F64).results is Results.TURNED
