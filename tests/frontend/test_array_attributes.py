"""What traced arrays do not have is refused with what is written in its place."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (
            lambda xs: xs.sort(),
            AttributeError,
            r"\[n\]f64 has no attribute 'sort' .*; it has sum, .* and there are the functions of tilewright",
        ),
        (lambda xs: xs.fill(0), AttributeError, "has no attribute 'fill' .* there are the functions of tilewright"),
        (lambda xs: xs @ 2.0, TypeError, "@: argument 1 must be an array, not 2.0"),
        (lambda xs: xs @ tw.iota(3), TypeError, r"@ of xs of type \[n\]f64 and .*\[3\]i64: the last size"),
    ],
)
def test_refused_with_what_is_right(use: Callable[..., Any], error: type[Exception], message: str) -> None:
    def program(xs: tw.f64["n"]) -> Any:
        return use(xs)

    with pytest.raises(error, match=message):
        tw.program(program)(np.ones(3))


def test_the_product_that_the_message_names() -> None:
    @tw.program
    def product(a: tw.f64["n", "k"], b: tw.f64["k", "m"]) -> Any:
        return tw.map(lambda row: tw.map(lambda column: tw.reduce("add", 0, row * column), tw.transpose(b)), a)

    a, b = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5)
    assert np.array_equal(product(a, b), a @ b)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("k", "k"),
        ("nk", "k"),
        ("k", "km"),
        ("nk", "km"),
        ("bnk", "bkm"),
        ("bnk", "km"),
        ("bnk", "k"),
        ("nk", "bkm"),
        ("abnk", "bkm"),
        ("bnk", "abkm"),
        ("1nk", "bkm"),
        ("bnk", "1km"),
        ("1nk", "1km"),
        ("a1nk", "bkm"),
    ],
)
@pytest.mark.parametrize("dtype", ["f64", "i32", "bool"])
def test_products_of_vectors_matrices_and_stacks(left: str, right: str, dtype: str) -> None:
    def product(x: Any, y: Any) -> Any:
        return x @ y, np.matmul(x, y)

    def typed(name: str) -> Any:
        return getattr(tw, "bool_" if dtype == "bool" else dtype)[tuple(1 if one == "1" else one for one in name)]

    product.__annotations__ = {"x": typed(left), "y": typed(right)}
    sizes = {"a": 2, "b": 2, "n": 3, "k": 4, "m": 5, "1": 1}
    a, b = (
        np.arange(1 + np.prod([sizes[one] for one in name]))[1:].reshape([sizes[one] for one in name]) % 7
        for name in (left, right)
    )
    a, b = ((one % 2 == 0) if dtype == "bool" else one.astype({"f64": "f8", "i32": "i4"}[dtype]) for one in (a, b))
    for result in tw.program(product)(a, b):
        assert np.asarray(result).dtype == (a @ b).dtype
        np.testing.assert_array_equal(result, a @ b)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (("n", "m"), ("k", "l"), r"x of type \[n\]\[m\]f64 and y of type \[k\]\[l\]f64: .* but one .* m and k, "),
        (("n",), ("k",), r"x of type \[n\]f64 and y of type \[k\]f64: the last .* the first .* n and k, are not known"),
        ((2, 3), (4, 5), "3 and 4, must be equal$"),
        (("n", 1), ("k", "m"), "1 and k, are not known to be equal; write one name for both"),
        (("b", "n", "m"), ("c", "m", "l"), r"the numbers of matrices, b and c, are not known to be equal"),
        (("m",), ("b", "k", "l"), r"x of type \[m\]f64 and y of type \[b\]\[k\]\[l\]f64: .* m and k, are not"),
    ],
)
def test_products_that_do_not_fit(left: Any, right: Any, message: str) -> None:
    def product(x: Any, y: Any) -> Any:
        return x @ y

    product.__annotations__ = {"x": tw.f64[left], "y": tw.f64[right]}
    with pytest.raises(TypeError, match=f"in program product: @ of .*{message}"):
        tw.program(product).trace()


def test_shapes_that_nothing_can_be_broadcast_to() -> None:
    def broadcast(x: Any, shape: Any) -> Any:
        def told(x: Any) -> Any:
            return np.broadcast_to(x, shape)

        told.__annotations__ = {"x": x}
        return tw.program(told)

    named = r"numpy.broadcast_to of x of type \[n\]\[m\]f64 to the shape \(2, 3, 4\): dimension 0, of n .* have 3;"
    with pytest.raises(TypeError, match=f"{named} .* tw.reshape$"):
        broadcast(tw.f64["n", "m"], (2, 3, 4)).trace()
    with pytest.raises(TypeError, match=r"dimension 1, of 5 elements, is to have 4; only .* can be broadcast$"):
        broadcast(tw.f64[3, 5], (3, 4)).trace()
    column = np.arange(3.0)[:, None]
    np.testing.assert_array_equal(broadcast(tw.f64[3, 1], (2, 3, 4))(column), np.broadcast_to(column, (2, 3, 4)))


def test_products_of_matrices_are_contractions() -> None:
    @tw.program
    def product(a: tw.f64["n", "k"], b: tw.f64["k", "m"]) -> Any:
        return a @ b

    assert "a contraction over n:M[n], m:N[m], k:K[k]" in product.explain()


@pytest.mark.parametrize(
    "shapes",
    [("nm", "m"), ("m", "nm"), ("bnm", "m"), ("nm", "bnm"), ("bnm", "nm", "m"), ("m", "", "bnm"), ("", "nm", "m")],
)
def test_arrays_of_fewer_dimensions_go_with_each_row(shapes: tuple[str, ...]) -> None:
    def combined(*arrays: Any) -> Any:
        x, y, z = (*arrays, 2.0)[:3]
        return x * y - z, np.maximum(x, y), tw.where(y < x, x, z), np.hypot(x, z)

    def program(x: Any, y: Any, z: Any = 2.0) -> Any:
        return combined(x, y, z)

    def program_of_two(x: Any, y: Any) -> Any:
        return combined(x, y)

    used = program if len(shapes) == 3 else program_of_two
    used.__annotations__ = {
        name: tw.f64[tuple(shape)] if shape else tw.f64 for name, shape in zip("xyz", shapes, strict=False)
    }
    sizes, rng = {"b": 2, "n": 3, "m": 4}, np.random.default_rng(0)
    given = [rng.standard_normal([sizes[one] for one in shape])[()] for shape in shapes]
    x, y, z = (*given, 2.0)[:3]
    for found, expected in zip(
        tw.program(used)(*given), (x * y - z, np.maximum(x, y), np.where(y < x, x, z), np.hypot(x, z)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(("left", "right"), [("nm", "n"), ("bnm", "bn"), ("bnm", "bm"), ("nm", "mn")])
def test_other_shapes_are_refused(left: str, right: str) -> None:
    def total(x: Any, y: Any) -> Any:
        return x + y

    total.__annotations__ = {"x": tw.f64[tuple(left)], "y": tw.f64[tuple(right)]}
    sizes = {"b": 2, "n": 3, "m": 4}
    with pytest.raises(TypeError, match=r"in program total: elementwise operation on x .* and y .*the other's rows"):
        tw.program(total)(*(np.ones([sizes[one] for one in name]) for name in (left, right)))
