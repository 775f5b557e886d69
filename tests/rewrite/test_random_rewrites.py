"""Random programs before and after every rule, wherever it fires, mean the same."""

from __future__ import annotations

import pytest
from random_programs.generator import random_arguments, random_program
from rewrite_programs import everywhere_once, operations

from tilewright.ir.interpreter import interpret
from tilewright.rewrite.derivation import agree
from tilewright.rewrite.rule import rules_of

FAMILIES = ("simplification", "dead code", "fusion", "horizontal fusion", "histogram rows", "one pass")


@pytest.mark.parametrize("seed", range(60))
def test_every_rule_keeps_the_meaning(seed: int) -> None:
    source = random_program(seed)
    arguments = random_arguments(source, seed)
    expected = interpret(source, arguments)
    work = operations(source, arguments)
    for family in FAMILIES:
        for rule in rules_of(family):
            state = everywhere_once(rule, source)
            if state.steps:
                assert agree(expected, interpret(state.program, arguments)) is None, rule.name
                if rule.name != "hoist_invariant":  # which may compute what a loop of no rounds does not
                    assert operations(state.program, arguments) <= work, rule.name
