"""Products whose sums are in tiles: every layout, type and length, several pieces, padding, results of all kinds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import Case, cases, run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16
from naive import assert_close, einsum_contraction, examples, random_buffers
from test_packed_dots import ALL_DOTS, BYTES, LAYOUTS, cut, narrowed, run_halves, upper_halves, widened

import tilewright as tw
from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.builder import Builder
from tilewright.ir.scalars import BF16, F16, F32, I8, I16, I32, I64, U8, U32, ScalarType
from tilewright.kernel.llvm import llvm_text
from tilewright.kernel.llvm_emitter import CpuTarget
from tilewright.kernel.tiles import TileMultiply
from tilewright.kernel.traversal import walk
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX512, CPU_TILES
from tilewright.machine.processors import named_processor
from tilewright.passes.contractions.form_choice import packed_cycles
from tilewright.passes.packed import choice
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.report.cpu_text import packed_lines
from tilewright.report.declined import declined_packed

SMALL_CACHES = replace(CPU_TILES, l1_bytes=1 << 10, l2_bytes=1 << 14, l3_bytes=1 << 16)
SHAPES = [(2, 32), (1, 48), (3, 16), (1, 16), (2, 16), (1, 32)]

needs_tiles = pytest.mark.skipif(
    host_machine().tiles != ("bf16", "i8"), reason="this processor has no tiles, or may not use them"
)


def tiles_of(contraction: Contraction, machine: Machine, shape: tuple[int, int] | None = None) -> PackedForm:
    """The form in tiles, of this shape and for however few results, if the types have such."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "shape_in_tiles", lambda totals, steps, machine: (0.0, shape or (2, 32)))
        return make_packed_form(normalise(contraction), machine)


def uses_tiles(form: PackedForm) -> bool:
    used = any(isinstance(one, TileMultiply) for one in walk(write_packed_kernel(form).kernel.body))
    assert used == form.in_tiles
    return used


# --- all layouts ------------------------------------------------------------------------------------------------------


@needs_tiles
@settings(max_examples=examples(60))
@given(case=cases(I32, "plus_times"), types=st.sampled_from(BYTES), data=st.data())
def test_any_contraction_of_bytes(case: Case, types: tuple[ScalarType, ScalarType], data: st.DataObject) -> None:
    contraction = narrowed(case.contraction, *types)
    machine, shape = data.draw(st.sampled_from([CPU_TILES, SMALL_CACHES])), data.draw(st.sampled_from(SHAPES))
    form = cut(tiles_of(contraction, machine, shape), data)
    buffers = random_buffers(contraction, case.seed)
    got = run_cpu(write_packed_kernel(form), buffers, case.scalars, threads=3)
    assert_close(contraction, got, buffers, case.scalars)


@needs_tiles
@settings(max_examples=examples(60))
@given(case=cases(F32, "plus_times"), data=st.data())
def test_any_contraction_of_bf16(case: Case, data: st.DataObject) -> None:
    machine, shape = data.draw(st.sampled_from([CPU_TILES, SMALL_CACHES])), data.draw(st.sampled_from(SHAPES))
    form = tiles_of(narrowed(case.contraction, BF16, BF16), machine, shape)
    run_halves(case.contraction, cut(form, data), case.buffers(), case.scalars)


@pytest.mark.parametrize("text", LAYOUTS[:-1])
@pytest.mark.parametrize("length", [64, 127, 129, 1500])
@needs_tiles
def test_bytes_of_each_layout(text: str, length: int) -> None:
    for left, right in BYTES:
        dense = einsum_contraction(text, dict(a=37, b=75, c=3, p=2, q=length), I32)
        contraction = narrowed(dense, left, right)
        form = tiles_of(contraction, SMALL_CACHES)
        assert uses_tiles(form)
        buffers = random_buffers(contraction, length)
        assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})


