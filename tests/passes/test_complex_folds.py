"""Sums of complex numbers of one array read it in order, in vectors, like the rows of a matrix."""

# ruff: noqa: F821  # sizes in annotations are text: tw.f32["n"]

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.passes.contractions.map_folds import fold_of_one_array


@tw.program
def total(x: tw.complex_["n"]):
    return x.sum()


@tw.program
def squares(x: tw.complex_["n"]):
    return (x * x).sum()


@tw.program
def norm(x: tw.complex_["n"]):
    return tw.sqrt((x.real * x.real + x.imag * x.imag).sum())


REFERENCES: dict[Any, Any] = {total: np.sum, squares: lambda x: (x * x).sum(), norm: np.linalg.norm}


@pytest.mark.parametrize("program", REFERENCES, ids=["total", "squares", "norm"])
@given(
    st.sampled_from([0, 1, 3, 15, 16, 17, 255, 5000]),
    st.sampled_from(["c8", "c16"]),
    st.sampled_from([1, 2, -1]),
    st.integers(0, 99),
)
@settings(deadline=None, max_examples=25)
def test_folds_of_complex_numbers(program: Any, count: int, kind: str, step: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    whole = (random.standard_normal(2 * count) + 1j * random.standard_normal(2 * count)).astype(kind)
    x = whole[::step][:count]
    found, wanted = program(x), REFERENCES[program](x)
    assert found.dtype == wanted.dtype
    tolerance = 1e-4 if kind == "c8" else 1e-12
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * max(1, count) ** 0.5)


@pytest.mark.parametrize("threads", [1, 2])
def test_long_sums_are_trees(threads: int) -> None:
    """Ones and a half in c64: a chain would lose them beyond 2**24."""
    x = np.full(1 << 25, 1 + 0.5j, np.complex64)
    with tw.num_threads(threads):
        assert total(x) == (1 << 25) + (1 << 24) * 1j


@pytest.mark.parametrize("kind", ["c8", "c16"])
def test_a_fold_of_complex_numbers_is_one_of_an_array(kind: str) -> None:
    (fold,) = total.trace(kind).body.statements
    assert fold_of_one_array(fold) is not None


def test_real_numbers_have_a_fold_of_their_own() -> None:
    @tw.program
    def sums(x: tw.f32["n"]):
        return x.sum()

    (fold,) = sums.trace("f4").body.statements
    assert fold_of_one_array(fold) is None
