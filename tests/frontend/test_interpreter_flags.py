"""Programs run alike under Python's flags."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright as tw

SCRIPT = """
import numpy as np, tilewright as tw

@tw.program
def normalised(rows: tw.f64["n", "m"]):
    return tw.map(lambda row: row / tw.reduce("add", 0, row), rows)

rows = np.arange(1.0, 7.0).reshape(2, 3)
assert_close = np.testing.assert_allclose
assert_close(normalised(rows), rows / rows.sum(1, keepdims=True), rtol=1e-15)
assert_close(tw.einsum("ij,kj,kl->il", rows, rows, rows), rows @ rows.T @ rows, rtol=1e-15)
print("fine", len(normalised.explain()) > 0)
"""


@pytest.mark.parametrize("flags", [["-O"], ["-OO"], ["-W", "error"], ["-bb"]])
def test_flags(flags: list[str], tmp_path: Path) -> None:
    path = str(Path(tw.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": path, "TILEWRIGHT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, *flags, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout == "fine True\n", done.stderr
