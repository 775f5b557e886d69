"""The README's Python runs, its commands work, and what it points to exists."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tilewright.cli.bench import FORMAT, LEAST_RUNS
from tilewright.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_blocks_run(number: int, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "readme.py"  # a file, so that what is traced has a source
    path.write_text(BLOCKS[number])
    names: dict[str, object] = {"__name__": "readme"}
    exec(compile(BLOCKS[number], str(path), "exec"), names)
    assert capsys.readouterr().out.strip()
    if "c" in names:
        np.testing.assert_allclose(names["c"], names["a"] @ names["b"])  # type: ignore[operator]
        np.testing.assert_allclose(names["layer"], names["c"] + names["bias"])  # type: ignore[operator]
    if "normalised" in names:
        rows = np.array([[1.0, 2.0], [1.0, 3.0]])
        np.testing.assert_allclose(names["normalised"](rows), rows / rows.sum(axis=1, keepdims=True))  # type: ignore[operator]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_work(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.npy", "b.npy"):
        np.save(name, np.eye(3))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    rows = [{"program": "nbody", "dataset": "medium", "seconds": [1.0] * LEAST_RUNS}]
    for name in ("before.json", "after.json"):
        Path(name).write_text(json.dumps({"format": FORMAT, "rows": rows}))
    program, *arguments = shlex.split(command)
    assert program == "tilewright"
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output


def test_there_are_ten_lines_of_use() -> None:
    assert len(BLOCKS) == 2
    assert len(COMMANDS) == 7
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) == 10


def test_links_and_targets_exist() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / link).exists(), link
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"make ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
