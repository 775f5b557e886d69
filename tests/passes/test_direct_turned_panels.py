"""Panels of the direct form whose sum runs along the operand's unit stride: squares of vectors, turned in registers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, I32, ScalarType
from tilewright.kernel.ir import Let, Shuffle
from tilewright.kernel.traversal import walk
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.direct.choice import choose_direct_form
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.kernel import write_direct_kernel

MACHINES = [replace(one, cores=1) for one in (CPU_AVX512, CPU_AVX2, CPU_NEON)]


def form_of(text: str, sizes: dict[str, int], scalar: ScalarType, machine: object) -> DirectForm:
    found = choose_direct_form(normalise(einsum_contraction(text, sizes, scalar)), machine)  # type: ignore[arg-type]
    assert not isinstance(found, str), found
    return found[0]


def test_a_square_is_written_once_however_wide_the_tile_is() -> None:
    forms = [form_of("ij,kj->ik", dict(i=20, j=60, k=k), F32, MACHINES[0]) for k in (16, 96)]
    assert [form.vector_packed for form in forms] == [True, True]
    assert forms[0].pitch < forms[1].pitch
    bodies = [list(walk(write_direct_kernel(form).kernel.body)) for form in forms]
    shuffles = [sum(isinstance(one, Let) and isinstance(one.value, Shuffle) for one in body) for body in bodies]
    assert shuffles[0] == shuffles[1] > 0


@settings(max_examples=examples(60))
@given(
    i=st.sampled_from([1, 3, 6, 17]),
    j=st.sampled_from([1, 3, 4, 7, 16, 21, 33]),
    k=st.sampled_from([2, 5, 8, 15, 16, 17, 31, 48, 63, 100]),
    batch=st.sampled_from([1, 3]),
    scalar=st.sampled_from([F32, F64, I32]),
    machine=st.sampled_from(MACHINES),
)
def test_turned_panels_are_right_at_every_end(
    i: int, j: int, k: int, batch: int, scalar: ScalarType, machine: object
) -> None:
    sizes = dict(b=batch, i=i, j=j, k=k)
    contraction = einsum_contraction("bij,bkj->bik", sizes, scalar)
    form = form_of("bij,bkj->bik", sizes, scalar, machine)
    buffers = random_buffers(contraction, 5)
    assert_close(contraction, run_cpu(write_direct_kernel(form), buffers, {}), buffers, {})


@pytest.mark.parametrize("text", ["ijl,klj->ik", "ijl,kjl->ik", "jil,kjl->ik"])
def test_panels_of_sums_over_several_dimensions(text: str) -> None:
    sizes = dict(i=11, j=5, l=19, k=45)
    contraction = einsum_contraction(text, sizes, F32)
    buffers = random_buffers(contraction, 5)
    form = form_of(text, sizes, F32, MACHINES[0])
    assert_close(contraction, run_cpu(write_direct_kernel(form), buffers, {}), buffers, {})
