"""Programs for the tests of rules and passes, ways to apply a rule to them, and a counter of scalar operations."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from tilewright.ir import interpreter
from tilewright.ir.nodes import Apply, Program
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.ir.verifier import verify
from tilewright.rewrite.rule import Rule
from tilewright.rewrite.strategy import State, apply, everywhere, run_strategy


def program(parameters: str, body: str) -> Program:
    """A verified program `f` with these parameters and this (indented) body."""
    parsed = parse_program(f"def f ({parameters}) =\n{textwrap.indent(textwrap.dedent(body), '  ')}")
    verify(parsed)
    return parsed


def body_text(result: Program) -> str:
    """A program's printed body."""
    return textwrap.dedent(print_program(result).split("=\n", 1)[1]).strip()


def everywhere_once(rule: Rule, source: Program) -> State:
    """The state after a rule has been applied wherever it fires; the result is well-formed."""
    state = run_strategy(source, everywhere(apply(rule)))
    verify(state.program)
    return state


def operations(source: Program, arguments: Sequence[Any]) -> int:
    """How many scalar operations the reference interpreter executes for a program."""
    count = 0
    meaning = interpreter._MEANINGS[Apply]

    def counting(expression: Any, environment: Any) -> Any:
        nonlocal count
        count += 1
        return meaning(expression, environment)

    interpreter._MEANINGS[Apply] = counting
    try:
        interpreter.interpret(source, arguments)
    finally:
        interpreter._MEANINGS[Apply] = meaning
    return count
