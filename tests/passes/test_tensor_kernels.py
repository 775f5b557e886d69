"""Kernels of tensor operations against their definition in NumPy: every primitive, type and kind of stride."""

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_support import BINARY, UNARY, check, random_contraction, random_elementwise

from tilewright.contraction.tensor_operation import TensorDimension, TensorOperation
from tilewright.passes.permute import choose as permute_form
from tilewright.passes.permute import kernel as permute_kernel
from tilewright.runtime.devices import device_for

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


@pytest.mark.parametrize("main", ["copy", "transpose"])
@settings(max_examples=30)
@given(seed=SEEDS, dtype=st.sampled_from(["f32", "f64"]))
def test_copies_past_the_caches(main, seed, dtype):
    operation = random_elementwise(seed, dtype, main)
    permute_kernel._known_launch.cache_clear()
    with mock.patch.object(permute_form, "past_caches", lambda nbytes, machine: True):
        compiled = operation.compile("cpu")
    permute_kernel._known_launch.cache_clear()
    check(operation, compiled, seed)


def test_a_permutation_of_short_rows_is_gathered():
    sizes, source, target = (48, 64, 32, 72), (147456, 2304, 72, 1), (2304, 110592, 1, 32)
    dimensions = tuple(
        TensorDimension("C", "seq" if n < 2 else "prim", size, a, 0, b)
        for n, (size, a, b) in enumerate(zip(sizes, source, target, strict=True))
    )
    compiled = TensorOperation("f32", "copy", dimensions).compile("cpu")
    machine = device_for("cpu").machine
    is_large = max(machine.l2_bytes, machine.l3_bytes // 4) < 4 * 48 * 64 * 32 * 72
    assert ("gathered into runs" in compiled.explain()) == is_large
