from pathlib import Path

import numpy as np
import pytest

from tilewright.runtime import memory
from tilewright.runtime.memory import (
    ARRAY_ALIGNMENT,
    aligned_empty,
    available_host_bytes,
    check_host_allocation,
    format_bytes,
)

GIB = 1 << 30


def system(folder: Path, available: int, groups: str = "") -> Path:
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {available // 1024} kB\n")
    (proc / "self" / "cgroup").write_text(groups)
    return proc


def group(path: Path, **files: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text + "\n")


def test_without_groups(tmp_path: Path) -> None:
    assert available_host_bytes(system(tmp_path, 8 * GIB), tmp_path / "none") == 8 * GIB


def test_group_version_2_limits_of_all_ancestors(tmp_path: Path) -> None:
    proc, groups = system(tmp_path, 8 * GIB, "0::/outer/inner\n"), tmp_path / "groups"
    group(groups / "outer" / "inner", memory__max="max", memory__current="123")
    assert available_host_bytes(proc, groups) == 8 * GIB
    group(groups / "outer", memory__max=str(4 * GIB), memory__current=str(3 * GIB), memory__stat="anon 5\nfile 7")
    assert available_host_bytes(proc, groups) == 1 * GIB
    group(groups / "outer", memory__stat=f"anon 5\ninactive_file {GIB}")
    assert available_host_bytes(proc, groups) == 2 * GIB
    group(groups / "outer" / "inner", memory__max=str(GIB), memory__current=str(2 * GIB))
    assert available_host_bytes(proc, groups) == 0


def test_group_version_1(tmp_path: Path) -> None:
    proc, groups = system(tmp_path, 8 * GIB, "9:cpu:/x\n4:hugetlb,memory:/job\n"), tmp_path / "groups"
    group(groups / "memory" / "job", **{"memory__limit_in_bytes": str(3 * GIB), "memory__usage_in_bytes": str(GIB)})
    assert available_host_bytes(proc, groups) == 2 * GIB


def test_check_says_needed_and_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 2 * GIB)
    check_host_allocation(2 * GIB, "fits")
    with pytest.raises(
        MemoryError, match=r"result of ij needs 3221225472 bytes \(3\.0 GiB\), but the host has 2147483648 bytes \(2"
    ):
        check_host_allocation(3 * GIB, "result of ij")


def test_small_allocations_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 0)
    check_host_allocation(memory.SMALL_ALLOCATION - 1, "small")
    with pytest.raises(MemoryError):
        check_host_allocation(memory.SMALL_ALLOCATION, "not small")


def test_real_host() -> None:
    assert available_host_bytes() > 0
    with pytest.raises(MemoryError, match="everything"):
        check_host_allocation(1 << 60, "everything")
    with pytest.raises(ValueError, match="negative"):
        check_host_allocation(-1, "nothing")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1024 bytes (1.0 KiB)"), (3 << 69, f"{3 << 69} bytes (1536.0 EiB)")],
)
def test_format_bytes(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (3, 5, 2)])
@pytest.mark.parametrize("dtype", ["bool", "float32", "complex128"])
def test_aligned_empty(shape: tuple[int, ...], dtype: str) -> None:
    array = aligned_empty(shape, np.dtype(dtype))
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    assert array.ctypes.data % ARRAY_ALIGNMENT == 0 or array.size == 0
    assert array.flags.c_contiguous
    assert array.flags.writeable
    array[...] = 1
    assert array.sum() == array.size


def test_aligned_empty_of_too_much() -> None:
    with pytest.raises(MemoryError, match="the result needs"):
        aligned_empty((1 << 30, 1 << 20), np.dtype("float64"), "the result")
