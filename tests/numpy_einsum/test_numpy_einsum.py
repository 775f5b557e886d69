"""NumPy's tests of einsum pass with ours in its place (`rebind_einsum.py` names the few that are left out, and why)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rebind_einsum import EXCLUDED

MODULE = "numpy._core.tests.test_einsum"


def test_numpy_tests_of_einsum_pass(tmp_path: Path) -> None:
    here = Path(__file__).parent
    command = [
        sys.executable, "-m", "pytest", "--pyargs", MODULE, "-p", "rebind_einsum", "-q", "-rs", "-x",
        "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", os.devnull,
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    counts = {what: int(number) for number, what in re.findall(r"(\d+) (passed|skipped)", ran.stdout)}
    assert counts["skipped"] == len(EXCLUDED), ran.stdout
    assert counts["passed"] >= 50, ran.stdout
