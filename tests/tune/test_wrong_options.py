"""What tuning and tiles cannot be asked for is refused, with what can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tuned_programs import row_sums


@pytest.mark.parametrize("cost", ["foo", "SUM", None, 1])
def test_a_cost_that_there_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost: object) -> None:
    monkeypatch.setenv("TILEWRIGHT_TUNINGS", str(tmp_path / "tunings.sqlite3"))
    with pytest.raises(ValueError, match=f"cost must be 'sum' or 'mean', not {cost!r}"):
        row_sums.tune([(np.ones((2, 4)),)], cost=cost)
