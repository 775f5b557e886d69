"""The committed tour is the one that `make docs` would write now."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_the_tour_is_what_is_printed_now() -> None:
    spec = importlib.util.spec_from_file_location("make_tour", DOCS / "make_tour.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.tour() == (DOCS / "tour.md").read_text(encoding="utf-8"), "run `make docs` and read the difference"
