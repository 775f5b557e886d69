"""Everything that a point may contain is known as soon as programs can be compiled, whatever else has been imported."""

import subprocess
import sys

FRESH = """
import importlib, pkgutil
import tilewright.passes.statements
from tilewright.passes.items.lower_items import lower_expression
known = set(lower_expression.registry)
import tilewright.passes
for module in pkgutil.walk_packages(tilewright.passes.__path__, "tilewright.passes."):
    importlib.import_module(module.name)
print(*sorted(one.__name__ for one in set(lower_expression.registry) - known))
"""


def test_no_module_that_may_not_be_imported_knows_an_expression_inside_of_points() -> None:
    run = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
