"""Operands whose dtypes meet in none, such as bf16 and f16: told which they are, and with what to write.

From version 0.7 of ml_dtypes on all of these meet in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

BF16 = tw.empty(0, "bf16").dtype
ONES = np.ones((3, 3))


def met(other: str) -> np.dtype[Any] | None:
    """The dtype in which bf16 and another one meet in NumPy; None if there is none."""
    try:
        return np.promote_types(BF16, other)
    except TypeError:
        return None


@pytest.mark.parametrize(("other", "wide"), [("float16", "f4"), ("int32", "f8"), ("uint16", "f4"), ("int64", "f8")])
@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda a, b, **options: tw.einsum("ij,jk->ik", a, b, **options), ("operand 0", "operand 1")),
        (
            lambda a, b, **options: tw.einsum("ij,jk,kl->il", a, a, b, memory_limit=10**6, **options),
            ("operand 0", "operand 2"),
        ),
        (lambda a, b, **options: tw.einsum_tree("[0,1],[1,2]->[0,2]", None, [a, b], **options), ("input 0", "input 1")),
    ],
)
def test_they_are_named_with_a_dtype_that_takes_both(
    other: str, wide: str, call: Callable[..., Any], names: tuple[str, str]
) -> None:
    a, b = ONES.astype(BF16), ONES.astype(other)
    message = (
        f"{names[0]} of dtype bfloat16 and {names[1]} of dtype {other} have no dtype in common in NumPy; give "
        f"dtype='{wide}', to which all of them may be cast"
    )
    if met(other) is None:
        with pytest.raises(TypeError, match=message) as caught:
            call(a, b)
        assert type(caught.value) is TypeError
    else:
        assert call(a, b).dtype == met(other)
    found = call(a, b, dtype=wide)
    assert found.dtype == np.dtype(wide)
    assert (found == found[0, 0]).all()


def test_an_out_is_named_too() -> None:
    a = ONES.astype(BF16)
    message = "operand 0 of dtype bfloat16 and out of dtype float16 have no dtype in common"
    if met("float16") is not None:
        message = "the result has dtype float32, which may not be cast to out's dtype float16"
    with pytest.raises(TypeError, match=message):
        tw.einsum("ij,jk->ik", a, a, out=np.empty((3, 3), np.float16))


@pytest.mark.parametrize(
    ("casting", "dtype", "rules"),
    [
        ("safe", "f4", "'same_kind' or 'unsafe'"),
        ("no", "f4", "'same_kind' or 'unsafe'"),
        ("safe", "i4", "'unsafe'"),
        ("same_kind", "i4", "'unsafe'"),
    ],
)
def test_a_refused_cast_is_told_with_the_rules_that_allow_it(casting: str, dtype: str, rules: str) -> None:
    with pytest.raises(TypeError, match=f"by the rule '{casting}'; casting={rules} allows it$"):
        tw.einsum("ij->ji", ONES, dtype=dtype, casting=casting)


def test_a_refused_cast_that_loses_nothing_is_told_so() -> None:
    with pytest.raises(TypeError, match=r"by the rule 'equiv'; casting='safe' or 'same_kind' or 'unsafe' allows it$"):
        tw.einsum("ij->ji", ONES.astype(np.float32), dtype="f8", casting="equiv")
