"""Register tiles that need nearly all vector registers: the sums stay in them, however the loops around them look."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from naive import einsum_contraction
from named_cpus import machine_for, named_target

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.passes.direct.choice import direct_forms
from tilewright.passes.direct.form import Results
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.runtime.cpu_jit import assembly


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
@pytest.mark.parametrize("prefetched", [False, True])
@pytest.mark.parametrize("vectors", [1, 2, 3, 4, 5])
def test_tiles_of_a_batch(vectors: int, prefetched: bool, scalar: ScalarType) -> None:
    """LLVM's scheduler would read all broadcasts of a step first, and keep sums of 2 x 14 in memory for it."""
    contraction = einsum_contraction("zaq,zqb->zab", dict(z=8, a=320, b=320, q=300), scalar)
    machine = machine_for("znver5")
    forms = [
        form
        for form in direct_forms(normalise(contraction), machine)
        if form.results is Results.VECTORS and len(form.lanes) == vectors
        and not (form.vector_packed or form.scalar_packed or form.scalar_outer)
    ]  # fmt: skip
    form = max(forms, key=lambda one: one.rows)
    text = assembly(write_direct_kernel(replace(form, prefetched=prefetched)).kernel, "none", named_target("znver5"))
    loops = [one for one in re.split(r"^(?=\.L\w+:)", text, flags=re.MULTILINE) if len(re.findall("vfmadd", one)) > 8]
    assert loops
    for loop in loops:
        in_memory = re.findall(r"^\s+v\w+.*%[xyz]mm.*\(%rsp\).*$|^\s+v\w+.*\(%rsp\).*%[xyz]mm.*$", loop, re.MULTILINE)
        assert not [line for line in in_memory if "vbroadcast" not in line], loop


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
@pytest.mark.parametrize("columns", [20, 24, 36, 40, 52, 56, 68, 84])
def test_tiles_whose_rows_share_vectors(columns: int, scalar: ScalarType) -> None:
    contraction = einsum_contraction("zaq,zqb->zab", dict(z=8, a=320, b=columns, q=300), scalar)
    forms = [
        form
        for form in direct_forms(normalise(contraction), machine_for("znver5"))
        if form.shared_rows > 1 and not (form.vector_packed or form.scalar_packed or form.scalar_outer)
    ]
    for form in forms:
        text = assembly(write_direct_kernel(form).kernel, "none", named_target("znver5"))
        parts = re.split(r"^(?=\.L\w+:)", text, flags=re.MULTILINE)
        for loop in [one for one in parts if len(re.findall("vfmadd", one)) > 8]:
            assert not re.findall(r"%zmm.*\(%rsp\)|\(%rsp\).*%zmm", loop), form
