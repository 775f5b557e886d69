"""The rules of a family are found without importing the modules of the others."""

from __future__ import annotations

import subprocess
import sys

from tilewright.rewrite import rules
from tilewright.rewrite.rule import all_rules, rules_of


def test_modules_hold_the_families_that_are_said() -> None:
    found: dict[str, set[str]] = {module: set() for module in rules.MODULES}
    for one in all_rules():
        found.get(one.function.__module__, set()).add(one.family)
    said = dict(zip(rules.MODULES, map(set, rules.FAMILIES.values()), strict=True))
    assert found == said
    families = {family for some in rules.FAMILIES.values() for family in some}
    ours = [one for one in all_rules() if one.function.__module__ in rules.MODULES]
    assert sum(len([one for one in rules_of(family) if one in ours]) for family in families) == len(ours)


def test_an_einsum_imports_what_it_needs() -> None:
    code = """
import sys
import numpy as np
import tilewright as tw
a = np.ones((8, 8))
assert (tw.einsum("ij,jk->ik", a, a, target="cpu") == 8).all()
names = ("passes.statements", "passes.lower_general", "passes.tile_kernel", "rewrite.rules.flatten_segments",
         "ir.interpreter", "contraction.tensor_operation", "passes.segment_steps")
print([name for name in names if f"tilewright.{name}" in sys.modules])
assert (tw.einsum("ij,jk->ik", np.ones((3, 0)), np.ones((0, 2)), target="cpu") == np.zeros((3, 2))).all()
print("tilewright.passes.statements" in sys.modules)
"""
    environment = {"TILEWRIGHT_CACHE": "0", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split("\n")[:2] == ["[]", "True"], done.stdout + done.stderr
