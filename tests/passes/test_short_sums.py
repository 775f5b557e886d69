"""Sums of one or two terms are written in order; what is computed stays the same."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct import in_order, past_caches, short_sums
from tilewright.passes.direct.choice import choose_direct_form
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.passes.direct.short_sums import VECTORS, written_in_order


@settings(max_examples=examples(60))
@given(text=st.sampled_from(["aq,qb->ab", "qa,qb->ab", "zaq,zqb->zab", "zaq,qb->zab"]), data=st.data(),
       machine=st.sampled_from([host_machine(), CPU_AVX2, CPU_AVX512, CPU_NEON]))  # fmt: skip
def test_any_short_sum(text: str, data: st.DataObject, machine: object) -> None:
    sizes = {"q": data.draw(st.integers(1, 2)), "z": data.draw(st.integers(1, 3))}
    sizes |= {"a": data.draw(st.integers(1, 20)), "b": data.draw(st.integers(1, 150))}
    contraction = einsum_contraction(text, sizes, data.draw(st.sampled_from([F32, F64])))
    chosen = choose_direct_form(normalise(contraction), machine)  # type: ignore[arg-type]
    if isinstance(chosen, str):
        assert sizes["b"] == 1, chosen  # then no dimension of unit stride is left
        return
    form = written_in_order(chosen[0], machine)  # type: ignore[arg-type]
    buffers = random_buffers(contraction, data.draw(st.integers(0, 99)))
    got = run_cpu(write_direct_kernel(form), buffers, {}, data.draw(st.integers(1, 2)))
    assert_close(contraction, got, buffers, {})


@pytest.mark.parametrize(("terms", "rows", "changed"), [(1, 1, True), (2, 2, True), (3, 3, False)])
def test_which_sums_are_written_in_order(terms: int, rows: int, changed: bool) -> None:
    contraction = normalise(einsum_contraction("aq,qb->ab", {"a": 300, "b": 500, "q": terms}, F32))
    chosen = choose_direct_form(contraction, CPU_AVX512)
    assert not isinstance(chosen, str)
    form = written_in_order(chosen[0], CPU_AVX512)
    assert (form != chosen[0]) == changed
    if changed:
        assert (form.rows, len(form.lanes), form.scalar_outer) == (rows, VECTORS, True)
    else:
        assert form is chosen[0]


@pytest.mark.parametrize(
    ("a", "b", "terms", "past", "peeled"),
    [
        (100_000, 100, 4, False, False),  # rows share lines, and are short: through the caches
        (100_000, 256, 4, True, False),  # they do where the output begins within a line
        (10_000, 2000, 4, True, True),
        (8192, 8192, 1, True, True),
    ],
)
def test_outputs_past_the_caches_are_written_row_by_row(a: int, b: int, terms: int, past: bool, peeled: bool) -> None:
    contraction = normalise(einsum_contraction("aq,qb->ab", {"a": a, "b": b, "q": terms}, F32))
    form = choose_form(contraction, CPU_AVX512).form
    assert isinstance(form, DirectForm)
    assert (form.rows, form.nontemporal, form.peeled) == (1, past, peeled)


def test_rows_whose_operand_stays_in_no_cache_keep_their_tiles() -> None:
    contraction = normalise(einsum_contraction("aq,qb->ab", {"a": 4, "b": 4_000_000, "q": 4}, F32))
    chosen = choose_direct_form(contraction, CPU_AVX512)
    assert not isinstance(chosen, str)
    assert written_in_order(chosen[0], CPU_AVX512) is chosen[0]


@settings(max_examples=examples(60))
@given(text=st.sampled_from(["aq,qb->ab", "qa,qb->ab", "zaq,zqb->zab", "zaq,qb->zab"]), data=st.data(),
       machine=st.sampled_from([host_machine(), CPU_AVX2, CPU_AVX512]), shift=st.integers(0, 20))  # fmt: skip
def test_results_past_the_caches_lie_anywhere(text: str, data: st.DataObject, machine: Machine, shift: int) -> None:
    sizes = {"q": data.draw(st.integers(1, 5)), "z": data.draw(st.integers(1, 3)), "a": data.draw(st.integers(1, 20))}
    sizes["b"] = data.draw(st.one_of(st.integers(2, 400), st.sampled_from([128, 256, 384, 1600])))
    contraction = einsum_contraction(text, sizes, data.draw(st.sampled_from([F32, F64])))
    buffers = random_buffers(contraction, data.draw(st.integers(0, 99)))
    with (
        mock.patch.object(past_caches, "is_past_caches", return_value=True),
        mock.patch.multiple(short_sums, is_past_caches=lambda *_: True),
        mock.patch.multiple(in_order, is_past_caches=lambda *_: True, LONG_ROW=data.draw(st.sampled_from([1, 64]))),
    ):
        chosen = choose_direct_form(normalise(contraction), machine)
        assert not isinstance(chosen, str), chosen
        form = written_in_order(chosen[0], machine)
    got = run_cpu(write_direct_kernel(form), buffers, {}, data.draw(st.integers(1, 2)), True, shift)
    assert_close(contraction, got, buffers, {})


def test_rows_that_begin_anywhere_in_a_line_are_written_one_by_one() -> None:
    contraction = normalise(einsum_contraction("aq,qb->ab", {"a": 3001, "b": 5003, "q": 2}, F32))
    chosen = choose_direct_form(contraction, CPU_AVX512)
    assert not isinstance(chosen, str) and not chosen[0].nontemporal
    form = written_in_order(chosen[0], CPU_AVX512)
    assert (form.nontemporal, form.rows) == (True, 1)


def test_short_sums_are_fed_directly() -> None:
    contraction = normalise(einsum_contraction("aq,qb->ab", {"a": 4000, "b": 4000, "q": 1}, F64))
    chosen = choose_form(contraction, CPU_AVX512)
    assert isinstance(chosen.form, DirectForm) and "more to write than to compute" in chosen.reason


def far(machine: Machine) -> Machine:
    """The machine with a second cache that holds hardly any result."""
    return replace(machine, l2_bytes=1 << 11)


@settings(max_examples=examples(40))
@given(text=st.sampled_from(["aq,qb->ab", "qa,qb->ab", "zaq,zqb->zab"]), data=st.data(),
       machine=st.sampled_from([host_machine(), CPU_AVX512, CPU_NEON]))  # fmt: skip
def test_any_sum_of_few_terms_far_from_the_core(text: str, data: st.DataObject, machine: Machine) -> None:
    sizes = {"q": data.draw(st.integers(3, 13)), "z": data.draw(st.integers(1, 3))}
    sizes |= {"a": data.draw(st.integers(1, 30)), "b": data.draw(st.integers(2, 200))}
    contraction = einsum_contraction(text, sizes, data.draw(st.sampled_from([F32, F64])))
    chosen = choose_direct_form(normalise(contraction), far(machine))
    assert not isinstance(chosen, str)
    form = written_in_order(chosen[0], far(machine))
    buffers = random_buffers(contraction, data.draw(st.integers(0, 99)))
    got = run_cpu(write_direct_kernel(form), buffers, {}, data.draw(st.integers(1, 2)))
    assert_close(contraction, got, buffers, {})


@pytest.mark.parametrize(
    ("machine", "a", "b", "terms", "rows"),
    [(CPU_AVX512, 1000, 1000, 4, 4), (CPU_AVX512, 1000, 1000, 12, 6), (CPU_AVX512, 1000, 1000, 13, None),
     (CPU_AVX512, 300, 300, 4, None), (CPU_AVX512, 5, 100_000, 12, None), (CPU_AVX2, 1000, 1000, 4, None)],
)  # fmt: skip
def test_sums_of_few_terms_are_written_in_order_where_the_second_cache_does_not_hold_them(
    machine: Machine, a: int, b: int, terms: int, rows: int | None
) -> None:
    contraction = normalise(einsum_contraction("aq,qb->ab", {"a": a, "b": b, "q": terms}, F32))
    chosen = choose_direct_form(contraction, machine)
    assert not isinstance(chosen, str)
    form = written_in_order(chosen[0], machine)
    if rows is None:
        assert form is chosen[0]
    else:
        assert (form.rows, len(form.lanes), form.shared_rows) == (rows, VECTORS, 1)
        assert choose_form(contraction, machine).form == form
