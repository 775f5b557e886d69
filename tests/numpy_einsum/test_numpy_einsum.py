"""NumPy's tests of einsum pass with ours in its place (`rebind_einsum.py` names the few that are left out, and why)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rebind_einsum import EXCLUDED, ONLY_WITH_ALL_DTYPES

MODULE = "numpy._core.tests.test_einsum"


@pytest.mark.parametrize("dtypes", ["some", pytest.param("all", marks=pytest.mark.slow)])
def test_numpy_tests_of_einsum_pass(tmp_path: Path, dtypes: str) -> None:
    here = Path(__file__).parent
    command = [
        sys.executable, "-m", "pytest", "--pyargs", MODULE, "-p", "rebind_einsum", "-q", "-rs", "-x",
        "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", os.devnull,
    ]  # fmt: skip
    path = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "NUMPY_EINSUM_DTYPES": dtypes}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    counts = {what: int(number) for number, what in re.findall(r"(\d+) (passed|skipped)", ran.stdout)}
    left_out = len(EXCLUDED) + (len(ONLY_WITH_ALL_DTYPES) if dtypes == "some" else 0)
    assert counts["skipped"] == left_out, ran.stdout
    assert counts["passed"] >= 50, ran.stdout
