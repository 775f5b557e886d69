"""Finding OpenCL devices without disturbing anything: pyopencl is imported here and only when asked for.

The environment is changed for the moment in which the loader looks for drivers, and put back:

* PYOPENCL_NO_CACHE=1, because programs are cached by tilewright.runtime.cache with its own checks;
* OCL_ICD_VENDORS, unless the user set it: the pip package intel-opencl-rt brings a CPU driver whose registration holds
  a wrong path. If it is there and the system has no drivers of its own, the variable names the driver; otherwise it
  names a temporary folder that lists the system's drivers and this one.

A program that used pyopencl before keeps the drivers that were found then.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

_SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
_DEVICE_IS_GPU, _DEVICE_IS_ACCELERATOR = 4, 8


@lru_cache(maxsize=1)
def opencl_module() -> ModuleType:
    """The module pyopencl; ImportError if it is not installed."""
    with _environment({"PYOPENCL_NO_CACHE": "1"}):
        import pyopencl

    module: ModuleType = pyopencl
    return module


@lru_cache(maxsize=1)
def opencl_native_devices() -> tuple[Any, ...]:
    """Every usable `pyopencl.Device`: GPUs first, then accelerators, CPUs and last simulators.

    Raises:
        ImportError: if pyopencl is not installed.
        LookupError: if there is no driver, or none of them has a device that can compile.
        Exception: whatever a broken driver makes pyopencl raise.
    """
    with _driver_environment() as changes, _environment(changes):
        module = opencl_module()
        platforms = module.get_platforms()
    found, refused = [], []
    for platform in platforms:
        try:
            candidates = platform.get_devices()
        except module.Error as error:  # a driver whose hardware is absent; the others may be fine
            refused.append(f"{platform.name}: {error}")
            continue
        for device in candidates:
            if device.available and device.compiler_available:
                found.append(device)
            else:
                refused.append(f"{platform.name}: {device.name} is not available or has no compiler")
    if not found:
        raise LookupError("no OpenCL device" + (f" ({'; '.join(refused)})" if refused else ""))
    return tuple(sorted(found, key=_rank))  # stable: within a rank, the drivers' own order


def _rank(device: Any) -> int:
    if "oclgrind" in device.platform.name.lower():
        return 3
    return 0 if device.type & _DEVICE_IS_GPU else 1 if device.type & _DEVICE_IS_ACCELERATOR else 2


@contextmanager
def _driver_environment(
    system_vendors: Path = _SYSTEM_VENDORS, bundled: Path | None = None
) -> Iterator[dict[str, str]]:
    """The settings under which the loader finds the system's drivers and the one from pip."""
    bundled = bundled or Path(sys.prefix) / "lib" / "libintelocl.so"
    if "OCL_ICD_VENDORS" in os.environ or not bundled.exists():
        yield {}
        return
    registered = sorted(system_vendors.glob("*.icd")) if system_vendors.is_dir() else []
    if not registered:
        yield {"OCL_ICD_VENDORS": str(bundled)}
        return
    with tempfile.TemporaryDirectory(prefix="tilewright-opencl-") as folder:
        for entry in registered:
            (Path(folder) / entry.name).write_bytes(entry.read_bytes())
        (Path(folder) / "tilewright-intel.icd").write_text(f"{bundled}\n")
        yield {"OCL_ICD_VENDORS": folder}


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
