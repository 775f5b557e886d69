"""Kernels of tensor operations against their definition in NumPy: every primitive, type and kind of stride."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_support import BINARY, UNARY, check, random_contraction, random_elementwise

SEEDS = st.integers(0, 10**6)


@pytest.mark.parametrize("dtype", ["f32", "f64", "c64", "c128", "f16", "i8"])
@settings(max_examples=14)
@given(seed=SEEDS)
def test_contractions(dtype, seed):
    operation = random_contraction(seed, dtype)
    check(operation, operation.compile("cpu"), seed)


@pytest.mark.parametrize("main", [*BINARY, *(name for name in UNARY if name != "none"), "clamp"])
@settings(max_examples=8)
@given(seed=SEEDS, dtype=st.sampled_from(["f32", "f64"]))
def test_elementwise(main, seed, dtype):
    operation = random_elementwise(seed, dtype, main)
    check(operation, operation.compile("cpu"), seed)
