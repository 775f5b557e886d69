"""Names that a tensor operation does not know, and texts that are none."""

from __future__ import annotations

import pytest

from tilewright import TensorDimension, TensorOperation


def test_unknown_names_are_told_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"^'Q' is not a valid Kind; there are M, N, K, C$"):
        TensorDimension("Q", "prim", 3, 1, 1, 1)
    with pytest.raises(ValueError, match=r"^'gpu' is not a valid Execution; there are prim, shared, seq$"):
        TensorDimension("M", "gpu", 3, 1, 1, 1)
    with pytest.raises(ValueError, match=r"^'cube' is not a valid Primitive; there are none, zero, copy, .*, brgemm"):
        TensorOperation("f32", "cube", ())


def test_a_text_that_is_no_json_is_said_to_be_none() -> None:
    with pytest.raises(ValueError, match=r"^the text of a tensor operation is not JSON: Expecting value: line 1"):
        TensorOperation.from_json("gemm")
