"""Rows of a direct register tile whose narrower last vectors are one whole vector."""

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
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.machine.paces import TWO_MULTIPLY_ADDS
from tilewright.passes.direct.choice import choose_direct_form, direct_forms
from tilewright.passes.direct.cost import direct_cost
from tilewright.passes.direct.form import DirectForm, Results
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.report.cpu_text import direct_registers

TEXTS = (
    "aq,qb->ab", "aq,bq->ab", "qa,bq->ab", "zaq,zqb->zab", "qba,cq->cab", "aq,qb->ba", "dqb,cq->bcd", "pqb,qap->ab",
)  # fmt: skip


def shared_forms(contraction: Contraction, machine: Machine = CPU_AVX512) -> list[DirectForm]:
    """The forms in which several rows share a vector."""
    return [form for form in direct_forms(normalise(contraction), machine) if form.shared_rows > 1]


@given(
    text=st.sampled_from(TEXTS), scalar=st.sampled_from((F32, F64)), a=st.integers(1, 21), b=st.integers(9, 76),
    q=st.integers(1, 21), which=st.integers(0, 1 << 20), wide=st.booleans(),
    hints=st.tuples(st.booleans(), st.booleans()),
)  # fmt: skip
def test_results_are_right(
    text: str, scalar: ScalarType, a: int, b: int, q: int, which: int, wide: bool, hints: tuple[bool, bool]
) -> None:
    sizes = {"a": a, "b": b, "c": 5, "d": 18, "p": 3, "q": q, "z": 2}
    contraction = einsum_contraction(text, {one: sizes[one] for one in text if one.isalpha()}, scalar)
    forms = shared_forms(contraction, CPU_AVX512 if wide else CPU_AVX2)
    if not forms:
        return
    form = forms[which % len(forms)]
    plain = not (form.scalar_packed or form.vector_packed)
    form = replace(form, prefetched=hints[0] and plain, out_prefetched=hints[1])
    buffers = random_buffers(contraction, 5)
    assert_close(contraction, run_cpu(write_direct_kernel(form), buffers, {}, 2), buffers, {})


@pytest.mark.parametrize("way", list(Results))
def test_each_way_of_storing_has_such_forms(way: Results) -> None:
    text = {Results.VECTORS: "aq,qb->ab", Results.TURNED: "qa,bq->ab", Results.COLLECTED: "dqb,cq->bcd"}[way]
    sizes = {"a": 40, "b": 24, "c": 8, "d": 20, "q": 9}
    forms = shared_forms(einsum_contraction(text, {one: sizes[one] for one in text if one.isalpha()}, F32))
    assert [form for form in forms if form.results is way]
    assert all(direct_registers(form) <= CPU_AVX512.vector_registers for form in forms)


def test_every_bit_is_the_same_as_without() -> None:
    contraction = einsum_contraction("aq,qb->ab", {"a": 13, "b": 24, "q": 300}, F32)
    for form in shared_forms(contraction):
        buffers = random_buffers(contraction, 3)
        one, other = (run_cpu(write_direct_kernel(each), buffers, {}) for each in (form, replace(form, shared_rows=1)))
        assert np.array_equal(one, other)


@pytest.mark.parametrize("q", [1000, 20_000])
def test_long_sums_are_trees(q: int) -> None:
    contraction = einsum_contraction("aq,qb->ab", {"a": 8, "b": 20, "q": q}, F32)
    forms = [form for form in shared_forms(contraction) if not form.vector_packed and not form.scalar_packed]
    assert forms
    for form in forms[:2]:
        buffers = random_buffers(contraction, 5)
        assert_close(contraction, run_cpu(write_direct_kernel(form), buffers, {}, 1), buffers, {})


