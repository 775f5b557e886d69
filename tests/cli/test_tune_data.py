"""Data sets that a program cannot take are left out of its tuning, and told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tilewright.cli.main import app

PROGRAM = """
import tilewright as tw

@tw.program
def row_sums(xss: tw.f32["n", "m"]):
    return tw.map(lambda xs: tw.reduce("add", 0, xs), xss)
"""


def test_arrays_of_other_types_and_ranks_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_TUNINGS", str(tmp_path / "tunings.sqlite3"))
    path = tmp_path / "sums.py"
    path.write_text(PROGRAM)
    for name, array in {
        "fits": np.ones((4, 40), np.float32), "double": np.ones((4, 40)), "flat": np.ones(4, np.float32),
    }.items():  # fmt: skip
        np.savez(tmp_path / f"{name}.npz", xss=array)
    files = [f"--data={tmp_path / name}.npz" for name in ("fits", "double", "flat")]
    result = CliRunner().invoke(app, ["tune", str(path), *files, "--seconds", "0.001"])
    assert result.exit_code == 0, result.output
    told = " ".join(result.output.split())
    assert told.count("double") == 1, told
    assert "data set double: program row_sums: parameter xss: f32[n, m] does not take dtype f64" in told
    assert "data set flat: program row_sums: parameter xss has 2 dimensions, not 1" in told
    result = CliRunner().invoke(app, ["tune", str(path), files[1], "--seconds", "0.001"])
    assert result.exit_code != 0
    assert "does not take dtype f64" in " ".join(result.output.split())


def test_a_program_that_no_data_set_fits_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_TUNINGS", str(tmp_path / "tunings.sqlite3"))
    path = tmp_path / "sums.py"
    two = PROGRAM.replace("row_sums(xss", "first(factor: tw.f32, xss").replace("import tilewright as tw\n", "")
    path.write_text(f"import tilewright as tw\n{two}{PROGRAM}")
    np.savez(tmp_path / "fits.npz", xss=np.ones((4, 40), np.float32))
    result = CliRunner().invoke(app, ["tune", str(path), f"--data={tmp_path / 'fits.npz'}", "--seconds", "0.001"])
    assert result.exit_code == 0, result.output
    assert "left out: first, which no data set fits" in result.output
    assert "row_sums on cpu" in result.output


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_names_of_data_sets_are_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_TUNINGS", str(tmp_path / "tunings.sqlite3"))
    path = tmp_path / "sums.py"
    path.write_text(PROGRAM)
    np.savez(tmp_path / "fits.npz", xss=np.ones((4, 40), np.float32))
    given = f"--data=[/]={tmp_path / 'fits.npz'}"
    result = CliRunner().invoke(app, ["tune", str(path), given, "--seconds", "0.001"])
    assert result.exit_code == 0, result.output
    assert "[/]: " in result.output
