"""The types that expressions give, and why ill-formed ones are refused; the builder derives types from them."""

from __future__ import annotations

import pytest

from tilewright.ir.builder import Builder
from tilewright.ir.nodes import (
    Alias,
    Apply,
    Atom,
    Body,
    Cast,
    Concat,
    Copy,
    Expression,
    Hist,
    Index,
    Iota,
    Lambda,
    Level,
    Literal,
    Map,
    Program,
    Rearrange,
    Redomap,
    Reduce,
    Replicate,
    Reshape,
    Scan,
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
from tilewright.ir.scalars import BOOL, C64, F32, F64, I32, I64, ScalarType
from tilewright.ir.sizes import ONE, ZERO, size
from tilewright.ir.typing import result_types
from tilewright.ir.verifier import verify


def variable(name: str, element: ScalarType, *shape: int | str) -> Variable:
    return Variable(name, array(element, *shape))


N, M = size("n"), size("m")
X, Y, Z = variable("x", F32, "n", "m"), variable("y", F32, "n", "m"), variable("z", F32, "m")
V, AT, J, P = variable("v", F32, "n"), variable("i", I64, "n"), variable("j", I64), variable("p", BOOL)
S, D, C = variable("s", F32), variable("d", F64), variable("c", C64)
ZERO_F32 = Literal(0.0, F32)


def function(types: list[Type], results: list[Atom] | None = None) -> Lambda:
    """Parameters q0, q1, ... of these types, which are the results too unless others are given."""
    parameters = tuple(Variable(f"q{position}", one) for position, one in enumerate(types))
    return Lambda(parameters, Body((), parameters if results is None else tuple(results)))


F, INT = Type(F32), Type(I64)
COMBINE = function([F, F], [S])
CHUNK = variable("q2", F32, "q0", "m")
BINS = variable("bins", F32, "n", 7)
SPACE = SegSpace(((variable("a", I64), N), (variable("b", I64), M)))

GOOD: list[tuple[Expression, list[Type]]] = [
    (Alias(X), [X.type]),
    (Apply("lt", (S, S)), [Type(BOOL)]),
    (Apply("abs", (C,)), [F]),
    (Apply("select", (P, S, S)), [F]),
    (Cast(F64, S), [Type(F64)]),
    (Cast(C64, S), [Type(C64)]),
    (SizeValue(N + 1), [Type(I64)]),
    (Index(X, ()), [X.type]),
    (Index(X, (J,)), [array(F32, "m")]),
    (Index(X, (J, index_literal(0))), [F]),
    (Slice(X, (SliceDimension(ZERO, N - 1), SliceDimension(M, M, -1))), [array(F32, N - 1, M)]),
    (Update(X, (J,), Z), [X.type]),
    (Iota(N, I32), [array(I32, "n")]),
    (Replicate(N, S), [array(F32, "n")]),
    (Replicate(M, X), [array(F32, "m", "n", "m")]),
    (Concat(0, (X, Y)), [array(F32, 2 * N, "m")]),
    (Concat(1, (X, Y, X)), [array(F32, "n", 3 * M)]),
    (Reshape(X, (N * M,)), [array(F32, N * M)]),
    (Rearrange(X, (1, 0)), [array(F32, "m", "n")]),
    (Copy(X, Level.BLOCK), [X.type]),
    (Map(N, function([Z.type, F]), (X, V)), [X.type, V.type]),
    (Reduce(N, COMBINE, (S,), (V,)), [F]),
    (Scan(N, COMBINE, (S,), (V,)), [V.type]),
    (Redomap(N, COMBINE, (S,), function([F, Z.type]), (V, X)), [F, X.type]),
    (Scatter(X, AT, X), [X.type]),
    (Hist((Z,), COMBINE, (S,), AT, (V,)), [Z.type]),
    (
        StreamSeq(N, size(8), function([INT, F, CHUNK.type], [S, CHUNK]), (S,), (X,)),
        [F, X.type],
    ),
    (SegMap(Level.BLOCK, SPACE, Body((), (S, Z))), [X.type, array(F32, "n", "m", "m")]),
    (SegRed(Level.BLOCK, SPACE, COMBINE, (S,), Body((), (S, D))), [V.type, array(F64, "n", "m")]),
    (SegScan(Level.BLOCK, SPACE, COMBINE, (S,), Body((), (S,))), [X.type]),
    (SegHist(Level.BLOCK, SPACE, (BINS,), COMBINE, (S,), Body((), (J, S))), [BINS.type]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "types"), GOOD, ids=lambda one: type(one).__name__)
def test_types(expression: Expression, types: list[Type]) -> None:
    assert result_types(expression) == tuple(types)


def seghist(bins: Variable, *more: Variable) -> SegHist:
    return SegHist(Level.BLOCK, SPACE, (bins, *more), COMBINE, (S,), Body((), (J, S)))


BAD: list[tuple[Expression, str]] = [
    (Apply("nope", (S,)), "unknown operator 'nope'"),
    (Apply("add", (S, D)), "operator add needs operands of one type, got f32, f64"),
    (Apply("add", (S,)), "operator add takes 2 operands, not 1"),
    (Apply("add", (V, V)), r"operator add takes scalars, but v has type \[n\]f32"),
    (Cast(F32, V), "cast takes a scalar, but v has type"),
    (Cast(F32, C), "cast of c from c64 to f32: take real or imag first"),
    (Index(V, (J, J)), "index of v: 2 indices for rank 1"),
    (Index(V, (S,)), "index of v: index s has type f32, i64 is needed"),
    (Slice(X, (SliceDimension(ZERO, N),)), "slice of x: 1 dimensions for rank 2"),
    (Slice(V, (SliceDimension(ZERO, N, 0),)), "slice of v: a step is zero"),
    (Update(X, (J,), S), r"update of x: the value has type f32, not \[m\]f32"),
    (Iota(N, F32), "iota gives integers, not f32"),
    (Concat(0, ()), "concat: no arrays"),
    (Concat(2, (X, Y)), "concat: axis 2 of arrays of rank 2"),
    (Concat(0, (X, V)), r"concat along 0: v has type \[n\]f32, x has \[n\]\[m\]f32"),
    (Concat(1, (V, V)), "concat: axis 1 of arrays of rank 1"),
    (Concat(0, (Z, variable("w", F64, "m"))), r"concat along 0: w has type \[m\]f64"),
    (Reshape(variable("w", F32, 4), (size(5),)), "reshape of w: 4 elements into a shape of 5"),
    (Rearrange(X, (0, 0)), r"rearrange of x \(rank 2\): \(0, 0\) is not a permutation"),
    (Map(N, function([F]), (Z,)), "map of width n over z, whose outer size is m"),
    (Map(N, function([F]), (S,)), "map needs arrays, but s is a scalar of type f32"),
    (Map(N, function([F, F]), (V,)), r"map: the function takes \(f32, f32\) but is given \(f32\)"),
    (Reduce(N, COMBINE, (S,), (V, V)), "reduce over more arrays than its operator"),
    (Reduce(N, COMBINE, (S,), ()), r"reduce: elements \(\), neutral element \(f32\)"),
    (Reduce(N, function([F, F], [D]), (S,), (V,)), r"reduce: the operator gives \(f64\), its neutral"),
    (Scatter(X, V, X), r"scatter: indices have \[n\]f32"),
    (Scatter(X, AT, Z), "scatter: as many values as indices are needed"),
    (Scatter(X, AT, V), r"scatter of \[n\]f32 into \[n\]\[m\]f32"),
    (Scatter(S, AT, V), "scatter: the destination s is a scalar of type f32"),
    (Hist((S,), COMBINE, (S,), AT, (V,)), "hist: the destination s is a scalar of type f32"),
    (Hist((variable("w", F64, "m"),), COMBINE, (S,), AT, (V,)), r"hist: values \(f32\) into bins of \(f64\)"),
    (Hist((Z,), COMBINE, (S,), AT, (Z,)), "hist of width n over z, whose outer size is m"),
    (StreamSeq(N, ONE, Lambda((), Body((), ())), (), ()), "stream: the function needs a parameter"),
    (StreamSeq(N, ONE, function([INT, F], [D]), (S,), ()), r"stream: accumulators \(f64\), initially"),
    (StreamSeq(N, ONE, function([INT], [V]), (), ()), r"stream: result \[n\]f32 has not the chunk's length"),
    (SegRed(Level.BLOCK, SegSpace(()), COMBINE, (S,), Body((), (S,))), "segred needs at least one dimension"),
    (SegScan(Level.BLOCK, SPACE, COMBINE, (S,), Body((), (D,))), r"segscan: elements \(f64\), neutral element \(f32\)"),
    (seghist(variable("w", F32, "m", 7)), r"seghist: bins \[m\]\[7\]f32 of w for a space of"),
    (seghist(variable("w", F32, "n")), r"seghist: bins \[n\]f32 of w for a space of"),
    (seghist(variable("w", F64, "n", 7)), r"seghist: bins \[n\]\[7\]f64 of w for a space of"),
    (seghist(variable("w", F32, "n", 7), variable("u", F32, "n", 7)), r"seghist: 2 destinations for 1 values"),
    (SegHist(Level.BLOCK, SPACE, (X,), COMBINE, (S,), Body((), (S, S))), r"seghist: the body gives \(f32, f32\)"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "message"), BAD)
def test_ill_formed_expressions_say_why(expression: Expression, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        result_types(expression)


def test_something_else_is_not_an_expression() -> None:
    with pytest.raises(TypeError, match="not an expression"):
        result_types(Program("f", (), Body((), ())))  # type: ignore[arg-type]


# the builder


def test_names_of_sizes_are_not_given_to_variables() -> None:
    b = Builder()
    x = b.variable("a", array(F32, "a", "b"))
    total = b.reduce(b.operator("add", F32), ZERO_F32, b.index(x, index_literal(0)))
    assert x.name != "a"
    verify(b.program("f", [x], [total]))


def test_the_builder_refuses_what_has_no_type() -> None:
    b = Builder()
    with pytest.raises(TypeError, match="operator add"):
        b.apply("add", S, D)
    with pytest.raises(TypeError, match="Map gives 2 values, not one"):
        b.bind(Map(N, function([Z.type, F]), (X, V)))


def test_a_program_ends_outside_all_scopes() -> None:
    b = Builder()
    with b.scope(), pytest.raises(ValueError, match="outside all scopes"):
        b.program("f", [], [])


def test_control_and_loops_of_the_builder_are_well_formed() -> None:
    b = Builder()
    x, limit = b.variable("x", array(F32, "n")), b.variable("limit", F)
    (total,) = b.for_loop("n", [ZERO_F32], lambda i, c: b.apply("add", c, b.index(x, i)))
    (low,) = b.while_loop([total], lambda c: b.apply("gt", c, limit), lambda c: b.apply("div", c, Literal(2.0, F32)))
    (chosen,) = b.cond(b.apply("lt", low, limit), lambda: low, lambda: b.cast(F32, limit))
    scanned = b.scan(b.operator("max", F32), chosen, x)
    dotted = b.redomap(b.operator("add", F32), ZERO_F32, [x, scanned], lambda p, q: b.apply("mul", p, q))
    pairs = b.map_many([x], lambda e: (e, b.apply("exp", e)))
    count, four = b.size_value(N + 1), b.size_value(4)
    assert four == index_literal(4)
    assert b.rearrange(x, (0,)) is x
    verify(b.program("f", [x, limit], [dotted, *pairs, count]))
