"""Small panels whose vectors are turned in registers, along a dimension of the sum that is shorter than a vector."""

from __future__ import annotations

from dataclasses import replace

from naive import einsum_contraction

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX512
from tilewright.machine.paces import TWO_MULTIPLY_ADDS
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.choice import direct_forms
from tilewright.passes.direct.cost import direct_cost
from tilewright.passes.packed.form import PackedForm

ZEN5 = replace(CPU_AVX512, cores=1, pace=TWO_MULTIPLY_ADDS)


def least_packing(k: int, inner: int, machine: Machine) -> float:
    """Of the forms with turned panels for a sum over a short inner dimension and a longer outer one."""
    contraction = normalise(einsum_contraction("akbl,lck->acb", dict(a=12, b=288, c=3, k=k, l=inner), F32))
    costs = [
        direct_cost(form, machine).packing
        for form in direct_forms(contraction, machine)
        if form.vector_packed and form.step("vector") == 1 and form.lanes == (16, 16, 16)
    ]
    return min(costs)


def test_squares_cost_what_they_cost_full() -> None:
    """A square of 16 by 16 takes as long for 4 steps of the sum as for 16."""
    assert least_packing(272, 4, ZEN5) > 3.9 * least_packing(68, 16, ZEN5)
    assert least_packing(17, 64, ZEN5) == least_packing(68, 16, ZEN5)


def test_short_runs_are_packed_otherwise() -> None:
    """4371 microseconds where the panels are turned in squares of which a quarter is used, 1185 from packed panels."""
    contraction = normalise(einsum_contraction("akbl,lck->acb", dict(a=12, b=288, c=3, k=272, l=4), F32))
    assert isinstance(choose_form(contraction, ZEN5).form, PackedForm)
