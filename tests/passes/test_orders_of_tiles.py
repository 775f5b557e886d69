"""In which order the direct form comes by its tiles, when it makes panels, and how many rows share a last vector."""

from __future__ import annotations

from dataclasses import replace

import pytest
from naive import einsum_contraction

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.named import CPU_AVX512
from tilewright.machine.paces import TWO_MULTIPLY_ADDS
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.choice import direct_forms
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.register_tiles import MOST_SHARED

ZEN5 = replace(CPU_AVX512, cores=1, pace=TWO_MULTIPLY_ADDS)


def chosen(text: str, scalar: ScalarType, **sizes: int) -> DirectForm:
    form = choose_form(normalise(einsum_contraction(text, sizes, scalar)), ZEN5).form
    assert isinstance(form, DirectForm)
    return form


@pytest.mark.parametrize("scalar", [F32, F64])
@pytest.mark.parametrize("n", [128, 192, 256])
def test_squares_in_the_second_cache_are_read_where_they_lie_row_by_row(n: int, scalar: ScalarType) -> None:
    form = chosen("ij,jk->ik", scalar, i=n, j=n, k=n)
    assert form.scalar_outer
    assert not form.vector_packed


def test_panels_for_one_tile_at_a_time_are_waited_for_and_those_of_a_block_are_not() -> None:
    form = chosen("ij,kj->ik", F64, i=32, k=512, j=10)
    assert form.vector_packed
    assert form.all_vectors_packed


@pytest.mark.parametrize(("text", "sizes", "scalar"), [
    ("aij,kj->aik", {"a": 48, "i": 512, "k": 50, "j": 4}, F64),
    ("aij,kj->aik", {"a": 16, "i": 128, "k": 300, "j": 5}, F64),
    ("ij,kj->ik", {"i": 300, "k": 512, "j": 8}, F64),
])  # fmt: skip
def test_results_in_the_third_cache_of_short_sums_are_fed_directly(
    text: str, sizes: dict[str, int], scalar: ScalarType
) -> None:
    chosen(text, scalar, **sizes)


@pytest.mark.parametrize("n", [18, 34, 50])
def test_at_most_four_rows_share_their_last_vector(n: int) -> None:
    contraction = normalise(einsum_contraction("ij,jk->ik", {"i": 40, "j": 9, "k": n}, F32))
    shared = [form for form in direct_forms(contraction, ZEN5) if form.shared_rows > 1]
    assert shared
    assert {form.shared_rows for form in shared} == {MOST_SHARED}
    assert all(form.lanes[-1] * form.shared_rows == form.lanes[0] for form in shared)
    assert all(form.masked for form in shared)
