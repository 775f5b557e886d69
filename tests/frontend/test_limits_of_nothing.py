"""Limits of memory of einsums without any elements."""

import numpy as np

import tilewright as tw


def test_empty_operands() -> None:
    assert tw.einsum("fd,df->", np.zeros((0, 3)), np.zeros((3, 0)), memory_limit=32) == 0
