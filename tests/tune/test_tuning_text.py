"""docs/tuning.md: its Python runs, and it names what there is."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.cli.main import app
from tilewright.passes.flattening.flatten_tree import CONTRACTION
from tilewright.rewrite.rules.flatten_versions import BLOCK_BYTES, BLOCK_THREADS
from tilewright.tune.places import FILE_VARIABLE

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "tuning.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "tunings.sqlite3"))
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in BLOCKS:
            exec(compile(block, "docs/tuning.md", "exec"), names)
    printed = capsys.readouterr().out
    shown = re.search(r"row_sums: 3 versions\n(?: +.*\n)+", TEXT)
    assert shown is not None
    for line in shown.group().splitlines():
        assert re.sub(r"= \d+", "= ", line.strip()) in re.sub(r"= \d+", "= ", printed)


def test_it_names_what_there_is() -> None:
    assert len(BLOCKS) == 3
    for name in set(re.findall(r"tw\.(\w+)", TEXT)):
        assert hasattr(tw, name), name
    for name in (BLOCK_THREADS, BLOCK_BYTES, f"{CONTRACTION}k", FILE_VARIABLE):
        assert f"`{name}`" in TEXT
    for method in ("tune", "tune_tiles", "with_thresholds", "thresholds", "with_tiles", "explain"):
        assert method in TEXT and hasattr(tw.TracedProgram, method)
    assert any(one.callback is not None and one.callback.__name__ == "tune" for one in app.registered_commands)
