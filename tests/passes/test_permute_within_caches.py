"""Copies within the caches whose rows and columns lie in few sets of the first one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from permute_support import check_copy, source_view, target_view

from tilewright.ir.scalars import scalar_type_of
from tilewright.machine.named import named_machine
from tilewright.passes.permute.choose import permute_form

AVX512 = named_machine("cpu-avx512")
FEW_WAYS = [replace(named_machine(name), l1_bytes=6144) for name in ("cpu-avx512", "cpu-avx2", "cpu-neon")]
"""Machines whose first cache has one line for each set, and room for small tiles."""


def reversed_form(dtype, shape, machine):
    source = np.zeros(shape, dtype).T
    strides = [
        tuple(stride // source.itemsize for stride in one.strides) for one in (source, np.empty(source.shape, dtype))
    ]
    return permute_form(scalar_type_of(np.dtype(dtype)), source.shape, *strides, machine)


@pytest.mark.parametrize(
    ("dtype", "shape"), [("f4", (1024, 1024)), ("f4", (64,) * 3), ("f8", (8,) * 6), ("u1", (16,) * 4)]
)
def test_rows_that_share_sets_are_gathered(dtype, shape):
    form = reversed_form(dtype, shape, AVX512)
    assert form.tile is not None
    assert not form.nontemporal
    assert form.tile.edge is None
    assert form.tile.row.extent * form.tile.column.extent * form.word.bytes <= AVX512.l1_bytes * 2 // 3


@pytest.mark.parametrize(
    ("dtype", "shape"), [("f4", (1000, 1000)), ("f4", (50,) * 3), ("f4", (4,) * 6), ("f8", (64, 64))]
)
def test_rows_in_many_sets_are_transposed_in_place(dtype, shape):
    assert reversed_form(dtype, shape, AVX512).tile is None


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(["u1", "i2", "f4", "f8", "c16"]),
    machine=st.sampled_from(FEW_WAYS),
    shift=st.integers(0, 20),
)
def test_gathered_tiles_within_the_caches(data, dtype, machine, shift):
    rank = data.draw(st.integers(2, 6))
    shape, room = [], 150_000
    for _ in range(rank):
        shape.append(data.draw(st.sampled_from([n for n in (2, 3, 8, 16, 17, 32, 64, 128) if n <= max(2, room)])))
        room //= shape[-1]
    order = tuple(data.draw(st.permutations(range(rank))))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    source = source_view(rng, np.dtype(dtype), tuple(shape), order, [1] * rank, ())
    memory, target = target_view(np.dtype(dtype), tuple(shape), tuple(range(rank)), [1] * rank, shift)
    check_copy(source, memory, target, machine, data.draw(st.sampled_from([1, 2])))
