"""What is checked on the pretended GPU (`pretended_gpu.py` runs this script there): python pretended_checks.py NAME."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda.bindings import driver
from runtime_kernels import SCALAR_SAMPLES, reverse_kernel, scalar_kernel, scale_kernel

import tilewright as tw
from tilewright.ir.scalars import F32, I32, I64, SCALAR_TYPES
from tilewright.runtime.cuda_context import CudaFunction
from tilewright.runtime.cuda_device import CudaRuntime
from tilewright.runtime.cuda_probe import checked
from tilewright.runtime.devices import device_for, open_device
from tilewright.runtime.errors import DeviceError, DeviceMemoryError, LaunchError

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def runtime() -> CudaRuntime:
    opened: Any = open_device(device_for("cuda"))
    return opened


def raised(kind: type[Exception], call: Callable[[], object]) -> str:
    try:
        call()
    except kind as error:
        assert type(error) is kind, error
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def free_bytes() -> int:
    gc.collect()
    return runtime()._context.available()


@check
def the_machine_is_what_the_driver_tells() -> None:
    machine = device_for("cuda").machine
    assert (machine.name, machine.architecture, machine.warp) == ("Pretended GPU", "sm_90a", 32)
    assert (machine.memory_bytes, machine.shared_bytes_per_block, machine.max_blocks) == (1 << 30, 232448, 2**31 - 1)
    assert 4.9e12 < machine.dram_bandwidth < 4.95e12


@check
def kernels_read_their_arguments() -> None:
    device = runtime()
    x = np.arange(1000, dtype="f4")
    source, target = device.upload(x), device.allocate(x.nbytes)
    compiled = device.compile(scale_kernel(threads=32))
    result = np.zeros_like(x)
    device.launch(compiled, 0, [source, target], [(1000, I64), (3.0, F32)])
    device.launch(compiled, 32, [source, target], [(1000, I64), (3.0, F32)])
    device.download(target, result)
    np.testing.assert_array_equal(result, 3 * x)
    device.release(source)
    device.release(source)
    again = [(1, I64), (1.0, F32)]
    assert "was released" in raised(LaunchError, lambda: device.launch(compiled, 1, [source, target], again))
    device.download(device.zeros(4000), result)
    assert not result.any()
    assert device.zeros(0).nbytes == 0
    device.download(device.upload(x[:0]), result[:0])
    device.synchronise()


@check
def scalars_of_all_types_arrive() -> None:
    device = runtime()
    for name, sample in SCALAR_SAMPLES.items():
        type_ = SCALAR_TYPES[name]
        value, total = np.zeros(1, type_.numpy), np.zeros(1, np.int64)
        buffers = [device.allocate(value.nbytes), device.allocate(8)]
        scalars = [(-5, I32), (sample, type_), (2**40, I64)]
        device.launch(device.compile(scalar_kernel(type_)), 1, buffers, scalars)
        for buffer, into in zip(buffers, (value, total), strict=True):
            device.download(buffer, into)
        assert value[0] == sample and total[0] == 2**40 - 5, (name, value, total)


@check
def large_shared_memory_is_asked_for() -> None:
    device = runtime()
    x = np.arange(96, dtype="f4")
    source, target, result = device.upload(x), device.allocate(x.nbytes), np.zeros_like(x)
    compiled = device.compile(reverse_kernel(32, padding=25_000))
    assert compiled.dynamic_shared_bytes >= 100_000
    device.launch(compiled, 3, [source, target])
    device.download(target, result)
    np.testing.assert_array_equal(result.reshape(3, 32), x.reshape(3, 32)[:, ::-1])


@check
def registers_can_limit_the_threads() -> None:
    told, CudaFunction.attribute = CudaFunction.attribute, lambda self, name: 16  # type: ignore[method-assign]
    message = raised(LaunchError, lambda: runtime().compile(scale_kernel(threads=32)))
    assert "32 threads per block; with the registers that it needs, the limit is 16" in message
    CudaFunction.attribute = told  # type: ignore[method-assign]
    runtime().compile(scale_kernel(threads=32))


@check
def memory_is_given_back_and_refused() -> None:
    device, before = runtime(), free_bytes()
    held = device.allocate(before - 1000)
    message = raised(DeviceMemoryError, lambda: device.allocate(1001))
    assert "1001 bytes" in message and "1000 bytes are available" in message, message
    del held
    assert free_bytes() == before
    assert "the largest that the device allows" in raised(DeviceMemoryError, lambda: device.allocate(1 << 50))
    assert "makes no sense" in raised(DeviceError, lambda: device.allocate(-1))
    tw.einsum("ij,jk->ik", np.ones((3, 4)), np.ones((4, 5)), target="cuda")
    assert free_bytes() == before


@check
def errors_of_the_driver_say_what_failed() -> None:
    assert "call failed: 2" not in raised(DeviceMemoryError, lambda: checked((driver.CUresult(2),), "call"))
    message = raised(DeviceError, lambda: checked((driver.CUresult(700),), "call"))
    assert message == "call failed: CUDA_ERROR_ILLEGAL_ADDRESS (as it was pretended)"


@check
def the_current_context_is_put_back() -> None:
    device = runtime()
    seen = []

    def work() -> None:
        device.download(device.upload(np.arange(5)), np.empty(5, np.int64))
        seen.append(int(driver.cuCtxGetCurrent()[1]))

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0, 0], seen


@check
def devices_are_kept_apart() -> None:
    first, second = (open_device(device_for(name)) for name in ("cuda:0", "cuda:1"))
    x = np.arange(64, dtype="f4")
    buffers = [(one.upload(x), one.allocate(x.nbytes)) for one in (first, second)]
    scalars = [(64, I64), (2.0, F32)]
    for one, (source, target) in zip((second, first), buffers[::-1], strict=True):
        result = np.zeros_like(x)
        compiled = one.compile(scale_kernel(threads=32))
        one.launch(compiled, 2, [source, target], scalars)
        one.download(target, result)
        np.testing.assert_array_equal(result, 2 * x)
    foreign = [buffers[0][0], buffers[1][1]]
    compiled = second.compile(scale_kernel(threads=32))
    assert "cuda:0" in raised(LaunchError, lambda: second.launch(compiled, 2, foreign, scalars))
    assert "cuda:0" in raised(LaunchError, lambda: second.launch(first.compile(compiled.kernel), 2, foreign, scalars))
    a, b = np.ones((5, 6)), np.ones((6, 7))
    for name in ("cuda:1", "cuda:0", "cuda:1"):
        np.testing.assert_array_equal(tw.einsum("ij,jk->ik", a, b, target=name), a @ b)


@check
def threads_use_devices_at_once() -> None:
    failed: list[BaseException] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            device: Any = open_device(device_for(f"cuda:{number % 2}"))
            start.wait()
            for step in range(8):
                x = np.full(40, 10 * number + step, "f4")
                source, target, result = device.upload(x), device.allocate(x.nbytes), np.zeros_like(x)
                device.launch(device.compile(scale_kernel(threads=32)), 2, [source, target], [(40, I64), (3.0, F32)])
                device.download(target, result)
                np.testing.assert_array_equal(result, 3 * x)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if failed:
        raise failed[0]


@check
def the_driver_is_strict() -> None:
    """Mistakes that the runtime does not make are seen, were it to make them."""
    device = runtime()
    context, buffer = device._context, device.allocate(10)
    assert "INVALID_CONTEXT" in raised(DeviceError, lambda: checked(driver.cuMemGetInfo(), "asking"))
    with context.current():
        for call in (
            lambda: driver.cuMemFreeAsync(buffer.native.address, 0),
            lambda: driver.cuMemFreeAsync(buffer.native.address + 1, 1),
            lambda: driver.cuMemsetD8Async(buffer.native.address, 0, 11, 1),
            lambda: driver.cuMemsetD8Async(buffer.native.address, 0, 10, 0),
            lambda: driver.cuModuleUnload(1 << 20),
        ):
            raised(DeviceError, lambda call=call: checked(call(), "a mistake"))  # type: ignore[misc]
    other: Any = open_device(device_for("cuda:1"))
    with other._context.current():
        raised(DeviceError, lambda: checked(driver.cuMemFreeAsync(buffer.native.address, 1), "another device's"))
    compiled = device.compile(scale_kernel(threads=32))
    with context.current():
        checked(driver.cuModuleUnload(compiled.native.module), "unloading")
    gone = [device.upload(np.ones(3, "f4")), device.allocate(12)]
    assert "INVALID_HANDLE" in raised(DeviceError, lambda: device.launch(compiled, 1, gone, [(3, I64), (1.0, F32)]))


@check
def children_of_the_process_are_told() -> None:
    device, buffer = runtime(), runtime().allocate(10)
    child = os.fork()
    if child == 0:
        message = raised(DeviceError, lambda: device.allocate(10))
        del buffer
        os._exit(0 if "cannot be used in its child" in message else 1)
    assert os.waitpid(child, 0)[1] == 0
    device.release(buffer)


@check
def programs_run() -> None:
    @tw.program
    def picked(xs: tw.f32["n"], places: tw.i64["m"], factor: tw.f32) -> Any:
        return tw.map(lambda i: factor * xs[i], places)

    x, places = np.arange(50, dtype="f4"), np.arange(40) % 7
    for _ in range(2):
        np.testing.assert_array_equal(picked(x, places, 0.5, target="cuda"), x[places] * np.float32(0.5))
    places[3] = 50
    assert "index 50 of xs is out of range" in raised(IndexError, lambda: picked(x, places, 0.5, target="cuda"))


if __name__ == "__main__":
    CHECKS[sys.argv[1]]()
    print("passed")
