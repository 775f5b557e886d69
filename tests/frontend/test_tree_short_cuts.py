"""Trees have short cuts for repeated calls where these keep little more than the peak, and the limit allows it."""

from __future__ import annotations

import numpy as np

import tilewright as tw

LAYERS, SIZES = "[[[1,0],[2,1]->[2,0]r],[3,2]->[3,0]r],[4,3]->[4,0]", [64, 96, 80, 48, 32]


def test_a_little_more_than_the_peak_is_kept() -> None:
    plan = tw.plan_tree(LAYERS, SIZES, dtype="f32")
    assert plan.peak_bytes == 4 * 64 * (80 + 48)
    assert plan.quick is not None
    random = np.random.default_rng(0)
    first, *weights = (random.standard_normal(shape).astype("f4") for shape in ((96, 64), (80, 96), (48, 80), (32, 48)))
    hidden = np.maximum(weights[1] @ np.maximum(weights[0] @ first, 0), 0)
    for _ in range(3):
        assert np.allclose(plan(first, *weights), weights[2] @ hidden, atol=1e-3)
    assert plan.quick.entries


def test_limits_are_kept() -> None:
    peak = tw.plan_tree(LAYERS, SIZES, dtype="f32").peak_bytes
    assert tw.plan_tree(LAYERS, SIZES, dtype="f32", memory_limit=peak).quick is None
    assert tw.plan_tree(LAYERS, SIZES, dtype="f32", memory_limit=4 * 64 * (80 + 48 + 32)).quick is not None
    assert tw.plan_tree(LAYERS, [10 * one for one in SIZES], dtype="f32").quick is None
