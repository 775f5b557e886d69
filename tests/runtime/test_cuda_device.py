"""The CUDA runtime: what can be shown without a GPU, and, marked `gpu`, the rest."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pretended_gpu import run_there
from runtime_kernels import constant_kernel, reverse_kernel, scale_kernel

from tilewright.ir.scalars import F32, I64
from tilewright.kernel.cuda import cuda_dynamic_shared_bytes, cuda_text
from tilewright.machine.named import A100, H200
from tilewright.runtime import cuda_device, cuda_probe
from tilewright.runtime.cache import DiskCache
from tilewright.runtime.cuda_device import CudaRuntime, build_cubin
from tilewright.runtime.devices import absent_devices
from tilewright.runtime.errors import DeviceError, DeviceMemoryError, KernelBuildError

pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")

CHECKS = re.findall(r"@check\ndef (\w+)", Path(__file__).with_name("pretended_checks.py").read_text())


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


def test_driver_results() -> None:
    assert cuda_probe.checked((0, 5), "call") == 5
    assert cuda_probe.checked((0, 5, 6), "call") == (5, 6)
    assert cuda_probe.checked((0,), "call") == ()


@pytest.mark.skipif(shutil.which("gcc") is None or shutil.which("g++") is None, reason="there is no C compiler")
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_pretended_gpu(name: str) -> None:
    done = run_there([str(Path(__file__).with_name("pretended_checks.py")), name])
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("gcc") is None or shutil.which("g++") is None, reason="there is no C compiler")
def test_devices_without_memory_pools() -> None:
    check = str(Path(__file__).with_name("pretended_checks.py"))
    done = run_there([check, "memory_is_given_back_and_refused"], pools=False)
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stdout + done.stderr


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
