"""First calls from the disk import none of the heavier modules of Python's library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("json", "pathlib", "traceback", "urllib.parse", "importlib.util", "hashlib", "tempfile", "llvmlite")
OPERATION = """
c, size = np.zeros((4, 4)), tw.TensorDimension
sizes = (size("M", "prim", 4, 4, 0, 4), size("N", "prim", 4, 0, 1, 1), size("K", "prim", 4, 1, 4, 0))
tw.TensorOperation("f64", "gemm", sizes).compile("cpu")(a, a, c)
assert c[0, 0] == 4
"""
CALLS = {
    "einsum": 'assert tw.einsum("ij,jk->ik", a, a)[0, 0] == 4',
    "plan": 'assert tw.plan("ij,jk->ik", (4, 4), (4, 4))(a, a)[0, 0] == 4',
    "program": "for _ in range(3): assert total(a[0], a[0]) == 4",
    "operation": OPERATION,
}
SCRIPT = """
# ruff: noqa: F821
import sys
import numpy as np
a = np.ones((4, 4))
before = set(sys.modules)
import tilewright as tw
tw.set_num_threads(1)
if {uses_program}:
    @tw.program
    def total(xs: tw.f64["n"], ys: tw.f64["n"]):
        return tw.reduce("add", 0, tw.map(lambda x, y: x * y, xs, ys))
{call}
print(*sorted(set(sys.modules) - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is kept on the disk")
@pytest.mark.parametrize("name", CALLS)
def test_what_is_imported(name: str, tmp_path: Path) -> None:
    script = tmp_path / "calls.py"
    script.write_text(SCRIPT.format(call=CALLS[name], uses_program=name == "program"))
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    for number in range(2):
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stderr
        imported = done.stdout.split()
        assert ("tilewright.runtime.cpu_jit" in imported) == (number == 0)
    assert not [one for one in HEAVY if one in imported]
    assert not {"tilewright.runtime.host", "tilewright.kernel.ir"} & set(imported)