@pytest.mark.parametrize("text", LAYOUTS[:-1])
@pytest.mark.parametrize("length", [32, 63, 65, 1500])
@needs_tiles
def test_bf16_of_each_layout(text: str, length: int) -> None:
    dense = einsum_contraction(text, dict(a=80, b=96, c=3, p=2, q=length), F32)
    for machine in (CPU_TILES, SMALL_CACHES):
        form = tiles_of(narrowed(dense, BF16, BF16), machine)
        assert uses_tiles(form)
        run_halves(dense, form, random_buffers(dense, length))


# --- what the tiles hold ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "right"), BYTES, ids=str)
@needs_tiles
def test_integers_wrap_around(left: ScalarType, right: ScalarType) -> None:
    """Extreme values whose sums do not fit into 32 bits, from more pieces than one."""
    length = 140_003
    contraction = narrowed(einsum_contraction("aq,qb->ab", dict(a=7, b=17, q=length), I32), left, right)
    form = tiles_of(contraction, CPU_TILES)
    assert uses_tiles(form) and form.depth < length
    low, high = (np.array([np.iinfo(one.numpy).min, np.iinfo(one.numpy).max]) for one in (left, right))
    a, b = np.empty((7, length), left.numpy), np.empty((length, 17), right.numpy)
    a[:], b[:] = low[0], high[0]
    a[1::2], b[:, 1::2] = low[1], high[1]
    exact = a.astype(np.int64) @ b.astype(np.int64)
    got = run_cpu(write_packed_kernel(form), {"A": a.ravel(), "B": b.ravel(), "C": np.zeros(7 * 17, np.int32)}, {})
    np.testing.assert_array_equal(got, exact.astype(np.int32).ravel())


@pytest.mark.parametrize("length", [511, 2050, 40_000])
@needs_tiles
def test_the_error_of_bf16_is_that_of_sums_in_f32(length: int) -> None:
    """|error| <= n u sum |a b|, whichever order the instruction adds in: products of bf16 are exact in f32."""
    dense = einsum_contraction("aq,qb->ab", dict(a=13, b=70, q=length), F32)
    form = tiles_of(narrowed(dense, BF16, BF16), CPU_TILES)
    assert uses_tiles(form)
    buffers = random_buffers(dense, 5)
    bits = {name: upper_halves(array) if name in "AB" else array for name, array in buffers.items()}
    got = run_cpu(write_packed_kernel(form), bits, {})[: 13 * 70].reshape(13, 70)
    a = widened(bits["A"])[: 13 * length].reshape(13, length).astype(np.float64)
    b = widened(bits["B"])[: 70 * length].reshape(length, 70).astype(np.float64)
    assert (np.abs(got - a @ b) <= length * 2.0**-24 * (np.abs(a) @ np.abs(b))).all()


@needs_tiles
def test_subnormal_numbers_count_as_zero() -> None:
    """As elements, and as products, each of which is less than 2^-126; the other terms are as they were."""
    dense = einsum_contraction("aq,qb->ab", dict(a=6, b=64, q=5), F32)
    form = tiles_of(narrowed(dense, BF16, BF16), CPU_TILES)
    a, b = np.ones((6, 5), np.float32), np.ones((5, 64), np.float32)
    a[:, 0], b[0] = 2.0**-130, 2.0**100  # a subnormal element
    a[:, 1], b[1] = 2.0**-100, 2.0**-100  # a product too small for any f32
    a[:, 2], b[2] = 2.0**-70, 2.0**-60  # a product that only a subnormal f32 can hold
    bits = {"A": upper_halves(a.ravel()), "B": upper_halves(b.ravel()), "C": np.zeros(6 * 64, np.float32)}
    assert (run_cpu(write_packed_kernel(form), bits, {}) == 2.0).all()


