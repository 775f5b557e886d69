"""The direct CPU form, run through the JIT, against the naive evaluation."""

from __future__ import annotations

from dataclasses import replace

from contraction_cases import Case, cases, run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, examples

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F16, F32, F64, I32
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.direct.choice import choose_direct_form, direct_cost, direct_forms
from tilewright.passes.direct.form import COLLECTED_ELEMENTS, FUSED_COLUMNS, Results
from tilewright.passes.direct.kernel import write_direct_kernel

MACHINES = [host_machine(), CPU_AVX2, CPU_AVX512, CPU_NEON]


@settings(max_examples=examples(60))
@given(case=cases(), machine=st.sampled_from(MACHINES))
def test_any_contraction(case: Case, machine: Machine) -> None:
    """The form that the model chooses."""
    chosen = choose_direct_form(normalise(case.contraction), machine)
    if isinstance(chosen, str):
        assert chosen
        return
    buffers = case.buffers()
    got = run_cpu(write_direct_kernel(chosen[0]), buffers, case.scalars)
    assert_close(case.contraction, got, buffers, case.scalars)


@settings(max_examples=examples(150))
@given(case=st.sampled_from([F32, F64, F16, I32]).flatmap(cases), machine=st.sampled_from(MACHINES), data=st.data())
def test_any_form(case: Case, machine: Machine, data: st.DataObject) -> None:
    """A form at random, with its tiles shared out among several blocks and threads."""
    contraction = normalise(case.contraction)
    if isinstance(choose_direct_form(contraction, machine), str):
        return
    form = data.draw(st.sampled_from(list(direct_forms(contraction, machine))), label="form")
    assert direct_cost(form, machine).cycles > 0
    most = form.vector_tiles
    if form.collected is not None:
        most = min(most, COLLECTED_ELEMENTS * form.vector_chunk // form.collected_elements, FUSED_COLUMNS // form.width)
    form = replace(form, vector_chunk=data.draw(st.integers(1, most)),
                   scalar_chunk=data.draw(st.integers(1, form.scalar_tiles)))  # fmt: skip
    along = form.stride(form.contracted[-1], "scalar") == 1 and not form.scalar_packed
    form = replace(form, nontemporal=form.results is Results.VECTORS and data.draw(st.booleans()),
                   prefetched=not form.vector_packed and data.draw(st.booleans()),
                   out_prefetched=data.draw(st.booleans()),
                   serial=data.draw(st.booleans()), rows_prefetched=along and data.draw(st.booleans()))  # fmt: skip
    buffers = case.buffers()
    got = run_cpu(write_direct_kernel(form), buffers, case.scalars, data.draw(st.integers(1, 2)))
    assert_close(case.contraction, got, buffers, case.scalars)
