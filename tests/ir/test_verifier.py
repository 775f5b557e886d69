"""The verifier lists every defect of a program with its place; well-formed programs pass."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable

import pytest
from core_programs import EVERYTHING, MATMUL, programs
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir.builder import Builder
from tilewright.ir.nodes import (
    Alias,
    Body,
    Copy,
    Index,
    Iota,
    Lambda,
    Level,
    Literal,
    Map,
    Program,
    SegMap,
    SegSpace,
    Statement,
    Type,
    Variable,
    array,
)
from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import BOOL, C64, F32, F64, I8, I64, U8, ScalarType
from tilewright.ir.sizes import size
from tilewright.ir.traversal import rebuild, used_variables
from tilewright.ir.verifier import Defect, IRError, verify


def defects(program: Program | str) -> list[str]:
    """The defects of a program or its text, as printed."""
    with pytest.raises(IRError) as caught:
        verify(parse_program(program) if isinstance(program, str) else program)
    assert isinstance(caught.value, ValueError)
    assert all(str(one) in str(caught.value) for one in caught.value.defects)
    return [str(one) for one in caught.value.defects]


@pytest.mark.parametrize("text", [MATMUL, EVERYTHING])
def test_well_formed_programs_pass(text: str) -> None:
    verify(parse_program(text))


def one(statements: str, parameters: str = "x: [n]f32, y: f32, i: i64, p: bool") -> str:
    """A program of these statements."""
    return f"def f ({parameters}) = {statements}"


ADD = "(\\(a: f32, b: f32) -> let (c: f32) = a + b in (c))"
DEFECTS = [
    # types that are bound
    (
        one("let (r: f64) = x[0i64] in (r)"),
        "f / let r = index: r is bound with type f64, but the expression gives f32",
    ),
    (
        one("let (r: f32, s: f32) = x[0i64] in (r)"),
        "f / let r, s = index: 2 names are bound, but the expression gives 1: (f32)",
    ),
    (one("let (r: f32) = x + x in (r)"), "f / let r = apply add: operator add takes scalars, but x has type [n]f32"),
    (one("let (r: f32) = y + 1.0f64 in (r)"), "f / let r = apply add: operator add needs operands of one type"),
    # the path to a place
    (
        one("let (r: [n]f32) = map n (\\(e: f32) -> let (t: f64) = e + e in (e)) x in (r)"),
        "f / let r = map / let t = apply add: t is bound with type f64, but the expression gives f32",
    ),
    (
        one("let (r: f32) = redomap n (\\(a: f32, b: f32) -> (a)) (0.0f32) "
            "(\\(e: f32) -> let (t: f32) = exp(1i64) in (t)) x in (r)"),
        "f / let r = redomap / function / let t = apply exp: operator exp is not defined on i64",
    ),
    (
        one("let (r: f32) = if p then let (t: f64) = neg(y) in (y) else (y) in (r)"),
        "f / let r = if / then / let t = apply neg: t is bound with type f64, but the expression gives f32",
    ),
    (
        one(f"let (r: f32) = segred@block (k: i64 < n) {ADD.replace('c: f32', 'c: f64')} (0.0f32) do (y) in (r)"),
        "f / let r = segred / combine / let c = apply add: c is bound with type f64, but the expression gives f32",
    ),
    (
        one("let (r: f32) = loop (a: f32) = (y) while (\\(b: f32) -> let (c: f32) = b < b in (c)) do (a) in (r)"),
        "f / let r = loop / while / let c = apply lt: c is bound with type f32, but the expression gives bool",
    ),
    # uniqueness
    (
        one("let (r: f32) = y let (r: f32) = y in (r)"),
        "f / let r = alias: r is bound again; it was first bound in f / let r = alias",
    ),
    (
        one("let (n: i64) = i in (n)"),
        "f / let n = alias: n is bound again; it was first bound in f (a size of the parameters)",
    ),
    (one("(y)", "y: f32, y: f32"), "f: y is bound again; it was first bound in f"),
    (
        one("let (r: [n]f32) = map n (\\(y: f32) -> (y)) x in (r)"),
        "f / let r = map: y is bound again; it was first bound in f",
    ),
    (
        one("let (r: i64) = loop (a: i64) = (i) for a: i64 < n do (a) in (r)"),
        "f / let r = loop: a is bound again; it was first bound in f / let r = loop",
    ),
    # sizes
    (
        one("let (r: [m]f32) = replicate m y in (r)"),
        "f / let r = replicate: the size m: m is used before it is bound, or never bound",
    ),
    (
        one("let (r: [m]f32) = replicate m y in (r)"),
        "f / let r = replicate: the type [m]f32 of r: m is used before it is bound, or never bound",
    ),
    (
        one("let (r: [n][k]i64) = map n (\\(e: f32) -> let (k: i64) = e as i64 "
            "let (s: [k]i64) = iota k i64 in (s)) x in (r)"),
        "f / let r = map: the type [n][k]i64 of r: k is out of scope; it is bound in f / let r = map / let k = cast",
    ),
    (
        one("let (r: [y]f32) = replicate y y in (r)"),
        "f / let r = replicate: the size y: y has type f32, a size must be i64",
    ),
    (
        one("(x)", "x: [n + 1]f32, y: [2*n]f32"),
        "f: size n cannot be solved for: no parameter has it as a dimension (x: [n + 1]f32, y: [2*n]f32)",
    ),
    (
        one("(x)", "x: [i + n]f32, i: i32, z: [n]f32"),
        "f: the type [i + n]f32 of x: i has type i32, a size must be i64",
    ),
    (one("(x)", "x: [-4]f32"), "f: parameter x of type [-4]f32 has a negative size"),
    (
        one("let (r: f32) = loop (a: f32) = (y) for k: i64 < m do (a) in (r)"),
        "f / let r = loop: the bound of the loop: m is used before it is bound, or never bound",
    ),
    (
        one("let (r: f32) = loop (a: f32) = (y) for k: i64 < k do (a) in (r)"),
        "f / let r = loop: the bound of the loop: k is used before it is bound, or never bound",
    ),
    (
        one("let (r: [n][m]f32) = segmap@block (a: i64 < n, b: i64 < a) do (y) in (r)"),
        "f / let r = segmap: the extent of b: a is used before it is bound, or never bound",
    ),
    # control
    (one("let (r: f32) = if y then (y) else (y) in (r)"), "f / let r = if: if needs a bool condition, not f32"),
    (
        one("let (r: f32) = if p then (y) else (i) in (r)"),
        "f / let r = if: the branches of an if give (f32) and (i64)",
    ),
    (
        one("let (r: f32) = loop (a: f32) = (y) while (\\(b: f32) -> (b)) do (a) in (r)"),
        "f / let r = loop: a while condition gives one bool, not (f32)",
    ),
    (
        one("let (r: f32) = loop (a: f32) = (y) while (\\(b: f64) -> (true)) do (a) in (r)"),
        "f / let r = loop: while condition: the function takes (f64) but is given (f32)",
    ),
    (
        one("let (r: f32) = loop (a: f32) = (y) for k: i32 < n do (a) in (r)"),
        "f / let r = loop: loop index k has type i32",
    ),
    (
        one("let (r: f32) = loop (a: f32) = (i) for k: i64 < n do (a) in (r)"),
        "f / let r = loop: loop starts from (i64), not (f32)",
    ),
    # combinators
    (
        one("let (r: [n]f32) = map n (\\(e: f64) -> (y)) x in (r)"),
        "f / let r = map: map: the function takes (f64) but is given (f32)",
    ),
    (
        one(f"let (r: f32) = reduce n {ADD} (0.0f64) x in (r)"),
        "f / let r = reduce: reduce operator: the function takes (f32, f32)",
    ),
    (
        one("let (r: f32) = stream_seq n 0 (\\(l: i64, a: f32, c: [l]f32) -> (a)) (y) x in (r)"),
        "f / let r = stream_seq: the stream's chunk of 0 rows is not positive",
    ),
    # levels
    (
        one("let (r: [n][n]f32) = segmap@block (a: i64 < n) do "
            "let (s: [n]f32) = segmap@block (b: i64 < n) do (y) in (s) in (r)"),
        "f / let r = segmap / let s = segmap: a segmap at level block stands inside one at level block",
    ),
    (
        one("let (r: [n][n]f32) = segmap@thread (a: i64 < n) do "
            "let (s: [n]f32) = map n (\\(e: f32) -> "
            f"let (t: f32) = segred@cluster (b: i64 < n) {ADD} (0.0f32) do (y) in (t)) x in (s) in (r)"),
        "f / let r = segmap / let s = map / let t = segred: "
        "a segred at level cluster stands inside one at level thread",
    ),
    (
        one("let (r: [n]bool) = map n (\\(e: f32) -> let (t: bool) = threshold outer_0 n in (t)) x in (r)"),
        "f / let r = map / let t = threshold: the threshold outer_0 is asked in a function, which",
    ),
    (
        one("let (r: [n]f32) = segmap@thread (a: i32 < n) do (y) in (r)"),
        "f / let r = segmap: index a has type i32, i64 is needed",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), DEFECTS)
def test_a_defect_is_told_with_its_place_and_types(text: str, expected: str) -> None:
    assert any(one.startswith(expected) for one in defects(text)), defects(text)


def test_every_defect_is_listed() -> None:
    text = one(
        """
        let (a: f64) = y
        let (b: [n]f32) = map n (\\(e: f32) ->
          let (c: i64) = e + e
          let (c: f32) = e < e
          in (e)) x
        let (d: f32) = exp(p)
        in (a)"""
    )
    assert [line.split(":")[0] for line in defects(text)] == [
        "f / let a = alias",
        "f / let b = map / let c = apply add",
        "f / let b = map / let c = apply lt",
        "f / let b = map / let c = apply lt",
        "f / let d = apply exp",
    ]
    with pytest.raises(IRError, match=r"the program f is not well-formed, 5 defects:\n  f / let a"):
        verify(parse_program(text))


X, Y = Variable("x", array(F32, "n")), Variable("y", Type(F32))


def program(*statements: Statement, results: tuple[Variable | Literal, ...] = (Y,)) -> Program:
    return Program("f", (X, Y), Body(statements, results))


def test_uses_have_the_type_of_their_binding() -> None:
    wrong = Variable("x", array(F64, "n"))
    copied = Statement((Variable("z", wrong.type),), Copy(wrong))
    message = "f / let z = copy: x is used with type [n]f64, but bound with type [n]f32"
    assert defects(program(copied)) == [message]
    assert defects(program(results=(wrong,))) == ["f / in: x is used with type [n]f64, but bound with type [n]f32"]


def test_names_are_used_after_and_inside_their_binding_only() -> None:
    z, e = Variable("z", Type(F32)), Variable("e", Type(F32))
    before = program(Statement((Y2 := Variable("y2", Type(F32)),), Alias(z)), Statement((z,), Alias(Y2)))
    assert defects(before) == ["f / let y2 = alias: z is used before it is bound, or never bound"]
    mapped = Statement((Variable("r", X.type),), Map(size("n"), Lambda((e,), Body((), (e,))), (X,)))
    assert defects(program(mapped, results=(e,))) == ["f / in: e is out of scope; it is bound in f / let r = map"]


def test_branches_do_not_see_each_other() -> None:
    text = one("let (r: f32) = if p then let (t: f32) = neg(y) in (t) else (y) in (r)")
    tree = parse_program(text)
    (statement,) = tree.body.statements
    leak = dataclasses.replace(statement.expression, otherwise=Body((), (Variable("t", Type(F32)),)))
    broken = dataclasses.replace(
        tree, body=dataclasses.replace(tree.body, statements=(Statement(statement.targets, leak),))
    )
    assert defects(broken) == [
        "f / let r = if / otherwise / in: t is out of scope; it is bound in f / let r = if / then / let t = apply neg"
    ]


@pytest.mark.parametrize(
    ("value", "element", "problem"),
    [
        (True, I64, "the literal True is a bool, not a value of i64"),
        (1, BOOL, "the literal 1 is a int, not a value of bool"),
        (1.5, I64, "the literal 1.5 is a float, not a value of i64"),
        (1j, F32, "the literal 1j is a complex, not a value of f32"),
        (True, C64, "the literal True is a bool, not a value of c64"),
        (128, I8, "the literal 128 does not fit i8 (-128 to 127)"),
        (-129, I8, "the literal -129 does not fit i8 (-128 to 127)"),
        (-1, U8, "the literal -1 does not fit u8 (0 to 255)"),
        (256, U8, "the literal 256 does not fit u8 (0 to 255)"),
        (1 << 63, I64, f"the literal {1 << 63} does not fit i64"),
    ],
)
def test_literals_are_values_of_their_type(value: complex, element: ScalarType, problem: str) -> None:
    (defect,) = defects(program(results=(Literal(value, element),)))
    assert defect.startswith(f"f / in: {problem}")


@pytest.mark.parametrize(
    "value", [Literal(127, I8), Literal(-128, I8), Literal(255, U8), Literal(1, F32), Literal(2, C64)]
)
def test_good_literals_pass(value: Literal) -> None:
    verify(program(results=(value,)))


def test_bodies_at_deeper_levels_pass() -> None:
    i, j, k = (Variable(name, Type(I64)) for name in "ijk")
    inner = Statement((Variable("a", array(F32, 2)),), SegMap(Level.THREAD, SegSpace(((k, size(2)),)), Body((), (Y,))))
    middle = SegMap(Level.BLOCK, SegSpace(((j, size(3)),)), Body((inner,), inner.targets))
    between = Statement((Variable("b", array(F32, 3, 2)),), middle)
    outer = SegMap(Level.CLUSTER, SegSpace(((i, size("n")),)), Body((between,), between.targets))
    verify(program(Statement((Variable("c", array(F32, "n", 3, 2)),), outer)))


def test_a_defect_says_where_and_what() -> None:
    assert str(Defect("f / in", "wrong")) == "f / in: wrong"


@given(programs(), st.data())
def test_one_wrong_type_in_a_good_program_is_found(good: Program, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(good.body.statements) - 1))
    statement = good.body.statements[position]
    target = statement.targets[0]
    changed = Variable(target.name, Type(C64 if target.type.element != C64 else F32, target.type.shape))
    statements = list(good.body.statements)
    statements[position] = Statement((changed, *statement.targets[1:]), statement.expression)
    with pytest.raises(IRError):
        verify(Program(good.name, good.parameters, Body(tuple(statements), good.body.results)))


@given(programs(), st.data())
def test_one_name_bound_twice_in_a_good_program_is_found(good: Program, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(good.body.statements) - 1))
    statements = (*good.body.statements, good.body.statements[position])
    with pytest.raises(IRError, match="is bound again"):
        verify(Program(good.name, good.parameters, Body(statements, good.body.results)))


def test_expressions_outside_any_scope_are_told_once_each() -> None:
    lost = Variable("lost", array(F32, 4))
    index = Index(lost, (Variable("where", Type(I64)),))
    statement = Statement((Variable("r", Type(F32)),), index)
    assert len(defects(program(statement))) == 2
    statement = Statement((Variable("r", array(I64, 4)),), Iota(size(4)))
    verify(program(statement))
    b = Builder()
    verify(b.program("empty", [], []))


def change_occurrence(good: Program, position: int, change: Callable[[Variable], Variable]) -> Program:
    """The program with one occurrence of a variable in its body, bound or used there, changed."""
    occurrences = itertools.count()
    body = rebuild(good.body, lambda one: change(one) if next(occurrences) == position else one, lambda one: one)
    return Program(good.name, good.parameters, body)


def other_type(one: Variable) -> Variable:
    return Variable(one.name, Type(F64 if one.type.element == F32 else F32, one.type.shape))


def other_rank(one: Variable) -> Variable:
    return Variable(one.name, one.type.array_of(3))


def other_name(one: Variable) -> Variable:
    return Variable(one.name + "_unknown", one.type)


EVERY_NODE = parse_program(EVERYTHING)


@pytest.mark.parametrize("change", [other_type, other_rank, other_name])
def test_no_single_change_of_a_variable_goes_unseen(change: Callable[[Variable], Variable]) -> None:
    uses = collections.Counter(one.name for one in used_variables(EVERY_NODE.body))
    unseen = []
    for position, one in enumerate(used_variables(EVERY_NODE.body)):
        try:
            verify(change_occurrence(EVERY_NODE, position, change))
        except IRError:
            continue
        unseen.append((position, one.name))
    # what is bound but never used may have any name
    assert [name for _, name in unseen if change is not other_name or uses[name] > 1] == []
