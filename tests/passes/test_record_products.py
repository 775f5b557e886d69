"""Products of records, whose lanes are records: right in all layouts, and nothing outside of the arrays is touched."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, extent, operands_of, random_buffers
from test_lane_products import guarded

import tilewright as tw
from tilewright.contraction.form import Contraction
from tilewright.ir.scalars import C64, C128, F32, F64, I32, I64, ScalarType
from tilewright.ir.sizes import size
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.contractions.record_choice import choose_record_product
from tilewright.passes.lane_products.record_kernel import write_record_product
from tilewright.passes.lane_products.records import record_product_of
from tilewright.report.explain import explain_contraction

TEXTS = (
    "nk,k->n", "k,nk->n", "nk,nk->n", "nk,jk->jn", "nk,jk->nj", "nij,nj->ni", "nij,jn->in", "nij,njk->nik",
    "ni,nj->nij", "n,nk->nk", "ni,nj->jin", "nij,kj->nki",
)  # fmt: skip


@st.composite
def products(draw: st.DrawFn) -> Contraction:
    """One of the texts; one of its arrays may begin later, and its records may have gaps."""
    text = draw(st.sampled_from(TEXTS))
    sizes = {one: draw(st.integers(1, 4)) for one in "ijk"} | {"n": draw(st.sampled_from([64, 65, 79, 133, 4001]))}
    contraction = einsum_contraction(text, sizes, draw(st.sampled_from((F32, F64, C64, C128, I32, I64))))
    array = draw(st.sampled_from(["left", "right"]))
    stride, gap = f"stride_{array}", draw(st.integers(0, 3))
    along = next(one for one in contraction.dimensions if one.name == "n")
    moved = dataclasses.replace(getattr(contraction, array), offset=size(draw(st.integers(0, 5))))
    if getattr(along, stride) == size(0) or getattr(along, stride) == size(1):
        return dataclasses.replace(contraction, **{array: moved})
    wider = dataclasses.replace(along, **{stride: getattr(along, stride) + gap})
    dimensions = tuple(wider if one is along else one for one in contraction.dimensions)
    return dataclasses.replace(contraction, dimensions=dimensions, **{array: moved})


@settings(max_examples=examples(70), deadline=None)
@given(contraction=products(), machine=st.sampled_from([CPU_AVX512, CPU_AVX2, CPU_NEON]), seed=st.integers(0, 99),
       threads=st.integers(1, 2))  # fmt: skip
def test_random_products(contraction: Contraction, machine: Any, seed: int, threads: int) -> None:
    form = record_product_of(contraction, machine)
    if isinstance(form, str):
        return
    buffers = random_buffers(contraction, seed)
    assert_close(contraction, run_cpu(write_record_product(form), buffers, {}, threads), buffers, {})


@pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by Linux's mprotect")
@settings(max_examples=60, deadline=None)
@given(contraction=products(), at_end=st.booleans())
def test_no_record_outside_of_the_operands_is_read(contraction: Contraction, at_end: bool) -> None:
    form = record_product_of(contraction, CPU_AVX512)
    if isinstance(form, str):
        return
    needed = {operand.buffer: extent(contraction, operand, strides) for operand, strides in operands_of(contraction)}
    buffers = {name: array[: needed[name]] for name, array in random_buffers(contraction, 1).items()}

    class Guarded(np.ndarray):
        """Copies of it lie against a page that nobody may touch."""

        def copy(self, *_: Any) -> Any:
            return guarded(np.asarray(self), at_end)

    run_cpu(write_record_product(form), {name: array.view(Guarded) for name, array in buffers.items()}, {})


TAKEN = {
    "nij,nj->ni": ({"n": 1000, "i": 3, "j": 3}, F64), "nk,jk->jn": ({"n": 1000, "j": 3, "k": 3}, F32),
    "nk,k->n": ({"n": 1000, "k": 5}, F32), "nk,nk->n": ({"n": 1000, "k": 3}, F64),
    "nij,njk->nik": ({"n": 1000, "i": 2, "j": 2, "k": 2}, C64), "ni,nj->nij": ({"n": 1000, "i": 3, "j": 3}, C64),
}  # fmt: skip


@pytest.mark.parametrize("text", TAKEN)
def test_short_records_are_lanes(text: str) -> None:
    contraction = einsum_contraction(text, *TAKEN[text])
    assert not isinstance(choose_record_product(contraction, CPU_AVX512), str)
    told = explain_contraction(contraction, CPU_AVX512)
    assert told.form == "records" and "numbers each" in str(told)


@pytest.mark.parametrize(("text", "sizes", "scalar"), [
    ("nij,njk->nik", {"n": 1000, "i": 4, "j": 4, "k": 4}, F64),  # small products that fill vectors
    ("nk,nk->n", {"n": 1000, "k": 16}, F32),  # rows that do
    ("ij,jk->ik", {"i": 64, "j": 64, "k": 64}, F32),
    ("kn,jk->jn", {"n": 1000, "j": 3, "k": 3}, F32),  # vectors run along all arrays
])  # fmt: skip
def test_other_products_have_other_forms(text: str, sizes: dict[str, int], scalar: ScalarType) -> None:
    assert isinstance(choose_record_product(einsum_contraction(text, sizes, scalar), CPU_AVX512), str)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "i4"])
@pytest.mark.parametrize("text", TEXTS)
def test_einsums_of_records_are_those_of_numpy(text: str, dtype: str) -> None:
    random = np.random.default_rng(5)
    sizes = {"n": 1003, "i": 3, "j": 3, "k": 2}
    arrays = []
    for labels in text.partition("->")[0].split(","):
        shape = [sizes[one] for one in labels]
        real = random.integers(-9, 9, shape)
        arrays.append((real + 1j * real[::-1] if dtype[0] == "c" else real).astype(dtype))
    assert np.array_equal(tw.einsum(text, *arrays), np.einsum(text, *arrays))
