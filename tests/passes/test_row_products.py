"""Products of all rows of one operand with all of the other: which contractions they are, and what they compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import run_cpu, semirings
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

import tilewright as tw
from tilewright.contraction.form import Contraction, Dimension, Kind, Operand
from tilewright.contraction.normalise import normalise
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Type
from tilewright.ir.scalars import C64, C128, F16, F32, F64, I32, ScalarType
from tilewright.ir.sizes import size
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.matrix_vector.form import MatrixVectorForm
from tilewright.passes.matrix_vector.kernel import write_matrix_vector_kernel
from tilewright.passes.matrix_vector.row_products import choose_row_products
from tilewright.report.contraction_text import form_text
from tilewright.report.explain import explain_contraction

MACHINES = [host_machine(), CPU_AVX2, CPU_AVX512, CPU_NEON]
SHORT = st.sampled_from([1, 2, 3, 4, 5, 7, 9])
LONG = st.sampled_from([96, 100, 128, 131, 2100])


@st.composite
def products_of_rows(draw: st.DrawFn) -> Contraction:
    """Dimensions of either side and of both, in any order, and a sum along the unit stride of both."""
    scalar = draw(st.sampled_from([F32, F64, I32, C64, C128]))
    function, combine, neutral = draw(st.sampled_from(sorted(semirings(scalar).items())))[1]
    extra = draw(st.lists(st.sampled_from([Kind.M, Kind.N, Kind.C, Kind.K]), max_size=2))
    kinds = [*draw(st.permutations([Kind.M, Kind.N, *extra])), Kind.K]
    sizes = [*(draw(SHORT) for _ in kinds[1:]), draw(LONG)]
    strides = []
    for missing in (Kind.N, Kind.M, Kind.K):
        order = list(range(len(kinds)))
        if missing is Kind.K:
            order = list(draw(st.permutations(order)))
        total, found = 1, [0] * len(kinds)
        for position in reversed(order):
            if kinds[position] is not missing:
                found[position] = total
                total *= sizes[position] + draw(st.sampled_from([0, 0, 3]))
        strides.append(found)
    dimensions = tuple(
        Dimension(f"d{position}", kind, *map(size, (sizes[position], *(one[position] for one in strides))))
        for position, kind in enumerate(kinds)
    )
    operands = (Operand(name, scalar, size(draw(st.sampled_from([0, 1, 16])))) for name in "ABC")
    b = Builder()
    negated = b.function([Type(scalar)], lambda total: b.apply("neg", total), ("total",))
    return Contraction(dimensions, *operands, function, combine, neutral, draw(st.sampled_from([None, negated])))


@settings(max_examples=examples(100))
@given(contraction=products_of_rows(), machine=st.sampled_from(MACHINES), data=st.data())
def test_any_products_of_rows(contraction: Contraction, machine: Machine, data: st.DataObject) -> None:
    """As chosen, or with another register tile and other blocks, on one thread or two."""
    chosen = choose_row_products(normalise(contraction), machine)
    if isinstance(chosen, str):
        assert chosen
        return
    form = chosen.form
    if data.draw(st.booleans()):
        rows = data.draw(st.integers(1, min(3, form.row_count, form.lanes)))
        form = replace(form, rows=rows, column_tile=data.draw(st.integers(1, min(3, form.column_count))), vectors=1)
    form = replace(form, chunk=data.draw(st.integers(1, form.pieces)), serial=data.draw(st.booleans()))
    buffers = random_buffers(contraction, data.draw(st.integers(0, 99)))
    got = run_cpu(write_matrix_vector_kernel(form), buffers, {}, data.draw(st.integers(1, 2)))
    assert_close(contraction, got, buffers, {})
    assert form.along.name in form_text(form)


@pytest.mark.parametrize("machine", [CPU_AVX2, CPU_AVX512, CPU_NEON], ids=lambda one: one.name)
@pytest.mark.parametrize("scalar", [F32, F64, C64], ids=str)
def test_register_tiles_fit_the_registers(machine: Machine, scalar: ScalarType) -> None:
    for extent in (1, 2, 3, 4, 6, 9, 20):
        contraction = normalise(einsum_contraction("ak,bk->ab", {"a": extent + 1, "b": 5, "k": 3000}, scalar))
        chosen = choose_row_products(contraction, machine)
        if isinstance(chosen, str):
            assert "no vector registers" in chosen
            continue
        form, parts = chosen.form, 2 if scalar.is_complex else 1
        sums = form.rows * form.column_tile * form.vectors
        assert parts * (sums + form.column_tile + 1) <= machine.vector_registers or form.vectors > 1
        assert form.rows <= form.row_count and form.column_tile <= form.column_count


@pytest.mark.parametrize(("text", "sizes", "chosen"), [
    ("ak,bk->ab", {"a": 4, "b": 4, "k": 20_000}, True),
    ("ak,bk->ba", {"a": 3, "b": 12, "k": 20_000}, True),
    ("cak,cbk->cab", {"a": 3, "b": 12, "c": 7, "k": 500}, True),
    ("akl,bkl->ab", {"a": 3, "b": 4, "k": 20, "l": 30}, True),
    ("ak,bk->ab", {"a": 500, "b": 500, "k": 500}, False),  # panels serve many rows
    ("ak,bk->ab", {"a": 4, "b": 4, "k": 40}, False),  # lanes would be folded for hardly any sum
    ("ka,kb->ab", {"a": 4, "b": 4, "k": 20_000}, False),
    ("ka,bk->ab", {"a": 4, "b": 4, "k": 20_000}, False),
])  # fmt: skip
def test_which_contractions_are_products_of_rows(text: str, sizes: dict[str, int], chosen: bool) -> None:
    form = choose_form(normalise(einsum_contraction(text, sizes, F32)), CPU_AVX512).form
    assert (isinstance(form, MatrixVectorForm) and form.columns is not None) == chosen


def test_panels_of_padding_are_not_cheap() -> None:
    """Two columns fill an eighth of a vector: a long sum of four results is fed directly."""
    contraction = normalise(einsum_contraction("ak,kb->ab", {"a": 2, "b": 2, "k": 20_000}, F32))
    assert isinstance(choose_form(contraction, CPU_AVX512).form, DirectForm)


def test_why_others_are_not() -> None:
    for text, scalar, terms, reason in (
        ("ka,kb->ab", F32, 500, "does not run along the rows of both"),
        ("ak,bk->ab", F32, 90, "too short"),
        ("ak,bk->ab", F16, 500, "sums of type f16 are stored as f16"),
    ):
        contraction = normalise(einsum_contraction(text, {"a": 4, "b": 5, "k": terms}, scalar))
        found = choose_row_products(contraction, CPU_AVX512)
        assert isinstance(found, str) and reason in found


def test_explanations_tell_both_sides_rows() -> None:
    found = explain_contraction(einsum_contraction("ak,bk->ab", {"a": 3, "b": 5, "k": 600}, F32), CPU_AVX512)
    assert found.form == "streamed" and "vectors run along the sum in both operands" in found.reason
    assert "each of 5 rows along b with each of 3 along a" in str(found)


@settings(max_examples=examples(40))
@given(rows=st.integers(1, 9), columns=st.integers(1, 9), terms=st.integers(1, 200_000), data=st.data())
def test_long_sums_of_few_results_are_trees(rows: int, columns: int, terms: int, data: st.DataObject) -> None:
    """No value goes through more than 128 additions in a lane, as many for each level of the tree, and some to fold
    lanes, however long the sum is [Higham, Accuracy and Stability, section 4.2]: numbers of one sign add up all errors.
    """
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    a = np.full((rows, terms), 0.1, dtype)
    b = np.full((columns, terms), 0.7, dtype)
    exact = np.longdouble(a[0, 0]) * np.longdouble(b[0, 0]) * terms
    text, operands = data.draw(st.sampled_from([("ik,jk->ij", (a, b)), ("ki,kj->ij", (a.T.copy(), b.T.copy()))]))
    additions = 3 * 256 + 64
    assert np.all(np.abs(tw.einsum(text, *operands) - exact) <= additions * np.finfo(dtype).eps / 2 * exact)
