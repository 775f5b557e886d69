"""An NVIDIA GPU that is emulated (cuda_emulation.py), for programs to be run on through the ordinary executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_emulation import Emulated, compile_emulated

from tilewright.kernel.c_names import entry_name
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.ir import Kernel
from tilewright.machine.model import Machine
from tilewright.machine.named import H100
from tilewright.runtime import backends
from tilewright.runtime.devices import Device
from tilewright.runtime.protocol import (
    CompiledKernel,
    DeviceBuffer,
    ScalarArgument,
    check_kernel,
    check_launch,
    scalar_arguments,
    written_buffers,
)

RUBBISH = 0xA5
_BUILT: dict[str, Emulated] = {}


class EmulatedRuntime:
    """The part of `DeviceRuntime` that programs use. `residents`: blocks at a time; negative: the last first."""

    def __init__(self, device: Device, residents: int, sanitizer: str) -> None:
        self.device = device
        self.residents = residents
        self.sanitizer = sanitizer
        self.launched: list[str] = []
        self.built = _BUILT

    def compile(self, kernel: Kernel) -> CompiledKernel:
        """Build a kernel, or take one with the same text."""
        check_kernel(kernel, self.device)
        text, name = cuda_text(kernel), entry_name(kernel)
        if text not in self.built:
            self.built[text] = compile_emulated({name: text}, self.sanitizer)
        return CompiledKernel(
            kernel, self.device.name, text, b"", (name, self.built[text]), written=written_buffers(kernel)
        )

    def upload(self, array: np.ndarray[Any, Any], *, writable: bool = False) -> DeviceBuffer:
        """A buffer with a copy of the bytes."""
        buffer = self.allocate(array.nbytes)
        buffer.native[...] = np.frombuffer(array.tobytes(order="A"), np.uint8)
        return replace(buffer, writable=writable)

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """A buffer full of rubbish."""
        raw = np.full(nbytes + 256, RUBBISH, np.uint8)
        start = -raw.ctypes.data % 256
        return DeviceBuffer(nbytes, self.device.name, 256, True, raw[start : start + nbytes])

    def zeros(self, nbytes: int) -> DeviceBuffer:
        """A buffer full of zeros."""
        buffer = self.allocate(nbytes)
        buffer.native[...] = 0
        return buffer

    def download(self, buffer: DeviceBuffer, into: np.ndarray[Any, Any]) -> None:
        """The first bytes of a buffer."""
        into.reshape(-1).view(np.uint8)[...] = buffer.native[: into.nbytes]

    def launch(
        self,
        compiled: CompiledKernel,
        blocks: int,
        buffers: Sequence[DeviceBuffer],
        scalars: Sequence[ScalarArgument] = (),
    ) -> None:
        """Run the blocks."""
        check_launch(compiled, self.device, blocks, buffers, scalars)
        name, emulated = compiled.native
        self.launched.append(name)
        given = [int.from_bytes(one.tobytes(), "little") for one in scalar_arguments(compiled.kernel, scalars)]
        values = [*(int(buffer.native.ctypes.data) for buffer in buffers), *given]
        emulated.launch(name, values, blocks, compiled.kernel.threads_per_block, self.residents)

    def synchronise(self) -> None:
        """Launches have finished."""

    def release(self, buffer: DeviceBuffer) -> None:
        """Give the memory back."""
        buffer.native = None


SMALL = replace(H100, name="small", cores=1, max_threads_per_block=16, max_threads_per_core=64)
"""An NVIDIA GPU with blocks of few threads, which small arrays fill."""


@contextmanager
def emulated_device(
    residents: int = 3, machine: Machine = SMALL, sanitizer: str = "undefined"
) -> Iterator[tuple[Device, EmulatedRuntime]]:
    """A device whose programs are run by the emulation."""
    device = Device("cuda:emulated", machine, "emulated")
    runtime = EmulatedRuntime(device, residents, sanitizer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "open_device", lambda _: runtime)
        yield device, runtime
