# ruff: noqa: F821, UP037
"""Contractions of copies: the same results whatever is copied, and copies only where they spare time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.cli.stages import follow
from tilewright.contraction.form import Contraction
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.machine.paces import MESH, TWO_MULTIPLY_ADDS
from tilewright.passes.contractions import bound_contraction, relaid
from tilewright.passes.contractions.form_choice import FormChoice, choose_form
from tilewright.passes.contractions.relaid import Relaid, relaid_of
from tilewright.passes.direct.choice import direct_forms
from tilewright.passes.direct.form import DirectForm
from tilewright.report.explain import explain_contraction
from tilewright.runtime.cache import MemoryCache

SHARED = ("dca,ac->da", "dca,eac->dea", "mka,ank->mna", "hgfe,hga->afeh", "bij,jbk->ikb", "ab,ba->ab", "xyk,kyx->yx")


def contraction(expression: str, dtype: str = "f32", **sizes: int) -> Contraction:
    (found,) = follow(expression, sizes, dtype).found
    assert isinstance(found, Contraction)
    return found


def copies(expression: str, dtype: str = "f32", **sizes: int) -> list[tuple[str, tuple[int, ...]]]:
    found = relaid_of(contraction(expression, dtype, **sizes), CPU_AVX512)
    return [] if isinstance(found, str) else [(one.array, one.shape) for one in found.copies]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_shared_dimension_becomes_the_innermost_one(dtype: str) -> None:
    assert copies("dca,ac->da", dtype, a=200, c=52, d=67) == [("right", (52, 200))]
    assert copies("mka,ank->mna", dtype, a=5000, k=4, m=4, n=4) == [("right", (4, 4, 5000))]


def test_or_the_outermost_one_where_matrices_are_large() -> None:
    assert copies("mka,akn->mna", a=16, k=128, m=128, n=128) == [("left", (16, 128, 128)), ("out", (16, 128, 128))]


def test_nothing_is_copied_without_need() -> None:
    for expression in ("aq,qb->ab", "bij,bjk->bik", "ijb,jkb->ikb", "iq,iq->i"):
        sizes = dict.fromkeys(sorted(set(expression) - set(",->")), 64)
        assert copies(expression, **sizes) == []


def test_a_copy_is_no_larger_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = dict(a=200, c=52, d=67)
    monkeypatch.setattr(relaid, "MOST_BYTES", 200 * 52 * 4 - 1)
    found = relaid_of(contraction("dca,ac->da", **sizes), CPU_AVX512)
    assert found == "copies would take longer than they spare, or too much memory"


def test_the_choice_is_explained() -> None:
    text = str(explain_contraction(contraction("dca,ac->da", a=200, c=52, d=67), CPU_AVX2))
    assert "copied     first, from " in text
    assert "so that dimension a, which all arrays have, is innermost in each of them" in text
    text = str(explain_contraction(contraction("mka,akn->mna", a=16, k=128, m=128, n=128), CPU_AVX512))
    assert "copied     afterwards, to " in text


SERVER = replace(CPU_AVX512, cores=1, pace=MESH, l2_bytes=2 << 20, l3_bytes=48 << 20)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_results_are_copied_instead_of_being_collected(dtype: str) -> None:
    found = contraction("aebd,ce->dcba", dtype, a=72, b=72, c=24, d=72, e=72)
    server, other = relaid_of(found, SERVER), relaid_of(found, replace(SERVER, pace=TWO_MULTIPLY_ADDS))
    assert isinstance(server, Relaid) and isinstance(other, str)
    assert [(one.array, one.shape) for one in server.copies] == [("out", (24, 72, 72, 72))]
    assert isinstance(server.choice.form, DirectForm) and server.choice.form.collected is None
    text = str(explain_contraction(found, SERVER))
    assert "copied     afterwards, to " in text
    assert "in the operand's order, instead of collecting results along dimension " in text


def test_results_are_not_copied_where_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """139 MB of them, beside operands of 110 MB and beside more memory than that."""
    found = contraction("aebd,ce->dcba", a=72, b=72, c=92, d=72, e=72)
    results, every = found.array_bytes[2], sum(found.array_bytes)
    assert every // 2 < results
    assert relaid_of(found, SERVER) == "no dimension that all arrays have is consecutive in some of them only"
    monkeypatch.setattr(relaid, "MOST_BYTES", results)
    assert isinstance(relaid_of(found, SERVER), Relaid)


def test_copied_results_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random orders of three dimensions of one operand, two of the other one, one or two summed ones, and a shared one
    or none.
    """
    decided: list[Relaid | str] = []

    def collecting(contraction: Contraction, machine: Machine) -> FormChoice:
        """The first form that collects results, of the contraction as it is."""
        forms = [] if contraction.out.buffer.endswith(".out") else direct_forms(contraction, machine)
        first = next((one for one in forms if one.collected is not None), None)
        return choose_form(contraction, machine) if first is None else FormChoice(first, "for the test")

    def copying(contraction: Contraction, machine: Machine) -> Relaid | str:
        decided.append(relaid_of(contraction, replace(machine, pace=replace(machine.pace, copied_results=1e9))))
        return decided[-1]

    @settings(deadline=None, max_examples=60)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        summed, shared = data.draw(st.sampled_from(["k", "kl"])), data.draw(st.sampled_from(["", "z"]))
        left, right = ("".join(data.draw(st.permutations([*own, *summed]))) for own in ("abc", "xy"))
        expression = f"{shared}{left},{shared}{right}->{''.join(data.draw(st.permutations(f'abcxy{shared}')))}"
        sizes = {one: data.draw(st.integers(2, 9)) for one in "abcxyklz"} | {left[-1]: data.draw(st.integers(16, 40))}
        dtype = data.draw(st.sampled_from(["float32", "float64", "int32"]))
        operands = arrays(expression, sizes, dtype, data.draw(st.sampled_from([1, 2])))
        expected = np.einsum(expression, *operands)
        np.testing.assert_array_equal(tw.einsum(expression, *operands), expected)
        np.testing.assert_array_equal(tw.einsum(expression, *operands, order="F"), expected)

    monkeypatch.setattr(relaid, "level_of", lambda nbytes, machine: 4)
    monkeypatch.setattr(relaid, "choose_form", collecting)
    monkeypatch.setattr("tilewright.passes.contractions.contraction_launches.relaid_of", copying)
    monkeypatch.setattr(bound_contraction, "_WRITTEN", MemoryCache(capacity=1))
    check()
    assert sum(isinstance(one, Relaid) for one in decided) >= 10


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> list[Relaid | str]:
    """Whatever can be copied is copied; what was decided is in the list."""
    decided: list[Relaid | str] = []

    def recorded(*arguments: object) -> Relaid | str:
        decided.append(relaid_of(*arguments))  # type: ignore[arg-type]
        return decided[-1]

    monkeypatch.setattr(relaid, "GAIN", float("inf"))
    monkeypatch.setattr("tilewright.passes.contractions.contraction_launches.relaid_of", recorded)
    monkeypatch.setattr(bound_contraction, "_WRITTEN", MemoryCache(capacity=1))
    return decided


