"""Lists of dimensions at random: those that keep the rules are computed right, all others are refused with a reason."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_support import BINARY, UNARY, check, random_contraction, random_elementwise

from tilewright.contraction.tensor_operation import TensorOperation, TensorOperationError

DTYPES = ("f32", "f64", "c64", "i8", "f32", "f64")
SIZES = (0, -1, 1, 2, 3, 5, 16, 17, 33, 2**31, 2**62, True, 2.0, "4", None)
STRIDES = (0, 1, 2, 3, 7, 16, 64, -1, 2**40, 2**63, 1.5)
PRIMITIVES = (*UNARY, *BINARY, "clamp", "gemm", "brgemm", "contraction", "", None)
MOST_POINTS, MOST_REACH = 200_000, 2_000_000


def lists_of(operation: TensorOperation) -> dict[str, Any]:
    """The arguments of `from_lists` that give this operation."""
    rows = [(one.kind.value, one.execution.value, one.size, *one.strides) for one in operation.dimensions]
    names = ("dim_types", "exec_types", "dim_sizes", "strides_in0", "strides_in1", "strides_out")
    return {
        "dtype": str(operation.dtype),
        "main": operation.main.value,
        "first_touch": operation.first_touch.value,
        "last_touch": operation.last_touch.value,
        "clamp": operation.clamp,
        **{name: [row[place] for row in rows] for place, name in enumerate(names)},
    }


def changed(given_lists: dict[str, Any], r: random.Random) -> None:
    """One thing of them becomes another one."""
    match r.randrange(7):
        case 0:
            given_lists[r.choice(("main", "first_touch", "last_touch"))] = r.choice(PRIMITIVES)
        case 1:
            given_lists["dtype"] = r.choice((*DTYPES, "f16", "bool", "f99"))
        case 2:
            given_lists["clamp"] = r.choice((None, (0, 1), (1, 0), (math.nan, 1), (0.5, math.inf)))
        case 3:
            names = ("dim_types", "exec_types", "dim_sizes", "strides_in0", "strides_in1", "strides_out")
            order = r.sample(range(len(given_lists["dim_types"])), len(given_lists["dim_types"]))
            for name in r.choice((names, names, names[:1], names[1:2])):
                given_lists[name] = [given_lists[name][place] for place in order]
        case 4:
            name = r.choice(("dim_types", "exec_types", "dim_sizes", "strides_in0", "strides_in1", "strides_out"))
            given_lists[name].insert(r.randrange(len(given_lists[name]) + 1), r.choice((1, "M", "seq")))
        case _:
            name = r.choice(("dim_types", "exec_types", "dim_sizes", "strides_in0", "strides_in1", "strides_out"))
            choices: dict[str, tuple[Any, ...]] = {
                "dim_types": ("M", "N", "K", "C", "X", 3),
                "exec_types": ("shared", "seq", "prim", "none", None),
                "dim_sizes": SIZES,
            }
            if given_lists[name]:
                given_lists[name][r.randrange(len(given_lists[name]))] = r.choice(choices.get(name, STRIDES))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from([0, 1, 1, 2, 3]))
def test_random_lists(seed: int, changes: int) -> None:
    r = random.Random(seed)
    mains = [one for one in (*UNARY, *BINARY, "clamp") if one not in ("none", "contraction")]
    if r.random() < 0.6:
        made = random_contraction(seed, r.choice(DTYPES))
    else:
        made = random_elementwise(seed, r.choice(DTYPES[:2]), r.choice(mains))
    given_lists = lists_of(made)
    for _ in range(changes):
        changed(given_lists, r)
    try:
        operation = TensorOperation.from_lists(**given_lists)
    except (TensorOperationError, TypeError, ValueError) as error:
        assert changes and str(error)
        return
    points = math.prod(one.size for one in operation.dimensions)
    if points > MOST_POINTS or max(operation.extents) > MOST_REACH:
        return
    least = r.choice((None, 1, 2, 16))
    try:
        placed = operation.optimise(least, None if least is None else r.choice((None, 16, 64)))
    except (TensorOperationError, ValueError) as error:
        pytest.fail(f"{operation} cannot be placed: {error}")
    for one in (operation, placed):
        if one.is_placed:
            check(one, one.compile("cpu"), seed % 1000)
