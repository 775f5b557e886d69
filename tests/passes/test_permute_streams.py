"""Copies past the caches of few streams: rows split and merged in registers, rows that lie apart in the source."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from permute_support import MACHINES, SMALL_CACHES, check_copy, source_view, target_view

from tilewright.ir.scalars import F32, F64, U16
from tilewright.kernel import ir as kernel
from tilewright.kernel.traversal import walk
from tilewright.machine.named import named_machine
from tilewright.passes.permute.choose import permute_form
from tilewright.passes.permute.interleaving import STREAMED_BYTES
from tilewright.passes.permute.kernel import permute_launch

PAST = SMALL_CACHES[0]
"""Nothing stays in its caches, so that small copies go past them too."""


def kernel_of(shape, order, machine=PAST):
    """The kernel of a copy of a row-major array of f32 to another order of its dimensions."""
    source = np.zeros(shape, np.uint8).transpose(order)
    strides = np.zeros(source.shape, np.uint8).strides
    return permute_launch(F32, source.shape, source.strides, strides, (0, 0), machine).kernel


@pytest.mark.parametrize("shape", [(4000, 3), (3, 4000)], ids=["split", "merged"])
def test_few_rows_go_past_the_caches_straight_from_registers(shape):
    code = kernel_of(shape, (1, 0))
    assert not code.arrays
    assert sum(isinstance(one, kernel.Prefetch) for one in walk(code.body)) >= 3
    assert kernel_of(shape, (1, 0), SMALL_CACHES[1]).arrays  # a vector is half a line


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(), dtype=st.sampled_from(["u1", "i2", "f4", "f8"]), rows=st.integers(2, 8),
    size=st.one_of(st.integers(16, 300), st.integers(4000, 9000)), is_split=st.booleans(), shift=st.integers(0, 70),
    threads=st.sampled_from([1, 2]),
)  # fmt: skip
def test_few_rows_at_every_place_in_a_line(data, dtype, rows, size, is_split, shift, threads):
    planes = data.draw(st.integers(1, 3))
    shape = (planes, rows, size) if is_split else (planes, size, rows)
    source = source_view(np.random.default_rng(size), np.dtype(dtype), shape, (0, 2, 1), (1, 1, 1), ())
    memory, target = target_view(np.dtype(dtype), shape, (0, 1, 2), (1, 1, 1), shift)
    check_copy(source, memory, target, PAST, threads)


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize(("dtype", "more"), [("f4", 0), ("f4", 5), ("u1", 3)])
def test_pieces_of_rows(dtype, more, is_split):
    """Which begin and end anywhere in a line that they share."""
    size = 2 * STREAMED_BYTES // (3 * np.dtype(dtype).itemsize) + more
    shape = (3, size) if is_split else (size, 3)
    source = source_view(np.random.default_rng(more), np.dtype(dtype), shape, (1, 0), (1, 1), ())
    memory, target = target_view(np.dtype(dtype), shape, (0, 1), (1, 1), 7)
    check_copy(source, memory, target, PAST, 2)


def test_the_next_row_is_asked_for_where_it_lies_apart():
    def asks(shape, order):
        return any(isinstance(one, kernel.Prefetch) for one in walk(kernel_of(shape, order).body))

    assert asks((8, 10, 1024), (1, 0, 2))
    assert not asks((8, 10, 100), (1, 0, 2))  # on its way before this one is written
    assert not asks((8, 10, 1024), (0, 1, 2))  # one row


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(["u1", "f4", "c16"]), nbytes=st.integers(1500, 9000), outer=st.integers(1, 9),
    inner=st.integers(1, 9), shift=st.integers(0, 64), machine=st.sampled_from(MACHINES), is_back=st.booleans(),
)  # fmt: skip
def test_rows_that_lie_apart(dtype, nbytes, outer, inner, shift, machine, is_back):
    shape = (outer, inner, nbytes // np.dtype(dtype).itemsize)
    steps = (-1 if is_back else 1, 1, 1)
    source = source_view(np.random.default_rng(nbytes), np.dtype(dtype), shape, (1, 0, 2), steps, ())
    memory, target = target_view(np.dtype(dtype), shape, (0, 1, 2), (1, 1, 1), shift)
    check_copy(source, memory, target, machine, 2)


@pytest.mark.parametrize(("shape", "is_lined"), [((512, 1024), True), ((768, 1024), False)])
def test_rows_of_one_set_in_the_third_cache_are_not_lined_up(shape, is_lined):
    machine = replace(named_machine("cpu-avx512"), l2_ways=16)
    assert kernel_of(shape, (1, 0), machine).arrays  # tiles are gathered
    assert any(one.name.startswith("lines") for one in kernel_of(shape, (1, 0), machine).arrays) is is_lined
    assert any(one.name.startswith("lines") for one in kernel_of(shape, (1, 0), named_machine("cpu-avx512")).arrays)
    source = source_view(np.random.default_rng(1), np.dtype("f4"), shape, (0, 1), (1, 1), ()).T
    memory, target = target_view(np.dtype("f4"), source.shape, (0, 1), (1, 1), 4)
    check_copy(source, memory, target, machine, 2)


@pytest.mark.parametrize(
    ("dtype", "shape", "is_merged"),
    [("f4", (16, 4001), True), ("f8", (8, 5003), True), ("f4", (15, 4001), False), ("u2", (32, 4001), False)],
)
@pytest.mark.parametrize("shift", [0, 3])
def test_as_many_rows_as_a_line_holds_are_merged_as_squares(dtype, shape, is_merged, shift):
    element = {"f4": F32, "f8": F64, "u2": U16}[dtype]
    form = permute_form(element, shape[::-1], (1, shape[1]), (shape[0], 1), PAST)
    assert form.merges is is_merged
    inside = permute_form(element, shape[::-1], (1, shape[1]), (shape[0], 1), named_machine("cpu-avx512"))
    assert not inside.merges
    source = source_view(np.random.default_rng(shift), np.dtype(dtype), shape, (0, 1), (1, 1), ()).T
    memory, target = target_view(np.dtype(dtype), source.shape, (0, 1), (1, 1), shift)
    check_copy(source, memory, target, PAST, 2)
