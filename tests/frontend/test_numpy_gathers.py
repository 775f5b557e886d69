"""NumPy's gathers, borders and neighbours in traced programs, against NumPy."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.interpreter import interpret

each_device = pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])

V = np.arange(1.0, 6.0)
Y = np.arange(12.0).reshape(3, 4)
X = np.arange(24.0).reshape(2, 3, 4)
AT = np.array([2, 0, -1, -3])
TABLE = np.array([[1, -2, 0], [0, 3, -4]])
SORTED = np.array([0.0, 1.0, 1.0, 4.0, 9.0])
ODD = np.array([np.nan, np.inf, -np.inf, 1.0, 0.5, 4.0, 10.0])


def typed(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """A program of a function of arrays, each with sizes of its own."""
    parameters = []
    for name, one in zip("abcd", arguments, strict=False):
        kind = {"f8": "f64", "i8": "i64", "f4": "f32", "i4": "i32", "b1": "bool_", "c16": "c128"}[one.dtype.str[1:]]
        sizes = ", ".join(repr(f"{name}{d}") for d in range(one.ndim))
        parameters.append(f"{name}: tw.{kind}" + (f"[{sizes}]" if one.ndim else ""))
    given = ", ".join("abcd"[: len(arguments)])
    names: dict[str, Any] = {"tw": tw, "function": function}
    header = ", ".join(parameters)
    exec(f"def program({header}):\n    return function({given})", names)
    return tw.program(names["program"])


def check(function: Callable[..., Any], arguments: Sequence[Any], target: str = "cpu") -> None:
    """A function gives on traced arrays what it gives on NumPy's."""
    program = typed(function, arguments)
    expected = function(*arguments)
    wanted = expected if isinstance(expected, tuple | list) else (expected,)
    for found in (program(*arguments, target=target), interpret(program.trace(), list(arguments))):
        values = found if isinstance(found, tuple) else (found,)
        assert len(values) == len(wanted)
        for one, other in zip(values, wanted, strict=True):
            assert np.shape(one) == np.shape(other) and np.asarray(one).dtype == np.asarray(other).dtype
            np.testing.assert_allclose(one, other, rtol=1e-13)


