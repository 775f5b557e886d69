"""The packed CPU form, run through the JIT, against the naive evaluation."""

from __future__ import annotations

from dataclasses import replace

from contraction_cases import Case, cases, run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, examples

from tilewright.contraction.normalise import normalise
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.packed_form import make_packed_form
from tilewright.passes.packed_kernel import write_packed_kernel

MACHINES = [host_machine(), CPU_AVX2, CPU_AVX512, CPU_NEON, replace(CPU_AVX2, cores=1, vector_bytes=0)]


def check(case: Case, machine: Machine, threads: int = 1) -> None:
    buffers = case.buffers()
    launch = write_packed_kernel(make_packed_form(normalise(case.contraction), machine))
    got = run_cpu(launch, buffers, case.scalars, threads)
    assert_close(case.contraction, got, buffers, case.scalars)


@settings(max_examples=examples(60))
@given(case=cases(), machine=st.sampled_from(MACHINES))
def test_any_contraction(case: Case, machine: Machine) -> None:
    check(case, machine)
