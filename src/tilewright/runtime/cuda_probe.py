"""Finding CUDA devices: cuda.bindings is imported here and only when asked for.

The driver is initialised before anything of cuda.core is touched, because without a driver cuda.core can hang.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilewright.machine.detect import cuda_machine
from tilewright.machine.model import Machine
from tilewright.runtime.errors import DeviceError


@dataclass(frozen=True)
class CudaFound:
    """The machines of the CUDA devices in the driver's order, and the driver's version (12090 for 12.9)."""

    machines: tuple[Machine, ...]
    driver_version: int


@lru_cache(maxsize=1)
def cuda_found() -> CudaFound:
    """Initialise the driver and list its devices.

    Raises:
        ImportError: if cuda.bindings or cuda.core is not installed.
        DeviceError: if there is no driver, or it reports an error.
        LookupError: if the driver has no device.
    """
    from cuda.bindings import driver

    try:
        result = driver.cuInit(0)
    except Exception as error:  # the bindings have several errors of their own for a driver that cannot be loaded
        raise DeviceError(f"the CUDA driver cannot be loaded: {error}") from error
    checked(result, "cuInit")
    count = int(checked(driver.cuDeviceGetCount(), "cuDeviceGetCount"))
    if count == 0:
        raise LookupError("the CUDA driver has no device")

    from cuda.core import Device

    machines = []
    for index in range(count):
        handle = checked(driver.cuDeviceGet(index), "cuDeviceGet")
        memory_bytes = int(checked(driver.cuDeviceTotalMem(handle), "cuDeviceTotalMem"))
        device = Device(index)
        machines.append(cuda_machine(str(device.name), device.properties, memory_bytes))
    return CudaFound(tuple(machines), int(checked(driver.cuDriverGetVersion(), "cuDriverGetVersion")))


def checked(result: tuple[Any, ...], what: str) -> Any:
    """The value of a driver call.

    Raises:
        DeviceError: with the driver's name and text of the error.
    """
    status = result[0]
    if int(status) != 0:
        raise DeviceError(f"{what} failed: {_describe(status)}")
    return result[1] if len(result) == 2 else result[1:]


def _describe(status: Any) -> str:
    from cuda.bindings import driver

    name = getattr(status, "name", str(status))
    failed, text = driver.cuGetErrorString(status)
    return name if int(failed) != 0 or not text else f"{name} ({text.decode()})"
