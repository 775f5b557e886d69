"""Products of narrow elements that one instruction adds to a lane: every layout and length, overflow, rounding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contraction_cases import Case, cases, run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Type
from tilewright.ir.scalars import BF16, F16, F32, I8, I16, I32, I64, U8, U32, ScalarType
from tilewright.kernel.dots import Dot
from tilewright.kernel.traversal import expressions, walk
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.passes.contractions.form_choice import packed_cycles
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.report.cpu_text import packed_lines

HOST = replace(host_machine(), tiles=())
SMALL_CACHES = replace(HOST, l1_bytes=1 << 10, l2_bytes=1 << 13, l3_bytes=1 << 15)
ALL_DOTS = replace(CPU_AVX512, dots=("bf16", "i16", "i8"))
BYTES = [(I8, I8), (U8, U8), (U8, I8), (I8, U8)]
PAIRS = [*BYTES, (I16, I16), (BF16, BF16)]
LAYOUTS = ["aq,qb->ab", "aq,bq->ab", "qa,qb->ab", "qa,bq->ab", "aq,qb->ba", "qac,pqb->pacb", "aqp,pqb->ab", "aq,q->a"]

needs_bytes = pytest.mark.skipif("i8" not in HOST.dots, reason="this processor has no such instruction")
needs_bf16 = pytest.mark.skipif("bf16" not in HOST.dots, reason="this processor has no such instruction")


def narrowed(contraction: Contraction, left: ScalarType, right: ScalarType) -> Contraction:
    """The sum of products of operands of narrower types, each converted."""
    b, total = Builder(), contraction.accumulator
    types = [Type(left), Type(right)]
    return replace(
        contraction,
        left=replace(contraction.left, element=left),
        right=replace(contraction.right, element=right),
        map=b.function(types, lambda x, y: b.apply("mul", b.cast(total, x), b.cast(total, y))),
    )


def form_of(contraction: Contraction, machine: Machine = HOST) -> PackedForm:
    return make_packed_form(normalise(contraction), machine)


def has_dots(form: PackedForm) -> bool:
    parts = [one for statement in walk(write_packed_kernel(form).kernel.body) for one in expressions(statement)]
    assert any(isinstance(one, Dot) for one in parts) == (form.dots is not None)
    return form.dots is not None


def upper_halves(values: np.ndarray) -> np.ndarray:
    """Floats as bf16: cut, which any value of f32 may be."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def widened(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def run_halves(wide: Contraction, form: PackedForm, buffers: Mapping[str, np.ndarray], scalars: Any = None) -> None:
    """Run a form on bf16 operands against the contraction of the same values as f32."""
    bits = {name: upper_halves(array) if name in "AB" else array for name, array in buffers.items()}
    same = {name: widened(bits[name]) if name in "AB" else array for name, array in buffers.items()}
    got = run_cpu(write_packed_kernel(form), bits, scalars or {}, threads=2)
    assert_close(wide, got, same, scalars or {})


# --- all layouts ------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(40))
@given(case=cases(I32, "plus_times"), types=st.sampled_from(PAIRS[:-1]), data=st.data())
def test_any_contraction_of_integers(case: Case, types: tuple[ScalarType, ScalarType], data: st.DataObject) -> None:
    contraction = narrowed(case.contraction, *types)
    form = cut(form_of(contraction, data.draw(st.sampled_from([HOST, SMALL_CACHES]))), data)
    buffers = random_buffers(contraction, case.seed)
    got = run_cpu(write_packed_kernel(form), buffers, case.scalars, threads=3)
    assert_close(contraction, got, buffers, case.scalars)


@settings(max_examples=examples(40))
@given(case=cases(F32, "plus_times"), data=st.data())
def test_any_contraction_of_bf16(case: Case, data: st.DataObject) -> None:
    form = form_of(narrowed(case.contraction, BF16, BF16), data.draw(st.sampled_from([HOST, SMALL_CACHES])))
    run_halves(case.contraction, cut(form, data), case.buffers(), case.scalars)