@pytest.mark.parametrize("text", ["aq,bq->ab", "qa,qb->ab"])
@pytest.mark.parametrize("length", [7, 33, 1090])
@needs_tiles
def test_padding_does_not_meet_infinities(text: str, length: int) -> None:
    """Past the end of the sum are zeros on both sides: infinity times 0 would be nan."""
    dense = einsum_contraction(text, dict(a=9, b=33, q=length), F32)
    form = tiles_of(narrowed(dense, BF16, BF16), CPU_TILES)
    a, b = np.full(9 * length, np.inf, np.float32), np.full(33 * length, np.inf, np.float32)
    bits = {"A": upper_halves(a), "B": upper_halves(b), "C": np.zeros(9 * 33, "f4")}
    assert (run_cpu(write_packed_kernel(form), bits, {}) == np.inf).all()


@pytest.mark.parametrize("offset", [0, 8, 32])
@needs_tiles
def test_rows_are_read_in_place_where_they_begin_with_lines(offset: int) -> None:
    """The last register tile has 16 rows of 32: past these are none to be read."""
    rows, columns, length = 80, 64, 96
    dense = einsum_contraction("aq,qb->ab", dict(a=rows, b=columns, q=length), I32)
    form = tiles_of(narrowed(dense, I8, U8), CPU_TILES)
    assert not form.tiles_in_place  # rows of 96 bytes are no whole lines
    length = 128
    dense = einsum_contraction("aq,qb->ab", dict(a=rows, b=columns, q=length), I32)
    form = tiles_of(narrowed(dense, I8, U8), CPU_TILES)
    assert form.tiles_in_place
    held = np.random.default_rng(3).integers(0, 256, 64 + offset + rows * length, np.uint8)
    begin = -held.ctypes.data % 64 + offset
    a = held[begin : begin + rows * length].view(np.int8)
    b = np.random.default_rng(4).integers(0, 256, length * columns, np.uint8)
    got = run_cpu(write_packed_kernel(form), {"A": a, "B": b, "C": np.zeros(rows * columns, np.int32)}, {})
    exact = a.reshape(rows, length).astype(np.int64) @ b.reshape(length, columns)
    np.testing.assert_array_equal(got.reshape(rows, columns), exact)


# --- whole einsums ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(96, 160, 224), (256, 256, 256), (130, 2100, 75), (64, 4200, 64)])
@pytest.mark.parametrize("text", ["ij,jk->ik", "ji,jk->ki", "ij,kj->ik"])
@needs_tiles
def test_the_same_bits_on_any_number_of_threads(text: str, shape: tuple[int, int, int]) -> None:
    sizes = dict(zip("ijk", shape, strict=True))
    left, right = ([sizes[one] for one in term] for term in text.split("->", maxsplit=1)[0].split(","))
    random = np.random.default_rng(0)
    a, b = (upper_halves(random.standard_normal(one, np.float32)) for one in (left, right))
    a, b = a.view(bfloat16), b.view(bfloat16)
    exact = np.einsum(text, a.astype(np.float64), b.astype(np.float64))
    bound = shape[1] * 2.0**-24 * np.einsum(text, abs(a.astype(np.float64)), abs(b.astype(np.float64)))
    with tw.num_threads(1):
        one = tw.einsum(text, a, b, dtype="f32")
        rounded = tw.einsum(text, a, b)
    with tw.num_threads(3):
        three = tw.einsum(text, a, b, dtype="f32")
    assert (abs(one - exact) <= bound).all()
    assert (abs(rounded.astype(np.float64) - exact) <= bound + 2.0**-8 * abs(exact)).all()
    np.testing.assert_array_equal(one, three)


@needs_tiles
def test_results_are_scaled_added_and_finished() -> None:
    random = np.random.default_rng(1)
    a, b = random.integers(-128, 128, (70, 200), np.int8), random.integers(0, 256, (200, 90), np.uint8)
    before = random.integers(-1000, 1000, (70, 90), np.int32)
    out = before.copy()
    tw.einsum("ij,jk->ik", a, b, dtype="i32", out=out, alpha=3, beta=-2)
    exact = a.astype(np.int64) @ b
    np.testing.assert_array_equal(out, 3 * exact - 2 * before)
    wide = np.zeros((90, 140), np.int32)
    tw.einsum("ij,jk->ki", a, b, dtype="i32", out=wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], exact.T)
    assert not wide[:, 1::2].any()


