"""Rules of the house that no linter knows: which folder may import which, sizes of files, what may not be written."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "tilewright"

# For each folder the other folders that it may import; a program passes through them from frontend to runtime, and
# report, cli and the frontend use what lies below them. Nothing may come back up.
ALLOWED: dict[str, set[str]] = {
    "ir": set(),
    "machine": {"ir"},
    "kernel": {"ir"},
    "contraction": {"ir"},
    "rewrite": {"ir"},
    "runtime": {"ir", "kernel", "machine"},
    "passes": {"ir", "machine", "kernel", "contraction", "rewrite", "runtime"},
    "tune": {"ir", "machine", "kernel", "contraction", "passes", "runtime"},
    "report": {"ir", "machine", "kernel", "contraction", "rewrite", "passes", "runtime"},
    "frontend": {"ir", "machine", "contraction", "rewrite", "passes", "runtime", "tune", "report"},
    "cli": {"ir", "machine", "kernel", "contraction", "rewrite", "passes", "runtime", "tune", "report", "frontend"},
}
# The folders and modules of passes, each of which imports none that stands behind it; those that are not named here are
# behind all of them.
LAYERS_OF_PASSES = (
    *("core", "items", "lanes", "points", "streams", "segments", "sweeps", "last_rewrites", "pipelines", "flattening"),
    *("permute", "packed", "direct", "matrix_vector", "lane_products", "tiled", "tensor", "contractions"),
)
# Imports against the order that are made when a method is called, so that an object can offer what is above it.
UPWARDS = {
    "contraction/tensor_operation.py": {"passes", "runtime"},  # TensorOperation.compile
    "frontend/program_tracing.py": {""},  # the names of the package, for a hint in an error
}
WRITES_A_METHOD = PACKAGE / "ir" / "dataclass.py"  # the names of a class's own fields, as the standard decorator does
LONGEST_FILE = 450
LONGER = {  # whole languages, to be read in one go
    "ir/nodes.py": 550,
    "kernel/ir.py": 460,
}
TEXTS = ("*.py", "*.md", "*.toml", "*.json", "*.txt", "*.cl", "*.cu", "Makefile")
FORBIDDEN = (r"\bTODO\b", r"\bFIXME\b", r"\bXXX\b", r"\bAI[- ]generated\b", r"# type: ignore(?!\[)", r"# noqa(?!:)")


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imported_names(path: Path) -> tuple[str, ...]:
    """What a module imports, wherever it does, by whole names."""
    found: list[str] = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found += [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            found += [one.name for one in node.names]
    return tuple(found)


def imported_folders(path: Path, with_upwards: bool = True) -> Iterator[str]:
    """The folders that a module imports; without those that it may import upwards if `with_upwards` is false."""
    permitted = UPWARDS.get(str(path.relative_to(PACKAGE)), set())
    for name in imported_names(path):
        parts = name.split(".")
        if parts[0] == "tilewright":
            folder = parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else ""
            if with_upwards or folder not in permitted:
                yield folder


def test_the_permitted_ways_upwards_are_in_use() -> None:
    for name, folders in UPWARDS.items():
        assert folders <= set(imported_folders(PACKAGE / name)), f"{name} no longer imports {folders}"


def test_every_folder_has_a_place() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders <= set(ALLOWED)


@pytest.mark.parametrize("folder", sorted(ALLOWED))
def test_imports_run_downwards(folder: str) -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {other or 'the package itself'}"
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for other in imported_folders(path, with_upwards=False)
        if other != folder and other not in ALLOWED[folder] and not (other == "" and folder == "cli")
    ]
    assert wrong == []


def test_no_two_folders_import_each_other() -> None:
    used = {
        folder: {o for path in (PACKAGE / folder).rglob("*.py") for o in imported_folders(path, with_upwards=False)}
        for folder in ALLOWED
    }
    mutual = [(one, other) for one in used for other in used[one] if other != one and one in used.get(other, set())]
    assert mutual == []


def test_folders_of_passes_form_layers() -> None:
    """Also what functions import when they are called."""
    layer = {name: number for number, name in enumerate(LAYERS_OF_PASSES)}
    wrong = []
    for path in sorted((PACKAGE / "passes").rglob("*.py")):
        place = path.relative_to(PACKAGE / "passes").with_suffix("").parts[0]
        for name in imported_names(path):
            if name.startswith("tilewright.passes."):
                other = name.split(".")[2]
                if other != place and place in layer and layer[place] < layer.get(other, len(layer)):
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {other}")
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    """What a module needs while it is imported; what functions import when they are called may come back."""
    files = {".".join(("tilewright", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in modules()}
    needed = {
        name: {
            whole if (whole := f"{node.module}.{one.name}") in files else node.module
            for node in tree_of(path).body
            if isinstance(node, ast.ImportFrom)
            for one in node.names
        }
        & files.keys()
        for name, path in files.items()
    }
    while ready := {name for name, others in needed.items() if not others & needed.keys()}:
        needed = {name: others for name, others in needed.items() if name not in ready}
    assert sorted(needed) == []


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_can_be_read(path: Path) -> None:
    text = path.read_text()
    limit = LONGER.get(str(path.relative_to(PACKAGE)), LONGEST_FILE)
    assert text.count("\n") <= limit, f"{path} has {text.count(chr(10))} lines, the limit is {limit}"
    assert ast.get_docstring(tree_of(path)), f"{path} does not say what it is for"


@pytest.mark.parametrize("head", sorted(PACKAGE.rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_heads_of_packages_name_modules_that_exist(head: Path) -> None:
    named = re.findall(r"[\w/*]+\.py\b", ast.get_docstring(ast.parse(head.read_text())) or "")
    missing = [one for one in named if not [*head.parent.rglob(one), *head.parent.parent.glob(one)]]
    assert missing == []


@pytest.mark.parametrize("head", sorted(PACKAGE.rglob("*/__init__.py")), ids=lambda path: path.parent.name)
def test_heads_of_packages_name_all_modules(head: Path) -> None:
    """By name, or as `llvm_*.py`; rules may stand in the list of their families."""
    text = head.read_text()
    named = re.findall(r"[\w*]+\.py\b", ast.get_docstring(ast.parse(text)) or "")
    unnamed = [
        one.name
        for one in sorted(head.parent.glob("[!_]*.py"))
        if not any(fnmatch(one.name, pattern) for pattern in named) and f'    "{one.stem}": (' not in text
    ]
    assert unnamed == []


def test_nothing_evaluates_data() -> None:
    found = []
    for path in modules():
        for node in ast.walk(tree_of(path)):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            imports = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if (
                name == "eval"
                or (name == "exec" and path != WRITES_A_METHOD)
                or {"pickle", "marshal", "shelve"} & set(imports)
            ):
                found.append(f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}")
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: a bare except")
    assert found == []


def texts() -> list[Path]:
    folders = [ROOT / name for name in ("src", "tests", "docs", "benchmarks", "examples", ".ci")]
    files = [path for folder in folders for kind in TEXTS for path in folder.rglob(kind)]
    return [path for path in [*files, *(p for kind in TEXTS for p in ROOT.glob(kind))] if path != Path(__file__)]


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_what_may_not_be_written(pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert found == []


def test_importing_the_package_imports_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import tilewright; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "numpy" not in done.stdout
    assert "llvmlite" not in done.stdout


def test_the_build_file_needs_nothing_that_is_not_declared() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test", "fuzz", "bench", "gpu", "docs", "clean"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    run = ROOT / ".ci" / "run"
    assert run.stat().st_mode & 0o111, "the file .ci/run must be executable"
