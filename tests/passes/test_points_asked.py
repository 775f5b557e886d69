"""Operands of the next point that are asked for in the order of memory (passes/direct/points.py and next_points.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, number, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F32, F64, ScalarType
from tilewright.ir.sizes import size
from tilewright.kernel.ir import Prefetch
from tilewright.kernel.traversal import walk
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.machine.paces import TWO_MULTIPLY_ADDS
from tilewright.passes.direct.choice import choose_direct_form, direct_forms
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.passes.direct.points import LEAST_BYTES, has_next_point, point_length, points_are_asked

CORE = replace(CPU_AVX512, cores=1, l1_bytes=32 << 10)


def chosen(text: str, scalar: ScalarType, machine: Machine = CORE, **sizes: int) -> DirectForm:
    found = choose_direct_form(normalise(einsum_contraction(text, sizes, scalar)), machine)
    assert not isinstance(found, str), found
    return found[0]


@pytest.mark.parametrize("scalar", [F32, F64])
def test_batches_and_slices_of_one_operand_are_asked_for(scalar: ScalarType) -> None:
    batch = chosen("zij,zjk->zik", scalar, z=500, i=40, j=40, k=40)
    assert batch.points_asked
    assert [point_length(batch, side) for side in ("vector", "scalar", "out")] == [1600, 1600, 1600]
    slices = chosen("adb,cd->acb", scalar, a=312, b=312, c=24, d=312)
    assert slices.points_asked
    assert has_next_point(slices, "vector") and not has_next_point(slices, "scalar")
    assert point_length(slices, "vector") == 312 * 312


def test_both_parts_of_complex_numbers_are_asked_for() -> None:
    form = chosen("zij,zjk->zik", C64, z=500, i=24, j=40, k=32)
    assert form.points_asked and form.parts == 2
    assert {point_length(form, side) for side in ("vector", "scalar")} == {2 * 24 * 40, 2 * 40 * 32}


def test_what_goes_backwards_is_not() -> None:
    plain = normalise(einsum_contraction("zij,zjk->zik", dict(z=500, i=40, j=40, k=40), F32))
    form = chosen("zij,zjk->zik", F32, z=500, i=40, j=40, k=40)
    back = [replace(one, stride_left=size(-number(one.stride_left))) for one in plain.dimensions]
    turned = replace(form, contraction=replace(plain, dimensions=tuple(back)))
    assert point_length(form, "vector" if form.vector_left else "scalar") > 0
    assert point_length(turned, "vector" if form.vector_left else "scalar") == 0


def test_what_is_near_or_short_or_too_long_or_scattered_is_not() -> None:
    assert not chosen("zij,zjk->zik", F32, z=20, i=40, j=40, k=40).points_asked  # the second cache holds all of it
    assert not chosen("zij,zjk->zik", F32, z=20000, i=16, j=16, k=16).points_asked
    assert LEAST_BYTES > 16 * 16 * 4
    assert not chosen("zij,zjk->zik", F64, z=3, i=200, j=200, k=200).points_asked  # few points
    form = chosen("zij,zjk->zik", F64, z=50, i=400, j=400, k=400)
    assert not form.points_asked  # the second cache does not hold one point
    scattered = chosen("zij,jzk->zik", F32, z=500, i=40, j=40, k=40)
    rows = "vector" if not scattered.vector_left else "scalar"
    assert point_length(scattered, rows) == 0 and not has_next_point(scattered, rows)
    other = replace(CORE, pace=TWO_MULTIPLY_ADDS)
    assert not chosen("zij,zjk->zik", F32, other, z=500, i=40, j=40, k=40).points_asked


def test_all_of_the_next_point_is_asked_for_and_results_past_the_caches_are_not() -> None:
    form = chosen("zij,zjk->zik", F32, z=500, i=40, j=40, k=40)

    def asked(one: DirectForm) -> set[str]:
        body = walk(write_direct_kernel(one).kernel.body)
        return {
            each.buffer.name.rstrip("_0123456789") for each in body if isinstance(each, Prefetch) and each.level == 2
        }

    plain = replace(form, prefetched=False, rows_prefetched=False, out_prefetched=False)
    assert asked(plain) == {"vector_side", "scalar_side", "out"}
    assert asked(replace(plain, nontemporal=True)) == {"vector_side", "scalar_side"}
    assert asked(replace(plain, points_asked=False)) == set()


@settings(max_examples=examples(40), deadline=None)
@given(
    text=st.sampled_from(
        ["zij,zjk->zik", "zji,zjk->zik", "zij,zkj->zik", "zij,jk->zik", "ij,zjk->zik", "zyij,zyjk->zyik"]
    ),
    sizes=st.tuples(*(st.integers(1, most) for most in (7, 3, 40, 20, 40))),
    scalar=st.sampled_from([F32, F64, C64]),
    picked=st.integers(0, 1000),
)
def test_results_are_right(text: str, sizes: tuple[int, ...], scalar: ScalarType, picked: int) -> None:
    named = CPU_AVX512 if host_machine().vector_bytes == 64 else CPU_AVX2
    machine = replace(named, l1_bytes=1, l2_bytes=1)
    every = dict(zip("zyijk", sizes, strict=True))
    contraction = einsum_contraction(text, {one: every[one] for one in text if one.isalpha()}, scalar)
    forms = [one for one in direct_forms(normalise(contraction), machine) if one.collected is None and one.outer]
    assume(forms)
    form = forms[picked % len(forms)]
    whole = replace(form, vector_chunk=form.vector_tiles, scalar_chunk=form.scalar_tiles, points_asked=True)
    buffers = random_buffers(contraction, 7)
    assert_close(contraction, run_cpu(write_direct_kernel(whole), buffers, {}), buffers, {})


def test_a_machine_without_caches_asks_for_nothing() -> None:
    form = chosen("zij,zjk->zik", F32, z=500, i=40, j=40, k=40)
    assert points_are_asked(form, CORE)
    assert not points_are_asked(form, replace(CORE, l2_bytes=1 << 30, l3_bytes=1 << 31))
