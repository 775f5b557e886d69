"""The default tilings of the thesis's contractions for an A100 and an H100: what NVRTC and the static checks say."""

from __future__ import annotations

from functools import cache

import pytest
from naive import einsum_contraction
from thesis_facts import CONTRACTIONS, DATASETS

from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.kernel.checks import KernelReport, check_kernel
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.launch import Launch
from tilewright.kernel.nvrtc import CompiledCuda, compile_cuda
from tilewright.machine.model import Machine
from tilewright.machine.named import A100, H100
from tilewright.machine.occupancy import occupancy
from tilewright.passes.contractions.contraction_launches import tiled_form
from tilewright.passes.tiled.choice import tile_cost
from tilewright.passes.tiled.form import TileForm
from tilewright.passes.tiled.kernel import write_kernel

CASES = [
    (einsum, name)
    for einsum in CONTRACTIONS
    for name in DATASETS
    if (len(einsum) > 10) == (name != "mm")
]  # fmt: skip
MACHINES = {"a100": A100, "h100": H100}
# In the ordinary run: everything in f32 for the A100, and a few of the rest.
FEW = {("icaq,qbjk->abcijk", "dataset_3"), ("aq,bq->ab", "mm")}


@cache
def launched(einsum: str, dataset: str, scalar: ScalarType, machine: Machine) -> tuple[TileForm, Launch]:
    sizes = {label: DATASETS[dataset][label] for label in sorted({*einsum} - {*",->"})}
    form = tiled_form(einsum_contraction(einsum, sizes, scalar), machine)
    return form, write_kernel(form)


def report(launch: Launch) -> KernelReport:
    values = {p.name: int(v) for p, v in zip(launch.kernel.scalars, launch.scalars, strict=True)}  # type: ignore[arg-type]
    return check_kernel(launch.kernel, values)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
@pytest.mark.parametrize(("einsum", "dataset"), CASES)
def test_memory_accesses(einsum: str, dataset: str, scalar: ScalarType, machine: str) -> None:
    form, launch = launched(einsum, dataset, scalar, MACHINES[machine])
    found = report(launch)
    assert found.worst_inner_conflict == 1
    assert found.divergent_barriers == () and found.index_types == ()
    for access in found.global_accesses:
        assert access.degree is not None and access.degree <= 2 * access.ideal, access
    for access in found.bank_conflicts:
        # Rows that are read by vectors are whole vectors apart, so that elements of four rows may meet in a bank.
        times = 4 if access.staging else 1
        assert access.degree is not None and access.degree <= times * access.ideal, access
    limits = MACHINES[machine]
    assert 1 <= launch.kernel.threads_per_block <= limits.max_threads_per_block
    assert launch.kernel.shared_bytes <= limits.shared_bytes_per_block
    assert launch.kernel.shared_bytes == form.shared_bytes


def _compiled_cases() -> list[object]:
    found = []
    for machine in MACHINES:
        for scalar in (F32, F64):
            for einsum, dataset in CASES:
                ordinary = (machine == "a100" and scalar == F32) or (einsum, dataset) in FEW
                marks = () if ordinary else (pytest.mark.slow,)
                found.append(pytest.param(einsum, dataset, scalar, machine, marks=marks))
    return found


@pytest.mark.parametrize(("einsum", "dataset", "scalar", "machine"), _compiled_cases())
def test_machine_code(einsum: str, dataset: str, scalar: ScalarType, machine: str) -> None:
    """No spills, registers in bounds, and the occupancy that the model predicted."""
    target = MACHINES[machine]
    form, launch = launched(einsum, dataset, scalar, target)
    compiled: CompiledCuda = compile_cuda(cuda_text(launch.kernel), target.architecture)
    (registers,), (spilled,) = compiled.registers.values(), compiled.spill_bytes.values()
    assert spilled == 0, (registers, form.tiling)
    assert registers <= 255
    real = occupancy(target, form.tiling.threads, registers, form.shared_bytes)
    assert real.blocks_per_core >= 1
    predicted = tile_cost(form.contraction, form.tiling, target).occupancy
    assert abs(real.fraction - predicted) <= 0.125, (real, predicted)


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
def test_a_block_is_large_enough_to_reuse_its_tiles(scalar: ScalarType) -> None:
    """A square product on an A100: thousands of multiply-adds for every element that is staged."""
    form, _ = launched("aq,qb->ab", "mm", scalar, A100)
    rows, columns = form.tiling.block
    assert rows * columns / (rows + columns) >= 32
    assert form.left.vector == form.right.vector == 16 // scalar.bytes
