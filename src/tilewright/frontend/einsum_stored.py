"""Einsums that an earlier process compiled: taken from the disk, they run without the compiler being imported.

A record is of one call: expression, options, dtypes, shapes and strides of all arrays, the number of threads, and
everything that compiled programs depend on (`runtime.fingerprint`). Calls with epilogues, custom semirings, tiles,
several devices or unusual dtypes have no record (the first two: `contraction_stored`); nor has anything while
TILEWRIGHT_VERIFY asks for the compiler's work to be checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.frontend.einsum_arrays import Array, empty_result, fresh_strides, held_by, large_result
from tilewright.frontend.einsum_quick import QuickCalls, with_first
from tilewright.runtime.cache import default_disk_cache
from tilewright.runtime.environment import is_on
from tilewright.runtime.fingerprint import fingerprint
from tilewright.runtime.flat_plan import FlatPlan, FlatRunner, Unfit, flat_runner, updating
from tilewright.runtime.plan_record import store_plan, stored_plan
from tilewright.runtime.thread_count import get_num_threads

if TYPE_CHECKING:  # the compiler is imported when something is compiled
    from typing import Protocol

    from tilewright.frontend.einsum_bind import BoundEinsum
    from tilewright.frontend.einsum_quick import QuickView

    class Compiled(Protocol):
        """A `BoundEinsum`, or what runs calls as one does."""

        @property
        def quick(self) -> QuickCalls | QuickView | None:
            """Short cuts for repeated calls."""

        def run(self, arrays: Sequence[Array], out: Array | None) -> Any:
            """The result."""


_MOST_TEMPORARIES = 64 << 20  # bytes: stored plans keep all temporary arrays until they are done
_CPU = (None, "", b"", "cpu", b"cpu")


class StoredEinsum:
    """What `BoundEinsum` is to a compiled einsum, to one from the disk."""

    def __init__(self, plan: FlatPlan, facts: dict[str, Any], compiled: Callable[[], Compiled]) -> None:
        """Of a record; `compiled` gives the einsum compiled anew, for calls that the record does not serve."""
        self.shape, self.axes = tuple(map(int, facts["shape"])), tuple(map(int, facts["axes"]))
        self.dtype: np.dtype[Any] = np.dtype(np.dtype(str(facts["dtype"])).type)
        strides = fresh_strides(self.shape, self.dtype.itemsize, self.axes)
        large = large_result(self.shape, self.dtype, self.axes)
        self._copies_out = bool(facts["copied"])  # what `out` held, which kernels read after they have begun to write
        points = int(facts["points"])
        updates = bool(facts["updates"])
        self.quick = QuickCalls(lambda arrays, result: plan, strides, points, large, updates, self._copies_out)
        self.calls = int(facts.get("calls", 0))  # after which it is worth kernels of its own (`einsum_hurried`)
        self._plan = plan
        self._threads = get_num_threads()  # which the kernels share their work among; fewer may run them
        self._runner: FlatRunner | None = None
        self._compiled = compiled
        self._bound: Compiled | None = None

    def run(self, arrays: Sequence[Array], out: Array | None) -> Any:
        """The result for operands of the recorded forms; `out` has been checked."""
        for entry in self.quick.entries:
            found = entry(*arrays, out)
            if found is not None:
                return found
        if get_num_threads() > self._threads:
            return self.run_compiled(arrays, out)
        result = empty_result(self.shape, self.dtype, self.axes) if out is None else out
        read = (*arrays, held_by(result)) if self._copies_out else arrays
        every = (*read, result)
        if self._runner is None:
            self._runner = flat_runner(self._plan, every)
        try:
            self._runner(every)
        except Unfit:
            return self.run_compiled(arrays, out)
        self.quick.learn(read, result if self.shape else None, result)
        return result if self.shape else result[()]

    def run_compiled(self, arrays: Sequence[Array], out: Array | None) -> Any:
        """The result by the einsum compiled anew."""
        if self._bound is None:
            self._bound = self._compiled()
        result = self._bound.run(arrays, out)
        learned = self._bound.quick
        if learned is not None and learned.entries:
            self.quick.entries = with_first(learned.entries[0], self.quick.entries)
        return result


def record_key(key: tuple[Any, ...], arrays: Sequence[Array], out: Array | None) -> tuple[str, ...] | None:
    """The key on the disk of a call whose key in memory ends with its options, or None if it has no record."""
    dtype, order, casting, optimize, semiring, epilogue, labels, alpha, beta, place, tiles = key[-11:]
    options = (order, casting, optimize, semiring, alpha, beta)
    every = arrays if out is None else (*arrays, out)
    expression = _expression_text(key[0])
    if (
        expression is None
        or epilogue is not None
        or labels
        or tiles
        or (beta != 0 and out is None)  # which is an error
        or place not in _CPU
        or not all(one is None or type(one) in (str, bool, int, float, complex) for one in options)
        or not all(one.dtype.isbuiltin == 1 and one.size for one in every)
        or (out is not None and not out.ndim)
        or is_on("TILEWRIGHT_VERIFY", False)
    ):
        return None
    computed = _dtype_text(dtype)
    print_ = fingerprint()
    if computed is None or print_ is None:
        return None
    forms = [f"{one.dtype.str} {one.shape} {one.strides}" for one in every]
    call = (expression, "out" if out is not None else "", *forms, computed, *map(repr, options))
    return "einsum", *print_, f"{get_num_threads()} threads", *call


def _expression_text(expression: Any) -> str | None:
    """An expression, or label lists (`einsum_lists.interleaved_key`), as text; None for labels of unusual types."""
    if type(expression) is str:
        return expression
    inputs, output = expression
    labels = (label for term in (*inputs, output or ()) for label in term)
    return repr(expression) if all(one is Ellipsis or type(one) in (int, str) for one in labels) else None


def _dtype_text(dtype: Any) -> str | None:
    """The argument `dtype` as text, None if it has no simple one. Names differ from types: our i8 is not NumPy's."""
    if dtype is None or type(dtype) is str:
        return repr(dtype)
    try:
        known = np.dtype(dtype)
    except TypeError:
        return None
    return known.str if known.isbuiltin == 1 else None


