"""Modules of rules can be imported once more, as a child does after a fork in the middle of another thread's import."""

import importlib
import sys

from tilewright.rewrite.rule import rules_of


def test_rules_of_a_module_that_is_imported_anew() -> None:
    before = [one.name for one in rules_of("simplification")]
    name = "tilewright.rewrite.rules.hoisting"
    kept = sys.modules.pop(name)
    try:
        importlib.import_module(name)
        assert [one.name for one in rules_of("simplification")] == before
    finally:
        sys.modules[name] = kept
