"""Thresholds of 0, 1 and infinity reach every version of a program: what each run asked and answered is counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import test_versions_run as cases
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs.generator import random_arguments, random_program

from tilewright.ir.interpreter import infer_sizes
from tilewright.ir.nodes import If, Loop, Program
from tilewright.ir.traversal import all_statements
from tilewright.passes.flattening.flatten_tree import Decision, Node, Work, decisions, version_settings
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.runtime.executable import Executable


def leaves(nodes: Sequence[Node]) -> int:
    """The versions of all nests, counted in the tree."""
    found = 0
    for one in nodes:
        if isinstance(one, Work):
            found += leaves(one.inside)
        elif isinstance(one, Decision):
            found += (leaves(one.yes) or 1) + (leaves(one.no) or 1)
    return found


def answers(executable: Executable, arguments: Sequence[Any]) -> tuple[tuple[str, bool], ...]:
    """What one run asks, and whether the parallelism was enough."""
    values = executable.thresholds
    return tuple((name, parallelism >= values[name]) for name, parallelism in executable.comparisons(*arguments))


def reached(executable: Executable, arguments: Sequence[Any], low: float) -> int:
    """How many versions run with the settings that are said to reach each of them; 0 is `low` in them.

    That every question of a setting is asked, and answered as it wants, leads to its version: a question is asked only
    where those around it were answered so that it is.
    """
    settings_ = version_settings(executable.program)
    for setting in settings_:
        forced = {name: low if value == 0 else value for name, value in setting.items()}
        others = dict.fromkeys(executable.thresholds, math.inf)
        asked = answers(executable.with_thresholds({**others, **forced}), arguments)
        for name, value in setting.items():
            given_ = {answer for one, answer in asked if one == name}
            assert given_ == {value == 0}, f"{name} = {value} of {setting} is asked about and answered so: {asked}"
    return len({tuple(sorted(one.items())) for one in settings_})


@cases.each_device
@pytest.mark.parametrize("low", [0.0, 1.0])
@cases.each_program
def test_each_version_is_reached(name: str, source: Program, arguments: Sequence[Any], low: float, target: str) -> None:
    executable = cases.compiled(source, target, "incremental")
    assert reached(executable, arguments, low) == leaves(decisions(executable.program.body)) > 1


@settings(max_examples=cases.EXAMPLES)
@given(seed=st.integers(0, 2**32 - 1), low=st.sampled_from([0.0, 1.0]))
def test_each_version_of_random_programs_is_reached(seed: int, low: float) -> None:
    """Of programs whose statements all run: without an empty dimension, a branch, or a loop that may have no round."""
    source = cases.batched(random_program(seed, depth=2, statements=4), "outer")
    arguments = random_arguments(source, seed)
    sizes = infer_sizes(source, arguments)
    statements = [*all_statements(source.body)]
    extents = {extent for one in statements for target in one.targets for extent in target.type.shape}
    known = all(extent.names <= sizes.keys() and extent.evaluate(sizes) > 0 for extent in extents)
    if not known or any(isinstance(one.expression, If | Loop) for one in statements):
        return
    try:
        executable = cases.compiled(source, "cpu", "incremental")
    except LoweringError:
        return
    assert reached(executable, arguments, low) == leaves(decisions(executable.program.body))