def arrays(expression: str, sizes: dict[str, int], dtype: str, seed: int) -> list[np.ndarray]:
    """Operands of small whole numbers, so that every sum is exact; every other one lies backwards or has gaps."""
    rng, found = np.random.default_rng(seed), []
    for labels in expression.split("->", maxsplit=1)[0].split(","):
        shape = [2 * sizes[one] if seed % 3 == 0 else sizes[one] for one in labels]
        array = rng.integers(-4, 5, shape).astype(dtype)
        if np.dtype(dtype).kind == "c":
            array = array + 1j * rng.integers(-4, 5, shape).astype(array.real.dtype)
        array = array[tuple(slice(None, None, 2) for _ in shape)] if seed % 3 == 0 else array
        found.append(array.astype(dtype) if seed % 5 else array[::-1].astype(dtype)[::-1])
    return found


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(SHARED),
    st.sampled_from(["float32", "float64", "complex64", "int32", "int8"]),
    st.lists(st.integers(1, 19), min_size=9, max_size=9),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_results_are_the_same(expression: str, dtype: str, extents: Sequence[int], seed: int, given_out: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relaid, "GAIN", float("inf"))
        patch.setattr(bound_contraction, "_WRITTEN", MemoryCache(capacity=1))
        letters = sorted(set(expression) - set(",->"))
        sizes = dict(zip(letters, extents, strict=False))
        operands = arrays(expression, sizes, dtype, seed)
        expected = np.einsum(expression, *operands)
        plan = tw.plan(expression, *operands)
        out = np.empty([2 * n for n in expected.shape], expected.dtype)[
            tuple(slice(None, None, 2) for _ in expected.shape)
        ]
        result = plan(*operands, out=out) if given_out else plan(*operands)
        np.testing.assert_array_equal(result, expected)


def test_other_algebras_epilogues_and_beta(always: list[Relaid | str]) -> None:
    rng = np.random.default_rng(5)
    left, right, bias = rng.random((21, 9, 33)), rng.random((33, 9)), rng.random(33)
    result = tw.einsum("dca,ac->da", left, right, semiring="min_plus")
    np.testing.assert_array_equal(result, (left + right.T).min(axis=1))
    out = rng.random((21, 33))
    expected = np.maximum(np.einsum("dca,ac->da", left, right) + bias, 4)
    result = tw.einsum(
        "dca,ac->da", left, right, epilogue=lambda t, b: tw.maximum(t + b, 4), epilogue_operands=[(bias, "a")]
    )
    np.testing.assert_allclose(result, expected, rtol=1e-13)
    expected = 2 * np.einsum("dca,ac->da", left, right) + 3 * out
    np.testing.assert_allclose(tw.einsum("dca,ac->da", left, right, out=out, alpha=2, beta=3), expected, rtol=1e-13)
    assert sum(isinstance(one, Relaid) for one in always) == 3


def test_one_array_is_both_operands(always: list[Relaid | str]) -> None:
    array = np.random.default_rng(6).random((17, 17, 17))
    for expression in ("dca,acd->da", "dca,adc->ad"):
        np.testing.assert_allclose(tw.einsum(expression, array, array), np.einsum(expression, array, array), rtol=1e-13)
    assert any(isinstance(one, Relaid) for one in always)


def test_the_same_bits_on_any_number_of_threads(always: list[Relaid | str]) -> None:
    rng = np.random.default_rng(7)
    left, right = rng.random((40, 30, 50)), rng.random((20, 50, 30))
    results = []
    for threads in (1, 2, 3):
        with tw.num_threads(threads):
            results.append(tw.einsum("dca,eac->dea", left, right))
    assert isinstance(always[0], Relaid)
    assert all(np.array_equal(results[0], one) for one in results)


def test_in_programs(always: list[Relaid | str]) -> None:
    @tw.program
    def products(xss: tw.f64["d", "c", "a"], ys: tw.f64["a", "c"]) -> Any:
        return tw.einsum("dca,ac->da", xss, ys)

    left, right = np.ones((30, 20, 40)), np.ones((40, 20))
    assert (products(left, right) == 20).all()
    assert any(isinstance(one, Relaid) for one in always)
