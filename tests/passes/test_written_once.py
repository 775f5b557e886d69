"""Elements that two tiles compute: written by one of them where the compiler may round them differently.

Blocks run on several threads: the bits would be those of whichever came last.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from naive import einsum_contraction

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F64, I32, ScalarType
from tilewright.kernel.ir import If, Store
from tilewright.kernel.traversal import walk
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.direct.choice import direct_forms
from tilewright.passes.direct.form import Results
from tilewright.passes.direct.kernel import write_direct_kernel

SIZES = {"i": 61, "j": 61, "k": 5}


@pytest.mark.parametrize(("scalar", "fused", "once"), [(F64, True, False), (F64, False, True), (I32, False, False)])
def test_rows_of_products_and_sums_that_are_apart(scalar: ScalarType, fused: bool, once: bool) -> None:
    contraction = normalise(einsum_contraction("ik,kj->ij", SIZES, scalar))
    found = [
        replace(one, fused_multiply_add=fused)
        for one in direct_forms(contraction, CPU_AVX512)
        if one.results is Results.VECTORS and one.rows > 1 and 61 % one.rows and one.shared_rows == 1
    ]
    assert found
    for form in found[:4]:
        launch = write_direct_kernel(form)
        out = launch.kernel.buffers[launch.buffers.index(contraction.out.buffer)]
        guarded = [
            one
            for one in walk(launch.kernel.body)
            if isinstance(one, If) and any(isinstance(inner, Store) and inner.buffer == out for inner in one.then)
        ]
        assert bool(guarded) == once
