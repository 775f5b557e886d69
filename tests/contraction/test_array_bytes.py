"""How many bytes of its arrays a contraction reads and writes: by the dimensions along which each moves."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tilewright.contraction.form import Contraction, Dimension, Kind, Operand
from tilewright.ir.scalars import F32, F64
from tilewright.ir.sizes import Size, size

NO_FUNCTION: Any = None  # the sizes of arrays do not depend on them


def product(k: Size) -> Contraction:
    """Of a matrix of 3 rows, read backwards, and one of 5 columns, of which all k rows are one."""
    dimensions = (
        Dimension("i", Kind.M, size(3), size(-7), size(0), size(5)),
        Dimension("j", Kind.N, size(5), size(0), size(1), size(1)),
        Dimension("k", Kind.K, k, size(1), size(0), size(0)),
    )
    operands = (Operand("a", F32, size(14)), Operand("b", F32, size(0)), Operand("out", F64, size(0)))
    return Contraction(dimensions, *operands, NO_FUNCTION, NO_FUNCTION, NO_FUNCTION)


def test_arrays_have_the_elements_of_their_dimensions() -> None:
    assert product(size(7)).array_bytes == (3 * 7 * 4, 5 * 4, 3 * 5 * 8)
    assert product(size(0)).array_bytes == (0, 5 * 4, 3 * 5 * 8)


def test_another_contraction_has_bytes_of_its_own() -> None:
    one = product(size(7))
    before = one.array_bytes
    assert dataclasses.replace(one, dimensions=one.dimensions[:2]).array_bytes == (3 * 4, 5 * 4, 3 * 5 * 8)
    assert one.array_bytes == before


def test_sizes_have_to_be_known() -> None:
    with pytest.raises(KeyError, match="n"):
        _ = product(size("n")).array_bytes
