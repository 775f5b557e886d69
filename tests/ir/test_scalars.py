"""Scalar types by dtype."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tilewright.ir.arguments import as_scalar
from tilewright.ir.scalars import F32, scalar_type_of


@pytest.mark.parametrize("given", ["f99", "text", 3.5])
def test_what_is_no_dtype_is_refused_with_those_that_are(given: object) -> None:
    with pytest.raises(TypeError, match=r"is no dtype; supported: bool, i8, .*c128"):
        scalar_type_of(given)


def test_numbers_that_a_type_does_not_reach_are_infinite_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert as_scalar(1e300, F32) == np.inf
        assert as_scalar(-1e300, F32) == -np.inf
        assert type(as_scalar(2, F32)) is np.float32
