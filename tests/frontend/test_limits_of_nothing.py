"""Limits of memory, and searched paths, of einsums without any elements."""

import numpy as np
import pytest

import tilewright as tw


def test_empty_operands() -> None:
    assert tw.einsum("fd,df->", np.zeros((0, 3)), np.zeros((3, 0)), memory_limit=32) == 0


@pytest.mark.parametrize("optimize", ["dp", "auto", "auto-hq", ("dp", 10)])
def test_paths_where_an_index_has_no_elements(optimize: object) -> None:
    operands = [np.ones((0, 3)), *(np.ones((3, 3)) for _ in range(5))]
    assert (tw.einsum("ij,jk,kl,lm,mn,no->jo", *operands, optimize=optimize) == np.zeros((3, 3))).all()
