"""Choosing devices, with real and with broken drivers, and the checks before a launch."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.ir.scalars import F16, F32, F64, I32, I64, SCALAR_TYPES
from tilewright.kernel.ir import Buffer, Constant, Kernel, ScalarParameter, Space, Store
from tilewright.machine.named import A100, OPENCL_CPU
from tilewright.runtime import devices as devices_module
from tilewright.runtime import opencl_probe, protocol
from tilewright.runtime.devices import Device, absent_devices, device_for, devices, open_device
from tilewright.runtime.errors import DeviceError, DeviceMemoryError, KernelBuildError, LaunchError


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """The probes, replaceable, with nothing remembered from before or after."""
    fresh = dict(devices_module._PROBES)
    monkeypatch.setattr(devices_module, "_PROBES", fresh)
    monkeypatch.setattr(devices_module, "_PROBED", type(devices_module._PROBED)())
    yield fresh


def broken() -> tuple[Device, ...]:
    raise OSError("libfoo.so: wrong ELF class")


def test_the_cpu_is_always_first() -> None:
    found = devices()
    assert found[0].name == "cpu"
    assert len({device.name for device in found}) == len(found)
    kinds = {device.machine.kind for device in found}
    assert set(absent_devices()) == {"cpu", "opencl", "cuda"} - kinds
    assert all(reason for reason in absent_devices().values())


def test_broken_drivers_only_leave_a_reason(probes: dict[str, object]) -> None:
    def not_installed() -> tuple[Device, ...]:
        raise ImportError("No module named 'cuda'")

    probes.update(opencl=broken, cuda=not_installed)
    assert [device.name for device in devices()] == ["cpu"]
    assert absent_devices() == {
        "opencl": "libfoo.so: wrong ELF class",
        "cuda": "No module named 'cuda' (pip install tilewright[cuda])",
    }


def test_without_llvmlite_the_cpu_is_absent_and_the_others_stay(probes: dict[str, object]) -> None:
    def missing() -> tuple[object, ...]:
        raise ImportError("No module named 'llvmlite'")

    probes["cpu"] = missing
    probes["cuda"] = lambda: ()
    assert all(device.machine.kind != "cpu" for device in devices_module.devices())
    assert "pip install llvmlite" in devices_module.absent_devices()["cpu"]
    with pytest.raises(DeviceError, match=r"no device 'cuda'.*no cpu: No module named 'llvmlite'"):
        devices_module.device_for("cuda")


def test_names(probes: dict[str, object]) -> None:
    pair = tuple(Device(f"cuda:{n}", replace(A100, name=f"a{n}"), f"a{n}") for n in range(2))
    probes.update(cuda=lambda: pair, opencl=broken)
    assert device_for("cuda") is pair[0]
    assert device_for("cuda:1") is pair[1]
    assert device_for(pair[1]) is pair[1]
    assert pair[1].index == 1
    assert device_for("cpu").index == 0
    with pytest.raises(DeviceError) as caught:
        device_for("cuda:2")
    message = str(caught.value)
    assert "no device 'cuda:2'" in message
    assert "cuda:1: a1" in message
    assert "no opencl: libfoo.so: wrong ELF class" in message


@pytest.mark.parametrize("name", ["", "gpu", "cuda:", "cuda:x", "opencl:-1", "cuda:1:2", "CPU"])
def test_names_that_are_none(name: str, probes: dict[str, object]) -> None:
    probes.update(cuda=broken, opencl=broken)
    with pytest.raises(DeviceError, match="names no device; a name is cpu, opencl, cuda"):
        device_for(name)


def test_default_target(monkeypatch: pytest.MonkeyPatch, probes: dict[str, object]) -> None:
    probes.update(cuda=broken, opencl=broken)
    monkeypatch.delenv("TILEWRIGHT_TARGET", raising=False)
    assert device_for().name == "cpu"
    monkeypatch.setenv("TILEWRIGHT_TARGET", "")
    assert device_for(None).name == "cpu"
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cuda:3")
    with pytest.raises(DeviceError, match=r"'cuda:3' \(from TILEWRIGHT_TARGET\)"):
        device_for(None)


def test_the_cpu_is_found_without_asking_other_drivers(probes: dict[str, object]) -> None:
    def never() -> tuple[Device, ...]:
        raise AssertionError("asked a driver that nobody wanted")

    probes.update(cuda=never, opencl=never)
    assert device_for("cpu").machine.kind == "cpu"
    assert list(devices_module._PROBED._values) == ["cpu"]


def test_importing_loads_no_driver() -> None:
    code = (
        "import sys; import tilewright.runtime.devices, tilewright.runtime.protocol; "
        "print([m for m in ('pyopencl', 'cuda', 'cuda.bindings', 'llvmlite') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_the_cpu_has_no_runtime_of_buffers() -> None:
    with pytest.raises(DeviceError, match="runs kernels in process"):
        open_device(device_for("cpu"))


def test_drivers_of_the_system_stay_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    driver = tmp_path / "libintelocl.so"
    vendors = tmp_path / "vendors"
    with opencl_probe._driver_environment(vendors, driver) as changes:
        assert changes == {}
    driver.write_text("")
    with opencl_probe._driver_environment(vendors, driver) as changes:
        assert changes == {"OCL_ICD_VENDORS": str(driver)}
    vendors.mkdir()
    (vendors / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
    with opencl_probe._driver_environment(vendors, driver) as changes:
        folder = Path(changes["OCL_ICD_VENDORS"])
        lines = {path.name: path.read_text() for path in folder.iterdir()}
        assert lines == {"nvidia.icd": "libnvidia-opencl.so.1\n", "tilewright-intel.icd": f"{driver}\n"}
    assert not folder.exists()
    monkeypatch.setenv("OCL_ICD_VENDORS", "mine")
    with opencl_probe._driver_environment(vendors, driver) as changes:
        assert changes == {}


def test_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_A", "before")
    monkeypatch.delenv("TILEWRIGHT_B", raising=False)
    with pytest.raises(RuntimeError), opencl_probe._environment({"TILEWRIGHT_A": "1", "TILEWRIGHT_B": "2"}):
        assert (os.environ["TILEWRIGHT_A"], os.environ["TILEWRIGHT_B"]) == ("1", "2")
        raise RuntimeError
    assert os.environ["TILEWRIGHT_A"] == "before"
    assert "TILEWRIGHT_B" not in os.environ


# --- checks before a launch -------------------------------------------------------------------------------------------

X = Buffer("x", F32, read_only=True, alignment=64)
Y = Buffer("y", F32)
DEVICE = Device("opencl:0", replace(OPENCL_CPU, max_blocks=1000, max_allocation_bytes=1 << 20), "pretended")


def example(**changes: object) -> Kernel:
    body = (Store(Y, Constant(0, I64), Constant(1.0, F32)),)
    kernel = Kernel("example", (X, Y), (ScalarParameter("n", I32), ScalarParameter("scale", F64)), (), body, 64)
    return replace(kernel, **changes)  # type: ignore[arg-type]


def compiled(kernel: Kernel, device: str = "opencl:0") -> protocol.CompiledKernel:
    return protocol.CompiledKernel(kernel, device, "", b"", None, written=protocol.written_buffers(kernel))


def buffer(**changes: object) -> protocol.DeviceBuffer:
    settings = dict(nbytes=4, device="opencl:0", alignment=128, writable=True, native=object())
    return protocol.DeviceBuffer(**{**settings, **changes})  # type: ignore[arg-type]


SCALARS = ((1, I32), (0.5, F64))


def test_written_buffers() -> None:
    shared = Buffer("tile", F32, Space.SHARED, size=4)
    kernel = example()
    assert protocol.written_buffers(kernel) == {"y"}
    more = (Store(shared, Constant(0, I64), Constant(1.0, F32)),)
    assert protocol.written_buffers(replace(kernel, body=more)) == set()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (example(threads_per_block=8193), "8193 threads per block; the limit is 8192"),
        (
            example(arrays=(Buffer("tile", F32, Space.SHARED, size=(256 << 8) + 1),)),
            r"needs 262148 bytes \(256\.0 KiB\) of shared memory per block; the limit is 262144 bytes",
        ),
    ],
)
def test_kernels_that_can_never_run(kernel: Kernel, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        protocol.check_kernel(kernel, DEVICE)


def test_doubles_where_there_are_none() -> None:
    device = replace(DEVICE, machine=replace(OPENCL_CPU, supports_f64=False))
    with pytest.raises(LaunchError, match="uses f64, which the device cannot compute"):
        protocol.check_kernel(example(), device)


@pytest.mark.parametrize(
    ("blocks", "buffers", "scalars", "message"),
    [
        (1001, (buffer(), buffer()), SCALARS, "1001 blocks; the limit of a launch is 1000"),
        (-1, (buffer(), buffer()), SCALARS, "-1 blocks"),
        (1, (buffer(),), SCALARS, r"got 1 buffers and 2 scalars; it takes 2 \(x, y\) and 2 \(n, scale\)"),
        (1, (buffer(), buffer(device="cuda:0")), SCALARS, "'y': lies on cuda:0, not on opencl:0"),
        (1, (buffer(), buffer(native=None)), SCALARS, "'y': was released"),
        (1, (buffer(), buffer(writable=False)), SCALARS, "stores into 'y', which was uploaded without writable"),
        (1, (buffer(alignment=32), buffer()), SCALARS, "'x' must be aligned to 64 bytes; the buffer is aligned to 32"),
    ],
)
def test_launches_that_do_not_fit(blocks, buffers, scalars, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        protocol.check_launch(compiled(example()), DEVICE, blocks, buffers, scalars)


def test_a_launch_that_fits() -> None:
    protocol.check_launch(compiled(example()), DEVICE, 1000, (buffer(writable=False), buffer()), SCALARS)


def test_a_kernel_of_another_device() -> None:
    with pytest.raises(LaunchError, match="it was compiled for cuda:1"):
        protocol.check_launch(compiled(example(), "cuda:1"), DEVICE, 1, (buffer(), buffer()), SCALARS)


def test_scalars_get_their_own_types() -> None:
    values = protocol.scalar_arguments(example(), ((np.int64(-7), I32), (1, F64)))
    assert [(type(value), value) for value in values] == [(np.int32, -7), (np.float64, 1.0)]


@pytest.mark.parametrize(
    ("type_", "value", "given", "message"),
    [
        (I32, 2**31, I32, "scalar 's': 2147483648 does not fit i32"),
        (I32, 1, I64, "scalar 's' is i32, but a value of type i64 was given"),
        (I32, 1.5, I32, "1.5 is not an integer"),
        (SCALAR_TYPES["u8"], -1, SCALAR_TYPES["u8"], "-1 does not fit u8"),
        (F16, 1.0, F16, "f16 cannot be handed over as a scalar"),
        (SCALAR_TYPES["c64"], 1.0, SCALAR_TYPES["c64"], "c64 cannot be handed over"),
    ],
)
def test_scalars_that_do_not_fit(type_, value, given, message: str) -> None:
    kernel = example(scalars=(ScalarParameter("s", type_),))
    with pytest.raises(LaunchError, match=message):
        protocol.scalar_arguments(kernel, ((value, given),))


def test_allocations_that_do_not_fit() -> None:
    protocol.check_allocation(DEVICE, 1 << 20, available=1 << 20)
    with pytest.raises(DeviceMemoryError, match=r"1048577 bytes .* is needed; the largest .* 1048576 bytes"):
        protocol.check_allocation(DEVICE, (1 << 20) + 1, available=1 << 40)
    with pytest.raises(DeviceMemoryError, match=r"2048 bytes \(2\.0 KiB\) are needed; 1024 bytes .* are available"):
        protocol.check_allocation(DEVICE, 2048, available=1024)
    with pytest.raises(MemoryError):
        protocol.check_allocation(DEVICE, 2048, available=1024)
    with pytest.raises(DeviceError, match="-1 bytes makes no sense"):
        protocol.check_allocation(DEVICE, -1, available=1024)


def test_dense_bytes() -> None:
    fortran = np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3))
    flat = protocol.dense_bytes(fortran, "upload")
    assert np.shares_memory(flat, fortran)
    assert flat.view(np.int32).tolist() == [0, 3, 1, 4, 2, 5]
    assert protocol.dense_bytes(np.array(1.0), "upload").nbytes == 8
    assert protocol.dense_bytes(np.zeros((0, 3)), "upload").nbytes == 0
    with pytest.raises(ValueError, match=r"shape \(3,\) with strides \(16,\) is not contiguous"):
        protocol.dense_bytes(np.arange(6.0)[::2], "upload")
    with pytest.raises(ValueError, match="is not contiguous"):
        protocol.dense_bytes(np.broadcast_to(np.float32(1), (3,)), "upload")


def test_build_error_numbers_the_source() -> None:
    error = KernelBuildError("k", "cuda:0", "line 2 is odd\n", "first\nsecond")
    assert "    2 | second" in str(error)
    assert (error.log, error.source) == ("line 2 is odd\n", "first\nsecond")
