"""Running kernels on an NVIDIA GPU: cubins made by NVRTC for the device's own architecture, launched by the driver.

Everything is put on the default stream, so it is in order with what other libraries put there.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.kernel.c_names import entry_name
from tilewright.kernel.cuda import cuda_dynamic_shared_bytes, cuda_text
from tilewright.kernel.ir import Kernel
from tilewright.kernel.nvrtc import CompiledCuda, CudaCompileError, compile_cuda, numbered
from tilewright.runtime.cache import DiskCache, default_disk_cache, package_version
from tilewright.runtime.cuda_context import STREAM, CudaContext, CudaFunction
from tilewright.runtime.cuda_probe import checked
from tilewright.runtime.devices import Device
from tilewright.runtime.errors import DeviceError, DeviceMemoryError, KernelBuildError, LaunchError
from tilewright.runtime.memory import format_bytes
from tilewright.runtime.protocol import (
    CompiledKernel,
    CompiledKernels,
    DeviceBuffer,
    ScalarArgument,
    check_allocation,
    check_buffer,
    check_kernel,
    check_launch,
    dense_bytes,
    download_target,
    scalar_arguments,
    writable_bytes,
    written_buffers,
)

SHARED_BYTES_WITHOUT_ASKING = 48 << 10
"""Dynamic shared memory that every kernel may use; for more, its function must be told first."""

_SLOT_BYTES = 8  # of an argument at most
_ALIGNMENT = 256  # of every allocation (CUDA programming guide, device memory accesses)


class CudaRuntime:
    """One CUDA device; see `DeviceRuntime` for the methods."""

    def __init__(self, device: Device) -> None:
        self.device = device
        with _driver_errors(f"opening {device.name}"):
            self._context = CudaContext(device.index, device.machine.memory_bytes)
        self._driver: Any = self._context.driver
        self._kernels = CompiledKernels()

    def compile(self, kernel: Kernel) -> CompiledKernel:
        """Build a kernel, or take it from the caches."""
        return self._kernels.get_or_build(kernel, self._text, self._build)

    def upload(self, array: np.ndarray[Any, Any], *, writable: bool = False) -> DeviceBuffer:
        """A buffer with a copy of the bytes of a dense array."""
        data = (writable_bytes if writable else dense_bytes)(array, f"upload to {self.device.name}")
        buffer = self._new_buffer(data.nbytes, writable)
        if data.nbytes:
            with _driver_errors(f"{self.device.name}: upload"), self._context.current():
                copied = self._driver.cuMemcpyHtoDAsync(buffer.native.address, data.ctypes.data, data.nbytes, STREAM)
                checked(copied, "cuMemcpyHtoDAsync")
                self._wait()  # the array may change after the call
        return buffer

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """A writable buffer with undefined content."""
        return self._new_buffer(nbytes, writable=True)

    def zeros(self, nbytes: int) -> DeviceBuffer:
        """A writable buffer full of zeros."""
        buffer = self._new_buffer(nbytes, writable=True)
        if nbytes:
            with _driver_errors(f"{self.device.name}: zeros"), self._context.current():
                checked(self._driver.cuMemsetD8Async(buffer.native.address, 0, nbytes, STREAM), "cuMemsetD8Async")
        return buffer

    def download(self, buffer: DeviceBuffer, into: np.ndarray[Any, Any]) -> None:
        """Wait, then copy the start of a buffer into a dense array."""
        check_buffer(buffer, self.device, "download")
        target = download_target(buffer, into)
        with _driver_errors(f"{self.device.name}: download"), self._context.current():
            if target.nbytes:
                copied = self._driver.cuMemcpyDtoHAsync(
                    target.ctypes.data, buffer.native.address, target.nbytes, STREAM
                )
                checked(copied, "cuMemcpyDtoHAsync")
            self._wait()

    def launch(
        self,
        compiled: CompiledKernel,
        blocks: int,
        buffers: Sequence[DeviceBuffer],
        scalars: Sequence[ScalarArgument] = (),
    ) -> None:
        """Run `blocks` blocks of a kernel; 0 blocks do nothing."""
        check_launch(compiled, self.device, blocks, buffers, scalars)
        given = LaunchArguments([buffer.native.address for buffer in buffers], compiled.kernel, scalars)
        if blocks == 0:
            return
        threads, shared = compiled.kernel.threads_per_block, compiled.dynamic_shared_bytes
        native = compiled.native.native
        with _driver_errors(f"launch of {compiled.kernel.name!r} on {self.device.name}"), self._context.current():
            launched = self._driver.cuLaunchKernel(
                native, blocks, 1, 1, threads, 1, 1, shared, STREAM, given.address, 0
            )
            checked(launched, "cuLaunchKernel")

    def synchronise(self) -> None:
        """Wait until everything launched has finished."""
        with _driver_errors(f"{self.device.name}: synchronise"), self._context.current():
            self._wait()

    def release(self, buffer: DeviceBuffer) -> None:
        """Give a buffer's memory back, in order after what was launched; a second time does nothing."""
        if buffer.native is None:
            return
        check_buffer(buffer, self.device, "release")
        native, buffer.native = buffer.native, None
        with _driver_errors(f"{self.device.name}: release"):
            native.close()

    def _wait(self) -> None:
        checked(self._driver.cuStreamSynchronize(STREAM), "cuStreamSynchronize")

    def _new_buffer(self, nbytes: int, writable: bool) -> DeviceBuffer:
        """The driver is asked how much there is only when there was not enough: the question costs more than memory."""
        check_allocation(self.device, nbytes, nbytes)
        with _driver_errors(f"{self.device.name}: allocating {format_bytes(nbytes)}"):
            try:
                native = self._context.allocate(max(1, nbytes))
            except DeviceMemoryError:
                check_allocation(self.device, nbytes, min(self._context.available(), max(0, nbytes - 1)))
                raise
        return DeviceBuffer(nbytes, self.device.name, _ALIGNMENT, writable, native)

    def _text(self, kernel: Kernel) -> str:
        check_kernel(kernel, self.device)
        return cuda_text(kernel)

    def _build(self, kernel: Kernel, text: str) -> CompiledKernel:
        built, from_cache = build_cubin(kernel.name, text, self.device.machine.architecture, default_disk_cache())
        entry = entry_name(kernel)
        dynamic = cuda_dynamic_shared_bytes(kernel)
        shared = built.shared_bytes[entry] + dynamic
        limit = self.device.machine.shared_bytes_per_block
        if shared > limit:
            raise LaunchError(
                f"kernel {kernel.name!r} on {self.device.name}: compiled to {format_bytes(shared)} of shared memory "
                f"per block; the limit is {format_bytes(limit)}"
            )
        with _driver_errors(f"loading kernel {kernel.name!r} on {self.device.name}"):
            native = self._context.load(built.cubin, entry)
            self._check_threads(kernel, native)
            if dynamic > SHARED_BYTES_WITHOUT_ASKING:
                native.allow_dynamic_shared_bytes(dynamic)
        return CompiledKernel(
            kernel,
            self.device.name,
            text,
            built.cubin,
            native,
            built.log,
            written_buffers(kernel),
            registers=built.registers[entry],
            spill_bytes=built.spill_bytes[entry],
            dynamic_shared_bytes=dynamic,
            from_cache=from_cache,
        )

    def _check_threads(self, kernel: Kernel, native: CudaFunction) -> None:
        """A kernel that needs many registers allows fewer threads than the device."""
        threads = native.attribute("MAX_THREADS_PER_BLOCK")
        if kernel.threads_per_block > threads:
            raise LaunchError(
                f"kernel {kernel.name!r} on {self.device.name}: {kernel.threads_per_block} threads per block; "
                f"with the registers that it needs, the limit is {threads}"
            )


