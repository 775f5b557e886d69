"""Values of a store or a file that no threshold can have are told of and left out; the program runs."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.parser import parse_program
from tilewright.runtime.devices import device_for
from tilewright.tune.keys import TuningWarning, device_key, program_digest
from tilewright.tune.store import TuningStore
from tilewright.tune.text import Tuning, write_tunings
from tilewright.tune.tiles import stored_tiles
from tilewright.tune.tuner import Timing

MODEL = {"outer_0", "block_0", "threads_per_block"}


def sums(tuning: Path | None = None) -> Any:
    @tw.program(tuning=tuning)
    def sums_of_rows(xss: tw.f64["n", "m"]) -> Any:
        return tw.map(lambda xs: tw.reduce("add", 0, xs), xss)

    return sums_of_rows


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuningStore:
    monkeypatch.setenv("TILEWRIGHT_TUNINGS", str(tmp_path / "tunings.sqlite3"))
    return TuningStore()


def _key(program: Any) -> tuple[str, str]:
    executable, _ = program._executable(program._given_types(()), "cpu")
    return program_digest(executable.program), device_key(device_for("cpu"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("set value = 'abc' where name = 'outer_0'", "outer_0 = nan is no number"),
        ("set value = null where name = 'outer_0'", "outer_0 = nan is no number"),
        ("set value = 'nan' where name = 'outer_0'", "outer_0 = nan is no number"),
        ("set value = '-7' where name = 'outer_0'", "outer_0 = -7.0 is no number"),
        ("set name = 'outer_0@x' where name = 'outer_0'", "after @ stands how many points"),
        ("set name = 'zz' where name = 'outer_0'", "has no threshold zz"),
    ],
)
def test_stored_values_that_cannot_be_used(store: TuningStore, change: str, told: str) -> None:
    key = _key(sums())
    store.put(*key, {"outer_0": 7.0, "block_0": 141.0}, title="sums_of_rows")
    assert sums().thresholds()["outer_0"] == 7
    with sqlite3.connect(store.path) as connection:
        connection.execute(f"update choices {change}")
    program = sums()
    with pytest.warns(TuningWarning, match=f"the tuning store: .*{told}"):
        found = program.thresholds()
    assert found["block_0"] == 141 and found["outer_0"] != 7 and found.keys() == MODEL
    assert program(np.ones((3, 4))).tolist() == [4.0] * 3


def test_values_of_a_file_that_cannot_be_used(store: TuningStore, tmp_path: Path) -> None:
    digest, device = _key(sums())
    file = tmp_path / "rows.tuning"
    write_tunings(file, [Tuning("sums_of_rows", digest, device, (("outer_0@x", 3.0), ("block_0", 141.0)))])
    program = sums(file)
    with pytest.warns(TuningWarning, match=r"rows\.tuning: .*after @ stands"):
        assert program.thresholds()["block_0"] == 141
    assert program(np.ones((3, 4))).tolist() == [4.0] * 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda values: {**values, "i.T": float("nan")},
        lambda values: {one: value for one, value in values.items() if one != "i.R"},
        lambda values: {**values, "i.R": float("inf")},
    ],
)
def test_stored_tiles_that_are_none(store: TuningStore, spoil: Callable[[dict[str, float]], dict[str, float]]) -> None:
    program, device = parse_program("def copied (xs: [n]f32) = (xs)"), device_for("cpu")
    key = program_digest(program), device_key(device)
    values = {"i.T": 8.0, "i.R": 2.0, "k.Q": 4.0}
    store.put(*key, values, "f32[8]")
    assert stored_tiles(program, device) == {"f32[8]": {"i": (8, 2), "k": 4}}
    store.put(*key, spoil(values), "f32[16]")
    with pytest.warns(TuningWarning, match=r"copied and arguments of f32\[16\] are no tiles"):
        assert stored_tiles(program, device) == {"f32[8]": {"i": (8, 2), "k": 4}}


def test_measurements_of_other_thresholds_are_left_out(store: TuningStore) -> None:
    program, timing = sums(), Timing(seconds=0.001)
    program.tune([(np.ones((3, 4)),)], timing=timing)
    with sqlite3.connect(store.path) as connection:
        connection.execute("""update measurements set compared = '[["zz", 3, true]]'""")
    assert program.tune([(np.ones((3, 4)),)], timing=timing).runs > 0


def test_a_clock_that_stands_still_for_a_while(store: TuningStore) -> None:
    now = itertools.count()
    timing = Timing(seconds=2, budget=1e9, clock=lambda: float(next(now) // 1000))
    assert "0: 0 s, tuned 0 s\n" in f"{sums().tune([(np.ones((3, 4)),)], timing=timing)}\n"
