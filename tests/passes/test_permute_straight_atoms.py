"""Complex numbers, pixels of four bytes and the like, written past the caches straight from registers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from permute_support import GUARD, SMALL_CACHES, check_copy, source_view, target_view

from tilewright.ir.scalars import C64, C128, F32, U8
from tilewright.machine.paces import MESH
from tilewright.passes.permute.choose import permute_form
from tilewright.runtime.memory import aligned_empty

PAST = replace(SMALL_CACHES[0], l2_ways=16)
PACES = [PAST.pace, MESH]
"""Lines of columns are written one by one, and in pairs."""


@pytest.mark.parametrize(
    ("element", "shape", "order", "atom", "rows", "run"),
    [
        (C64, (64, 80, 96), (2, 1, 0), 2, 16, 64 * 80),
        (C128, (64, 80, 96), (2, 1, 0), 2, 8, 64 * 80),
        (F32, (64, 80, 96, 2), (2, 1, 0, 3), 2, 16, 64 * 80),
        (U8, (640, 320, 4), (1, 0, 2), 4, 32, 640),
    ],
)
def test_atoms_of_a_power_of_two_are_written_straight(element, shape, order, atom, rows, run):
    source = np.zeros(shape, np.uint8).transpose(order)
    form = permute_form(element, source.shape, source.strides, np.zeros(source.shape, np.uint8).strides, PAST)
    assert form.straight is not None
    assert (form.atom, form.straight.rows, np.prod([one.size for one in form.straight.run])) == (atom, rows, run)


@settings(max_examples=120, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(["c8", "c16", "f4", "u1", "f8"]), shift=st.integers(0, 80))
def test_atoms_at_every_place_in_a_line(data, dtype, shift):
    dtype = np.dtype(dtype)
    atom = (
        1 if dtype.kind == "c" else data.draw(st.sampled_from([one for one in (2, 4, 8) if dtype.itemsize * one < 32]))
    )
    lanes = 64 // (dtype.itemsize * atom)
    inner = [data.draw(st.sampled_from([1, 2, 3, 5, 16])) * lanes]
    inner += [data.draw(st.integers(1, 6)) for _ in range(data.draw(st.integers(0, 2)))]
    column = data.draw(st.sampled_from([lanes, lanes + 3, 5 * lanes, 17 * lanes + 1, 37 * lanes + 3]))
    outer = [data.draw(st.integers(1, 4)) for _ in range(data.draw(st.integers(0, 2)))]
    shape = (*outer, column, *inner[::-1], atom)
    middle = data.draw(st.permutations([*range(len(outer)), *range(len(outer) + 1, len(shape) - 1)]))
    steps = [data.draw(st.sampled_from([1, 1, -1])) for _ in shape]
    steps[len(outer)] = steps[-1] = 1
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    source = source_view(rng, dtype, shape, (*middle, len(outer), len(shape) - 1), steps, ())
    memory, target = target_view(dtype, shape, range(len(shape)), [1] * len(shape), shift)
    machine = replace(PAST, pace=data.draw(st.sampled_from(PACES)))
    check_copy(source, memory, target, machine, data.draw(st.sampled_from([1, 2])))


@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("words", [1, 3, 5])
def test_complex_numbers_that_begin_between_two_of_memory(dtype, words, pace):
    """Lines of the target begin in the middle of a number."""
    dtype = np.dtype(dtype)
    shape, nbytes = (48, 5, 64), dtype.itemsize * 48 * 5 * 64
    source = source_view(np.random.default_rng(words), dtype, (64, 5, 48), (0, 1, 2), (1,) * 3, ()).transpose(2, 1, 0)
    memory = aligned_empty((nbytes + 256,), np.dtype(np.uint8))
    memory[:] = GUARD
    begin = 64 + words * dtype.itemsize // 2
    target = memory[begin : begin + nbytes].view(dtype).reshape(shape)
    strides = [tuple(stride // dtype.itemsize for stride in one.strides) for one in (source, target)]
    machine = replace(PAST, pace=pace)
    straight = permute_form({"c8": C64, "c16": C128}[dtype.str[1:]], shape, *strides, machine).straight
    assert straight is not None and straight.in_pairs == (pace is MESH)
    check_copy(source, memory, target, machine, 2)
