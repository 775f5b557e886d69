"""The OpenCL runtime on whatever OpenCL device is here (in the ordinary tests: the CPU)."""

import gc
import threading
import time
import warnings
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from runtime_kernels import SCALAR_SAMPLES, constant_kernel, reverse_kernel, scalar_kernel, scale_kernel

from tilewright.ir.scalars import F32, F64, I32, I64, SCALAR_TYPES
from tilewright.kernel.ir import Buffer, Kernel, Space
from tilewright.runtime import opencl_device
from tilewright.runtime.devices import device_for, open_device
from tilewright.runtime.errors import CacheWarning, DeviceError, DeviceMemoryError, KernelBuildError, LaunchError
from tilewright.runtime.memory import aligned_empty
from tilewright.runtime.opencl_device import OpenCLRuntime

pytestmark = pytest.mark.opencl
N = 1000


def scale(runtime: OpenCLRuntime, source, target, factor: float = 3.0, n: int = N) -> None:
    compiled = runtime.compile(scale_kernel())
    runtime.launch(compiled, -(-n // 64), [source, target], [(n, I64), (factor, F32)])


@pytest.fixture
def cold(opencl_runtime: OpenCLRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenCLRuntime:
    """A runtime of its own with empty caches."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    return OpenCLRuntime(opencl_runtime.device)


@pytest.mark.parametrize("aligned", [True, False])
def test_scale(opencl_runtime: OpenCLRuntime, aligned: bool) -> None:
    memory = aligned_empty((N + 1,), np.dtype("f4"))
    x = memory[:N] if aligned else memory[1:]
    x[:] = np.arange(N)
    source, target = opencl_runtime.upload(x), opencl_runtime.allocate(4 * N)
    scale(opencl_runtime, source, target)
    result = np.empty(N, "f4")
    opencl_runtime.download(target, result)
    np.testing.assert_array_equal(result, 3 * x)
    half = np.empty(N // 2, "f4")
    opencl_runtime.download(target, half)
    np.testing.assert_array_equal(half, 3 * x[: N // 2])
    for buffer in (source, target, target):
        opencl_runtime.release(buffer)
    with pytest.raises(LaunchError, match="was released"):
        opencl_runtime.download(target, result)


@pytest.mark.parametrize("aligned", [True, False])
def test_results_into_the_array_itself(opencl_runtime: OpenCLRuntime, aligned: bool) -> None:
    memory = aligned_empty((N + 1,), np.dtype("f4"))
    y = memory[:N] if aligned else memory[1:]
    y[:] = -1
    x = np.arange(N, dtype="f4")
    source, target = opencl_runtime.upload(x), opencl_runtime.upload(y, writable=True)
    assert (target.host is not None) == (aligned and opencl_runtime.device.machine.shares_host_memory)
    scale(opencl_runtime, source, target)
    opencl_runtime.download(target, y)
    np.testing.assert_array_equal(y, 3 * x)
    copy = np.empty(N, "f4")
    opencl_runtime.download(target, copy)
    np.testing.assert_array_equal(copy, 3 * x)


def test_untouched_elements_survive(opencl_runtime: OpenCLRuntime) -> None:
    y = np.full(N, 7, "f4")
    target = opencl_runtime.upload(y, writable=True)
    scale(opencl_runtime, opencl_runtime.upload(np.ones(N, "f4")), target, n=10)
    opencl_runtime.download(target, y)
    assert y[:10].tolist() == [3] * 10
    assert set(y[10:].tolist()) == {7}


def test_dead_buffers_make_room(opencl_runtime: OpenCLRuntime) -> None:
    """Live bytes are counted anew only where there may not be enough."""
    machine = replace(opencl_runtime.device.machine, memory_bytes=1000, max_allocation_bytes=1000)
    runtime = OpenCLRuntime(replace(opencl_runtime.device, machine=machine))
    for _ in range(20):
        buffer = runtime.allocate(300)
        del buffer
        runtime.release(runtime.allocate(300))
    held = [runtime.allocate(300) for _ in range(3)]
    with pytest.raises(DeviceMemoryError, match="300 bytes are needed; 100 bytes are available"):
        runtime.allocate(300)
    held.pop()
    runtime.allocate(300)


def test_an_array_that_is_forgotten_lives_until_its_kernel_has_run(opencl_runtime: OpenCLRuntime) -> None:
    if not opencl_runtime.device.machine.shares_host_memory:
        pytest.skip("the device does not compute in host memory")
    x = aligned_empty((N,), np.dtype("f4"))
    source, target = opencl_runtime.upload(x), opencl_runtime.allocate(4 * N)
    memory, buffer = weakref.ref(x.base), weakref.ref(source)
    scale(opencl_runtime, source, target)
    del x, source
    gc.collect()
    assert memory() is not None
    assert buffer() is not None
    opencl_runtime.synchronise()
    gc.collect()
    assert memory() is None
    assert buffer() is None


def test_shared_memory_and_barriers(opencl_runtime: OpenCLRuntime) -> None:
    x = np.arange(96, dtype="f4")
    target = opencl_runtime.allocate(x.nbytes)
    opencl_runtime.launch(opencl_runtime.compile(reverse_kernel(32)), 3, [opencl_runtime.upload(x), target])
    opencl_runtime.download(target, x)
    np.testing.assert_array_equal(x.reshape(3, 32), np.arange(96).reshape(3, 32)[:, ::-1])


@pytest.mark.parametrize("name", SCALAR_SAMPLES)
def test_scalars_of_every_type(opencl_runtime: OpenCLRuntime, name: str) -> None:
    type_ = SCALAR_TYPES[name]
    if type_ == F64 and not opencl_runtime.device.machine.supports_f64:
        pytest.skip("the device has no doubles")
    y, total = np.zeros(1, type_.numpy), np.zeros(1, np.int64)
    buffers = [opencl_runtime.allocate(y.nbytes), opencl_runtime.allocate(8)]
    compiled = opencl_runtime.compile(scalar_kernel(type_))
    opencl_runtime.launch(compiled, 1, buffers, [(-5, I32), (SCALAR_SAMPLES[name], type_), (2**40, I64)])
    opencl_runtime.download(buffers[0], y)
    opencl_runtime.download(buffers[1], total)
    assert y[0] == SCALAR_SAMPLES[name]
    assert total[0] == 2**40 - 5


def test_zero_blocks_run_nothing_but_are_checked(opencl_runtime: OpenCLRuntime) -> None:
    y = np.full(4, 7, "f4")
    target = opencl_runtime.upload(y, writable=True)
    compiled = opencl_runtime.compile(constant_kernel(1.0))
    opencl_runtime.launch(compiled, 0, [target])
    opencl_runtime.download(target, y)
    assert y.tolist() == [7] * 4
    with pytest.raises(LaunchError, match="got 0 buffers"):
        opencl_runtime.launch(compiled, 0, [])


def test_empty_buffers(opencl_runtime: OpenCLRuntime) -> None:
    nothing = np.empty((0, 3), "f4")
    buffers = [opencl_runtime.upload(nothing), opencl_runtime.allocate(0)]
    scale(opencl_runtime, *buffers, n=0)
    compiled = opencl_runtime.compile(scale_kernel())
    opencl_runtime.launch(compiled, 1, buffers, [(0, I64), (1.0, F32)])
    opencl_runtime.download(buffers[1], nothing)
    with pytest.raises(ValueError, match="the array has 4 bytes, the buffer only 0"):
        opencl_runtime.download(buffers[1], np.empty(1, "f4"))


def test_kernels_cannot_store_into_inputs(opencl_runtime: OpenCLRuntime) -> None:
    source = opencl_runtime.upload(np.zeros(N, "f4"))
    with pytest.raises(LaunchError, match="stores into 'y', which was uploaded without writable=True"):
        scale(opencl_runtime, source, source)


def test_arrays_that_cannot_be_moved(opencl_runtime: OpenCLRuntime) -> None:
    with pytest.raises(ValueError, match=r"upload to opencl:0: .* is not contiguous"):
        opencl_runtime.upload(np.zeros((4, 4))[:, ::2])
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match=r"the array of shape \(4,\) is read-only"):
        opencl_runtime.upload(fixed, writable=True)
    buffer = opencl_runtime.upload(fixed)
    with pytest.raises(ValueError, match="read-only"):
        opencl_runtime.download(buffer, fixed)


def test_limits_are_named(opencl_runtime: OpenCLRuntime) -> None:
    machine = opencl_runtime.device.machine
    threads = machine.max_threads_per_block + 1
    with pytest.raises(LaunchError, match=f"{threads} threads per block; the limit is {threads - 1}"):
        opencl_runtime.compile(scale_kernel(threads=threads))
    with pytest.raises(LaunchError, match="of shared memory per block; the limit is"):
        opencl_runtime.compile(reverse_kernel(32, padding=machine.shared_bytes_per_block // 4 + 1))
    source = opencl_runtime.upload(np.zeros(N, "f4"))
    compiled = opencl_runtime.compile(scale_kernel("aligned", alignment=1 << 20))
    with pytest.raises(LaunchError, match="'x' must be aligned to 1048576 bytes"):
        opencl_runtime.launch(compiled, 1, [source, opencl_runtime.allocate(4)], [(1, I64), (1.0, F32)])
    with pytest.raises(LaunchError, match="blocks; the limit of a launch is"):
        scale(opencl_runtime, source, opencl_runtime.allocate(4), n=2**64)


def test_memory_is_checked_before_it_is_taken(opencl_runtime: OpenCLRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceMemoryError, match=r"a buffer of 1152921504606846976 bytes \(1\.0 EiB\) is needed"):
        opencl_runtime.allocate(1 << 60)
    monkeypatch.setattr(opencl_device, "available_host_bytes", lambda: 32 << 20)
    if opencl_runtime.device.machine.shares_host_memory:
        with pytest.raises(DeviceMemoryError, match=r"67108864 bytes \(64\.0 MiB\) are needed; 33554432 bytes"):
            opencl_runtime.allocate(64 << 20)


def test_own_buffers_count_until_they_are_given_back(opencl_runtime: OpenCLRuntime) -> None:
    machine = replace(opencl_runtime.device.machine, memory_bytes=1000)
    runtime = OpenCLRuntime(replace(opencl_runtime.device, machine=machine))
    first = runtime.allocate(400)
    second = runtime.allocate(400)
    with pytest.raises(DeviceMemoryError, match="400 bytes are needed; 200 bytes are available"):
        runtime.allocate(400)
    runtime.release(first)
    third = runtime.allocate(400)
    del second  # given back with its last reference
    gc.collect()
    assert runtime.allocate(400).nbytes == third.nbytes == 400


@pytest.fixture
def stored(cold: OpenCLRuntime) -> OpenCLRuntime:
    """`cold`, where programs are kept on the disk."""
    if cold.device.machine.simulated:
        pytest.skip("programs for a simulator are not kept")
    return cold


def test_build_failure_shows_log_and_source(cold: OpenCLRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl_device, "opencl_text", lambda kernel: "__kernel void scale(\n  int n,\n  flaot f) {}\n")
    with pytest.raises(KernelBuildError) as caught:
        cold.compile(scale_kernel())
    assert "flaot" in caught.value.log
    assert "    3 |   flaot f) {}" in str(caught.value)
    assert "kernel 'scale' does not build on opencl:0" in str(caught.value)


def test_no_compiler_warning_escapes(cold: OpenCLRuntime) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not cold.compile(scale_kernel()).from_cache


def test_programs_come_from_the_disk(stored: OpenCLRuntime, tmp_path: Path) -> None:
    first = stored.compile(scale_kernel())
    assert (first.from_cache, first.written) == (False, {"y"})
    assert stored.compile(scale_kernel()) is first
    again = OpenCLRuntime(stored.device)
    second = again.compile(scale_kernel())
    assert second.from_cache
    source, target = again.upload(np.ones(N, "f4")), again.allocate(4 * N)
    again.launch(second, N // 64 + 1, [source, target], [(N, I64), (2.0, F32)])
    result = np.empty(N, "f4")
    again.download(target, result)
    assert set(result.tolist()) == {2}


def test_damaged_programs_are_built_again(stored: OpenCLRuntime, tmp_path: Path) -> None:
    stored.compile(scale_kernel())
    entry = next((tmp_path / "cache").glob("??/*"))
    entry.write_bytes(entry.read_bytes()[:-7])
    with pytest.warns(CacheWarning, match="is damaged"):
        assert not OpenCLRuntime(stored.device).compile(scale_kernel()).from_cache
    assert OpenCLRuntime(stored.device).compile(scale_kernel()).from_cache


def test_cached_programs_that_the_driver_refuses_are_built_again(stored: OpenCLRuntime) -> None:
    compiled = stored.compile(scale_kernel())
    parts = opencl_device._cache_key(stored._native, stored._options, compiled.text)
    opencl_device.default_disk_cache().put(parts, b"no program at all")
    with pytest.warns(CacheWarning, match="opencl:0 refuses a cached program"):
        assert not OpenCLRuntime(stored.device).compile(scale_kernel()).from_cache


def test_kernels_that_differ_in_the_sign_of_zero_are_different(opencl_runtime: OpenCLRuntime) -> None:
    target, result = opencl_runtime.allocate(4), np.empty(1, "f4")
    for value in (0.0, -0.0):
        opencl_runtime.launch(opencl_runtime.compile(constant_kernel(value)), 1, [target])
        opencl_runtime.download(target, result)
        assert np.signbit(result[0]) == np.signbit(value)


class Slow:
    """Kernel and driver module in one: sets arguments, waits, and notes whether another thread came in between."""

    def __init__(self, module: object, kernel: object) -> None:
        self.module, self.kernel = module, kernel
        self.owner, self.disturbed = 0, False

    def __getattr__(self, name: str) -> object:
        return getattr(self.module, name)

    def set_args(self, *arguments: object) -> None:
        self.owner = threading.get_ident()
        self.kernel.set_args(*arguments)
        time.sleep(0.001)

    def enqueue_nd_range_kernel(self, queue: object, kernel: object, *sizes: object) -> object:
        self.disturbed |= self.owner != threading.get_ident()
        return self.module.enqueue_nd_range_kernel(queue, self.kernel, *sizes)


def test_many_threads_launch_one_kernel(cold: OpenCLRuntime) -> None:
    """The arguments of a launch are set and used in two steps; no other thread may come in between."""
    wrong: list[object] = []
    compiled = cold.compile(scale_kernel())
    slow = Slow(cold._module, compiled.native)
    cold._module, compiled = slow, replace(compiled, native=slow)
    source = cold.upload(np.ones(64, "f4"))

    def work(number: int) -> None:
        target, result = cold.allocate(4 * 64), np.empty(64, "f4")
        try:
            for step in range(10):
                factor = float(1000 * number + step)
                cold.launch(compiled, 1, [source, target], [(64, I64), (factor, F32)])
                cold.download(target, result)
                if set(result.tolist()) != {factor}:
                    wrong.append((number, step))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not slow.disturbed


def test_one_runtime_for_the_process(opencl_runtime: OpenCLRuntime) -> None:
    assert open_device(device_for("opencl:0")) is opencl_runtime


def test_driver_errors_say_what_was_done(opencl_runtime: OpenCLRuntime) -> None:
    with pytest.raises(DeviceError, match=r"kernel 'other'.*INVALID_KERNEL_NAME"):
        text = opencl_device.opencl_text(scale_kernel())
        opencl_runtime._build(replace(scale_kernel(), name="other"), text)


def test_errors_of_a_launch_say_what_was_launched(
    opencl_runtime: OpenCLRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that a driver reports when the queue is flushed, too."""
    module = opencl_runtime._module

    class Failing:
        def flush(self) -> None:
            raise module.RuntimeError("flush failed: OUT_OF_RESOURCES")

    source, target = (opencl_runtime.allocate(128) for _ in range(2))
    compiled = opencl_runtime.compile(scale_kernel(threads=32))
    monkeypatch.setattr(module, "enqueue_nd_range_kernel", lambda *arguments: None)
    monkeypatch.setattr(opencl_runtime, "_queue", Failing())
    with pytest.raises(DeviceError, match="launch of 'scale': flush failed: OUT_OF_RESOURCES"):
        opencl_runtime.launch(compiled, 1, [source, target], [(32, I64), (3.0, F32)])


def test_workspace_is_no_matter_of_a_device(opencl_runtime: OpenCLRuntime) -> None:
    kernel = scale_kernel("with_registers")
    private = Buffer("registers", F32, Space.PRIVATE, size=4)
    compiled = opencl_runtime.compile(Kernel(kernel.name, kernel.buffers, kernel.scalars, (private,), kernel.body, 64))
    assert compiled.written == {"y"}