# --- where ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "total", "chosen"),
    [(BF16, BF16, F32, True), (I8, I8, I32, True), (U8, I8, U32, True), (U8, U8, I32, True), (I16, I16, I32, False),
     (BF16, F16, F32, False), (F16, F16, F32, False), (BF16, F32, F32, False), (I8, I16, I32, False),
     (I8, I8, I64, False)],
    ids=str,
)  # fmt: skip
def test_types_that_have_an_instruction(left: ScalarType, right: ScalarType, total: ScalarType, chosen: bool) -> None:
    contraction = narrowed(einsum_contraction("aq,qb->ab", dict(a=64, b=64, q=64), total), left, right)
    form = make_packed_form(normalise(contraction), CPU_TILES)
    assert uses_tiles(form) == chosen
    assert not make_packed_form(normalise(contraction), CPU_AVX512).in_tiles
    least = replace(contraction, combine=Builder().operator("max", total))
    assert not make_packed_form(normalise(least), CPU_TILES).in_tiles


@pytest.mark.parametrize("sizes", [(1, 64, 64), (64, 64, 2), (3, 5, 7)])
def test_little_that_would_fill_tiles_is_left_to_vectors(sizes: tuple[int, int, int]) -> None:
    dense = einsum_contraction("aq,qb->ab", dict(zip("abq", sizes, strict=True)), F32)
    form = make_packed_form(normalise(narrowed(dense, BF16, BF16)), CPU_TILES)
    assert not form.in_tiles
    assert any(one.startswith("not in tiles: ") for one in declined_packed(form, CPU_TILES, 1))


def test_it_is_told_and_counted() -> None:
    dense = einsum_contraction("aq,qb->ab", dict(a=512, b=512, q=512), I32)
    contraction = normalise(narrowed(dense, I8, U8))
    form, vectors = make_packed_form(contraction, CPU_TILES), make_packed_form(contraction, ALL_DOTS)
    lines = packed_lines(form, write_packed_kernel(form).blocks, CPU_TILES)
    assert lines[2] == "registers  2 x 2 tiles of 16 x 16 sums: 8 of 8 tiles, 0% of the work on padding"
    assert lines[-1] == "multiply   64 products of i8 and u8 to each of 16 x 16 sums by one instruction"
    assert packed_cycles(form, CPU_TILES) < packed_cycles(vectors, ALL_DOTS) / 3


@pytest.mark.parametrize(
    ("left", "right", "name"),
    [(BF16, BF16, "tdpbf16ps"), (U8, I8, "tdpbusd"), (I8, I8, "tdpbssd"), (U8, U8, "tdpbuud"), (I8, U8, "tdpbsud")],
    ids=str,
)
def test_text_for_a_processor_that_need_not_be_there(left: ScalarType, right: ScalarType, name: str) -> None:
    processor = named_processor("sapphirerapids")
    target = CpuTarget(processor.triple, processor.name, processor.features)
    dense = einsum_contraction("aq,qb->ab", dict(a=64, b=64, q=256), F32 if left == BF16 else I32)
    kernel = write_packed_kernel(make_packed_form(normalise(narrowed(dense, left, right)), CPU_TILES)).kernel
    text = llvm_text(kernel, target)
    assert f"call void @llvm.x86.{name}(i8 3, i8 5, i8 7)" in text
    assert text.count("call void @llvm.x86.ldtilecfg(ptr @.tiles)") == 1
    assert text.count("call void @llvm.x86.tilerelease()") == 1
    without = CpuTarget(processor.triple, processor.name, processor.without_tiles().features)
    with pytest.raises(TypeError, match="this processor has no tiles"):
        llvm_text(kernel, without)
