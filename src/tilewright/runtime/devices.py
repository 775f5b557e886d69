"""The devices of this computer, and how one is asked for by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir.dataclass import dataclass
from tilewright.runtime.cache import MemoryCache
from tilewright.runtime.errors import DeviceError
from tilewright.runtime.messages import value_text

if TYPE_CHECKING:  # contractions from the disk ask nothing of the CPU that runs them
    from tilewright.machine.model import Machine
    from tilewright.runtime.protocol import DeviceRuntime

TARGET_VARIABLE = "TILEWRIGHT_TARGET"


@dataclass(frozen=True)
class Device:
    """A device that programs run on; `devices` and `device_for` give them.

    Attributes:
        name: "cpu", "opencl:0", "cuda:1", ...
        machine: its numbers, which the cost models know: cores, sizes of memories in bytes, rates in 1/s.
        description: what it is, as its driver says.

    Example:
        >>> device_for("cpu").name, device_for("cpu").machine.kind
        ('cpu', 'cpu')
    """

    name: str
    machine: Machine
    description: str

    @property
    def index(self) -> int:
        """Its number among the devices of its kind."""
        _, _, number = self.name.partition(":")
        return int(number or 0)

    def __hash__(self) -> int:
        return hash(self.name)  # without asking what the machine is

    def __str__(self) -> str:
        return f"{self.name}: {self.description}"

    def __repr__(self) -> str:
        return f"<Device {self}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """What this computer's CPU is, asked when it is needed first: that takes as long as a contraction does."""
            if name not in ("machine", "description"):
                raise AttributeError(f"a Device has no {name}")
            machine = _host()
            tiles = f", tiles of {' and '.join(machine.tiles)}" if machine.tiles else ""
            self.__dict__.update(machine=machine, description=f"{machine.name}, {machine.cores} cores{tiles}")
            return self.__dict__[name]


def devices() -> tuple[Device, ...]:
    """Every device that can be used: the CPU first, then OpenCL's, then CUDA's. Never raises for a broken driver.

    The first call asks the drivers and takes up to a second; see `absent_devices` for those that gave nothing.

    Example:
        >>> devices()[0].name
        'cpu'
    """
    return tuple(device for kind in _PROBES for device in _probed(kind)[0])


def absent_devices() -> dict[str, str]:
    """For each kind ("opencl", "cuda") without any device, the reason."""
    return {kind: reason for kind in _PROBES if (reason := _probed(kind)[1])}


def device_for(target: str | Device | None = None) -> Device:
    """The device that is meant.

    Args:
        target: a `Device`; a name such as "cpu", "opencl:1", "cuda:0"; "opencl" or "cuda" for the first of a kind;
            None for the environment variable TILEWRIGHT_TARGET, and the CPU if that is not set.

    Raises:
        DeviceError: naming what was asked for, what exists, and why what is missing is missing.
        TypeError: for what is neither a name nor a device.

    Example:
        >>> device_for("cpu").name
        'cpu'
    """
    if isinstance(target, Device):
        return target
    origin = ""
    if target is None:
        target = os.environ.get(TARGET_VARIABLE, "").strip() or "cpu"
        origin = f" (from {TARGET_VARIABLE})" if os.environ.get(TARGET_VARIABLE) else ""
    if not isinstance(target, str):
        raise TypeError(f"target must be a device's name or a Device, not {value_text(target)}")
    kind, separator, number = target.partition(":")
    if kind not in _PROBES or (separator and not (number.isascii() and number.isdigit())):
        raise DeviceError(
            f"{target!r}{origin} names no device; a name is cpu, opencl, cuda, or such as opencl:1. {_inventory()}"
        )
    found = _probed(kind)[0]
    index = int(number or 0)
    if index >= len(found):
        raise DeviceError(f"there is no device {target!r}{origin}. {_inventory()}")
    return found[index]


def open_device(device: Device) -> DeviceRuntime:
    """The runtime of an OpenCL or CUDA device; one for the whole process.

    Raises:
        DeviceError: for the CPU, whose kernels run in process, and for drivers that fail.
    """
    return _RUNTIMES.get_or_build(device, lambda: _open(device))


def _open(device: Device) -> DeviceRuntime:
    if device.machine.kind == "opencl":
        from tilewright.runtime.opencl_device import OpenCLRuntime

        return OpenCLRuntime(device)
    if device.machine.kind == "cuda":
        from tilewright.runtime.cuda_device import CudaRuntime

        return CudaRuntime(device)
    raise DeviceError(f"{device.name} runs kernels in process and has no buffers of its own")


def _inventory() -> str:
    """What exists and why the rest does not, as two sentences."""
    text = f"Devices here: {'; '.join(str(device) for device in devices())}."
    absent = "; ".join(f"no {kind}: {reason}" for kind, reason in absent_devices().items())
    return f"{text} Missing: {absent.rstrip('.')}." if absent else text


def _probe_cpu() -> tuple[Device, ...]:
    device = Device.__new__(Device)
    device.__dict__["name"] = "cpu"
    return (device,)


def _host() -> Machine:
    from tilewright.machine.detect import host_machine
    from tilewright.runtime.known_processor import known_processor

    known_processor()
    return host_machine()


def _probe_opencl() -> tuple[Device, ...]:
    from tilewright.machine.detect import opencl_machine
    from tilewright.runtime.opencl_probe import opencl_native_devices

    found = []
    for index, native in enumerate(opencl_native_devices()):
        machine = opencl_machine(native)
        kind = "simulator" if machine.simulated else f"{machine.cores} compute units"
        found.append(Device(f"opencl:{index}", machine, f"{machine.name}, {kind}, {native.platform.name}"))
    return tuple(found)


def _probe_cuda() -> tuple[Device, ...]:
    from tilewright.runtime.cuda_probe import cuda_found

    return tuple(
        Device(f"cuda:{index}", machine, f"{machine.name}, {machine.cores} multiprocessors, {machine.architecture}")
        for index, machine in enumerate(cuda_found().machines)
    )


_PROBES: dict[str, Callable[[], tuple[Device, ...]]] = {"cpu": _probe_cpu, "opencl": _probe_opencl, "cuda": _probe_cuda}


_PROBED: MemoryCache[str, tuple[tuple[Device, ...], str]] = MemoryCache(capacity=len(_PROBES))
_RUNTIMES: MemoryCache[Device, DeviceRuntime] = MemoryCache()


def _probed(kind: str) -> tuple[tuple[Device, ...], str]:
    """The devices of a kind, or none and the reason; asked once."""
    return _PROBED.get_or_build(kind, lambda: _probe(kind))


def _probe(kind: str) -> tuple[tuple[Device, ...], str]:
    try:
        return _PROBES[kind](), ""
    except ImportError as error:
        return (), f"{error} (pip install {'llvmlite' if kind == 'cpu' else f'tilewright[{kind}]'})"
    except Exception as error:  # drivers raise anything, and one that is broken must not take the others with it
        if kind == "cpu":
            raise
        return (), f"{error}" or type(error).__name__
