"""Copies of rows of a few vectors: no loop over them, and the last vector reaches back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from permute_support import MACHINES, check_copy, source_view, target_view

from tilewright.ir.scalars import F32
from tilewright.machine.named import named_machine
from tilewright.passes.permute.choose import permute_form

AVX512 = named_machine("cpu-avx512")


@pytest.mark.parametrize(
    ("size", "lanes", "pieces"), [(9, 8, 2), (15, 8, 2), (16, 16, 1), (19, 16, 2), (128, 16, 8), (129, 16, 0)]
)
def test_short_rows_are_few_vectors(size, lanes, pieces):
    form = permute_form(F32, (30, 40, size), (size, 30 * size, 1), (40 * size, size, 1), AVX512)
    assert (form.lanes, form.pieces) == (lanes, pieces)


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(["u1", "i2", "f4", "f8", "c16", "?"]),
    machine=st.sampled_from(MACHINES),
    size=st.integers(2, 150),
    kind=st.sampled_from(["forwards", "backwards", "broadcast"]),
    shift=st.integers(0, 20),
)
def test_rows_of_every_length(data, dtype, machine, size, kind, shift):
    shape = (data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)), size)
    order = data.draw(st.sampled_from([(0, 1, 2), (1, 0, 2)]))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    steps, broadcast = (1, 1, -1 if kind == "backwards" else 1), (2,) if kind == "broadcast" else ()
    source = source_view(rng, np.dtype(dtype), shape, order, steps, broadcast)
    gap = data.draw(st.sampled_from([1, 2]))
    memory, target = target_view(np.dtype(dtype), shape, (0, 1, 2), (1, gap, 1), shift)
    check_copy(source, memory, target, machine, data.draw(st.sampled_from([1, 2])))


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(["u1", "i2", "f4", "f8", "c16"]),
    machine=st.sampled_from(MACHINES),
    atom=st.integers(1, 9),
    shift=st.integers(0, 20),
)
def test_atoms_of_every_length(data, dtype, machine, atom, shift):
    sizes = st.sampled_from([1, 2, 3, 5, 16, 17, 70])
    shape = (data.draw(sizes), data.draw(sizes), data.draw(st.integers(1, 4)), atom)
    order = (*data.draw(st.permutations(range(3))), 3)
    steps = [*(data.draw(st.sampled_from([1, 1, -1])) for _ in range(3)), 1]
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    source = source_view(rng, np.dtype(dtype), shape, order, steps, ())
    gap = data.draw(st.sampled_from([1, 1, 2]))
    memory, target = target_view(np.dtype(dtype), shape, (0, 1, 2, 3), (1, gap, 1, 1), shift)
    check_copy(source, memory, target, machine, data.draw(st.sampled_from([1, 2])))
