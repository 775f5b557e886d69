"""The checks of `run_gpu_checks.py` under pytest: on a CUDA device, and on OpenCL, so that they are known to work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from run_gpu_checks import CHECKS  # a script, not a package

SCRIPT = Path(__file__).with_name("run_gpu_checks.py")
ON_OPENCL_TOO = ("validation_shapes_of_the_thesis", "strided_operands", "semirings", "epilogues")


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(CHECKS))
def test_on_cuda(name: str, cuda_runtime: object) -> None:
    CHECKS[name]("cuda")


@pytest.mark.opencl
@pytest.mark.parametrize("name", ON_OPENCL_TOO)
def test_on_opencl(name: str, opencl_runtime: object) -> None:
    CHECKS[name]("opencl")


def test_the_script_tells_what_failed() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--target", "cpu", "--only", "epilogues"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed  epilogues" in done.stdout
    absent = subprocess.run(
        [sys.executable, str(SCRIPT), "--target", "cuda:99"], capture_output=True, text=True, check=False
    )
    assert absent.returncode != 0
    assert "there is no device 'cuda:99'" in absent.stderr


_WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"llvmlite", "opt_einsum", "rich", "typer", "hypothesis", "pytest"}:
            raise ImportError(f"{name} is absent")

sys.meta_path.insert(0, Absent())
import tilewright
import tilewright.frontend.einsum, tilewright.passes.compile, tilewright.runtime.cuda_device
from tilewright.kernel.cuda import cuda_text
from tilewright.machine.named import H100
from tilewright.passes.contractions.contraction_launches import contraction_launches
from tilewright.report.examples import matmul
from tilewright.report.explain import explain_contraction
(launch,) = contraction_launches(matmul(64, 64, 64), H100)
print("__global__" in cuda_text(launch.kernel), explain_contraction(matmul(64, 64, 64), H100).form)
"""


def test_the_way_to_cuda_needs_only_numpy_and_the_cuda_bindings() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "tiled"]
