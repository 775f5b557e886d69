"""Arguments in the order of other packages, and of other types, are refused with what is meant."""

# sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw


@tw.program
def body_first(x: tw.f64, k: tw.i64) -> Any:
    return tw.loop(k, lambda i, y: y * 2, x)


@tw.program
def condition_and_body_first(x: tw.f64) -> Any:
    return tw.while_loop(lambda y: y < 10, lambda y: y * 2, x)


def test_loops_with_their_body_first_tell_the_order() -> None:
    with pytest.raises(TypeError, match=r"in program body_first: .* is a function; .* loop\(count, initial, body\)"):
        body_first(1.0, 3)
    with pytest.raises(TypeError, match=r"is a function; the arguments are while_loop\(condition, initial, body\)"):
        condition_and_body_first(1.0)


@pytest.mark.parametrize("number", ["a", 2.0, None, [2], True, np.True_])
def test_a_number_of_threads_is_an_integer(number: Any) -> None:
    with pytest.raises(TypeError, match=r"the number of threads is .* of type \w+; it must be an integer"):
        tw.set_num_threads(number)
    with pytest.raises(TypeError, match="it must be an integer"), tw.num_threads(number):
        pass
    with tw.num_threads(np.int64(1)):
        assert tw.get_num_threads() == 1
