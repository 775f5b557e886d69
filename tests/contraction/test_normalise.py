"""Each rewrite of the dimension list keeps what the contraction computes; fusion fires exactly where it may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import Case, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import einsum_contraction, evaluate, examples, number

from tilewright.contraction.form import Contraction, Dimension, EpilogueOperand, Kind
from tilewright.contraction.normalise import (
    constant,
    drop_unit_dimensions,
    fuse_dimensions,
    normalise,
    order_dimensions,
    reclassify,
)
from tilewright.ir.scalars import F32, I32
from tilewright.ir.sizes import size

REWRITES = [reclassify, drop_unit_dimensions, fuse_dimensions, order_dimensions, normalise]


def strides(contraction: Contraction, position: int) -> list[int]:
    """How every array moves along a dimension."""
    one = contraction.dimensions[position]
    further = [operand.strides[position] for operand in contraction.epilogue_operands]
    return [number(s) for s in (one.stride_left, one.stride_right, one.stride_out, *further)]


def fusable(contraction: Contraction, outer: int, inner: int) -> bool:
    """Walking the inner dimension to its end is one step along the outer one, in every array."""
    x, y = contraction.dimensions[outer], contraction.dimensions[inner]
    steps = zip(strides(contraction, outer), strides(contraction, inner), strict=True)
    return x.kind is y.kind and all(a == b * number(y.size) for a, b in steps)


def split(contraction: Contraction, position: int, factor: int) -> Contraction:
    """Dimension n of size a*b as two of sizes a and b: the inverse of a fusion."""
    one = contraction.dimensions[position]

    def part(name: str, extent: int, times: int) -> Dimension:
        moved = (s * times for s in (one.stride_left, one.stride_right, one.stride_out))
        return Dimension(name, one.kind, size(extent), *moved)

    def spread(values: tuple, new: tuple) -> tuple:
        return (*values[:position], *new, *values[position + 1 :])

    parts = (part(f"{one.name}x", number(one.size) // factor, factor), part(f"{one.name}y", factor, 1))
    operands = tuple(
        EpilogueOperand(o.operand, spread(o.strides, (o.strides[position] * factor, o.strides[position])))
        for o in contraction.epilogue_operands
    )
    return replace(contraction, dimensions=spread(contraction.dimensions, parts), epilogue_operands=operands)


@pytest.mark.parametrize("rewrite", REWRITES)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_rewrites_keep_the_meaning(rewrite: Callable[[Contraction], Contraction], data: st.DataObject) -> None:
    case: Case = data.draw(cases(I32))
    contraction = case.contraction
    position = data.draw(st.integers(0, len(contraction.dimensions) - 1))
    extent = number(contraction.dimensions[position].size)
    factors = [f for f in range(1, extent + 1) if extent % f == 0]
    if factors and data.draw(st.booleans()):
        contraction = split(contraction, position, data.draw(st.sampled_from(factors)))
    buffers = case.buffers()
    expected = evaluate(contraction, buffers, case.scalars)
    np.testing.assert_array_equal(evaluate(rewrite(contraction), buffers, case.scalars), expected)


@settings(max_examples=examples(60))
@given(data=st.data())
def test_fusion_fires_exactly_on_fusable_pairs(data: st.DataObject) -> None:
    contraction = data.draw(cases(I32, max_dimensions=5)).contraction
    position = data.draw(st.integers(0, len(contraction.dimensions) - 1))
    extent = number(contraction.dimensions[position].size)
    if extent > 1 and extent % 2 == 0:
        contraction = split(contraction, position, 2)
    count = len(contraction.dimensions)
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j and fusable(contraction, i, j)]
    fused = fuse_dimensions(contraction)
    assert (fused == contraction) == (not pairs)
    rest = range(len(fused.dimensions))
    assert not [(i, j) for i in rest for j in rest if i != j and fusable(fused, i, j)]
    if extent > 1 and extent % 2 == 0:
        assert len(fused.dimensions) < count


def test_fusion_of_a_whole_matrix_product() -> None:
    """abc,cde->abde on dense arrays is a matrix product of ab x c and c x de."""
    contraction = normalise(einsum_contraction("abc,cde->abde", dict(a=2, b=3, c=5, d=7, e=11), F32))
    assert [(d.kind, number(d.size)) for d in contraction.dimensions] == [(Kind.M, 6), (Kind.N, 77), (Kind.K, 5)]


def test_a_permuted_output_prevents_fusion() -> None:
    contraction = normalise(einsum_contraction("abc,cde->bade", dict(a=2, b=3, c=5, d=7, e=11), F32))
    assert [number(d.size) for d in contraction.dimensions] == [3, 2, 77, 5]


def test_names_stay_different() -> None:
    """a and b fuse to what another dimension is called already."""
    given_names = einsum_contraction("abcd,de->abce", dict(a=2, b=3, c=5, d=7, e=11), F32)
    dimensions = [replace(d, name={"c": "ab", "e": "abab"}.get(d.name, d.name)) for d in given_names.dimensions]
    moved = replace(dimensions[2], stride_out=size(1000), stride_left=size(1000))
    contraction = replace(given_names, dimensions=(*dimensions[:2], moved, *dimensions[3:]))
    names = [d.name for d in normalise(contraction).dimensions]
    assert len(names) == 4 and len(set(names)) == 4, names


def test_unit_dimensions_go_but_for_one_contracted() -> None:
    contraction = normalise(einsum_contraction("aqp,bqp->ab", dict(a=1, b=4, q=1, p=1), F32))
    assert [(d.kind, number(d.size)) for d in contraction.dimensions] == [(Kind.N, 4), (Kind.K, 1)]


def test_the_output_decides_the_order() -> None:
    contraction = normalise(einsum_contraction("aq,qb->ba", dict(a=5, b=4, q=3), F32))
    assert [d.name for d in contraction.dimensions] == ["b", "a", "q"]


def test_broadcast_operands_change_the_kind() -> None:
    contraction = einsum_contraction("caq,cbq->cab", dict(c=2, a=5, b=4, q=3), F32)
    first = replace(contraction.dimensions[0], stride_left=size(0))
    contraction = reclassify(replace(contraction, dimensions=(first, *contraction.dimensions[1:])))
    assert [d.kind for d in contraction.dimensions] == [Kind.N, Kind.M, Kind.N, Kind.K]


def test_unknown_sizes_are_named() -> None:
    with pytest.raises(ValueError, match="the size n is not known yet; bind the contraction first"):
        constant(size("n"))
