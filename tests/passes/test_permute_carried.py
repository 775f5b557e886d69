"""Copies past the caches of columns that begin anywhere in a line, each of whose lines is a window over two squares."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from permute_support import SMALL_CACHES, check_copy, source_view, target_view
from test_permute_ahead import marked

from tilewright.contraction.tensor_operation import TensorDimension, TensorOperation
from tilewright.ir.scalars import C64, C128, F32, F64, U8, U16
from tilewright.kernel.ir import Buffer
from tilewright.machine.named import named_machine
from tilewright.machine.paces import MESH
from tilewright.passes.permute.choose import permute_form
from tilewright.passes.permute.kernel import permute_launch
from tilewright.passes.tensor.kernel import describe_primitive
from tilewright.runtime import cpu_pool
from tilewright.runtime.backends import argument_block
from tilewright.runtime.cpu_device import compile_for_cpu
from tilewright.runtime.memory import aligned_empty

PAST = replace(SMALL_CACHES[0], l2_ways=16)
"""Nothing stays in its caches, so that small copies go past them too."""
SERVER = replace(PAST, pace=MESH)
"""Its stores past the caches share buffers with what is read."""


def form_of(element, shape, order, machine=PAST):
    """The form of a copy of a row-major array to another order of its dimensions."""
    source = np.zeros(shape, np.uint8).transpose(order)
    return permute_form(element, source.shape, source.strides, np.zeros(source.shape, np.uint8).strides, machine)


@pytest.mark.parametrize(
    ("element", "shape", "order", "group", "run", "columns", "near"),
    [
        (F32, (253, 257, 263), (0, 2, 1), 16, 257, 263, 1),
        (F32, (100, 130, 3), (1, 0, 2), 16, 100, 130, 1),  # 16 triples are three lines
        (F64, (300, 500, 3), (1, 0, 2), 8, 300, 32, 1),
        (F32, (24, 28, 24, 28, 32), (4, 2, 1, 3, 0), 16, 24 * 28 * 28 * 24, 32, 24),
        (F32, (15, 17, 16, 14, 18, 17), (2, 5, 1, 3, 4, 0), 16, 15 * 18 * 14 * 17, 17, 15),
        (C64, (100, 201, 300), (0, 2, 1), 8, 201, 104, 1),
        (C128, (90, 50, 31), (2, 1, 0), 4, 4500, 31, 90),
        (F32, (5001, 100), (1, 0), 16, 5001, 100, 1),  # rows of the source follow each other
        (U16, (250, 260, 254), (2, 1, 0), 32, 65000, 254, 250),
    ],
)
def test_runs_are_walked_and_a_line_of_each_column_is_carried(element, shape, order, group, run, columns, near):
    tile = form_of(element, shape, order).carried
    assert tile is not None
    found = (tile.group, np.prod([one.size for one in tile.run]), tile.columns, tile.near)
    assert found == (group, run, columns, near)
    assert tile.rows % group == tile.part % tile.rows == 0


@pytest.mark.parametrize(
    ("element", "shape", "order", "machine"),
    [
        (F32, (253, 257, 263), (0, 2, 1), SMALL_CACHES[0]),  # how many ways its second cache has is not known
        (F32, (253, 257, 263), (0, 2, 1), replace(named_machine("cpu-avx2"), l2_ways=16)),  # a vector is half a line
        (F32, (53, 57, 63), (0, 2, 1), replace(named_machine("cpu-avx512"), l2_ways=16)),  # stays in the caches
        (F32, (256, 260, 256), (2, 1, 0), PAST),  # columns begin alike in a line
        (F32, (4095, 4097), (1, 0), PAST),  # long rows are written line by line
        (F32, (253, 25, 263), (0, 2, 1), PAST),  # runs of two lines
        (U8, (300, 200, 3), (1, 0, 2), PAST),  # three bytes
    ],
)
def test_others_carry_nothing(element, shape, order, machine):
    assert form_of(element, shape, order, machine).carried is None


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(), dtype=st.sampled_from(["f4", "f8", "c8", "c16", "f2", "u1"]), shift=st.integers(0, 40),
    threads=st.sampled_from([1, 2]),
)  # fmt: skip
def test_every_place_in_a_line(data, dtype, shift, threads):
    dtype = np.dtype(dtype)
    atom = data.draw(st.sampled_from([1, 1, 2, 3, 5, 6, 7])) if dtype.kind != "c" else 1
    inner = [data.draw(st.sampled_from([2, 3, 15, 16, 17, 40, 300]))]  # the target's row
    inner += [data.draw(st.integers(1, 20)) for _ in range(data.draw(st.integers(0, 3)))]
    column = data.draw(st.sampled_from([2, 3, 9, 16, 17, 33, 40, 257, 300]))
    outer = [data.draw(st.integers(1, 4)) for _ in range(data.draw(st.integers(0, 2)))]
    shape = (*outer, column, *inner[::-1], atom)
    while np.prod(shape) > 60_000:
        shape = tuple(max(1, n // 2) if n == max(shape) else n for n in shape)
    middle = data.draw(st.permutations([*range(len(outer)), *range(len(outer) + 1, len(shape) - 1)]))
    steps = [data.draw(st.sampled_from([1, 1, 1, -1])) for _ in shape]
    steps[len(outer)] = steps[-1] = 1
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    source = source_view(rng, dtype, shape, (*middle, len(outer), len(shape) - 1), steps, ())
    memory, target = target_view(dtype, shape, range(len(shape)), [1] * len(shape), shift)
    check_copy(source, memory, target, PAST, threads)


@settings(max_examples=100, deadline=None)
@given(
    dtype=st.sampled_from(["u4", "u8", "c16"]), rows=st.integers(130, 1200), columns=st.integers(2, 70),
    shift=st.integers(0, 15), threads=st.sampled_from([1, 2]), machine=st.sampled_from([PAST, SERVER]),
)  # fmt: skip
def test_long_runs_in_pieces(dtype, rows, columns, shift, threads, machine):
    dtype = np.dtype(dtype)
    source = source_view(np.random.default_rng(rows), dtype, (rows, columns), (0, 1), (1, 1), ()).T
    memory, target = target_view(dtype, (columns, rows), (0, 1), [1, 1], shift)
    check_copy(source, memory, target, machine, threads)


@pytest.mark.parametrize(("element", "shape", "group", "columns"), [
    (F32, (4095, 4097), 32, 464), (F64, (4097, 2047), 16, 256), (C128, (3001, 1399), 8, 128),
])  # fmt: skip
def test_a_server_writes_the_lines_of_a_matrix_in_pairs(element, shape, group, columns):
    tile = form_of(element, shape, (1, 0), SERVER).carried
    assert tile is not None
    assert (tile.group, tile.rows, tile.asked) == (group, group, 0)
    assert tile.columns == columns
    assert form_of(element, shape, (1, 0)).carried is None


@pytest.mark.parametrize(
    ("element", "shape", "order"), [(U16, (5000, 5003), (1, 0)), (F32, (253, 257, 263), (0, 2, 1))]
)
def test_a_server_writes_other_lines_one_by_one(element, shape, order):
    tile, elsewhere = (form_of(element, shape, order, machine).carried for machine in (SERVER, PAST))
    assert tile == elsewhere


@pytest.mark.parametrize(("dtype", "shape", "order"), [
    ("f4", (17, 18, 14, 15), (3, 0, 1, 2)), ("f4", (3000, 7), (1, 0)), ("f8", (70, 3, 65), (2, 0, 1)),
    ("f4", (120, 130, 3), (1, 0, 2)), ("f4", (90, 33, 6), (1, 0, 2)), ("f4", (300, 33, 5), (1, 0, 2)),
])  # fmt: skip
@pytest.mark.parametrize("shift", [0, 4, 9])
def test_some_that_carry(dtype, shape, order, shift):
    element = {"f4": F32, "f8": F64}[dtype]
    assert form_of(element, shape, order).carried is not None
    source = source_view(np.random.default_rng(3), np.dtype(dtype), shape, range(len(shape)), (1,) * len(shape), ())
    source = source.transpose(order)
    memory, target = target_view(np.dtype(dtype), source.shape, range(len(shape)), [1] * len(shape), shift)
    check_copy(source, memory, target, PAST, 2)


def test_a_tensor_operation_says_how_it_is_written():
    dims = (TensorDimension("C", "seq", 253, 257 * 263, 0, 257 * 263), TensorDimension("C", "prim", 257, 263, 0, 1),
            TensorDimension("C", "prim", 263, 1, 0, 257))  # fmt: skip
    told = describe_primitive(TensorOperation("f32", "transpose", dims), PAST)
    assert told.splitlines()[1] == "out: past the caches, line by line"


@pytest.mark.parametrize(
    ("element", "shape", "order"),
    [
        (F32, (40, 260, 77), (0, 2, 1)), (F32, (24, 28, 12, 10, 32), (4, 2, 1, 3, 0)), (F32, (90, 300, 3), (1, 0, 2)),
        (F64, (7, 70, 33, 9), (0, 3, 2, 1)), (F32, (6, 300, 1100), (0, 2, 1)),
    ],
)  # fmt: skip
def test_every_line_of_the_next_tile_is_asked_for(element, shape, order):
    assert form_of(element, shape, order).carried is not None
    count = int(np.prod(shape))
    source, target = (aligned_empty((count,), np.dtype(f"u{element.bytes}")) for _ in range(2))
    seen = np.zeros(count + 2, np.uint8)
    view = np.zeros(shape, np.uint8).transpose(order)
    launch = permute_launch(element, view.shape, view.strides, np.zeros(view.shape, np.uint8).strides, (0, 0), PAST)
    asked = Buffer("asked", U8)
    body = marked(launch.kernel.body, asked, count)
    code = replace(launch.kernel, buffers=(*launch.kernel.buffers, asked), body=body)
    block = argument_block(code, launch.scalars)
    block[0], block[1], block[2] = source.ctypes.data, target.ctypes.data, seen.ctypes.data
    cpu_pool.launch(compile_for_cpu(code), block, launch.blocks, 1)
    lines = np.resize(seen[1:-1], -(-count * element.bytes // 64) * 64 // element.bytes)
    assert lines.reshape(-1, 64 // element.bytes).any(axis=1).all()
