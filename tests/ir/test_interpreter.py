"""Every node of the core language against hand-written NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.ir.builder import Builder
from tilewright.ir.interpreter import infer_sizes, interpret
from tilewright.ir.nodes import (
    Alias,
    Atom,
    Cast,
    Concat,
    Copy,
    Expression,
    Hist,
    Iota,
    Lambda,
    Level,
    Literal,
    Program,
    Redomap,
    Reduce,
    Replicate,
    Reshape,
    Scanomap,
    Scatter,
    SegHist,
    SegMap,
    SegRed,
    SegScan,
    SegSpace,
    SizeValue,
    Slice,
    SliceDimension,
    StreamSeq,
    Type,
    Update,
    Variable,
    array,
    index_literal,
)
from tilewright.ir.scalars import BOOL, C64, F16, F32, F64, I8, I32, I64, U8, ScalarType
from tilewright.ir.sizes import size

n, m = size("n"), size("m")
ZERO32 = Literal(0.0, F32)
Write = Callable[..., Atom | Sequence[Atom]]


def program(types: Sequence[Type], write: Write, names: str = "xyzw") -> Program:
    """A program over parameters of these types; `write(b, *parameters)` emits its body."""
    b = Builder()
    parameters = [b.variable(name, one) for name, one in zip(names, types, strict=False)]
    results = write(b, *parameters)
    return b.program("p", parameters, [results] if isinstance(results, Variable | Literal) else results)


def run(types: Sequence[Type], write: Write, *arguments: Any) -> Any:
    results = interpret(program(types, write), arguments)
    return results[0] if len(results) == 1 else results


def one(types: Sequence[Type], make: Callable[..., Expression], *arguments: Any) -> Any:
    """The values of the one expression that `make` builds from the parameters."""
    return run(types, lambda b, *parameters: b.emit(make(*parameters)), *arguments)


def same(actual: Any, expected: Any, dtype: Any) -> None:
    assert actual.dtype == np.dtype(dtype)
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_array_equal(actual, expected)


X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
V = np.array([3, -1, 4, 1, -5], np.float32)
MATRIX, VECTOR = array(F32, n, m), array(F32, n)


def add(b: Builder) -> Any:
    return b.operator("add", F32)


@pytest.mark.parametrize(
    ("operator", "scalar", "operands", "expected"),
    [
        ("add", I8, (127, 1), -128),
        ("mul", I32, (1 << 30, 4), 0),
        ("neg", U8, (1,), 255),
        ("sub", U8, (0, 1), 255),
        ("floordiv", I32, (-7, 2), -4),
        ("floordiv", I32, (-7, 0), 0),
        ("mod", I32, (-7, 3), 2),
        ("mod", I64, (5, 0), 0),
        ("div", F32, (1.0, 0.0), np.inf),
        ("min", F64, (np.nan, 1.0), np.nan),
        ("fma", F32, (2.0, 3.0, 4.0), 10.0),
        ("shl", I8, (1, 9), 2),
        ("shr", I32, (-8, 1), -4),
        ("not", BOOL, (True,), False),
        ("lt", I32, (1, 2), True),
        ("abs", C64, (3 + 4j,), 5.0),
        ("conj", C64, (3 + 4j,), 3 - 4j),
        ("round", F32, (2.5,), 2.0),
    ],
)
def test_operators(operator: str, scalar: ScalarType, operands: tuple[Any, ...], expected: Any) -> None:
    result_dtype = {"lt": np.bool_, "abs": np.float32}.get(operator, scalar.numpy)
    actual = run([Type(scalar)] * len(operands), lambda b, *atoms: b.apply(operator, *atoms), *operands)
    same(actual, expected, result_dtype)


def test_select_cast_and_alias() -> None:
    same(run([Type(BOOL)], lambda b, c: b.apply("select", c, Literal(1, I32), Literal(2, I32)), True), 1, np.int32)
    same(one([Type(F64)], lambda x: Cast(I32, x), -2.9), -2, np.int32)
    same(one([Type(I32)], lambda x: Cast(I8, x), 300), 44, np.int8)
    same(one([Type(F32)], lambda x: Cast(BOOL, x), 0.5), True, np.bool_)
    same(one([Type(F32)], lambda x: Cast(C64, x), 0.5), 0.5 + 0j, np.complex64)
    same(one([VECTOR], Alias, V), V, np.float32)


def test_sizes_are_values() -> None:
    same(one([MATRIX], lambda x: SizeValue(n * m - 1), X), 11, np.int64)
    same(one([MATRIX, Type(I64)], lambda x, y: SizeValue(n + "y"), X, 4), 7, np.int64)


def test_if_and_loops() -> None:
    def choose(b: Builder, c: Atom, x: Variable) -> Sequence[Atom]:
        return b.cond(c, lambda: b.map([x], lambda e: b.apply("neg", e)), lambda: x)

    same(run([Type(BOOL), VECTOR], choose, True, V), -V, np.float32)
    same(run([Type(BOOL), VECTOR], choose, False, V), V, np.float32)

    def fibonacci(b: Builder, x: Variable) -> Sequence[Atom]:
        initial = [index_literal(0), index_literal(1)]
        return b.for_loop("x", initial, lambda i, p, q: (q, b.apply("add", p, q)))

    assert run([Type(I64)], fibonacci, 10) == (55, 89)
    assert run([Type(I64)], fibonacci, 0) == (0, 1)

    def collatz(b: Builder, x: Variable) -> Sequence[Atom]:
        def halve(v: Atom, steps: Atom) -> Sequence[Atom]:
            odd = b.apply("eq", b.apply("mod", v, index_literal(2)), index_literal(1))
            triple = b.apply("add", b.apply("mul", v, index_literal(3)), index_literal(1))
            half = b.apply("floordiv", v, index_literal(2))
            return b.apply("select", odd, triple, half), b.apply("add", steps, index_literal(1))

        return b.while_loop([x, index_literal(0)], lambda v, _: b.apply("gt", v, index_literal(1)), halve)

    assert run([Type(I64)], collatz, 6) == (1, 8)
    assert run([Type(I64)], collatz, 1) == (1, 0)


def test_index() -> None:
    same(run([MATRIX, Type(I64)], lambda b, x, i: b.index(x, i), X, 2), X[2], np.float32)
    same(run([MATRIX, Type(I64)], lambda b, x, i: b.index(x, i, index_literal(3)), X, 1), X[1, 3], np.float32)


def test_slice() -> None:
    def make(x: Variable) -> Slice:
        return Slice(x, (SliceDimension(n - 1, n - 1, -1), SliceDimension(size(1), size(2), 2)))

    same(one([MATRIX], make, X), X[2:0:-1, 1::2], np.float32)
    same(one([VECTOR], lambda x: Slice(x, (SliceDimension(n, size(0)),)), V), V[:0], np.float32)


def test_update_copies() -> None:
    x = X.copy()
    changed = one([MATRIX, array(F32, m)], lambda x, y: Update(x, (index_literal(1),), y), x, X[0])
    same(changed, np.stack([X[0], X[0], X[2]]), np.float32)
    assert (x == X).all()
    whole = one([VECTOR, VECTOR], lambda x, y: Update(x, (), y), V, -V)
    same(whole, -V, np.float32)


def test_making_arrays() -> None:
    same(one([Type(I64)], lambda x: Iota(size("x"), I8), 130), np.arange(130).astype(np.int8), np.int8)
    same(one([VECTOR], lambda x: Replicate(size(2), x), V), np.stack([V, V]), np.float32)
    same(one([Type(F32), Type(I64)], lambda x, y: Replicate(size("y"), x), 2.5, 3), [2.5] * 3, np.float32)
    same(one([MATRIX], lambda x: Concat(1, (x, x)), X), np.concatenate([X, X], 1), np.float32)
    same(one([MATRIX], lambda x: Reshape(x, (m, n)), X), X.reshape(4, 3), np.float32)
    same(run([MATRIX], lambda b, x: b.rearrange(x, (1, 0)), X), X.T, np.float32)
    same(one([MATRIX], lambda x: Copy(x, Level.BLOCK), X.T[::-1]), X.T[::-1], np.float32)


def test_maps() -> None:
    def rows(b: Builder, x: Variable) -> Sequence[Atom]:
        return b.map_many([x], lambda row: (b.reduce(add(b), ZERO32, row), b.map([row], lambda e: b.apply("abs", e))))

    sums, absolute = run([MATRIX], rows, X)
    same(sums, X.sum(1), np.float32)
    same(absolute, abs(X), np.float32)
    sums, absolute = run([MATRIX], rows, X[:0])
    same(sums, np.empty(0), np.float32)
    same(absolute, np.empty((0, 4)), np.float32)


def test_folds() -> None:
    same(run([VECTOR], lambda b, x: b.reduce(add(b), Literal(1.0, F32), x), V), V.sum() + 1, np.float32)
    same(run([VECTOR], lambda b, x: b.reduce(add(b), Literal(1.0, F32), x), V[:0]), 1.0, np.float32)
    same(run([VECTOR], lambda b, x: b.scan(add(b), ZERO32, x), V), np.cumsum(V), np.float32)
    same(run([VECTOR], lambda b, x: b.scan(add(b), ZERO32, x), V[:0]), V[:0], np.float32)


@pytest.mark.parametrize("node", [Redomap, Scanomap])
def test_fused_folds_map_out_what_they_do_not_fold(node: Any) -> None:
    def write(b: Builder, x: Variable, y: Variable) -> Sequence[Atom]:
        both = b.function([Type(F32)] * 2, lambda p, q: (b.apply("mul", p, q), b.apply("sub", p, q)))
        return b.emit(node(n, add(b), (ZERO32,), both, (x, y)))

    folded, mapped = run([VECTOR, VECTOR], write, V, V[::-1])
    same(folded, np.cumsum(V * V[::-1]) if node is Scanomap else (V * V[::-1]).sum(), np.float32)
    same(mapped, V - V[::-1], np.float32)


def test_a_reduction_of_pairs_keeps_the_order() -> None:
    """Compositions of x -> a*x + b do not commute."""

    def write(b: Builder, x: Variable, y: Variable) -> Sequence[Atom]:
        def compose(a1: Atom, b1: Atom, a2: Atom, b2: Atom) -> Sequence[Atom]:
            return b.apply("mul", a1, a2), b.apply("fma", a2, b1, b2)

        combine = b.function([Type(F32)] * 4, compose)

        return b.emit(Reduce(n, combine, (Literal(1.0, F32), ZERO32), (x, y)))

    a, c = run([VECTOR, VECTOR], write, V, V + 1)
    value = np.float32(0)
    for p, q in zip(V, V + 1, strict=True):
        value = p * value + q
    same(c, value, np.float32)
    same(a, V.prod(), np.float32)


def test_reduction_of_rows() -> None:
    def write(b: Builder, x: Variable) -> Atom:
        combine = b.function([array(F32, m)] * 2, lambda p, q: b.map([p, q], lambda u, v: b.apply("max", u, v)))
        return b.reduce(combine, b.bind(Replicate(m, Literal(-9.0, F32))), x)

    same(run([MATRIX], write, X), X.max(0), np.float32)


def test_scatter_ignores_places_out_of_range() -> None:
    indices = np.array([2, -1, 0, 7, 5], np.int64)
    actual = one([VECTOR, array(I64, n), VECTOR], Scatter, V, indices, V * 10)
    same(actual, [40, -1, 30, 1, -5], np.float32)


def test_hist() -> None:
    def write(b: Builder, x: Variable, y: Variable, z: Variable) -> Sequence[Atom]:
        return b.emit(Hist((x,), add(b), (ZERO32,), y, (z,)))

    places = np.array([0, 2, 0, 3, -1, 2], np.int64)
    values = np.array([1, 2, 3, 4, 5, 6], np.float32)
    types = [array(F32, 3), array(I64, n), VECTOR]
    same(run(types, write, np.ones(3, np.float32), places, values), [5, 1, 9], np.float32)


def test_hist_of_pairs_swapping_rows() -> None:
    """Results that are the old bins of each other must not see each other's new values."""

    def write(b: Builder, x: Variable, y: Variable, z: Variable) -> Sequence[Atom]:
        swap = b.function([array(F32, 2)] * 4, lambda p, q, r, s: (q, p))
        neutral = b.bind(Replicate(size(2), ZERO32))
        rows = b.bind(Replicate(n, neutral))
        return b.emit(Hist((x, y), swap, (neutral, neutral), z, (rows, rows)))

    first, second = np.array([[1, 2]], np.float32), np.array([[3, 4]], np.float32)
    results = run([array(F32, 1, 2)] * 2 + [array(I64, n)], write, first, second, np.zeros(3, np.int64))
    same(results[0], second, np.float32)
    same(results[1], first, np.float32)


