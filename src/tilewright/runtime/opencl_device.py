"""Running kernels on an OpenCL device: a GPU of any vendor, or the CPU through a driver for it."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.kernel.c_names import entry_name
from tilewright.kernel.ir import Kernel
from tilewright.kernel.opencl import opencl_text
from tilewright.machine.processors import ask_llvm
from tilewright.runtime.cache import default_disk_cache, package_version
from tilewright.runtime.devices import Device
from tilewright.runtime.errors import CacheWarning, DeviceError, DeviceMemoryError, KernelBuildError, LaunchError
from tilewright.runtime.memory import SMALL_ALLOCATION, available_host_bytes, format_bytes
from tilewright.runtime.opencl_probe import opencl_module, opencl_native_devices
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

_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7  # of CL_DEVICE_SINGLE_FP_CONFIG
_LARGEST_ALIGNMENT = 4096


class OpenCLRuntime:
    """One OpenCL device with one context and one in-order queue; see `DeviceRuntime` for the methods.

    Where the device is the CPU itself, `upload` makes no copy of an array that is aligned as the device aligns its own
    buffers (128 bytes); `tilewright.runtime.memory.aligned_empty` makes such arrays.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._module: Any = opencl_module()
        self._native: Any = opencl_native_devices()[device.index]
        with _driver_errors(self._module, f"opening {device.name}"):
            self._context: Any = self._module.Context([self._native])
            self._queue: Any = self._module.CommandQueue(self._context, self._native)
        self._kernels = CompiledKernels()
        self._live: weakref.WeakSet[DeviceBuffer] = weakref.WeakSet()
        self._most_live = 0  # bytes in live buffers, with those of buffers that died since they were counted
        self._live_lock = threading.Lock()
        # Launches set arguments on shared kernel objects, so they take turns. `_in_flight` keeps arrays alive that
        # kernels still running compute in: OpenCL does not know that their memory belongs to Python.
        self._launch_lock = threading.Lock()
        self._in_flight: list[DeviceBuffer] = []
        self._own_alignment = int(self._native.mem_base_addr_align) // 8
        self._options = _build_options(self._native, device)

    def compile(self, kernel: Kernel) -> CompiledKernel:
        """Build a kernel, or take it from the caches."""
        return self._kernels.get_or_build(kernel, self._text, self._build)

    def upload(self, array: np.ndarray[Any, Any], *, writable: bool = False) -> DeviceBuffer:
        """A buffer with the bytes of a dense array, in place where the device computes in host memory."""
        data = (writable_bytes if writable else dense_bytes)(array, f"upload to {self.device.name}")
        flags = self._module.mem_flags
        address = data.ctypes.data
        in_place = self.device.machine.shares_host_memory and data.nbytes > 0 and address % self._own_alignment == 0
        if not in_place:
            buffer = self._new_buffer(data.nbytes, writable)
            if data.nbytes:
                with _driver_errors(self._module, f"{self.device.name}: upload"):
                    self._module.enqueue_copy(self._queue, buffer.native, data, is_blocking=True)
            return buffer
        access = flags.READ_WRITE if writable else flags.READ_ONLY
        with _driver_errors(self._module, f"{self.device.name}: upload"):
            native = self._module.Buffer(self._context, access | flags.USE_HOST_PTR, hostbuf=data)
        alignment = min(address & -address, _LARGEST_ALIGNMENT)
        return DeviceBuffer(data.nbytes, self.device.name, alignment, writable, native, host=data)

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """A writable buffer with undefined content."""
        return self._new_buffer(nbytes, writable=True)

    def zeros(self, nbytes: int) -> DeviceBuffer:
        """A writable buffer full of zeros."""
        buffer = self._new_buffer(nbytes, writable=True)
        if nbytes:
            with _driver_errors(self._module, f"{self.device.name}: zeros"):
                self._module.enqueue_fill_buffer(self._queue, buffer.native, np.uint8(0), 0, nbytes)
        return buffer

    def download(self, buffer: DeviceBuffer, into: np.ndarray[Any, Any]) -> None:
        """Wait, then copy the start of a buffer into a dense array."""
        check_buffer(buffer, self.device, "download")
        target = download_target(buffer, into)
        if buffer.host is not None:
            self._read_in_place(buffer, target)
        elif target.nbytes:
            with _driver_errors(self._module, f"{self.device.name}: download"):
                self._module.enqueue_copy(self._queue, target, buffer.native, is_blocking=True)

    def launch(
        self,
        compiled: CompiledKernel,
        blocks: int,
        buffers: Sequence[DeviceBuffer],
        scalars: Sequence[ScalarArgument] = (),
    ) -> None:
        """Run `blocks` blocks of a kernel; 0 blocks do nothing."""
        check_launch(compiled, self.device, blocks, buffers, scalars)
        arguments = [buffer.native for buffer in buffers] + scalar_arguments(compiled.kernel, scalars)
        if blocks == 0:
            return
        threads = compiled.kernel.threads_per_block
        in_place = [buffer for buffer in buffers if buffer.host is not None]
        with self._launch_lock, _driver_errors(self._module, f"launch of {compiled.kernel.name!r}"):
            compiled.native.set_args(*arguments)
            self._module.enqueue_nd_range_kernel(self._queue, compiled.native, (blocks * threads,), (threads,))
            self._in_flight.extend(in_place)
            self._queue.flush()

    def synchronise(self) -> None:
        """Wait until everything launched has finished."""
        with self._launch_lock:
            finished, self._in_flight = self._in_flight, []
        with _driver_errors(self._module, f"{self.device.name}: synchronise"):
            self._queue.finish()
        finished.clear()  # not before here: the arrays were in use until now

    def release(self, buffer: DeviceBuffer) -> None:
        """Give a buffer's memory back; a second time does nothing."""
        if buffer.native is None:
            return
        check_buffer(buffer, self.device, "release")
        if buffer.host is not None:
            self.synchronise()  # after this call the array's owner may change or free it
        with _driver_errors(self._module, f"{self.device.name}: release"):
            buffer.native.release()
        buffer.native = buffer.host = None
        with self._live_lock:
            self._live.discard(buffer)

    def _new_buffer(self, nbytes: int, writable: bool) -> DeviceBuffer:
        with self._live_lock:
            check_allocation(self.device, nbytes, self._available(nbytes))
            with _driver_errors(self._module, f"{self.device.name}: allocating {format_bytes(nbytes)}"):
                # OpenCL has no empty buffers; kernels never look into the one byte.
                native = self._module.Buffer(self._context, self._module.mem_flags.READ_WRITE, max(1, nbytes))
            buffer = DeviceBuffer(nbytes, self.device.name, self._own_alignment, writable, native)
            self._live.add(buffer)
            self._most_live += nbytes
        return buffer

    def _available(self, nbytes: int) -> int:
        """Bytes that can still be allocated. OpenCL does not tell, so it is the total less our own buffers."""
        machine = self.device.machine
        if self._most_live + nbytes > machine.memory_bytes:
            self._most_live = sum(buffer.nbytes for buffer in self._live)
        free = max(0, machine.memory_bytes - self._most_live)
        if machine.shares_host_memory and nbytes >= SMALL_ALLOCATION:
            return min(free, available_host_bytes())
        return free

    def _read_in_place(self, buffer: DeviceBuffer, target: np.ndarray[Any, Any]) -> None:
        """Make what kernels wrote visible in the array that the buffer is, and copy it if another one was asked for."""
        with _driver_errors(self._module, f"{self.device.name}: download"):
            mapped, _ = self._module.enqueue_map_buffer(
                self._queue, buffer.native, self._module.map_flags.READ, 0, (buffer.nbytes,), np.uint8, is_blocking=True
            )
            if mapped.ctypes.data != target.ctypes.data:
                np.copyto(target, mapped[: target.nbytes])
            mapped.base.release(self._queue)
        self.synchronise()

    def _text(self, kernel: Kernel) -> str:
        check_kernel(kernel, self.device)
        return opencl_text(kernel)

    def _build(self, kernel: Kernel, text: str) -> CompiledKernel:
        disk = default_disk_cache()
        parts = _cache_key(self._native, self._options, text)
        # A simulator reports source lines, which only a build from the source knows.
        stored = None if self.device.machine.simulated else disk.get(parts)
        program = self._program_from_binary(stored) if stored is not None else None
        from_cache = program is not None
        if program is None:
            program = self._program_from_text(kernel, text)
        binary = bytes(program.get_info(self._module.program_info.BINARIES)[0])
        if not from_cache and not self.device.machine.simulated:
            disk.put(parts, binary)
        with _driver_errors(self._module, f"kernel {kernel.name!r}"):
            native = self._module.Kernel(program, entry_name(kernel))
        self._check_built(kernel, native)
        log = str(program.get_build_info(self._native, self._module.program_build_info.LOG)).strip("\0 \n")
        return CompiledKernel(
            kernel, self.device.name, text, binary, native, log, written_buffers(kernel), from_cache=from_cache
        )

    def _program_from_binary(self, binary: bytes) -> Any | None:
        try:
            with _quiet(self._module):
                return self._module.Program(self._context, [self._native], [binary]).build(self._options)
        except self._module.Error as error:
            warnings.warn(f"{self.device.name} refuses a cached program ({error}); building it", CacheWarning, 2)
            return None

    def _program_from_text(self, kernel: Kernel, text: str) -> Any:
        try:
            with _quiet(self._module):
                return self._module.Program(self._context, text).build(self._options, cache_dir=False)
        except self._module.Error as error:
            raise KernelBuildError(kernel.name, self.device.name, str(error), text) from error

    def _check_built(self, kernel: Kernel, native: Any) -> None:
        """The compiler may allow fewer threads than the device, when one needs many registers."""
        info = self._module.kernel_work_group_info
        threads = int(native.get_work_group_info(info.WORK_GROUP_SIZE, self._native))
        if kernel.threads_per_block > threads:
            raise LaunchError(
                f"kernel {kernel.name!r} on {self.device.name}: {kernel.threads_per_block} threads per block; "
                f"as compiled, the limit is {threads}"
            )
        shared = int(native.get_work_group_info(info.LOCAL_MEM_SIZE, self._native))
        if shared > self.device.machine.shared_bytes_per_block:
            raise LaunchError(
                f"kernel {kernel.name!r} on {self.device.name}: compiled to {format_bytes(shared)} of shared memory "
                f"per block; the limit is {format_bytes(self.device.machine.shared_bytes_per_block)}"
            )


