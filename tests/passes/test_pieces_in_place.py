"""Sums over several dimensions whose pieces are runs of the scalar side's rows: these are read where they lie."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F32, F64, ScalarType
from tilewright.kernel.ir import Store
from tilewright.kernel.traversal import walk
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX512
from tilewright.machine.paces import TWO_MULTIPLY_ADDS
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm, run_of_rows
from tilewright.passes.packed.kernel import write_packed_kernel

ZEN4 = replace(CPU_AVX512, cores=1, l2_bytes=1 << 20, l3_bytes=1 << 25)
ZEN5 = replace(ZEN4, l1_bytes=48 << 10, pace=TWO_MULTIPLY_ADDS)
SIZES = dict(a=200, b=188, c=188, d=200)


def form_of(text: str, sizes: dict[str, int], scalar: ScalarType, machine: Machine = ZEN5) -> PackedForm:
    return make_packed_form(normalise(einsum_contraction(text, sizes, scalar)), machine)


def stores_scalar_panels(form: PackedForm) -> bool:
    stores = [one for one in walk(write_packed_kernel(form).kernel.body) if isinstance(one, Store)]
    return any(one.buffer.name.startswith("s_panels") for one in stores)


@pytest.mark.parametrize("machine", [ZEN4, ZEN5], ids=["zen4", "zen5"])
@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
def test_few_columns_read_long_runs_in_place(scalar: ScalarType, machine: Machine) -> None:
    form = form_of("dca,cbd->ba", SIZES, scalar, machine)
    assert form.scalar_in_place and form.depth == 200
    assert not stores_scalar_panels(form)


@pytest.mark.parametrize(
    ("text", "changes", "scalar"),
    [
        ("dca,cbd->ba", {"d": 40, "c": 940}, F32),  # short runs: results would be added to too often
        ("dca,cbd->ba", {"a": 4096}, F32),  # each copied element is used for many columns
        ("dca,cbd->ba", {}, C64),  # panels hold real and imaginary parts
    ],
)
def test_others_are_copied(text: str, changes: dict[str, int], scalar: ScalarType) -> None:
    form = form_of(text, {**SIZES, **changes}, scalar)
    assert form.scalar_rows and not form.scalar_in_place
    assert stores_scalar_panels(form)


@pytest.mark.parametrize(("text", "run"), [("dca,cbd->ba", 200), ("ca,bc->ba", 188), ("ca,cb->ba", 0)])
def test_the_run_is_the_innermost_dimension_of_the_sum(text: str, run: int) -> None:
    contraction = normalise(einsum_contraction(text, SIZES, F32))
    assert run_of_rows(contraction, vector_left=True) == run


def run(contraction: Contraction, form: PackedForm, threads: int) -> None:
    buffers = random_buffers(contraction, 3)
    got = run_cpu(write_packed_kernel(form), buffers, {}, threads, True)
    assert_close(contraction, got, buffers, {})


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_results_are_right(data: st.DataObject) -> None:
    scalar = data.draw(st.sampled_from([F32, F64]))
    inner = data.draw(st.sampled_from([6, 16, 21, 40]))
    piece = data.draw(st.sampled_from([one for one in range(1, inner + 1) if inner % one == 0]))
    sizes = dict(a=data.draw(st.integers(1, 70)), b=data.draw(st.integers(1, 30)), c=data.draw(st.integers(2, 9)))
    contraction = normalise(einsum_contraction("dca,cbd->ba", {**sizes, "d": inner}, scalar))
    form = make_packed_form(contraction, ZEN5)
    if form.scalar_rows and run_of_rows(contraction, form.vector_left) == inner:
        far, blocks = data.draw(st.booleans()), data.draw(st.integers(1, 3))
        form = replace(form, depth=piece, scalar_in_place=True, buffered=False, boxes=None, far=far, scalar_far=far)
        run(contraction, replace(form, scalar_block=blocks * form.rows), data.draw(st.integers(1, 2)))
