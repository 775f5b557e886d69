"""Products without a sum are contractions with an empty one, written in the output's order; the bits are NumPy's."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

import tilewright as tw
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, I32, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct import in_order
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.in_order import TILE, form_in_order
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.passes.items.scalar_values import LoweringError

TEXTS = ["a,b->ab", "a,b->ba", "za,zb->zab", "az,bz->abz", "az,bz->zab", "xa,yb->xyab", "xa,yb->axby", "xa,b->xab",
         "a,yb->yba", "zxa,zyb->zxyab", "xaz,ybz->xyabz",
         "xa,a->xa", "a,xa->xa", "ax,a->ax", "a,ax->xa", "zxa,za->zxa", "zxa,zx->zxa", "xza,za->xza"]  # fmt: skip
MACHINES = [host_machine(), CPU_AVX2, CPU_AVX512, CPU_NEON]


@st.composite
def products(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """An outer product and its sizes; the output's rows are longer than the other dimensions."""
    text = draw(st.sampled_from(TEXTS))
    sizes = {label: draw(st.integers(1, 9)) for label in "zxyab"}
    row = text[-1]
    sizes[row] = draw(st.one_of(st.integers(1, 40), st.integers(1, 300), st.sampled_from([64, 128, 256])))
    return text, {label: sizes[label] for label in dict.fromkeys(text) if label.isalpha()}


@settings(max_examples=examples(150))
@given(product=products(), element=st.sampled_from([F32, F64, I32]), machine=st.sampled_from(MACHINES),
       past=st.booleans(), long_row=st.sampled_from([1, 64]), shift=st.integers(0, 20), data=st.data())  # fmt: skip
def test_any_outer_product(
    product: tuple[str, dict[str, int]],
    element: ScalarType,
    machine: Machine,
    past: bool,
    long_row: int,
    shift: int,
    data: st.DataObject,
) -> None:
    contraction = einsum_contraction(*product, element)
    ready = normalise(contraction)
    with mock.patch.multiple(in_order, is_past_caches=lambda *_: past, LONG_ROW=long_row):
        form = form_in_order(ready, machine)
    if isinstance(form, str):
        assert "unit stride" in form or "not consecutive" in form, form
        return
    assert len(form.lanes) * form.rows <= TILE
    buffers = random_buffers(contraction, data.draw(st.integers(0, 99)))
    got = run_cpu(write_direct_kernel(form), buffers, {}, data.draw(st.integers(1, 2)), True, shift)
    assert_close(contraction, got, buffers, {})


def multiplied(text: str, *operands: np.ndarray) -> np.ndarray:
    """The product of broadcast arrays (NumPy's `einsum` may add it to 0, which loses the sign of -0.0)."""
    inputs, output = text.split("->")
    spread = []
    for labels, array in zip(inputs.split(","), operands, strict=True):
        ordered = array.transpose([labels.index(one) for one in output if one in labels])
        spread.append(ordered[tuple(slice(None) if one in labels else None for one in output)])
    return np.multiply(*spread)


@settings(max_examples=examples(60), deadline=None)
@given(product=products(), dtype=st.sampled_from(["f4", "f8", "i4", "i8"]), seed=st.integers(0, 99),
       turned=st.booleans())  # fmt: skip
def test_einsum_gives_the_bits_of_products(
    product: tuple[str, dict[str, int]], dtype: str, seed: int, turned: bool
) -> None:
    text, sizes = product
    generator = np.random.default_rng(seed)
    special = np.array(
        [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-310] if dtype[0] == "f" else [0, -3, 7, 2**30]
    )
    shapes = [tuple(sizes[label] for label in labels) for labels in text.split("->")[0].split(",")]
    with np.errstate(all="ignore"):
        operands = [generator.choice(special, shape).astype(dtype) for shape in shapes]
        if turned:
            operands = [np.asfortranarray(one) for one in operands]
        expected = multiplied(text, *operands)
    got = tw.einsum(text, *operands)
    np.testing.assert_array_equal(got, expected)
    if dtype[0] == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(expected)[numbers])


