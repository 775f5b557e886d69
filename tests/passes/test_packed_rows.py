"""Panels of the scalar side's rows: copied several at once, asked for before they are read, and room for them in L2."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F32, F64, ScalarType
from tilewright.kernel.ir import Prefetch, Store, VectorType
from tilewright.kernel.traversal import walk
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.passes.packed.blocks import FEW_PANELS
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.passes.packed.micro import LINES_OF_NEXT
from tilewright.passes.packed.panels import ROWS

CORE = replace(CPU_AVX512, cores=1)


def form_of(contraction: Contraction, **changes: object) -> PackedForm:
    return replace(make_packed_form(normalise(contraction), CORE), **changes)  # type: ignore[arg-type]


def count_of(statements: Iterable[object], form: PackedForm, side: str) -> int:
    """Requests for the lines of a side's operand or panels."""
    assert form.scalar_rows
    return sum(isinstance(one, Prefetch) and one.buffer.name.startswith(side) for one in statements)


@settings(deadline=None, max_examples=examples(12))
@given(
    a=st.sampled_from([1, 7, 8, 9, 16, 23, 37]),
    sums=st.sampled_from([(1, 40), (3, 32), (5, 4), (6, 7), (2, 20), (3, 16)]),
    scalar=st.sampled_from([F32, F64, C64]),
    far=st.booleans(),
    depth=st.sampled_from([7, 32, 1 << 10]),
)
def test_rows_are_copied_right_in_runs_of_any_length(
    a: int, sums: tuple[int, int], scalar: ScalarType, far: bool, depth: int
) -> None:
    e, f = sums
    contraction = einsum_contraction("fbe,aecf->acb", dict(a=a, b=40, c=2, e=e, f=f), scalar)
    form = form_of(contraction, scalar_rows=True, scalar_in_place=False, scalar_far=far, depth=min(depth, e * f))
    buffers = random_buffers(contraction, 5)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})


def test_several_rows_are_copied_together_and_asked_for_where_they_are_far() -> None:
    contraction = einsum_contraction("ebf,aecf->acb", dict(a=40, b=64, c=2, e=8, f=32), F32)
    near = form_of(contraction, scalar_in_place=False, scalar_far=False)
    assert near.scalar_rows
    body = list(walk(write_packed_kernel(near).kernel.body))
    whole = [
        one
        for one in body
        if isinstance(one, Store) and one.buffer.name.startswith("s_panels") and isinstance(one.value.type, VectorType)
    ]
    assert sum(one.value.type.lanes == near.lanes for one in whole) == ROWS + 1  # and those of a row by itself
    assert count_of(body, near, "scalar_side") == 0
    far = list(walk(write_packed_kernel(replace(near, scalar_far=True)).kernel.body))
    assert count_of(far, near, "scalar_side") == ROWS + 1


@pytest.mark.parametrize(("in_place", "buffer"), [(True, "scalar_side"), (False, "s_panels")])
def test_the_next_rows_are_asked_for_but_not_very_many(in_place: bool, buffer: str) -> None:
    contraction = einsum_contraction("aq,qb->ab", dict(a=100, b=150, q=300), F32)
    for vectors, rows in ((4, 6), (2, 8), (1, 24)):
        form = form_of(contraction, scalar_in_place=in_place, scalar_far=False, vectors=vectors, rows=rows)
        form = replace(form, scalar_block=rows * 5, vector_block=form.vector_tile)
        found = count_of(walk(write_packed_kernel(form).kernel.body), form, buffer)
        assert found == (rows * LINES_OF_NEXT if rows <= 8 else 0)
        buffers = random_buffers(contraction, 5)
        assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})


def test_no_more_of_the_output_is_asked_for_than_there_is() -> None:
    for size in (1, 2, 5):
        contraction = einsum_contraction("aq,qb->ab", dict(a=size, b=8, q=90), F64)
        form = replace(make_packed_form(normalise(contraction), CPU_AVX2), vectors=1, rows=size)
        body = walk(write_packed_kernel(form).kernel.body)
        assert sum(isinstance(one, Prefetch) and one.buffer.name.startswith("out") for one in body) == size


def test_a_scalar_side_that_stays_in_the_second_cache_leaves_the_vector_side_less_of_it() -> None:
    def blocks(few: int) -> tuple[int, int]:
        form = form_of(einsum_contraction("ceda,dbe->cba", dict(a=68, b=few, c=68, d=68, e=68), F64))
        return form.vector_block * form.pitch * 8, form.scalar_block * form.pitch * 8

    (less, held), (more, little) = blocks(68), blocks(8)
    assert little < held < CORE.l2_bytes // 2
    assert less < more
    form = form_of(einsum_contraction("ceda,dbe->cba", dict(a=68, b=68, c=68, d=68, e=68), F64))
    assert form.far
    assert 2 * less + held <= CORE.l2_bytes


@pytest.mark.parametrize("scalar", [F32, F64])
def test_a_far_vector_side_has_some_panels_at_a_time(scalar: ScalarType) -> None:
    sizes = dict(a=68, b=68, c=68, d=68, e=68)
    form = form_of(einsum_contraction("ceda,dbe->cba", sizes, scalar))
    assert form.far and form.vector_block >= FEW_PANELS * form.vectors * form.lanes
    assert 192 <= form.depth < 400
