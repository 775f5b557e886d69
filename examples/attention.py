"""Causal attention with a learned bias for each distance between two tokens, as one program of two contractions.

python examples/attention.py --size medium
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, main, rounding

import tilewright as tw

_SIZES = {"tiny": (2, 9, 4), "small": (4, 64, 32), "medium": (8, 512, 64), "large": (16, 1024, 64)}
_FURTHEST = 16


@tw.program
def attention(
    queries: tw.f32["h", "t", "d"], keys: tw.f32["h", "t", "d"], values: tw.f32["h", "t", "d"], bias: tw.f32["h", "r"]
) -> Any:
    """Heads, tokens, features; what is further apart than the bias goes has that of the furthest."""
    token, furthest = tw.iota(queries.shape[1]), bias.shape[1] - 1
    distance = np.clip(token[:, None] - token, 0, furthest)
    scores = tw.einsum("htd,hsd->hts", queries, keys) / queries.shape[2] ** 0.5 + bias[:, distance]
    scores = np.where(token <= token[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return tw.einsum("hts,hsd->htd", weights / weights.sum(axis=2, keepdims=True), values)


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(*size) for name, size in _SIZES.items()}


def _arguments(heads: int, tokens: int, features: int) -> Arguments:
    rng = np.random.default_rng(8)
    shapes = [(heads, tokens, features)] * 3 + [(heads, _FURTHEST + 1)]
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)


def work(queries: Any, *_: Any) -> dict[str, float]:
    heads, tokens, features = queries.shape
    return {"flops": 4.0 * heads * tokens * tokens * features}


def reference(queries: Any, keys: Any, values: Any, bias: Any) -> Any:
    """An error of e in the scores is one of 2 e in the weights, relative to them."""
    queries, keys, values, bias = (one.astype(np.float64) for one in (queries, keys, values, bias))
    token = np.arange(queries.shape[1])
    scores = np.einsum("htd,hsd->hts", queries, keys) / queries.shape[2] ** 0.5
    scores += bias[:, np.clip(token[:, None] - token, 0, bias.shape[1] - 1)]
    weights = np.where(token <= token[:, None], np.exp(scores - scores.max(axis=2, keepdims=True)), 0)
    weights /= weights.sum(axis=2, keepdims=True)
    largest = np.einsum("htd,hsd->hts", abs(queries), abs(keys)).max() / queries.shape[2] ** 0.5 + abs(bias).max()
    error = 2 * rounding(queries.shape[2] + 4, np.float32) * largest + rounding(2 * len(token) + 10, np.float32)
    return [(weights @ values, error * (weights @ abs(values)))]


references = {"attention": reference}

if __name__ == "__main__":
    sys.exit(main(globals()))
