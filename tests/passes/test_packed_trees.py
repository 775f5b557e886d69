"""Sums of many pieces in the packed form are trees: nothing is lost or added twice, and their errors are bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import run_cpu, semirings
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F16, F32, F64, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.passes.items.sum_trees import PIECE
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import FAN, PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel

SMALL_CACHES = replace(host_machine(), cores=1, l1_bytes=1 << 10, l2_bytes=1 << 15, l3_bytes=1 << 18)


def form_of(contraction: Contraction) -> PackedForm:
    """The form where pieces of the sum are as short as they may be."""
    return make_packed_form(normalise(contraction), SMALL_CACHES)


@settings(max_examples=examples(40), deadline=None)
@given(
    text=st.sampled_from(["aq,qb->ab", "qa,bq->ba", "apq,qpb->ba", "caq,cqb->acb", "aebq,cqe->cba"]),
    scalar=st.sampled_from([F32, F64, C64, F16]),
    length=st.sampled_from([1, 3, 8, 9, 30, 33, 65, 100]),
    fan=st.sampled_from([2, 3, 5]),
    levels=st.sampled_from([2, 3, 4]),
    depth=st.sampled_from([1, 2, 4]),
    threads=st.sampled_from([1, 2]),
    chunked=st.booleans(),
)
def test_every_level_takes_every_value_once(
    text: str, scalar: ScalarType, length: int, fan: int, levels: int, depth: int, threads: int, chunked: bool
) -> None:
    """Several blocks of both sides, with fewer and with more pieces than the levels below the highest one have."""
    sizes = {name: size for name, size in dict(a=19, b=75, c=3, e=2, p=2, q=length).items() if name in text}
    contraction = einsum_contraction(text, sizes, scalar)
    form = form_of(contraction)
    form = replace(form, levels=levels, fan=fan, depth=depth, buffered=False, nontemporal=False,
                   vector_block=form.vector_tile, scalar_block=2 * form.rows)  # fmt: skip
    if chunked:
        form = replace(form, vector_chunk=3 * form.vector_tile, scalar_chunk=3 * form.rows)
    buffers = random_buffers(contraction, length)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}, threads), buffers, {})


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (16, 60)])
def test_sums_with_few_results_are_no_long_chains(rows: int, columns: int) -> None:
    """Equal terms are rounded alike, so that the error of a chain grows with its length; adding to results that stay in
    the first cache costs nothing.
    """
    length = 15_625
    contraction = einsum_contraction("aq,bq->ab", dict(a=rows, b=columns, q=length), F32)
    form = make_packed_form(normalise(contraction), host_machine())
    additions = form.depth + -(-length // form.depth)
    assert additions <= 2 * PIECE
    buffers = {name: np.full(one.shape, 0.1, np.float32) for name, one in random_buffers(contraction, 1).items()}
    got = run_cpu(write_packed_kernel(form), buffers, {})
    exact = length * float(np.float32(0.1)) ** 2
    assert abs(got[: rows * columns] - exact).max() <= additions * float(np.finfo(np.float32).eps) / 2 * exact


@pytest.mark.parametrize(("scalar", "pieces"), [(F32, FAN), (F32, FAN + 1), (F32, 20 * FAN), (F64, 5 * FAN)], ids=str)
def test_a_large_first_term_swallows_a_node_at_most(scalar: ScalarType, pieces: int) -> None:
    """One piece sums to 1 and each of the others to a little less than u, which added to 1 is lost: a chain of pieces
    loses all of them, a tree those of the first node. No value goes through more additions than a piece is long, and
    FAN for each level, and each of these is off by u.
    """
    eps = float(np.finfo(scalar.numpy).eps)
    shape = dict(a=5, b=40, q=1)
    form = form_of(einsum_contraction("aq,qb->ab", shape | {"q": 1 << 12}, scalar))
    length = pieces * form.depth
    contraction = einsum_contraction("aq,qb->ab", shape | {"q": length}, scalar)
    form = form_of(contraction)
    assert -(-length // form.depth) == pieces
    terms = np.full((length, 40), 0.45 * eps / form.depth, scalar.numpy)
    terms[0] = 1
    buffers = {"A": np.ones(5 * length, scalar.numpy), "B": terms.ravel(), "C": np.zeros(200, scalar.numpy)}
    found = run_cpu(write_packed_kernel(form), buffers, {})
    wanted = 1 + 0.45 * eps / form.depth * (length - 1)
    most = form.depth + FAN * max(1, form.levels)
    assert np.max(np.abs(found - wanted)) / wanted <= most * eps / 2


def test_sums_of_integers_and_of_few_pieces_are_no_trees() -> None:
    pieces = form_of(einsum_contraction("aq,qb->ab", dict(a=5, b=40, q=1 << 12), F32)).depth
    for length, levels in ((FAN, 0), (FAN + 1, 2), (FAN**2, 2), (FAN**2 + 1, 3)):
        contraction = einsum_contraction("aq,qb->ab", dict(a=5, b=40, q=length * pieces), F32)
        assert form_of(contraction).levels == levels
        assert form_of(replace(contraction, combine=semirings(F32)["max_times"][1])).levels == 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    contraction = einsum_contraction("aq,qb->ab", dict(a=30, b=90, q=64 * 300), F32)
    form = form_of(contraction)
    assert form.levels == 2
    shared = replace(form, vector_chunk=form.vector_tile, scalar_chunk=form.rows)
    buffers = random_buffers(contraction, 3)
    alone = run_cpu(write_packed_kernel(form), buffers, {})
    assert run_cpu(write_packed_kernel(shared), buffers, {}, threads).tobytes() == alone.tobytes()