def _build_options(native: Any, device: Device) -> list[str]:
    options = ["-cl-std=CL1.2"]
    if int(native.single_fp_config) & _CORRECTLY_ROUNDED_DIVIDE_SQRT:
        options.append("-cl-fp32-correctly-rounded-divide-sqrt")  # else division may be off by 2.5 units
    if device.machine.simulated:
        options.append("-cl-opt-disable")  # optimised index arithmetic misleads the checks
    return options


def _cache_key(native: Any, options: list[str], text: str) -> tuple[str, ...]:
    platform = native.platform
    host = ""
    if native.type & 2:  # machine code for this very CPU: two computers can share a home folder and a driver
        host = repr(ask_llvm())
    return ("opencl", package_version(), platform.name, platform.version, native.name, native.version,
            native.driver_version, host, " ".join(options), text)  # fmt: skip


@contextmanager
def _quiet(module: Any) -> Iterator[None]:
    """Drop pyopencl's warning that the compiler said something; `CompiledKernel.log` has it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", module.CompilerWarning)
        yield


@contextmanager
def _driver_errors(module: Any, what: str) -> Iterator[None]:
    try:
        yield
    except module.MemoryError as error:
        raise DeviceMemoryError(f"{what}: {error}") from error
    except module.Error as error:
        raise DeviceError(f"{what}: {error}") from error
