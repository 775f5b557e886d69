"""Panels of the vector side that register tiles fill on the way, beside the arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import given
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F16, F32, F64, I32, ScalarType
from tilewright.kernel.ir import For, If, Kernel, Operation, Statement, Store, While
from tilewright.machine.detect import host_machine
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel

HOST = host_machine()


def packed(text: str, sizes: dict[str, int], scalar: ScalarType, cores: int = 1) -> PackedForm:
    return make_packed_form(normalise(einsum_contraction(text, sizes, scalar)), replace(CPU_AVX512, cores=cores))


@given(
    text=st.sampled_from((
        "aq,qb->ab", "qa,qb->ab", "zaq,zqb->zab", "aqx,xqb->ab", "aq,qbx->abx", "aq,qxb->abx", "aq,xqb->axb",
    )),
    scalar=st.sampled_from((F32, F64, F16, I32, C64)), a=st.integers(1, 30), b=st.integers(17, 200),
    q=st.integers(1, 90), depth=st.integers(8, 40), tile=st.sampled_from(((2, 6), (3, 8), (4, 6), (1, 12))),
    blocks=st.integers(1, 3), threads=st.integers(1, 2), far=st.booleans(), inner=st.booleans(),
)  # fmt: skip
def test_results_are_right(
    text: str, scalar: ScalarType, a: int, b: int, q: int, depth: int, tile: tuple[int, int], blocks: int, threads: int,
    far: bool, inner: bool,
) -> None:  # fmt: skip
    sizes = {"a": a, "b": b, "q": q, "x": 3, "z": 2}
    contraction = einsum_contraction(text, {one: sizes[one] for one in text if one.isalpha()}, scalar)
    form = make_packed_form(normalise(contraction), replace(HOST, cores=threads))
    if form.boxes is None and not scalar.is_complex and form.levels == 0 and not form.buffered:
        block = tile[0] * form.lanes * blocks
        form = replace(form, vectors=tile[0], rows=tile[1], vector_block=block, scalar_block=2 * tile[1])
        form = replace(form, vector_chunk=max(form.vector_chunk, block) // block * block, far=far, scalar_inner=inner)
        if scalar in (F32, F64):
            form = replace(form, depth=depth)
    buffers = random_buffers(contraction, 17)
    got = run_cpu(write_packed_kernel(form), buffers, {}, threads)
    assert_close(contraction, got, buffers, {})


def test_full_panels_are_stored_between_multiply_adds_only() -> None:
    form = packed("aq,qb->ab", dict(a=512, b=512, q=512), F32)
    kernel = write_packed_kernel(form).kernel
    assert _loops_that_pack(kernel) == [(form.vectors, form.vectors * form.rows)]


@pytest.mark.skipif(HOST.vector_bytes < 64, reason="narrower vectors are copied element by element")
def test_vectors_of_two_runs_are_joined_between_multiply_adds() -> None:
    form = packed("cqa,qb->cba", dict(a=36, b=256, c=32, q=512), F32)
    assert form.total(form.vector_dimensions) % form.vector_tile == 0
    assert _loops_that_pack(write_packed_kernel(form).kernel) == [(form.vectors, form.vectors * form.rows)]


def test_a_panel_that_is_not_full_is_packed_before() -> None:
    form = packed("aq,qb->ab", dict(a=512, b=500, q=512), F32)
    multiply_adds = sorted(number for _, number in _loops_that_pack(write_packed_kernel(form).kernel))
    assert multiply_adds[0] == 0 and multiply_adds[-1] == form.vectors * form.rows


def test_what_has_to_be_turned_or_gathered_is_packed_before() -> None:
    for text in ("aq,bq->ab", "aq,bxq->axb"):
        form = packed(text, {one: 96 for one in text if one.isalpha()}, F32)
        loops = _loops_that_pack(write_packed_kernel(form).kernel)
        assert loops and all(multiply_adds == 0 for _, multiply_adds in loops)


def _loops_that_pack(kernel: Kernel) -> list[tuple[int, int]]:
    """For each innermost loop with stores to the vector side's panels: how many, and how many multiply-adds."""
    found: list[tuple[int, int]] = []

    def visit(statements: tuple[Statement, ...]) -> None:
        for one in statements:
            if isinstance(one, For | While):
                stores = [s for s in one.body if isinstance(s, Store) and s.buffer.name.startswith("v_panels")]
                if stores:
                    found.append((len(stores), _multiply_adds(one.body)))
                visit(one.body)
            elif isinstance(one, If):
                visit(one.then)
                visit(one.otherwise)

    visit(kernel.body)
    return found


def _multiply_adds(body: tuple[Statement, ...]) -> int:
    values = (getattr(one, "value", None) for one in body)
    return sum(isinstance(one, Operation) and one.operator == "fma" for one in values)
