"""A search that somebody stops loses the run in progress and nothing else, wherever it was just then."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.tune import store as store_module
from tilewright.tune.store import TuningStore
from tilewright.tune.tuner import Timing


def _rows(store: TuningStore) -> int:
    with sqlite3.connect(store.path) as connection:
        found: int = connection.execute("select count(*) from measurements").fetchone()[0]
    return found


@pytest.mark.parametrize("moment", ["begun", "finishing", "running"])
def test_what_was_in_progress_has_not_failed(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_TUNINGS", str(tmp_path / "tunings.sqlite3"))
    store, calls = TuningStore(), []

    @tw.program
    def sums(xss: tw.f64["n", "m"]) -> Any:
        return tw.map(lambda xs: tw.reduce("add", 0, xs), xss)

    def stopped(name: str, after: bool) -> Any:
        owner: Any = Timing if name == "of" else TuningStore
        real = getattr(owner, name)

        def call(*given: Any) -> Any:
            calls.append(name)
            found = real(*given) if after or len(calls) != 2 else None
            if len(calls) == 2:
                raise KeyboardInterrupt
            return found

        monkeypatch.setattr(owner, name, call)

    stopped(*{"begun": ("begin", True), "finishing": ("finish", False), "running": ("of", False)}[moment])
    data = {"wide": (np.ones((4, 500)),), "long": (np.ones((500, 4)),)}
    with pytest.raises(KeyboardInterrupt):
        sums.tune(data, timing=Timing(seconds=0.001))
    assert _rows(store) == 1
    monkeypatch.undo()
    monkeypatch.setenv("TILEWRIGHT_TUNINGS", store.path)
    monkeypatch.setattr(store_module, "_is_running", lambda process: False)  # as of a later process
    report = sums.tune(data, timing=Timing(seconds=0.001))
    assert not report.found.failures and "failed" not in str(report)
    assert report.runs < _rows(store)  # it went on
