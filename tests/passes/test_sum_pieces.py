"""Sums in pieces, between which those of all tiles wait in scratch memory (passes/direct/sum_pieces.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.machine.paces import MESH
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.choice import direct_forms
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.passes.direct.points import may_be_cut, piece_of_sum

SERVER = replace(CPU_AVX512, cores=1, pace=MESH, l2_bytes=2 << 20, l3_bytes=48 << 20)
SLICES = {"a": 312, "b": 312, "c": 24, "d": 312}


def chosen(text: str, scalar: ScalarType, **sizes: int) -> DirectForm:
    form = choose_form(normalise(einsum_contraction(text, SLICES | sizes, scalar)), SERVER).form
    assert isinstance(form, DirectForm)
    return form


@pytest.mark.parametrize(("scalar", "steps"), [(F32, 104), (F64, 52)])
@pytest.mark.parametrize("text", ["adb,cd->acb", "adb,cd->cab", "adb,dc->cab"])
def test_a_piece_is_a_sixteenth_of_the_second_cache(text: str, scalar: ScalarType, steps: int) -> None:
    form = chosen(text, scalar)
    assert form.piece == steps
    assert form.points_asked and not form.prefetched and not form.scalar_outer
    assert steps * 312 * scalar.bytes <= SERVER.l2_bytes // 16


def test_what_is_short_or_near_or_wide_or_computes_for_long_or_differs_is_not_cut() -> None:
    assert not chosen("adb,cd->acb", F32, d=100).piece  # a point is no two pieces
    assert not chosen("adb,cd->acb", F32, a=2).piece  # few points
    wide = normalise(einsum_contraction("adb,cd->acb", {"a": 60, "b": 680, "c": 240, "d": 100}, F32))
    assert not any(piece_of_sum(one, SERVER) for one in direct_forms(wide, SERVER))  # 0.85 times as fast: much waits
    form = chosen("adb,cd->acb", F64)
    assert piece_of_sum(form, SERVER)
    assert not piece_of_sum(form, replace(SERVER, l2_bytes=1 << 30, l3_bytes=1 << 31))
    assert not piece_of_sum(form, CPU_AVX512)  # not measured there
    long = normalise(einsum_contraction("adb,cd->acb", SLICES | {"c": 3000}, F64))
    assert not any(piece_of_sum(one, SERVER) for one in direct_forms(long, SERVER))
    batch = normalise(einsum_contraction("zij,zjk->zik", {"z": 50, "i": 24, "j": 300, "k": 300}, F64))
    assert not any(piece_of_sum(one, SERVER) for one in direct_forms(batch, SERVER))


@settings(max_examples=examples(60), deadline=None)
@given(
    text=st.sampled_from(["adb,cd->acb", "adb,cd->cab", "adb,dc->abc", "abd,cd->acb", "adb,zcd->azcb", "db,cd->cb"]),
    sizes=st.tuples(*(st.integers(1, most) for most in (5, 70, 30, 40, 3))),
    scalar=st.sampled_from([F32, F64]),
    picked=st.integers(0, 1000),
    steps=st.integers(1, 45),
    asked=st.booleans(),
)
def test_every_bit_stays(
    text: str, sizes: tuple[int, ...], scalar: ScalarType, picked: int, steps: int, asked: bool
) -> None:
    machine = CPU_AVX512 if host_machine().vector_bytes == 64 else CPU_AVX2
    every = dict(zip("abcdz", sizes, strict=True))
    contraction = einsum_contraction(text, {one: every[one] for one in text if one.isalpha()}, scalar)
    forms = [one for one in direct_forms(normalise(contraction), machine) if may_be_cut(one)]
    assume(forms)
    form = replace(forms[picked % len(forms)], scalar_outer=False)
    whole = replace(form, vector_chunk=form.vector_tiles, scalar_chunk=form.scalar_tiles)
    cut = replace(whole, piece=steps, points_asked=asked and bool(form.outer))
    buffers = random_buffers(contraction, 7)
    found = run_cpu(write_direct_kernel(cut), buffers, {})
    assert_close(contraction, found, buffers, {})
    np.testing.assert_array_equal(found, run_cpu(write_direct_kernel(whole), buffers, {}))


def test_parts_of_a_point_are_cut_too() -> None:
    contraction = einsum_contraction("adb,cd->acb", {"a": 3, "b": 100, "c": 30, "d": 40}, F32)
    form = next(one for one in direct_forms(normalise(contraction), SERVER) if may_be_cut(one))
    parts = replace(form, scalar_outer=False, piece=11, vector_chunk=1, scalar_chunk=2)
    buffers = random_buffers(contraction, 3)
    for threads in (1, 2):
        assert_close(contraction, run_cpu(write_direct_kernel(parts), buffers, {}, threads), buffers, {})
