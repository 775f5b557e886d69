"""The benchmark of versions, on sizes so small that no time is meant by it."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tilewright.runtime.devices import device_for

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    sys.modules.pop("flattening", None)
    return import_module("flattening")


@pytest.mark.parametrize("tiled", [False, True])
def test_every_version_of_the_products_is_measured(benchmark: ModuleType, tiled: bool) -> None:
    given = argparse.Namespace(
        family="matmul", total=5, steps=2, tiled=tiled, seconds=0.0, cpu_time=False, budget=300.0
    )
    content = benchmark.benchmark(given, device_for("cpu"))
    assert json.loads(json.dumps(content)) == content
    rows = content["rows"]
    assert [row["data"] for row in rows] == ["n=0", "n=1", "n=2"]
    versions = {f"version {n}" for n in range(4 if tiled else 3)}
    for row in rows:
        assert set(row["times"]) == versions | {"model", "tuned"}
        assert row["best"] in versions and row["picked"]["tuned"] in versions
        assert row["tuned"] > 0 and row["model"] > 0
        assert set(row["ratios"]) == versions
        assert all(low <= median <= high for low, median, high in row["ratios"].values())
        assert set(row["beaten"]) == {
            one for one, (low, _, _) in row["ratios"].items() if low > 1 and one != row["picked"]["tuned"]
        }
    assert {"outer_0", "block_0"} <= set(content["thresholds"])


def test_products_have_the_same_work(benchmark: ModuleType) -> None:
    data = benchmark.products(9)
    assert {a.size for a, _ in data.values()} == {2**9, 2**8, 2**7, 2**6, 2**5}
    assert all(a.shape[0] * a.shape[1] * b.shape[1] == 2**9 for a, b in data.values())