@pytest.mark.parametrize("chunk", [1, 2, 5, 9])
@pytest.mark.parametrize("length", [0, 5])
def test_stream(chunk: int, length: int) -> None:
    def write(b: Builder, x: Variable) -> Sequence[Atom]:
        count, total = b.variable("c", Type(I64)), b.variable("total", Type(F32))
        part = b.variable("part", array(F32, "c"))

        def body() -> Sequence[Atom]:
            prefixes = b.scan(add(b), total, part)
            return b.reduce(add(b), total, part), prefixes

        function = Lambda((count, total, part), b.body(body))
        return b.emit(StreamSeq(n, size(chunk), function, (ZERO32,), (x,)))

    total, prefixes = run([VECTOR], write, V[:length])
    same(total, V[:length].sum(), np.float32)
    same(prefixes, np.cumsum(V[:length]), np.float32)


def segmented(kind: str) -> Write:
    def write(b: Builder, x: Variable) -> Sequence[Atom]:
        i, j = b.variable("i", Type(I64)), b.variable("j", Type(I64))
        space = SegSpace(((i, n), (j, m)))

        def body() -> Sequence[Atom]:
            element = b.index(x, i, j)
            return element, b.apply("neg", element)

        def binned() -> Sequence[Atom]:
            element = b.index(x, i, j)
            return b.apply("mod", j, index_literal(3)), element

        match kind:
            case "map":
                return b.emit(SegMap(Level.THREAD, space, b.body(body)))
            case "red":
                return b.emit(SegRed(Level.BLOCK, space, add(b), (ZERO32,), b.body(body)))
            case "scan":
                return b.emit(SegScan(Level.BLOCK, space, add(b), (ZERO32,), b.body(body)))
        bins = b.bind(Replicate(n, b.bind(Replicate(size(2), Literal(1.0, F32)))))
        return b.emit(SegHist(Level.BLOCK, space, (bins,), add(b), (ZERO32,), b.body(binned)))

    return write


