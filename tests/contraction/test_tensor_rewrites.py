"""The passes on dimensions: worked examples, what each step may do, and that none changes the meaning."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_support import arrays, check, expected, random_contraction, random_elementwise

import tilewright as tw
from tilewright.contraction.form import Kind
from tilewright.contraction.tensor_operation import TensorDimension, TensorOperation
from tilewright.contraction.tensor_rewrites import MULTIPLES, derive, fuse, identify, optimise, split_size

DATA = json.loads((Path(__file__).parents[2] / "benchmarks" / "tensor_operations.json").read_text())
SIZES = list(itertools.product(DATA["unary_reference"]["sizes_each_from"], repeat=4))
EXAMPLES = {one["name"]: one for one in DATA["tensor_operations"]}
LISTS = ("dim_types", "exec", "dim_sizes", "strides_in0", "strides_in1", "strides_out")


def example(name):
    one = EXAMPLES[name]
    return TensorOperation.from_lists("f32", one["main"], *(one[key] for key in LISTS), one["first"], one["last"])


def lists(operation):
    columns = [(d.kind.value, d.execution.value, d.size, *d.strides) for d in operation.dimensions]
    return dict(zip(LISTS, map(list, zip(*columns, strict=True)), strict=True))


def unplaced(operation):
    """The same loops with nothing shared and no primitive dimension."""
    main = "contraction" if operation.main.family == "ternary" else "copy"
    main = operation.main if operation.main.family != "ternary" and operation.main.value != "transpose" else main
    dims = [TensorDimension(d.kind, "seq", d.size, *d.strides) for d in operation.dimensions]
    return operation.replace(main=main, dimensions=tuple(dims))


# --- worked examples --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", DATA["splitter_examples"], ids=lambda one: f"{one['size']}-{one['min_kernel_size']}")
def test_worked_splits(one):
    multiples = MULTIPLES[Kind(one["type"])]
    assert split_size(one["size"], one["max_kernel_size"], one["min_kernel_size"], multiples) == (
        one["outer"], one["inner"],
    )  # fmt: skip


def test_worked_reordering_and_fusion():
    one = EXAMPLES["optimizer_reorder_fuse_case"]["expected"] | {"dim_types": list("NKMNK")}
    assert lists(optimise(example("optimizer_reorder_fuse_case"))) == one


@pytest.mark.parametrize("name", ["seq_gemm", "seq_brgemm", "zero_brgemm_relu"])
@pytest.mark.parametrize("shared", [0, 2])
def test_worked_blocked_products(name, shared):
    operation = example(name)
    # The same blocks, fewer of them.
    dims = [
        TensorDimension(
            d.kind, "shared" if i < shared else d.execution, min(d.size, 3) if i < 2 else d.size, *d.strides
        )
        for i, d in enumerate(operation.dimensions)
    ]
    operation = operation.replace(dimensions=tuple(dims))
    check(operation, operation.compile("cpu"))


def test_worked_small_contraction():
    """Both M are one in memory, and both N: a plain product of 48 x 120 x 16."""
    derivation = derive(example("opt_small_own"), thread_target=4)
    assert [step.rewrite for step in derivation.steps] == ["fuse", "fuse", "identify"]
    assert [(d.kind.value, d.size) for d in derivation.operation.dimensions] == [("M", 48), ("N", 120), ("K", 16)]
    check(derivation.operation, derivation.operation.compile("cpu"))


def test_worked_large_product():
    derivation = derive(example("opt_gemm_1600"))
    assert [step.rewrite for step in derivation.steps] == ["split"] * 3 + ["identify", "order", "parallelise"]
    sizes = [(d.kind.value, d.execution.value, d.size) for d in derivation.operation.dimensions]
    assert sizes == [
        ("N", "shared", 40), ("M", "seq", 50),
        ("K", "prim", 40), ("M", "prim", 32), ("N", "prim", 40), ("K", "prim", 40),
    ]  # fmt: skip
    assert derivation.operation.main.value == "brgemm"
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (1600, 1600)).astype("f") for _ in range(2))
    c = derivation.operation.compile("cpu")(a, b, np.ones((1600, 1600), "f"))
    assert np.array_equal(c, b @ a + 1)


def test_worked_contraction_of_four_dimensions():
    result = optimise(example("opt_contraction_64x25"))
    assert result.main.value == "brgemm"
    prim = [(d.kind.value, d.size) for d in result.of_execution(result.dimensions[-1].execution)]
    assert prim == [("K", 64), ("M", 25), ("N", 25), ("K", 25)]
    fused = optimise(example("opt_contraction_64x25"), min_kernel_size=32)
    assert {(d.kind.value, d.size) for d in fused.dimensions} == {
        ("M", 50), ("M", 32), ("N", 40), ("K", 40),
    }  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES)
def test_worked_permutation(sizes):
    """[t, u, r, s] -> [t, r, u, s]."""
    t, r, u, s = sizes
    operation = TensorOperation.from_lists(
        "f32", "copy", DATA["unary_reference"]["dim_types"], DATA["unary_reference"]["exec"], sizes,
        (u * r * s, s, r * s, 1), (0,) * 4, (u * r * s, u * s, s, 1))  # fmt: skip
    x = np.arange(t * u * r * s, dtype=np.float32).reshape(t, u, r, s)
    y = np.empty((t, r, u, s), np.float32)
    operation.compile("cpu")(x, None, y)
    assert np.array_equal(y, x.transpose(0, 2, 1, 3))


# --- meaning ----------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([(1, 1), (2, 3), (4, 8), (16, 1024)]), st.sampled_from([1, 4, 1000]))
def test_every_step_keeps_the_meaning(seed, bounds, target):
    for placed in (random_contraction(seed, "i8"), random_elementwise(seed, "f64", ["copy", "sub", "zero"][seed % 3])):
        for operation in (placed, unplaced(placed)):
            derivation = derive(operation, *bounds, thread_target=target)
            in0, in1, out = arrays(operation, seed)
            want = expected(operation, in0, in1, out)
            for step in derivation.steps:
                assert step.before != step.after
                assert step.after.extents == operation.extents
                got = expected(step.after, in0, in1, out)
                np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=str(step))


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from(["f32", "c128"]))
def test_optimised_operations_run(seed, dtype):
    operation = optimise(unplaced(random_contraction(seed, dtype)), 2, 8)
    check(operation, operation.compile("cpu"), seed)
    real = "f32" if dtype == "f32" else "f64"
    operation = unplaced(random_elementwise(seed, real, ["copy", "mul", "relu", "zero"][seed % 4])).optimise(2, 16)
    check(operation, operation.compile("cpu"), seed)


@given(st.integers(1, 5000), st.integers(1, 200), st.integers(1, 40), st.sampled_from(list(Kind)))
def test_a_split_keeps_its_bounds(size, largest, smallest, kind):
    found = split_size(size, largest, smallest, MULTIPLES[kind])
    if found is None:
        fits = [b for b in range(2, largest + 1) if size % b == 0 and b >= smallest and 1 < size // b >= smallest]
        assert not [b for b in fits if any(b % multiple == 0 for multiple in MULTIPLES[kind])]
        return
    outer, inner = found
    assert outer * inner == size
    assert outer > 1 < inner
    assert smallest <= inner <= largest
    assert outer >= smallest
    assert any(inner % multiple == 0 for multiple in MULTIPLES[kind])


def test_a_split_of_a_very_large_dimension_is_found_at_once():
    assert split_size(2**31 - 1, 2**30) is None  # a prime
    assert split_size(2**40, 2**39, 1, (16,)) == (2, 2**39)
    assert split_size(2**59 + 1, 1024, 16, (1,)) is None


def test_no_contracted_dimension_is_shared():
    product = TensorOperation.from_lists("f32", "contraction", "KMNK", ["seq"] * 4, (9, 64, 64, 64),
                                         (4096, 1, 0, 64), (4096, 0, 64, 1), (0, 1, 64, 0))  # fmt: skip
    result = optimise(product, 4, 16, thread_target=10**9)
    kinds = {d.kind.value for d in result.dimensions if d.execution.value == "shared"}
    assert kinds == {"M", "N"}
    assert all(d.execution.value != "shared" for d in optimise(product, 4, 16, thread_target=1).dimensions)


def test_thread_target_bounds_the_blocks():
    product = example("seq_gemm").replace(main="gemm")
    for target, sizes in ((1, []), (31, [32]), (32, [32]), (1023, [32]), (1024, [32, 32])):
        shared = [d.size for d in optimise(product, thread_target=target).dimensions if d.execution.value == "shared"]
        assert shared == sizes, target


def test_a_matrix_vector_product_gets_what_it_lacks():
    """There is no N: one of size 1 is added."""
    product = TensorOperation.from_lists("f64", "contraction", "MK", ["seq"] * 2, (40, 30), (1, 40), (0, 1), (1, 0))
    derivation = derive(product)
    assert [step.rewrite for step in derivation.steps] == ["insert-unit", "identify"]
    check(derivation.operation, derivation.operation.compile("cpu"))
    dot = TensorOperation.from_lists("f64", "contraction", "K", ["seq"], (30,), (1,), (2,), (0,)).optimise()
    check(dot, dot.compile("cpu"))


def test_identification_prefers_unit_strides():
    dims = [("C", 4, 30, 1), ("C", 5, 6, 24), ("C", 6, 1, 4)]
    turned = TensorOperation("f32", "copy", [TensorDimension(k, "seq", n, i, 0, o) for k, n, i, o in dims])
    placed = identify(turned)
    assert [d.size for d in placed.dimensions] == [5, 4, 6]
    straight = TensorOperation("f32", "copy", [TensorDimension("C", "seq", n, i, 0, i) for _, n, i, _ in dims])
    assert [d.size for d in identify(straight).dimensions] == [4, 5, 6]


def test_an_unplaced_transpose_is_turned_where_it_can_be_and_else_copied():
    def placed(*dimensions):
        dims = [TensorDimension("C", "seq", size, source, 0, target) for size, source, target in dimensions]
        operation = TensorOperation("f32", "transpose", dims)
        for one in (operation.optimise(), operation.optimise(1, 4)):
            check(one, one.compile("cpu"))
        return identify(operation).main.value

    assert placed((8, 2, 1), (6, 3, 8)) == "copy"  # no unit stride in the input
    assert placed((8, 6, 1), (6, 1, 8)) == "transpose"
    assert placed((8, 3, 1), (6, 1, 40), (5, 1, 8)) == "transpose"  # either of two may be turned
    assert placed((8, 1, 1), (6, 10, 8)) == "copy"  # one dimension has both
    assert placed((9, 1, 1)) == "copy"  # a single dimension


def test_only_what_is_one_in_memory_is_fused():
    one, two = TensorDimension("M", "seq", 4, 1, 0, 1), TensorDimension("M", "seq", 3, 4, 0, 4)
    for other, fits in (
        (two, True),
        (TensorDimension("M", "seq", 3, 5, 0, 4), False),
        (TensorDimension("M", "seq", 3, 4, 0, 5), False),
        (TensorDimension("C", "seq", 3, 4, 0, 4), False),
    ):
        operation = TensorOperation("f32", "contraction", (other, one))
        assert (fuse(operation, 4) is not None) == fits
    assert fuse(TensorOperation("f32", "contraction", (two, one)), 3) is None


def test_derivations_are_printed(golden):
    golden("contraction/tensor_derivation.txt", str(derive(example("optimizer_reorder_fuse_case"))))


def test_bounds_out_of_order_are_refused():
    with pytest.raises(ValueError, match="min_kernel_size 8, max_kernel_size 4"):
        tw.TensorOperation.optimise(example("seq_gemm"), 8, 4)
    for name, value in (("min_kernel_size", 16.0), ("max_kernel_size", "64"), ("thread_target", None)):
        with pytest.raises(TypeError, match=f"{name} of optimise is {value!r}, not an integer"):
            tw.TensorOperation.optimise(example("seq_gemm"), **{name: value})
