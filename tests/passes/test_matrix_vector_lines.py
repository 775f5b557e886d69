"""Matrices whose rows begin within cache lines, all at the same place: they are read from a line's beginning on."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers
from test_lane_products import guarded

import tilewright as tw
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F32, F64, I32, ScalarType
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.passes.matrix_vector.form import LEAST_TURNED, MatrixVectorForm, Way, choose_matrix_vector_form
from tilewright.passes.matrix_vector.kernel import write_matrix_vector_kernel

TEXTS = ("ak,k->a", "k,ak->a", "ka,k->a", "bak,bk->ba", "bka,bk->ba", "cak,ck->a", "cka,ck->a", "ak,ak->a")


def form_of(text: str, sizes: dict[str, int], scalar: ScalarType = F32) -> MatrixVectorForm:
    form = choose_matrix_vector_form(normalise(einsum_contraction(text, sizes, scalar)), CPU_AVX512)
    assert isinstance(form, MatrixVectorForm)
    return form


FOUND: list[tuple[Way, bool]] = []


@settings(max_examples=examples(60))
@given(
    text=st.sampled_from(TEXTS), scalar=st.sampled_from([F32, F64, I32]), rows=st.sampled_from([3, 8, 16, 19, 36]),
    lines=st.integers(7, 40), others=st.integers(1, 3), shift=st.integers(1, 15), seed=st.integers(0, 99),
    is_least=st.booleans(), more=st.sampled_from([0, 0, 0, 0, 4]),
)  # fmt: skip
def test_bits_are_those_of_rows_that_begin_with_lines(
    text: str, scalar: ScalarType, rows: int, lines: int, others: int, shift: int, seed: int, is_least: bool, more: int
) -> None:
    """Wherever all three arrays begin in a line, of rows that are whole lines and of others."""
    whole = lines * 64 // scalar.bytes + more
    matrix = max(re.split(",|->", text), key=len)
    sizes = {"a": rows, "b": others, "c": others, "k": rows} | {matrix[-1]: whole}
    most = float("inf") if scalar.is_float else 2**31 - 1
    contraction = einsum_contraction(text, sizes, scalar, *(("add", "min", most) if is_least else ("mul", "add", 0)))
    form = choose_matrix_vector_form(normalise(contraction), CPU_AVX512)
    assume(isinstance(form, MatrixVectorForm))
    assert isinstance(form, MatrixVectorForm)
    FOUND.append((form.way, form.turns_lanes if form.way is Way.DOTS else form.begins_with_lines))
    launch = write_matrix_vector_kernel(form)
    buffers = random_buffers(contraction, seed)
    wanted = run_cpu(launch, buffers, {}, aligned=True)
    assert_close(contraction, wanted, buffers, {})
    np.testing.assert_array_equal(run_cpu(launch, buffers, {}, aligned=True, shift=shift), wanted)


def test_random_matrices_were_read_so() -> None:
    """Runs after the one before, whose examples are always the same."""
    if len(FOUND) >= 50:
        assert all(FOUND.count((way, True)) >= 3 for way in Way)


@pytest.mark.parametrize(
    ("text", "shape", "scalar", "apart", "alike"),
    [
        ("ak,k->a", (300, 300), F32, 40, True),
        ("ak,k->a", (260, 260), F64, 34, True),
        ("ak,k->a", (500, 500), F64, 64, True),
        ("ak,k->a", (301, 300), F32, 38, False),  # the last ones would not be computed so
        ("ak,k->a", (300, 304), F32, 38, True),
        ("ak,k->a", (16, 1001), F32, 2, False),  # most rows would be computed twice
        ("ak,k->a", (304, 301), F32, 38, False),
        ("ak,ak->a", (60, 301), F32, 30, False),  # a row has two vectors of sums
        ("ka,k->a", (300, 300), F32, 36, True),
        ("ka,k->a", (300, 300), F64, 36, True),
        ("ka,k->a", (130, 300), F32, 16, True),
        ("ka,k->a", (126, 300), F32, 15, False),  # too many would be left
        ("cka,kc->a", (3, 130, 300), F32, 16, True),
    ],
)
def test_rows_that_begin_alike_are_read_together(
    text: str, shape: tuple[int, ...], scalar: ScalarType, apart: int, alike: bool
) -> None:
    """Every fourth of 300 f32, every second of 500 f64."""
    sizes = dict(zip(text, shape, strict=False))
    contraction = einsum_contraction(text, sizes, scalar)
    form = form_of(text, sizes, scalar)
    assert (form.apart, form.rows_begin_alike) == (apart, alike)
    launch, buffers = write_matrix_vector_kernel(form), random_buffers(contraction, 1)
    wanted = run_cpu(launch, buffers, {}, aligned=True)
    assert_close(contraction, wanted, buffers, {})
    for shift in (1, 4, 15):
        np.testing.assert_array_equal(run_cpu(launch, buffers, {}, 2, aligned=True, shift=shift), wanted)


def test_which_matrices_are_read_so() -> None:
    long = LEAST_TURNED * 16
    assert form_of("ak,k->a", dict(a=100, k=long)).turns_lanes
    assert not form_of("ak,k->a", dict(a=100, k=long - 16)).turns_lanes, "turning lanes takes as long as such rows"
    assert not form_of("ak,k->a", dict(a=100, k=long + 4)).rows_begin_alike, "each row begins elsewhere in a line"
    assert not form_of("ak,k->a", dict(a=2, k=long)).turns_lanes, "a row has several sums in turns"
    sums = form_of("ka,k->a", dict(a=long, k=100))
    assert sums.begins_with_lines and not form_of("ka,k->a", dict(a=long - 16, k=100)).begins_with_lines
    assert sums.way is Way.SUMS and sums.rows_begin_alike and not form_of("ka,k->a", dict(a=100, k=9)).rows_begin_alike
    assert not form_of("ka,k->a", dict(a=long, k=100), C64).rows_begin_alike
    narrow = choose_matrix_vector_form(normalise(einsum_contraction("ka,k->a", dict(a=long, k=100), F32)), CPU_AVX2)
    assert isinstance(narrow, MatrixVectorForm) and not narrow.rows_begin_alike


@pytest.mark.parametrize("text", ["ak,k->a", "ka,k->a"])
@pytest.mark.parametrize("types", [("f4", "c8"), ("c8", "f4"), ("f8", "c16"), ("f4", "f8"), ("i4", "i8")])
def test_operands_of_other_types(text: str, types: tuple[str, str]) -> None:
    """Real matrices and complex vectors among them, whose sums are two vectors each."""
    sizes = dict(a=40, k=256) if text[0] == "a" else dict(a=256, k=40)
    generator = np.random.default_rng(1)
    shapes = (tuple(sizes[letter] for letter in text[:2]), (sizes["k"],))
    matrix, vector = (
        (9 * generator.standard_normal(shape)).astype(one) for shape, one in zip(shapes, types, strict=True)
    )
    wanted = np.einsum(text, matrix.astype("c16"), vector.astype("c16"))
    np.testing.assert_allclose(tw.einsum(text, matrix, vector), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("text", ["ak,k->a", "ka,k->a"])
def test_what_is_no_number_stays_in_its_rows(text: str) -> None:
    """Infinities and nans at either end of a row, wherever it begins in a line."""
    sizes = dict(a=16, k=272) if text[0] == "a" else dict(a=272, k=16)
    for shift in range(16):
        whole = np.full(272 * 16 + shift, np.nan, np.float32)
        matrix = whole[shift:].reshape(sizes[text[0]], sizes[text[1]])
        matrix[...] = 1
        matrix[3, 0], matrix[5, -1], matrix[7, 1] = np.inf, -np.inf, np.nan
        vector = np.ones(sizes["k"], np.float32)
        np.testing.assert_array_equal(tw.einsum(text, matrix, vector), np.einsum(text, matrix, vector))


@pytest.mark.skipif(sys.platform != "linux", reason="pages are protected as on Linux")
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("shift", [0, 4, 13])
@pytest.mark.parametrize("text", ["ak,k->a", "ka,k->a"])
def test_nothing_outside_the_arrays_is_touched(text: str, shift: int, at_end: bool) -> None:
    """The matrix begins or ends `shift` elements from the page, so that only its first and last lines are near one."""
    sizes = {"a": 19, "k": 19} | {text[1]: 320}
    shape = tuple(sizes[letter] for letter in text[:2])
    values = np.random.default_rng(3).standard_normal(19 * 320 + shift).astype(np.float32)
    whole = guarded(values, at_end)
    matrix = (whole[: len(values) - shift] if at_end else whole[shift:]).reshape(shape)
    vector = guarded(np.ones(sizes["k"], np.float32), at_end)
    out = guarded(np.zeros(sizes["a"], np.float32), at_end)
    tw.einsum(text, matrix, vector, out=out)
    np.testing.assert_allclose(out, matrix.sum(axis=text.index("k")), atol=1e-4)