def test_segmented_operations() -> None:
    for rows in (X, X[:0], X[:, :0]):
        mapped, negative = run([MATRIX], segmented("map"), rows)
        same(mapped, rows, np.float32)
        same(negative, -rows, np.float32)
        reduced, negative = run([MATRIX], segmented("red"), rows)
        same(reduced, rows.sum(1), np.float32)
        same(negative, -rows, np.float32)
        scanned, negative = run([MATRIX], segmented("scan"), rows)
        same(scanned, np.cumsum(rows, 1), np.float32)
        same(negative, -rows, np.float32)
    bins = run([MATRIX], segmented("hist"), X)
    same(bins, np.stack([X[:, 0] + X[:, 3], X[:, 1]], 1) + 1, np.float32)


def test_reduction_over_a_space_of_one_dimension_gives_a_scalar() -> None:
    def write(b: Builder, x: Variable) -> Sequence[Atom]:
        i = b.variable("i", Type(I64))
        return b.emit(SegRed(Level.BLOCK, SegSpace(((i, n),)), add(b), (ZERO32,), b.body(lambda: b.index(x, i))))

    same(run([VECTOR], write, V), V.sum(), np.float32)


def test_half_precision_is_carried_in_single_and_rounded_when_stored() -> None:
    small = np.full(8, 2.0**-11, np.float16)
    half_add = lambda b: b.operator("add", F16)  # noqa: E731
    types = [array(F16, n)]
    carried = run(types, lambda b, x: b.reduce(half_add(b), Literal(1.0, F16), x), small)
    same(carried, np.float16(1 + 8 * 2.0**-11), np.float16)
    prefixes = run(types, lambda b, x: b.scan(half_add(b), Literal(1.0, F16), x), small)
    same(prefixes, np.float16(1 + np.arange(1, 9) * 2.0**-11), np.float16)

    def bump(b: Builder, x: Variable) -> Atom:
        return b.for_loop(
            8,
            [b.bind(Replicate(size(1), Literal(1.0, F16)))],
            lambda i, a: b.map([a], lambda e: b.apply("add", e, Literal(2.0**-11, F16))),
        )[0]

    same(run(types, bump, small), [1.0], np.float16)


