"""The direct form that is chosen is the cheapest of all, though the cost of few is computed to the end."""

from __future__ import annotations

from unittest import mock

import pytest
from contraction_cases import Case, cases
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, I32
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.direct import choice
from tilewright.passes.direct.choice import choose_direct_form, direct_cost, direct_forms
from tilewright.passes.direct.cost import DirectCost, compute_cycles
from tilewright.passes.direct.form import DirectForm
from tilewright.report.contractions import contractions_of


@given(st.sampled_from([F32, F64, I32]).flatmap(cases), st.sampled_from([CPU_AVX2, CPU_AVX512, CPU_NEON]))
def test_no_form_costs_less(case: Case, machine: Machine) -> None:
    contraction = normalise(case.contraction)
    found = choose_direct_form(contraction, machine)
    if isinstance(found, str):
        return
    costs = [(form, direct_cost(form, machine)) for form in direct_forms(contraction, machine)]
    best, cost = min(costs, key=choice._preferred)
    assert found[1] == cost
    assert (found[0].vector, found[0].scalar, found[0].contracted) == (best.vector, best.scalar, best.contracted)
    for form, one in costs:
        assert compute_cycles(form, machine) == one.compute <= one.cycles


def test_few_costs_are_computed_to_the_end() -> None:
    program = tw.plan("abij,ijcd->abcd", (7, 9, 5, 6), (5, 6, 8, 10)).bound.program
    assert program is not None
    sizes = dict(zip(program.size_names, (7, 9, 5, 6, 8, 10), strict=True))
    (found,) = contractions_of(program, sizes, {}, True)[1]
    assert isinstance(found, Contraction)
    computed: list[object] = []

    def counted(form: DirectForm, machine: Machine, compute: float | None = None) -> DirectCost:
        computed.append(form)
        return direct_cost(form, machine, compute)

    with mock.patch.object(choice, "direct_cost", counted):
        chosen = choose_direct_form(normalise(found), CPU_AVX512)
    if isinstance(chosen, str):
        pytest.fail(chosen)
    assert 0 < len(computed) < len(list(direct_forms(normalise(found), CPU_AVX512)))