GATHERS: dict[str, tuple[Callable[..., Any], Sequence[Any]]] = {
    "elements": (lambda v, i: v[i], (V, AT)),
    "rows": (lambda y, i: y[i], (Y, AT)),
    "columns": (lambda y, t: y[:, t], (Y, TABLE)),
    "pairs": (lambda y, t: y[t % 3, t], (Y, TABLE)),
    "between": (lambda x, i: x[:, i % 3, 1:], (X, AT)),
    "apart": (lambda x, i: x[0, :, i], (X, AT)),
    "apart, arrays": (lambda x, i: x[i % 2, :, i], (X, AT)),
    "together": (lambda x, i: x[:, 0, i], (X, AT)),
    "new dimension": (lambda x, i: x[None, :, i % 3], (X, AT)),
    "the last": (lambda x, i: x[..., i], (X, AT)),
    "broadcast": (lambda y, i: y[(i % 3)[:, None], i], (Y, AT)),
    "backwards": (lambda y, i: y[::-1, i][1:], (Y, AT)),
    "small integers": (lambda y, i: y[i], (Y, AT.astype(np.int32))),
    "greatest": (lambda y: y[np.argmax(y, axis=0), 0], (Y,)),
    "counted": (lambda y, i: y[i[:2]] + 1, (Y, AT)),
    "a list": (lambda y: y[[0, -1, 2]], (Y,)),
    "a list of columns": (lambda y: y[1:, None, [3, 0]], (Y,)),
    "elements of a list": (lambda v: v[[1, -1]], (V,)),
    "none": (lambda v, i: v[i[:0]], (V, AT)),
    "take": (np.take, (Y, AT)),
    "take along": (lambda y, t: np.take(y, t, axis=1), (Y, TABLE)),
    "take one": (lambda y: np.take(y, -2, axis=1), (Y,)),
    "take clipped": (lambda y, t: y.take(t * 3, axis=0, mode="clip"), (Y, TABLE)),
    "take wrapped": (lambda y, t: np.take(y, t * 3, axis=0, mode="wrap"), (Y, TABLE)),
    "take clipped, a list": (lambda v: (np.take(v, [0], mode="clip"), v.take((-7, 9), mode="clip")), (V,)),
    "take wrapped, a list": (lambda y: np.take(y, [0, -9, 7], axis=1, mode="wrap"), (Y,)),
    "take a table": (lambda v: np.take(v, [[0, 1], [-1, 3]]), (V,)),
    "along": (lambda y: np.take_along_axis(y, np.argmax(y, axis=1, keepdims=True), axis=1), (Y,)),
    "along columns": (lambda y: np.take_along_axis(y, (y[:1] % 2).astype(np.int64) - 1, axis=0), (Y,)),
    "along all": (lambda y, i: np.take_along_axis(y, i, axis=None), (Y, AT)),
    "interp": (np.interp, (Y - 1, SORTED[1:], V[1:])),
    "interp odd": (lambda x, a, b: np.interp(x, a, b, left=-7.0, right=8.0), (ODD, np.arange(5.0), V)),
    "interp of one": (lambda x, a, b: np.interp(x, a[:1], b[:1]), (ODD[1:], SORTED, V)),
    "interp complex": (np.interp, (Y - 1, SORTED[1:], V[1:] - 1j * V[1:] ** 2)),
    "interp complex odd": (lambda x, a, b: np.interp(x, a, b, left=-7j, right=8.0), (ODD, np.arange(5.0), V * 1j)),
    "interp of numbers": (lambda a, b: (np.interp(0.3, a, b), np.interp(2, a, b)), (np.arange(5.0), V)),
    "interp on lists": (lambda x: np.interp(x, [0, 1, 2.5], (1.0, 2, 4j)), (ODD,)),
    "interp on constants": (lambda x, v: np.interp(x, np.array([0, 1, 2.5]), v[:3]), (ODD, V)),
    "interp of a list": (lambda v: np.interp([[0.5, 7.0], [-1.0, v[0]]], [0, v[2]], v[1:3]), (V,)),
    "searchsorted": (np.searchsorted, (SORTED, ODD)),
    "searchsorted in a list": (lambda x: np.searchsorted([0.0, 1, 1, 4], x), (ODD,)),
    "searchsorted of a list": (lambda a: np.searchsorted(a, [[0.5, 1], [9, 10]], side="right"), (SORTED,)),
    "searchsorted of a number": (lambda a: a.searchsorted(1.0, "right"), (SORTED,)),
    "searchsorted right": (lambda a, x: a.searchsorted(x, side="right"), (SORTED, ODD)),
    "searchsorted nan": (np.searchsorted, (np.array([1.0, np.nan, np.nan]), ODD)),
    "searchsorted whole": (np.searchsorted, (np.arange(7), AT)),
}
NEIGHBOURS: dict[str, tuple[Callable[..., Any], Sequence[Any]]] = {
    "diff": (lambda y: np.diff(y * y, n=2, axis=0), (Y,)),
    "gradient": (lambda y: np.gradient(y * y), (Y,)),
    "gradient along": (lambda y: np.gradient(y * y, 0.5, axis=1), (Y,)),
    "gradient both": (lambda y: np.gradient(y * y, 0.5, 2), (Y,)),
    "gradient of integers": (np.gradient, (AT,)),
    "gradient of f32": (np.gradient, (V.astype(np.float32),)),
    "gradient of f32 by f64": (lambda v: np.gradient(v, np.float64(0.5)), (V.astype(np.float32),)),
    **{
        f"pad {mode}": (lambda y, mode=mode: np.pad(y, ((1, 2), (0, 1)), mode=mode), (Y,))
        for mode in ("constant", "edge", "reflect", "symmetric", "wrap")
    },
    **{
        f"pad one row, {mode}": (
            lambda y, mode=mode: np.pad(y.sum(axis=0, keepdims=True), ((2, 3), (0, 1)), mode),
            (Y,),
        )
        for mode in ("reflect", "symmetric", "wrap")
    },
    **{
        f"pad two rows widely, {mode}": (
            lambda y, mode=mode: np.pad(np.stack([y[0], y[1] * 2]), ((80, 3), (0, 0)), mode),
            (Y,),
        )
        for mode in ("reflect", "symmetric", "wrap")
    },
    "pad values": (lambda y: np.pad(y, 2, constant_values=((1, 2), (3, 4))), (Y,)),
    "pad a pair": (lambda v: np.pad(v, (1, 0), "edge"), (V,)),
    "pad nothing": (lambda v: np.pad(v, 0), (V,)),
    "convolve lists": (lambda v: (np.convolve(v, [1.0, 2.0]), np.convolve([1, 2, 3], v), np.convolve(v, 2)), (V,)),
    **{f"convolve {m}": (lambda v, s, m=m: np.convolve(v, s[:3], m), (V, SORTED)) for m in ("full", "same", "valid")},
    **{
        f"convolve by {m}": (lambda v, s, m=m: np.convolve(s[:2], v, m), (V, SORTED)) for m in ("full", "same", "valid")
    },
    "convolve types": (np.convolve, (AT, V)),
    "roll": (lambda x: np.roll(x, 5), (X,)),
    "roll back": (lambda x, i: np.roll(x, i[0] - 9), (X, AT)),
    "roll axes": (lambda x: np.roll(x, (1, -2), axis=(0, 2)), (X,)),
    "roll axes equally": (lambda x: np.roll(x, 1, axis=(1, 2)), (X,)),
    **{f"tril {k}": (lambda y, k=k: (np.tril(y, k), np.triu(y, k)), (Y,)) for k in (-1, 0, 2)},
    "triangles": (lambda x, v: (np.tril(x), np.triu(v, 1)), (X, V)),
    **{
        f"diagonal {k}": (lambda y, k=k: (np.diagonal(y, k), np.trace(y, k), np.diag(y, k)), (Y,))
        for k in (-2, 0, 1, 3)
    },
    **{f"diag {k}": (lambda v, k=k: np.diag(v, k), (V,)) for k in (-2, 0, 1)},
    "diagonals": (lambda x: np.diagonal(x, 1), (X,)),
    "broadcast to": (lambda v: np.broadcast_to(v[None], (3, v.shape[0])), (V,)),
    "flips": (lambda y: (np.fliplr(y), np.flipud(y)), (Y,)),
    "ptp": (lambda y: (np.ptp(y, axis=0), np.ptp(y)), (Y,)),
}