def test_results_do_not_share_memory_with_arguments() -> None:
    result = one([VECTOR], Alias, V)
    assert not np.shares_memory(result, V)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: Update(x, (index_literal(5),), ZERO32), r"index 5 of x is out of range in dimension 0 of extent 5"),
        (lambda x: Update(x, (index_literal(-1),), ZERO32), r"index -1 of x"),
        (lambda x: Slice(x, (SliceDimension(size(0), n, -1),)), r"slice of x: 5 elements from index 0 to -4"),
        (
            lambda x: Slice(x, (SliceDimension(size(1), n),)),
            r"from index 1 to 5 in steps of 1: index 5 of x .* extent 5",
        ),
    ],
)
def test_out_of_range(make: Callable[..., Expression], message: str) -> None:
    with pytest.raises(IndexError, match=message):
        one([VECTOR], make, V)


def test_out_of_range_index() -> None:
    with pytest.raises(IndexError, match="index 4 of x is out of range in dimension 1 of extent 4"):
        run([MATRIX, Type(I64)], lambda b, x, i: b.index(x, index_literal(0), i), X, 4)


def test_values_must_fit_their_declared_types() -> None:
    lying = program([MATRIX], lambda b, x: b.bind(Reshape(x, (n, n))))
    with pytest.raises(ValueError, match="reshape of x"):
        interpret(lying, [X])
    square = program([MATRIX], lambda b, x: b.bind(Slice(x, (SliceDimension(size(0), n), SliceDimension(n - 4, n)))))
    with pytest.raises(IndexError, match="slice of x"):
        interpret(square, [X])


