"""Finding CUDA devices: cuda.bindings is imported only when they are asked for."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from tilewright.ir.dataclass import dataclass
from tilewright.machine.detect import cuda_machine
from tilewright.machine.model import Machine
from tilewright.runtime.errors import DeviceError, DeviceMemoryError

OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""

_NAME_BYTES = 256


@dataclass(frozen=True)
class CudaFound:
    """The machines of the CUDA devices in the driver's order, and the process that initialised the driver, which cannot
    be used in children that this process forks.
    """

    machines: tuple[Machine, ...]
    process: int


@lru_cache(maxsize=1)
def cuda_found() -> CudaFound:
    """Initialise the driver and list its devices.

    Raises:
        ImportError: if cuda.bindings is not installed.
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

    machines = []
    for index in range(count):
        device = checked(driver.cuDeviceGet(index), "cuDeviceGet")
        name = checked(driver.cuDeviceGetName(_NAME_BYTES, device), "cuDeviceGetName").split(b"\0")[0].decode()
        memory_bytes = int(checked(driver.cuDeviceTotalMem(device), "cuDeviceTotalMem"))
        machines.append(cuda_machine(name, Properties(driver, device), memory_bytes))
    return CudaFound(tuple(machines), os.getpid())


class Properties:
    """What the driver tells of a device: `warp_size` is the attribute CU_DEVICE_ATTRIBUTE_WARP_SIZE."""

    def __init__(self, driver: Any, device: Any) -> None:
        self._driver, self._device = driver, device

    def __getattr__(self, name: str) -> int:
        attribute = getattr(self._driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name.upper()}")
        return int(checked(self._driver.cuDeviceGetAttribute(attribute, self._device), "cuDeviceGetAttribute"))


def checked(result: tuple[Any, ...], what: str) -> Any:
    """The value of a driver call.

    Raises:
        DeviceError: with the driver's name and text of the error; a `DeviceMemoryError` if there is not enough.
    """
    status = result[0]
    if int(status) != 0:
        kind = DeviceMemoryError if int(status) == OUT_OF_MEMORY else DeviceError
        raise kind(f"{what} failed: {_describe(status)}")
    return result[1] if len(result) == 2 else result[1:]


def _describe(status: Any) -> str:
    from cuda.bindings import driver

    name = getattr(status, "name", str(status))
    failed, text = driver.cuGetErrorString(status)
    return name if int(failed) != 0 or not text else f"{name} ({text.decode()})"
