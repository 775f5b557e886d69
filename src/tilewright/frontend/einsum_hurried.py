"""Einsums of shapes that are new all the time: computed at once, and compiled for themselves when calls repay it.

A tensor network has bonds of other sizes at each site, and compiling the contractions of one takes longer than some
thousand calls. So the first few contractions of a process get kernels of their own; those that follow get kernels of
any shape (`passes/contractions/any_shape.py`), which give the same bits, and their own when the calls have taken about
as long as compiling does: so what is lost by them is less than that, however slow they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from tilewright.frontend.einsum_stored import StoredEinsum, store_einsum
from tilewright.runtime.environment import is_on
from tilewright.runtime.flat_plan import ANY_SHAPE

if TYPE_CHECKING:
    from tilewright.frontend.einsum_arrays import Array
    from tilewright.frontend.einsum_bind import BoundEinsum
    from tilewright.runtime.cpu_entry import NativeEntry

AT_ONCE = 3
"""Contractions of a process that get kernels of their own at once."""
PATIENCE = 1 << 32
"""Multiply-adds by kernels of any shape, for each contraction of an einsum, after which it gets its own. On a Zen 5
they lose 3 to 15 picoseconds each in f32 and f64, fewer in complex numbers; compiling a contraction takes 50 to 100 ms.
"""
WORTH = 100_000_000
"""Nanoseconds of calls, for each contraction of an einsum, after which it gets its own, whatever they compute: of
batches of small matrices, kernels of any shape can take twenty times as long.
"""
LEAST_CALLS = 32
TIMED = 4
"""Calls whose shortest time counts, after the one that compiled."""
TABLES = 1 << 16
"""Multiply-adds that lose as much as what a kernel of any shape does beside them: half a microsecond."""

_begun = [0]
"""Contractions of this process so far."""


def bound_or_hurried(
    stored: StoredEinsum | None, compiled: Callable[..., BoundEinsum], operands: int, record: tuple[str, ...] | None
) -> BoundEinsum | HurriedEinsum:
    """What runs calls of a new form: with kernels of its own, or with kernels of any shape for the time being.

    Args:
        stored: what an earlier process left of it, with kernels of any shape, if it did.
        compiled: compiles it, with the argument `hurried` for kernels of any shape.
        operands: how many there are.
        record: its key on the disk, if it has one.
    """
    contractions = max(1, operands - 1)
    if stored is not None:
        return HurriedEinsum(stored, stored.calls, contractions * WORTH, compiled, record)
    _begun[0] += contractions
    if not is_on("TILEWRIGHT_HURRY", True) or _begun[0] <= AT_ONCE:
        return compiled()
    bound = compiled(hurried=True)
    if bound.device is None or bound.device.name != "cpu":
        return bound
    return HurriedEinsum(bound, _calls_before(bound), contractions * WORTH, compiled, record)


def _calls_before(bound: BoundEinsum) -> int:
    """How often an einsum is called before it gets kernels of its own."""
    from tilewright.frontend.einsum_path import steps_of

    resolved = bound.resolved
    steps = steps_of(resolved.spec, bound.path, True, bound.orders)
    points = sum(math.prod(resolved.sizes[label] for label in (*one.output, *one.contracted)) for one in steps)
    work = points * (4 if bound.dtype.kind == "c" else 1) + TABLES * len(steps)
    return max(LEAST_CALLS, PATIENCE * len(steps) // work)


class HurriedEinsum:
    """What `BoundEinsum` is to a compiled einsum, to one of kernels of any shape, until it has been called often."""

    def __init__(
        self,
        first: BoundEinsum | StoredEinsum,
        calls: int,
        worth: int,
        compiled: Callable[[], BoundEinsum],
        record: tuple[str, ...] | None,
    ) -> None:
        """Made with kernels of any shape (`first`).

        Args:
            first: as said.
            calls: after which it is compiled.
            worth: nanoseconds of calls after which it is, if that is sooner.
            compiled: compiles it.
            record: its key on the disk, if it has one.
        """
        self.bound: BoundEinsum | StoredEinsum = first
        self.calls = self._left = calls
        self._worth = worth
        self._timed, self._shortest = 0, worth
        self._compiled: Callable[[], BoundEinsum] | None = compiled
        self._record = record
        self._is_first = not isinstance(first, StoredEinsum)
        if first.quick is not None and hasattr(first.quick, "counted"):
            first.quick.counted = self._counted

    @property
    def quick(self) -> Any:
        """The short cuts of what it is at present."""
        return self.bound.quick

    def run(self, arrays: Sequence[Array], out: Array | None) -> Any:
        """As `BoundEinsum.run`."""
        self._left -= 1
        compiled = self._compiled if self._left < 0 else None
        if compiled is None:
            began = perf_counter_ns()
            result = self.bound.run(arrays, out)
            if not self._is_first:
                self._took(perf_counter_ns() - began)
            elif not self._is_of_any_shape(arrays, result):
                self._is_its_own()
            self._is_first = False
            return result
        self._compiled = None  # other threads go on with what there is meanwhile
        try:
            bound = compiled()
            result = bound.run(arrays, out)
        except KeyboardInterrupt:  # the next call tries again
            self._compiled = compiled
            raise
        self.bound = bound
        if self._record is not None:
            store_einsum(self._record, bound, arrays, result)
        return result

    def _is_its_own(self) -> None:
        """Kernels of its own are what it has: calls are counted no more."""
        self._compiled, self.calls = None, 0
        if self.quick is not None:
            self.quick.counted = None

    def _is_of_any_shape(self, arrays: Sequence[Array], result: Any) -> bool:
        """Whether some kernel of a call is one of any shape, as far as that can be seen."""
        bound: Any = self.bound
        if not hasattr(bound.executable, "flat_plan"):
            return False
        plan = bound.flat_plan(bound.prepared(arrays), result if bound.shape else None)
        return plan is None or any(one.native.name == ANY_SHAPE for one in plan.launches)

    def _counted(self, entry: NativeEntry) -> NativeEntry:
        """An entry that takes calls until there have been enough."""

        def counted(*arguments: Any) -> Any:
            if self._left <= 0:
                return None
            self._left -= 1
            if self._timed >= TIMED:
                return entry(*arguments)
            began = perf_counter_ns()
            result = entry(*arguments)
            if result is not None:
                self._took(perf_counter_ns() - began)
            return result

        return counted

    def _took(self, nanoseconds: int) -> None:
        """A call took so long: after some of them it is known how many there are to be."""
        if self._timed >= TIMED:
            return
        self._timed += 1
        self._shortest = min(self._shortest, max(1, nanoseconds))
        if self._timed >= TIMED:
            self._left = min(self._left, self._worth // self._shortest)
