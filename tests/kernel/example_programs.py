"""The files of examples/ as modules, and their programs."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parents[2] / "examples"
FILES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("demo", "harness"))


@cache
def load(name: str) -> ModuleType:
    """A file of examples as a module; its folder is put before the path, as Python does for scripts."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(FOLDER))


harness = load("harness")
PROGRAMS = [(file, name) for file in FILES for name in harness.programs_of(vars(load(file)))]
