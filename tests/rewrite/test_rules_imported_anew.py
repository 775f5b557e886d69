"""Modules of rules can be imported once more, as a child does after a fork in the middle of another thread's import."""

import importlib
import sys

import pytest

from tilewright.ir.nodes import Apply
from tilewright.rewrite.rule import RewriteError, rule, rule_named, rules_of


def test_rules_of_a_module_that_is_imported_anew() -> None:
    before = [one.name for one in rules_of("simplification")]
    name = "tilewright.rewrite.rules.hoisting"
    kept = sys.modules.pop(name)
    try:
        importlib.import_module(name)
        assert [one.name for one in rules_of("simplification")] == before
    finally:
        sys.modules[name] = kept


_CELL = """
@rule("test", Apply)
def of_a_cell(at):
    \'\'\'x  =>  {}\'\'\'
    return at.body
"""


def test_rules_that_are_written_again_in_a_notebook() -> None:
    names = {"__name__": "a_notebook", "rule": rule, "Apply": Apply}
    for cell, text in (("cell 1", _CELL.format("y")), ("cell 2", "\n" + _CELL.format("z"))):
        exec(compile(text, cell, "exec"), names)
    assert rule_named("of_a_cell").equation == "x => z"
    with pytest.raises(RewriteError, match="two rules named of_a_cell"):
        exec(compile(_CELL.format("y") + _CELL.format("z"), "cell 3", "exec"), names)
