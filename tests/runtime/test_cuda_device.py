"""The CUDA runtime: what can be shown without a GPU, and, marked `gpu`, the rest."""

import ctypes
import inspect
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from runtime_kernels import SCALAR_SAMPLES, constant_kernel, reverse_kernel, scalar_kernel, scale_kernel

from tilewright.ir.scalars import F32, I32, I64, SCALAR_TYPES
from tilewright.kernel.cuda import cuda_dynamic_shared_bytes, cuda_text
from tilewright.machine.detect import cuda_machine
from tilewright.machine.named import A100, H200
from tilewright.runtime import cuda_device, cuda_probe
from tilewright.runtime.cache import DiskCache
from tilewright.runtime.cuda_device import CudaRuntime, build_cubin, launch_arguments
from tilewright.runtime.devices import absent_devices
from tilewright.runtime.errors import DeviceError, DeviceMemoryError, KernelBuildError, LaunchError

pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
pytest.importorskip("cuda.core", reason="cuda.core is not installed")


@pytest.mark.parametrize("machine", [A100, H200], ids=lambda machine: machine.name)
def test_cubins_without_a_gpu(machine, tmp_path: Path) -> None:
    disk = DiskCache(tmp_path / "c")
    text = cuda_text(scale_kernel())
    built, from_cache = build_cubin("scale", text, machine.architecture, disk)
    assert built.cubin[:4] == b"\x7fELF"
    assert built.registers["scale"] > 0
    assert not from_cache
    again, from_cache = build_cubin("scale", text, machine.architecture, disk)
    assert from_cache
    assert again == built


def test_architectures_have_their_own_cubins(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path / "c")
    text = cuda_text(scale_kernel())
    first, _ = build_cubin("scale", text, "sm_80", disk)
    second, from_cache = build_cubin("scale", text, "sm_90a", disk)
    assert not from_cache
    assert first.cubin != second.cubin


def test_build_failure_shows_log_and_source(tmp_path: Path) -> None:
    with pytest.raises(KernelBuildError) as caught:
        build_cubin("scale", 'extern "C" __global__ void scale(\n  flaot f) {}\n', "sm_80", DiskCache(tmp_path / "c"))
    assert "flaot" in caught.value.log
    assert str(caught.value).count("    2 |   flaot f) {}") == 1
    assert "kernel 'scale' does not build on sm_80" in str(caught.value)


def test_dynamic_shared_memory_of_the_kernel() -> None:
    small, large = reverse_kernel(32), reverse_kernel(32, padding=25_000)
    assert cuda_dynamic_shared_bytes(small) <= cuda_device.SHARED_BYTES_WITHOUT_ASKING
    assert cuda_dynamic_shared_bytes(large) > cuda_device.SHARED_BYTES_WITHOUT_ASKING


@pytest.mark.parametrize("name", SCALAR_SAMPLES)
def test_arguments_arrive_with_their_sizes(name: str) -> None:
    """cuda.core packs each argument as its Python type says: look into the memory that the driver would read."""
    handler = pytest.importorskip("cuda.core._kernel_arg_handler")
    kernel = scalar_kernel(SCALAR_TYPES[name])
    scalars = [(-5, I32), (SCALAR_SAMPLES[name], SCALAR_TYPES[name]), (2**40, I64)]
    arguments = launch_arguments([0x7000_0000_1234, 0x8000], kernel, scalars)
    holder = handler.ParamHolder(arguments)
    pointers = (ctypes.c_void_p * 5).from_address(holder.ptr)

    def at(position: int, dtype: object) -> object:
        size = np.dtype(dtype).itemsize
        return np.frombuffer(ctypes.string_at(pointers[position], size), dtype)[0]

    assert [at(0, "u8"), at(1, "u8")] == [0x7000_0000_1234, 0x8000]
    assert at(2, "i4") == -5
    assert at(3, SCALAR_TYPES[name].numpy) == SCALAR_SAMPLES[name]
    assert at(4, "i8") == 2**40


def test_packing_keeps_everything() -> None:
    built = cuda_device.CompiledCuda(
        cubin=b"\x7fELF\n{}\n\x00", log="a\nb\u00e9", registers={"k": 7}, spill_bytes={"k": 3}, shared_bytes={"k": 9}
    )
    assert cuda_device._unpacked(cuda_device._packed(built)) == built


def test_without_a_driver_there_is_a_reason() -> None:
    reason = absent_devices().get("cuda")
    if reason is None:
        pytest.skip("there is a CUDA device")
    assert "driver" in reason
    with pytest.raises((DeviceError, LookupError)):
        cuda_probe.cuda_found()


@pytest.mark.parametrize(
    "name",
    sorted(set(re.findall(r"properties\.(\w+)", inspect.getsource(cuda_machine))) - {"compute_capability"}),
)
def test_cuda_core_knows_the_properties_that_are_asked_for(name: str) -> None:
    module = pytest.importorskip("cuda.core._device")
    assert hasattr(module.DeviceProperties, name)


def test_driver_results() -> None:
    assert cuda_probe.checked((0, 5), "call") == 5
    assert cuda_probe.checked((0, 5, 6), "call") == (5, 6)
    assert cuda_probe.checked((0,), "call") == ()


@pytest.mark.parametrize(("message", "kind"), [("CUDA_ERROR_OUT_OF_MEMORY", DeviceMemoryError), ("else", DeviceError)])
def test_errors_of_the_driver(message: str, kind: type[Exception]) -> None:
    for raised in (RuntimeError(message), DeviceError(message)):
        with pytest.raises(DeviceError) as caught, cuda_device._driver_errors("allocating"):
            raise raised
        assert type(caught.value) is kind


