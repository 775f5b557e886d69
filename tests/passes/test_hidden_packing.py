"""What packing costs where register tiles do it beside the arithmetic: choices on a Zen 4 and a Zen 5, as measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from naive import einsum_contraction

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX512
from tilewright.machine.paces import ONE_MULTIPLY_ADD, TWO_MULTIPLY_ADDS, Pace
from tilewright.passes.contractions.form_choice import choose_form, packed_cycles
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm

THREE = dict(a=200, b=200, c=188, d=188)


def machine_of(pace: Pace) -> Machine:
    return replace(CPU_AVX512, cores=1, l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20, pace=pace)


def cycles(text: str, sizes: dict[str, int], hidden: float, scalar: ScalarType = F64) -> float:
    machine = machine_of(replace(TWO_MULTIPLY_ADDS, hidden=hidden))
    return packed_cycles(make_packed_form(normalise(einsum_contraction(text, sizes, scalar)), machine), machine)


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
def test_far_slabs_are_packed_where_that_is_hidden(scalar: ScalarType) -> None:
    contraction = normalise(einsum_contraction("cda,db->cba", THREE, scalar))
    assert isinstance(choose_form(contraction, machine_of(TWO_MULTIPLY_ADDS)).form, PackedForm)
    assert isinstance(choose_form(contraction, machine_of(ONE_MULTIPLY_ADD)).form, DirectForm)


def test_one_long_row_is_read_in_place() -> None:
    contraction = normalise(einsum_contraction("ka,kn->na", dict(k=200, a=20000, n=96), F64))
    assert isinstance(choose_form(contraction, machine_of(TWO_MULTIPLY_ADDS)).form, DirectForm)


def test_what_is_hidden_costs_less() -> None:
    none, half, all_ = (cycles("cda,db->cba", THREE, hidden) for hidden in (0.0, 0.5, 1.0))
    assert none > half > all_


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("cda,db->cba", {"c": 4, "a": 96}),  # within the second cache
        ("cda,db->cba", {"d": 108, "c": 400}),  # in so few steps
        ("cad,db->cba", {}),  # turned in registers
        ("cda,db->cba", {"a": 197}),  # vectors out of two runs
    ],
)
def test_no_other_packing_is_hidden(text: str, changes: dict[str, int]) -> None:
    sizes = {**THREE, **changes}
    assert cycles(text, sizes, 0.5) == cycles(text, sizes, 1.0)
