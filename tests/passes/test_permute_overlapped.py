"""Copies past the caches that write one tile while they gather the next one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from permute_support import SMALL_CACHES, check_copy, drawn_squares, form_of, source_view, target_view

from tilewright.contraction.tensor_operation import TensorDimension, TensorOperation
from tilewright.ir.scalars import C128, F32, F64, U8, scalar_type_of
from tilewright.machine.named import named_machine
from tilewright.passes.permute.choose import permute_form
from tilewright.passes.tensor.kernel import describe_primitive

FEW_WAYS = replace(named_machine("cpu-avx512"), l2_ways=8)
PAST = [replace(one, l2_ways=8) for one in SMALL_CACHES]
"""Nothing stays in their caches, so that small copies go past them too."""


@pytest.mark.parametrize(
    ("element", "shape", "order", "run", "is_aligned", "by_lines"),
    [
        (F32, (4096, 4096), (1, 0), [4096], True, True),
        (F64, (2048, 4096), (1, 0), [2048], True, True),
        (F32, (1024, 1024), (1, 0), [1024], True, True),
        (C128, (3001, 1399), (1, 0), [3001], False, False),
        (F32, (3, 3000, 2000), (2, 0, 1), [9000], False, True),
        (F32, (63, 65, 67, 61), (3, 1, 2, 0), [63, 67 * 65], False, False),
        (F32, (24, 28, 24, 28, 32), (4, 2, 1, 3, 0), [24, 28], True, False),
    ],
)
def test_runs_of_many_rows(element, shape, order, run, is_aligned, by_lines):
    tile = form_of(element, shape, order, FEW_WAYS).overlapped
    assert tile is not None
    assert (tile.is_aligned, tile.by_lines, tile.rows) == (is_aligned, by_lines, 128)
    assert [one.size for one in tile.run] == run


@pytest.mark.parametrize(
    ("element", "shape", "order", "machine"),
    [
        (F32, (4096, 4096), (1, 0), named_machine("cpu-avx512")),  # how many ways its second cache has is not known
        (F32, (4096, 4096), (1, 0), replace(FEW_WAYS, l2_ways=16)),
        (F32, (1040, 1000), (1, 0), FEW_WAYS),  # stays in the caches,
        (F32, (512, 512), (1, 0), FEW_WAYS),  # and so does this, though its rows share few sets of the first one
        (F32, (256, 256, 256), (2, 1, 0), FEW_WAYS),  # all rows lie in one set of the second cache
        (F32, (4099, 4097), (1, 0), FEW_WAYS),  # rows begin anywhere in a line: strips read each line once
        (U8, (8128, 8192), (1, 0), FEW_WAYS),  # narrow words
        (F64, (64, 64, 64, 32), (1, 0, 3, 2), FEW_WAYS),  # a run of 64
        (C128, (3001, 1399), (1, 0), replace(named_machine("cpu-avx2"), l2_ways=8)),  # two elements in a vector
    ],
)
def test_others_are_not(element, shape, order, machine):
    assert form_of(element, shape, order, machine).overlapped is None


def test_a_row_is_shared_out_in_pieces():
    """The last piece is as long as the others but for what the columns do not have."""
    form = form_of(F32, (4095, 4112), (1, 0), FEW_WAYS)
    columns = next(one for one in form.loops if one.over == "columns")
    assert columns.size * columns.part - form.column.size < 16 * columns.size


@settings(max_examples=120, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(["f4", "f8", "c8", "c16"]), shift=st.integers(0, 20))
def test_every_place_in_a_line(data, dtype, shift):
    dtype = np.dtype(dtype)
    line = 64 // dtype.itemsize
    inner = [data.draw(st.sampled_from([2, 3, 5, 8, 9, 16, 24, 127, 128, 129, 131, 256, 259]))]  # the target's row
    while np.prod(inner) < 128:
        inner.append(data.draw(st.integers(2, 17)))
    column = data.draw(st.sampled_from([line, line + 1, 3 * line, 5 * line - 1, 17 * line]))
    source, memory, target = drawn_squares(data, dtype, inner, column, shift)
    check_copy(source, memory, target, data.draw(st.sampled_from(PAST)), data.draw(st.sampled_from([1, 2])))


@settings(max_examples=80, deadline=None)
@given(
    rows=st.sampled_from([128, 129, 135, 143, 144, 145, 200, 255, 256, 257, 271, 272, 384, 387]),
    columns=st.sampled_from([16, 17, 48, 49, 256, 257, 301]),
    shift=st.integers(0, 15),
    before=st.integers(0, 15),
    pad=st.sampled_from([0, 0, 1, 16]),
    machine=st.sampled_from(PAST),
    threads=st.sampled_from([1, 2]),
)
def test_the_last_rows_of_a_run(rows, columns, shift, before, pad, machine, threads):
    """Tiles of fewer rows, lines of both ends of a run, and what lies between two runs."""
    rng = np.random.default_rng(rows * columns)
    held = rng.integers(0, 2**32, rows * columns + 32, np.uint32)
    begin = before + (-held.ctypes.data % 64) // 4
    source = held[begin : begin + rows * columns].reshape(rows, columns).T
    memory, whole = target_view(np.dtype("u4"), (columns, rows + pad), (0, 1), [1, 1], shift)
    target = whole[:, :rows]
    form = permute_form(F32, source.shape, (1, columns), (rows + pad, 1), machine)
    assert form.overlapped is not None
    check_copy(source, memory, target, machine, threads)


@pytest.mark.parametrize(
    ("machine", "dtype"),
    [(PAST[0], "f4"), (PAST[0], "f8"), (PAST[0], "c16"), (PAST[1], "f4"), (PAST[1], "f8"), (PAST[2], "f4")],
    ids=["avx512-f4", "avx512-f8", "avx512-c16", "avx2-f4", "avx2-f8", "neon-f4"],
)
def test_pieces_of_several_blocks(machine, dtype):
    """Large enough to be shared out: each block begins, and ends, with a tile of its own."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(3)
    shape = (3, 331, 5, 300)
    source = source_view(rng, dtype, shape, (2, 0, 3, 1), [1] * 4, ())
    memory, target = target_view(dtype, shape, range(4), [1] * 4, 3)
    strides = [tuple(one // dtype.itemsize for one in array.strides) for array in (source, target)]
    form = permute_form(scalar_type_of(dtype), shape, *strides, machine)
    assert form.overlapped is not None
    assert form.blocks > 1
    check_copy(source, memory, target, machine, 2)


def test_a_tensor_operation_says_how_it_is_written():
    dims = (TensorDimension("C", "prim", 4096, 4096, 0, 1), TensorDimension("C", "prim", 4096, 1, 0, 4096))
    told = describe_primitive(TensorOperation("f32", "transpose", dims), FEW_WAYS)
    assert told.splitlines()[1] == "out: past the caches, a tile while the next one is gathered"
