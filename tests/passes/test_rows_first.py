"""Register tiles with more vectors than rows, whose steps read the rows' elements first: results, and registers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from contraction_cases import run_cpu
from hypothesis import assume, given
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, random_buffers
from named_cpus import named_target

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F16, F32, F64, I32, ScalarType
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.direct.choice import direct_forms
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.report.cpu_text import direct_registers
from tilewright.runtime.cpu_jit import assembly

TEXTS = ["aq,qb->ab", "aq,bq->ab", "qa,bq->ab", "zaq,zqb->zab", "aqz,qb->zab"]


@given(st.data(), st.sampled_from(TEXTS), st.sampled_from([F32, F64, F16, I32]))
def test_results(data: Any, text: str, scalar: ScalarType) -> None:
    sizes = {label: data.draw(st.integers(*((1, 9) if label == "z" else (9, 70))), label) for label in "abqz"}
    contraction = einsum_contraction(text, {label: sizes[label] for label in text if label.isalpha()}, scalar)
    forms = [one for one in direct_forms(normalise(contraction), CPU_AVX2) if one.rows_first]
    assume(forms)
    form = data.draw(st.sampled_from(forms), "form")
    assert form.rows < len(form.lanes)
    buffers = random_buffers(contraction, 3)
    assert_close(contraction, run_cpu(write_direct_kernel(form), buffers, {}), buffers, {})


def test_they_are_for_processors_with_few_registers() -> None:
    def tiles(machine: Any) -> set[tuple[int, int]]:
        contraction = normalise(einsum_contraction("aq,qb->ab", dict(a=960, q=30, b=960), F32))
        return {(len(one.lanes), one.rows) for one in direct_forms(contraction, machine) if one.rows_first}

    assert tiles(CPU_AVX2) == {(4, 3), (6, 2)}
    contraction = normalise(einsum_contraction("aq,qb->ab", dict(a=960, q=30, b=960), F32))
    assert all(direct_registers(one) <= 16 for one in direct_forms(contraction, CPU_AVX2) if one.rows_first)
    assert not tiles(CPU_AVX512) and not tiles(CPU_NEON)


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
@pytest.mark.parametrize("text", ["zaq,zqb->zab", "zaq,zbq->zab"])
def test_their_sums_stay_in_registers(text: str, scalar: ScalarType) -> None:
    """LLVM would read all vectors of a step before it adds their products, and keep sums in memory for that."""
    contraction = normalise(einsum_contraction(text, dict(z=8, a=96, b=96, q=90), scalar))
    forms = [one for one in direct_forms(contraction, CPU_AVX2) if one.rows_first and not one.scalar_packed]
    assert forms
    for form in forms:
        code = assembly(write_direct_kernel(form).kernel, "none", named_target("haswell"))
        loops = [one for one in re.split(r"^(?=\.L\w+:)", code, flags=re.MULTILINE) if one.count("vfmadd") >= 12]
        assert loops
        for loop in loops:
            assert not re.findall(r"%ymm.*\(%rsp\)|\(%rsp\).*%ymm", loop), loop