class LaunchArguments:
    """Kernel arguments as the driver reads them: `address` is that of an array of pointers to each one's value.

    The driver reads as many bytes as the kernel declares; it has read them when the launch returns.
    """

    def __init__(self, addresses: Sequence[int], kernel: Kernel, scalars: Sequence[ScalarArgument]) -> None:
        values = [one.tobytes().ljust(_SLOT_BYTES, b"\0") for one in scalar_arguments(kernel, scalars)]
        slots = struct.pack(f"={len(addresses)}Q", *addresses) + b"".join(values)
        self._slots = ctypes.create_string_buffer(slots, max(1, len(slots)))
        start = ctypes.addressof(self._slots)
        pointers = range(start, start + len(slots), _SLOT_BYTES)
        self._pointers = (ctypes.c_void_p * len(pointers))(*pointers)
        self.address = ctypes.addressof(self._pointers) if pointers else 0


def build_cubin(name: str, text: str, architecture: str, disk: DiskCache) -> tuple[CompiledCuda, bool]:
    """The cubin of a CUDA text for an architecture such as "sm_90a", and whether it came from the disk.

    Needs NVRTC but no GPU and no driver.

    Raises:
        KernelBuildError: with NVRTC's log and the numbered source.
    """
    parts = ("cuda", package_version(), nvrtc_version(), architecture, text)
    stored = disk.get(parts)
    if stored is not None:
        return _unpacked(stored), True
    try:
        built = compile_cuda(text, architecture)
    except CudaCompileError as error:
        log = str(error).replace(numbered(text), "")  # KernelBuildError shows the source itself
        raise KernelBuildError(name, architecture, log, text) from error
    disk.put(parts, _packed(built))
    return built, False


def nvrtc_version() -> str:
    """The version of NVRTC, such as "13.0"."""
    from cuda.bindings import nvrtc

    status, major, minor = nvrtc.nvrtcVersion()
    if int(status) != 0:
        raise DeviceError(f"nvrtcVersion failed: {status}")
    return f"{major}.{minor}"


def _packed(built: CompiledCuda) -> bytes:
    facts = {
        "log": built.log,
        "registers": built.registers,
        "spill_bytes": built.spill_bytes,
        "shared_bytes": built.shared_bytes,
    }
    return json.dumps(facts).encode() + b"\n" + built.cubin


def _unpacked(data: bytes) -> CompiledCuda:
    facts, _, cubin = data.partition(b"\n")
    return CompiledCuda(cubin=cubin, **json.loads(facts))


@contextmanager
def _driver_errors(what: str) -> Iterator[None]:
    """Say in an error of the driver what was done."""
    try:
        yield
    except LaunchError:
        raise
    except DeviceError as error:
        kind = DeviceMemoryError if isinstance(error, DeviceMemoryError) else DeviceError
        raise kind(f"{what}: {error}") from error
