"""Every family of tiled kernels on purpose: partial tiles, vector copies, empty sums and outputs, large indices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contraction_cases import run_gpu, semirings, sum_of_squares
from naive import assert_close, einsum_contraction, random_buffers

from tilewright.contraction.form import Contraction, Dimension, EpilogueOperand, Kind, Operand
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Type, Variable
from tilewright.ir.scalars import BOOL, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8, ScalarType
from tilewright.ir.sizes import size
from tilewright.kernel.checks import check_kernel
from tilewright.kernel.ir import Store, VectorType
from tilewright.kernel.traversal import walk
from tilewright.kernel.warp import Sample, touches
from tilewright.machine.model import Machine
from tilewright.machine.named import NAMED_MACHINES, OPENCL_CPU, OPENCL_GPU
from tilewright.passes.contractions.contraction_launches import contraction_launches, tiled_form
from tilewright.passes.tiled.choice import choose_tiling, tile_cost
from tilewright.passes.tiled.form import PartialTiles, TileForm, largest_index, make_form
from tilewright.passes.tiled.kernel import write_kernel
from tilewright.passes.tiled.tiling import IllegalTiling, Tiling, estimate_resources

TILES = {"a": (4, 2), "b": (8, 1), "q": 4}
PARTIAL = {
    PartialTiles.NONE: dict(a=16, b=16, q=8),
    PartialTiles.CONTRACTED: dict(a=16, b=16, q=9),
    PartialTiles.OUTER: dict(a=17, b=16, q=8),
    PartialTiles.BOTH: dict(a=16, b=19, q=11),
}


def run(runtime: Any, contraction: Contraction, form: TileForm, **scalars: Any) -> np.ndarray:
    buffers = random_buffers(contraction, 5)
    got = run_gpu(runtime, write_kernel(form), buffers, scalars)
    assert_close(contraction, got, buffers, scalars)
    return got


# --- partial tiles ----------------------------------------------------------------------------------------------------


@pytest.mark.opencl
@pytest.mark.parametrize("semiring", ["plus_times", "unpaddable", "min_plus"])
@pytest.mark.parametrize("partial", PartialTiles)
def test_partial_tiles(opencl_runtime: Any, partial: PartialTiles, semiring: str) -> None:
    function, combine, neutral = semirings(F32)[semiring]
    dense = einsum_contraction("aq,qb->ab", PARTIAL[partial], F32)
    contraction = replace(dense, map=function, combine=combine, neutral=neutral)
    form = tiled_form(contraction, OPENCL_CPU, TILES)
    assert form.partial is partial
    assert (form.padding is None) == (semiring == "unpaddable")
    run(opencl_runtime, contraction, form)


@pytest.mark.opencl
@pytest.mark.parametrize("sizes", [dict(q=9, p=6), dict(q=8, p=5), dict(q=7, p=7)])
def test_partial_tiles_of_two_sums_without_padding(opencl_runtime: Any, sizes: dict[str, int]) -> None:
    dense = einsum_contraction("apq,qpb->ab", dict(a=9, b=10, **sizes), F64)
    contraction = replace(dense, map=sum_of_squares(F64))
    run(opencl_runtime, contraction, tiled_form(contraction, OPENCL_CPU, {**TILES, "p": 2}))


def test_a_function_with_scalars_is_not_padded() -> None:
    """Whether map(0, 0) is neutral depends on the scalar's value, so nothing may be assumed."""
    b = Builder()
    alpha = Variable("alpha", Type(F32))
    function = b.function([Type(F32)] * 2, lambda x, y: b.apply("add", b.apply("mul", x, y), alpha))
    contraction = replace(einsum_contraction("aq,qb->ab", PARTIAL[PartialTiles.BOTH], F32), map=function)
    assert tiled_form(replace(contraction, scalars=(alpha,)), OPENCL_CPU, TILES).padding is None


