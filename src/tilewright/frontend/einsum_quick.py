"""Short cuts for repeated calls: native functions that were learned from calls which took the long way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilewright.runtime.thread_count import get_num_threads

if TYPE_CHECKING:  # imported when something is compiled, or loaded
    from tilewright.frontend.einsum_arrays import Array
    from tilewright.frontend.einsum_layout import Signature
    from tilewright.frontend.einsum_parse import Labels
    from tilewright.runtime.cpu_entry import NativeEntry
    from tilewright.runtime.flat_plan import FlatPlan

_NDARRAY = np.ndarray
MOST_ENTRIES = 8
_SERIAL_POINTS = 1 << 13  # less work than this is done before other threads are awake
_UNSHARED_POINTS, _UNSHARED_ELEMENTS = 1 << 20, 1 << 16  # kernels of less work are the same for any number of threads
_MOST_LESSONS = 64  # so that a caller whose arrays never have the same form twice is not kept waiting


def with_first(entry: NativeEntry, entries: tuple[NativeEntry, ...]) -> tuple[NativeEntry, ...]:
    """The entries with this one first; the last is dropped where there are too many."""
    return (entry, *(one for one in entries if one is not entry))[:MOST_ENTRIES]


def label_lists(operands: Sequence[Any]) -> tuple[tuple[Any, ...], Sequence[Any]] | None:
    """The lists of operands and labels given in turns, hashable if their labels are, and the operands.

    None for labels that are not in lists, tuples or text of letters. Lists with equal labels mean the same.
    """
    inputs = len(operands) // 2 * 2
    lists = operands[1:inputs:2]
    for one in (*lists, *operands[inputs:]):
        if type(one) is not list and type(one) is not tuple and not (type(one) is str and one.isalpha()):
            return None
    return ((*map(tuple, lists), None, *map(tuple, operands[inputs:])), operands[0:inputs:2])


PlanOf: TypeAlias = "Callable[[Sequence[Array], Array | None], FlatPlan | None]"


class QuickCalls:
    """The entries of one einsum, tried in turn: `entry(*arrays, out)` gives None if the arrays are of another form."""

    def __init__(
        self,
        plan_of: PlanOf,
        fresh_strides: tuple[int, ...],
        points: int,
        large: Callable[[], Array] | None = None,
        updates: bool = False,
        copies_out: bool = False,
    ) -> None:
        """Of an einsum whose operands go to the kernels as they are.

        Args:
            plan_of: the flat plan for these operands and this result (None: a scalar), if there is one.
            fresh_strides: those of a new result.
            points: of the whole index space.
            large: makes a new result whose memory is recycled; None where native code makes it.
            updates: the result is made of what it held: it has to be given.
            copies_out: the last of the kernels' operands is a copy of that.
        """
        self.entries: tuple[NativeEntry, ...] = ()
        self._plan_of = plan_of
        self._fresh_strides = fresh_strides
        self._points = points
        self._large = large
        self._updates = updates
        self._copies_out = copies_out
        self._calls = 0
        self.counted: Callable[[NativeEntry], NativeEntry] | None = (
            None  # how entries are told apart (`einsum_hurried`)
        )

    def learn(
        self,
        arrays: Sequence[Array],
        result: Array | None,
        cell: Array | None = None,
        given: Sequence[Array] | None = None,
    ) -> None:
        """Called after `result` has been computed; the first call learns nothing.

        For a scalar, `result` is None and `cell` an array without dimensions of its type. `given` are the operands of
        the call where `arrays` are views of them, all of which begin where their operand does.
        """
        self._calls += 1
        if not 2 <= self._calls <= _MOST_LESSONS:
            return
        plan = self._plan_of(arrays, result)
        if plan is None:
            return
        from tilewright.runtime.cpu_entry import entry_for
        from tilewright.runtime.flat_plan import updating

        place = cell if result is None else result
        assert place is not None, "a scalar result needs a cell"
        operands, copies = given or arrays, self._copies_out
        if copies and result is not None and operands[-1].strides == result.strides:
            in_place = updating(plan)
            if in_place is not None:
                plan, operands, copies = in_place, operands[:-1], False
        fresh = not self._updates and (result is None or result.strides == self._fresh_strides)
        serial, threads = self._points <= _SERIAL_POINTS, get_num_threads()
        makes = fresh and self._large is None
        entry = entry_for(plan, (*operands, place), makes_result=makes, threads=1 if serial else threads)
        if entry is None:
            return
        much = self._points > _UNSHARED_POINTS or sum(one.size for one in arrays) > _UNSHARED_ELEMENTS
        if self._large is not None or much or (not serial and any(one.blocks > 1 for one in plan.launches)):
            entry = _of_threads(entry, threads, arrays[0].shape, self._large if fresh else None)
        if copies:
            entry = _of_copy(entry)
        if self.counted is not None:
            entry = self.counted(entry)
        # Where two threads learn at once, one entry may be lost, to be learned again.
        self.entries = with_first(entry, self.entries)


class QuickView:
    """The one entry of an einsum whose result is a view of its operand."""

    def __init__(self, operand: Signature, labels: Labels, output: Labels) -> None:
        """Of operands with this signature; `labels` and `output` are those of the dimensions."""
        from tilewright.frontend.einsum_layout import PlainView

        dtype, shape, strides = operand.dtype, operand.shape, operand.strides
        view = PlainView(labels, output)

        def entry(array: Any, out: Any) -> Any:
            if out is not None or type(array) is not _NDARRAY:
                return None
            if array.shape != shape or array.strides != strides or array.dtype != dtype:
                return None
            return view(array)

        self.entries: tuple[NativeEntry, ...] = (entry,) if output else ()

    def learn(self, *_: Any) -> None:
        """There is nothing more to be learned."""


def _of_copy(native: NativeEntry) -> NativeEntry:
    """An entry that gives kernels a copy of what the result held, too."""
    from tilewright.frontend.einsum_arrays import held_by

    def updated(*arguments: Any) -> Any:
        out = arguments[-1]
        return native(*arguments[:-1], held_by(out), out) if type(out) is _NDARRAY else None

    return updated


def _of_threads(
    native: NativeEntry, threads: int, first: tuple[int, ...], large: Callable[[], Array] | None
) -> NativeEntry:
    """An entry for calls on so many threads: what they share is divided otherwise among more or fewer.

    Args:
        native: takes the operands and the result.
        threads: how many.
        first: the shape of the first operand, so that a large result is not made for others.
        large: makes it; None where none is made here.
    """

    def shared(*arguments: Any) -> Any:
        return native(*arguments) if get_num_threads() == threads else None

    def recycled(*arguments: Any) -> Any:
        if get_num_threads() != threads:
            return None
        if arguments[-1] is not None or large is None or getattr(arguments[0], "shape", None) != first:
            return native(*arguments)
        return native(*arguments[:-1], large())

    return shared if large is None else recycled