def cut(form: PackedForm, data: st.DataObject) -> PackedForm:
    """The form as it is, or in small pieces."""
    some = st.integers(1, 3)
    if data.draw(st.booleans()):
        return form
    return replace(
        form,
        vector_block=form.vector_tile * data.draw(some),
        scalar_block=form.rows * data.draw(some),
        vector_chunk=form.vector_tile * data.draw(some),
        scalar_chunk=form.rows * data.draw(some),
        nontemporal=False,
        far=data.draw(st.booleans()),
        scalar_far=data.draw(st.booleans()),
    )


@pytest.mark.parametrize("text", LAYOUTS)
@pytest.mark.parametrize("length", [63, 64, 129])
@needs_bytes
def test_bytes_of_each_layout(text: str, length: int) -> None:
    for left, right in BYTES:
        dense = einsum_contraction(text, dict(a=37, b=75, c=3, p=2, q=length), I32)
        contraction = narrowed(dense, left, right)
        form = form_of(contraction)
        assert has_dots(form)
        buffers = random_buffers(contraction, length)
        assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})


@pytest.mark.parametrize("text", LAYOUTS)
@pytest.mark.parametrize("length", [63, 64, 130])
@needs_bf16
def test_bf16_of_each_layout(text: str, length: int) -> None:
    dense = einsum_contraction(text, dict(a=37, b=75, c=3, p=2, q=length), F32)
    form = form_of(narrowed(dense, BF16, BF16))
    assert has_dots(form)
    run_halves(dense, form, random_buffers(dense, length))


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "right"), PAIRS[:-1], ids=str)
@needs_bytes
def test_integers_wrap_around(left: ScalarType, right: ScalarType) -> None:
    """Extreme values whose sums do not fit into 32 bits, from more pieces than one."""
    length = 140_003 if left.bytes == 1 else 2_003
    contraction = narrowed(einsum_contraction("aq,qb->ab", dict(a=7, b=17, q=length), I32), left, right)
    form = form_of(contraction)
    assert form.dots is not None and form.depth < length
    low, high = (np.array([np.iinfo(one.numpy).min, np.iinfo(one.numpy).max]) for one in (left, right))
    a, b = np.empty((7, length), left.numpy), np.empty((length, 17), right.numpy)
    a[:], b[:] = low[0], high[0]
    a[1::2], b[:, 1::2] = low[1], high[1]
    exact = a.astype(np.int64) @ b.astype(np.int64)
    assert abs(exact).max() > 1 << 31
    got = run_cpu(write_packed_kernel(form), {"A": a.ravel(), "B": b.ravel(), "C": np.zeros(7 * 17, np.int32)}, {})
    np.testing.assert_array_equal(got, exact.astype(np.int32).ravel())


@pytest.mark.parametrize("length", [511, 2050])
@needs_bf16
def test_the_error_of_bf16_is_that_of_sums_in_f32(length: int) -> None:
    """|error| <= n u sum |a b|, whichever order the instruction adds in: products of bf16 are exact in f32."""
    dense = einsum_contraction("aq,qb->ab", dict(a=13, b=70, q=length), F32)
    form = form_of(narrowed(dense, BF16, BF16))
    buffers = random_buffers(dense, 5)
    bits = {name: upper_halves(array) if name in "AB" else array for name, array in buffers.items()}
    got = run_cpu(write_packed_kernel(form), bits, {})[: 13 * 70].reshape(13, 70)
    a = widened(bits["A"])[: 13 * length].reshape(13, length).astype(np.float64)
    b = widened(bits["B"])[: 70 * length].reshape(length, 70).astype(np.float64)
    assert (np.abs(got - a @ b) <= length * 2.0**-24 * (np.abs(a) @ np.abs(b))).all()


