"""What a function of two parameters is: told once for each function, whatever was asked of others before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir.nodes import Lambda, Map
from tilewright.ir.parser import parse_program
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.passes.packed.two_sides import is_operator, operator_of

TEXT = """
def f (xs: [n]f32, ys: [n]f32) =
  let (z: [n]f32) = map n (\\(x: f32, y: f32) ->
    {body}) xs ys
  in (z)
"""
CASES = {
    "let (s: f32) = x * y in (s)": "mul",
    "let (s: f32) = y * x in (s)": "mul",
    "let (s: f32) = min(x, y) in (s)": "min",
    "let (s: f32) = x * x in (s)": None,
    "let (s: f32) = x * y let (t: f32) = s + x in (t)": None,
    "let (s: f32) = x * y let (t: f32) = y * x in (t)": None,
}


def function_of(body: str) -> Lambda:
    program = parse_program(TEXT.format(body=body))
    (expression,) = [one.expression for one in program.body.statements]
    assert isinstance(expression, Map)
    return expression.function


@pytest.mark.parametrize("body", CASES)
def test_functions(body: str) -> None:
    function = function_of(body)
    for _ in range(2):
        assert operator_of(function) == CASES[body]
        assert is_operator(function, "mul") == (CASES[body] == "mul")
        assert not is_operator(function, "max")
        assert is_vectorisable((function,))


@given(st.lists(st.sampled_from(sorted(CASES)), min_size=1, max_size=6))
def test_in_any_order(bodies: list[str]) -> None:
    functions = [function_of(one) for one in bodies]
    assert [operator_of(one) for one in functions] == [CASES[one] for one in bodies]
