"""Copies past the caches that are written straight from registers, in whole cache lines of the target."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from permute_support import SMALL_CACHES, check_copy, drawn_squares, form_of, target_view

from tilewright.contraction.tensor_operation import TensorDimension, TensorOperation
from tilewright.ir.scalars import F16, F32, F64, U8, scalar_type_of
from tilewright.machine.named import named_machine
from tilewright.machine.paces import MESH
from tilewright.passes.permute.choose import permute_form
from tilewright.passes.tensor.kernel import describe_primitive

MANY_WAYS = replace(named_machine("cpu-avx512"), l2_ways=16)
PAST = replace(SMALL_CACHES[0], l2_ways=16)
"""Nothing stays in its caches, so that small copies go past them too."""


@pytest.mark.parametrize(
    ("element", "shape", "order", "rows", "run", "by_lines"),
    [
        (F32, (4096, 4096), (1, 0), 128, 4096, True),
        (F64, (4096, 2048), (1, 0), 16, 4096, True),
        (F32, (256, 260, 256), (2, 1, 0), 32, 256 * 260, True),
        (F32, (48, 400, 560), (2, 1, 0), 48, 48 * 400, True),
        (F32, (16,) * 6, (5, 4, 3, 2, 1, 0), 32, 16**3, False),
        (F32, (64,) * 4, (3, 2, 1, 0), 32, 64**2, False),
        (U8, (5056, 9088), (1, 0), 256, 5056, True),
        (F16, (320, 192, 448), (2, 1, 0), 64, 320 * 192, False),
    ],
)
def test_tiles_have_two_or_three_lines_of_rows_and_runs_of_a_page_or_up_to_eight_lines_of_long_rows(
    element, shape, order, rows, run, by_lines
):
    tile = form_of(element, shape, order, MANY_WAYS).straight
    assert tile is not None
    assert (tile.rows, np.prod([one.size for one in tile.run]), tile.by_lines) == (rows, run, by_lines)
    assert np.prod([one.size for one in tile.columns]) * element.bytes <= 20 * 64


@pytest.mark.parametrize(("element", "rows", "lines"), [(F32, 32, 16), (U8, 128, 16)], ids=str)
def test_a_server_reads_long_rows_as_few_streams(element, rows, lines):
    """4096 x 4096 of four bytes are 1.08 times as fast so, 8192 x 8192 of one byte 1.1 times."""
    tile = form_of(element, (8192, 8192), (1, 0), replace(MANY_WAYS, pace=MESH)).straight
    assert (tile.rows, tile.lines(64 // element.bytes)) == (rows, lines)


@pytest.mark.parametrize(
    ("dtype", "shape", "steps", "pace", "in_pairs"),
    [
        ("f4", (4096, 4096), (1, 4096), MESH, True),
        ("f4", (4096, 4096), (1, 4096), MANY_WAYS.pace, False),
        ("c16", (2048, 2048), (1, 2048), MESH, True),
    ],
)
def test_on_a_server_lines_of_a_column_are_written_in_pairs(dtype, shape, steps, pace, in_pairs):
    """Past the caches, each with its source in memory (GB/s before and now): 8192 x 8192 of one byte 12, 17,
    64 x 64 x 64 x 64 reversed of four 15, 20."""
    element = scalar_type_of(np.dtype(dtype))
    targets = np.zeros(shape, np.uint8).strides
    form = permute_form(element, shape, steps, targets, replace(MANY_WAYS, pace=pace))
    assert form.straight is not None
    assert form.straight.in_pairs == in_pairs


@pytest.mark.parametrize(
    ("element", "shape", "order", "machine"),
    [
        (F32, (4096, 4096), (1, 0), named_machine("cpu-avx512")),  # how many ways its second cache has is not known
        (F32, (4096, 4096), (1, 0), replace(named_machine("cpu-avx2"), l2_ways=16)),  # a vector is half a line
        (F32, (1024, 1024), (1, 0), MANY_WAYS),  # stays in the caches
        (F32, (4100, 4096), (1, 0), MANY_WAYS),  # columns begin anywhere in a line
        (F32, (4096, 4097), (1, 0), MANY_WAYS),  # long rows of the source do: they are read in strips
        (U8, (256, 512, 512), (2, 1, 0), MANY_WAYS),  # the rows of a square of bytes lie in one set
    ],
)
def test_others_are_not(element, shape, order, machine):
    assert form_of(element, shape, order, machine).straight is None


@settings(max_examples=120, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(["f4", "f8", "i4", "f2", "u1"]), shift=st.integers(0, 20))
def test_every_place_in_a_line(data, dtype, shift):
    dtype = np.dtype(dtype)
    lanes = 64 // dtype.itemsize
    inner = [data.draw(st.sampled_from([1, 2, 3, 5, 16])) * lanes]  # the target's row
    inner += [data.draw(st.integers(1, 6)) for _ in range(data.draw(st.integers(0, 2)))]
    column = data.draw(st.sampled_from([lanes, lanes + 3, 5 * lanes, 33 * lanes, 37 * lanes + 5]))
    source, memory, target = drawn_squares(data, dtype, inner, column, shift)
    machine = replace(PAST, pace=data.draw(st.sampled_from([PAST.pace, MESH])))
    check_copy(source, memory, target, machine, data.draw(st.sampled_from([1, 2])))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), shift=st.integers(0, 15), before=st.integers(0, 15))
def test_columns_by_lines_of_the_source(data, shift, before):
    """Rows of the source that all begin at the same place of a line, wherever that is."""
    rows, columns = 16 * data.draw(st.integers(16, 20)), 16 * data.draw(st.sampled_from([16, 17, 32, 47, 64]))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    held = rng.integers(0, 2**32, rows * columns + 32, np.uint32)
    begin = before + (-held.ctypes.data % 64) // 4
    source = held[begin : begin + rows * columns].reshape(rows, columns).T
    memory, target = target_view(np.dtype("u4"), (columns, rows), (0, 1), [1, 1], shift)
    strides = (1, columns), (rows, 1)
    form = permute_form(F32, source.shape, *strides, PAST)
    assert form.straight is not None
    assert form.straight.by_lines
    check_copy(source, memory, target, PAST, data.draw(st.sampled_from([1, 2])))


def test_a_tensor_operation_says_how_it_is_written():
    dims = (TensorDimension("C", "prim", 4096, 4096, 0, 1), TensorDimension("C", "prim", 4096, 1, 0, 4096))
    told = describe_primitive(TensorOperation("f32", "transpose", dims), MANY_WAYS)
    assert told.splitlines()[1] == "out: past the caches, line by line"
