"""The packed CPU form on purpose: long sums, many blocks and threads, one lane, every way of writing the output."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contraction_cases import run_cpu, with_semiring
from naive import assert_close, einsum_contraction, random_buffers

from tilewright.contraction.form import Contraction, EpilogueOperand, Operand
from tilewright.contraction.normalise import normalise
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Atom, Lambda, Literal, Type, Variable
from tilewright.ir.scalars import BOOL, C64, F16, F32, F64, I8, I32, I64, U16, ScalarType
from tilewright.ir.sizes import size
from tilewright.kernel.ir import Prefetch
from tilewright.kernel.llvm import CpuTarget, llvm_text
from tilewright.kernel.traversal import walk
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.contractions.contraction_launches import contraction_launches
from tilewright.passes.packed.blocks import LEAST_PIECE as DEPTH
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.passes.tiled.tiling import IllegalTiling
from tilewright.report.cpu_text import packed_lines

HOST = host_machine()
SMALL_CACHES = replace(HOST, l1_bytes=1 << 10, l2_bytes=1 << 15, l3_bytes=1 << 18)  # sums are cut early


def form_of(contraction: Contraction, machine: Machine = HOST) -> PackedForm:
    return make_packed_form(normalise(contraction), machine)


def run(contraction: Contraction, form: PackedForm | None = None, threads: int = 1, **scalars: Any) -> None:
    buffers = random_buffers(contraction, 7)
    got = run_cpu(write_packed_kernel(form or form_of(contraction)), buffers, scalars, threads)
    assert_close(contraction, got, buffers, scalars)


# --- long sums --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [DEPTH - 1, DEPTH, DEPTH + 1, 3 * DEPTH + 17])
@pytest.mark.parametrize("scalar", [F32, F64, I32, C64, U16], ids=str)
def test_sums_in_several_pieces(scalar: ScalarType, length: int) -> None:
    contraction = einsum_contraction("aq,qb->ab", dict(a=5, b=19, q=length), scalar)
    form = form_of(contraction, SMALL_CACHES)
    assert form.depth <= DEPTH
    run(contraction, form)


@pytest.mark.parametrize("name", ["min_plus", "max_times", "unpaddable"])
def test_other_operators_in_several_pieces(name: str) -> None:
    contraction = einsum_contraction("apq,qpb->ba", dict(a=7, b=19, q=31, p=21), F32)
    contraction = with_semiring(contraction, F32, name)
    run(contraction, form_of(contraction, SMALL_CACHES))


@pytest.mark.parametrize("length", [20 * DEPTH, 32 * DEPTH])
def test_half_precision_is_rounded_once(length: int) -> None:
    """2048 and then pieces of 1/2 each: partial sums that waited in f16 would stay at 2048."""
    contraction = einsum_contraction("aq,bq->ab", dict(a=3, b=17, q=length), F16)
    values = np.full((17, length), 1 / 2 / DEPTH, np.float16)
    values[:, :DEPTH] = 2048 / DEPTH
    arrays = {"A": np.ones(3 * length, np.float16), "B": values.ravel(), "C": np.zeros(51, np.float16)}
    got = run_cpu(write_packed_kernel(form_of(contraction, SMALL_CACHES)), arrays, {})
    assert (got == np.float16(2048 + (length - DEPTH) / 2 / DEPTH)).all()


def test_an_operator_whose_order_counts() -> None:
    """The last product that is not 0, over several pieces."""
    b = Builder()
    zero = Literal(0, I32)
    last = b.function([Type(I32)] * 2, lambda x, y: b.apply("select", b.apply("eq", y, zero), x, y))
    contraction = replace(einsum_contraction("aq,qb->ab", dict(a=9, b=21, q=2 * DEPTH + 5), I32), combine=last)
    run(contraction, form_of(contraction, SMALL_CACHES))


# --- blocks, chunks and threads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["aq,qb->ab", "qa,bq->ba", "qa,qb->ab"])
@pytest.mark.parametrize(("a", "b"), [(600, 90), (90, 600)])
def test_chunks_on_several_threads(text: str, a: int, b: int) -> None:
    contraction = einsum_contraction(text, dict(a=a, b=b, q=70), F32)
    form = form_of(contraction, replace(HOST, cores=8))
    assert write_packed_kernel(form).blocks >= 4
    run(contraction, form, threads=3)


def test_batches_on_several_threads() -> None:
    contraction = einsum_contraction("cdaq,cdqb->acbd", dict(c=5, d=3, a=7, b=19, q=11), F64)
    form = form_of(contraction)
    assert write_packed_kernel(form).blocks == 15
    run(contraction, form, threads=2)


@pytest.mark.parametrize(("a", "b", "q"), [(9000, 5, 3), (5, 9000, 3), (60, 2100, 70)])
def test_several_blocks_of_panels(a: int, b: int, q: int) -> None:
    contraction = einsum_contraction("aq,qb->ab", dict(a=a, b=b, q=q), F32)
    form = form_of(contraction, replace(HOST, cores=1))
    assert form.vector_block < max(a, b) or form.scalar_block < max(a, b)
    run(contraction, form)


@pytest.mark.parametrize("machine", [CPU_AVX2, CPU_AVX512, CPU_NEON], ids=lambda m: m.name)
@pytest.mark.parametrize("scalar", [F32, F64, C64, I8], ids=str)
def test_register_tiles_fit_the_registers(machine: Machine, scalar: ScalarType) -> None:
    for sizes in (dict(a=70, b=75), dict(a=1, b=90), dict(a=7, b=33)):
        contraction = einsum_contraction("aq,qb->ab", sizes | {"q": 40}, scalar)
        form = form_of(contraction, machine)
        parts = 2 if scalar.is_complex else 1
        assert parts * (form.vectors * form.rows + form.vectors + 1) <= machine.vector_registers
        assert form.lanes == machine.vector_bytes // (scalar.bytes // parts)
        run(contraction, form)


def test_other_processors_print() -> None:
    for machine, target in ((CPU_AVX2, "x86_64-unknown-linux-gnu"), (CPU_NEON, "aarch64-unknown-linux-gnu")):
        launch = write_packed_kernel(form_of(einsum_contraction("aq,qb->ab", dict(a=64, b=64, q=64), F32), machine))
        assert f"<{machine.vector_bytes // 4} x float>" in llvm_text(launch.kernel, CpuTarget(target))


# --- bools, control flow, one lane ------------------------------------------------------------------------------------


def test_bools_are_bytes() -> None:
    contraction = with_semiring(
        einsum_contraction("aq,qb->ab", dict(a=9, b=221, q=17), BOOL, "eq", "eq"), BOOL, "or_and"
    )
    assert form_of(contraction, CPU_AVX512).lanes == 64
    run(contraction)


def relu_product() -> Lambda:
    """x * y if x > 0 else 0, with control flow."""
    b = Builder()

    def write(x: Variable, y: Variable) -> Variable:
        positive = b.apply("gt", x, Literal(0.0, F32))
        return b.cond(positive, lambda: b.apply("mul", x, y), lambda: Literal(0.0, F32))[0]

    return b.function([Type(F32)] * 2, write)


def test_control_flow_becomes_a_choice() -> None:
    contraction = replace(einsum_contraction("aq,qb->ab", dict(a=9, b=21, q=300), F32), map=relu_product())
    assert form_of(contraction, CPU_AVX512).lanes == 16
    run(contraction)


def test_loops_have_one_lane() -> None:
    """x doubled three times, in a loop, times y."""
    b = Builder()

    def write(x: Variable, y: Variable) -> Atom:
        (eight,) = b.for_loop(size(3), [x], lambda _, total: b.apply("add", total, total))
        return b.apply("mul", eight, y)

    function = b.function([Type(F32)] * 2, write)
    contraction = replace(einsum_contraction("aq,qb->ab", dict(a=9, b=21, q=30), F32), map=function)
    form = form_of(contraction)
    assert form.lanes == 1
    buffers = random_buffers(contraction, 7)
    got = run_cpu(write_packed_kernel(form), buffers, {})
    expected = 8.0 * buffers["A"][:270].reshape(9, 30).astype(float) @ buffers["B"][:630].reshape(30, 21)
    np.testing.assert_allclose(got[:189].reshape(9, 21), expected, rtol=0, atol=300 * np.finfo("f4").eps)


def test_a_processor_without_vectors() -> None:
    machine = replace(CPU_AVX2, vector_bytes=0, vector_registers=0)
    contraction = einsum_contraction("aq,qb->ab", dict(a=9, b=21, q=300), F32)
    form = form_of(contraction, machine)
    assert form.lanes == 1
    run(contraction, form)


# --- types and scalars ------------------------------------------------------------------------------------------------


def mixed(left: ScalarType, right: ScalarType, total: ScalarType, write: Any) -> Contraction:
    b = Builder()
    dense = einsum_contraction("aq,qb->ab", dict(a=13, b=37, q=29), total)
    return replace(
        dense,
        left=replace(dense.left, element=left),
        right=replace(dense.right, element=right),
        map=b.function([Type(left), Type(right)], lambda x, y: write(b, x, y)),
    )


def widened(total: ScalarType) -> Any:
    return lambda b, x, y: b.apply("mul", b.cast(total, x), b.cast(total, y))


@pytest.mark.parametrize(
    ("left", "right", "total"),
    [(I8, I8, I32), (F16, F16, F32), (F32, F64, F64), (I32, F32, F64), (U16, I8, I64), (BOOL, F32, F32)],
)
def test_mixed_types(left: ScalarType, right: ScalarType, total: ScalarType) -> None:
    contraction = mixed(left, right, total, widened(total))
    run(contraction)
    flipped = replace(mixed(right, left, total, widened(total)))
    run(flipped)


def test_masks() -> None:
    def write(b: Builder, x: Variable, y: Variable) -> Variable:
        return b.apply("select", x, y, Literal(0.0, F32))

    run(mixed(BOOL, F32, F32, write))


@pytest.mark.parametrize(("scalar", "value"), [(F32, 0.75), (F64, -1.5), (C64, 0.5 - 0.25j), (I32, 3), (F16, 0.5)])
def test_scalars_in_the_map(scalar: ScalarType, value: complex) -> None:
    b = Builder()
    alpha = Variable("alpha", Type(scalar))
    function = b.function([Type(scalar)] * 2, lambda x, y: b.apply("mul", alpha, b.apply("mul", x, y)))
    dense = einsum_contraction("aq,qb->ab", dict(a=13, b=37, q=29), scalar)
    run(replace(dense, map=function, scalars=(alpha,)), alpha=value)


# --- outputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [9, 300])
@pytest.mark.parametrize("strides", [(200, 1), (1, 100), (400, 2), (-200, 1), (200, -1), (300, 3)])
def test_outputs_of_any_strides(strides: tuple[int, int], length: int) -> None:
    dense = einsum_contraction("aq,qb->ab", dict(a=50, b=90, q=length), F32)
    a, b, q = dense.dimensions
    dimensions = (replace(a, stride_out=size(strides[0])), replace(b, stride_out=size(strides[1])), q)
    offset = max(0, -strides[0]) * 49 + max(0, -strides[1]) * 89
    run(replace(dense, dimensions=dimensions, out=replace(dense.out, offset=size(offset))))


def test_results_collected_before_they_are_written() -> None:
    contraction = einsum_contraction("aebd,ce->dcba", dict(a=9, b=8, c=7, d=40, e=10), F32)
    forms = [form_of(contraction), form_of(einsum_contraction("dca,cbd->ba", dict(a=31, b=29, c=29, d=31), F32))]
    assert any(form.buffered for form in forms)
    run(contraction)


@pytest.mark.parametrize("scalar", [F32, F64, I32], ids=str)
@pytest.mark.parametrize("sizes", [
    dict(a=24, b=7, c=5, d=40, e=12), dict(a=40, b=3, c=9, d=17, e=12), dict(a=5, b=11, c=4, d=6, e=12),
    dict(a=16, b=2, c=7, d=16, e=12), dict(a=33, b=5, c=2, d=3, e=9),
], ids=str)  # fmt: skip
def test_collected_results_are_turned(sizes: dict[str, int], scalar: ScalarType) -> None:
    """Rows of the output that are longer or shorter than vectors, whole or cut by a block."""
    contraction = einsum_contraction("aebd,ce->dcba", sizes, scalar)
    form = form_of(contraction, SMALL_CACHES)
    assert form.buffered
    assert form.vector_dimensions[-2].stride_out == 1
    run(contraction, form)
    run(contraction, replace(form, vector_block=form.vector_tile))
    run(contraction, replace(form, vector_chunk=form.vector_tile, scalar_chunk=form.rows), threads=2)


@pytest.mark.parametrize("vectors", [12.5, 25])
def test_register_tiles_waste_little(vectors: float) -> None:
    """Tiles of one or of five vectors where those of two, three, four and six would end far outside."""
    lanes = CPU_AVX512.lanes(4)
    contraction = einsum_contraction("aq,qb->ab", dict(a=190, b=int(vectors * lanes), q=999), F32)
    form = form_of(contraction, replace(CPU_AVX512, cores=1))
    padded = [-(-size // tile) * tile for size, tile in ((vectors * lanes, form.vector_tile), (190, form.rows))]
    assert padded[0] * padded[1] <= 1.09 * vectors * lanes * 190
    run(contraction, form_of(contraction))


@pytest.mark.parametrize(("text", "scalar"), [
    ("aq,qb->ab", F32), ("aq,bq->ab", F64), ("qa,qb->ab", C64), ("qac,qb->acb", I8), ("pqa,bpq->ab", F32),
], ids=str)  # fmt: skip
def test_far_operands_are_asked_for_ahead(text: str, scalar: ScalarType) -> None:
    """Blocks of the vector side and pieces of the sum, the last of them shorter than the others."""
    sizes = {name: size for name, size in dict(a=75, b=203, c=3, q=131, p=4).items() if name in text}
    contraction = einsum_contraction(text, sizes, scalar)
    form = form_of(contraction, SMALL_CACHES)
    form = replace(form, far=True, scalar_far=True, depth=96, vector_block=2 * form.vector_tile, buffered=False)
    form = replace(form, scalar_block=2 * form.rows, levels=0, nontemporal=False, asks_ahead=True)
    assert form.asks_vectors and form.asks_scalars
    kernel = write_packed_kernel(form).kernel
    asked = {one.buffer for one in walk(kernel.body) if isinstance(one, Prefetch) and one.level == 2}
    assert asked == {one for one in kernel.buffers if one.read_only}
    run(contraction, form)
    run(contraction, replace(form, vector_chunk=3 * form.vector_tile, scalar_chunk=2 * form.rows), threads=2)
    alone = replace(form, depth=1024, vector_block=4096, scalar_block=4096)
    assert not (alone.asks_vectors or alone.asks_scalars)


@pytest.mark.parametrize("strip", [1, 2, 3, 100])
@pytest.mark.parametrize("scalar", [F64, C64], ids=str)
def test_strips_of_the_scalar_side(strip: int, scalar: ScalarType) -> None:
    """Of panels of which seven and a half are a block, the last block shorter."""
    contraction = einsum_contraction("acq,bq->abc", dict(a=40, b=97, c=33, q=21), scalar)
    form = replace(form_of(contraction, SMALL_CACHES), buffered=False, scalar_inner=True, strip=strip)
    run(contraction, replace(form, scalar_block=7 * form.rows + form.rows // 2))


def test_outputs_past_the_caches() -> None:
    contraction = einsum_contraction("aq,qb->ab", dict(a=1030, b=2077, q=1), F32)
    form = form_of(contraction, replace(HOST, l3_bytes=1 << 20))
    assert form.nontemporal
    run(contraction, form, threads=2)


def bias_and_scale(scalar: ScalarType) -> tuple[Lambda, EpilogueOperand, Variable]:
    b = Builder()
    alpha = Variable("alpha", Type(scalar))
    function = b.function([Type(scalar)] * 2, lambda total, one: b.apply("add", b.apply("mul", alpha, total), one))
    return function, EpilogueOperand(Operand("D", scalar, size(1)), (size(1), size(60), size(0))), alpha


@pytest.mark.parametrize("length", [0, 29, 1000, 1500])
def test_epilogues(length: int) -> None:
    function, operand, alpha = bias_and_scale(F32)
    dense = einsum_contraction("aq,qb->ab", dict(a=50, b=37, q=length), F32)
    contraction = replace(dense, epilogue=function, epilogue_operands=(operand,), scalars=(alpha,))
    run(contraction, alpha=0.75)


@pytest.mark.parametrize(("a", "b"), [(170, 210), (1, 40), (40, 1)])
def test_epilogues_of_sums_that_wait(a: int, b: int) -> None:
    """Several blocks of both sides, several pieces of the sum, and a batch."""
    function, operand, alpha = bias_and_scale(F64)
    dense = einsum_contraction("caq,cqb->cba", dict(c=2, a=a, b=b, q=8), F64)
    operand = replace(operand, strides=(size(1), size(3), size(2), size(0)))
    contraction = replace(dense, epilogue=function, epilogue_operands=(operand,), scalars=(alpha,))
    form = form_of(contraction, replace(HOST, cores=8))
    form = replace(form, levels=1, buffered=False, nontemporal=False, depth=4, vector_block=2 * form.vector_tile,
                   scalar_block=2 * form.rows)  # fmt: skip
    run(contraction, form, threads=2, alpha=0.75)


def test_long_sums_of_two_dimensions_wait() -> None:
    contraction = with_semiring(einsum_contraction("apq,qbp->ab", dict(a=7, b=23, p=40, q=60), C64), C64, "plus_times")
    b = Builder()
    function = b.function([Type(C64)], lambda total: b.apply("conj", total))
    contraction = replace(contraction, epilogue=function)
    assert form_of(contraction).levels == 1
    run(contraction)


def test_an_epilogue_on_a_long_sum_needs_little_memory() -> None:
    """Panels hold a piece of the sum, however long it is."""
    function, _, alpha = bias_and_scale(F64)
    b = Builder()
    function = b.function([Type(F64)], lambda total: b.apply("mul", alpha, total))
    dense = einsum_contraction("q,q->", dict(q=100_000), F64)
    contraction = replace(dense, epilogue=function, scalars=(alpha,))
    launch = write_packed_kernel(form_of(contraction))
    assert launch.kernel.workspace_bytes < 16 << 20
    run(contraction, alpha=0.75)


def test_empty_outputs_launch_nothing() -> None:
    assert write_packed_kernel(form_of(einsum_contraction("aq,qb->ab", dict(a=0, b=9, q=4), F32))).blocks == 0


def test_tiles_are_refused_on_a_cpu() -> None:
    contraction = einsum_contraction("aq,qb->ab", dict(a=8, b=9, q=4), F32)
    with pytest.raises(IllegalTiling, match="on a CPU the register tile is not chosen by hand"):
        contraction_launches(contraction, HOST, {"a": (4, 4)})


def test_the_form_tells_what_it_is() -> None:
    form = form_of(einsum_contraction("aq,qb->ab", dict(a=800, b=900, q=4000), F32), CPU_AVX2)
    assert form.depth < 4000
    lines = packed_lines(form, write_packed_kernel(form).blocks, CPU_AVX2)
    assert "sides      vectors along b; broadcasts along a" in lines
    assert any(one.startswith(f"packing    pieces of {form.depth} of the sum;") for one in lines)