@needs_bf16
def test_subnormal_numbers_count_as_zero() -> None:
    """As elements, and as products, each of which is less than 2^-126; the other terms are as they were."""
    dense = einsum_contraction("aq,qb->ab", dict(a=6, b=64, q=5), F32)
    form = form_of(narrowed(dense, BF16, BF16))
    a, b = np.ones((6, 5), np.float32), np.ones((5, 64), np.float32)
    a[:, 0], b[0] = 2.0**-130, 2.0**100  # a subnormal element
    a[:, 1], b[1] = 2.0**-100, 2.0**-100  # a product too small for any f32
    a[:, 2], b[2] = 2.0**-70, 2.0**-60  # a product that only a subnormal f32 can hold
    bits = {"A": upper_halves(a.ravel()), "B": upper_halves(b.ravel()), "C": np.zeros(6 * 64, np.float32)}
    assert (run_cpu(write_packed_kernel(form), bits, {}) == 2.0).all()


@needs_bf16
def test_padding_does_not_meet_infinities() -> None:
    """Past the end of an odd sum are zeros on both sides: infinity times 0 would be nan."""
    dense = einsum_contraction("aq,bq->ab", dict(a=9, b=33, q=7), F32)
    form = form_of(narrowed(dense, BF16, BF16))
    arrays = {"A": np.full(9 * 7, np.inf, np.float32), "B": np.ones(33 * 7, np.float32), "C": np.zeros(9 * 33, "f4")}
    bits = {name: upper_halves(array) if name in "AB" else array for name, array in arrays.items()}
    assert (run_cpu(write_packed_kernel(form), bits, {}) == np.inf).all()


@pytest.mark.parametrize("text", ["aq,qb->ab", "qa,bq->ab"])
@needs_bytes
def test_vectors_of_32_bytes_and_pieces_of_any_length(text: str) -> None:
    machine = replace(CPU_AVX2, dots=HOST.dots)
    for left, right, total in ((I8, I8, U32), (I8, U8, I32), (I16, I16, U32)):
        dense = einsum_contraction(text, dict(a=21, b=43, q=103), total)
        contraction = narrowed(dense, left, right)
        form = replace(form_of(contraction, machine), depth=35)
        assert form.dots is not None and form.lanes == 8 and form.ragged
        buffers = random_buffers(contraction, 2)
        got = run_cpu(write_packed_kernel(form), buffers, {})
        assert_close(contraction, got, buffers, {})


# --- where ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "total", "chosen"),
    [(BF16, BF16, F32, True), (I8, I8, I32, True), (U8, I8, U32, True), (I16, I16, I32, True), (BF16, F16, F32, False),
     (F16, F16, F32, False), (BF16, F32, F32, False), (I8, I16, I32, False), (I8, I8, I64, False)],
    ids=str,
)  # fmt: skip
def test_types_that_have_an_instruction(left: ScalarType, right: ScalarType, total: ScalarType, chosen: bool) -> None:
    contraction = narrowed(einsum_contraction("aq,qb->ab", dict(a=64, b=64, q=64), total), left, right)
    assert has_dots(form_of(contraction, ALL_DOTS)) == chosen
    assert form_of(contraction, CPU_AVX512).dots is None
    assert form_of(contraction, CPU_AVX2).dots is None
    assert form_of(replace(contraction, combine=Builder().operator("max", total)), ALL_DOTS).dots is None


def test_one_step_is_no_sum_of_products() -> None:
    assert form_of(narrowed(einsum_contraction("aq,qb->ab", dict(a=64, b=64, q=1), F32), BF16, BF16)).dots is None


def test_it_is_told_and_counted() -> None:
    contraction = narrowed(einsum_contraction("aq,qb->ab", dict(a=512, b=512, q=512), I32), I8, I8)
    form, plain = form_of(contraction, ALL_DOTS), form_of(contraction, CPU_AVX512)
    lines = packed_lines(form, write_packed_kernel(form).blocks, ALL_DOTS)
    assert lines[-1] == "multiply   4 products of u8 and i8 are added by one instruction"
    assert packed_cycles(form, ALL_DOTS) < packed_cycles(plain, CPU_AVX512) / 3
