"""Packed results past the caches in outputs that begin within a cache line: whole lines of two vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, I32, ScalarType
from tilewright.ir.sizes import size
from tilewright.kernel.ir import Store, Window
from tilewright.kernel.traversal import expressions_in, walk
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.passes.packed.chains import Chain, chain_of
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel

ZEN4 = replace(CPU_AVX512, cores=1, l1_bytes=1 << 15, l2_bytes=1 << 20, l3_bytes=1 << 25)
SIXTEEN = dict.fromkeys("abcdefg", 16)
GUARD = 64
"""Elements on either side of the output that no kernel may touch."""


def form_of(text: str, sizes: dict[str, int], scalar: ScalarType = F32) -> PackedForm:
    return make_packed_form(normalise(einsum_contraction(text, sizes, scalar)), ZEN4)


def guarded(contraction: Contraction) -> Contraction:
    """The same in an array with elements on either side of the output."""
    return replace(contraction, out=replace(contraction.out, offset=size(GUARD)))


def check(contraction: Contraction, form: PackedForm, shift: int, threads: int = 1) -> None:
    """Right, the same bits as in an output that begins with a line, and nothing else is written."""
    contraction, form = guarded(contraction), replace(form, contraction=guarded(form.contraction))
    buffers = random_buffers(contraction, 3)
    name = contraction.out.buffer
    buffers[name] = np.pad(buffers[name], (0, GUARD), constant_values=7)
    buffers[name][:GUARD] = 7
    launch = write_packed_kernel(form)
    there, here = (run_cpu(launch, buffers, {}, threads, aligned=True, shift=one) for one in (shift, 0))
    np.testing.assert_array_equal(there, here)
    assert (there[:GUARD] == 7).all() and (there[-GUARD:] == 7).all()
    assert_close(contraction, there, buffers, {})


@pytest.mark.parametrize(("text", "sizes", "scalar", "chain"), [
    ("cefg,gdba->fedcba", SIXTEEN, F32, Chain()),  # runs of 256, which no row goes on with
    ("cefg,gdba->fedcba", SIXTEEN, F64, Chain()),
    ("cefg,gdba->dfebca", SIXTEEN, F32, Chain(row=1)),  # rows of one vector follow each other
    ("cefg,gdba->dfebca", SIXTEEN, F64, Chain(row=2)),
    ("bcfg,edag->efdacb", SIXTEEN, F32, Chain()),  # runs of two dimensions
    ("aged,cbfg->fedcba", dict(a=24, b=16, c=16, d=24, e=16, f=16, g=24), F64, None),  # tiles begin within rows
    ("aged,cbfg->fedcba", dict(a=24, b=16, c=16, d=24, e=16, f=16, g=24), F32, None),  # in halves of vectors
    ("ck,kba->cba", dict(a=20, b=4001, c=200, k=16), F32, None),  # rows are no whole lines
])  # fmt: skip
def test_which_vectors_are_chains(text: str, sizes: dict[str, int], scalar: ScalarType, chain: Chain | None) -> None:
    form = form_of(text, sizes, scalar)
    assert chain_of(form) == chain
    windows = [one for one in expressions_in(write_packed_kernel(form).kernel.body) if isinstance(one, Window)]
    assert bool(windows) == (chain is not None)


def test_only_vectors_that_are_lines_are_chains() -> None:
    text, past = "cefg,gdba->fedcba", dict(nontemporal=True, buffered=False)
    narrow = make_packed_form(normalise(einsum_contraction(text, SIXTEEN, F32)), replace(CPU_AVX2, cores=1))
    assert chain_of(replace(narrow, **past)) is None
    assert chain_of(replace(form_of(text, SIXTEEN, I32), **past)) is None
    assert chain_of(replace(form_of(text, SIXTEEN), nontemporal=False)) is None


@settings(max_examples=examples(25))
@given(data=st.data())
def test_chains_wherever_the_output_begins(data: st.DataObject) -> None:
    scalar = data.draw(st.sampled_from([F32, F64]))
    line = 64 // scalar.bytes
    text = data.draw(st.sampled_from(
        ["bqa,dcq->dcba", "bqa,dcq->bdca", "ebqa,ecq->ebca", "bqa,dcq->dbca", "cq,qba->cba", "bcq,dqa->dcba"]
    ))  # fmt: skip
    sizes = {one: data.draw(st.integers(1, 7)) for one in "bcdeq"}
    sizes["a"] = line * data.draw(st.sampled_from([1, 1, 2, 3, 5, 8]))
    contraction = normalise(einsum_contraction(text, sizes, scalar))
    form = replace(make_packed_form(contraction, ZEN4), nontemporal=True, buffered=False)
    form = replace(form, scalar_inner=data.draw(st.booleans()))
    if data.draw(st.booleans()):
        form = replace(form, vector_chunk=2 * form.vector_tile, scalar_chunk=3 * form.rows)
    if data.draw(st.booleans()):
        form = replace(form, vector_block=2 * form.vector_tile, scalar_block=2 * form.rows, strip=1)
    check(contraction, form, data.draw(st.integers(0, line - 1)), threads=data.draw(st.integers(1, 2)))


@pytest.mark.parametrize("shift", [4, 9])
@pytest.mark.parametrize(("text", "row"), [("bcq,dqa->dbca", 1), ("cq,dqa->dca", 0)])
def test_lines_are_whole_but_where_chains_begin_and_end(text: str, row: int, shift: int) -> None:
    sizes = dict(a=16 if row else 256, b=5, c=6, d=3, q=4)
    contraction = einsum_contraction(text, sizes, F32)
    form = replace(
        make_packed_form(normalise(contraction), ZEN4), nontemporal=True, buffered=False, vectors=3 if row else 4
    )
    assert chain_of(form) == Chain(row)
    check(contraction, form, shift)
    stores = [one for one in walk(write_packed_kernel(form).kernel.body) if isinstance(one, Store)]
    parts = [one for one in stores if one.mask is not None and one.buffer.name.startswith("out")]
    assert parts and all(one.aligned and not one.nontemporal for one in parts)  # none lies across two lines