def stored_einsum(key: tuple[str, ...], compiled: Callable[[], Compiled]) -> StoredEinsum | None:
    """The einsum of a record; None if there is none. `compiled`: see `StoredEinsum`."""
    found = stored_plan(default_disk_cache(), key)
    if found is None:
        return None
    try:
        return StoredEinsum(*found, compiled)
    except (KeyError, TypeError, ValueError):  # facts of another version
        return None


def store_einsum(
    key: tuple[str, ...], bound: BoundEinsum, arrays: Sequence[Array], result: Any, calls: int = 0
) -> None:
    """Keep an einsum that has been run on these arrays, if it is simple enough; `calls`: see `einsum_hurried`."""
    if bound.executable is None or not bound.takes_as_they_are or bound.indirect:
        return
    given = bound.given(arrays, result)
    plan = bound.flat_plan(bound.prepared(given), result if bound.shape else None)
    if plan is None:
        return
    alike = bound.copies_out and bound.shape and given[-1].strides == result.strides
    in_place = updating(plan) if alike else None
    facts = {
        "shape": bound.shape,
        "axes": bound.axes,
        "dtype": bound.dtype.str,
        "points": math.prod(bound.resolved.sizes),
        "updates": bound.copies_out,
        "copied": bound.copies_out and in_place is None,
        "calls": calls,
    }
    store_flat_plan(key, in_place or plan, facts)


def store_flat_plan(key: tuple[str, ...], plan: FlatPlan, facts: dict[str, Any]) -> None:
    """Keep a plan with the facts of `StoredEinsum`, unless it needs much memory between its launches."""
    if sum(plan.temporaries) <= _MOST_TEMPORARIES:
        store_plan(default_disk_cache(), key, plan, facts)
