"""Packed results past the caches in outputs that begin within a cache line: whole lines of two vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, number, random_buffers

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Type
from tilewright.ir.scalars import F32, F64, I32, ScalarType
from tilewright.ir.sizes import size
from tilewright.kernel.ir import Window
from tilewright.kernel.traversal import expressions_in
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.passes.packed.chains import Chain, _Lines, chain_of
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
    ("cefg,gdba->dfebca", SIXTEEN, F32, Chain(1)),  # rows of one vector follow each other
    ("cefg,gdba->dfebca", SIXTEEN, F64, Chain(2)),
    ("bcfg,edag->efdacb", SIXTEEN, F32, Chain()),  # runs of two dimensions
    ("aged,cbfg->fedcba", dict(a=24, b=16, c=16, d=24, e=16, f=16, g=24), F64, None),  # tiles begin within rows
    ("aged,cbfg->fedcba", dict(a=24, b=16, c=16, d=24, e=16, f=16, g=24), F32, Chain(6, together=4)),  # halves
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


def with_gaps(contraction: Contraction, gap: int) -> Contraction:
    """The same with so many elements more between the points of the dimension that is outermost in the output."""
    outermost = max(contraction.dimensions, key=lambda one: number(one.stride_out))
    wider = replace(outermost, stride_out=size(number(outermost.stride_out) + gap))
    return replace(contraction, dimensions=tuple(wider if one is outermost else one for one in contraction.dimensions))


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
    contraction = with_gaps(einsum_contraction(text, sizes, scalar), data.draw(st.sampled_from([0, line, 5 * line])))
    form = replace(make_packed_form(normalise(contraction), ZEN4), nontemporal=True, buffered=False)
    form = replace(form, scalar_inner=data.draw(st.booleans()))
    if data.draw(st.booleans()):
        form = replace(form, vector_chunk=2 * form.vector_tile, scalar_chunk=3 * form.rows)
    if data.draw(st.booleans()):
        form = replace(form, vector_block=2 * form.vector_tile, scalar_block=2 * form.rows, strip=1)
    assume(chain_of(form) is not None)
    check(contraction, form, data.draw(st.integers(0, line - 1)), threads=data.draw(st.integers(1, 2)))


@pytest.mark.parametrize("shift", [4, 9])
@pytest.mark.parametrize("scalar_inner", [True, False])
@pytest.mark.parametrize(("text", "sizes", "tile", "chain", "chains"), [
    ("bcq,dqa->dbca", dict(a=16, b=4, c=6, d=3, q=4), (3, 4), Chain(1), 3),  # 24 rows follow each other, for each d
    ("cq,dqa->dca", dict(a=256, c=6, d=3, q=4), (4, 3), Chain(), 18),  # 16 vectors do, for each d and c
    ("cbq,dqa->dbca", dict(a=24, b=5, c=8, d=4, q=4), (3, 4), Chain(6, together=4), 4),  # 40 rows, for each d
])  # fmt: skip
def test_lines_are_in_parts_only_where_chains_begin_and_end(
    text: str, sizes: dict[str, int], tile: tuple[int, int], chain: Chain, chains: int, scalar_inner: bool, shift: int
) -> None:
    """Of each chain a vector's worth of elements, which lie in the lines at either end."""
    contraction = guarded(einsum_contraction(text, sizes, F32))
    form = make_packed_form(normalise(contraction), ZEN4)
    form = replace(form, nontemporal=True, buffered=False, boxes=None, vectors=tile[0], rows=tile[1])
    form = replace(form, scalar_inner=scalar_inner, vector_block=4096 // form.vector_tile * form.vector_tile)
    assert chain_of(form) == chain
    buffers = random_buffers(contraction, 3)
    buffers[contraction.out.buffer][:] = 7  # which no result is
    whole = run_cpu(write_packed_kernel(form), buffers, {}, aligned=True, shift=shift)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("write_beginning", "write_end"):
            patch.setattr(_Lines, name, lambda self, value, at: None)
        without = run_cpu(write_packed_kernel(form), buffers, {}, aligned=True, shift=shift)
    left = (without == 7) & (whole != 7)
    assert left.sum() == 16 * chains
    np.testing.assert_array_equal(without[~left], whole[~left])


@pytest.mark.parametrize("shift", [1, 4, 13])
@pytest.mark.parametrize("text", ["bgfd,caeg->fedcba", "cadg,bgfe->fedcba", "cafg,bged->fedcba"])
def test_rows_of_one_and_a_half_vectors(text: str, shift: int) -> None:
    contraction = einsum_contraction(text, dict(a=24, b=8, c=8, d=2, e=2, f=2, g=5), F32)
    form = replace(make_packed_form(normalise(contraction), ZEN4), vectors=6, rows=4, vector_block=96, scalar_block=8)
    form = replace(form, nontemporal=True, buffered=False)
    assert chain_of(form) == Chain(6, together=4)
    check(contraction, form, shift, threads=2)
    check(contraction, replace(form, vector_chunk=96, scalar_chunk=12, scalar_inner=not form.scalar_inner), shift)


@pytest.mark.parametrize("scalar_inner", [True, False])
@pytest.mark.parametrize(("length", "vectors", "rows"), [(12, 3, 2), (48, 3, 4), (12, 2, 2)])
def test_rows_of_half_a_vector(length: int, vectors: int, rows: int, scalar_inner: bool) -> None:
    """More chains go through a tile than it has vectors."""
    contraction = einsum_contraction("dqa,cq->dca", dict(a=8, c=24, d=length, q=4), F32)
    form = replace(make_packed_form(normalise(contraction), ZEN4), nontemporal=True, buffered=False, boxes=None)
    form = replace(form, vectors=vectors, rows=rows, scalar_inner=scalar_inner)
    assert chain_of(form) == Chain(rows // 2, together=rows)
    check(contraction, form, 4)


def test_shapes_share_kernels() -> None:
    """Blocks of other sizes, and rows of more vectors, need no other scratch memory."""
    forms = [form_of("cq,qa->ca", dict(a=a, c=c, q=24)) for a, c in ((4096, 4080), (5120, 3600))]
    assert [chain_of(one) for one in forms] == [Chain(), Chain()]
    assert forms[0].scalar_block != forms[1].scalar_block
    kernels = [write_packed_kernel(one).kernel for one in forms]
    assert kernels[0] == kernels[1]


def test_results_of_an_epilogue_are_no_chains() -> None:
    contraction = einsum_contraction("cefg,gdba->fedcba", SIXTEEN, F32)
    form = make_packed_form(normalise(contraction), ZEN4)
    twice = Builder().function([Type(F32)], lambda x: Builder().apply("add", x, x))
    changed = replace(form, contraction=replace(form.contraction, epilogue=twice))
    assert chain_of(form) is not None and chain_of(changed) is None
