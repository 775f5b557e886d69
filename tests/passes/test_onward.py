"""Rows that go on where their sum ends (passes/direct/onward.py): read as so many streams as a tile has rows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F32, F64, I32, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.machine.paces import MESH, ONE_MULTIPLY_ADD, TWO_MULTIPLY_ADDS, Pace
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.choice import direct_forms
from tilewright.passes.direct.form import DirectForm, Results
from tilewright.passes.direct.kernel import write_direct_kernel

MEMORY = {"a": 72, "b": 72, "c": 24, "d": 72, "e": 72}


@pytest.mark.parametrize("pace", [ONE_MULTIPLY_ADD, TWO_MULTIPLY_ADDS, MESH], ids=["zen4", "zen5", "server"])
@pytest.mark.parametrize("cores", [1, 2])
def test_rows_far_apart_in_memory_go_on(pace: Pace, cores: int) -> None:
    machine = replace(CPU_AVX512, cores=cores, pace=pace, l2_bytes=1 << 20, l3_bytes=1 << 25)
    form = choose_form(normalise(einsum_contraction("dabe,ec->dcba", MEMORY, F32)), machine).form
    assert isinstance(form, DirectForm)
    assert form.onward and form.results is Results.TURNED
    assert form.stride(form.outer[-1], "scalar") == form.contracted_total
    assert form.scalar_chunk == 1 and form.blocks == (72, form.scalar_tiles, 72, 1)


def test_rows_in_the_second_cache_stay_in_the_order_of_the_dimensions() -> None:
    contraction = normalise(einsum_contraction("dabe,ec->dcba", dict.fromkeys("abcde", 12), F32))
    assert not any(form.onward for form in direct_forms(contraction, CPU_AVX512))


@settings(max_examples=examples(40), deadline=None)
@given(
    text=st.sampled_from(
        ["dabe,ec->dcba", "abe,ec->cba", "dabe,dec->dcba", "ec,abe->abc", "abe,ec->bac", "dabe,e->dba"]
    ),
    sizes=st.tuples(*(st.integers(1, most) for most in (40, 9, 40, 3, 40))),
    scalar=st.sampled_from([F32, F64, I32, C64]),
    picked=st.integers(0, 1000),
)
def test_results_are_right(text: str, sizes: tuple[int, ...], scalar: ScalarType, picked: int) -> None:
    named = CPU_AVX512 if host_machine().vector_bytes == 64 else CPU_AVX2
    machine = replace(named, l1_bytes=1, l2_bytes=1)
    every = dict(zip("abcde", sizes, strict=True))
    contraction = einsum_contraction(text, {one: every[one] for one in text if one.isalpha()}, scalar)
    forms = [form for form in direct_forms(normalise(contraction), machine) if form.onward]
    assume(forms)
    form = forms[picked % len(forms)]
    form = replace(form, vector_chunk=form.vector_tiles, rows_prefetched=picked % 2 == 0, serial=picked % 3 == 0)
    launch = write_direct_kernel(form)
    assert launch.blocks == (1 if form.serial else math.prod(form.blocks))
    buffers = random_buffers(contraction, 3)
    got = run_cpu(launch, buffers, {}, 1 + picked % 2, aligned=True)
    assert_close(contraction, got, buffers, {})
