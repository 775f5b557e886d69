"""How much memory the host can still give, and the check before a large allocation.

Linux hands out memory that it does not have and kills the process later, so an allocation that cannot succeed is
refused here, with numbers, instead.
"""

from __future__ import annotations

import math
import os
import sys
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from tilewright.runtime.recycling import LARGE, give_back_waiting, recycled_empty

SMALL_ALLOCATION = 16 << 20
"""Below this many bytes an allocation is not checked: reading the limits would cost more than it tells."""

ARRAY_ALIGNMENT = 128
"""Bytes to which `aligned_empty` aligns."""

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_PROC = "/proc"
_CGROUPS = "/sys/fs/cgroup"

Path: TypeAlias = str | os.PathLike[str]


def available_host_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Bytes that this process can still allocate without swapping.

    The smallest of the kernel's estimate (MemAvailable) and what is left in each control group (version 1 and 2) that
    the process is in; file cache that the group can drop counts as free. Where the system tells nothing, free physical
    pages, and where it does not tell those either, `sys.maxsize`.

    Example:
        >>> available_host_bytes() > 0
        True
    """
    return min(_system_available(proc), _cgroup_available(proc, cgroups))


def check_host_allocation(nbytes: int, what: str) -> None:
    """Refuse an allocation that the host cannot serve, even with the memory that waits for its next use.

    Args:
        nbytes: size of the planned allocation; below `SMALL_ALLOCATION` nothing is checked.
        what: names it in the message, such as "result of 'ij,jk->ik'".

    Raises:
        MemoryError: if fewer than `nbytes` bytes are available.
        ValueError: if `nbytes` is negative.

    Example:
        >>> check_host_allocation(1024, "a small array")
    """
    if nbytes < 0:
        raise ValueError(f"{what}: a size of {nbytes} bytes is negative")
    if nbytes < SMALL_ALLOCATION:
        return
    available = available_host_bytes()
    if nbytes > available and give_back_waiting():
        available = available_host_bytes()
    if nbytes > available:
        raise MemoryError(f"{what} needs {format_bytes(nbytes)}, but the host has {format_bytes(available)} available")


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any], what: str = "an array") -> np.ndarray[Any, Any]:
    """An array with undefined content in C order whose memory starts at a multiple of `ARRAY_ALIGNMENT`.

    Large arrays reuse the memory of earlier ones (`recycling.py`); what the host can still give is only looked up for
    memory that is new, since that takes 0.3 ms in a control group. The alignment is enough for aligned vector access on
    every CPU, and for OpenCL CPU devices to compute in place.

    Raises:
        MemoryError: if the host cannot serve it; the message says `what` was to be allocated.

    Example:
        >>> aligned_empty((3, 5), np.dtype("float32")).ctypes.data % ARRAY_ALIGNMENT
        0
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes >= LARGE:
        return recycled_empty(shape, dtype, partial(check_host_allocation, nbytes, what))
    check_host_allocation(nbytes, what)
    raw = np.empty(nbytes + ARRAY_ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ARRAY_ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)


def format_bytes(nbytes: int) -> str:
    """A size for a person, exact and rounded: `"3221225472 bytes (3.0 GiB)"`."""
    power = min(max(0, nbytes.bit_length() - 1) // 10, len(_UNITS))
    return f"{nbytes} bytes ({nbytes / 1024**power:.1f} {_UNITS[power - 1]})" if power else f"{nbytes} bytes"


def _system_available(proc: Path) -> int:
    text = _text(proc, "meminfo")
    for line in (text or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not told by this system
        return sys.maxsize


def _cgroup_available(proc: Path, cgroups: Path) -> int:
    """What is left in the process's control groups; a group's limit holds for its children too."""
    left = sys.maxsize
    for line in (_text(proc, "self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            names = ("memory.max", "memory.current", "inactive_file")
            root = os.fspath(cgroups)
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            root = os.path.join(cgroups, "memory")
        else:
            continue
        # Inside a container the path may be the host's, and only the root shows the container's own limit.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            left = min(left, _group_available(os.path.join(root, *parts[:depth]), *names))
    return left


def _group_available(group: Path, limit_name: str, usage_name: str, cache_name: str) -> int:
    limit, usage = _number(group, limit_name), _number(group, usage_name)
    if limit is None or usage is None:
        return sys.maxsize
    droppable = 0
    for line in (_text(group, "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == cache_name:
            droppable = int(value)
    return max(0, limit - usage + droppable)


def _number(folder: Path, name: str) -> int | None:
    text = (_text(folder, name) or "").strip()
    return int(text) if text.isdigit() else None  # "max" means no limit


def _text(folder: Path, name: str) -> str | None:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read()
    except OSError:  # the file does not exist on this system: the limit that it would give does not exist either
        return None
