"""Contractions that must agree with one another: of the same operands elsewhere in memory, and of parts of them.

What is computed of operands that were copied to another order, and what is put together of the results for the first
and the last places of an index, is within the bound of the whole: side by side where the result has the index, and
combined as the semiring adds where it has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from random_contractions import Contraction

import tilewright as tw
from tilewright.runtime.devices import Device

ADDITIONS: dict[str, Callable[..., Any]] = {
    "plus_times": np.add, "min_plus": np.minimum, "max_plus": np.maximum, "max_times": np.maximum,
    "or_and": np.bitwise_or, "log_sum_exp": np.logaddexp,
}  # fmt: skip
ONE_IN = 3
"""Of so many contractions one is computed in these ways too."""


def related(trial: Contraction, device: Device) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    """Each way with its name, for contractions of finite numbers that are not added to anything."""
    if trial.number % ONE_IN or {"beta", "memory_limit"} & trial.options.keys():
        return
    if not all(np.isfinite(one).all() for one in trial.operands):
        return
    options = {**trial.options, "target": device}

    def computed(*operands: np.ndarray) -> np.ndarray:
        return np.asarray(tw.einsum(trial.expression, *operands, **options))

    for order in "CF":
        yield f"operands in order {order}", lambda: computed(*(np.array(one, order=order) for one in trial.operands))  # noqa: B023
    parted = "" if "epilogue" in trial.options else _parted(trial)
    for label in parted[trial.number // ONE_IN % max(1, len(parted)) :][:1]:
        yield f"parts along {label}", lambda: _put_together(trial, label, computed)  # noqa: B023


def _parted(trial: Contraction) -> str:
    """The indices of more than one place that every operand with them has all places of, and the result once."""
    found: dict[str, set[int]] = {}
    for word, one in zip(trial.inputs, trial.operands, strict=True):
        for label, extent in zip(word, one.shape, strict=True):
            found.setdefault(label, set()).add(extent)
    return "".join(
        label for label, extents in sorted(found.items())
        if len(extents) == 1 and max(extents) > 1 and trial.output.count(label) < 2
    )  # fmt: skip


def _put_together(trial: Contraction, label: str, computed: Callable[..., np.ndarray]) -> np.ndarray:
    extent = next(
        one.shape[word.index(label)] for word, one in zip(trial.inputs, trial.operands, strict=True) if label in word
    )
    cut = 1 + trial.number % (extent - 1)

    def both(*operands: np.ndarray) -> Iterator[np.ndarray]:
        for places in (slice(0, cut), slice(cut, None)):
            yield computed(
                *(
                    one[tuple(places if name == label else slice(None) for name in word)]
                    for word, one in zip(trial.inputs, operands, strict=True)
                )
            )

    first, second = both(*trial.operands)
    if label in trial.output:
        return np.concatenate([first, second], trial.output.index(label))
    narrow = first.dtype
    if narrow == np.float16:  # the bound has one rounding to it, that of the whole
        first, second = both(*(one.astype(np.float32) for one in trial.operands))
    add = ADDITIONS[trial.options.get("semiring", "plus_times")]
    if first.dtype.kind == "b":
        add = np.logical_and if add is np.minimum else np.logical_or
    return np.asarray(add(first, second), narrow)
