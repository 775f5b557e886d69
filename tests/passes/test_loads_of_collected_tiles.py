"""Collected results from main memory: of tiles with the same arithmetic, those that load fewer vectors cost less."""

from __future__ import annotations

from dataclasses import replace

import pytest
from naive import einsum_contraction

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.named import CPU_AVX512
from tilewright.machine.paces import TWO_MULTIPLY_ADDS
from tilewright.passes.direct.choice import choose_direct_form
from tilewright.passes.direct.form import Results

ZEN5 = replace(CPU_AVX512, cores=1, l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=1 << 25, pace=TWO_MULTIPLY_ADDS)


@pytest.mark.parametrize(("text", "sizes", "scalar", "tile"), [
    ("aebd,ce->dcba", {"a": 72, "b": 72, "c": 24, "d": 72, "e": 72}, F32, (2, 12)),
    ("akbc,nk->cnba", {"a": 150, "b": 40, "c": 100, "k": 150, "n": 12}, F32, (2, 12)),
    ("akbc,nk->cnba", {"a": 150, "b": 40, "c": 100, "k": 150, "n": 12}, F64, (2, 12)),
])  # fmt: skip
def test_few_vectors_and_many_rows(text: str, sizes: dict[str, int], scalar: ScalarType, tile: tuple[int, int]) -> None:
    chosen = choose_direct_form(normalise(einsum_contraction(text, sizes, scalar)), ZEN5)
    assert not isinstance(chosen, str)
    assert chosen[0].results is Results.COLLECTED
    assert (len(chosen[0].lanes), chosen[0].rows) == tile