@pytest.mark.opencl
def test_complex_products_are_not_left_to_contraction(opencl_runtime: Any) -> None:
    """Intel's compiler for CPUs has turned a*c - b*d of this very shape into wrong real parts."""
    contraction = einsum_contraction("aq,qb->ab", dict(a=1, b=1, q=1), C128)
    sizes = [("e", 2, 0, 37, 19832), ("d", 2, 2, 0, 9916), ("b", 67, 0, 74, 148), ("a", 37, 0, 1, 4), ("f", 2, 4, 0, 2),
             ("c", 2, 1, 0, 1), ("q", 1, 8, 4958, 0)]  # fmt: skip
    kinds = [Kind.N, Kind.M, Kind.N, Kind.N, Kind.M, Kind.M, Kind.K]
    dimensions = [Dimension(name, kind, *map(size, rest)) for (name, *rest), kind in zip(sizes, kinds, strict=True)]
    contraction = replace(contraction, dimensions=tuple(dimensions))
    run(opencl_runtime, contraction, make_form(contraction, Tiling((16, 8, 1, 2, 1, 1), (3, 4, 1, 1, 1, 1), (1,))))


# --- vector copies ----------------------------------------------------------------------------------------------------


@pytest.mark.opencl
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("scalar", "extent", "width"),
    [(F32, 32, 4), (F32, 30, 2), (F32, 29, 1), (F64, 32, 2), (F64, 31, 1), (F16, 32, 8), (F16, 28, 4), (I8, 32, 16),
     (U8, 24, 8), (I16, 32, 8), (I64, 32, 2), (C64, 32, 1), (BOOL, 32, 1)],
)  # fmt: skip
def test_vector_copies(opencl_runtime: Any, scalar: ScalarType, extent: int, width: int, transposed: bool) -> None:
    """The unit-stride dimension is the contracted one, or the parallel one."""
    text = "qa,bq->ab" if transposed else "aq,bq->ab"
    function, combine, neutral = next(iter(semirings(scalar).values()))
    dense = einsum_contraction(text, dict(a=extent, b=extent, q=extent), scalar, "eq", "eq")
    contraction = replace(dense, map=function, combine=combine, neutral=neutral)
    form = tiled_form(contraction, OPENCL_CPU, {"a": (16, 1), "b": (16, 1), "q": 16})
    assert (form.left.vector, form.right.vector) == (width, width)
    wide = [s for s in walk(write_kernel(form).kernel.body) if isinstance(s, Store) and is_wide(s)]
    assert bool(wide) == (transposed and width > 1)
    run(opencl_runtime, contraction, form)


def is_wide(store: Store) -> bool:
    return isinstance(store.value.type, VectorType)


@pytest.mark.parametrize("change", ["offset", "other stride", "unit stride", "size", "tile"])
def test_no_vector_copy_without_alignment(change: str) -> None:
    """A 16-byte access needs every row to start at a multiple of 16 bytes and to be whole vectors long."""
    contraction = einsum_contraction("aq,qb->ab", dict(a=32, b=32, q=32), F32)
    a, b, q = contraction.dimensions
    tiles: dict[str, tuple[int, int] | int] = {"a": (8, 2), "b": (8, 2), "q": 8}
    match change:
        case "offset":
            contraction = replace(contraction, left=replace(contraction.left, offset=size(1)))
        case "other stride":
            contraction = replace(contraction, dimensions=(replace(a, stride_left=size(33)), b, q))
        case "unit stride":
            contraction = replace(contraction, dimensions=(a, b, replace(q, stride_left=size(-1))))
            contraction = replace(contraction, left=replace(contraction.left, offset=size(32)))
        case "size":
            contraction = replace(contraction, dimensions=(a, b, replace(q, size=size(31))))
        case "tile":
            tiles["q"] = 7
    assert tiled_form(contraction, OPENCL_CPU, tiles).left.vector == 1


# --- empty sums and outputs -------------------------------------------------------------------------------------------


@pytest.mark.opencl
@pytest.mark.parametrize("semiring", ["plus_times", "unpaddable", "max_times"])
def test_an_empty_sum_is_neutral(opencl_runtime: Any, semiring: str) -> None:
    function, combine, neutral = semirings(F32)[semiring]
    dense = einsum_contraction("aq,qb->ab", dict(a=5, b=9, q=0), F32)
    contraction = replace(dense, map=function, combine=combine, neutral=neutral)
    got = run(opencl_runtime, contraction, tiled_form(contraction, OPENCL_CPU))
    assert (got[:45] == neutral.value).all()


