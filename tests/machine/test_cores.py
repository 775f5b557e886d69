"""The quota of control groups, of both versions, as files say it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.machine import cores
from tilewright.machine.cores import cpu_quota, usable_cores


def groups(folder: Path, told: str, files: dict[str, str]) -> tuple[str, str]:
    """The arguments of `cpu_quota` for a made-up system."""
    (folder / "told").write_text(told)
    for name, content in files.items():
        path = folder / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return str(folder / "told"), str(folder / "mounted")


V1 = "5:devices:/x\n3:cpu,cpuacct:/docker/abc\n2:cpuset:/y\n"


@pytest.mark.parametrize(
    ("told", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "400000 100000\n"}, 4),
        ("0::/a/b\n", {"a/b/cpu.max": "50000 100000\n", "a/cpu.max": "400000 100000\n"}, 0.5),
        ("0::/a/b\n", {"a/b/cpu.max": "800000 100000\n", "a/cpu.max": "400000 100000\n"}, 4),
        # A container whose own group is mounted at the top, and one with names of the host around it.
        ("0::/docker/abc\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/../outside\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"unified/cpu.max": "300000 100000\n"}, 3),
        (V1, {"cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "250000\n",
              "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n"}, 2.5),
        (V1, {"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "25000\n"}, 2),
        (V1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        (V1, {"cpuset/cpu.cfs_quota_us": "1\n", "cpuset/cpu.cfs_period_us": "100000\n"}, math.inf),
        ("0::/\n", {"cpu.max": "100000 0\n"}, math.inf),
        ("0::/\n", {"cpu.max": "nonsense\n"}, math.inf),
        ("nonsense\n", {"cpu.max": "1 1\n"}, math.inf),
        ("", {}, math.inf),
    ],
)  # fmt: skip
def test_quotas(tmp_path: Path, told: str, files: dict[str, str], expected: float) -> None:
    assert cpu_quota(*groups(tmp_path, told, files)) == expected


def test_no_control_groups(tmp_path: Path) -> None:
    assert cpu_quota(str(tmp_path / "absent"), str(tmp_path / "nowhere")) == math.inf


@pytest.mark.parametrize(("quota", "expected"), [(0.2, 1), (1.0, 1), (1.5, 2), (63.5, 64), (math.inf, 100)])
def test_quotas_round_up_and_bound_the_affinity(monkeypatch: pytest.MonkeyPatch, quota: float, expected: int) -> None:
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(100)), raising=False)
    cores._quota.cache_clear()
    try:
        assert usable_cores() == expected
    finally:
        cores._quota.cache_clear()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
def test_affinity_that_changes_while_running() -> None:
    """Fewer cores are noticed within the second for which they are taken to be known."""
    code = """
import os, time
from tilewright.runtime.thread_count import CORES_ARE_KNOWN_FOR, get_num_threads
every = os.sched_getaffinity(0)
before = get_num_threads()
os.sched_setaffinity(0, {min(every)})
time.sleep(CORES_ARE_KNOWN_FOR + 0.1)
assert get_num_threads() == 1, get_num_threads()
os.sched_setaffinity(0, every)
time.sleep(CORES_ARE_KNOWN_FOR + 0.1)
assert get_num_threads() == before
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=plain_environment(), timeout=600)


def plain_environment() -> dict[str, str]:
    """The environment without what chooses numbers of threads."""
    return {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
