"""Placing tensor operations on a machine: what each pass may do, and that none changes the meaning."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_support import arrays, check, expected, random_contraction, random_elementwise

from tilewright.contraction.tensor_operation import Execution, TensorDimension, TensorOperation
from tilewright.machine.named import named_machine
from tilewright.passes.tensor.placing import absorb, coarsen, merge, place, regroup, spread

WIDE = named_machine("cpu-avx512")


def product(m, n, k, executions=("seq",) * 3, **more):
    lists = ("MNK", executions, (m, n, k), (1, 0, m), (0, k, 1), (1, m, 0))
    return TensorOperation.from_lists("f32", "contraction" if "seq" in executions else "gemm", *lists, **more)


def unplaced(operation):
    main = "contraction" if operation.main.family == "ternary" else operation.main
    dims = [TensorDimension(d.kind, "seq", d.size, *d.strides) for d in operation.dimensions]
    return operation.replace(main=main, dimensions=tuple(dims))


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), target=st.sampled_from([1, 4, 1000]))
def test_every_step_keeps_the_meaning(seed, target):
    for placed in (random_contraction(seed, "i8"), random_elementwise(seed, "f64", ["copy", "sub", "zero"][seed % 3])):
        for operation in (placed, unplaced(placed)):
            first = place(operation, WIDE, target)
            second = regroup(first.operation, WIDE)
            in0, in1, out = arrays(operation, seed)
            want = expected(operation, in0, in1, out)
            for step in (*first.steps, *second.steps):
                assert step.before != step.after
                assert step.after.extents == operation.extents
                got = expected(step.after, in0, in1, out)
                np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=str(step))


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), dtype=st.sampled_from(["f32", "c128", "i8"]))
def test_placed_operations_run(seed, dtype):
    operation = place(unplaced(random_contraction(seed, dtype)), WIDE).operation
    check(operation, operation.compile("cpu"), seed)
    operation = unplaced(random_elementwise(seed, "f32", ["copy", "mul", "relu", "zero"][seed % 4])).optimise()
    check(operation, operation.compile("cpu"), seed)


def test_a_large_product_is_one_primitive_cut_into_blocks_for_the_cores():
    operation = product(1600, 1600, 1600)
    derivation = place(operation, WIDE)
    assert [step.rewrite for step in derivation.steps] == ["identify", "spread"]
    shared = derivation.operation.of_execution(Execution.SHARED)
    blocks = math.prod(one.size for one in shared)
    assert WIDE.cores <= blocks <= 16 * WIDE.cores
    assert {one.size for one in derivation.operation.of_execution(Execution.PRIM) if one.kind.value == "K"} == {1600}
    assert place(operation, WIDE, thread_target=1).operation.of_execution(Execution.SHARED) == ()
    assert place(product(48, 120, 16), WIDE).operation.of_execution(Execution.SHARED) == ()  # too little work to share


def test_sizes_without_divisors_stay_whole():
    assert spread(place(product(1601, 1601, 1601), WIDE).operation, WIDE, 1024) is None


def test_a_contracted_loop_around_a_gemm_is_absorbed():
    dims = [
        TensorDimension("M", "seq", 3, 4096, 0, 64), TensorDimension("K", "seq", 5, 9000, 700, 0),
        TensorDimension("M", "prim", 64, 1, 0, 1), TensorDimension("N", "prim", 6, 0, 10, 192),
        TensorDimension("K", "prim", 10, 64, 1, 0),
    ]  # fmt: skip
    operation = TensorOperation("f32", "gemm", dims, "neg")
    after = absorb(operation)
    assert after.main.value == "brgemm"
    assert [one.kind.value for one in after.of_execution(Execution.PRIM)] == ["K", "M", "N", "K"]
    assert absorb(after) is None
    check(after, after.compile("cpu"))


def test_loops_that_are_one_in_memory_with_the_primitive_join_it():
    dims = [
        TensorDimension("N", "shared", 256, 0, 80, 160), TensorDimension("M", "seq", 5, 16, 0, 16),
        TensorDimension("M", "prim", 16, 1, 0, 1), TensorDimension("N", "prim", 2, 0, 40, 80),
        TensorDimension("K", "prim", 40, 80, 1, 0),
    ]  # fmt: skip
    operation = TensorOperation("f32", "gemm", dims, "zero")
    assert [d.size for d in merge(operation).dimensions] == [256, 80, 2, 40]
    assert coarsen(operation, WIDE).dimensions[0].size >= 4 * WIDE.cores
    together = regroup(operation, WIDE)
    assert [step.rewrite for step in together.steps] == ["merge", "coarsen"]
    check(operation, operation.compile("cpu"))
    other = operation.replace(dimensions=(dims[0], TensorDimension("M", "seq", 5, 17, 0, 16), *dims[2:]))
    assert merge(other) is None


def test_a_target_below_one_is_refused():
    with pytest.raises(ValueError, match="thread_target 0 must be at least 1"):
        place(product(8, 8, 8), WIDE, 0)