@pytest.mark.opencl
def test_the_epilogue_of_an_empty_sum(opencl_runtime: Any) -> None:
    b = Builder()
    function = b.function([Type(F32)] * 2, lambda total, one: b.apply("add", total, one))
    bias = EpilogueOperand(Operand("D", F32, size(0)), (size(0), size(1), size(0)))
    dense = einsum_contraction("aq,qb->ab", dict(a=5, b=9, q=0), F32)
    contraction = replace(dense, epilogue=function, epilogue_operands=(bias,))
    run(opencl_runtime, contraction, tiled_form(contraction, OPENCL_CPU))


@pytest.mark.opencl
def test_an_empty_output_launches_nothing(opencl_runtime: Any) -> None:
    contraction = einsum_contraction("aq,qb->ab", dict(a=0, b=9, q=4), F32)
    form = tiled_form(contraction, OPENCL_CPU)
    assert write_kernel(form).blocks == 0
    run(opencl_runtime, contraction, form)


@pytest.mark.opencl
def test_no_contracted_dimension_at_all(opencl_runtime: Any) -> None:
    """An outer product handed over without a contracted dimension of size 1."""
    contraction = einsum_contraction("a,b->ab", dict(a=5, b=9), F32)
    assert not contraction.of_kind(Kind.K)
    run(opencl_runtime, contraction, tiled_form(contraction, OPENCL_CPU))


# --- large indices ----------------------------------------------------------------------------------------------------


def spread(stride: int, extent: int) -> Contraction:
    """A matrix product whose left rows are `stride` elements apart."""
    contraction = einsum_contraction("aq,qb->ab", dict(a=extent, b=8, q=8), F32)
    a, b, q = contraction.dimensions
    return replace(contraction, dimensions=(replace(a, stride_left=size(stride)), b, q))


@pytest.mark.parametrize(
    ("stride", "extent", "expected"),
    [(8, 1000, I32), (2**27, 15, I32), (2**27, 16, I64), (2**40, 8, I64), (-(2**30), 3, I64), (2**31, 1, I64)],
)
def test_index_type(stride: int, extent: int, expected: ScalarType) -> None:
    form = make_form(spread(stride, extent), Tiling((1, 1), (1, 1), (1,)))
    assert form.index_type == expected
    assert (largest_index(form.contraction, form.tiling) < 2**31) == (expected == I32)


@pytest.mark.parametrize("text", ["aq,qb->ab", "cqa,cbq->cba"])
def test_an_empty_dimension_with_a_large_stride_still_fits_its_parameter(text: str) -> None:
    """Strides are handed over in the index type, also those that nothing is multiplied with."""
    contraction = einsum_contraction(text, dict(a=0, b=4, c=2, q=4), F32)
    dimensions = [replace(d, stride_left=size(2**33)) if d.name == "a" else d for d in contraction.dimensions]
    contraction = replace(contraction, dimensions=tuple(dimensions))
    launch = write_kernel(tiled_form(contraction, OPENCL_CPU))
    for parameter, value in zip(launch.kernel.scalars, launch.scalars, strict=True):
        assert isinstance(value, int)
        assert abs(value) < 2 ** (parameter.type.bits - 1), parameter


@pytest.mark.parametrize("stride", [2**33 + 4, -(2**33)])
def test_indices_of_an_array_past_2_to_the_31(stride: int) -> None:
    """The addresses of the loads, evaluated without any such array: those of the last block are exact."""
    extent = 5
    contraction = spread(stride, extent)
    offset = -stride * (extent - 1) if stride < 0 else 0
    contraction = replace(contraction, left=replace(contraction.left, offset=size(offset)))
    launch = write_kernel(make_form(contraction, Tiling((2, 4), (1, 2), (4,))))
    assert launch.kernel.index_type == I64
    values = {p.name: int(v) for p, v in zip(launch.kernel.scalars, launch.scalars, strict=True)}  # type: ignore[arg-type]
    rows = set()
    for block in range(launch.blocks):
        for touch in touches(launch.kernel, values, Sample(block, 0, 32, 0)):
            if touch.buffer.name.startswith("left") and not touch.is_store and touch.buffer.size is None:
                assert touch.index is not None
                rows |= {int(one) for one in touch.index[touch.active]}
    assert rows <= {offset + a * stride + q for a in range(extent) for q in range(8)}
    assert {offset + a * stride for a in range(extent)} <= rows


