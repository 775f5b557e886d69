"""The tables of figures in the pages are those of the committed results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_figures", DOCS / "make_figures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_say_what_the_results_say(figures: ModuleType) -> None:
    for page in figures.PAGES:
        text = page.read_text(encoding="utf-8")
        assert figures.with_figures(text) == text, f"{page.name}: run `make docs`"


def test_each_table_is_on_some_page(figures: ModuleType) -> None:
    named = [name for page in figures.PAGES for name in figures.MARKED.findall(page.read_text(encoding="utf-8"))]
    assert sorted(named) == sorted(figures.TABLES)


def test_a_stale_table_is_replaced(figures: ModuleType) -> None:
    stale = "before\n<!-- figures: batches -->\n| 1 |\n<!-- end of figures -->\nafter"
    fresh = figures.with_figures(stale)
    assert fresh != stale and fresh.startswith("before\n") and fresh.endswith("\nafter")
    assert figures.with_figures(fresh) == fresh


def test_a_peer_counts_in_the_faster_one_of_its_ways(figures: ModuleType) -> None:
    rows = [
        {"contenders": {"tilewright": {"median": 2.0}, "etops": {"median": 3.0}, "etops optimised": {"median": 5.0}}},
        {"contenders": {"tilewright": {"median": 2.0}, "etops": {"median": 1.0, "correct": False}}},
    ]
    assert figures.ratios(rows, "etops") == [1.5]
