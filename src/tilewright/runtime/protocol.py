"""What every device runtime offers, the values that it hands out, and the checks before a launch that all share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias

import numpy as np

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import F64, SCALAR_TYPES, ScalarType
from tilewright.kernel.ir import AtomicUpdate, Kernel, Space, Store
from tilewright.kernel.tiles import TileStore
from tilewright.kernel.traversal import walk
from tilewright.machine.model import Machine
from tilewright.runtime.cache import IdentityCache, MemoryCache
from tilewright.runtime.devices import Device
from tilewright.runtime.errors import DeviceError, DeviceMemoryError, LaunchError
from tilewright.runtime.memory import format_bytes

ScalarValue: TypeAlias = int | float | bool | np.generic
ScalarArgument: TypeAlias = tuple[ScalarValue, ScalarType]
_HANDED_OVER: dict[str, Callable[[Any], np.generic]] = {
    one.name: one.numpy.type
    for one in SCALAR_TYPES.values()
    if not one.is_complex and not (one.is_float and one.bits < 32)
}
"""What makes NumPy's scalars of the types that kernels may have as parameters."""


@dataclass(eq=False)
class DeviceBuffer:
    """Memory of one device; made by `upload` or `allocate` and given back by `release` or with its last reference.

    Attributes:
        nbytes: its size; a buffer of 0 bytes is allowed.
        device: the name of the device that holds it.
        alignment: bytes to which its start is aligned.
        writable: whether kernels may store into it.
        native: the driver's object, None after `release`.
        host: the array whose memory the buffer is, where the device computes in place.
    """

    nbytes: int
    device: str
    alignment: int
    writable: bool
    native: Any = field(repr=False)
    host: np.ndarray[Any, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """A kernel built for one device.

    Attributes:
        kernel: what was compiled.
        device: the name of the device.
        text: the text that the device's compiler read.
        binary: what it made of it.
        log: what it said.
        written: names of the global buffers that the kernel stores into.
        registers, spill_bytes: of one thread, where the compiler tells (CUDA), else 0.
        dynamic_shared_bytes: shared memory to be asked for at launch.
        from_cache: whether the binary came from the disk.
        native: the driver's object.
    """

    kernel: Kernel
    device: str
    text: str = field(repr=False)
    binary: bytes = field(repr=False)
    native: Any = field(repr=False)
    log: str = field(default="", repr=False)
    written: frozenset[str] = frozenset()
    registers: int = 0
    spill_bytes: int = 0
    dynamic_shared_bytes: int = 0
    from_cache: bool = False


class DeviceRuntime(Protocol):
    """Compiling for, moving data to, and launching on one device. All methods may be called from any thread.

    Launches run in the order in which they were made, after the call returns; `download` and `synchronise` wait.
    Element offsets into a buffer are scalar parameters of the kernel: a launch takes whole buffers.
    """

    @property
    def device(self) -> Device:
        """The device."""
        ...

    def compile(self, kernel: Kernel) -> CompiledKernel:
        """Build a kernel, or take it from the caches.

        Raises:
            KernelBuildError: with the compiler's log and the numbered source.
            LaunchError: if the kernel can never run here (threads per block, shared memory, doubles).
        """
        ...

    def upload(self, array: np.ndarray[Any, Any], *, writable: bool = False) -> DeviceBuffer:
        """A buffer with the bytes of a dense (C or Fortran contiguous) array.

        Where the device computes in host memory the buffer may be the array itself: then the array must not change
        while the buffer lives, and with `writable=True` kernels change it. Kernels cannot store into the buffer
        unless `writable`.

        Raises:
            ValueError: if the array is not dense, or `writable` and read-only.
            DeviceMemoryError: if it does not fit.
        """
        ...

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """A writable buffer with undefined content.

        Raises:
            DeviceMemoryError: if it does not fit; the message gives needed and available bytes.
        """
        ...

    def zeros(self, nbytes: int) -> DeviceBuffer:
        """A writable buffer full of zeros, made on the device without waiting for it.

        Raises:
            DeviceMemoryError: as for `allocate`.
        """
        ...

    def download(self, buffer: DeviceBuffer, into: np.ndarray[Any, Any]) -> None:
        """Wait for what was launched and copy the first `into.nbytes` bytes of a buffer into a dense array.

        Raises:
            ValueError: if the array is not dense, read-only, or larger than the buffer.
        """
        ...

    def launch(
        self,
        compiled: CompiledKernel,
        blocks: int,
        buffers: Sequence[DeviceBuffer],
        scalars: Sequence[ScalarArgument] = (),
    ) -> None:
        """Run `blocks` blocks of a kernel; 0 blocks do nothing.

        Raises:
            LaunchError: if an argument does not fit the kernel or a limit of the device is broken.
        """
        ...

    def synchronise(self) -> None:
        """Wait until everything launched has finished.

        Raises:
            DeviceError: if something that ran failed.
        """
        ...

    def release(self, buffer: DeviceBuffer) -> None:
        """Give a buffer's memory back; a second time does nothing."""
        ...


def dense_bytes(array: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    """The memory of a C or Fortran contiguous array as a flat view of bytes.

    Raises:
        ValueError: if the array has gaps or is not contiguous.
    """
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ValueError(
            f"{what}: an array of shape {array.shape} with strides {array.strides} is not contiguous; "
            "hand over the array that it is a view of, or a copy"
        )
    flat = array.ravel(order="K")
    return flat.view(np.uint8) if array.size else np.empty(0, np.uint8)


def writable_bytes(array: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    """`dense_bytes` of an array that is going to be written; ValueError if it is read-only."""
    if not array.flags.writeable:
        raise ValueError(f"{what}: the array of shape {array.shape} is read-only")
    return dense_bytes(array, what)


def download_target(buffer: DeviceBuffer, into: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes of `into` that a download from `buffer` fills, after checking that they fit."""
    target = writable_bytes(into, "download")
    if target.nbytes > buffer.nbytes:
        raise ValueError(f"download: the array has {target.nbytes} bytes, the buffer only {buffer.nbytes}")
    return target


def written_buffers(kernel: Kernel) -> frozenset[str]:
    """Names of the global buffers that a kernel stores into."""
    stores = (statement for statement in walk(kernel.body) if isinstance(statement, Store | AtomicUpdate | TileStore))
    return frozenset(store.buffer.name for store in stores if store.buffer.space is Space.GLOBAL)


def check_kernel(kernel: Kernel, device: Device) -> None:
    """Refuse a kernel that no launch on the device can run.

    Raises:
        LaunchError: naming the limit that the kernel breaks.
    """
    machine = device.machine
    where = f"kernel {kernel.name!r} on {device.name} ({machine.name})"
    if kernel.threads_per_block > machine.max_threads_per_block:
        raise LaunchError(
            f"{where}: {kernel.threads_per_block} threads per block; the limit is {machine.max_threads_per_block}"
        )
    if kernel.shared_bytes > machine.shared_bytes_per_block:
        raise LaunchError(
            f"{where}: needs {format_bytes(kernel.shared_bytes)} of shared memory per block; "
            f"the limit is {format_bytes(machine.shared_bytes_per_block)}"
        )
    elements = {buffer.element for buffer in (*kernel.buffers, *kernel.arrays)} | {s.type for s in kernel.scalars}
    if F64 in elements and not machine.supports_f64:
        raise LaunchError(f"{where}: uses f64, which the device cannot compute")


def check_launch(
    compiled: CompiledKernel, device: Device, blocks: int, buffers: Sequence[DeviceBuffer], scalars: Sequence[Any]
) -> None:
    """Refuse a launch whose arguments do not fit the kernel or that breaks a limit of the device.

    Raises:
        LaunchError: naming the parameter or limit.
    """
    kernel = compiled.kernel
    where = f"launch of {kernel.name!r} on {device.name}"
    if compiled.device != device.name:
        raise LaunchError(f"{where}: it was compiled for {compiled.device}")
    if blocks < 0 or blocks > device.machine.max_blocks:
        raise LaunchError(f"{where}: {blocks} blocks; the limit of a launch is {device.machine.max_blocks}")
    if len(buffers) != len(kernel.buffers) or len(scalars) != len(kernel.scalars):
        raise LaunchError(
            f"{where}: got {len(buffers)} buffers and {len(scalars)} scalars; it takes {len(kernel.buffers)} "
            f"({', '.join(b.name for b in kernel.buffers)}) and {len(kernel.scalars)} "
            f"({', '.join(s.name for s in kernel.scalars)})"
        )
    for parameter, buffer in zip(kernel.buffers, buffers, strict=True):
        _check_live(buffer, device, f"{where}: buffer {parameter.name!r}")
        if parameter.name in compiled.written and not buffer.writable:
            raise LaunchError(f"{where}: stores into {parameter.name!r}, which was uploaded without writable=True")
        if parameter.alignment > buffer.alignment:
            raise LaunchError(
                f"{where}: {parameter.name!r} must be aligned to {parameter.alignment} bytes; "
                f"the buffer is aligned to {buffer.alignment}"
            )


def check_buffer(buffer: DeviceBuffer, device: Device, what: str) -> None:
    """Refuse a buffer that was released or belongs to another device."""
    _check_live(buffer, device, what)


def _check_live(buffer: DeviceBuffer, device: Device, what: str) -> None:
    if buffer.device != device.name:
        raise LaunchError(f"{what}: lies on {buffer.device}, not on {device.name}")
    if buffer.native is None:
        raise LaunchError(f"{what}: was released")


def scalar_arguments(kernel: Kernel, scalars: Sequence[ScalarArgument]) -> list[np.generic]:
    """The scalars as NumPy values of the types that the kernel declares.

    Raises:
        LaunchError: if a type differs from the declared one, or a value does not fit its type.
    """
    return [
        _scalar_argument(kernel.name, parameter.name, parameter.type, value, type_)
        for parameter, (value, type_) in zip(kernel.scalars, scalars, strict=True)
    ]


def _scalar_argument(kernel: str, name: str, declared: ScalarType, value: ScalarValue, type_: ScalarType) -> np.generic:
    if type_ != declared:
        raise LaunchError(f"launch of {kernel!r}: scalar {name!r} is {declared}, but a value of type {type_} was given")
    make = _HANDED_OVER.get(declared.name)
    if make is None:
        raise LaunchError(f"launch of {kernel!r}: scalar {name!r}: {declared} cannot be handed over as a scalar")
    if declared.is_integer and value != int(value):
        raise LaunchError(f"launch of {kernel!r}: scalar {name!r}: {value!r} is not an integer")
    try:
        return make(value)
    except (OverflowError, ValueError) as error:
        raise LaunchError(f"launch of {kernel!r}: scalar {name!r}: {value!r} does not fit {declared}") from error


def check_allocation(device: Device, nbytes: int, available: int) -> None:
    """Refuse an allocation that the device cannot serve.

    Raises:
        DeviceMemoryError: with needed and available bytes.
        DeviceError: if the size is negative.
    """
    if nbytes < 0:
        raise DeviceError(f"{device.name}: a buffer of {nbytes} bytes makes no sense")
    largest = _largest_allocation(device.machine)
    if nbytes > largest:
        raise DeviceMemoryError(
            f"{device.name} ({device.machine.name}): a buffer of {format_bytes(nbytes)} is needed; "
            f"the largest that the device allows is {format_bytes(largest)}"
        )
    if nbytes > available:
        raise DeviceMemoryError(
            f"{device.name} ({device.machine.name}): {format_bytes(nbytes)} are needed; "
            f"{format_bytes(available)} are available"
        )


def _largest_allocation(machine: Machine) -> int:
    return machine.max_allocation_bytes or machine.memory_bytes or 2**63 - 1


class CompiledKernels:
    """The kernels compiled for a device, each once: found without printing it, or by the text of one that is alike."""

    def __init__(self) -> None:
        self._same: IdentityCache[Kernel, CompiledKernel] = IdentityCache()
        self._alike: MemoryCache[tuple[object, ...], CompiledKernel] = MemoryCache()

    def get_or_build(
        self, kernel: Kernel, printed: Callable[[Kernel], str], build: Callable[[Kernel, str], CompiledKernel]
    ) -> CompiledKernel:
        """The compiled kernel; raises what printing and building raise."""

        def compiled(kernel: Kernel) -> CompiledKernel:
            text = printed(kernel)
            return self._alike.get_or_build(_key(kernel, text), lambda: build(kernel, text))

        return self._same.get_or_build(kernel, compiled)


def _key(kernel: Kernel, text: str) -> tuple[object, ...]:
    """What makes two kernels the same compiled kernel: the text and what a launch looks at.

    Not the kernel itself: 0.0 and -0.0 are equal in Python, and so would be kernels that differ in them.
    """
    return text, kernel.name, kernel.buffers, kernel.scalars, kernel.threads_per_block, kernel.shared_bytes