@pytest.mark.opencl
def test_64_bit_indices_run(opencl_runtime: Any) -> None:
    contraction = einsum_contraction("caq,qb->acb", dict(a=9, b=7, c=3, q=11), F32)
    form = tiled_form(contraction, OPENCL_CPU)
    assert form.index_type == I32
    run(opencl_runtime, contraction, replace(form, index_type=I64))


# --- choices ----------------------------------------------------------------------------------------------------------

SHAPES = [
    ("aq,qb->ab", dict(a=1, b=1, q=1)),
    ("aq,qb->ab", dict(a=1000, b=1, q=1000)),
    ("q,q->", dict(q=100_000)),
    ("caq,cbq->cab", dict(c=500, a=3, b=5, q=7)),
    ("c,c->c", dict(c=1000)),
    ("abcdefg,g->abcdef", dict(zip("abcdefg", [3] * 7, strict=True))),
    ("aq,qb->ab", dict(a=4096, b=4096, q=4096)),
]


@pytest.mark.parametrize("machine", [m for m in NAMED_MACHINES.values() if m.is_gpu_like], ids=lambda m: m.name)
@pytest.mark.parametrize(("text", "sizes"), SHAPES)
def test_default_tilings_are_legal(text: str, sizes: dict[str, int], machine: Machine) -> None:
    for scalar in (F32, C64, I8):
        form = tiled_form(einsum_contraction(text, sizes, scalar), machine)
        assert form.tiling.threads <= machine.max_threads_per_block
        assert write_kernel(form).kernel.shared_bytes == form.shared_bytes <= machine.shared_bytes_per_block


@pytest.mark.parametrize("limit", [600, 1200, 2500, 5000, 9000, 17_000, 40_000])
def test_padding_never_breaks_the_limit_of_shared_memory(limit: int) -> None:
    machine = replace(OPENCL_GPU, shared_bytes_per_block=limit, shared_bytes_per_core=limit)
    for text in ("aq,bq->ab", "qa,qb->ab"):
        form = tiled_form(einsum_contraction(text, dict(a=512, b=512, q=512), F32), machine)
        assert form.shared_bytes <= limit


def test_no_tiling_fits() -> None:
    machine = replace(OPENCL_GPU, shared_bytes_per_block=8)
    with pytest.raises(IllegalTiling, match="no tiling of this contraction fits opencl-gpu"):
        tiled_form(einsum_contraction("aq,bq->ab", dict(a=512, b=512, q=512), F32), machine)


@pytest.mark.parametrize(
    ("tiles", "message"),
    [
        ({"z": 4}, "tiles names dimension 'z'; the contraction has a, b, q"),
        ({"q": (4, 4)}, "dimension q is contracted and has one tile size Q"),
        ({"a": 4}, "dimension a is parallel and has two tile sizes"),
        ({"a": (0, 1)}, "must all be at least 1"),
        ({"a": (16, 1), "b": (32, 1)}, "512 threads per block; opencl-gpu allows 256"),
        ({"a": (16, 8), "b": (16, 8), "q": 64}, "bytes of shared memory per block; opencl-gpu has 32768"),
        ({"a": (1, 64), "b": (1, 32)}, "2048 accumulators per thread; at most 1024"),
    ],
)
def test_illegal_tiles(tiles: Any, message: str) -> None:
    contraction = einsum_contraction("aq,qb->ab", dict(a=512, b=512, q=512), F32)
    with pytest.raises(IllegalTiling, match=message.replace("(", r"\(")):
        contraction_launches(contraction, OPENCL_GPU, tiles)


