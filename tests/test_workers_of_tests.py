"""A worker of pytest-xdist has little left to do once it has said that it is done: it is interrupted soon after."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

AFTERWARDS = """

def pytest_unconfigure() -> None:
    print("left:", len(gc.get_objects()), os.path.exists(_CACHE))
"""


def test_nothing_is_left_to_be_searched_or_removed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text() + AFTERWARDS)
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = [line.split() for line in done.stdout.splitlines() if line.startswith("left:")]
    assert int(told[1]) < 5_000 and told[2] == "False"
