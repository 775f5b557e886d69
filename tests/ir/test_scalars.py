"""Scalar types by dtype."""

from __future__ import annotations

import pytest

from tilewright.ir.scalars import scalar_type_of


@pytest.mark.parametrize("given", ["f99", "text", 3.5])
def test_what_is_no_dtype_is_refused_with_those_that_are(given: object) -> None:
    with pytest.raises(TypeError, match=r"is no dtype; supported: bool, i8, .*c128"):
        scalar_type_of(given)