@each_device
@pytest.mark.parametrize("name", GATHERS)
def test_gathers_are_those_of_numpy(name: str, target: str) -> None:
    check(*GATHERS[name], target=target)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_neighbours_are_those_of_numpy(name: str) -> None:
    check(*NEIGHBOURS[name])


BESIDE_INFINITIES = [([1, 1, 1], [np.inf, 1]), ([1, 2, 3, 4], [1, np.nan, 0]), ([np.inf, 1, 2], [1, 0, 2, np.inf, 4])]


@each_device
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("a", "v"), BESIDE_INFINITIES)
def test_convolutions_multiply_no_infinity_by_what_is_outside(a: Any, v: Any, mode: Any, target: str) -> None:
    for dtype in (np.float32, np.float64, np.complex128):
        arguments = np.array(a, dtype), np.array(v, dtype)
        with np.errstate(invalid="ignore"):
            check(lambda x, y: np.convolve(x, y, mode), arguments, target)


@pytest.mark.parametrize("name", ["elements", "columns", "searchsorted", "convolve full", "pad edge", "tril 0"])
def test_in_each_row(name: str) -> None:
    function, arguments = (GATHERS | NEIGHBOURS)[name]
    first = np.stack([arguments[0], arguments[0]])
    program = typed(lambda rows, *others: tw.map(lambda row: function(row, *others), rows), (first, *arguments[1:]))
    expected = function(*arguments)
    found = program(first, *arguments[1:])
    for number, one in enumerate(expected if isinstance(expected, tuple) else (expected,)):
        values = found[number] if isinstance(found, tuple) else found
        np.testing.assert_array_equal(values, np.stack([one, one]))


@each_device
@pytest.mark.parametrize(("index", "told"), [(5, "index 5"), (-6, "index -6"), (2**40, "index 1099511627776")])
def test_indices_out_of_range_are_told_as_they_are(index: int, told: str, target: str) -> None:
    program = typed(lambda v, i: v[i], (V, AT))
    assert program(V, np.array([-5, 4]), target=target).tolist() == [1, 5]
    with pytest.raises(IndexError, match=f"{told} of a is out of range in dimension 0 of extent 5"):
        program(V, np.array([0, index, 1]), target=target)


