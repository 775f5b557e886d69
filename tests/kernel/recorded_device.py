"""A GPU on which nothing runs: it records what would be launched, so that static checks see real sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilewright.kernel.checks import sectors
from tilewright.kernel.ir import Kernel, Space
from tilewright.kernel.warp import Sample, touches
from tilewright.machine.model import Machine
from tilewright.machine.named import H100
from tilewright.runtime import backends
from tilewright.runtime.devices import Device
from tilewright.runtime.protocol import CompiledKernel, DeviceBuffer, ScalarArgument, written_buffers


@dataclass(frozen=True)
class Launched:
    """A kernel, the number of its blocks, and its scalars by name."""

    kernel: Kernel
    blocks: int
    scalars: dict[str, Any]


class RecordedRuntime:
    """The part of `DeviceRuntime` that programs use. All that is read from the device is 0."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.launched: list[Launched] = []

    def compile(self, kernel: Kernel) -> CompiledKernel:
        """Nothing is built."""
        return CompiledKernel(kernel, self.device.name, "", b"", None, written=written_buffers(kernel))

    def upload(self, array: np.ndarray[Any, Any], *, writable: bool = False) -> DeviceBuffer:
        """A buffer of that size."""
        return DeviceBuffer(array.nbytes, self.device.name, 256, writable, True)

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """A buffer of that size."""
        return DeviceBuffer(nbytes, self.device.name, 256, True, True)

    def zeros(self, nbytes: int) -> DeviceBuffer:
        """A buffer of that size."""
        return self.allocate(nbytes)

    def download(self, buffer: DeviceBuffer, into: np.ndarray[Any, Any]) -> None:
        """Zeros."""
        into[...] = np.zeros((), into.dtype)

    def launch(
        self,
        compiled: CompiledKernel,
        blocks: int,
        buffers: Sequence[DeviceBuffer],
        scalars: Sequence[ScalarArgument] = (),
    ) -> None:
        """Take note."""
        named = zip(compiled.kernel.scalars, scalars, strict=True)
        self.launched.append(Launched(compiled.kernel, blocks, {one.name: value for one, (value, _) in named}))

    def synchronise(self) -> None:
        """Nothing is under way."""

    def release(self, buffer: DeviceBuffer) -> None:
        """Nothing is held."""


@contextmanager
def recorded_device(machine: Machine = H100) -> Iterator[tuple[Device, RecordedRuntime]]:
    """A device whose launches are recorded."""
    device = Device(f"{machine.kind}:recorded", machine, "recorded")
    runtime = RecordedRuntime(device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "open_device", lambda _: runtime)
        yield device, runtime


def sectors_touched(launched: Launched, warp: int = 32) -> dict[str, tuple[float, float]]:
    """For each global buffer the sectors that the first warp touches, and those of neighbours next to each other.

    Loops count as often as they go round. Indices that are themselves read from memory are left out.
    """
    found: dict[str, tuple[float, float]] = {}
    for one in touches(launched.kernel, launched.scalars, Sample(0, 0, warp, 0)):
        if one.buffer.space is not Space.GLOBAL or one.index is None or one.active.sum() < 2:
            continue
        width = one.lanes * one.buffer.element.bytes
        addresses = one.index.astype(np.int64)[one.active] * one.buffer.element.bytes
        addresses -= addresses.min() // 32 * 32
        now, best = sectors(addresses, width), sectors(np.arange(len(addresses)) * width, width)
        before = found.get(one.buffer.name, (0.0, 0.0))
        found[one.buffer.name] = before[0] + one.times * now, before[1] + one.times * best
    return found
