"""What tuning and tiles cannot be asked for is refused, with what can be."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tuned_programs import matmul, row_sums

import tilewright as tw
from tilewright.passes.tiled.tiling import IllegalTiling
from tilewright.tune.tuner import Timing


@pytest.mark.parametrize("cost", ["foo", "SUM", None, 1])
def test_a_cost_that_there_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost: object) -> None:
    monkeypatch.setenv("TILEWRIGHT_TUNINGS", str(tmp_path / "tunings.sqlite3"))
    with pytest.raises(ValueError, match=f"cost must be 'sum' or 'mean', not {cost!r}"):
        row_sums.tune([(np.ones((2, 4)),)], cost=cost)


@pytest.mark.parametrize(
    ("timing", "said"),
    [
        ({"least": 0}, "a candidate must be run once at least: least = 0 of type int"),
        ({"seconds": float("inf")}, "seconds for a candidate must be finite and at least 0, not inf of type float"),
        ({"seconds": "1"}, "seconds for a candidate must be finite and at least 0, not '1' of type str"),
        ({"budget": float("nan")}, "the budget of a tuning must be seconds, not nan of type float"),
    ],
)
def test_times_that_measure_nothing_or_never_end(timing: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Timing(**timing)


def test_a_timing_that_is_none() -> None:
    with pytest.raises(TypeError, match=r"timing is a Timing, .*, not 5 of type int"):
        row_sums.tune([(np.ones((2, 4)),)], timing=5)


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ({5: 1}, TypeError, r"thresholds map names to values, as in .*; \{5: 1\} of type dict does not"),
        ({"outer_0@" + "9" * 5000: 1}, ValueError, "after @ stands how many points are inside"),
        ({"outer_0@05": 1}, ValueError, "'outer_0@05': after @ stands how many points are inside"),
        ({"outer_0": True}, ValueError, "outer_0 = True is no number of at least 0"),
        ({"outer_0": np.float64("nan")}, ValueError, "is no number of at least 0"),
    ],
)
def test_thresholds_of_another_form(values: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        row_sums.with_thresholds(values).thresholds()


def test_thresholds_of_numpy_are_numbers() -> None:
    program = row_sums.with_thresholds({"outer_0": np.int64(3), "block_0": np.float32(2)})
    assert program.thresholds()["outer_0"] == 3
    assert program(np.ones((2, 4))).tolist() == [4.0, 4.0]


@pytest.mark.parametrize(
    ("tiles", "error", "said"),
    [
        ([1], TypeError, r"tiles map dimensions to sizes, as in .*; \[1\] of type list does not"),
        (None, TypeError, "tiles map dimensions to sizes, as in .*; None of type NoneType does not"),
        ({3: (1, 1)}, TypeError, "3 of type int is no name"),
        ({"n": "x"}, IllegalTiling, r"tiles\['n'\] is 'x' of type str; it must be \(T, R\)"),
        ({"n": (1, 2, 3)}, IllegalTiling, r"tiles\['n'\] is \(1, 2, 3\) of type tuple; it must be"),
        ({"n": 1.5}, IllegalTiling, r"tiles\['n'\] is 1.5 of type float; it must be"),
        ({"n": True}, IllegalTiling, r"tiles\['n'\] is True of type bool; it must be"),
        ({"n": (0, 1)}, IllegalTiling, r"tiles\['n'\] is \(0, 1\) of type tuple; .* at least 1"),
    ],
)
def test_tiles_of_another_form(tiles: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        row_sums.with_tiles(tiles)


def test_tiles_of_dimensions_that_there_are_not() -> None:
    sums = row_sums.with_tiles({"z": (1, 1)})
    for call in (lambda: sums(np.ones((2, 4))), sums.explain, sums.derivation):
        with pytest.raises(IllegalTiling, match="program row_sums: tiles names dimension 'z'; it has n, m"):
            call()
    with pytest.raises(IllegalTiling, match="program matmul: tiles names dimension 'z'; it has n, k, m"):
        matmul.with_tiles({"n": (1, 1), "z": (1, 1)})(np.eye(3), np.eye(3))
    assert row_sums.with_tiles({"n": [np.int64(1), 1]})(np.ones((2, 4))).tolist() == [4, 4]
    assert row_sums.with_tiles({})(np.ones((2, 4))).tolist() == [4, 4]


def test_a_number_that_is_a_size_is_a_dimension() -> None:
    @tw.program
    def repeated(xs: tw.f64["n"], k: tw.i64) -> Any:
        return tw.map(lambda i: tw.map(lambda x: x + 1, xs), tw.iota(k))

    assert repeated.with_tiles({"k": (1, 1)})(np.ones(2), 3).tolist() == [[2, 2]] * 3
