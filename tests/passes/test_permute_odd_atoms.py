"""Copies of runs of 3, 5, 6 or 7 words and the like, which fill no vector: squares of them against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples
from permute_support import MACHINES, SMALL_CACHES, check_copy, source_view, target_view

from tilewright.ir.scalars import F32, F64, U8
from tilewright.machine.named import named_machine
from tilewright.passes.permute.choose import permute_form

AVX512 = named_machine("cpu-avx512")
SIZES = st.one_of(st.integers(1, 9), st.integers(1, 90), st.sampled_from([16, 32, 33, 64, 65, 200, 300]))


@settings(max_examples=examples(100), deadline=None)
@given(
    dtype=st.sampled_from(["u1", "u2", "f4", "f8"]), atom=st.integers(2, 15), rows=SIZES, columns=SIZES,
    planes=st.integers(1, 4), machine=st.sampled_from([AVX512, SMALL_CACHES[0], *MACHINES]),
    shift=st.integers(0, 70), is_reversed=st.booleans(), threads=st.sampled_from([1, 2]),
)  # fmt: skip
def test_odd_runs_between_closed_pages(dtype, atom, rows, columns, planes, machine, shift, is_reversed, threads):
    rows = max(1, min(rows, 60_000 // (atom * columns * planes)))
    shape = (planes, rows, columns, atom)
    steps = (1, -1 if is_reversed else 1, 1, 1)
    source = source_view(np.random.default_rng(rows), np.dtype(dtype), shape, (0, 2, 1, 3), steps, ())
    memory, target = target_view(np.dtype(dtype), shape, (0, 1, 2, 3), (1,) * 4, shift)
    check_copy(source, memory, target, machine, threads)


@pytest.mark.parametrize("machine", [AVX512, SMALL_CACHES[0]], ids=["caches", "none"])
@pytest.mark.parametrize(("dtype", "shape"), [("f4", (130, 300, 3)), ("u1", (300, 200, 3)), ("u2", (260, 190, 5))])
def test_images_turned_over(dtype, shape, machine):
    source = source_view(np.random.default_rng(5), np.dtype(dtype), shape, (0, 1, 2), (1, 1, 1), ()).transpose(1, 0, 2)
    memory, target = target_view(np.dtype(dtype), source.shape, (0, 1, 2), (1, 1, 1), 4)
    check_copy(source, memory, target, machine, 2)


def test_runs_of_three_words_are_squares_where_vectors_hold_four_of_them():
    strides = (3, 150, 1), (180, 3, 1)
    form = permute_form(F32, (50, 60, 3), *strides, AVX512)
    assert (form.atom, form.lanes, form.columns) == (3, 4, 4)
    assert permute_form(U8, (50, 60, 3), *strides, AVX512).lanes == 16
    assert permute_form(F64, (50, 60, 3), *strides, AVX512).lanes == 2
    assert permute_form(F32, (50, 60, 3), *strides, named_machine("cpu-avx2")).lanes == 1
