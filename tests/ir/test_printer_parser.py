"""The text of core programs: readable, and read back exactly."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
from core_programs import EVERYTHING, MATMUL, literals, programs
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import builder
from tilewright.ir.builder import Builder
from tilewright.ir.lexer import ParseError, quote
from tilewright.ir.nodes import Body, Expression, Lambda, Literal, Program, Type, array
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_atom, print_lambda, print_program, print_statement, print_type
from tilewright.ir.scalars import BF16, C64, F32, F64, I8, I64, ScalarType
from tilewright.ir.sizes import size
from tilewright.ir.traversal import all_statements
from tilewright.ir.verifier import verify


@pytest.mark.parametrize("text", [MATMUL, EVERYTHING], ids=["matmul", "everything"])
def test_texts_are_read_and_printed_as_they_were(text: str) -> None:
    program = parse_program(text)
    assert print_program(program) == text
    assert parse_program(print_program(program)) == program
    verify(program)


def test_everything_has_every_node() -> None:
    kinds = {type(one.expression) for one in all_statements(parse_program(EVERYTHING).body)}
    assert kinds == set(Expression.__args__)


@given(programs())
@settings(max_examples=60)
def test_random_programs_round_trip(program: Program) -> None:
    verify(program)
    text = print_program(program)
    assert parse_program(text) == program
    assert print_program(parse_program(text)) == text


def _constant(literal: Literal) -> Program:
    return Program("f", (), Body((), (literal,)))


@given(literals())
@settings(max_examples=200)
def test_literals_round_trip_to_the_bit(literal: Literal) -> None:
    (read,) = parse_program(print_program(_constant(literal))).body.results
    assert isinstance(read, Literal)
    assert type(read.value) is type(literal.value)
    assert repr(read.value) == repr(literal.value)
    assert read == literal


@given(st.text(min_size=1))
@settings(max_examples=200)
def test_any_name_round_trips(name: str) -> None:
    b = Builder()
    x = b.variable(name, array(F32, size(name + "s") * 1))
    program = b.program(name, [x], [x])
    assert parse_program(print_program(program)) == program


@pytest.mark.parametrize("name", ["map", "in", "f32", "max", "f32.inf", "a b", "1x", "", "×", "`", "a\nb"])
def test_names_that_would_not_be_read_as_names_are_quoted(name: str) -> None:
    assert quote(name) == "`" + name.replace("`", "\\{60}").replace("\n", "\\{a}") + "`"


@pytest.mark.parametrize("name", ["x", "x_1", "a.offset", "λ", "Ā", "exp", "size", "row²"])
def test_other_names_stand_as_they_are(name: str) -> None:
    assert quote(name) == name


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (Literal(math.inf, F32), "f32.inf"),
        (Literal(-math.inf, BF16), "-bf16.inf"),
        (Literal(math.nan, F64), "f64.nan"),
        (Literal(-0.0, F32), "-0.0f32"),
        (Literal(1, F32), "1.0f32"),
        (Literal(-128, I8), "-128i8"),
        (Literal(complex(1.5, -0.0), C64), "c64(1.5, -0.0)"),
    ],
)
def test_literal_text(literal: Literal, text: str) -> None:
    assert print_atom(literal) == text


@pytest.mark.parametrize("literal", [Literal(1.5, I64), Literal(1j, F32)])
def test_literals_that_are_no_value_of_their_type_are_not_printed(literal: Literal) -> None:
    with pytest.raises(TypeError, match="literal"):
        print_atom(literal)


def test_parts_print_alone() -> None:
    (statement,) = parse_program(
        "def f (x: [n]f32) = let (y: [n]f32) = map n (\\(e: f32) -> (e)) x in (y)"
    ).body.statements
    assert print_statement(statement) == "let (y: [n]f32) = map n (\\(e: f32) -> (e)) x"
    assert print_lambda(Lambda((), Body((), ()))) == "(\\() -> ())"
    assert print_type(Type(F32, (size("max") * 2, size(3)))) == "[2*`max`][3]f32"


def test_matmul_that_was_built_prints_as_the_golden_text(golden: Callable[[str, str], None]) -> None:
    b = Builder()
    left, right = b.variable("left", array(F32, "n", "k")), b.variable("right", array(F32, "k", "m"))
    columns = b.rearrange(right, (1, 0), "columns")

    def element(row: builder.Variable, column: builder.Variable) -> builder.Variable:
        add = b.operator("add", F32)
        return b.redomap(add, Literal(0.0, F32), [row, column], lambda x, y: b.apply("mul", x, y), commutative=True)

    product = b.map([left], lambda row: b.map([columns], lambda column: element(row, column)), "product")
    program = b.program("matmul", [left, right], [product])
    verify(program)
    golden("ir/matmul.txt", print_program(program))
    assert parse_program(print_program(program)) == program


def test_comments_and_layout_are_free() -> None:
    text = "-- a comment\ndef f(x:[ n ]f32)=let(y:f32)=x[0i64] -- here too\n  in(y)"
    assert print_program(parse_program(text)) == "def f (x: [n]f32) =\n  let (y: f32) = x[0i64]\n  in (y)\n"


def test_size_names_are_i64_scalars_in_scope() -> None:
    program = parse_program("def f (x: [n]f32) = let (y: i64) = n + 1i64 in (y)")
    assert program.body.statements[0].expression.operands[0].type == Type(I64)  # type: ignore[union-attr]
    verify(program)


ERRORS = [
    ("", 1, 1, "expected 'def', found the end of the text"),
    ("def f (x: [n]g32) = (x)", 1, 14, "expected a scalar type (bool, "),
    ("def f (x: [n]f32) =\n  let (y: f32) = z[0i64]\n  in (y)", 2, 18, "the name 'z' is not bound here"),
    ("def f (x: [n]f32) =\n  let (y: f32) = x[0]\n  in (y)", 2, 20, "a type after the number, such as 0i64, found '0'"),
    ("def f (x: f32) = let (y: f32) = foo(x) in (y)", 1, 33, "an operator or a word of the language, found 'foo'"),
    ("def f (x: f32) = let (y: f32) = x + in (y)", 1, 37, "expected an atom"),
    ("def f (x: f32) = let (y: f32) = x y", 1, 35, "expected 'let' or 'in', found 'y'"),
    ("def f (x: f32) = x", 1, 18, "expected a body"),
    ("def f (x: f32) = (x) (x)", 1, 22, "expected the end of the text"),
    ("def f (x: f32) = (x", 1, 20, "expected ',' or ')', found the end of the text"),
    ("def f (x: f32) = (1.5i32)", 1, 19, "a number of an integer or float type, found '1.5i32'"),
    ("def f (x: f32) = (1e5q)", 1, 19, "found '1e5q'"),
    ("def f (x: f32) = (-true)", 1, 19, "expected an atom"),
    ("def f (x: f32) = (c64(1.0))", 1, 19, "the real and the imaginary part"),
    ("def f (x: f32) = (c64(1.0, y))", 1, 28, "a number without a type, inf or nan"),
    ("def f (x: [n*]f32) = (x)", 1, 14, "expected a size"),
    ("def f (x: [min(n)]f32) = (x)", 1, 12, "two sizes as arguments of min"),
    ("def f (x: [mod(n, 0)]f32) = (x)", 1, 12, "a divisor that is not zero"),
    ("def f (x: [2i64]f32) = (x)", 1, 12, "an integer without a type in a size"),
    ("def f (map: f32) = (map)", 1, 8, "expected a name, found 'map'"),
    ("def f (x: f32) = let (y: f32) = ? in (y)", 1, 33, "unexpected character '?'"),
    ("def f (`\\{ffffffff}`: f32) = ()", 1, 8, "escape"),
    (
        "def f (x: f32) = let (y: f32) = segmap@warp (i: i64 < 3) do (x) in (y)",
        1,
        40,
        "a level (cluster, block, thread)",
    ),
    ("def f (x: f32) = let (y: f32) = loop (c: f32) = (x) do (c) in (y)", 1, 53, "'for' or 'while'"),
    ("def f (x: f32) = let (y: f32) = if true then\n (x)\nin (y)", 3, 1, "expected 'else', found 'in'"),
    ("def f (x: [n]f32) = let (y: f32) = map n (\\(e: f32) -> (e)) x in (e)", 1, 67, "'e' is not bound here"),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), ERRORS)
def test_errors_say_where_and_what_was_expected(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_program(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")


@given(st.data())
@settings(max_examples=150)
def test_damaged_texts_give_a_program_or_a_parse_error(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(EVERYTHING) - 1))
    length = data.draw(st.integers(0, 8))
    inserted = data.draw(st.sampled_from(["", "(", ")", "let", "]", "0i8", "\\", "`", "x", "@", "-"]))
    text = EVERYTHING[:start] + inserted + EVERYTHING[start + length :]
    try:
        program = parse_program(text)
    except ParseError as error:
        assert 1 <= error.line <= text.count("\n") + 1
    else:
        assert dataclasses.is_dataclass(program)
        assert parse_program(print_program(program)) == program


@pytest.mark.parametrize("scalar_type", [F32, C64])
def test_literals_are_equal_if_their_bits_are(scalar_type: ScalarType) -> None:
    assert Literal(float("nan"), scalar_type) == Literal(-float("nan"), scalar_type)
    assert hash(Literal(float("nan"), scalar_type)) == hash(Literal(-float("nan"), scalar_type))
    assert Literal(0.0, scalar_type) != Literal(-0.0, scalar_type)
    assert Literal(1, scalar_type) == Literal(1.0, scalar_type)
    assert Literal(1.0, F32) != Literal(1.0, F64)
    assert Literal(1.0, F32) != 1.0
