"""Tensor operations as values: the rules, the text forms, and what a call checks."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_support import random_contraction, random_elementwise

import tilewright as tw
from tilewright.contraction import tensor_rules
from tilewright.contraction.tensor_operation import TensorOperationError
from tilewright.contraction.tensor_rules import overlapping

MATMUL = (("M", "prim", 4, 1, 0, 1), ("N", "prim", 5, 0, 6, 4), ("K", "prim", 6, 4, 1, 0))


def operation(dimensions=MATMUL, dtype="f32", main="gemm", **more):
    return tw.TensorOperation(dtype, main, [tw.TensorDimension(*one) for one in dimensions], **more)


def matmul_with(number, **changes):
    names = ("kind", "execution", "size", "stride_in0", "stride_in1", "stride_out")
    dims = [dict(zip(names, one, strict=True)) for one in MATMUL]
    dims[number] |= changes
    return [tuple(one.values()) for one in dims]


C = ("C", "prim", 8, 1, 0, 1)
BROKEN = {
    "no main": ("primitive-supported", dict(main="none"), "must do something"),
    "copy as a touch": ("primitive-supported", dict(first_touch="copy"), "copy as first touch"),
    "relu of complex": ("primitive-supported", dict(dtype="c64", last_touch="relu"), "c64 in place"),
    "exp of integers": ("primitive-supported", dict(dtype="i8", last_touch="exp"), "exp as last touch"),
    "i64": ("dtype-supported", dict(dtype="i64"), "gemm does not compute on i64"),
    "unary c64": ("dtype-supported", dict(dimensions=[C], main="relu", dtype="c64"), "f32, f64"),
    "lost first touch": ("first-touch", dict(dimensions=[C], main="relu", first_touch="zero"), "would be lost"),
    "clamp without bounds": ("clamp-range", dict(last_touch="clamp"), "needs its bounds"),
    "bounds without clamp": ("clamp-range", dict(clamp=(0, 1)), "without a clamp"),
    "bounds out of order": ("clamp-range", dict(last_touch="clamp", clamp=(2, 1)), "2.0 and 1.0"),
    "infinite bounds": ("clamp-range", dict(last_touch="clamp", clamp=(0, float("inf"))), "inf"),
    "fractional bounds": ("clamp-range", dict(dtype="i8", last_touch="clamp", clamp=(0, 0.5)), "no values of i32"),
    "size 0": ("size-positive", dict(dimensions=matmul_with(1, size=0)), "dimension 1 .* has size 0"),
    "negative stride": ("stride-not-negative", dict(dimensions=matmul_with(2, stride_in0=-4)), "-4 in in0"),
    "M in a unary": ("kind-of-family", dict(main="relu"), "unary operation, whose dimensions are of kind C"),
    "K in a binary": ("kind-of-family", dict(main="add"), "kind M, N"),
    "M in in1": ("kind-strides", dict(dimensions=matmul_with(0, stride_in1=7)), "stride 7 in in1"),
    "N in in0": ("kind-strides", dict(dimensions=matmul_with(1, stride_in0=7)), "stride 7 in in0"),
    "K in out": ("kind-strides", dict(dimensions=matmul_with(2, stride_out=7)), "stride 7 in out"),
    "unary with in1": ("kind-strides", dict(dimensions=[("C", "prim", 8, 1, 1, 1)], main="neg"), "stride 1 in in1"),
    "zero with in0": ("kind-strides", dict(dimensions=[C], main="zero"), "stride 1 in in0"),
    "prim before seq": ("execution-order", dict(dimensions=[*MATMUL, ("M", "seq", 2, 99, 0, 99)]), "prim, seq"),
    "seq before shared": (
        "execution-order",
        dict(dimensions=[("M", "seq", 2, 99, 0, 99), ("N", "shared", 2, 0, 99, 999), *MATMUL]),
        "seq, shared",
    ),
    "shared K": ("contracted-in-order", dict(dimensions=[("K", "shared", 2, 9, 9, 0), *MATMUL]), "at once"),
    "gemm with two K": ("primitive-count", dict(dimensions=[("K", "prim", 2, 9, 9, 0), *MATMUL]), "2 K and 1 M"),
    "brgemm with one K": ("primitive-count", dict(main="brgemm"), "1 N and 2 K, got 1 K"),
    "placed contraction": ("primitive-count", dict(main="contraction"), "until it is gemm or brgemm"),
    "three of unary": (
        "primitive-count",
        dict(dimensions=[C, ("C", "prim", 2, 8, 0, 8), ("C", "prim", 2, 16, 0, 16)], main="abs"),
        "got 3 C",
    ),
    "two M of binary": (
        "primitive-count",
        dict(dimensions=[("M", "prim", 2, 1, 1, 1), ("M", "prim", 2, 2, 2, 2)], main="add"),
        "at most primitive 1 M and 1 N, got 2 M",
    ),
    "transpose of one": ("primitive-count", dict(dimensions=[C], main="transpose"), "needs 2"),
    "transpose of nothing": (
        "transpose-strides",
        dict(dimensions=[("C", "prim", 2, 8, 0, 8), C], main="transpose"),
        "unit stride in in0 and the other in out",
    ),
    "shared stride 0": (
        "output-once",
        dict(dimensions=[("M", "shared", 2, 99, 0, 0), *MATMUL]),
        "stride 0 in out: threads would write it at the same time",
    ),
    "shared overlap": (
        "output-once",
        dict(dimensions=[("M", "shared", 2, 99, 0, 8), *MATMUL]),
        "M shared 2 .* meet in one element of out: threads would write",
    ),
    "seq overlap": ("output-once", dict(dimensions=[("N", "seq", 2, 0, 99, 19), *MATMUL]), "more than once"),
    "far away": ("addressable", dict(dimensions=matmul_with(0, stride_in0=2**61)), "in0 would span"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_named(name):
    rule, arguments, message = BROKEN[name]
    with pytest.raises(TensorOperationError, match=message) as error:
        operation(**arguments)
    assert rule in {one.rule for one in error.value.broken}


def test_every_rule_has_a_test():
    listed = {line.split()[0] for line in tensor_rules.__doc__.splitlines() if line.startswith("    ")}
    assert listed == {rule for rule, *_ in BROKEN.values()} | {"same-length", "inside-arrays"}


def test_lists_of_different_lengths():
    with pytest.raises(TensorOperationError, match=r"same-length: .*dim_types has 3.*strides_in1 has 2"):
        tw.TensorOperation.from_lists("f32", "gemm", "MNK", ["prim"] * 3, (4, 5, 6), (1, 0, 4), (0, 6), (1, 4, 0))


def test_all_broken_rules_are_told():
    with pytest.raises(TensorOperationError) as error:
        operation(matmul_with(0, size=-1, stride_in1=3), last_touch="transpose")
    assert {one.rule for one in error.value.broken} == {"size-positive", "kind-strides", "primitive-supported"}


def test_errors_come_from_other_processes_as_they_are():
    with pytest.raises(TensorOperationError) as error:
        operation(matmul_with(0, size=-1, stride_in1=3))
    again = pickle.loads(pickle.dumps(error.value))
    assert str(again) == str(error.value)
    assert again.broken == error.value.broken


def test_values_of_other_types():
    with pytest.raises(ValueError, match="'Q' is not a valid Kind"):
        tw.TensorDimension("Q", "prim", 1, 0, 0, 0)
    with pytest.raises(ValueError, match="'gpu' is not a valid Execution"):
        tw.TensorDimension("M", "gpu", 1, 0, 0, 0)
    with pytest.raises(TypeError, match=r"size of a dimension is 1\.5"):
        tw.TensorDimension("M", "prim", 1.5, 0, 0, 0)
    with pytest.raises(TypeError, match="stride_out of a dimension is True"):
        tw.TensorDimension("M", "prim", 1, 0, 0, True)
    with pytest.raises(ValueError, match="'cube' is not a valid Primitive"):
        operation(main="cube")
    with pytest.raises(TypeError, match="TensorDimension"):
        tw.TensorOperation("f32", "gemm", MATMUL)
    for dimensions in (None, tw.TensorDimension(*C)):
        with pytest.raises(TypeError, match=r"the dimensions of a tensor operation are .*, not a list of TensorDim"):
            tw.TensorOperation("f32", "relu", dimensions)
    with pytest.raises(TypeError, match="is read from text as to_json gives it, not from None"):
        tw.TensorOperation.from_json(None)


@pytest.mark.parametrize(
    ("bounds", "kind"),
    [(("0", "1"), ValueError), ((b"0", 1), ValueError), ((False, True), TypeError), ((0, np.True_), TypeError)],
)
def test_bounds_of_a_clamp_are_numbers(bounds, kind):
    with pytest.raises(kind, match=r"the bounds of a clamp are \(.*\), not two numbers: .* is a t"):
        operation([C], main="clamp", clamp=bounds)
    text = operation([C], main="clamp", clamp=(0, 1)).to_json()
    with pytest.raises(ValueError, match="not two numbers: '0' is a text"):
        tw.TensorOperation.from_json(text.replace("[0.0, 1.0]", '["0", 1.0]'))


def test_bounds_of_a_clamp_are_printed_with_all_digits():
    assert "clamp(in0[c0], -2147483648, 0.1)" in str(operation([C], main="clamp", clamp=(-(2**31), 0.1)))
    assert "clamp(in0[c0], 6, 12345678.9)" in str(operation([C], main="clamp", clamp=(6, 12345678.9)))


def test_a_masked_array_is_refused():
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    relu = operation([C], main="relu").compile("cpu")
    for _ in range(3):
        with pytest.raises(TypeError, match="in0 is a masked array, whose mask would be lost"):
            relu(np.ma.masked_array(x, mask=True), None, y)
        with pytest.raises(TypeError, match="out is a masked array"):
            relu(x, None, np.ma.masked_array(y, mask=True))
        assert not y.any()
        assert relu(x, None, np.zeros(8, np.float32)).all()


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 12)), min_size=1, max_size=4))
def test_overlap_is_found_exactly(dimensions):
    offsets = np.zeros(1, int)
    for size, stride in dimensions:
        offsets = np.add.outer(offsets, np.arange(size) * stride).ravel()
    found = overlapping(tuple(dimensions))
    assert (found is None) == (len(set(offsets)) == len(offsets))
    if found is not None:
        assert any(found)
        assert sum(distance * stride for distance, (_, stride) in zip(found, dimensions, strict=True)) == 0
        assert all(abs(distance) < size for distance, (size, _) in zip(found, dimensions, strict=True))


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_json_gives_the_operation_back(seed):
    for one in (random_contraction(seed, "f16"), random_elementwise(seed, "f64", "clamp")):
        assert tw.TensorOperation.from_json(one.to_json()) == one


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("main"), "has the fields"),
        (lambda d: d.update(threads=3), "threads"),
        (lambda d: d["dimensions"][0].pop("size"), "dimension 0 has the fields"),
        (lambda d: d.update(dimensions={}), "not a list"),
        (lambda d: d.update(clamp=[1]), "not two numbers"),
        (lambda d: d.update(clamp=[1, 2, 3]), "not two numbers"),
        (lambda d: d.update(clamp=[0, 10**400]), "not two numbers"),
    ],
)
def test_json_of_another_form_is_refused(change, message):
    content = json.loads(operation().to_json())
    change(content)
    with pytest.raises(ValueError, match=message):
        tw.TensorOperation.from_json(json.dumps(content))


@pytest.mark.parametrize(
    ("clamp", "error"), [((0,), ValueError), ((0, 1, 2), ValueError), (("low", 1), ValueError), (3, TypeError),
                         ((None, 1), TypeError), ((0, 10**400), ValueError)],
)  # fmt: skip
def test_bounds_that_are_no_two_numbers_are_refused(clamp, error):
    with pytest.raises(error, match=r"the bounds of a clamp are .*, not two numbers"):
        operation(last_touch="clamp", clamp=clamp)


def test_printed_as_a_loop_nest(golden):
    blocked = operation(
        [("M", "shared", 3, 4, 0, 4), ("N", "seq", 2, 0, 210, 60), ("K", "seq", 7, 72, 6, 0), MATMUL[0],
             ("N", "prim", 5, 0, 42, 12), ("K", "prim", 6, 12, 1, 0)],
        first_touch="zero",
        last_touch="clamp",
        clamp=(0, 6),
    )  # fmt: skip
    turned = operation([("C", "shared", 2, 20, 0, 20), ("C", "prim", 4, 5, 0, 1), ("C", "prim", 5, 1, 0, 4)], "f64",
                       "transpose", last_touch="reciprocal")  # fmt: skip
    added = operation([("M", "prim", 4, 1, 0, 1), ("N", "prim", 5, 4, 1, 4)], main="max")
    summed = operation(dtype="i8", main="gemm")
    golden("contraction/tensor_operations.txt", "\n\n".join(map(str, (blocked, turned, added, summed))))


# --- calls ------------------------------------------------------------------------------------------------------------


def inputs(op):
    return [np.ones(extent, np.float32) for extent in op.extents]


def test_a_call_checks_the_arrays():
    op = operation()
    run = op.compile("cpu")
    in0, in1, out = inputs(op)
    with pytest.raises(TensorOperationError, match="inside-arrays: in1 has 29 elements, the operation reaches 30"):
        run(in0, in1[:-1], out)
    with pytest.raises(TensorOperationError, match="out has 19"):
        run(in0, in1, out[:-1])
    with pytest.raises(TypeError, match="in0 has dtype float64; the operation needs float32"):
        run(in0.astype(float), in1, out)
    with pytest.raises(TypeError, match="in1 is NoneType"):
        run(in0, None, out)
    with pytest.raises(ValueError, match="not contiguous"):
        run(np.ones((6, 8), np.float32)[:, ::2], in1, out)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        run(in0, in1, out)
    both = np.ones(64, np.float32)
    with pytest.raises(ValueError, match="in1 and out overlap"):
        run(in0, both[:30], both[29:])
    relu = operation([C], main="relu")
    with pytest.raises(TypeError, match="relu has no in1"):
        relu.compile("cpu")(in0, in0, both)


def test_arrays_of_any_shape_and_what_lies_around():
    op = operation()
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((6, 4)).astype("f"), rng.standard_normal((5, 6)).astype("f")
    c = np.zeros((7, 4), "f")
    assert op.compile("cpu")(a, np.asfortranarray(b.T), c) is c
    np.testing.assert_allclose(c[:5], b @ a, rtol=1e-5, atol=1e-6)
    assert not c[5:].any()


def test_in_place_where_the_strides_agree():
    x = np.array([-1, 2, -3, 4, -5, 6, -7, 8], np.float32)
    operation([C], main="relu").compile("cpu")(x, None, x)
    assert x.tolist() == [0, 2, 0, 4, 0, 6, 0, 8]
    pair = operation([("M", "prim", 8, 1, 1, 1)], main="sub").compile("cpu")
    y = np.arange(8, dtype=np.float32)
    assert pair(x, y, y).tolist() == [0, 1, -2, 1, -4, 1, -6, 1]
    line, column = ("M", "prim", 20, 1, 21, 1), ("N", "prim", 21, 20, 1, 20)
    crossing = operation([column, line], main="sub").compile("cpu")
    a, b = (
        np.arange(420, dtype=np.float32).reshape(21, 20),
        np.arange(420, dtype=np.float32)[::-1].reshape(20, 21).copy(),
    )
    want = a - b.T
    assert np.array_equal(crossing(a, b, a), want)
    turned = operation([("C", "prim", 4, 2, 0, 1), ("C", "prim", 2, 1, 0, 4)], main="transpose").compile("cpu")
    with pytest.raises(ValueError, match="in0 and out overlap"):
        turned(x, None, x)


@pytest.mark.parametrize("turned", [False, True])
def test_a_transpose_takes_its_dimensions_in_either_order(turned):
    """Both have unit stride in an input that overlaps itself."""
    dims = [("C", "prim", 6, 1, 0, 1), ("C", "prim", 5, 1, 0, 6)]
    run = operation(dims[::-1] if turned else dims, main="transpose").compile("cpu")
    x, y = np.arange(10, dtype=np.float32), np.empty((5, 6), np.float32)
    assert np.array_equal(run(x, None, y), np.add.outer(np.arange(5), np.arange(6)))


def test_an_unplaced_operation_is_not_compiled():
    unplaced = operation([(kind, "seq", *rest) for kind, _, *rest in MATMUL])
    with pytest.raises(ValueError, match=r"optimise\(\) finds primitive dimensions"):
        unplaced.compile("cpu")


def test_not_for_another_device(monkeypatch):
    from tilewright.machine.named import named_machine
    from tilewright.runtime.devices import Device

    with pytest.raises(ValueError, match="compiled for CPUs"):
        operation().compile(Device("cuda:0", named_machine("h100"), "a card"))


def test_threads_share_the_blocks():
    n = 40
    op = tw.TensorOperation.from_lists(
        "f64", "gemm", "MNMNK", ["shared"] * 2 + ["prim"] * 3, (3, 5, n, n, n), (n, 0, 1, 0, 3 * n),
        (0, n * n, 0, n, 1), (n, 3 * n * n, 1, 3 * n, 0), "zero")  # fmt: skip
    a, b = np.random.default_rng(1).standard_normal((2, 5 * n, n))
    before = tw.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 4):
            tw.set_num_threads(threads)
            results.append(op.compile("cpu")(a[: 3 * n].copy().T.copy(), b, np.empty((5 * n, 3 * n))))
    finally:
        tw.set_num_threads(before)
    np.testing.assert_allclose(results[0], b @ a[: 3 * n].T, rtol=1e-10, atol=1e-10)
    assert all(np.array_equal(results[0], one) for one in results[1:])


def test_repeated_calls_are_made_by_native_code_with_the_same_checks():
    """The second call finds the entry of the first; whatever does not fit takes the long way, with its messages."""
    op = operation(first_touch="zero")
    run = op.compile("cpu")
    rng = np.random.default_rng(5)
    for shape in ((6, 4), (24,), (2, 12)):  # another form of in0 replaces the entry
        for _ in range(3):
            a, b = rng.integers(-4, 5, shape).astype("f"), rng.integers(-4, 5, (5, 6)).astype("f")
            c = np.full((5, 4), np.nan, "f")
            assert run(a, b, c) is c
            assert np.array_equal(c, b @ a.reshape(6, 4))
    with pytest.raises(TensorOperationError, match="in1 has 29 elements"):
        run(a, b.ravel()[:-1], c)
    with pytest.raises(TypeError, match="in0 has dtype float64"):
        run(a.astype(float), b, c)
    with pytest.raises(ValueError, match="in1 and out overlap"):
        run(a, both := np.zeros((5, 6), "f"), both.ravel()[:20].reshape(5, 4))
    c.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        run(a, b, c)
    assert np.array_equal(run(a, b, np.ones((5, 4), "f")), b @ a.reshape(6, 4))


def test_repeated_unary_calls_take_no_second_input():
    x = np.arange(-4, 4, dtype=np.float32)
    relu, zero = operation([C], main="relu").compile("cpu"), operation([("C", "prim", 8, 0, 0, 1)], main="zero")
    zero = zero.compile("cpu")
    for _ in range(3):
        assert relu(x, None, np.empty_like(x)).tolist() == [0, 0, 0, 0, 0, 1, 2, 3]
        assert not zero(None, None, x.copy()).any()
    with pytest.raises(TypeError, match="relu has no in1"):
        relu(x, x, np.empty_like(x))
    with pytest.raises(TypeError, match="zero has no in0"):
        zero(x, None, x.copy())
    with pytest.raises(TypeError, match="in0 is NoneType"):
        relu(None, None, x)
    y = x.copy()
    assert relu(y, None, y) is y  # in place, after calls that were not
    assert y.tolist() == [0, 0, 0, 0, 0, 1, 2, 3]