def test_rows_of_one_and_a_half_vectors_fill_all_lanes() -> None:
    contraction = normalise(einsum_contraction("aq,bq->ab", {"a": 40000, "b": 24, "q": 72}, F32))
    machine = replace(CPU_AVX512, pace=TWO_MULTIPLY_ADDS)
    found = choose_direct_form(contraction, machine)
    assert not isinstance(found, str)
    form, cost = found
    assert (form.lanes, form.shared_rows) == ((16, 8), 2)
    assert form.sums == form.rows * 3 // 2
    assert cost.compute < 0.9 * direct_cost(replace(form, shared_rows=1, rows=14), machine).compute


def test_what_else_is_computed_has_vectors_of_its_own() -> None:
    sizes = {"a": 40, "b": 24, "q": 9}
    assert shared_forms(einsum_contraction("aq,qb->ab", sizes, F32))
    assert not shared_forms(einsum_contraction("aq,qb->ab", sizes, I32))
    assert not shared_forms(einsum_contraction("aq,qb->ab", {**sizes, "b": 32}, F32))
    assert not shared_forms(einsum_contraction("aq,qb->ab", {**sizes, "b": 8}, F32))


@pytest.mark.parametrize(("b", "scalar", "lanes", "shared"), [
    (24, F32, (16, 8), 1), (12, F64, (8, 4), 1), (40, F32, (16, 16, 8), 1), (20, F32, (16, 4), 2),
    (36, F32, (16, 16, 4), 2),
])  # fmt: skip
def test_half_a_vector_that_takes_half_the_time_is_not_shared(
    b: int, scalar: ScalarType, lanes: tuple[int, ...], shared: int
) -> None:
    contraction = normalise(einsum_contraction("aq,qb->ab", {"a": 5000, "b": b, "q": 72}, scalar))
    found = choose_direct_form(contraction, replace(CPU_AVX512, l1_bytes=32 << 10))
    assert not isinstance(found, str)
    assert (found[0].lanes, found[0].shared_rows) == (lanes, shared)


@pytest.mark.parametrize(("n", "scalar", "lanes"), [(200, F32, (16, 16, 8)), (180, F64, (8, 8, 4)), (192, F32, None)])
def test_tiles_end_with_half_a_vector_where_such_tiles_divide_a_dimension(
    n: int, scalar: ScalarType, lanes: tuple[int, ...] | None
) -> None:
    contraction = normalise(einsum_contraction("aq,qb->ab", {"a": n, "b": n, "q": n}, scalar))
    zen4 = replace(CPU_AVX512, l1_bytes=32 << 10)
    found = choose_direct_form(contraction, zen4)
    assert not isinstance(found, str)
    mixed = [one for one in direct_forms(contraction, zen4) if len(set(one.lanes)) > 1]
    assert all(n % one.width == 0 for one in mixed)
    if lanes is None:
        assert len(set(found[0].lanes)) == 1
    else:
        assert found[0].lanes == lanes
    other = replace(zen4, pace=TWO_MULTIPLY_ADDS)  # where a narrower vector takes as long as a whole one
    assert not [one for one in direct_forms(contraction, other) if len(set(one.lanes)) > 1]


@given(
    text=st.sampled_from(TEXTS), scalar=st.sampled_from((F32, F64)), a=st.integers(1, 21), times=st.integers(2, 3),
    q=st.integers(1, 21), which=st.integers(0, 1 << 20),
)  # fmt: skip
def test_results_of_such_tiles_are_right(text: str, scalar: ScalarType, a: int, times: int, q: int, which: int) -> None:
    sizes = {"a": a, "b": 40 * times, "c": 5, "d": 18, "p": 3, "q": q, "z": 2}
    contraction = einsum_contraction(text, {one: sizes[one] for one in text if one.isalpha()}, scalar)
    forms = [one for one in direct_forms(normalise(contraction), CPU_AVX512) if len(set(one.lanes)) > 1]
    if not forms:
        return
    form = forms[which % len(forms)]
    buffers = random_buffers(contraction, 5)
    assert_close(contraction, run_cpu(write_direct_kernel(form), buffers, {}, 2), buffers, {})
