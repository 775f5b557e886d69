"""How many processor cores this process may use: its affinity, and the time that control groups allow it.

Nothing but the operating system is asked, and little is imported: this runs in the first call of every process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import lru_cache


def usable_cores() -> int:
    """Processor cores that this process may keep busy: those that it may run on (which can change while it runs), but
    no more than its quota of processor time is worth, rounded up.

    Example:
        >>> usable_cores() >= 1
        True
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min(cores, _quota()))


@lru_cache(maxsize=1)
def _quota() -> int:
    """The quota in whole cores. It is read once: reading takes longer than a small launch, and it hardly changes."""
    quota = cpu_quota()
    return math.ceil(quota) if quota < math.inf else 1 << 30


def cpu_quota(told: str = "/proc/self/cgroup", mounted: str = "/sys/fs/cgroup") -> float:
    """Cores' worth of time that Linux control groups (as containers set them) give this process; infinite without.

    Args:
        told: the file that says to which groups this process belongs.
        mounted: where the groups are files; of version 2 (`cpu.max`) or 1 (`cpu.cfs_quota_us`, `cpu.cfs_period_us`).

    The least of the group's own quota and those of the groups around it counts. A group that is not found below
    `mounted` is looked for at its top, where a container sees its own.
    """
    quotas = [math.inf]
    for line in _lines(told):
        controllers, path = line.split(":", 2)[1:] if line.count(":") >= 2 else ("none", "")
        if controllers == "":
            places = (mounted, f"{mounted}/unified")
        elif "cpu" in controllers.split(","):
            places = (f"{mounted}/{controllers}", f"{mounted}/cpu")
        else:
            continue
        for place in places:
            for folder in _upwards(place, path):
                quotas += _quotas_of(folder)
    return min(quotas)


def _upwards(top: str, path: str) -> Iterator[str]:
    """The folder of a path below `top`, and all around it, the top included."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for count in range(len(parts), -1, -1):
        yield "/".join([top, *parts[:count]])


def _quotas_of(folder: str) -> Iterator[float]:
    """The quota that a group's files tell, in cores."""
    words = " ".join(_lines(f"{folder}/cpu.max")).split()
    if not words:
        words = [*_lines(f"{folder}/cpu.cfs_quota_us"), *_lines(f"{folder}/cpu.cfs_period_us")]
    if len(words) == 2 and all(word.strip().isdecimal() for word in words) and int(words[1]):
        yield int(words[0]) / int(words[1])


def _lines(path: str) -> list[str]:
    """A file's lines; none if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:  # another system, or no such group
        return []
