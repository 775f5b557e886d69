"""Sums of few terms whose results go past the caches are written row by row, in strips that the first cache feeds."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.form import Kind
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.machine.paces import TWO_MULTIPLY_ADDS
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct import in_order, short_sums
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.in_order import form_in_order
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.passes.direct.short_sums import short_sum_past_caches

ONE_CORE = replace(CPU_AVX512, cores=1, l1_bytes=48 << 10, l2_bytes=1 << 20, pace=TWO_MULTIPLY_ADDS)


@pytest.mark.parametrize("text", ["aq,qb->ab", "qa,qb->ab", "aqr,rqb->ab"])
@pytest.mark.parametrize(("terms", "scalar"), [(2, F64), (3, F32), (3, F64), (4, F32), (4, F64)])
def test_strips_of_an_operand_fit_half_of_the_first_cache(text: str, terms: int, scalar: object) -> None:
    sizes = {"a": 4000, "b": 4000, "q": terms}
    if "r" in text:
        sizes |= {"q": max(1, terms // 2), "r": 2}
    contraction = normalise(einsum_contraction(text, sizes, scalar))  # type: ignore[arg-type]
    form = choose_form(contraction, ONE_CORE).form
    assert isinstance(form, DirectForm)
    assert (form.rows, form.nontemporal, form.in_lines) == (1, True, True)
    strip = form.vector_chunk * form.width * form.contracted_total * form.vector_operand.element.bytes
    assert strip <= ONE_CORE.l1_bytes // 2
    assert form.vector_chunk < form.vector_tiles


def test_an_operand_that_the_second_cache_does_not_hold_is_read_by_tiles_of_several_rows() -> None:
    contraction = normalise(einsum_contraction("aq,qb->ab", {"a": 8, "b": 3_000_000, "q": 4}, F32))
    assert short_sum_past_caches(contraction, ONE_CORE) is None
    near = normalise(einsum_contraction("aq,qb->ab", {"a": 800, "b": 30_000, "q": 4}, F32))
    assert short_sum_past_caches(near, ONE_CORE) is not None
    longer = normalise(einsum_contraction("aq,qb->ab", {"a": 800, "b": 30_000, "q": 5}, F32))
    assert short_sum_past_caches(longer, ONE_CORE) is None


@pytest.mark.parametrize("text", ["aq,qb->ab", "qa,qb->ab", "zaq,zqb->zab", "q,qb->b"])
def test_rows_never_run_along_the_sum(text: str) -> None:
    sizes = {one: size for one, size in dict(z=3, a=40, b=50, q=3).items() if one in text}
    contraction = normalise(einsum_contraction(text, sizes, F32))
    form = form_in_order(contraction, CPU_AVX512)
    assert isinstance(form, DirectForm)
    assert form.scalar not in contraction.of_kind(Kind.K)


@settings(max_examples=examples(40))
@given(text=st.sampled_from(["aq,qb->ab", "qa,qb->ab", "zaq,zqb->zab", "zaq,qb->zab"]), data=st.data(),
       machine=st.sampled_from([host_machine(), CPU_AVX2, CPU_AVX512]), shift=st.integers(0, 20))  # fmt: skip
def test_strips_of_any_length(text: str, data: st.DataObject, machine: Machine, shift: int) -> None:
    sizes = {"q": data.draw(st.integers(2, 4)), "z": data.draw(st.integers(1, 3)), "a": data.draw(st.integers(2, 20))}
    sizes["b"] = data.draw(st.one_of(st.integers(2, 1000), st.sampled_from([128, 256, 384, 1600])))
    contraction = einsum_contraction(text, sizes, data.draw(st.sampled_from([F32, F64])))
    buffers = random_buffers(contraction, data.draw(st.integers(0, 99)))
    few = replace(machine, l1_bytes=data.draw(st.sampled_from([1 << 8, 1 << 11, 1 << 15])))
    with (
        mock.patch.multiple(short_sums, is_past_caches=lambda *_: True),
        mock.patch.multiple(in_order, is_past_caches=lambda *_: True, LONG_ROW=data.draw(st.sampled_from([1, 64]))),
    ):
        form = short_sum_past_caches(normalise(contraction), few)
    if form is None:  # short rows that begin within a line
        return
    got = run_cpu(write_direct_kernel(form), buffers, {}, data.draw(st.integers(1, 2)), True, shift)
    assert_close(contraction, got, buffers, {})
