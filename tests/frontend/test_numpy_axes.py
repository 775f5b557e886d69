"""NumPy's functions and methods over axes and of shapes, of traced arrays: values and dtypes are NumPy's."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_checks import check

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.scalars import scalar_type_of

DTYPES = ("bool", "int8", "uint8", "int32", "uint32", "int64", "float16", "float32", "float64", "complex64")


def _values(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        return random.integers(0, 5, shape).astype(dtype)
    values = random.choice([-2.5, -1.0, 0.0, 0.5, 1.0, 3.0], shape)
    return (values + 1j * values[..., ::-1]).astype(dtype) if dtype == "complex64" else values.astype(dtype)


def _program(function: Callable[..., Any], *arrays: Any, named: bool = True) -> Any:
    """A program of the function, whose arrays have sizes with names, those of 1 and all if not `named` numbers."""

    def of_one(p: Any) -> Any:
        return function(p)

    def of_two(p: Any, q: Any) -> Any:
        return function(p, q)

    program: Callable[..., Any] = (of_one, of_two)[len(arrays) - 1]
    for parameter, array in zip("pq", arrays, strict=False):
        shape = tuple(extent if extent == 1 or not named else f"n{extent}" for extent in array.shape)
        element = getattr(tw, "bool_" if array.dtype == bool else scalar_type_of(array.dtype).name)
        program.__annotations__[parameter] = element[shape]
    return tw.program(program)


def _assert_as_numpy(function: Callable[..., Any], *arrays: Any, named: bool = True) -> None:
    expected = function(*arrays)
    program = _program(function, *arrays, named=named)
    interpreted = interpret(program.trace(*(one.dtype for one in arrays)), list(arrays))
    for found in (program(*arrays), *interpreted):
        assert np.asarray(found).dtype == np.asarray(expected).dtype
        assert np.shape(found) == np.shape(expected)
        kind = np.asarray(expected).dtype
        # Sums of up to 60 terms of magnitude 3, and quotients and roots of them: 64 roundings of them all.
        bound = 64 * 180 * float(np.finfo(kind).eps) if kind.kind in "fc" else 0
        np.testing.assert_allclose(found, expected, rtol=0, atol=bound, equal_nan=True)


FOLDS: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all, "mean": np.mean,
    "var": np.var, "std": np.std, "count_nonzero": np.count_nonzero, "argmax": np.argmax, "argmin": np.argmin,
    "cumsum": np.cumsum, "cumprod": np.cumprod,
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDS)
@settings(max_examples=max(6, settings().max_examples // 8))
@given(data=st.data())
def test_folds_and_scans_over_axes(name: str, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=3), label="shape"))
    dtype = data.draw(st.sampled_from(DTYPES), label="dtype")
    if dtype == "complex64" and name in ("max", "min", "argmax", "argmin"):
        return
    one_axis = name.startswith(("arg", "cum"))
    axes = st.none() | st.integers(-len(shape), len(shape) - 1)
    if not one_axis and len(shape) > 1:
        axes |= st.permutations(range(len(shape))).map(lambda order: tuple(order[:2]))
    options: dict[str, Any] = {"axis": data.draw(axes, label="axis")}
    if not name.startswith("cum"):
        options["keepdims"] = data.draw(st.booleans(), label="keepdims")
    if name in ("var", "std"):
        options["ddof"] = data.draw(st.sampled_from([0, 0.5]), label="ddof")
    values = _values(dtype, shape, data.draw(st.integers(0, 99), label="seed"))
    _assert_as_numpy(lambda x: FOLDS[name](x, **options), values, named=data.draw(st.booleans(), label="named"))


@pytest.mark.parametrize("name", [one for one in FOLDS if one != "count_nonzero"])
def test_methods_are_the_functions(name: str) -> None:
    _assert_as_numpy(lambda x: getattr(x, name)(axis=1), _values("float64", (3, 4), 1))
    _assert_as_numpy(lambda x: getattr(x, name)(), _values("int32", (3, 4), 1))


@pytest.mark.parametrize("where", [(), (0,), (3,), (1, 3), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min"])
def test_nan_comes_first(name: str, where: tuple[int, ...]) -> None:
    values = np.array([1.0, -np.inf, np.inf, -2.0, np.inf])
    values[list(where)] = np.nan
    _assert_as_numpy(FOLDS[name], values)
    _assert_as_numpy(FOLDS[name], np.full(3, -np.inf))
    _assert_as_numpy(FOLDS[name], np.full(3, np.inf))


@pytest.mark.parametrize("count", [100, 5000, 300_000])
@pytest.mark.parametrize("name", ["argmax", "argmin", "sum", "mean", "std"])
def test_long_rows(name: str, count: int) -> None:
    values = np.random.default_rng(3).integers(-1000, 1000, count).astype(np.float64)
    program = _program(FOLDS[name], values)
    np.testing.assert_allclose(program(values), FOLDS[name](values), rtol=1e-13)
    if name.startswith("arg"):
        values[[count // 2, count - 1]] = np.nan
        assert program(values) == count // 2


SHAPES: dict[str, Callable[..., Any]] = {
    "new dimensions": lambda x: x[:, None, ..., None] * x[None, 0, :, None],
    "new dimension alone": lambda x: x[None],
    "expand_dims": lambda x: np.expand_dims(x, (0, -1)),
    "squeeze": lambda x: np.squeeze(x[:, None, :, None]),
    "squeeze an axis": lambda x: x[:, None].squeeze(axis=1),
    "swapaxes": lambda x: x.swapaxes(0, -1),
    "moveaxis": lambda x: np.moveaxis(x[None], [0, 2], [-1, 0]),
    "ravel": lambda x: x.ravel() + np.ravel(x) + x.flatten(),
    "stack": lambda x: np.stack([x, 2 * x], axis=1) + np.stack([x, x], axis=-2),
    "vstack": lambda x: np.vstack([x, x[0]]) if x.ndim == 1 else np.vstack([x, x]),
    "vectors in rows": lambda x: np.vstack([x[0], x[1]]),
    "hstack": lambda x: np.hstack([x, x]),
    "hstack of vectors": lambda x: np.hstack([x[0], x[1]]),
    "repeat": lambda x: np.repeat(x, 3),
    "repeat rows": lambda x: x.repeat(2, axis=0),
    "repeat columns": lambda x: np.repeat(x, 2, axis=1),
    "tile": lambda x: np.tile(x, 2),
    "tile both": lambda x: np.tile(x, (2, 3)),
    "tile more": lambda x: np.tile(x, (2, 1, 3)),
    "like": lambda x: np.zeros_like(x) + np.ones_like(x) * np.full_like(x, 3),
    "reshape": lambda x: np.reshape(x, (-1,)),
    "transpose": lambda x: x.transpose() + x.transpose(1, 0) + np.transpose(x),
    "clip, round, copy": lambda x: x.clip(0, 2).copy() + x.round(),
}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str, named: bool) -> None:
    for dtype in ("float64", "int32"):
        _assert_as_numpy(SHAPES[name], _values(dtype, (3, 4), 5), named=named)


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "dot of vectors": (np.dot, (4,), (4,)),
    "dot of matrices": (np.dot, (2, 4), (4, 3)),
    "dot of stacks": (np.dot, (2, 4), (5, 4, 3)),
    "dot by a scalar": (lambda x, y: np.dot(x, 2) + y.dot(0), (4,), (4,)),
    "method": (lambda x, y: x.dot(y), (2, 4), (4,)),
    "inner": (np.inner, (2, 4), (3, 4)),
    "outer": (np.outer, (2, 4), (3,)),
    "vdot": (np.vdot, (2, 4), (2, 4)),
    "trace": (lambda x, y: np.trace(x) + y.trace(), (3, 3), (3, 3)),
    "traces beyond": (lambda x, y: np.trace(x, 9) + y.trace(-9), (3, 4), (5, 3)),
    "diagonals": (lambda x, y: np.diagonal(x) + np.diag(x) + y, (3, 3), (3,)),
    "a diagonal matrix": (lambda x, y: np.diag(x) + y, (3,), (3, 3)),
}


@pytest.mark.parametrize("dtype", ["float64", "complex64", "int32"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, dtype: str) -> None:
    function, left, right = PRODUCTS[name]
    if name == "dot by a scalar" and dtype != "float64":
        return  # 2 is an array of i64 for NumPy here, where it adapts to the array in a program, as in x * 2
    _assert_as_numpy(function, _values(dtype, left, 1), _values(dtype, right, 2))


@settings(max_examples=max(10, settings().max_examples // 4))
@given(data=st.data())
def test_broadcasting(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from([2, 3, 5]), min_size=1, max_size=3))
    shapes = [
        tuple(1 if data.draw(st.integers(0, 2)) == 0 else extent for extent in shape[data.draw(st.integers(0, 2)) :])
        for _ in range(2)
    ]
    arrays = [_values("float64", one, seed) for seed, one in enumerate(shapes) if one]
    if len(arrays) == 2:
        _assert_as_numpy(lambda x, y: np.maximum(x - y, y * 2), *arrays)


def test_what_numpy_users_write() -> None:
    def softmax(x: Any) -> Any:
        shifted = np.exp(x - x.max(axis=-1, keepdims=True))
        return shifted / shifted.sum(axis=-1, keepdims=True)

    def standardised(x: Any) -> Any:
        return (x - x.mean(axis=0)) / x.std(axis=0)

    def distances(x: Any, y: Any) -> Any:
        return np.sqrt(((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=-1))

    x, y = _values("float64", (5, 4), 8), _values("float64", (3, 4), 9)
    _assert_as_numpy(softmax, x)
    _assert_as_numpy(standardised, x + np.arange(5)[:, None])
    _assert_as_numpy(distances, x, y)
    _assert_as_numpy(lambda x: np.linalg.norm(x, axis=1) + np.linalg.norm(x), x)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda x: np.sum(x, where=x > 0), "numpy.sum of traced arrays: got an unexpected keyword argument 'where'"),
        (lambda x: x.sum(axis=2), "there is no dimension 2 in x"),
        (lambda x: x.sum(axis=(0, -2)), "names a dimension twice"),
        (lambda x: np.squeeze(x, 0), "dimension 0 has n elements, not 1"),
        (lambda x: np.expand_dims(x, 4), "axis 4 for a result of 3 dimensions"),
        (lambda x: np.stack([x, x], axis=4), "no dimension 4 in a result of 3"),
        (lambda x: np.moveaxis(x, [0, 0], [0, 1]), "no equally many different"),
        (lambda x: np.linalg.norm(x, 1), "ord=1 of 2 dimensions cannot be traced"),
        (lambda x: (x + 1j).max(), "complex numbers have no order"),
        (np.median, "no sorting in programs"),
        (lambda x: x.sort(), "has no attribute 'sort' .*it has sum, prod"),
    ],
)
def test_errors(write: Callable[..., Any], message: str) -> None:
    def program(x: tw.f64["n", "m"]) -> Any:
        return write(x)

    with pytest.raises((TypeError, AttributeError), match=message):
        tw.program(program).trace()


@pytest.mark.parametrize("scalar", [tw.f32, tw.i32, tw.u8], ids=str)
def test_of_no_elements(scalar: Any) -> None:
    @tw.program
    def folded(xs: scalar["n"], xss: scalar["m", "n"]):
        return np.max(xs), np.min(xs), np.argmax(xs), np.argmin(xs), np.ptp(xs), np.ptp(xss, axis=1)

    dtype = scalar.scalar.numpy
    limits = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    expected = (*(dtype.type(one) for one in limits), np.int64(0), np.int64(0), dtype.type(0), np.zeros(2, dtype))
    check(folded, (np.zeros(0, dtype), np.zeros((2, 0), dtype)), expected)
    xs, xss = np.array([3, 9, 4], dtype), np.array([[3, 9, 4], [2, 2, 2]], dtype)
    check(folded, (xs, xss), (xs.max(), xs.min(), xs.argmax(), xs.argmin(), np.ptp(xs), np.ptp(xss, axis=1)))
