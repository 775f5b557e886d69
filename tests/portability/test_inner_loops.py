"""The machine code of register tiles for other CPUs: multiply-adds alone beside the loads, nothing spilled."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from naive import einsum_contraction
from named_cpus import machine_for, named_target

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F32, F64, ScalarType
from tilewright.kernel.llvm import CpuTarget
from tilewright.machine.processors import LINUX_X86, named_processor
from tilewright.passes.contractions.contraction_launches import contraction_launches
from tilewright.passes.items.launch_writer import STEPS_OF_ROUND
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.passes.packed.register_tile import SHORT_STEP
from tilewright.runtime.cpu_jit import assembly

MULTIPLY_ADD = r"\b(?:fml[as]|vfn?madd\w+)\b"


def form_for(name: str, scalar: ScalarType) -> PackedForm:
    contraction = einsum_contraction("aq,qb->ab", dict(a=512, b=512, q=512), scalar)
    return make_packed_form(normalise(contraction), machine_for(name))


def inner_loop(form: PackedForm, target: CpuTarget) -> list[str]:
    """The instructions of the loop with most multiply-adds: from its label to the jump back."""
    text = assembly(write_packed_kernel(form).kernel, "none", target)
    blocks = re.split(r"^(?=\.L\w+:)", text, flags=re.MULTILINE)
    best = max(blocks, key=lambda block: len(re.findall(MULTIPLY_ADD, block)))
    label = best.split(":", 1)[0]
    lines = [line.strip() for line in best.splitlines()[1:]]
    jumps = [place for place, line in enumerate(lines) if re.match(rf"(?:j\w+|b\.\w+)\s+{re.escape(label)}$", line)]
    assert jumps, f"{label} is no loop of one block:\n{best}"
    return [line for line in lines[: jumps[0] + 1] if line and not line.startswith((".", "#", "//"))]


def count(lines: list[str], pattern: str) -> int:
    return sum(bool(re.search(pattern, line)) for line in lines)


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
@pytest.mark.parametrize("name", ["armv8-a", "neoverse-n1", "apple-m1"])
def test_neon(name: str, scalar: ScalarType) -> None:
    form = form_for(name, scalar)
    lines = inner_loop(form, named_target(name))
    tile = form.vectors * form.rows
    assert tile >= 16  # two units with a latency of four want eight chains, and loads a tile that outweighs them
    assert count(lines, MULTIPLY_ADD) == tile
    assert count(lines, r"\.[sd]\[\d\]") == tile, "every multiply-add takes its factor from a lane"
    assert count(lines, r"\b(?:ld1r|dup|mov|fmov)\b") == 0, "no instruction only spreads or moves"
    assert count(lines, r"\bsp\b|\bstr\b|\bstp\b") == 0, "nothing is spilled"


@pytest.mark.parametrize("scalar", [F32, F64, C64], ids=str)
@pytest.mark.parametrize("size", [30, 64, 256, 2048])
@pytest.mark.parametrize("name", ["neoverse-n1", "apple-m1", "haswell", "skylake-avx512"])
def test_the_kernels_that_are_chosen_spill_nothing(name: str, size: int, scalar: ScalarType) -> None:
    """Whatever form is chosen for a size: in the loop with most multiply-adds the stack is not touched."""
    contraction = einsum_contraction("aq,qb->ab", dict(a=size, b=size, q=size), scalar)
    (launch,) = contraction_launches(normalise(contraction), machine_for(name))
    text = assembly(launch.kernel, "none", named_target(name))
    blocks = re.split(r"^(?=\.L\w+:)", text, flags=re.MULTILINE)
    best = max(blocks, key=lambda block: len(re.findall(MULTIPLY_ADD, block))).splitlines()
    assert count(best, MULTIPLY_ADD) >= 8
    assert count(best, r"\bsp\b|%rsp") == 0, "\n".join(best)


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
@pytest.mark.parametrize(("name", "register"), [("haswell", "ymm"), ("znver2", "ymm"), ("skylake-avx512", "zmm"),
                                                ("znver4", "zmm"), ("znver5", "zmm")])  # fmt: skip
def test_x86(name: str, register: str, scalar: ScalarType) -> None:
    form = form_for(name, scalar)
    lines = inner_loop(form, named_target(name))
    tile = form.vectors * form.rows
    assert tile >= 12
    steps = STEPS_OF_ROUND if tile <= SHORT_STEP else 1
    assert count(lines, MULTIPLY_ADD) == steps * tile == count(lines, rf"{MULTIPLY_ADD}.*%{register}")
    loads = steps * (form.vectors + form.rows)
    assert len(lines) <= steps * tile + loads + 5, "nothing but multiply-adds, loads, and the loop itself"
    assert count(lines, r"%rsp") == 0, "nothing is spilled"
    assert count(lines, r"^vmova\w+\s+%|^vmovu\w+\s+%") == 0, "nothing is stored or moved between registers"


@pytest.mark.parametrize("name", ["generic", "", "znver9"])
def test_unknown_names_get_the_code_of_their_features(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    known = named_processor("znver4")
    form = form_for("znver4", F32)
    lines = inner_loop(form, CpuTarget(LINUX_X86, name, known.features))
    assert count(lines, rf"{MULTIPLY_ADD}.*%zmm") == form.vectors * form.rows
    assert count(lines, r"%rsp") == 0


def test_a_name_brings_no_feature_back() -> None:
    """As in a virtual machine that hides AVX-512 on a processor that has it."""
    part = named_processor("znver4").restricted_to(replace(named_processor("znver2"), name="znver4"))
    form = form_for("znver2", F32)
    kernel = write_packed_kernel(form).kernel
    text = assembly(kernel, "full", CpuTarget(part.triple, part.name, part.features))
    assert "%ymm" in text
    assert not re.search(r"%zmm|%ymm(1[6-9]|2\d|3[01])|%k[1-7]", text)


def test_the_plain_processor_uses_no_wider_registers() -> None:
    text = assembly(write_packed_kernel(form_for("x86-64", F32)).kernel, "full", named_target("x86-64"))
    assert "mulps" in text and not re.search(r"%[yz]mm|\bv\w+ps\b", text)
