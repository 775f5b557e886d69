"""What compiled programs on the disk depend on beside the program: this package's source, and this processor.

All of it is found out without importing the compiler or LLVM, in about a millisecond. Like Python's own cache of byte
code this trusts times of change and sizes of files: a development checkout changes without a new version.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from importlib.machinery import PathFinder

import numpy as np

from tilewright.machine.tile_permission import tiles_are_permitted
from tilewright.runtime.digest import sha256

PROCESSOR_VARIABLES = ("TILEWRIGHT_CPU",)
"""Variables of the environment that change what code is made for this processor."""

_PACKAGE = __name__.partition(".")[0]
_PROCESSOR_FILE = "/proc/cpuinfo"
_TOLD_OF_PROCESSORS = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
)  # fmt: skip


@cache
def fingerprint() -> tuple[str, ...] | None:
    """The parts that belong into the key of every stored plan, or None where nothing may be stored or used.

    That is where the system does not tell what its processor is, and where a source file was changed or removed after
    this process had imported the package: then nobody knows which of the two its programs come from.
    """
    processor = _processor()
    package = sys.modules[_PACKAGE]
    try:
        stamp, newest = source_stamp(os.path.dirname(str(package.__file__)))
    except OSError:  # the package is being replaced
        return None
    if processor is None or newest > package._IMPORTED_AT:
        return None
    versions = f"{package.__version__} {sys.implementation.cache_tag} {np.__version__} {platform.machine()}"
    tiles = "tiles" if tiles_are_permitted() else "no tiles"
    return (
        versions,
        stamp,
        build_of("llvmlite"),
        processor,
        tiles,
        *(os.environ.get(one, "") for one in PROCESSOR_VARIABLES),
    )


def source_stamp(folder: str) -> tuple[str, int]:
    """A digest of the names, sizes and times of all source files below a folder, and the latest of the times in ns.

    An installed archive, which is no folder, gives the digest of nothing: its version must do.
    """
    found: list[str] = []
    newest = 0
    folders = [folder] if os.path.isdir(folder) else []
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    found.append(f"{entry.path} {status.st_size} {status.st_mtime_ns}")
                    newest = max(newest, status.st_mtime_ns)
                elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
    return sha256("\n".join(sorted(found)).encode()).hexdigest(), newest


def build_of(module: str) -> str:
    """Which build of a package is installed, without importing it.

    Example:
        >>> build_of("no such package")
        'none'
    """
    spec = PathFinder.find_spec(module)
    if spec is None or spec.origin is None:
        return "none"
    try:
        status = os.stat(spec.origin)
    except OSError:  # in an archive
        return spec.origin
    return f"{spec.origin} {status.st_size} {status.st_mtime_ns}"


def _processor(file: str = _PROCESSOR_FILE) -> str | None:
    """What Linux tells of the first processor, in so far as it stays the same."""
    told: list[str] = []
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip():
                    break
                if line.partition(":")[0].strip() in _TOLD_OF_PROCESSORS:
                    told.append(line.strip())
    except OSError:  # another system
        return None
    features = any(line.startswith(("flags", "Features")) for line in told)
    return "\n".join(told) if features else None