def test_numbers_of_a_counter_are_not_compared() -> None:
    """They are 0 at least, so that a gather by them is a plain read."""
    core = typed(lambda v: v[tw.iota(v.shape[0])], (V,)).ir
    assert "select" not in str(core)


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda v, i: v[v > 2], "is no index: how many elements it keeps is not known"),
        (lambda v, i: v[v], "indices are integers, not f64"),
        (lambda v, i: v[[0.5, 1]], "a list of indices has integers, not float64"),
        (lambda v, i: v[[]], "of constants one list of 1 to 64 indices"),
        (lambda v, i: v[[[0, 1]]], "of constants one list of 1 to 64 indices"),
        (lambda v, i: np.take(v, i, mode="around"), "mode is 'raise', 'clip' or 'wrap', not 'around'"),
        (lambda v, i: np.take_along_axis(v[None], i, 1), "indices of 1 dimensions for an array of 2"),
        (lambda v, i: np.searchsorted(v, v, side="middle"), "side is 'left' or 'right'"),
        (lambda v, i: np.pad(v, 1, "mean"), "mode 'mean' cannot be traced; traceable: constant, edge"),
        (lambda v, i: np.pad(v, ((1, 2), (3, 4))), "for 1 dimensions; a number, a pair"),
        (lambda v, i: np.convolve(v[None], v), "of 2 and 1 dimensions; both are vectors"),
        (lambda v, i: np.convolve(v, [1.0, "a"]), "numpy.convolve: v: a list has numbers, not 'a' of type str"),
        (lambda v, i: np.take(v, [1.5], mode="clip"), "indices are integers, not f64"),
        (
            lambda v, i: np.interp(v, "points", v),
            "numpy.interp: xp must be an array or a list of numbers, not 'points'",
        ),
        (lambda v, i: np.interp(v, [[0, 1]], v), "xp and fp are vectors, not of 2 and 1 dimensions"),
        (lambda v, i: np.interp(v, [0, 1], [2, 3, 4]), "xp has 2 elements and fp 3; they must be equally many"),
        (lambda v, i: np.interp(v, [0, [1]], v), r"the parts of a list have the shapes \(\), \(1,\), not one"),
        (lambda v, i: np.interp(v, np.arange(65.0), v), "has 65 constants; 1 to 64 may be listed in a program"),
        (lambda v, i: np.interp(v * 1j, v, v), "numpy.interp: x is real, not c128; give x.real"),
        (lambda v, i: np.searchsorted(v[None], v), "a is a vector, not of 2 dimensions"),
        (lambda v, i: np.diff(v, n=-1), "n is a constant of at least 0"),
        (lambda v, i: np.gradient(v, 1, 2), "give one distance, or as many"),
        (lambda v, i: np.nonzero(v), "examples/filter.py"),
        (lambda v, i: np.broadcast_to(v[None], (5,)), "an array of at most 1 dimensions is needed"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(use: Callable[..., Any], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        typed(use, (V, AT))(V, AT)


def test_scalars_have_the_attributes_of_numpys() -> None:
    @tw.program
    def told(x: tw.f32["n"], k: tw.i64, s: tw.f32) -> Any:
        total = x.sum()
        for one in (k, s, total, x[0], x.shape[0]):
            assert one.shape == () and one.ndim == 0 and one.size == 1
        assert [one.dtype for one in (k, s, total)] == [np.int64, np.float32, np.float32]
        return total * s.ndim + s.size

    assert told(np.ones(3, np.float32), 2, 3.0) == 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_subscript_is_that_of_numpy(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(rank))
    x = np.arange(float(np.prod(shape))).reshape(shape)
    common = data.draw(st.integers(1, 3))
    keys: list[Any] = []
    arrays: list[Any] = []
    for extent in shape:
        kind = data.draw(st.sampled_from(["array", "array", "table", "all", "one", "reversed", "new"]))
        if kind == "new":
            keys.append(None)
            kind = "all"
        if kind in ("array", "table"):
            places = st.integers(-extent, extent - 1)
            form = (common,) if kind == "array" else (2, common)
            drawn = data.draw(st.lists(places, min_size=int(np.prod(form)), max_size=int(np.prod(form))))
            keys.append(len(arrays))
            arrays.append(np.array(drawn).reshape(form))
        else:
            keys.append({"all": slice(None), "one": -1, "reversed": slice(None, None, -1)}[kind])
    number = iter(range(len(arrays)))
    marks = [type(one) is int and one != -1 and one == next(number) for one in keys]

    def subscripted(values: Any, *given: Any) -> Any:
        return values[tuple(given[one] if mark else one for one, mark in zip(keys, marks, strict=True))]

    names = {name: f"b{number}" for number, name in enumerate("bcd")}
    sizes = [["'m'"] if one.ndim == 1 else ["2", "'m'"] for one in arrays]
    header = ", ".join(f"{name}: tw.i64[{', '.join(size)}]" for name, size in zip(names, sizes, strict=False))
    first = f"a: tw.f64[{', '.join(repr(f'n{d}') for d in range(rank))}]"
    scope: dict[str, Any] = {"tw": tw, "function": subscripted}
    given_names = ", ".join(["a", *list(names)[: len(arrays)]])
    exec(f"def program({', '.join(filter(None, [first, header]))}):\n    return function({given_names})", scope)
    found = tw.program(scope["program"])(x, *arrays)
    expected = subscripted(x, *arrays)
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_array_equal(found, expected)
