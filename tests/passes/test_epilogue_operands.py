"""Matrices that an epilogue reads: how results go past the caches beside them, and what is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from naive import einsum_contraction

from tilewright.contraction.form import Contraction, EpilogueOperand, Operand
from tilewright.contraction.normalise import normalise
from tilewright.ir.arguments import PREVIOUS
from tilewright.ir.scalars import F64
from tilewright.kernel import ir as kernel
from tilewright.kernel.traversal import walk
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.direct.choice import choose_direct_form
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel


def with_matrix(buffer: str, n: int, k: int) -> Contraction:
    """A product of matrices plus a matrix of the result's shape."""
    product = einsum_contraction("ik,kj->ij", dict(i=n, j=n, k=k), F64)
    operand = EpilogueOperand(
        Operand(buffer, F64, product.out.offset), tuple(one.stride_out for one in product.dimensions)
    )
    return normalise(replace(product, epilogue=product.combine, epilogue_operands=(operand,)))


@pytest.mark.parametrize(("buffer", "past"), [("residual", True), (PREVIOUS, False)])
def test_tiles_go_past_the_caches_but_for_what_was_read(buffer: str, past: bool) -> None:
    """Whole vectors, without masks; the last tile of a row leaves out what the one before has written."""
    found = choose_direct_form(with_matrix(buffer, 3000, 16), CPU_AVX512)
    assert not isinstance(found, str), found
    code = write_direct_kernel(found[0]).kernel
    stores = [one for one in walk(code.body) if isinstance(one, kernel.Store) and one.buffer.name.startswith("out")]
    assert found[0].nontemporal == past
    assert any(one.nontemporal and one.mask is None for one in stores) == past
    assert any(one.mask is not None for one in stores)


@pytest.mark.parametrize("n", [120, 3000])
def test_packed_tiles_ask_for_it(n: int) -> None:
    form = make_packed_form(with_matrix("residual", n, 300), CPU_AVX512)
    assert isinstance(form, PackedForm), form
    assert form.nontemporal == (n > 1000)
    asked = {one.buffer.name for one in walk(write_packed_kernel(form).kernel.body) if isinstance(one, kernel.Prefetch)}
    assert any(name.startswith("further") for name in asked)
