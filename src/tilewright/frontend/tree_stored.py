"""Contraction trees, and einsums within a limit of memory, that an earlier process compiled: read without the compiler.

A record (`einsum_stored`) is of one call: tree, sizes and limit beside all that an einsum's record is of. Only what
runs as one program on the operands' own memory has one: no slices, no casts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.frontend.einsum_arrays import Array
from tilewright.frontend.einsum_quick import QuickCalls
from tilewright.frontend.einsum_stored import StoredEinsum, record_key, store_flat_plan, stored_einsum
from tilewright.runtime.flat_plan import FlatPlan

if TYPE_CHECKING:  # imported when a tree is planned
    from tilewright.frontend.tree_plan import TreePlan

_PLAIN = (bool, int, str, type(None), type(Ellipsis))


class StoredTree:
    """What `TreePlan` is to a compiled tree, to one from the disk, for operands of the recorded forms."""

    def __init__(self, stored: StoredEinsum) -> None:
        """Of a record that has been read."""
        self._stored = stored

    @property
    def quick(self) -> QuickCalls:
        """The short cuts for repeated calls."""
        return self._stored.quick

    def __call__(self, *arrays: Array, out: Array | None = None) -> Any:
        """As of `TreePlan`, which also tells what is wrong with an `out`."""
        if out is not None and not out.flags.writeable:
            return self._stored.run_compiled(arrays, out)
        return self._stored.run(arrays, out)


class _Run:
    """A call that is compiled after all, as `StoredEinsum` asks for it."""

    quick = None

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run

    def run(self, arrays: Sequence[Array], out: Array | None) -> Any:
        return self._run(*arrays, out=out)


def is_plain(value: Any) -> bool:
    """Whether the text of a value, of sizes say, tells all of it.

    >>> is_plain(("sequence", 2, 3)), is_plain({"i": np.int64(2)}), is_plain((("i", 2.5),)), is_plain([max])
    (True, True, False, False)
    """
    if isinstance(value, Mapping):
        return is_plain(tuple(value.items()))
    if type(value) in (tuple, list):
        return all(map(is_plain, value))
    return type(value) in _PLAIN or isinstance(value, np.integer)


def record_of(
    kind: str, asked: tuple[Any, ...], arrays: Sequence[Array], out: Array | None, dtype: Any, place: Any
) -> tuple[str, ...] | None:
    """The key on the disk of a call on the CPU, or None if it has no record.

    Args:
        kind: what is called.
        asked: all that the call gives beside dtype, target and arrays.
        arrays, out: of the call.
        dtype: to compute in.
        place: the target.
    """
    if not is_plain(asked):
        return None
    key = record_key((kind, dtype, None, "safe", True, "plus_times", None, (), 1, 0, place, ()), arrays, out)
    return None if key is None else (kind, repr(asked), *key)


def stored_tree(key: tuple[str, ...], compiled: Callable[[], Callable[..., Any]]) -> StoredTree | None:
    """The tree of a record; None if there is none. `compiled` gives what runs other calls: `run(*arrays, out=out)`."""
    found = stored_einsum(key, lambda: _Run(compiled()))
    return None if found is None else StoredTree(found)


def store_tree(
    key: tuple[str, ...], plan: TreePlan, arrays: Sequence[Array], result: Any, positions: Sequence[int] | None = None
) -> None:
    """Keep a tree that has been run on these arrays, if it is simple enough.

    `positions`: for each of the arrays which operand of the call it is, in the order of the tree by default.
    """
    flat = None if plan.quick is None else plan.flat_plan(arrays, result if plan.shape else None)
    if flat is None or plan.dtype.numpy.isbuiltin != 1:
        return
    facts = {
        "shape": plan.shape,
        "axes": plan.axes,
        "dtype": plan.dtype.numpy.str,
        "points": plan.flops,
        "updates": False,
        "copied": False,
    }
    store_flat_plan(key, flat if positions is None else in_order(flat, positions), facts)


def in_order(plan: FlatPlan, positions: Sequence[int]) -> FlatPlan:
    """The plan of operands in another order: what was operand n is operand `positions[n]`."""
    masks = list(plan.masks)
    for number, position in enumerate(positions):
        masks[position] = plan.masks[number]
    numbers = (*positions, *range(len(positions), len(masks) + len(plan.temporaries)))
    launches = tuple(one._replace(buffers=tuple(numbers[n] for n in one.buffers)) for one in plan.launches)
    return FlatPlan(tuple(masks), plan.temporaries, launches)
