"""Places of the greatest of f16: what is carried in f32 does not wait in registers as bytes do."""

import numpy as np
import pytest

import tilewright as tw


@pytest.mark.parametrize("kind", ["f2", "i1", "i2", "f4"])
@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_places_of_narrow_numbers(kind, name):
    @tw.program
    def places(x: tw.array["n", "m"]):  # noqa: F821
        return getattr(np, name)(x), getattr(np, name)(x, axis=1), getattr(np, name)(x, axis=0)

    for shape in ((3, 31), (1, 300), (40, 7)):
        x = np.random.default_rng(shape[0]).integers(-9, 9, shape).astype(kind)
        wanted = getattr(np, name)(x), getattr(np, name)(x, axis=1), getattr(np, name)(x, axis=0)
        for found, one in zip(places(x), wanted, strict=True):
            assert np.array_equal(found, one)
