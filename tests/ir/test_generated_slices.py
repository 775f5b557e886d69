"""Slices of random programs: none has a size that is known to be negative."""

from random import Random

import pytest
from random_programs.generator import Generator
from random_programs.idioms import emit_slices

from tilewright.ir.nodes import array
from tilewright.ir.scalars import F64


@pytest.mark.parametrize("extent", [1, 2, 3, "n"])
def test_stencils_of_slices_have_no_negative_size(extent: int | str) -> None:
    """Found by a random program: an array of one element was cut to -1 elements, and that was reshaped."""
    made = []
    for seed in range(9):
        g = Generator(Random(seed))
        with g.inside([g.b.variable("a", array(F64, extent))]):
            emit_slices(g)
            made += [length for one in g.scopes[-1][1:] for length in one.type.shape]
    assert all(length.constant is None or length.constant >= 0 for length in made)
    assert made or extent == 1
