"""Running kernels on an NVIDIA GPU through cuda.core: cubins made by NVRTC for the device's own architecture.

Everything is put on the default stream, so it is in order with what other libraries put there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.kernel.c_names import entry_name
from tilewright.kernel.cuda import cuda_dynamic_shared_bytes, cuda_text
from tilewright.kernel.ir import Kernel
from tilewright.kernel.nvrtc import CompiledCuda, CudaCompileError, compile_cuda, numbered
from tilewright.runtime.cache import DiskCache, MemoryCache, default_disk_cache, package_version
from tilewright.runtime.cuda_probe import checked, cuda_found
from tilewright.runtime.devices import Device
from tilewright.runtime.errors import DeviceError, DeviceMemoryError, KernelBuildError, LaunchError
from tilewright.runtime.memory import format_bytes
from tilewright.runtime.protocol import (
    CompiledKernel,
    DeviceBuffer,
    ScalarArgument,
    check_allocation,
    check_buffer,
    check_kernel,
    check_launch,
    dense_bytes,
    download_target,
    kernel_key,
    scalar_arguments,
    writable_bytes,
    written_buffers,
)

SHARED_BYTES_WITHOUT_ASKING = 48 << 10
"""Dynamic shared memory that every kernel may use; for more, its function must be told first."""

_ALIGNMENT = 256  # of every allocation (CUDA programming guide, device memory accesses)


class CudaRuntime:
    """One CUDA device; see `DeviceRuntime` for the methods. Every method makes the device the thread's current one."""

    def __init__(self, device: Device) -> None:
        cuda_found()  # initialises the driver; cuda.core must not be touched before
        from cuda import core
        from cuda.bindings import driver

        self.device = device
        self._core: Any = core
        self._driver: Any = driver
        self._kernels: MemoryCache[Any, CompiledKernel] = MemoryCache()
        self._allocation_lock = threading.Lock()

    def compile(self, kernel: Kernel) -> CompiledKernel:
        """Build a kernel, or take it from the caches."""
        check_kernel(kernel, self.device)
        text = cuda_text(kernel)
        return self._kernels.get_or_build(kernel_key(kernel, text), lambda: self._build(kernel, text))

    def upload(self, array: np.ndarray[Any, Any], *, writable: bool = False) -> DeviceBuffer:
        """A buffer with a copy of the bytes of a dense array."""
        data = (writable_bytes if writable else dense_bytes)(array, f"upload to {self.device.name}")
        buffer = self._new_buffer(data.nbytes, writable)
        if data.nbytes:
            stream = self._current().default_stream
            with _driver_errors(f"{self.device.name}: upload"):
                copied = self._driver.cuMemcpyHtoDAsync(
                    int(buffer.native.handle), data.ctypes.data, data.nbytes, stream.handle
                )
                checked(copied, "cuMemcpyHtoDAsync")
                stream.sync()  # the array may change after the call
        return buffer

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """A writable buffer with undefined content."""
        return self._new_buffer(nbytes, writable=True)

    def download(self, buffer: DeviceBuffer, into: np.ndarray[Any, Any]) -> None:
        """Wait, then copy the start of a buffer into a dense array."""
        check_buffer(buffer, self.device, "download")
        target = download_target(buffer, into)
        stream = self._current().default_stream
        with _driver_errors(f"{self.device.name}: download"):
            if target.nbytes:
                copied = self._driver.cuMemcpyDtoHAsync(
                    target.ctypes.data, int(buffer.native.handle), target.nbytes, stream.handle
                )
                checked(copied, "cuMemcpyDtoHAsync")
            stream.sync()

    def launch(
        self,
        compiled: CompiledKernel,
        blocks: int,
        buffers: Sequence[DeviceBuffer],
        scalars: Sequence[ScalarArgument] = (),
    ) -> None:
        """Run `blocks` blocks of a kernel; 0 blocks do nothing."""
        check_launch(compiled, self.device, blocks, buffers, scalars)
        arguments = launch_arguments([int(buffer.native.handle) for buffer in buffers], compiled.kernel, scalars)
        if blocks == 0:
            return
        config = self._core.LaunchConfig(
            grid=blocks, block=compiled.kernel.threads_per_block, shmem_size=compiled.dynamic_shared_bytes
        )
        stream = self._current().default_stream
        with _driver_errors(f"launch of {compiled.kernel.name!r} on {self.device.name}"):
            self._core.launch(stream, config, compiled.native, *arguments)

    def synchronise(self) -> None:
        """Wait until everything launched has finished."""
        with _driver_errors(f"{self.device.name}: synchronise"):
            self._current().default_stream.sync()

    def release(self, buffer: DeviceBuffer) -> None:
        """Give a buffer's memory back, in order after what was launched; a second time does nothing."""
        if buffer.native is None:
            return
        check_buffer(buffer, self.device, "release")
        self._current()
        native, buffer.native = buffer.native, None
        with _driver_errors(f"{self.device.name}: release"):
            native.close()

    def _current(self) -> Any:
        """The device, made current for this thread (cuda.core keeps one object per thread)."""
        device = self._core.Device(self.device.index)
        device.set_current()
        return device

    def _new_buffer(self, nbytes: int, writable: bool) -> DeviceBuffer:
        device = self._current()
        with self._allocation_lock:
            check_allocation(self.device, nbytes, self._available(device))
            with _driver_errors(f"{self.device.name}: allocating {format_bytes(nbytes)}"):
                native = device.allocate(max(1, nbytes), stream=device.default_stream)
        return DeviceBuffer(nbytes, self.device.name, _ALIGNMENT, writable, native)

    def _available(self, device: Any) -> int:
        """Free memory of the device, and what its allocation pool holds unused."""
        free, _ = checked(self._driver.cuMemGetInfo(), "cuMemGetInfo")
        pool = getattr(device.memory_resource, "attributes", None)  # devices without pools have none
        unused = pool.reserved_mem_current - pool.used_mem_current if pool is not None else 0
        return int(free) + int(unused)

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
        device = self._current()
        with _driver_errors(f"loading kernel {kernel.name!r} on {self.device.name}"):
            native = self._core.ObjectCode.from_cubin(built.cubin, name=entry).get_kernel(entry)
            self._check_threads(kernel, native, device)
            if dynamic > SHARED_BYTES_WITHOUT_ASKING:
                self._ask_for_shared_memory(native, dynamic)
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

    def _check_threads(self, kernel: Kernel, native: Any, device: Any) -> None:
        """A kernel that needs many registers allows fewer threads than the device."""
        threads = int(native.attributes[device].max_threads_per_block)
        if kernel.threads_per_block > threads:
            raise LaunchError(
                f"kernel {kernel.name!r} on {self.device.name}: {kernel.threads_per_block} threads per block; "
                f"with the registers that it needs, the limit is {threads}"
            )

    def _ask_for_shared_memory(self, native: Any, dynamic_bytes: int) -> None:
        handle = checked(self._driver.cuDeviceGet(self.device.index), "cuDeviceGet")
        attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(
            self._driver.cuKernelSetAttribute(attribute, dynamic_bytes, native.handle, handle), "cuKernelSetAttribute"
        )


def launch_arguments(addresses: list[int], kernel: Kernel, scalars: Sequence[ScalarArgument]) -> list[Any]:
    """Kernel arguments as cuda.core takes them: an int is a pointer, a NumPy scalar has its own size."""
    return [*addresses, *scalar_arguments(kernel, scalars)]


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
    """Turn whatever cuda.core raises (its error classes are private) into a `DeviceError` that says what was done."""
    try:
        yield
    except DeviceError as error:
        if "OUT_OF_MEMORY" in str(error):
            raise DeviceMemoryError(f"{what}: {error}") from error
        raise
    except Exception as error:
        kind = DeviceMemoryError if "OUT_OF_MEMORY" in str(error) else DeviceError
        raise kind(f"{what}: {error}") from error