def test_the_model_prefers_reuse() -> None:
    """Of two tilings that use a machine alike, the one with larger tiles moves less and takes less time."""
    contraction = einsum_contraction("aq,qb->ab", dict(a=4096, b=4096, q=4096), F32)
    machine = NAMED_MACHINES["a100"]
    small = tile_cost(contraction, Tiling((16, 16), (2, 2), (16,)), machine)
    large = tile_cost(contraction, Tiling((16, 16), (8, 8), (16,)), machine)
    assert large.traffic * 3.9 < small.traffic * 1.1
    assert large.seconds < small.seconds


def test_resources_are_estimated_closely() -> None:
    contraction = einsum_contraction("aq,qb->ab", dict(a=512, b=512, q=512), F64)
    machine = NAMED_MACHINES["h100"]
    tiling = choose_tiling(contraction, machine)
    estimate, form = estimate_resources(contraction, tiling), make_form(contraction, tiling)
    assert estimate.threads == form.tiling.threads
    assert abs(estimate.shared_bytes - form.shared_bytes) <= 0.1 * form.shared_bytes


# --- neighbours at once -----------------------------------------------------------------------------------------------


@pytest.mark.opencl
@pytest.mark.parametrize("scalar", [F32, F64, F16, I16, I64, U8, C64], ids=str)
@pytest.mark.parametrize(
    ("sizes", "written"),
    [(dict(a=24, b=32, q=8), True), (dict(a=23, b=40, q=9), True), (dict(a=24, b=33, q=8), False)],
    ids=["full", "ragged", "odd"],
)
def test_neighbours_are_read_and_written_at_once(
    opencl_runtime: Any, scalar: ScalarType, sizes: dict[str, int], written: bool
) -> None:
    """Of rows whose ends and beginnings are aligned; results of odd rows are written one by one."""
    function, combine, neutral = next(iter(semirings(scalar).values()))
    dense = einsum_contraction("aq,qb->ab", sizes, scalar)
    contraction = replace(dense, map=function, combine=combine, neutral=neutral)
    form = make_form(contraction, Tiling((4, 4), (4, 4), (4,)))
    group = 2 if scalar.bytes == 8 and not scalar.is_complex else 4
    assert form.groups == (group, group if written and not scalar.is_complex else 1)
    launch = write_kernel(form)
    whole = {
        id(s) for s in walk(launch.kernel.body) if isinstance(s, Store) and is_wide(s) and s.buffer.name == "out_1"
    }
    assert bool(whole) == (written and not scalar.is_complex)
    run(opencl_runtime, contraction, form)


def test_epilogues_of_results_that_are_written_at_once(opencl_runtime: Any) -> None:
    b = Builder()
    element = Type(F32)
    added = b.function([element, element], lambda x, y: b.apply("add", x, y))
    contraction = einsum_contraction("aq,qb->ab", dict(a=11, b=20, q=5), F32)
    strides = tuple(one.stride_out for one in contraction.dimensions)
    further = EpilogueOperand(Operand("held", F32, size(3)), strides)
    contraction = replace(contraction, epilogue=added, epilogue_operands=(further,))
    form = make_form(contraction, Tiling((4, 2), (2, 4), (4,)))
    assert form.groups == (2, 4) and form.stored == 1
    run(opencl_runtime, contraction, form)


def test_a_matrix_product_reads_four_neighbours_of_each_operand() -> None:
    """For 64 multiply-adds of a thread four accesses to shared memory, free of conflicts."""
    form = tiled_form(einsum_contraction("aq,qb->ab", dict(a=4096, b=4096, q=4096), F32), NAMED_MACHINES["h100"])
    assert form.tiling.register == (8, 8) and form.groups == (4, 4) and form.stored == 1
    launch = write_kernel(form)
    values = {p.name: int(v) for p, v in zip(launch.kernel.scalars, launch.scalars, strict=True)}  # type: ignore[arg-type]
    reads = [one for one in check_kernel(launch.kernel, values).bank_conflicts if one.inner]
    assert len(reads) == 4 and all(one.degree == one.ideal for one in reads), reads
