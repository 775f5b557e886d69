"""Copies between few rows and their elements in turns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples
from permute_support import MACHINES, check_copy, source_view, target_view

from tilewright.ir.scalars import F32, F64, U8
from tilewright.machine.named import named_machine
from tilewright.passes.permute.choose import permute_form

AVX512 = named_machine("cpu-avx512")


def splitting(element, n, rows):
    return permute_form(element, (rows, n), (1, rows), (n, 1), AVX512)


def merging(element, n, rows):
    return permute_form(element, (n, rows), (1, n), (rows, 1), AVX512)


@pytest.mark.parametrize(
    ("element", "rows", "lanes"), [(U8, 3, 64), (U8, 8, 64), (F32, 2, 16), (F32, 6, 16), (F64, 5, 8)]
)
def test_few_rows_are_split_and_merged_in_whole_vectors(element, rows, lanes):
    assert (splitting(element, 1000, rows).splits, splitting(element, 1000, rows).lanes) == (True, lanes)
    assert (merging(element, 1000, rows).merges, merging(element, 1000, rows).lanes) == (True, lanes)


@pytest.mark.parametrize(("element", "n", "rows"), [(F32, 1000, 7), (U8, 1000, 9), (U8, 10, 3), (F32, 1000, 1)])
def test_many_or_short_rows_are_not(element, n, rows):
    assert not splitting(element, n, rows).splits
    assert not merging(element, n, rows).merges


@pytest.mark.parametrize("form", [splitting, merging])
def test_past_the_caches_large_ones_are_written_past_them(form):
    assert form(F32, 10**7, 3).nontemporal
    assert not form(F32, 10**4, 3).nontemporal


@settings(max_examples=examples(70), deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(["u1", "i2", "f4", "f8"]),
    machine=st.sampled_from(MACHINES),
    rows=st.integers(2, 8),
    size=st.one_of(st.integers(1, 300), st.integers(4000, 9000)),
    split=st.booleans(),
    shift=st.integers(0, 20),
)
def test_rows_in_turns(data, dtype, machine, rows, size, split, shift):
    shape = (data.draw(st.integers(1, 3)), rows, size) if split else (data.draw(st.integers(1, 3)), size, rows)
    outside = 1 if data.draw(st.booleans()) else 0
    order = (0, 2, 1) if outside else (2, 0, 1)
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    steps = [data.draw(st.sampled_from([1, 1, -1])), 1, data.draw(st.sampled_from([1, 1, -1]))]
    source = source_view(rng, np.dtype(dtype), shape, order, steps, ())
    gap = data.draw(st.sampled_from([1, 1, 2]))
    memory, target = target_view(np.dtype(dtype), shape, (0, 1, 2), (gap, 1, 1), shift)
    check_copy(source, memory, target, machine, data.draw(st.sampled_from([1, 2])))
