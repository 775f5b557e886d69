"""Bound plans of one program, by the forms of the arguments of calls, and how calls of a known form repeat them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilewright.ir.nodes import Program
from tilewright.machine.forking import ForkSafeLock
from tilewright.runtime.backends import usable_strides
from tilewright.runtime.bound_plan import BoundPlan, Runner, flat_plan_of
from tilewright.runtime.flat_plan import FlatPlan, Unfit
from tilewright.runtime.recording import RecordedLaunch, flattened
from tilewright.runtime.result_arrays import given_arrays
from tilewright.runtime.thread_count import get_num_threads

if TYPE_CHECKING:  # imported when a call is repeated
    from tilewright.runtime.program_entry import ProgramEntry

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
PLANS = 256
"""Bound plans that are kept; the ones not used for longest are dropped."""
RECORDS = 1 << 16
"""Launches and allocations that all of them hold together; each takes about a kilobyte."""
LONG = 256
"""Launches and allocations of a recording that is repeated by native code, as rounds of a loop are. The memory between
its launches stays with native code; that of shorter recordings is given back after each call.
"""


class BoundPlans:
    """The bound plans of one program on one device; calls may come from several threads.

    Args:
        program: with the parameters and results of calls; what is in it does not matter.
        on_cpu: whether native code may repeat the plans.
        size_arguments: positions of the scalar arguments on whose values plans depend.
    """

    def __init__(self, program: Program, on_cpu: bool, size_arguments: Collection[int]) -> None:
        self.name = program.name
        self.on_cpu = on_cpu
        self.size_arguments = frozenset(size_arguments)
        self.plans: OrderedDict[Any, tuple[Runner, BoundPlan]] = OrderedDict()
        self._results = program.body.results
        self._count = len(self._results)
        self._no_out: tuple[None, ...] = (None,) * self._count
        self._entries: dict[Any, ProgramEntry | None] = {}
        self._lock = ForkSafeLock()

    def given(self, out: Any) -> tuple[Array | None, ...]:
        """What `out` says about each result (`result_arrays.given_arrays`)."""
        return self._no_out if out is None else given_arrays(self.name, self._results, out)

    def key(self, arguments: Sequence[Any], out: Sequence[Array | None]) -> Any:
        """What a bound plan depends on, or None for arguments that are checked first."""
        parts: list[Any] = [get_num_threads()]
        for position, one in enumerate(arguments):
            if type(one) is np.ndarray and position in self.size_arguments:
                return None  # a scalar in an array, on whose value the plan depends
            if type(one) is np.ndarray:
                parts.append((one.shape, one.strides, one.dtype))
            elif position in self.size_arguments:
                parts.append((type(one), one))
            else:
                parts.append(type(one))
        for given in out:
            parts.append(None if given is None else (given.shape, given.strides, given.dtype))
        try:
            key = tuple(parts)
            hash(key)
        except TypeError:
            return None
        return key

    def addressable(self, arguments: Sequence[Any]) -> Sequence[Any] | None:
        """The arguments with copies of those arrays that kernels cannot read as they lie; None if there are no such."""
        if not self.on_cpu:
            return None
        apart = [type(one) is np.ndarray and one.ndim and one.size and not usable_strides(one) for one in arguments]
        if not any(apart):
            return None
        pairs = zip(arguments, apart, strict=True)
        return [np.array(one, one.dtype.newbyteorder("="), order="C") if copied else one for one, copied in pairs]

    def repeated(self, key: Any, arguments: Sequence[Any], given: Sequence[Array | None]) -> Any:
        """What a call gives, by the plan of its key; None if there is none, or it does not fit these arguments."""
        bound = self.plans.get(key)
        if bound is None or key is None:
            return None
        runner, plan = bound
        if (plan.has_rounds or len(plan.recording.records) >= LONG) and all(one is None for one in given):
            entry = self._entry_for(key, plan, arguments)
            found = None if entry is None else entry(*arguments)
            if found is not None:
                return found
        try:
            return self.delivered(runner(arguments, given))
        except Unfit:
            return None

    def delivered(self, values: Sequence[Any]) -> Any:
        """The values of the results as the caller gets them."""
        return values[0] if self._count == 1 else tuple(values)

    def remember(self, key: Any, runner: Runner, plan: BoundPlan) -> None:
        """Keep a plan, and drop those not used for longest where there are too many."""
        with self._lock:
            self.plans[key] = runner, plan
            while len(self.plans) > 1 and (len(self.plans) > PLANS or self._recorded() > RECORDS):
                dropped, _ = self.plans.popitem(last=False)
                self._entries.pop(dropped, None)

    def _recorded(self) -> int:
        return sum(len(plan.recording.records) for _, plan in self.plans.values())

    # --- in other forms

    def flat_plan(self, arguments: Sequence[Array], out: Array | None) -> FlatPlan | None:
        """What a call with arrays of this form does (`flat_plan`), if one has been made and was simple.

        `out` is where the result went; None for a program that gives a scalar.
        """
        if not self.on_cpu or self._count != 1:
            return None
        bound = self.plans.get(self.key(arguments, (out,)))
        return None if bound is None else flat_plan_of(bound[1], len(arguments), out)

    def entry(self, arguments: Sequence[Any], gives_tuple: bool, out: Any = None) -> ProgramEntry | None:
        """Native code that repeats calls with arguments of this form on as many threads as there are now, or None.

        `out` is what the call before was given for its results.
        """
        given = self.given(out)
        key = self.key(arguments, given)
        bound = self.plans.get(key)
        if bound is None:
            return None
        if out is None and gives_tuple == (self._count != 1):
            return self._entry_for(key, bound[1], arguments)
        return self._make_entry(bound[1], arguments, gives_tuple, given)

    def _entry_for(self, key: Any, plan: BoundPlan, arguments: Sequence[Any]) -> ProgramEntry | None:
        """The native code that repeats a plan and gives what a call gives, made when it is first asked for."""
        if key not in self._entries:
            entry = self._make_entry(plan, arguments, self._count != 1, self._no_out)
            with self._lock:
                if key in self.plans:
                    self._entries[key] = entry
            return entry
        return self._entries.get(key)

    def _make_entry(
        self, plan: BoundPlan, arguments: Sequence[Any], gives_tuple: bool, given: Sequence[Array | None]
    ) -> ProgramEntry | None:
        if not self.on_cpu:
            return None
        from tilewright.runtime.program_entry import entry_of, with_new_results

        made = with_new_results(plan, given)
        if made is None:
            return None
        return entry_of(made, arguments, self.size_arguments, get_num_threads(), gives_tuple)

    def launched(self, arguments: Sequence[Any], out: Any = None) -> tuple[Any, ...] | None:
        """What a call like an earlier one launches, in order: kernels, blocks, scalars; None where it is not kept."""
        bound = self.plans.get(self.key(arguments, self.given(out)))
        if bound is None:
            return None
        records = flattened(bound[1].recording.records)
        return tuple((one.compiled, one.blocks, one.scalars) for one in records if isinstance(one, RecordedLaunch))
