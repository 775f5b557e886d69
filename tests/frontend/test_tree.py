"""Trees evaluated: against NumPy, in every dtype, with slices, and with errors that say what was wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import opt_einsum
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_checks import NAMES, case_named, expected, interpreted, random_arrays, random_tree, smaller_limit

import tilewright as tw
from tilewright.frontend.tree_parse import TreeError, leaves
from tilewright.runtime.devices import devices


@pytest.mark.parametrize("name", NAMES)
def test_the_projects_trees(name: str) -> None:
    tree, sizes = case_named(name)
    arrays = random_arrays(tree, sizes, np.float32)
    found = tw.einsum_tree(tree, sizes, arrays)
    assert found.dtype == np.float32 and found.flags.c_contiguous
    np.testing.assert_array_equal(found, expected(tree, arrays))
    if name != "mlp_relu":  # one expression over all inputs means the same where nothing is between the sums
        numbers = {label: number for number, label in enumerate(sizes)}
        terms: list[Any] = []
        for leaf, array in zip(leaves(tree), arrays, strict=True):
            terms += [array, [numbers[label] for label in leaf.labels]]
        whole = opt_einsum.contract(*terms, [numbers[label] for label in tree.labels])
        np.testing.assert_array_equal(found, whole)


def test_plans_take_lists_and_refuse_masked_arrays_as_trees_do() -> None:
    plan = tw.plan_tree("[0,1],[1,2]->[0,2]", [2, 2, 2])
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(2):
        assert plan(a.tolist(), a).tolist() == plan(a, a).tolist() == (a @ a).tolist()
        with pytest.raises(TypeError, match=r"a masked array's mask would be lost .* \(input 1\)"):
            plan(a, np.ma.masked_less(a, 2))
        with pytest.raises(TypeError, match="None of type NoneType is no array of numbers"):
            plan(a, None)


@pytest.mark.parametrize("name", ["course_lowering_2", "course_optimization_3", "mlp_relu"])
def test_slices_give_the_same(name: str) -> None:
    tree, sizes = case_named(name)
    arrays = random_arrays(tree, sizes, np.float32)
    limit = smaller_limit(tw.plan_tree(tree, sizes, dtype="f32"), 0.5)
    plan = tw.plan_tree(tree, sizes, dtype="f32", memory_limit=limit)
    assert plan.slices > 1 and plan.peak_bytes <= limit
    np.testing.assert_array_equal(plan(*arrays), expected(tree, arrays))
    np.testing.assert_array_equal(tw.einsum_tree(tree, sizes, arrays, memory_limit=limit), expected(tree, arrays))


@given(st.integers(0, 10**9), st.sampled_from([0.0, 0.3, 0.7]))
def test_random_trees_by_the_interpreter(seed: int, share: float) -> None:
    tree, sizes = random_tree(seed)
    arrays = random_arrays(tree, sizes, np.int64, seed)
    plan = tw.plan_tree(tree, sizes, dtype="i64")
    want = expected(tree, arrays)
    found = interpreted(plan)(*arrays)
    assert np.shape(found) == plan.shape
    np.testing.assert_array_equal(found, want)
    try:
        sliced = tw.plan_tree(tree, sizes, dtype="i64", memory_limit=smaller_limit(plan, share))
    except MemoryError as error:
        least = int(str(error).partition("the least that slices of its indices can reach is ")[2].split()[0])
        sliced = tw.plan_tree(tree, sizes, dtype="i64", memory_limit=least)
        assert smaller_limit(plan, share) < sliced.peak_bytes == least <= plan.peak_bytes
    else:
        assert sliced.peak_bytes <= smaller_limit(plan, share)
    np.testing.assert_array_equal(interpreted(sliced)(*arrays), want)
    out = np.full(np.shape(want)[::-1], 7, np.int64).T
    assert interpreted(sliced)(*arrays, out=out) is out
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("seed", range(6))
def test_random_trees_compiled(seed: int) -> None:
    tree, sizes = random_tree(seed)
    arrays = random_arrays(tree, sizes, np.int64, seed)
    np.testing.assert_array_equal(tw.einsum_tree(tree, sizes, arrays), expected(tree, arrays))


TREE = "[[0,1],[1,2]->[0,2]],[2,3]->[3,0]"
SIZES = [3, 4, 5, 2]


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "complex64", "bool", ">f4"])
def test_dtypes(dtype: str) -> None:
    tree = tw.einsum_tree(TREE, SIZES, _arrays(dtype))
    native = np.dtype(dtype).newbyteorder("=")
    assert tree.dtype == native
    exact = np.einsum("ab,bc,cd->da", *(one.astype(native) for one in _arrays(dtype)))
    np.testing.assert_array_equal(tree, exact)


def _arrays(dtype: Any = np.float64) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    return [rng.integers(-2, 3, shape).astype(dtype) for shape in ((3, 4), (4, 5), (5, 2))]


def test_half_precision_is_rounded_once() -> None:
    big = [np.full((1, 1), 300, np.float16), np.full((1, 1), 300, np.float16), np.full((1, 1), 0.01, np.float16)]
    found = tw.einsum_tree(TREE, [1, 1, 1, 1], big)
    assert np.isfinite(found).all() and found.dtype == np.float16
    assert abs(float(found[0, 0]) - 90000 * float(np.float16(0.01))) < 1


def test_slices_of_half_precision_are_added_up_in_single() -> None:
    sizes = [4, 64, 64, 4]
    ones = [np.ones((4, 64), np.float16), np.ones((64, 64), np.float16), np.ones((64, 4), np.float16)]
    tree = "[0,1],[[1,2],[2,3]->[1,3]]->[0,3]"
    limit = 4 * 4 * (2 + 4 + 4) + 100
    plan = tw.plan_tree(tree, sizes, dtype="f16", memory_limit=limit)
    assert plan.memory.accumulates
    np.testing.assert_array_equal(plan(*ones), np.full((4, 4), 4096, np.float16))


def test_mixed_dtypes_and_a_wider_one_to_compute_in() -> None:
    a, b, c = _arrays()
    mixed = tw.einsum_tree(TREE, SIZES, [a.astype(np.float32), b, c.astype(np.int16)])
    assert mixed.dtype == np.float64
    np.testing.assert_array_equal(mixed, np.einsum("ab,bc,cd->da", a, b, c))
    wide = tw.einsum_tree(TREE, None, [one.astype(np.float32) for one in (a, b, c)], dtype="f64")
    assert wide.dtype == np.float64
    with pytest.raises(TypeError, match="input 0 of dtype float64 cannot become i32"):
        tw.einsum_tree(TREE, SIZES, [a, b, c], dtype="i32")


def test_inputs_and_results_of_any_strides() -> None:
    a, b, c = _arrays()
    padded = np.zeros((8, 10))
    padded[::2, ::2] = b
    want = np.einsum("ab,bc,cd->da", a, b, c)
    strided = [np.asfortranarray(a), padded[::2, ::2], c[::-1][::-1]]
    np.testing.assert_array_equal(tw.einsum_tree(TREE, SIZES, strided), want)
    for out in (np.empty((2, 3)), np.empty((3, 2)).T, np.empty((4, 6))[::2, ::2]):
        assert tw.einsum_tree(TREE, SIZES, strided, out=out) is out
        np.testing.assert_array_equal(out, want)


def test_results_without_dimensions_and_sums_of_lone_indices() -> None:
    a, b, _ = _arrays()
    total = tw.einsum_tree("[0,1],[1,2]->[]", None, [a, b])
    assert isinstance(total, np.float64) and total == np.einsum("ab,bc->", a, b)
    out = np.empty(())
    assert tw.einsum_tree("[[0,1]->[1]]->[]", None, [a], out=out) is out and out == a.sum()
    scaled = tw.einsum_tree("[],[0,1]->[1,0]", None, [2.0, a])
    np.testing.assert_array_equal(scaled, 2 * a.T)
    np.testing.assert_array_equal(tw.einsum_tree("[[0,1]->[0,1]r]->[1]", None, [a]), np.maximum(a, 0).sum(0))


def test_empty_dimensions() -> None:
    assert tw.einsum_tree("[0,1],[1,2]->[0,2]", [0, 3, 2], [np.ones((0, 3)), np.ones((3, 2))]).shape == (0, 2)
    nothing = tw.einsum_tree("[0,1],[1,2]->[0,2]", [2, 0, 2], [np.ones((2, 0)), np.ones((0, 2))])
    np.testing.assert_array_equal(nothing, np.zeros((2, 2)))


def test_an_index_may_be_used_again_where_it_is_gone() -> None:
    # 1 is summed inside both operands and is another index each time.
    tree = "[[0,1],[1,2]->[0,2]],[[2,1],[1,3]->[2,3]]->[0,3]"
    sizes = {0: 3, 1: 4, 2: 5, 3: 2}
    rng = np.random.default_rng(1)
    a, b, c, d = (rng.integers(-2, 3, shape).astype(float) for shape in ((3, 4), (4, 5), (5, 4), (4, 2)))
    np.testing.assert_array_equal(tw.einsum_tree(tree, sizes, [a, b, c, d]), a @ b @ c @ d)


def test_on_every_device() -> None:
    tree, sizes = case_named("mlp_relu")
    arrays = random_arrays(tree, sizes, np.float32)
    for device in devices():
        limit = smaller_limit(tw.plan_tree(tree, sizes, dtype="f32"), 0.5)
        found = tw.einsum_tree(tree, sizes, arrays, target=device, memory_limit=limit)
        np.testing.assert_array_equal(found, expected(tree, arrays), err_msg=str(device))


def test_arguments_that_do_not_fit() -> None:
    a, b, c = _arrays()
    with pytest.raises(ValueError, match="has 3 inputs; 2 arrays were given"):
        tw.einsum_tree(TREE, SIZES, [a, b])
    with pytest.raises(ValueError, match=r"input 1 \[1,2\] has shape \(5, 4\), the sizes of its indices are \(4, 5\)"):
        tw.einsum_tree(TREE, SIZES, [a, b.T, c])
    with pytest.raises(ValueError, match=r"input 2 \[2,3\] has 1 dimensions \(shape \(5,\)\)"):
        tw.einsum_tree(TREE, SIZES, [a, b, c[:, 0]])
    with pytest.raises(ValueError, match=r"index 1 has size 5 in input 1 \[1,2\], but 4 before"):
        tw.einsum_tree(TREE, None, [a, b.T, c])
    with pytest.raises(TreeError, match="index 3 has no size"):
        tw.einsum_tree(TREE, SIZES[:3], [a, b, c])
    with pytest.raises(TypeError, match="input 0: dtype <U1 is not supported"):
        tw.einsum_tree(TREE, SIZES, [np.full((3, 4), "x"), b, c])
    with pytest.raises(ValueError, match="memory_limit must be a number of bytes, not -1"):
        tw.einsum_tree(TREE, SIZES, [a, b, c], memory_limit=-1)
    with pytest.raises(TypeError, match="relu is not defined on c128"):
        tw.einsum_tree("[0]->[0]r", None, [np.ones(3, complex)])


def test_results_that_cannot_be_written() -> None:
    a, b, c = _arrays()
    with pytest.raises(TypeError, match="out must be a NumPy array, not 3"):
        tw.einsum_tree(TREE, SIZES, [a, b, c], out=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"out has shape \(3, 2\), the result has \(2, 3\)"):
        tw.einsum_tree(TREE, SIZES, [a, b, c], out=np.empty((3, 2)))
    with pytest.raises(TypeError, match="out has dtype float32, the result has float64"):
        tw.einsum_tree(TREE, SIZES, [a, b, c], out=np.empty((2, 3), np.float32))
    with pytest.raises(ValueError, match="out shares memory with input 0"):
        tw.einsum_tree(TREE, SIZES, [a, b, c], out=a.reshape(4, 3)[:2])
    with pytest.raises(ValueError, match="out has elements that lie on one another"):
        tw.einsum_tree(TREE, SIZES, [a, b, c], out=np.lib.stride_tricks.as_strided(np.empty(4), (2, 3), (8, 8)))
    frozen = np.empty((2, 3))
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        tw.einsum_tree(TREE, SIZES, [a, b, c], out=frozen)


def test_plans_check_their_arrays() -> None:
    plan = tw.plan_tree(TREE, SIZES, dtype="f64")
    a, b, c = _arrays()
    with pytest.raises(ValueError, match="has 3 inputs; 1 arrays were given"):
        plan(a)
    with pytest.raises(ValueError, match=r"input 0 \[0,1\] has shape \(4, 3\)"):
        plan(a.T, b, c)
    with pytest.raises(TypeError, match="input 0 has dtype float32, planned was f64"):
        plan(a.astype(np.float32), b, c)


CHAIN = "[[i,j],[j,k]->[i,k]],[k,l]->[i,l]"


@pytest.mark.parametrize("limit", [None, 200, 100])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_out_of_foreign_byte_order(limit: int | None, order: Any) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-9, 9, shape).astype(float) for shape in ((2, 3), (3, 7), (7, 4)))
    for _ in range(3):
        out = np.full((2, 4), np.nan, ">f8", order=order)
        assert tw.einsum_tree(CHAIN, None, [a, b, c], out=out, memory_limit=limit) is out
        np.testing.assert_array_equal(out, a @ b @ c)
    least = 7 * 8 + 2 * 4 * 8  # a row of a b, and the result, which is made before it is copied
    with pytest.raises(MemoryError, match="the least"):
        tw.einsum_tree(CHAIN, None, [a, b, c], out=out, memory_limit=64)
    assert tw.plan_tree(CHAIN, {"i": 2, "j": 3, "k": 7, "l": 4}, memory_limit=least)(a, b, c, out=out) is out
    with pytest.raises(TypeError, match="out has dtype >f4, the result has float64"):
        tw.einsum_tree(CHAIN, None, [a, b, c], out=np.empty((2, 4), ">f4"))
    number = np.empty((), ">f8")
    assert tw.einsum_tree("[i]->[]", None, [a[0]], out=number) is number and number == a[0].sum()


@pytest.mark.parametrize(
    ("tree", "sizes", "limit", "which"),
    [
        (CHAIN, (2**40, 2**40, 2, 2), None, r"input 0 \[i,j\] of f64 .* \(1099511627776, 1099511627776\)"),
        (CHAIN, (2**33, 2, 2**33, 2), None, r"the intermediate \[i,k\] of f64 .* \(8589934592, 8589934592\)"),
        (CHAIN, (2**60, 2, 2, 2**2), 10**9, r"input 0 \[i,j\] .* \(1152921504606846976, 2\)"),
        ("[i,j],[k,l]->[i,l]", (2**31, 2, 2, 2**31), 10**9, r"the result \[i,l\] .* \(2147483648, 2147483648\)"),
    ],
)
def test_shapes_that_no_array_can_have(tree: str, sizes: tuple[int, ...], limit: int | None, which: str) -> None:
    with pytest.raises(TreeError, match=which + ", which no array can have: its bytes do not fit 64 bits"):
        tw.plan_tree(tree, dict(zip("ijkl", sizes, strict=True)), memory_limit=limit)


def test_slices_need_no_array_for_the_whole_intermediate() -> None:
    sizes = {"i": 2**33, "j": 2, "k": 2**33, "l": 2}
    assert tw.plan_tree(CHAIN, sizes, memory_limit=2**40).slices > 1
    with pytest.raises(MemoryError, match="the least that slices"):
        tw.plan_tree(CHAIN, sizes, memory_limit=2**20)


def test_a_too_large_intermediate_is_told_by_its_indices() -> None:
    size = 1 << 22
    rows = np.zeros((size, 2))
    tree = "[[i,a],[j,a]->[i,j]r],[j,k]->[i,k]"
    plan = tw.plan_tree(tree, {"i": size, "j": size, "a": 2, "k": 2}, target="cpu")
    for call in (lambda: plan(rows, rows, rows), lambda: tw.einsum_tree(tree, None, [rows] * 3, target="cpu")):
        with pytest.raises(MemoryError) as refused:
            call()
        assert str(refused.value).startswith(
            f"tree {tree} needs {plan.peak_bytes} bytes (128.0 TiB) at its peak, but the host has "
        )
        assert f"the largest array is [i,j] of shape ({size}, {size}). With a memory_limit" in str(refused.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (np.ones((2, 3)), r"a single array of shape \(2, 3\)"),
        (np.float64(3), r"a single array of shape \(\)"),
        (3, "3 of type int"),
        (None, "None"),
        ("ab", "'ab'"),
        ({0: np.ones(3)}, r"\{.*of type dict"),
        ({1, 2}, r"\{.*of type set"),
    ],
)
def test_inputs_that_are_in_no_list(given: Any, told: str) -> None:
    with pytest.raises(TypeError, match="einsum_tree: arrays must be a list of the inputs, .*; it is " + told):
        tw.einsum_tree("[i],[i]->[i]", None, given)


def test_inputs_of_a_generator_again_and_again() -> None:
    for _ in range(5):  # short cuts do not use it up
        found = tw.einsum_tree("[i],[i]->[i]", None, (np.full(3, value) for value in (2.0, 3.0)))
        assert found.tolist() == [6.0, 6.0, 6.0]


@pytest.mark.parametrize("limit", [True, 4096.0, np.array(4096), "4096", -1])
def test_a_limit_that_is_no_number_of_bytes_is_refused_also_after_one_that_is(limit: Any) -> None:
    ones = np.ones((3, 3))
    tree = "[i,j],[j,k]->[i,k]"
    for number in (4096, np.int64(4096), 72):
        for _ in range(3):
            assert (tw.einsum_tree(tree, None, [ones, ones], memory_limit=number) == 3).all()
    out = np.empty((3, 3))
    for _ in range(3):  # with an `out`, one byte is enough
        tw.einsum_tree(tree, None, [ones, ones], out=out, memory_limit=1)
    with pytest.raises(ValueError, match="memory_limit must be a number of bytes, not "):
        tw.einsum_tree(tree, None, [ones, ones], out=out, memory_limit=limit)
