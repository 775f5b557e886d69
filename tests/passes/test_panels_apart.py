"""Panels that would begin a multiple of 4 KB apart begin a step more apart, so that loads do not wait for stores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import event, given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F32, F64, I32, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.packed.blocks import FEW_STEPS, PAGE, steps_apart
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.kernel import write_packed_kernel

HOST = host_machine()
EVEN = dict.fromkeys("abcdefg", 16)


@given(st.integers(1, 2000), st.sampled_from([4, 8, 32, 64, 96, 128, 256, 384, 512]))
def test_few_steps_never_fill_whole_pages(steps: int, step_bytes: int) -> None:
    apart = steps_apart(steps, step_bytes)
    assert apart in (steps, steps + 1)
    assert apart == steps or steps <= FEW_STEPS
    assert apart * step_bytes % PAGE > 0 or steps > FEW_STEPS or step_bytes % PAGE == 0


@pytest.mark.parametrize(("text", "pitch"), [
    ("cefg,gdba->fedcba", 17),  # panels of vectors pass by: f32 1.04, f64 1.03 times as fast
    ("bcfg,edag->efdacb", 17),  # 1.05 and 1.03
    ("bcfg,edag->fedcba", 16),  # one stays, and those of scalars would not begin with lines any more: 0.99
])  # fmt: skip
@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
def test_panels_of_vectors_that_pass_by(text: str, pitch: int, scalar: ScalarType) -> None:
    machine = replace(CPU_AVX512, cores=1, l1_bytes=32 << 10)
    form = make_packed_form(normalise(einsum_contraction(text, EVEN, scalar)), machine)
    assert (form.piece, form.pitch, form.scalar_inner) == (16, pitch, pitch == 16)


@settings(max_examples=examples(40), deadline=None)
@given(
    text=st.sampled_from(["aq,qb->ab", "qa,bq->ab", "aq,bq->ba", "zaq,zqb->zab"]),
    extents=st.tuples(st.integers(1, 150), st.integers(1, 150)),
    steps=st.sampled_from([8, 16, 32, 48, 64]),
    scalar=st.sampled_from([F32, F64, I32, C64]),
    inner=st.booleans(),
    threads=st.sampled_from([1, 2]),
)
def test_sums_of_steps_that_fill_pages(
    text: str, extents: tuple[int, int], steps: int, scalar: ScalarType, inner: bool, threads: int
) -> None:
    sizes = {"a": extents[0], "b": extents[1], "q": steps, "z": 3}
    contraction = normalise(einsum_contraction(text, {one: sizes[one] for one in sizes if one in text}, scalar))
    form = replace(make_packed_form(contraction, replace(HOST, cores=threads)), scalar_inner=inner)
    event(f"{form.pitch - form.piece} steps more")
    buffers = random_buffers(contraction, steps)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}, threads), buffers, {})
