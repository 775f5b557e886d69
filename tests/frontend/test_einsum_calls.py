"""`einsum` as it is called: what it returns, where that lies, what is written into `out`, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from einsum_checks import BACKENDS, backend

import tilewright as tw
from tilewright import einsum

A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(20, dtype=np.float32).reshape(4, 5)
E2 = "ij,jk->ik"


@pytest.fixture(params=BACKENDS)
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    with backend(request.param) as name:
        yield name


# --- results ----------------------------------------------------------------------------------------------------------


def test_forms_of_a_call(target: str) -> None:
    product = A @ B
    np.testing.assert_array_equal(einsum(E2, A, B, target=target), product)
    np.testing.assert_array_equal(einsum(A, [0, 1], B, [1, 2], target=target), product)
    np.testing.assert_array_equal(einsum(A, "ab", B, "bc", "ca", target=target), product.T)
    np.testing.assert_array_equal(einsum(E2, A.tolist(), B, target=target), product)
    np.testing.assert_array_equal(einsum(A, [60, "k"], B, ["k", 70], [60, 70], target=target), product)


def test_scalars(target: str) -> None:
    result = einsum("i,i", A[0], A[0], target=target)
    assert type(result) is np.float32 and result == A[0] @ A[0]
    assert einsum(",->", 3, 4, target=target) == 12
    assert einsum("", 2.5, target=target) == 2.5
    np.testing.assert_array_equal(einsum(",i->i", 2, A[0], target=target), 2 * A[0].astype(np.float64))
    assert einsum(",->", np.array(3), np.float32(2), target=target) == 6


def test_objects_with_an_array_inside(target: str) -> None:
    class Holder:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return A

    class Exporter:
        def __dlpack__(self, **options: Any) -> Any:
            return A.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return A.__dlpack_device__()

    for one in (Holder(), Exporter()):
        np.testing.assert_array_equal(einsum(E2, one, B, target=target), A @ B)


def test_repeated_output_indices(target: str) -> None:
    np.testing.assert_array_equal(einsum("i->ii", A[0], target=target), np.diag(A[0]))
    expected = np.full((4, 4), np.inf, np.float32)
    np.fill_diagonal(expected, A.min(0))
    np.testing.assert_array_equal(einsum("ji->ii", A, semiring="min_plus", target=target), expected)
    cube = einsum("ij->iji", A, target=target)
    assert cube.shape == (3, 4, 3) and cube.sum() == A.sum() and cube[1, 2, 1] == A[1, 2]


def test_integers_wrap_and_f16_rounds_once(target: str) -> None:
    bytes_ = np.full(5, 100, np.int8)
    assert einsum("i,i->", bytes_, bytes_, target=target) == np.int8(50000 - 195 * 256)
    halves = np.full(4096, 1, np.float16)
    result = einsum("i,i->", halves, halves, target=target)
    assert result.dtype == np.float16 and result == 4096  # in f16 alone the sum would stay at 2048
    chain = einsum("i,i,j->j", halves, halves, np.float16([1 / 4096]), target=target)
    assert chain.dtype == np.float16 and chain[0] == 1


def test_bool_is_or_of_ands(target: str) -> None:
    left = np.array([[True, False], [False, False]])
    right = np.array([[True, True], [True, False]])
    np.testing.assert_array_equal(einsum(E2, left, right, target=target), np.einsum(E2, left, right))


def test_dtype_and_casting(target: str) -> None:
    small = np.full((2, 300), 100, np.int8)
    assert einsum("ij,ij->i", small, small, dtype=np.int32, target=target).tolist() == [3000000, 3000000]
    assert einsum(E2, A, B, dtype="f64", target=target).dtype == np.float64
    halved = einsum("ij->j", A, dtype="f2", casting="same_kind", target=target)
    assert halved.dtype == np.float16
    words = einsum("i,i->i", np.arange(3.0), np.arange(3.0), dtype="?", casting="unsafe", target=target)
    assert words.tolist() == [False, True, True]
    objects = np.array([1, 2, 3], dtype=object)
    assert einsum("i->", objects, dtype="i4", casting="unsafe", target=target) == np.int32(6)


def test_foreign_byte_order_and_unaligned_operands(target: str) -> None:
    big = A.astype(">f4")
    assert einsum(E2, big, B, target=target).dtype == np.dtype("f4")
    np.testing.assert_array_equal(einsum(E2, big, B, target=target), A @ B)
    record = np.zeros(4, dtype=[("tag", "u1"), ("value", "f4")])
    record["value"] = A[0]
    np.testing.assert_array_equal(einsum("i,ij->j", record["value"], B, target=target), A[0] @ B)
    np.testing.assert_array_equal(einsum("i,i->i", record["value"], A[0], target=target), A[0] * A[0])
    out = np.zeros(4, dtype=[("tag", "u1"), ("value", ">f4")])
    einsum("i,i->i", A[0], A[0], out=out["value"], target=target)
    np.testing.assert_array_equal(out["value"], A[0] * A[0])
    assert not out["tag"].any()


def test_zero_sizes(target: str) -> None:
    nothing = np.zeros((0, 4), np.float32)
    assert einsum(E2, nothing, B, target=target).shape == (0, 5)
    np.testing.assert_array_equal(
        einsum("ji,jk->ik", nothing, np.zeros((0, 5), np.float32), target=target), np.zeros((4, 5))
    )
    infinite = np.array([np.inf])
    assert einsum("i,j->j", np.zeros(0), infinite, target=target).tolist() == [0.0]  # not 0 * inf
    empty = einsum("i,j->j", np.zeros(0, np.int8), np.int8([5]), semiring="min_plus", target=target)
    assert empty.tolist() == [127]


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_order_follows_numpy() -> None:
    operands = (np.ones((2, 3, 5), order="F"), np.ones((4, 3), order="F"))
    for order in "KACFkacf":
        ours = einsum("...ft,mf->...mt", *operands, order=order)
        assert ours.strides == np.einsum("...ft,mf->...mt", *operands, order=order).strides, order
    random = np.random.default_rng(0)
    for _ in range(50):
        shape = dict(zip("abcd", random.integers(1, 4, 4), strict=True))
        terms = ["".join(random.permutation(list("abcd"))[: random.integers(1, 5)]) for _ in range(2)]
        used = sorted(set("".join(terms)))
        output = "".join(random.permutation(used)[: random.integers(0, len(used) + 1)])
        arrays = []
        for term in terms:
            axes = random.permutation(len(term))
            whole = np.ones([shape[term[axis]] for axis in axes])
            arrays.append(whole.transpose(np.argsort(axes)))
        expression = ",".join(terms) + "->" + output
        assert einsum(expression, *arrays).flags.c_contiguous or not output
        ours, theirs = einsum(expression, *arrays, order="K"), np.einsum(expression, *arrays)
        np.testing.assert_array_equal(ours, theirs)
        moving = [axis for axis in range(len(output)) if theirs.shape[axis] > 1]
        assert [ours.strides[axis] for axis in moving] == [theirs.strides[axis] for axis in moving], expression


def test_views_share_memory_and_are_writeable() -> None:
    array = np.arange(27.0).reshape(3, 3, 3)
    for expression, same in (
        ("ijk->kij", array.transpose(2, 0, 1)),
        ("iii->i", array[[0, 1, 2], [0, 1, 2], [0, 1, 2]]),
    ):
        view = einsum(expression, array)
        assert view.base is array.base and view.flags.writeable
        np.testing.assert_array_equal(view, same)
    einsum("iij->ij", array)[...] = -1
    assert (array[1, 1] == -1).all() and array[0, 1, 0] != -1
    array.flags.writeable = False
    assert not einsum("iij->ij", array).flags.writeable
    assert not np.shares_memory(einsum("ij->ji", A, order="C"), A)
    assert not np.shares_memory(einsum("ij->ji", A, dtype="f8"), A)


def test_out_is_written_and_returned(target: str) -> None:
    out = np.full((5, 3), 7, np.float32).T[::-1]
    assert einsum(E2, A, B, out=out, target=target) is out
    np.testing.assert_array_equal(out, A @ B)
    wide = np.zeros((3, 5))
    np.testing.assert_array_equal(einsum(E2, A, B, out=wide, target=target), A @ B)
    narrow = np.zeros((3, 5), np.int16)
    einsum(E2, A, B, out=narrow, casting="unsafe", target=target)
    np.testing.assert_array_equal(narrow, A @ B)
    scalar = np.zeros((), np.float32)
    assert einsum("ij->", A, out=scalar, target=target) is scalar and scalar == A.sum()
    copied = np.zeros((4, 3), np.float32)
    assert einsum("ij->ji", A, out=copied, target=target) is copied
    np.testing.assert_array_equal(copied, A.T)


# --- semirings, epilogues ---------------------------------------------------------------------------------------------


def test_semirings(target: str) -> None:
    sums = A[:, :, None] + B[None]
    products = A[:, :, None] * B[None]
    for semiring, expected in (("min_plus", sums.min(1)), ("max_plus", sums.max(1)), ("max_times", products.max(1))):
        np.testing.assert_array_equal(einsum(E2, A, B, semiring=semiring, target=target), expected)
    np.testing.assert_allclose(
        einsum(E2, A, B, semiring="log_sum_exp", target=target), np.logaddexp.reduce(sums.astype("f8"), 1), rtol=1e-6
    )
    words = np.array([[1, 6], [8, 3]], np.uint8)
    expected = np.bitwise_or.reduce(words[:, :, None] & words[None], 1)
    np.testing.assert_array_equal(einsum(E2, words, words, semiring="or_and", target=target), expected)


def test_log_sum_exp_of_infinities(target: str) -> None:
    values = np.array([[-np.inf, -np.inf], [-np.inf, 1.0], [1000.0, 1000.0], [np.inf, 0.0], [-1000.0, -1001.0]])
    result = einsum("ij->i", values, semiring="log_sum_exp", target=target)
    np.testing.assert_allclose(result, np.logaddexp.reduce(values, 1), rtol=1e-14)


def test_max_times_of_negative_factors_is_not_factored(target: str) -> None:
    a, b, c = np.array([1.0, -2.0]), np.array([-3.0, 4.0]), np.array([-1.0, 5.0])
    expected = (a[:, None, None] * b[:, None] * c).max()
    assert einsum("i,j,k->", a, b, c, semiring="max_times", target=target) == expected


def test_own_semiring(target: str) -> None:
    manhattan = tw.Semiring(lambda a, b: abs(a - b), lambda a, b: a + b, 0, name="manhattan")
    expected = np.abs(A[:, :, None] - B[None]).sum(1)
    np.testing.assert_array_equal(einsum(E2, A, B, semiring=manhattan, target=target), expected)


def test_epilogue_with_operands(target: str) -> None:
    bias = np.linspace(-300, 100, 5, dtype=np.float32)
    scale = np.array([[1], [2], [3]], np.float32)
    expected = np.maximum((A @ B + bias) * scale, 0)

    def activate(c: Any, b: Any, s: Any) -> Any:
        return tw.relu((c + b) * s)

    for operands in ([(bias, "k"), (scale, "ik")], [bias, scale], [(bias[None], "ik"), (scale[:, 0], ["i"])]):
        result = einsum(E2, A, B, epilogue=activate, epilogue_operands=operands, target=target)
        np.testing.assert_array_equal(result, expected)
    positive = einsum(E2, A, B, epilogue=lambda c, t: c > t, epilogue_operands=[100], target=target)
    assert positive.dtype == bool
    np.testing.assert_array_equal(positive, A @ B > 100)
    shifted = einsum("i->ii", A[0], epilogue=lambda c, b: c + b, epilogue_operands=[np.ones((4, 4))], target=target)
    np.testing.assert_array_equal(shifted, np.diag(A[0]) + 1)
    total = einsum("ij->", A, epilogue=np.sqrt, target=target)
    np.testing.assert_allclose(total, np.sqrt(A.sum()), rtol=1e-6)


def test_alpha_and_beta(target: str) -> None:
    out = np.ones((3, 5), np.float32)
    assert einsum(E2, A, B, out=out, alpha=2, beta=-3, target=target) is out
    np.testing.assert_array_equal(out, 2 * (A @ B) - 3)
    np.testing.assert_array_equal(einsum(E2, A, B, alpha=0.5, target=target), A @ B / 2)
    diagonal = np.ones((4, 4), np.float32)
    einsum("i->ii", A[0], out=diagonal, beta=1, target=target)
    np.testing.assert_array_equal(diagonal, np.diag(A[0]) + 1)
    total = np.array(5, np.int32)
    einsum("i->", np.arange(3, dtype=np.int32), out=total, beta=10, target=target)
    assert total == 53


# --- refusals ---------------------------------------------------------------------------------------------------------

OUT = np.zeros((3, 5), np.float32)
INTEGERS = (A.astype(np.int64), B.astype(np.int64))
ADD = {"epilogue": np.add}
READ_ONLY = OUT.copy()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((), {}, ValueError, "needs an expression and operands"),
        ((E2,), {}, ValueError, "is of 2 operands"),
        ((E2, A, B, B), {}, ValueError, r"is of 2 operands \(0: ij, 1: jk\), but 3 were given"),
        ((0, 0), {}, TypeError, "operand 0 needs a sequence of indices"),
        ((None,) * 63, {}, TypeError, "operand 0 needs a sequence of indices"),
        ((A,), {}, TypeError, "it was given only"),
        ((E2, A, B.T), {}, ValueError, "index 'j' has size 4 in operand 0, but size 5 in operand 1"),
        ((E2, A, [["x"]]), {}, TypeError, "operand 1: dtype <U1 is not supported"),
        ((E2, A, None), {}, TypeError, "None of type NoneType is no array of numbers"),
        ((E2, A, [[1, 2], [3]]), {}, ValueError, r"\[\[1, 2\], \[3\]\] is no array: its rows are of different lengths"),
        ((E2, A, np.ma.masked_less(B, 3)), {}, TypeError, "a masked array's mask would be lost"),
        ((E2, A, B), {"target": 3}, TypeError, "target must be a device's name or a Device, not 3 of type int"),
        ((E2, A, B.astype(np.longdouble)), {}, TypeError, "operand 1: dtype longdouble is not supported|float128"),
        ((E2, A, B), {"out": "text"}, TypeError, "out must be a NumPy array"),
        ((E2, A, B), {"out": OUT.T}, ValueError, r"out has shape \(5, 3\), but the result has shape \(3, 5\)"),
        ((E2, A, B), {"out": READ_ONLY}, ValueError, "out is read-only"),
        ((E2, A, B), {"out": OUT.astype(int)}, TypeError, "may not be cast to out's dtype int64 by the rule 'safe'"),
        ((E2, A, B), {"out": np.broadcast_to(OUT[:1], (3, 5))}, ValueError, "out lie on one another|read-only"),
        (("ij,jk->ij", A, B), {"out": A}, ValueError, "out shares memory with operand 0"),
        ((E2, A, B), {"dtype": "f2"}, TypeError, "operand 0 of dtype float32 may not be cast to float16"),
        ((E2, A, B), {"dtype": "nonsense"}, TypeError, "nonsense"),
        ((E2, A, B), {"dtype": A}, TypeError, r"^einsum 'ij,jk->ik': array\([^;]{,40} is no dtype; supported"),
        (("\ud800j,jk->\ud800k", A, B), {}, ValueError, r"unexpected '\\ud800' in '\\ud800j'; an index is one letter"),
        ((E2, A, B), {"casting": "blah"}, ValueError, "casting must be one of"),
        ((E2, A, B), {"casting": "same_value"}, ValueError, "casting must be one of"),
        ((E2, A, B), {"order": "W"}, ValueError, "order must be None or one of"),
        ((E2, A, B), {"optimize": "fast"}, ValueError, "unknown optimize 'fast'"),
        ((E2, A, B), {"optimize": [(0, 1), (0, 1)]}, tw.frontend.einsum_path.PathError, "operands are left"),
        ((E2, A, B), {"semiring": "minplus"}, ValueError, "unknown semiring 'minplus'; did you mean 'min_plus'"),
        ((E2, A, B), {"semiring": 3}, TypeError, "semiring must be a name or a tw.Semiring"),
        ((E2, A, B), {"semiring": "or_and"}, TypeError, "semiring or_and is not defined on f32"),
        ((E2, A * 1j, B), {"semiring": "min_plus"}, TypeError, "semiring min_plus .* c64"),
        ((E2, *INTEGERS), {"semiring": "log_sum_exp"}, TypeError, "log_sum_exp is not defined on i64"),
        ((E2, A, B), {"epilogue_operands": [OUT]}, ValueError, "1 epilogue operands, but no epilogue"),
        ((E2, A, B), ADD | {"epilogue_operands": [(A[0], "j")]}, ValueError, "'j' is no index of the output"),
        ((E2, A, B), ADD | {"epilogue_operands": [(A[0], "k")]}, ValueError, "size 4 there, but 5"),
        ((E2, A, B), ADD | {"epilogue_operands": [(A, "k")]}, ValueError, "2 dimensions, but 1 indices"),
        ((E2, A, B), ADD | {"epilogue_operands": [A[None]]}, ValueError, "3 dimensions, the result only 2"),
        ((E2, A, B), ADD | {"epilogue_operands": [1j]}, TypeError, "of dtype complex128 cannot become f32"),
        ((E2, A, B), ADD | {"epilogue_operands": A}, TypeError, "must be a list of arrays"),
        ((E2, A, B), {"beta": 1}, ValueError, "beta = 1 needs out"),
        ((E2, A, B), {"alpha": 1j}, TypeError, "alpha = 1j is no float32"),
        ((E2, A, B), {"alpha": 2, "semiring": "max_plus"}, ValueError, "do not go with the semiring max_plus"),
        ((E2, A, B), {"alpha": A}, TypeError, "alpha must be a number"),
        ((E2, A, B), {"beta": "2", "out": OUT}, TypeError, "beta must be a number, not '2' of type str"),
        ((E2, A, B), {"alpha": np.array(0.5)}, TypeError, "alpha must be a number, not array"),
        ((E2, A, B), {"tiles": 3}, TypeError, "tiles must map indices to tile sizes"),
        ((E2, A, B), {"epilogue": 3}, TypeError, "epilogue must be a function of an element, not 3"),
        ((E2, A, B), {"epilogue": lambda x, y: x + y}, TypeError, r"<lambda>\(x, y\) is called with an element of the"),
        ((A, [0, 1], A[0]), {}, TypeError, "among the indices of the output is no index"),
        ((A, [0, A]), {}, TypeError, "among the indices of operand 0 is no index"),
        ((b"ij,jk", A, B), {}, TypeError, r"needs an expression \(a str\)"),
        ((E2, A, B), {"bad_argument": 1}, TypeError, "bad_argument"),
        ((E2, A, B), {"target": "abacus"}, RuntimeError, "'abacus' names no device"),
        (("ij->ji", A), {"target": "abacus"}, RuntimeError, "'abacus' names no device"),  # though a view needs none
    ],
)  # fmt: skip
def test_refusals(arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str) -> None:
    for _ in range(2):  # nothing of a refused call is remembered as right
        with pytest.raises(error, match=message):
            einsum(*arguments, **options)


def test_nothing_is_written_by_a_refused_call() -> None:
    out = np.full((3, 5), 7, np.float32)
    with pytest.raises(ValueError, match="size 4"):
        einsum(E2, A, B.T, out=out)
    assert (out == 7).all()


def test_a_second_call_is_bound_already() -> None:
    from tilewright.frontend import einsum as module

    with backend("interpreter") as target:
        calls = module._CALLS
        einsum(E2, A, B, target=target)
        einsum(E2, A + 1, B, target=target)
        assert len(calls) == 1
        einsum(E2, A.astype("f8"), B, target=target)
        einsum(E2, A[:, ::-1], B, target=target)
        einsum(E2, A, B, target=target, optimize=[(0, 1)])
        einsum(A, [0, 1], B, [1, 2], target=target)
        assert len(calls) == 5
