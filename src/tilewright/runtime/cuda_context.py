"""The primary context of one CUDA device, and what lives in it: memory from a pool of our own, and loaded kernels.

Only documented functions of the driver are called, through cuda.bindings, and what they need done around them is done
here: a thread's current context is put back after every call, since another library may have made another device's
current; a process that was forked after the driver had been initialised is told so; and whoever holds the last
reference gives memory back, in any thread, even after the context has failed or while the interpreter ends.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tilewright.runtime.cuda_probe import OUT_OF_MEMORY, checked, cuda_found
from tilewright.runtime.errors import DeviceError

STREAM = 1
"""The legacy default stream by its own handle (CU_STREAM_LEGACY): it is in order with what other libraries put there.

Of the handle 0 the bindings make a stream of each thread where CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM is set, and
memory that one thread gives back could be another's while a kernel still reads it.
"""

KEPT_PART = 0.5
"""Of the device's memory: so much that was given back stays in the pool for the next allocations; without that the
driver would unmap all of it at every wait for the device. An allocation by others that finds no memory gets it back.
"""


class CudaContext:
    """A device's primary context, retained as long as the process lives. `with context.current():` for driver calls."""

    def __init__(self, index: int, memory_bytes: int) -> None:
        self._process = cuda_found().process  # initialises the driver
        from cuda.bindings import driver

        self.driver: Any = driver
        self.native: Any = None
        self._check_process()
        device = checked(driver.cuDeviceGet(index), "cuDeviceGet")
        self.native = checked(driver.cuDevicePrimaryCtxRetain(device), "cuDevicePrimaryCtxRetain")
        pools = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        supported = checked(driver.cuDeviceGetAttribute(pools, device), "cuDeviceGetAttribute")
        with self.current():
            self._pool = self._new_pool(index, int(memory_bytes * KEPT_PART)) if supported else None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside, the context is the thread's current one."""
        self._check_process()
        checked(self.driver.cuCtxPushCurrent(self.native), "cuCtxPushCurrent")
        try:
            yield
        finally:
            self.driver.cuCtxPopCurrent()

    def allocate(self, nbytes: int) -> CudaMemory:
        """Memory with undefined content, in order after what was given back.

        Raises:
            DeviceMemoryError: if there is not enough, also without what waits for its next use.
        """
        with self.current():
            status, *found = self._ask(nbytes)
            if int(status) == OUT_OF_MEMORY and self._pool is not None:
                checked(self.driver.cuStreamSynchronize(STREAM), "cuStreamSynchronize")  # what is given back is free
                checked(self.driver.cuMemPoolTrimTo(self._pool, 0), "cuMemPoolTrimTo")
                status, *found = self._ask(nbytes)
            return CudaMemory(self, int(checked((status, *found), "allocating")))

    def available(self) -> int:
        """Free memory of the device in bytes."""
        with self.current():
            free, _ = checked(self.driver.cuMemGetInfo(), "cuMemGetInfo")
        return int(free)

    def give_back(self, address: int) -> None:
        """Free memory, in order after what was launched."""
        with self.current():
            if self._pool is None:
                checked(self.driver.cuMemFree(address), "cuMemFree")
            else:
                checked(self.driver.cuMemFreeAsync(address, STREAM), "cuMemFreeAsync")

    def load(self, cubin: bytes, entry: str) -> CudaFunction:
        """The kernel named `entry` of a cubin."""
        with self.current():
            module = checked(self.driver.cuModuleLoadData(cubin), "cuModuleLoadData")
            return CudaFunction(
                self, module, checked(self.driver.cuModuleGetFunction(module, entry.encode()), "cuModuleGetFunction")
            )

    def _ask(self, nbytes: int) -> Any:
        if self._pool is None:
            return self.driver.cuMemAlloc(nbytes)
        return self.driver.cuMemAllocFromPoolAsync(nbytes, self._pool, STREAM)

    def _new_pool(self, index: int, kept_bytes: int) -> Any:
        properties, location = self.driver.CUmemPoolProps(), self.driver.CUmemLocation()
        location.type, location.id = self.driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, index
        properties.location = location
        properties.allocType = self.driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.handleTypes = self.driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
        pool = checked(self.driver.cuMemPoolCreate(properties), "cuMemPoolCreate")
        kept = self.driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        value = self.driver.cuuint64_t(kept_bytes)
        checked(self.driver.cuMemPoolSetAttribute(pool, kept, value), "cuMemPoolSetAttribute")
        return pool

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise DeviceError(
                f"CUDA was initialised in process {self._process} and cannot be used in its child {os.getpid()}: "
                'start processes by "spawn", or ask for CUDA devices in the child only'
            )


class CudaMemory:
    """An allocation; `close` or its last reference gives it back."""

    def __init__(self, context: CudaContext, address: int) -> None:
        self.context, self.address, self._closed = context, address, False

    def close(self) -> None:
        """Give it back; a second time does nothing."""
        if not self._closed:
            self._closed = True
            self.context.give_back(self.address)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            with suppress(DeviceError):  # of a context that has failed, or in a child of the process
                self.close()


class CudaFunction:
    """A loaded kernel; its module is unloaded with the last reference."""

    def __init__(self, context: CudaContext, module: Any, native: Any) -> None:
        self.context, self.module, self.native = context, module, native

    def attribute(self, name: str) -> int:
        """What the driver says of it, such as "MAX_THREADS_PER_BLOCK"."""
        driver = self.context.driver
        kind = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        with self.context.current():
            return int(checked(driver.cuFuncGetAttribute(kind, self.native), "cuFuncGetAttribute"))

    def allow_dynamic_shared_bytes(self, count: int) -> None:
        """Needed for more than 48 KiB of dynamic shared memory."""
        driver = self.context.driver
        kind = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with self.context.current():
            checked(driver.cuFuncSetAttribute(self.native, kind, count), "cuFuncSetAttribute")

    def __del__(self) -> None:
        if not sys.is_finalizing():
            driver = self.context.driver
            with suppress(DeviceError), self.context.current():
                driver.cuStreamSynchronize(STREAM)  # it may still run
                driver.cuModuleUnload(self.module)
