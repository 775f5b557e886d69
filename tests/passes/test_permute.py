"""Copies between layouts against NumPy, bit for bit: every element size, kind of stride, remainder and machine."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples
from permute_support import MACHINES, SMALL_CACHES, check_copy, source_view, target_view

from tilewright.ir.scalars import C128, F32, F64, U8, scalar_type_of
from tilewright.kernel.ir import Buffer, Constant, Kernel, Space, Store, integer, load
from tilewright.machine.named import named_machine
from tilewright.machine.paces import MESH, REDWOOD
from tilewright.passes.permute import choose as permute_form_module
from tilewright.passes.permute import kernel as permute_kernel
from tilewright.passes.permute import tiles as permute_tiles
from tilewright.passes.permute.choose import fused, permute_form
from tilewright.passes.permute.form import INSIDE
from tilewright.passes.permute.tiles import PermuteDimension
from tilewright.runtime.cpu_device import compile_for_cpu

DTYPES = ["?", "i1", "u2", "f2", "f4", "f8", "c8", "c16"]
AVX512 = named_machine("cpu-avx512")


@st.composite
def copies(draw):
    """(seed, dtype, shape, orders of source and target, steps of both, broadcast dimensions, shift of the target)."""
    rank = draw(st.integers(0, 5))
    sizes = [st.integers(1, 9), st.integers(1, 40), st.sampled_from([16, 32, 64, 100, 129, 300])]
    shape, room = [], 20_000
    for _ in range(rank):
        shape.append(min(draw(draw(st.sampled_from(sizes))), max(1, room)))
        room //= shape[-1]
    steps = st.sampled_from([1, 1, 1, 1, -1, 2, -3])
    return (
        draw(st.integers(0, 10**6)),
        np.dtype(draw(st.sampled_from(DTYPES))),
        tuple(shape),
        tuple(draw(st.permutations(range(rank)))),
        tuple(draw(st.permutations(range(rank)))),
        [draw(steps) for _ in shape],
        [draw(steps) for _ in shape],
        {d for d in range(rank) if draw(st.integers(0, 9)) == 0},
        draw(st.integers(0, 20)),
    )


@settings(max_examples=examples(130), deadline=None)
@given(copy=copies(), machine=st.sampled_from(MACHINES), threads=st.sampled_from([1, 2]))
def test_any_layout(copy, machine, threads):
    seed, dtype, shape, order, target_order, steps, target_steps, broadcast, shift = copy
    source = source_view(np.random.default_rng(seed), dtype, shape, order, steps, broadcast)
    memory, target = target_view(dtype, shape, target_order, target_steps, shift)
    check_copy(source, memory, target, machine, threads)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: f"{one.name}-{one.l2_bytes}")
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 5000), columns=st.integers(1, 90), shift=st.integers(0, 70))
def test_matrices(dtype, machine, seed, rows, columns, shift):
    rng = np.random.default_rng(seed)
    source = source_view(rng, np.dtype(dtype), (rows, columns), (1, 0), (1, 1), ())
    memory, target = target_view(np.dtype(dtype), (rows, columns), (0, 1), (1, 1), shift)
    check_copy(source, memory, target, machine, 2)


@pytest.mark.parametrize("machine", SMALL_CACHES, ids=lambda one: one.name)
@pytest.mark.parametrize("step", [1, -1, 0])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 8), columns=st.integers(1, 3000), shift=st.integers(0, 70))
def test_rows_past_the_caches(machine, step, seed, rows, columns, shift):
    rng = np.random.default_rng(seed)
    broadcast = () if step else (1,)
    source = source_view(rng, np.dtype("f4"), (rows, columns), (0, 1), (2, step or 1), broadcast)
    memory, target = target_view(np.dtype("f4"), (rows, columns), (0, 1), (1, 1), shift)
    check_copy(source, memory, target, machine, 2)


def test_a_large_copy_goes_past_the_caches_in_parallel():
    shape = (64, 80, 1600, 5)
    source = np.arange(np.prod(shape), dtype=np.float32).reshape(shape).transpose(3, 1, 0, 2)
    memory, target = target_view(np.dtype("f4"), source.shape, (0, 1, 2, 3), (1,) * 4, 3)
    strides = [tuple(stride // 4 for stride in one.strides) for one in (source, target)]
    form = permute_form(F32, source.shape, *strides, AVX512)
    assert form.nontemporal
    assert form.blocks > 8
    check_copy(source, memory, target, AVX512, 2)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(33, 70), planes=st.integers(33, 70), pages=st.integers(2, 24), columns=st.sampled_from([4, 8, 12])
)
def test_loops_inside_a_page_belong_to_a_block(rows, planes, pages, columns):
    """Reversed arrays whose outer dimensions are shared out: the loop over a part of one stays with its part."""
    rng = np.random.default_rng(rows)
    source = source_view(rng, np.dtype("f4"), (rows, planes, pages, columns), (0, 1, 2, 3), (1,) * 4, set())
    memory, target = target_view(np.dtype("f4"), source.shape, (3, 2, 1, 0), (1,) * 4, 4)
    strides = [tuple(stride // 4 for stride in one.strides) for one in (source, target)]
    form = permute_form(F32, source.shape, *strides, AVX512)
    assert all(one.over != INSIDE for one in form.loops[: form.parallel])
    check_copy(source, memory, target, AVX512, 2)


def test_fusing_keeps_what_is_one_in_both_arrays():
    dimensions = [PermuteDimension(2, 12, 12), PermuteDimension(3, 4, 4), PermuteDimension(4, 1, 24)]
    assert fused(dimensions) == [PermuteDimension(4, 1, 24), PermuteDimension(6, 4, 4)]


def test_runs_of_a_few_words_are_moved_as_one():
    form = permute_form(F32, (50, 60, 2), (120, 2, 1), (2, 100, 1), AVX512)
    assert (form.atom, form.lanes, form.columns) == (2, 8, 8)
    form = permute_form(C128, (50, 60), (60, 1), (1, 50), AVX512)
    assert (form.atom, form.word.name, form.lanes) == (2, "u64", 4)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(), dtype=st.sampled_from(["u2", "f4", "f8", "c8"]), machine=st.sampled_from(MACHINES),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)), shift=st.integers(0, 20),
)  # fmt: skip
def test_runs_of_more_than_half_a_vector(data, dtype, machine, sizes, shift):
    itemsize = np.dtype(dtype).itemsize
    shape = (*sizes, data.draw(st.integers(16 // itemsize + 1, 32 // itemsize)))
    source = source_view(np.random.default_rng(3), np.dtype(dtype), shape, (1, 0, 2), (1, 1, 1), ())
    memory, target = target_view(np.dtype(dtype), shape, (0, 1, 2), (1, 1, 1), shift)
    check_copy(source, memory, target, machine, 2)


@pytest.mark.parametrize(
    ("dtype", "shape", "atom"),
    [(F32, (50, 40, 5), 5), (F64, (50, 40, 4), 4), (F64, (5000, 400, 3), 3), (F64, (5000, 400, 4), 1)],
)
def test_long_runs_are_moved_as_one_where_lines_need_not_begin_with_them(dtype, shape, atom):
    a, b, c = shape
    machine = replace(AVX512, l2_bytes=1 << 20, l3_bytes=1 << 25)
    assert permute_form(dtype, shape, (c, a * c, 1), (b * c, c, 1), machine).atom == atom


def test_squares_fit_the_registers():
    assert (permute_form(F64, (50, 60), (60, 1), (1, 50), AVX512).lanes) == 8
    form = permute_form(U8, (200, 300), (300, 1), (1, 200), AVX512)
    assert (form.lanes, form.columns, form.width) == (64, 16, 64)


def test_small_copies_are_one_block():
    assert permute_form(F32, (128, 128), (128, 1), (1, 128), AVX512).blocks == 1


def check_tile(source, target, machine):
    """Copies in tiles that are not smaller than what is moved at once, and are as large as the stage at the most."""
    strides = [tuple(stride // one.itemsize for stride in one.strides) for one in (source, target)]
    form = permute_form(scalar_type_of(target.dtype), target.shape, *strides, machine)
    if form.tile is not None:
        tile = form.tile
        assert tile.row.extent >= form.lanes
        assert tile.column.extent >= form.width
        ends = [one.stage * (one.extent - 1) for one in (tile.row, tile.column, *tile.others)]
        beyond = max(tile.spare * tile.edge.stage, tile.spare_rows * form.atom) if tile.edge else 0
        assert sum(ends) + form.atom + tile.spill + beyond <= tile.stage_words


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(["u1", "i2", "f4", "f8", "c16"]),
    machine=st.sampled_from(SMALL_CACHES),
    stage=st.sampled_from([1 << 10, 1 << 13, 1 << 15]),
    shift=st.integers(0, 20),
)
def test_tiles_of_short_rows(data, dtype, machine, stage, shift):
    rank = data.draw(st.integers(2, 6))
    shape, room = [], 150_000
    for _ in range(rank):
        shape.append(data.draw(st.sampled_from([n for n in (2, 3, 5, 8, 15, 16, 17, 24, 33, 64) if n <= max(2, room)])))
        room //= shape[-1]
    order = tuple(data.draw(st.permutations(range(rank))))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    source = source_view(rng, np.dtype(dtype), tuple(shape), order, [1] * rank, ())
    memory, target = target_view(np.dtype(dtype), tuple(shape), tuple(range(rank)), [1] * rank, shift)
    permute_kernel._known_launch.cache_clear()
    with mock.patch.object(permute_tiles, "LEAST_STAGE", stage):
        check_tile(source, target, machine)
        check_copy(source, memory, target, machine, data.draw(st.sampled_from([1, 2])))
    permute_kernel._known_launch.cache_clear()


def test_a_tile_completes_the_cache_lines_of_its_runs():
    shape, order = (16,) * 6, (5, 4, 3, 2, 1, 0)
    source = np.zeros(shape, np.float32).transpose(order)
    target = np.zeros(source.shape, np.float32)
    strides = [tuple(stride // 4 for stride in one.strides) for one in (source, target)]
    tile = permute_form(F32, source.shape, *strides, AVX512).tile
    assert tile is not None
    assert (tile.run, tile.edge.extent, tile.spare_rows, tile.shares_set) == (256, 1, 16, True)


def test_long_rows_are_written_in_strips_except_where_narrow_ones_share_a_set():
    assert permute_form(F32, (4096, 8192), (1, 4096), (8192, 1), AVX512).tile is None
    assert permute_form(U8, (8192, 8192), (1, 8192), (8192, 1), AVX512).tile is not None


def test_kernels_of_one_text_have_workspaces_of_their_own_sizes():
    stage = Buffer("stage", F32, Space.WORKSPACE, 64)
    out = Buffer("out", F32)
    body = (Store(stage, integer(0), Constant(1.0, F32)), Store(out, integer(0), load(stage, integer(0))))
    kernels = [Kernel("same_text", (out,), (), (replace(stage, size=size),), body) for size in (64, 4096)]
    found = [compile_for_cpu(one).workspace_bytes for one in kernels]
    assert found == [one.workspace_bytes for one in kernels]


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(["u1", "i2", "f4"]),
    atom=st.sampled_from([3, 5, 6, 7]),
    machine=st.sampled_from(SMALL_CACHES),
    stage=st.sampled_from([1 << 10, 1 << 13]),
    shift=st.integers(0, 20),
)
def test_tiles_of_odd_atoms(data, dtype, atom, machine, stage, shift):
    rank = data.draw(st.integers(2, 4))
    sizes = st.sampled_from([2, 3, 7, 16, 17, 40])
    shape = (*(data.draw(sizes) for _ in range(rank)), atom)
    order = (*data.draw(st.permutations(range(rank))), rank)
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    source = source_view(rng, np.dtype(dtype), shape, order, [1] * (rank + 1), ())
    memory, target = target_view(np.dtype(dtype), shape, tuple(range(rank + 1)), [1] * (rank + 1), shift)
    permute_kernel._known_launch.cache_clear()
    with mock.patch.object(permute_tiles, "LEAST_STAGE", stage):
        check_tile(source, target, machine)
        check_copy(source, memory, target, machine, data.draw(st.sampled_from([1, 2])))
    permute_kernel._known_launch.cache_clear()


def test_odd_atoms_are_written_as_vectors_where_the_rest_is_overwritten():
    tile = permute_form(F32, (1300, 4000, 3), (3, 3900, 1), (12000, 3, 1), AVX512).tile
    assert tile is not None and tile.spill == 1


def test_a_tile_is_not_narrower_than_what_is_moved_at_once():
    with mock.patch.object(permute_tiles, "LEAST_STAGE", 1 << 10):
        form = permute_form(U8, (17, 16, 16, 6), (1536, 6, 96, 1), (1536, 96, 6, 1), SMALL_CACHES[0])
    assert form.tile is not None and form.tile.column.extent >= form.width


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
    rows=st.integers(128, 900),
    columns=st.integers(1, 400),
    planes=st.integers(1, 3),
    places=st.tuples(st.integers(0, 70), st.integers(0, 70)),
)
def test_matrices_by_cache_lines_and_in_strips(data, dtype, rows, columns, planes, places):
    pitches = rows + data.draw(st.integers(0, 40)), columns + data.draw(st.integers(0, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    whole = source_view(rng, np.dtype(dtype), (planes * rows * pitches[1] + places[0],), (0,), (1,), ())
    source = whole[places[0] :].reshape(planes, rows, pitches[1])[:, :, :columns]
    memory, target = target_view(np.dtype(dtype), (planes, columns, pitches[0]), (0, 1, 2), (1, 1, 1), places[1])
    target = target[:, :, :rows].transpose(0, 2, 1)
    permute_kernel._known_launch.cache_clear()
    chunk = data.draw(st.sampled_from([64, 1024]))
    with mock.patch.multiple(permute_form_module, LONG_ROW=1, PAGES_AT_ONCE=chunk):
        machine = replace(SMALL_CACHES[0], pace=replace(SMALL_CACHES[0].pace, in_strips=data.draw(st.booleans())))
        check_copy(source, memory, target, machine, data.draw(st.sampled_from([1, 2])))
    permute_kernel._known_launch.cache_clear()


def test_lines_are_read_once_where_rows_begin_anywhere_in_a_line():
    assert permute_form(F32, (4095, 4097), (1, 4095), (4097, 1), AVX512).by_lines
    assert permute_form(F32, (4095, 4112), (1, 4095), (4112, 1), AVX512).by_lines
    assert not permute_form(F32, (4112, 4097), (1, 4112), (4097, 1), AVX512).by_lines
    assert not permute_form(F32, (4095, 4096), (1, 4095), (4096, 1), AVX512).by_lines
    assert not permute_form(F32, (4095, 4097), (1, 4095), (4097, 1), named_machine("cpu-avx2")).by_lines


@pytest.mark.parametrize(("element", "rows", "columns"), [(F32, 4095, 4097), (F32, 9000, 2000), (C128, 3001, 1399)])
def test_long_rows_are_transposed_in_strips_where_single_lines_are_written_as_fast(element, rows, columns):
    layouts = (rows, columns), (columns, 1), (1, rows)
    carried, strips = (
        permute_form(element, *layouts, replace(AVX512, l2_ways=16, l2_bytes=2 << 20, pace=pace))
        for pace in (MESH, REDWOOD)
    )
    assert carried.carried is not None
    assert strips.carried is None and strips.nontemporal and not strips.by_lines
    few = permute_form(F32, (500_000, 37), (37, 1), (1, 500_000), replace(AVX512, l2_ways=16, pace=REDWOOD))
    assert few.carried is not None, "short rows of the source follow each other"