def test_maps_of_two_arrays_are_outer_products() -> None:
    @tw.program
    def spread(x: tw.f64["a"], y: tw.f64["b"], scale: tw.f64):
        return tw.map(lambda s: tw.map(lambda t: tw.maximum(s - t, 0.0) * scale, y), x)

    x, y = np.linspace(-1, 1, 37), np.linspace(0, 2, 53)
    np.testing.assert_array_equal(spread(x, y, 3.0), np.maximum(x[:, None] - y, 0) * 3.0)
    assert "a contraction over a:M[a], b:N[b]" in spread.explain()


@pytest.mark.parametrize("sizes", [{"a": 0, "b": 5}, {"a": 5, "b": 0}, {"a": 1, "b": 1}, {"a": 1, "b": 5}])
def test_outer_products_without_points_or_of_one(sizes: dict[str, int]) -> None:
    x, y = np.arange(float(sizes["a"])), np.arange(float(sizes["b"]))
    np.testing.assert_array_equal(tw.einsum("a,b->ab", x, y), np.multiply.outer(x, y))


def test_short_rows_are_tiles_and_long_ones_are_cut() -> None:
    def form(text: str, **sizes: int) -> DirectForm:
        chosen = choose_form(normalise(einsum_contraction(text, sizes, F64)), CPU_AVX512).form
        assert isinstance(chosen, DirectForm)
        return chosen

    short = form("za,zb->zab", z=50, a=9, b=20)
    assert (short.lanes, short.rows) == ((8, 8, 4), 2)
    long = form("a,b->ab", a=100, b=1000)
    assert (set(long.lanes), long.rows, long.scalar_outer) == ({8}, 1, True)
    assert math.ceil(1000 / long.width) * long.width - 1000 < 64


def test_rows_go_past_the_caches_where_they_are_long_or_all_begin_with_a_line() -> None:
    def past(a: int, b: int) -> tuple[bool, bool]:
        form = form_in_order(normalise(einsum_contraction("a,b->ab", {"a": a, "b": b}, F64)), CPU_AVX512)
        assert isinstance(form, DirectForm)
        return form.nontemporal, form.realigned

    assert past(5000, 5003) == (True, True)
    assert past(100_000, 128) == (True, False)
    assert past(100_000, 125) == (False, False)
    assert past(100, 5003) == (False, False)


@pytest.mark.parametrize(("b", "in_order"), [(5003, True), (4000, True), (7, False)])
def test_sums_of_one_term_past_the_caches_are_written_in_order(b: int, in_order: bool) -> None:
    contraction = normalise(einsum_contraction("aq,qb->ab", {"a": 4000, "b": b, "q": 1}, F64))
    chosen = choose_form(contraction, CPU_AVX512)
    assert ("in the output's order" in chosen.reason) == in_order
    assert not in_order or (isinstance(chosen.form, DirectForm) and chosen.form.in_lines)


def test_long_functions_are_left_to_the_general_kernel() -> None:
    @tw.program
    def long(x: tw.f64["a"], y: tw.f64["b"]):
        def value(s, t):
            total = s
            for _ in range(12):
                total = total * t + s
            return total

        return tw.map(lambda s: tw.map(lambda t: value(s, t), y), x)

    x, y = np.linspace(-1, 1, 7), np.linspace(0, 1, 9)
    expected = np.broadcast_to(x[:, None], (7, 9))
    for _ in range(12):
        expected = expected * y + x[:, None]
    np.testing.assert_allclose(long(x, y), expected, rtol=24 * np.finfo(float).eps, atol=1e-14)


def test_elements_without_a_direct_form_are_declined() -> None:
    with pytest.raises(LoweringError, match="not fed directly: dimension b, which all arrays have"):
        choose_form(normalise(einsum_contraction("ba,bc->acb", {"a": 3, "b": 4, "c": 5}, F64)), CPU_AVX512)