class PretendedDriver:
    """Stands for cuda.bindings.driver and cuda.core together and writes down the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.free = 1 << 20
        attributes = SimpleNamespace(reserved_mem_current=300, used_mem_current=100)
        stream = SimpleNamespace(handle="stream", sync=lambda: self.calls.append(("sync",)))
        self.device = SimpleNamespace(
            set_current=lambda: None,
            default_stream=stream,
            memory_resource=SimpleNamespace(attributes=attributes),
            allocate=lambda size, stream: SimpleNamespace(handle=4096, close=lambda: self.calls.append(("close",))),
        )
        self.CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic")
        kernel = SimpleNamespace(handle="kernel", attributes=self)
        self.ObjectCode = SimpleNamespace(
            from_cubin=lambda cubin, name: SimpleNamespace(get_kernel=lambda name: kernel)
        )
        self.max_threads_per_block = 1024

    def __getitem__(self, device: object) -> "PretendedDriver":
        return self

    def Device(self, index: int) -> object:
        return self.device

    def LaunchConfig(self, **settings: int) -> dict[str, int]:
        return settings

    def launch(self, stream: object, *arguments: object) -> None:
        self.calls.append(("launch", *arguments))

    def cuMemGetInfo(self) -> tuple[int, int, int]:
        return 0, self.free, 1 << 30

    def cuDeviceGet(self, index: int) -> tuple[int, str]:
        return 0, "device"

    def cuKernelSetAttribute(self, *arguments: object) -> tuple[int]:
        self.calls.append(("set", *arguments))
        return (0,)

    def cuMemcpyHtoDAsync(self, *arguments: object) -> tuple[int]:
        self.calls.append(("to device", arguments[0], *arguments[2:]))
        return (0,)

    def cuMemcpyDtoHAsync(self, *arguments: object) -> tuple[int]:
        self.calls.append(("to host", *arguments[1:]))
        return (0,)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> tuple[CudaRuntime, PretendedDriver]:
    """A CUDA runtime whose driver is pretended; the kernels are really compiled."""
    monkeypatch.setattr(cuda_device, "cuda_found", lambda: None)
    runtime = CudaRuntime(cuda_device.Device("cuda:0", A100, "pretended"))
    driver = PretendedDriver()
    runtime._core = runtime._driver = driver
    return runtime, driver


def test_calls_of_a_launch(pretended: tuple[CudaRuntime, PretendedDriver]) -> None:
    runtime, driver = pretended
    compiled = runtime.compile(scale_kernel())
    assert compiled.registers > 0
    source, target = runtime.upload(np.zeros(10, "f4")), runtime.allocate(40)
    runtime.launch(compiled, 0, [source, target], [(10, I64), (2.0, F32)])
    runtime.launch(compiled, 1, [source, target], [(10, I64), (2.0, F32)])
    runtime.download(target, np.empty(10, "f4"))
    runtime.release(source)
    runtime.release(source)
    assert driver.calls == [
        ("to device", 4096, 40, "stream"),
        ("sync",),
        ("launch", {"grid": 1, "block": 64, "shmem_size": 0}, compiled.native, 4096, 4096, 10, 2.0),
        ("to host", 4096, 40, "stream"),
        ("sync",),
        ("close",),
    ]
    with pytest.raises(LaunchError, match="was released"):
        runtime.launch(compiled, 1, [source, target], [(10, I64), (2.0, F32)])


def test_large_shared_memory_is_asked_for(pretended: tuple[CudaRuntime, PretendedDriver]) -> None:
    runtime, driver = pretended
    kernel = reverse_kernel(32, padding=25_000)
    compiled = runtime.compile(kernel)
    assert compiled.dynamic_shared_bytes == cuda_dynamic_shared_bytes(kernel) >= 100_000
    assert driver.calls == [("set", "dynamic", compiled.dynamic_shared_bytes, "kernel", "device")]


def test_registers_can_limit_the_threads(pretended: tuple[CudaRuntime, PretendedDriver]) -> None:
    runtime, driver = pretended
    driver.max_threads_per_block = 32
    with pytest.raises(LaunchError, match="64 threads per block; with the registers that it needs, the limit is 32"):
        runtime.compile(scale_kernel())


def test_memory_is_checked_with_the_pool(pretended: tuple[CudaRuntime, PretendedDriver]) -> None:
    runtime, _ = pretended
    assert runtime.allocate((1 << 20) + 200).nbytes == (1 << 20) + 200
    with pytest.raises(DeviceMemoryError, match=r"1048777 bytes .* are needed; 1048776 bytes"):
        runtime.allocate((1 << 20) + 201)


@pytest.mark.gpu
def test_on_a_real_gpu(cuda_runtime: CudaRuntime) -> None:
    x = np.arange(1000, dtype="f4")
    source, target = cuda_runtime.upload(x), cuda_runtime.allocate(x.nbytes)
    compiled = cuda_runtime.compile(scale_kernel())
    cuda_runtime.launch(compiled, 16, [source, target], [(1000, I64), (3.0, F32)])
    result = np.empty_like(x)
    cuda_runtime.download(target, result)
    np.testing.assert_array_equal(result, 3 * x)
    large = replace(reverse_kernel(64, padding=25_000), name="reverse")
    cuda_runtime.launch(cuda_runtime.compile(large), 15, [source, target])
    cuda_runtime.download(target, result)
    np.testing.assert_array_equal(result[:960].reshape(15, 64), x[:960].reshape(15, 64)[:, ::-1])
    cuda_runtime.launch(cuda_runtime.compile(constant_kernel(-0.0)), 1, [target])
    cuda_runtime.download(target, result)
    assert np.signbit(result[0])
    with pytest.raises(DeviceMemoryError, match="needed"):
        cuda_runtime.allocate(1 << 50)
    cuda_runtime.release(source)
    cuda_runtime.synchronise()
