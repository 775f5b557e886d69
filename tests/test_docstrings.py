"""The examples in the documentation of every module run and print what they say."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import tilewright

MODULES = sorted(one.name for one in pkgutil.walk_packages(tilewright.__path__, "tilewright."))


@pytest.mark.parametrize("name", ["tilewright", *MODULES])
def test_examples(name: str) -> None:
    module = import_module(name)
    assert doctest.testmod(module).failed == 0


def test_examples_are_found() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = sum(bool(one.examples) for name in MODULES for one in finder.find(import_module(name)))
    assert found > 50
