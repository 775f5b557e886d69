"""Long sums in contractions are trees: their loops, that nothing is lost or added twice, and their errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.passes.items.sum_trees import FAN, PIECE, PieceLoop, levels_of, tree_loops

EPS = float(np.finfo(np.float32).eps)


def run(loops: Sequence[PieceLoop], extents: Sequence[int]) -> Iterator[tuple[int, ...] | int]:
    """What the loops do: the indices of values that are added, and the levels whose nodes end."""

    def descend(
        number: int, at: tuple[int, ...], ranges: dict[int, tuple[int, int]]
    ) -> Iterator[tuple[int, ...] | int]:
        if number == len(loops):
            yield at
            return
        one = loops[number]
        start, stop = ranges.get(one.position, (0, extents[one.position]))
        again = number + 1 < len(loops) and loops[number + 1].position == one.position
        for index in range(start, stop, one.step):
            if again:
                inside = {**ranges, one.position: (index, min(index + one.step, extents[one.position]))}
                yield from descend(number + 1, at, inside)
            else:
                yield from descend(number + 1, (*at, index), ranges)
            if one.ends is not None:
                yield one.ends

    yield from descend(0, (), {})


@given(st.lists(st.integers(1, 900), min_size=1, max_size=3), st.sampled_from([2, 5, PIECE]))
@settings(deadline=None, max_examples=60)
def test_loops_take_every_value_once_and_in_order(extents: list[int], piece: int) -> None:
    while math.prod(extents) > 100_000:
        extents[extents.index(max(extents))] //= 7
    loops = tree_loops(extents, piece)
    levels = [0] * (levels_of(loops) + 1)
    taken: list[tuple[int, ...]] = []
    most = 0
    for one in run(loops, extents):
        if isinstance(one, tuple):
            taken.append(one)
            levels[0] += 1
        else:
            levels[one], levels[one + 1] = 0, levels[one + 1] + 1
        assert levels[0] <= 2 * piece
        most = max(most, *levels[1:], 0)
    assert taken == list(np.ndindex(*extents))
    assert most <= FAN
    assert levels_of(loops) == 0 or levels[:-1] == [0] * (len(levels) - 1), "something is left below the top"


SUMS = ["i,i->", "ij->j", "ij->i", "ij,i->j", "ij,j->i", "ij,ij->j", "ij,ij->i", "ki,kj->ij", "ik,jk->ij"]
SUMS += ["ijk->k", "ijk->ik", "ijk,ijl->kl", "kij,lij->kl", "ij,ji->"]


def shapes_of(subscripts: str, long: int, short: int) -> list[tuple[int, ...]]:
    """Shapes in which the contracted indices together have about `long` points and all others `short`."""
    operands, _, result = subscripts.partition("->")
    contracted = sorted(set(operands) - set(result) - {","})
    each = max(1, round(long ** (1 / len(contracted))))
    sizes = {index: each if index in contracted else short for index in operands}
    return [tuple(sizes[index] for index in one) for one in operands.split(",")]


@pytest.mark.parametrize("subscripts", SUMS)
@pytest.mark.parametrize(("short", "equal"), [(3, True), (24, True), (24, False)])
def test_errors_of_long_sums_in_einsum_are_those_of_trees(subscripts: str, short: int, equal: bool) -> None:
    """A tree of nodes of b values adds each value b log_b(n) times at most, which is how many units of the sum of the
    magnitudes it may err by; a chain of so many tenths is off by thousands of eps.
    """
    long = 250_000
    shapes = shapes_of(subscripts, long, short)
    random = np.random.default_rng(short)
    first, *others = (np.full(one, 0.1, "f4") if equal else random.random(one, "f4") for one in shapes)
    operands = [first, *(np.ones_like(one) for one in others)]
    wanted = np.einsum(subscripts, *(one.astype("f8") for one in operands), optimize=True)
    error = np.max(np.abs(tw.einsum(subscripts, *operands) - wanted) / wanted) / EPS
    assert error <= 8 * math.log2(long), f"{error:.0f} eps"


@given(
    st.sampled_from(SUMS),
    st.sampled_from([511, 512, 513, 1024, 1100, 4095, 8200, 33_000]),
    st.sampled_from([1, 2, 5, 16, 33, 65]),
    st.sampled_from(["f4", "f8"]),
)
@settings(deadline=None, max_examples=30)
def test_long_sums_of_small_integers_are_exact(subscripts: str, long: int, short: int, dtype: str) -> None:
    random = np.random.default_rng(long + short)
    operands = [random.integers(-2, 3, one).astype(dtype) for one in shapes_of(subscripts, long, short)]
    np.testing.assert_array_equal(tw.einsum(subscripts, *operands), np.einsum(subscripts, *operands, optimize=True))


def test_the_number_of_threads_changes_no_bit() -> None:
    random = np.random.default_rng(5)
    for subscripts, short in (("ij->j", 200), ("ij,j->i", 40), ("ki,kj->ij", 24)):
        operands = [random.normal(size=one).astype("f4") for one in shapes_of(subscripts, 30_000, short)]
        found = set()
        for threads in (1, 2, 3):
            with tw.num_threads(threads):
                found.add(np.asarray(tw.einsum(subscripts, *operands)).tobytes())
        assert len(found) == 1, subscripts