SIZES = program([MATRIX, array(F32, m, n + 1), array(F32, size("k") + 1, 2 * size("k"))], lambda b, *_: ZERO32)


def shaped(*shapes: tuple[int, ...]) -> list[Any]:
    return [np.zeros(shape, np.float32) for shape in shapes]


def test_sizes_are_inferred() -> None:
    assert infer_sizes(SIZES, shaped((3, 4), (4, 4), (6, 10))) == {"n": 3, "m": 4, "k": 5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (shaped((3, 4), (4, 4)), r"p takes 3 arguments \(x, y, z\), not 2"),
        (shaped((3, 4), (4,), (6, 10)), "parameter y has type .* rank 1"),
        (shaped((3, 4), (5, 4), (6, 10)), "dimension 0 of parameter y must be m = 4, but is 5"),
        (shaped((3, 4), (4, 5), (6, 10)), r"dimension 1 of parameter y must be n \+ 1 = 4 \(n = 3\), but is"),
        (shaped((3, 4), (4, 4), (6, 11)), "dimension 1 of parameter z"),
        (shaped((3, 4), (4, 4), (0, 1)), "size k cannot be inferred"),
    ],
)
def test_mismatched_shapes_are_named(arguments: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        infer_sizes(SIZES, arguments)


def test_scalar_parameters_take_part_in_shapes() -> None:
    square = program([Type(I64), array(F32, "x", "x")], lambda b, x, y: y)
    assert infer_sizes(square, [2, np.zeros((2, 2), np.float32)]) == {}
    with pytest.raises(ValueError, match="must be x = 2"):
        infer_sizes(square, [2, np.zeros((2, 3), np.float32)])


@pytest.mark.parametrize(
    ("type_", "argument", "error"),
    [
        (VECTOR, V.astype(np.float64), TypeError),
        (VECTOR, [1.0], TypeError),
        (Type(I32), 1.5, TypeError),
        (Type(F32), 1j, TypeError),
        (Type(I8), 128, OverflowError),
        (Type(U8), -1, OverflowError),
        (Type(BOOL), 1, TypeError),
    ],
)
def test_wrong_arguments_are_refused(type_: Type, argument: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="parameter x"):
        interpret(program([type_], lambda b, x: x), [argument])


def test_scalars_and_byte_order_are_converted() -> None:
    same(run([Type(F32)], lambda b, x: x, 3), 3.0, np.float32)
    same(run([VECTOR], lambda b, x: x, V.astype(">f4")), V, np.float32)
