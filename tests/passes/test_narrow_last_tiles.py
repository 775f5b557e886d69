"""The last register tile along the vector side, where fewer vectors than those of the others are enough for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import given
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, random_buffers

import tilewright as tw
from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.direct.choice import choose_direct_form, direct_forms
from tilewright.passes.direct.cost import direct_cost
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.kernel import write_direct_kernel

HOST = host_machine()
TEXTS = ("aq,qb->ab", "qa,qb->ab", "aq,bq->ab", "qa,bq->ab", "zaq,zqb->zab", "qba,cq->cab")


def narrow_forms(contraction: Contraction) -> list[DirectForm]:
    """The forms whose last tile has fewer vectors, on this machine."""
    return [form for form in direct_forms(normalise(contraction), HOST) if form.tail != form.lanes]


def run(contraction: Contraction, form: DirectForm, threads: int = 1) -> None:
    buffers = random_buffers(contraction, 5)
    assert_close(contraction, run_cpu(write_direct_kernel(form), buffers, {}, threads), buffers, {})


@given(
    text=st.sampled_from(TEXTS), scalar=st.sampled_from((F32, F64)), a=st.integers(1, 19), b=st.integers(33, 90),
    q=st.integers(1, 21), which=st.integers(0, 1 << 20), hints=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)  # fmt: skip
def test_results_are_the_same(
    text: str, scalar: ScalarType, a: int, b: int, q: int, which: int, hints: tuple[bool, bool, bool]
) -> None:
    sizes = {"a": a, "b": b, "c": b - 30, "q": q, "z": 2}
    contraction = einsum_contraction(text, {one: sizes[one] for one in text if one.isalpha()}, scalar)
    forms = narrow_forms(contraction)
    if not forms:
        return
    form = forms[which % len(forms)]
    form = replace(form, vector_chunk=1 + which % form.vector_tiles, scalar_chunk=1 + which % form.scalar_tiles)
    asks = form.scalar is not None and len(form.contracted) == 1 and form.step("scalar") == 1
    plain = not (form.scalar_packed or form.vector_packed)
    form = replace(form, prefetched=hints[0] and plain, rows_prefetched=hints[1] and asks and plain)
    run(contraction, replace(form, out_prefetched=hints[2]), threads=2)


@pytest.mark.parametrize("text", TEXTS)
def test_each_way_of_feeding_and_storing_has_such_forms(text: str) -> None:
    contraction = einsum_contraction(text, {"a": 40, "b": 200, "c": 7, "q": 9, "z": 2}, F32)
    forms = {(form.results, form.vector_packed, form.scalar_outer): form for form in narrow_forms(contraction)}
    assert forms or HOST.vector_bytes < 64
    for form in forms.values():
        run(contraction, form)


def test_a_last_tile_has_as_many_vectors_as_are_left() -> None:
    contraction = normalise(einsum_contraction("qa,qb->ab", dict(a=200, b=200, q=200), F32))
    found = choose_direct_form(contraction, CPU_AVX512)
    assert not isinstance(found, str)
    assert found[0].computed_columns == 208  # thirteen vectors of sixteen
    longer = normalise(einsum_contraction("qa,qb->ab", dict(a=200, b=224, q=200), F32))
    wide, whole = (
        next(one for one in direct_forms(each, CPU_AVX512) if len(one.lanes) == 2 and one.vector_size == size)
        for each, size in ((contraction, 200), (longer, 224))
    )
    whole = replace(whole, rows=wide.rows)
    assert (len(wide.tail), len(whole.tail)) == (1, 2)
    assert direct_cost(wide, CPU_AVX512).compute < 0.98 * direct_cost(whole, CPU_AVX512).compute


def test_what_saves_little_is_not_worth_the_code() -> None:
    contraction = normalise(einsum_contraction("qa,qb->ab", dict(a=96, b=1000, q=200), F32))
    forms = [form for form in direct_forms(contraction, CPU_AVX512) if len(form.lanes) == 2 and form.fitting_tiles > 30]
    assert forms
    assert all(form.tail == form.lanes for form in forms)


def test_tiles_that_are_written_past_the_caches_are_whole() -> None:
    contraction = normalise(einsum_contraction("qa,qb->ab", dict(a=96, b=208, q=200), F32))
    form = next(form for form in direct_forms(contraction, CPU_AVX512) if form.tail != form.lanes)
    assert replace(form, nontemporal=True).tail == form.lanes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_that_are_added_to_are_added_once(dtype: type) -> None:
    """Tiles that overlap must not add what they share to the output a second time."""
    rng = np.random.default_rng(3)
    a, b = rng.uniform(-1, 1, (30, 40)).astype(dtype), rng.uniform(-1, 1, (40, 103)).astype(dtype)
    before = rng.uniform(-1, 1, (30, 103)).astype(dtype)
    out = before.copy()
    tw.einsum("ik,kj->ij", a, b, out=out, beta=2)
    np.testing.assert_allclose(out, a @ b + 2 * before, rtol=1e-4, atol=1e-4)
