"""Explanations: their numbers against the forms and machines that they are about, and the reasons that they give."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tilewright.cli.stages import follow
from tilewright.contraction.form import Contraction, Refusal
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import BOOL, F16, F32, F64, I32
from tilewright.ir.sizes import size
from tilewright.kernel.checks import AccessReport
from tilewright.machine.named import A100, CPU_AVX2, CPU_AVX512, H100, NAMED_MACHINES, OPENCL_GPU
from tilewright.passes.contractions.contraction_launches import cpu_form, tiled_form
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.packed.choice import make_packed_form
from tilewright.report import contraction_text, declined, text
from tilewright.report.cpu_text import direct_registers, packed_registers
from tilewright.report.examples import matmul
from tilewright.report.explain import explain_contraction
from tilewright.report.roofline import roofline as roofline_of
from tilewright.report.tiled_text import summarise


def contraction(expression: str, dtype: str = "f32", semiring: str = "plus_times", **sizes: int) -> Contraction:
    (found,) = follow(expression, sizes, dtype, semiring).found
    assert isinstance(found, Contraction)
    return found


@pytest.mark.parametrize("name", sorted(NAMED_MACHINES))
def test_every_machine_gives_an_explanation_within_its_limits(name: str) -> None:
    machine = NAMED_MACHINES[name]
    found = explain_contraction(contraction("icaq,qbjk->abcijk", a=31, b=8, c=5, i=7, j=6, k=32, q=33), machine)
    assert [found.tiled, found.packed, found.direct].count(None) == 2
    assert found.form in (("tiled",) if machine.is_gpu_like else ("packed", "direct"))
    assert bool(found.reason) != machine.is_gpu_like
    if found.tiled is not None:
        assert 1 <= found.tiled.threads <= machine.max_threads_per_block
        assert 0 < found.tiled.shared_bytes <= machine.shared_bytes_per_block
        assert found.tiled.blocks_per_core >= 1
        assert 0.0 <= found.tiled.occupancy <= 1.0
    if found.packed is not None:
        assert packed_registers(found.packed) <= machine.vector_registers
        assert found.packed.lanes * 4 == machine.vector_bytes
    if found.direct is not None:
        assert direct_registers(found.direct) <= machine.vector_registers
        assert max(found.direct.lanes) * 4 <= machine.vector_bytes
    rendered = str(found)
    assert machine.name in rendered
    assert found.reason in rendered
    assert all(reason in rendered for reason in found.declined)


def test_the_numbers_are_those_of_the_form() -> None:
    one = contraction("aq,qb->ab", a=1000, b=77, q=50)
    form, details = tiled_form(one, A100), explain_contraction(one, A100).tiled
    assert details is not None
    assert details.threads == math.prod(form.tiling.thread)
    assert details.shared_bytes == form.shared_bytes
    assert details.partial == form.partial.value
    assert [t for _, t, r in details.tiles if r is not None] == list(form.tiling.thread)
    assert [q for _, q, r in details.tiles if r is None] == list(form.tiling.sequential)
    blocks = math.prod(-(-size_ // block) for size_, block in zip((1000, 77), form.tiling.block, strict=True))
    assert details.blocks == blocks
    direct, chosen = explain_contraction(one, CPU_AVX2).direct, cpu_form(one, CPU_AVX2).form
    assert direct is not None and isinstance(chosen, DirectForm)
    assert (direct.lanes, direct.rows) == (chosen.lanes, chosen.rows)
    products = contraction("aq,qb->ab", "c64", a=1000, b=77, q=50)
    packed, form_ = explain_contraction(products, CPU_AVX2).packed, make_packed_form(normalise(products), CPU_AVX2)
    assert packed is not None
    assert (packed.vectors, packed.rows) == (form_.vectors, form_.rows)


def test_the_choice_of_a_cpu_is_told() -> None:
    small = explain_contraction(matmul(64, 64, 64), CPU_AVX512)
    assert small.form == "direct"
    assert "chosen     fed directly: the model says" in str(small)
    assert "vectors along j; broadcasts along i" in str(small)
    products = explain_contraction(contraction("aq,qb->ab", "c64", a=100, b=77, q=50), CPU_AVX2)
    assert products.form == "packed"
    assert "not fed directly: elements of type c64 have two components" in str(products)
    turned = explain_contraction(contraction("qa,bq->ab", a=64, b=64, q=512), CPU_AVX512)
    assert "turned in registers" in str(turned)
    collected = explain_contraction(contraction("aebd,ce->dcba", a=72, b=72, c=24, d=72, e=72), CPU_AVX512)
    assert "collected in scratch memory" in str(collected)
    copied = explain_contraction(contraction("aq,bq->ab", a=64, b=64, q=64), CPU_AVX512)
    assert "a copy of what a tile reads of the right operand" in str(copied)


@pytest.mark.parametrize(
    ("sizes", "partial"),
    [((128, 128, 128), "none"), ((128, 128, 127), "contracted"), ((127, 128, 128), "outer"), ((127, 127, 127), "both")],
)
def test_partial_tiles(sizes: tuple[int, int, int], partial: str) -> None:
    details = explain_contraction(matmul(*sizes), H100).tiled
    assert details is not None
    assert details.partial == partial
    assert f"partial    {partial}" in str(explain_contraction(matmul(*sizes), H100))


def test_coalescing_is_worse_where_neighbours_are_apart() -> None:
    straight = contraction("aq,bq->ab", a=256, b=256, q=256)
    found = explain_contraction(straight, A100).tiled
    assert found is not None
    stores = [one for one in found.global_accesses if one.array == "out"]
    assert [one.worst for one in stores] == [one.ideal for one in stores]
    spread = dataclasses.replace(
        straight,
        dimensions=tuple(dataclasses.replace(one, stride_out=one.stride_out * size(64)) for one in straight.dimensions),
    )
    details = explain_contraction(spread, A100).tiled
    assert details is not None
    (stores_apart,) = (one for one in details.global_accesses if one.array == "out")
    assert stores_apart.worst is not None
    assert stores_apart.worst > stores_apart.ideal


def test_summaries_keep_the_worst_access_of_each_array() -> None:
    def access(buffer: str, degree: int | None) -> AccessReport:
        return AccessReport(buffer, "somewhere", degree, 4, False, False, False)

    found = summarise([access("x_1", 4), access("x_1", 9), access("y", 4), access("z", None)], lambda one: "loads")
    assert [str(one) for one in found] == ["x loads: 9 (ideal 4)", "y loads: 4 (ideal 4)", "z loads: unknown"]


# --- the lower bound --------------------------------------------------------------------------------------------------


def test_roofline_of_a_matmul() -> None:
    bound = roofline_of(matmul(100, 200, 300), A100)
    assert bound.flops == 2 * 100 * 200 * 300
    assert bound.bytes == 4 * (100 * 300 + 300 * 200 + 100 * 200)
    assert bound.compute_seconds == bound.flops / A100.peak_flops_f32
    assert bound.memory_seconds == bound.bytes / A100.dram_bandwidth
    assert (bound.limit, bound.seconds) == ("compute", bound.compute_seconds)
    thin = roofline_of(matmul(100, 200, 3), A100)
    assert (thin.limit, thin.seconds) == ("memory", thin.memory_seconds)


def test_roofline_of_other_types_and_machines() -> None:
    double = roofline_of(matmul(64, 64, 64, F64), A100)
    assert double.compute_seconds == double.flops / A100.peak_flops_f64
    assert roofline_of(contraction("aq,qb->ab", "c64", a=8, b=8, q=8), A100).flops == 8 * 8**3
    unknown = roofline_of(matmul(64, 64, 64), CPU_AVX2)
    assert (unknown.seconds, unknown.limit) == (None, "unknown")
    assert "no bound on the time" in str(explain_contraction(matmul(64, 64, 64), CPU_AVX2))


def test_overlapping_windows_are_counted_once() -> None:
    whole = matmul(100, 8, 3)
    rows = dataclasses.replace(whole.dimensions[0], stride_left=size(1))
    windows = dataclasses.replace(whole, dimensions=(rows, *whole.dimensions[1:]))
    assert roofline_of(whole, A100).bytes - roofline_of(windows, A100).bytes == 4 * (300 - 102)


# --- reasons ----------------------------------------------------------------------------------------------------------


def reasons(one: Contraction, machine: object = A100) -> str:
    return "\n".join(explain_contraction(one, machine).declined)  # type: ignore[arg-type]


def test_dimensions_that_are_not_one_in_memory() -> None:
    text_ = reasons(contraction("abq,qc->bac", a=8, b=4, q=16, c=32))
    assert "b and a stay two dimensions" in text_
    assert "stay two" not in reasons(contraction("abq,qc->abc", a=8, b=4, q=16, c=32))


def test_copies_that_move_one_element() -> None:
    assert "copies of left move one element at a time: the size of k is 33" in reasons(matmul(64, 64, 33))
    assert "copies of" not in reasons(matmul(64, 64, 64))
    assert "its elements are c64" in reasons(contraction("aq,qb->ab", "c64", a=64, b=64, q=64))
    apart = matmul(64, 64, 64)
    dimensions = tuple(
        dataclasses.replace(one, stride_left=one.stride_left * size(2), stride_right=one.stride_right)
        for one in apart.dimensions
    )
    assert "no dimension has stride 1 (the smallest is 2, of k)" in reasons(
        dataclasses.replace(apart, dimensions=dimensions)
    )
    shifted = dataclasses.replace(apart, left=dataclasses.replace(apart.left, offset=size(1)))
    assert "its offset is 1" in reasons(shifted)


def test_every_single_element_copy_has_a_reason() -> None:
    for dtype, element in (("f16", F16), ("f32", F32), ("f64", F64), ("i32", I32), ("bool", BOOL)):
        semiring = "or_and" if element == BOOL else "plus_times"
        for q in (32, 33, 34, 36):
            one = contraction("aq,bq->ab", dtype, semiring, a=30, b=36, q=q)
            form, text_ = tiled_form(one, A100), reasons(one)
            for staged in form.staged:
                said = f"copies of {staged.name} move one element at a time: "
                assert (said in text_) == (staged.vector == 1)
                assert f"{said}: no multiple" not in text_


def test_idle_cores_and_long_indices() -> None:
    assert "cores idle: there are 8 blocks, and the sum is not split: a sum of 100" in reasons(matmul(16, 16, 100))
    assert "cores idle" not in reasons(matmul(4096, 4096, 64))
    assert "indices take 64 bits" in reasons(matmul(65536, 65536, 8), H100)
    assert "64 bits" not in reasons(matmul(1024, 1024, 8), H100)


def test_sums_without_a_neutral_pad_are_guarded() -> None:
    assert "padding with neutral" not in reasons(contraction("aq,qb->ab", "f32", "min_plus", a=64, b=64, q=33))
    one = contraction("aq,qb->ab", "i32", "min_plus", a=64, b=64, q=33)
    form = tiled_form(one, A100)
    assert (form.padding is None) == ("no padding with neutral elements" in reasons(one))


def test_reasons_on_a_cpu() -> None:
    assert "no fused multiply-add" in reasons(contraction("aq,qb->ab", "f32", "min_plus", a=64, b=64, q=64), CPU_AVX512)
    assert "no fused multiply-add" not in reasons(matmul(64, 64, 64), CPU_AVX512)
    assert "no vectors" not in reasons(contraction("aq,qb->ab", "bool", "or_and", a=64, b=64, q=64), CPU_AVX512)
    assert "1 of 8 cores used" in reasons(matmul(16, 16, 16), CPU_AVX512)
    assert "on padding" in reasons(matmul(1, 3, 64), CPU_AVX512)
    stored = matmul(64, 64, 4096)
    stored = dataclasses.replace(stored, out=dataclasses.replace(stored.out, element=F16))
    waiting = "\n".join(declined.declined_packed(make_packed_form(normalise(stored), CPU_AVX512), CPU_AVX512, 8))
    assert "is not cut into cache-sized pieces: the result is stored in another type" in waiting


def test_machines_without_doubles() -> None:
    assert "cannot run: opencl-gpu does not compute in double" in reasons(matmul(64, 64, 64, F64), OPENCL_GPU)
    assert "cannot run" not in reasons(matmul(64, 64, 64, F32), OPENCL_GPU)
    assert "cannot run" not in reasons(matmul(64, 64, 64, F64), A100)


def test_what_has_no_kernels_is_said_everywhere() -> None:
    assert declined.NO_GPU_KERNELS in reasons(matmul(64, 64, 64), OPENCL_GPU)


# --- text -------------------------------------------------------------------------------------------------------------


def test_amounts() -> None:
    assert [text.amount(one, "flop") for one in (0, 999, 1500, 2e9, 3e16)] == [
        "0 flop", "999 flop", "1.5 kflop", "2 Gflop", "30 Pflop",
    ]  # fmt: skip
    assert text.byte_amount(3 << 30) == "3 GiB"
    assert [text.duration(one) for one in (2.0, 0.0031, 4e-6, 5e-9)] == ["2 s", "3.1 ms", "4 us", "5 ns"]
    assert text.table([["a", "bb"], ["ccc", "d"]], "> ") == ["> a    bb", "> ccc  d"]


def test_forms_as_text() -> None:
    one = contraction("aq,qb->ab", a=100, b=64, q=30)
    tiled = contraction_text.form_text(tiled_form(one, A100))
    assert "partial tiles" in tiled
    assert "left:" in tiled
    assert "staged as 0.0f32" in tiled
    direct = contraction_text.form_text(cpu_form(one, CPU_AVX2).form)
    assert "vector side (operand1): tiles of" in direct
    packed = contraction_text.form_text(make_packed_form(normalise(one), CPU_AVX2))
    assert "vector side (operand1)" in packed
    assert "scalar side (operand0)" in packed


def test_an_outer_product_has_a_form_on_a_cpu() -> None:
    (one,) = follow("bi,bj->bij", {"b": 3, "i": 100, "j": 200}, products=True).found
    assert isinstance(one, Contraction)
    found = explain_contraction(one, CPU_AVX512)
    assert found.form == "direct"
    assert found.roofline.flops == 3 * 100 * 200  # a multiplication each, and nothing to add
    assert "written in its order" in found.reason
    assert not any("multiply-add" in reason for reason in found.declined)
    (refused,) = follow("bi,bj->bij", {"b": 3, "i": 100, "j": 200}).found
    assert isinstance(refused, Refusal)


def test_what_is_run_as_a_fold_is_not_explained_as_another_form() -> None:
    one = contraction("ij,ij->i", i=3000, j=200)
    assert explain_contraction(one, CPU_AVX512).form == "streamed"
    gaps = [
        dataclasses.replace(d, stride_left=2 * d.stride_left, stride_right=2 * d.stride_right) for d in one.dimensions
    ]
    found = explain_contraction(dataclasses.replace(one, dimensions=tuple(gaps)), CPU_AVX512)
    assert found.form == "general"
    assert found.direct is found.packed is found.streamed is None
    assert "read once by a fold" in str(found)
    assert "declined" not in str(found)
