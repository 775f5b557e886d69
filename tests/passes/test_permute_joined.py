"""Copies past the caches of rows that follow each other in the target, joined to whole cache lines of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from permute_support import SMALL_CACHES, check_copy, form_of, source_view, target_view

from tilewright.contraction.tensor_operation import TensorDimension, TensorOperation
from tilewright.ir.scalars import F16, F32, F64, U8
from tilewright.machine.named import named_machine
from tilewright.passes.permute.choose import permute_form
from tilewright.passes.tensor.kernel import describe_primitive

FEW_WAYS = replace(named_machine("cpu-avx512"), l2_ways=8)
PAST = replace(SMALL_CACHES[0], l2_ways=8)
"""Nothing stays in its caches, so that small copies go past them too."""


@pytest.mark.parametrize(
    ("element", "shape", "together", "piece", "vectors"),
    [
        (F32, (64, 64, 64, 64), 4, 0, 4),
        (F64, (64, 64, 64, 61), 2, 0, 8),
        (F16, (32, 512, 16, 128), 4, 0, 4),
        (F32, (32, 64, 32, 257), 1, 144, 8),  # two pieces, of which the second one has 113 words
        (F32, (16, 32, 16, 4097), 1, 256, 1),
    ],
)
def test_a_kilobyte_of_rows_or_a_piece_of_one(element, shape, together, piece, vectors):
    """Heads of attention: (batch, head, place, depth) of (batch, place, head, depth)."""
    joined = form_of(element, shape, (0, 2, 1, 3), FEW_WAYS).joined
    assert joined is not None
    assert (joined.together, joined.piece, joined.vectors) == (together, piece, vectors)
    assert (joined.piece or joined.together * shape[-1]) * element.bytes <= 1 << 10


@pytest.mark.parametrize(
    ("element", "shape", "order", "machine"),
    [
        (F32, (64, 64, 64, 64), (0, 2, 1, 3), named_machine("cpu-avx512")),  # how many ways: not known
        (F32, (64, 64, 64, 64), (0, 2, 1, 3), replace(FEW_WAYS, l2_ways=16)),
        (F32, (64, 64, 64, 64), (0, 2, 1, 3), replace(named_machine("cpu-avx2"), l2_ways=8)),  # half a line in a vector
        (F32, (8, 64, 64, 64), (0, 2, 1, 3), FEW_WAYS),  # stays in the caches
        (U8, (64, 64, 1024, 20), (0, 2, 1, 3), FEW_WAYS),  # rows of 20 bytes
        (F32, (2, 2, 1 << 22), (1, 0, 2), FEW_WAYS),  # very long ones
    ],
)
def test_others_are_not(element, shape, order, machine):
    assert form_of(element, shape, order, machine).joined is None


def test_rows_with_gaps_between_them_are_not():
    shape, source = (64, 64, 64, 64), (64**3, 64, 64**2, 1)
    assert permute_form(F32, shape, source, (64**2 * 65, 64 * 65, 65, 1), FEW_WAYS).joined is None


@settings(max_examples=120, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(["f4", "f8", "f2", "u1", "c8"]), shift=st.integers(0, 70))
def test_every_place_in_a_line(data, dtype, shift):
    dtype = np.dtype(dtype)
    least = 32 // dtype.itemsize
    row = data.draw(st.sampled_from([least, least + 1, 2 * least - 1, 64, 65, 127, 256, 257, 300, 1030]))
    row = max(row, least + 1)
    run = [data.draw(st.integers(2, 9))]
    while np.prod(run) * row * dtype.itemsize < 1 << 13:
        run.append(data.draw(st.integers(2, 17)))
    outer = [data.draw(st.integers(1, 3)) for _ in range(data.draw(st.integers(0, 1)))]
    shape = (*outer, *run[::-1], row)
    order = (*data.draw(st.permutations(range(len(shape) - 1))), len(shape) - 1)
    steps = [data.draw(st.sampled_from([1, 2, -1])) for _ in shape[:-1]] + [1]
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    source = source_view(rng, dtype, shape, order, steps, ())
    memory, target = target_view(dtype, shape, range(len(shape)), [1] * len(shape), shift)
    check_copy(source, memory, target, PAST, data.draw(st.sampled_from([1, 2])))


@pytest.mark.parametrize("row", [13, 64, 250, 256, 700])
def test_rows_of_several_blocks(row):
    """Each block begins and ends in the middle of a line, whose rest is another's."""
    rng = np.random.default_rng(row)
    shape = (37, 41, row) if row > 100 else (137, 91, row)
    source = source_view(rng, np.dtype("f4"), shape, (1, 0, 2), [1] * 3, ())
    memory, target = target_view(np.dtype("f4"), shape, range(3), [1] * 3, 3)
    strides = [tuple(one // 4 for one in array.strides) for array in (source, target)]
    form = permute_form(F32, shape, *strides, PAST)
    assert form.joined is not None
    assert form.blocks > 1
    check_copy(source, memory, target, PAST, 2)


def test_rows_of_one_element_again_and_again():
    """A broadcast dimension: the same rows."""
    rng = np.random.default_rng(5)
    shape = (5, 70, 40)
    source = source_view(rng, np.dtype("f4"), shape, (0, 1, 2), [1] * 3, (0,))
    memory, target = target_view(np.dtype("f4"), shape, range(3), [1] * 3, 1)
    check_copy(source, memory, target, PAST)


def test_a_tensor_operation_says_how_it_is_written():
    sizes, source, target = (64, 64, 64, 64), (64**3, 64, 64**2, 1), (64**3, 64**2, 64, 1)
    dims = tuple(
        TensorDimension("C", "prim" if number > 1 else "seq", *one[:2], 0, one[2])
        for number, one in enumerate(zip(sizes, source, target, strict=True))
    )
    told = describe_primitive(TensorOperation("f32", "copy", dims), FEW_WAYS)
    assert told == "in0: in rows of 64 elements\nout: past the caches, rows joined to whole lines"
