"""`tilewright bench`: what it reads, measures, writes and compares."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tilewright.cli import bench
from tilewright.cli.main import app

PROGRAM = """
import numpy as np
import tilewright as tw
from sizes_of_the_test import SIZE

@tw.program
def scaled(xs: tw.f32["n"], factor: tw.f32):
    return tw.map(lambda x: factor * x, xs)

@tw.program
def total(xs: tw.f32["n"], factor: tw.f32):
    return factor * tw.reduce("add", 0, xs)

@tw.program
def _hidden(xs: tw.f32["n"]):
    return xs
"""
DATASETS = """
def datasets():
    return {"made": lambda: (np.ones(SIZE, "f"), 2.0), "given": [np.ones(7, "f"), 3.0]}
"""
WORK = """
def work(xs, factor):
    return {"flops": len(xs), "bytes": 8 * len(xs)}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A file that imports another one beside it."""
    (tmp_path / "sizes_of_the_test.py").write_text("SIZE = 5\n")
    path = tmp_path / "prog.py"
    path.write_text(PROGRAM + DATASETS + WORK)
    return path


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


def refused(*arguments: object) -> str:
    output = run(*arguments, code=2)
    assert output.startswith("tilewright: error: ")
    assert output.count("\n") == 1
    return output


def test_all_programs_on_all_data_sets(program: Path, tmp_path: Path) -> None:
    output = run(program, "--runs", 8, "--json", tmp_path / "out.json", "--target", "cpu")
    assert all(name in output for name in ("scaled", "total", "made", "given", "GFLOP/s", "GB/s", "median"))
    assert "hidden" not in output
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["machine"]["device"] == "cpu"
    assert {"threads", "numpy", "python", "description"} <= set(content["machine"])
    assert [(row["program"], row["dataset"]) for row in content["rows"]] == [
        ("scaled", "made"), ("total", "made"), ("scaled", "given"), ("total", "given"),
    ]  # fmt: skip
    for row in content["rows"]:
        assert len(row["seconds"]) == 8
        assert min(row["seconds"]) <= row["low"] <= row["median"] <= row["high"] <= max(row["seconds"])
        assert row["work"]["bytes"] == 8 * row["work"]["flops"] == 8 * (5 if row["dataset"] == "made" else 7)
        assert row["calls"] >= 1
        assert row["first_call"] > 0


def test_one_program_and_one_data_set(program: Path) -> None:
    output = run(program, "--runs", 7, "--entry", "total", "--dataset", "given")
    assert "total" in output
    assert "scaled" not in output
    assert "made" not in output


def test_a_file_without_work_has_no_rates(program: Path) -> None:
    program.write_text(PROGRAM + DATASETS)
    output = run(program, "--runs", 7)
    assert "GFLOP/s" not in output
    assert "GB/s" not in output


def test_arguments_from_npz_files_by_name_and_by_position(program: Path, tmp_path: Path) -> None:
    program.write_text(PROGRAM)
    np.savez(tmp_path / "named.npz", factor=np.float32(2), xs=np.ones(4, "f"), other=np.ones(3))
    np.savez(tmp_path / "plain.npz", np.ones(4, "f"), np.float32(2))
    output = run(program, "--runs", 7, "--data", tmp_path / "named.npz", "--data", tmp_path / "plain.npz")
    assert output.count("named") == output.count("plain") == 2
    np.savez(tmp_path / "less.npz", xs=np.ones(4, "f"))
    message = refused(program, "--data", tmp_path / "less.npz")
    assert "data set less has no factor for scaled(xs: f32[n], factor: f32); it has xs" in message
    np.savez(tmp_path / "more.npz", np.ones(4, "f"), np.float32(2), np.float32(2))
    assert "data set more has 3 arguments; scaled(xs: f32[n], factor: f32) takes 2" in refused(
        program, "--data", tmp_path / "more.npz"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PROGRAM, "prog.py has no function datasets(), which gives arguments by name; write one, or give --data"),
        ("x = 1\n", "prog.py has no program: decorate a function with @tilewright.program"),
        (PROGRAM + "def datasets(): return {}\n", "datasets() must give a dictionary of arguments by name, not {}"),
        (PROGRAM + "def datasets(): return {'a': 3}\n", "the data set a must be a tuple of arguments, or a function"),
        (PROGRAM + "def datasets(): return {'a': (3,)}\n", "data set a has 1 arguments; scaled(xs: f32[n], factor"),
        (PROGRAM + DATASETS + "work = 3\n", "work must be a function of a program's arguments, not int"),
        (PROGRAM + DATASETS + "def work(xs): return {}\n", "work() does not take the 2 arguments"),
        (PROGRAM + DATASETS + "def work(*x): return {'steps': 1}\n", "must give flops, bytes or both as a dictionary"),
    ],
)
def test_what_a_file_lacks(program: Path, text: str, message: str) -> None:
    program.write_text(text)
    assert message in refused(program, "--runs", 7)


def test_what_a_call_lacks(program: Path, tmp_path: Path) -> None:
    assert "give a Python file with programs, or --compare" in refused()
    assert "there is no file" in refused(tmp_path / "none.py")
    assert "has no program named nothing; it has scaled, total" in refused(program, "--entry", "nothing")
    assert "has no data set named huge; it has made, given" in refused(program, "--dataset", "huge")
    assert "--runs 6: results can be compared with 95% confidence from 7 on" in refused(program, "--runs", 6)
    assert "there is no folder" in refused(program, "--json", tmp_path / "none" / "a.json")
    assert "there is no file" in refused(program, "--data", tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("text")
    np.save(tmp_path / "one.npy", np.ones(3))
    for name in ("text.npz", "one.npy"):
        assert "is no .npz file of arrays" in refused(program, "--data", tmp_path / name)


# --- comparing --------------------------------------------------------------------------------------------------------


def written(path: Path, **times: list[float]) -> Path:
    rows = [{"program": name, "dataset": "d", "seconds": seconds} for name, seconds in times.items()]
    path.write_text(json.dumps({"format": bench.FORMAT, "rows": rows}))
    return path


def test_significant_changes_are_marked(tmp_path: Path) -> None:
    steady = [1 + 0.001 * n for n in range(20)]
    old = written(tmp_path / "old.json", same=steady, slow=steady, fast=steady, gone=steady)
    new = written(tmp_path / "new.json", same=steady[::-1], slow=[2 * x for x in steady], fast=[x / 4 for x in steady])
    lines = {line.split()[1]: line for line in run("--compare", old, new).splitlines() if line.startswith("│")}
    assert set(lines) == {"same", "slow", "fast"}
    assert "2.000" in lines["slow"] and "slower" in lines["slow"]
    assert "0.250" in lines["fast"] and "faster" in lines["fast"]
    assert "1.000" in lines["same"] and "er" not in lines["same"]


def test_results_of_a_run_can_be_compared(program: Path, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        run(program, "--runs", bench.LEAST_RUNS, "--json", tmp_path / name)
    output = run("--compare", tmp_path / "a.json", tmp_path / "b.json")
    assert output.count("scaled") == output.count("total") == 2


def test_names_are_no_markup(program: Path, tmp_path: Path) -> None:
    program.write_text(PROGRAM + 'def datasets():\n    return {"[/] [red]": (np.ones(SIZE, "f"), 2.0)}\n')
    output = run(program, "--runs", bench.LEAST_RUNS, "--json", tmp_path / "a.json")
    assert output.count("[/] [red]") == 2
    assert run("--compare", tmp_path / "a.json", tmp_path / "a.json").count("[/] [red]") == 2


@pytest.mark.parametrize("time", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_are_none(tmp_path: Path, time: float) -> None:
    old, new = written(tmp_path / "old.json", f=[1.0] * 7), written(tmp_path / "new.json", f=[time] * 7)
    assert f"f on d took {time}" in refused("--compare", old, new)
    assert f"f on d took {time}" in refused("--compare", new, old)


def test_what_cannot_be_compared(program: Path, tmp_path: Path) -> None:
    times = [1.0] * 10
    old = written(tmp_path / "old.json", f=times)
    assert "no program and data set in common" in refused("--compare", old, written(tmp_path / "b.json", g=times))
    assert "6 values have no interval" in refused("--compare", old, written(tmp_path / "c.json", f=times[:6]))
    assert "there is no file" in refused("--compare", old, tmp_path / "none.json")
    for text in ("{", "{}", '{"format": "x"}', "[]", f'{{"format": "{bench.FORMAT}", "rows": [1]}}'):
        (tmp_path / "bad.json").write_text(text)
        assert "bad.json is no result of tilewright bench --json" in refused("--compare", old, tmp_path / "bad.json")
    assert "is one too many" in refused(program, "--compare", old, old)


# --- statistics -------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=7, max_size=60), st.sampled_from([0.9, 0.95, bench.COMPARING]))
def test_an_interval_holds_the_median(values: list[float], confidence: float) -> None:
    median, low, high = bench.median_interval(values, confidence)
    assert low <= median <= high
    assert median == np.median(values)
    assert {low, high} <= set(values)


@pytest.mark.parametrize("count", [7, 10, 21, 50])
def test_an_interval_misses_the_true_median_no_more_often_than_it_may(count: int) -> None:
    """Over 4000 samples of a skewed distribution; the standard error of the share is below 0.35%."""
    rng = np.random.default_rng(count)
    missed = 0
    for sample in rng.exponential(1.0, (4000, count)):
        _, low, high = bench.median_interval(list(sample))
        missed += not low <= np.log(2) <= high
    assert missed / 4000 <= 1 - bench.CONFIDENCE + 0.015


def test_the_least_numbers_of_runs() -> None:
    for confidence in (0.9, 0.95, bench.COMPARING, 0.99):
        least = bench.fewest_runs(confidence)
        bench.median_interval([1.0] * least, confidence)
        with pytest.raises(ValueError, match="take more"):
            bench.median_interval([1.0] * (least - 1), confidence)
