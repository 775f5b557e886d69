"""The packed CPU form, run through the JIT, against the naive evaluation."""

from __future__ import annotations

from dataclasses import replace

from contraction_cases import Case, cases, run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, C128, F16, F32, F64, I8, I32, U16, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.kernel import write_packed_kernel

SMALL_CACHES = replace(host_machine(), l1_bytes=1 << 10, l2_bytes=1 << 13, l3_bytes=1 << 15)
MACHINES = [host_machine(), SMALL_CACHES, CPU_AVX2, CPU_AVX512, CPU_NEON, replace(CPU_AVX2, cores=1, vector_bytes=0)]


def check(case: Case, machine: Machine, threads: int = 1) -> None:
    buffers = case.buffers()
    launch = write_packed_kernel(make_packed_form(normalise(case.contraction), machine))
    got = run_cpu(launch, buffers, case.scalars, threads)
    assert_close(case.contraction, got, buffers, case.scalars)


@settings(max_examples=examples(60))
@given(case=cases(), machine=st.sampled_from(MACHINES))
def test_any_contraction(case: Case, machine: Machine) -> None:
    check(case, machine)


@settings(max_examples=examples(40))
@given(case=cases(), machine=st.sampled_from(MACHINES), data=st.data())
def test_any_chunks_blocks_and_pieces(case: Case, machine: Machine, data: st.DataObject) -> None:
    """Results do not depend on how the work is cut."""
    form = make_packed_form(normalise(case.contraction), machine)
    some = st.integers(1, 3)
    form = replace(
        form,
        vector_block=form.vector_tile * data.draw(some),
        scalar_block=form.rows * data.draw(some),
        vector_chunk=form.vector_tile * data.draw(some),
        scalar_chunk=form.rows * data.draw(some),
        nontemporal=False,
        far=data.draw(st.booleans()),
        scalar_far=data.draw(st.booleans()),
    )
    buffers = case.buffers()
    got = run_cpu(write_packed_kernel(form), buffers, case.scalars, threads=3)
    assert_close(case.contraction, got, buffers, case.scalars)


LAYOUTS = ["aq,qb->ab", "aq,bq->ab", "qa,qb->ab", "qa,bq->ab", "qac,qb->cba", "qca,bq->abc", "qac,pqb->pacb"]
SCALARS = [F32, F64, C64, C128, F16, I8, I32, U16]


@settings(max_examples=examples(60))
@given(
    text=st.sampled_from(LAYOUTS),
    scalar=st.sampled_from(SCALARS),
    machine=st.sampled_from(MACHINES),
    extents=st.tuples(*[st.integers(1, 90)] * 3),
    short=st.integers(1, 4),
)
def test_packing_any_remainder(
    text: str, scalar: ScalarType, machine: Machine, extents: tuple[int, int, int], short: int
) -> None:
    """Either side along the sum or across it, whole panels and what is left of them."""
    sizes = dict(zip("abq", extents, strict=True)) | {"c": short, "p": short}
    contraction = einsum_contraction(text, {name: sizes[name] for name in sizes if name in text}, scalar)
    buffers = random_buffers(contraction, sum(extents))
    got = run_cpu(write_packed_kernel(make_packed_form(normalise(contraction), machine)), buffers, {})
    assert_close(contraction, got, buffers, {})
