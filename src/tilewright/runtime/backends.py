"""The two ways in which the host reaches kernels: in process on the CPU, and through a `DeviceRuntime`."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import ScalarType
from tilewright.runtime import cpu_pool
from tilewright.runtime.devices import Device, open_device
from tilewright.runtime.memory import aligned_empty
from tilewright.runtime.native_image import NativeKernel

if TYPE_CHECKING:  # programs from the disk do without the kernel language
    from tilewright.kernel.ir import Kernel
    from tilewright.machine.model import Machine
    from tilewright.runtime.protocol import CompiledKernel, DeviceBuffer, DeviceRuntime

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Number: TypeAlias = int | float | bool

NOTHING = aligned_empty((64,), np.dtype(np.uint8), "placeholder")
NOTHING[:] = 0
"""What an array without elements points to."""


@dataclass(eq=False)
class Memory:
    """A piece of memory of the backend: an address and the array that keeps it alive, or a device's buffer."""

    address: int = 0
    array: Array | None = None
    buffer: DeviceBuffer | None = None
    slot: int = field(default=-1)


class Backend(Protocol):
    """What the executor needs of a device."""

    machine: Machine
    threads_per_block: int

    def compile(self, kernel: Kernel, scalars: Mapping[str, int]) -> Any:
        """A handle of the kernel, compiled; at least what launches with these scalars need of it."""
        ...

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> Memory:
        """Memory for a row-major array, content undefined."""
        ...

    def zeros(self, count: int) -> Memory:
        """`count` i64 zeros."""
        ...

    def place(self, array: Array) -> tuple[Memory, tuple[int, ...]]:
        """An argument where kernels can read it, and the strides (in bytes) that it has there."""
        ...

    def launch(self, compiled: Any, blocks: int, memories: Sequence[Memory], scalars: Sequence[Number]) -> None:
        """Run a kernel."""
        ...

    def read(self, memory: Memory, offset: int, count: int, dtype: np.dtype[Any]) -> Array:
        """A copy of `count` elements from element number `offset` on."""
        ...

    def result(self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The row-major array that a piece of memory is, for the caller to keep."""
        ...


def backend_for(device: Device) -> Backend:
    """The backend of a device."""
    return CpuBackend(device) if device.machine.kind == "cpu" else DeviceBackend(device)


def usable_strides(array: Array) -> bool:
    """Whether kernels can address the array as it lies: native byte order, aligned, strides whole elements."""
    size = array.itemsize
    return array.dtype.isnative and array.flags.aligned and all(stride % size == 0 for stride in array.strides)


class CpuBackend:
    """Kernels in this process, computing in NumPy's memory."""

    def __init__(self, device: Device) -> None:
        self.machine = device.machine
        self.threads_per_block = 1

    def compile(self, kernel: Kernel, scalars: Mapping[str, int]) -> tuple[Kernel, NativeKernel]:
        """Machine code, without large branches that the scalars do not take."""
        from tilewright.runtime.cpu_device import compile_for_cpu, taken_by

        kernel = taken_by(kernel, scalars)
        return kernel, compile_for_cpu(kernel)

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> Memory:
        """Aligned NumPy memory."""
        array = aligned_empty(shape, dtype, what)
        return Memory(array.ctypes.data if array.size else NOTHING.ctypes.data, array)

    def zeros(self, count: int) -> Memory:
        """`count` i64 zeros."""
        array = np.zeros(count, np.int64)
        return Memory(array.ctypes.data, array)

    def place(self, array: Array) -> tuple[Memory, tuple[int, ...]]:
        """The array itself, or a copy where kernels cannot address it."""
        if array.size == 0:
            return Memory(NOTHING.ctypes.data, NOTHING), (0,) * array.ndim
        if not usable_strides(array):
            array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
        return Memory(array.ctypes.data, array), array.strides

    def launch(
        self, compiled: tuple[Kernel, NativeKernel], blocks: int, memories: Sequence[Memory], scalars: Sequence[Number]
    ) -> None:
        """Run on the pool."""
        kernel, native = compiled
        block = argument_block(kernel, scalars)
        for position, memory in enumerate(memories):
            block[position] = memory.address
        cpu_pool.launch(native, block, blocks)

    def read(self, memory: Memory, offset: int, count: int, dtype: np.dtype[Any]) -> Array:
        """A copy of the elements."""
        return array_at(memory.address + offset * dtype.itemsize, count, dtype)

    def result(self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The array itself."""
        assert memory.array is not None
        return memory.array


def array_at(address: int, count: int, dtype: np.dtype[Any]) -> Array:
    """A copy of elements at an address of this process."""
    return np.frombuffer(ctypes.string_at(address, count * dtype.itemsize), dtype=dtype).copy()


_FORMATS = {
    "bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "f32": "f", "f64": "d",
}  # fmt: skip


def slot_bytes(type_: ScalarType, value: Number) -> bytes:
    """A scalar as one slot of an argument block."""
    if type_.name == "f32":
        return np.float32(value).tobytes().ljust(8, b"\0")  # struct refuses what rounds to infinity
    return struct.pack("<" + _FORMATS[type_.name], value).ljust(8, b"\0")


def argument_block(kernel: Kernel, scalars: Sequence[Number]) -> ctypes.Array[ctypes.c_uint64]:
    """An argument block with the scalars filled in and the buffers' addresses 0."""
    count = len(kernel.buffers) + len(kernel.scalars)
    data = b"\0" * 8 * len(kernel.buffers) + b"".join(
        slot_bytes(parameter.type, value) for parameter, value in zip(kernel.scalars, scalars, strict=True)
    )
    return (ctypes.c_uint64 * count).from_buffer_copy(data)


class DeviceBackend:
    """Kernels of an OpenCL or CUDA device."""

    def __init__(self, device: Device) -> None:
        self.machine = device.machine
        self.runtime: DeviceRuntime = open_device(device)
        self.threads_per_block = max(2, min(256, device.machine.max_threads_per_block))

    def compile(self, kernel: Kernel, scalars: Mapping[str, int]) -> CompiledKernel:
        """The driver's kernel."""
        return self.runtime.compile(kernel)

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> Memory:
        """A buffer of the device."""
        count = int(np.prod(shape, dtype=object)) if shape else 1
        return Memory(buffer=self.runtime.allocate(max(64, count * dtype.itemsize)))

    def zeros(self, count: int) -> Memory:
        """`count` i64 zeros."""
        return Memory(buffer=self.runtime.zeros(8 * count))

    def place(self, array: Array) -> tuple[Memory, tuple[int, ...]]:
        """The array uploaded; a contiguous copy where it has gaps."""
        if array.size == 0:
            return Memory(array=NOTHING, buffer=self.runtime.upload(NOTHING)), (0,) * array.ndim
        dense = array.flags.c_contiguous or array.flags.f_contiguous
        if not dense or not usable_strides(array):
            # A copy for another reason than gaps keeps its strides: a bound plan that fits the array fits the copy.
            array = np.array(array, dtype=array.dtype.newbyteorder("="), order="K" if dense else "C")
        return Memory(array=array, buffer=self.runtime.upload(array)), array.strides

    def launch(
        self, compiled: CompiledKernel, blocks: int, memories: Sequence[Memory], scalars: Sequence[Number]
    ) -> None:
        """Enqueue."""
        buffers = [memory.buffer for memory in memories if memory.buffer is not None]
        types = [parameter.type for parameter in compiled.kernel.scalars]
        self.runtime.launch(compiled, blocks, buffers, list(zip(scalars, types, strict=True)))

    def read(self, memory: Memory, offset: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Wait and copy."""
        whole = aligned_empty((offset + count,), dtype, "a value from the device")
        assert memory.buffer is not None
        self.runtime.download(memory.buffer, whole)
        return whole[offset:]

    def result(self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Wait and copy."""
        assert memory.buffer is not None
        into = aligned_empty(shape, dtype, "a result")
        if into.size:
            self.runtime.download(memory.buffer, into)
        return into
