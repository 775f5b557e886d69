"""Packed forms whose output no cache holds: the order of their register tiles, and rows that are packed for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import given
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel

MACHINE = replace(CPU_AVX512, cores=1, l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)


def form_of(text: str, scalar: ScalarType, sizes: dict[str, int]) -> PackedForm:
    return make_packed_form(normalise(einsum_contraction(text, sizes, scalar)), MACHINE)


def sixteen(text: str, scalar: ScalarType) -> PackedForm:
    return form_of(text, scalar, dict.fromkeys("abcdefg", 16))


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
def test_short_rows_with_gaps_are_packed_for_many_panels(scalar: ScalarType) -> None:
    far_apart = sixteen("cefg,gdba->dfebca", scalar)
    assert far_apart.scalar_rows and not far_apart.scalar_in_place
    assert sixteen("bcfg,edag->edfcab", scalar).scalar_in_place  # rows follow each other


def test_rows_with_gaps_stay_in_place_for_few_panels_and_if_they_are_long_and_in_the_caches() -> None:
    sizes = dict(c=16, e=6, f=5, b=8192, g=16)
    assert not form_of("cefg,gb->fecb", F64, sizes).scalar_in_place
    assert form_of("cefg,gb->fecb", F64, sizes | dict(g=96)).scalar_in_place
    assert form_of("cefg,gb->fecb", F64, sizes | dict(b=2048)).scalar_in_place  # an output of 8 MB
    assert form_of("cefg,gb->fecb", F64, sizes | dict(e=63, f=641, b=8)).scalar_in_place


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
def test_parts_of_runs_a_power_of_two_apart_are_not_written_one_after_another(scalar: ScalarType) -> None:
    for text in ("cefg,gdba->fedcba", "cefg,gdba->fdecba"):
        form = sixteen(text, scalar)
        assert form.nontemporal and not form.scalar_inner
    assert sixteen("bcfg,edag->fedcba", scalar).scalar_inner  # whole runs of one vector
    uneven = dict(a=24, b=16, c=16, d=24, e=16, f=16, g=24)
    assert form_of("cged,bafg->fedcba", scalar, uneven).scalar_inner  # 384 elements apart


def test_the_scalar_side_is_inner_where_the_second_cache_holds_its_panels() -> None:
    sizes = dict(a=24, b=16, c=16, d=16, e=24, f=16, g=24)
    form = form_of("agfe,cbdg->fedcba", F64, sizes)
    step = form.contracted_total * F64.bytes
    assert form.nontemporal and form.scalar_inner
    assert MACHINE.l2_bytes // 2 < form.scalar_block * step <= MACHINE.l2_bytes


@given(
    text=st.sampled_from(("cefg,gdba->dfebca", "cefg,gdba->fedcba", "ceg,gb->ebc")), scalar=st.sampled_from((F32, F64)),
    a=st.integers(1, 9), b=st.integers(1, 40), c=st.integers(1, 9), g=st.integers(1, 20), inner=st.booleans(),
    in_place=st.booleans(),
)  # fmt: skip
def test_results_are_right(
    text: str, scalar: ScalarType, a: int, b: int, c: int, g: int, inner: bool, in_place: bool
) -> None:
    sizes = dict(a=a, b=b, c=c, d=2, e=3, f=2, g=g)
    contraction = einsum_contraction(text, {one: sizes[one] for one in text if one.isalpha()}, scalar)
    form = make_packed_form(normalise(contraction), replace(host_machine(), cores=1))
    if form.boxes is None:
        form = replace(form, scalar_inner=inner, scalar_in_place=in_place and form.scalar_rows, nontemporal=True)
        form = replace(form, nontemporal=form.depth >= form.contracted_total and not form.buffered)
    buffers = random_buffers(contraction, 5)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})
