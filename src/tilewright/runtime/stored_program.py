"""Programs that an earlier process compiled: calls of forms that it has seen run without the compiler.

On the disk a program has an entry that tells on which scalar arguments its plans depend, and one for each form of a
call: the dtypes, shapes and strides of its arrays, the types of its scalars, and the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.nodes import Program
from tilewright.machine.forking import ForkSafeLock
from tilewright.runtime.bound_plan import BoundPlan, Runner, cpu_runner
from tilewright.runtime.bound_plans import BoundPlans
from tilewright.runtime.bound_record import store_bound_plan, stored_bound_plan
from tilewright.runtime.cache import DiskCache, default_disk_cache
from tilewright.runtime.json_reader import read_json

if TYPE_CHECKING:  # the compiler is imported when something is compiled
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.program_entry import ProgramEntry

MOST_FORMS = 64
"""Forms of calls that a process looks for on the disk, or leaves there, for each program."""


class StoredProgram:
    """A program for the CPU, compiled when it is called in a form that no earlier process has left on the disk.

    Args:
        program: as it was traced.
        key: of all that decides how it is compiled.
        compiled: compiles it, once or gives what was compiled.
        keeps: whether calls of the compiled program may be left on the disk.
    """

    def __init__(
        self,
        program: Program,
        key: tuple[str, ...],
        compiled: Callable[[], Executable],
        keeps: Callable[[Executable], bool],
    ) -> None:
        self._key, self._make, self._keeps = key, compiled, keeps
        self._known = _size_arguments(default_disk_cache(), key)
        self.bound = BoundPlans(program, True, self._known or ())
        self._executable: Executable | None = None
        self._found: dict[tuple[str, str], None] = {}
        self._asked: set[Any] = set()
        self._kept: set[Any] = set()
        self._lock = ForkSafeLock()

    def __call__(self, *arguments: Any, out: Any = None) -> Any:
        """As `Executable`."""
        given = self.bound.given(out)
        key = self.bound.key(arguments, given)
        if key not in self.bound.plans and key not in self._asked:
            self._recall(key)
        result = self.bound.repeated(key, arguments, given)
        if result is not None:
            return result
        copies = self.bound.addressable(arguments)  # whose form may be on the disk
        if copies is not None:
            return self(*copies, out=out)
        executable = self._compiled()
        result = executable(*arguments, out=out)
        self._keep(executable, executable.bound.key(arguments, given))
        return result

    def flat_plan(self, arguments: Any, out: Any) -> Any:
        """See `BoundPlans.flat_plan`."""
        return self.bound.flat_plan(arguments, out)

    def explain(self) -> str:
        """See `Executable.explain`."""
        return self._compiled().explain()

    def entry(self, arguments: Any, gives_tuple: bool, out: Any = None) -> ProgramEntry | None:
        """See `BoundPlans.entry`."""
        return self.bound.entry(arguments, gives_tuple, out)

    def launched(self, *arguments: Any, out: Any = None) -> tuple[Any, ...] | None:
        """See `BoundPlans.launched`."""
        return self.bound.launched(arguments, out)

    def _compiled(self) -> Executable:
        executable = self._executable or self._make()  # without the lock: what compiles has its own, and comes back
        self.adopt(executable)
        return executable

    def adopt(self, executable: Executable) -> None:
        """The program has been compiled: what came from the disk is its own from now on."""
        with self._lock:
            if self._executable is executable:
                return
            executable.bound.size_arguments |= self.bound.size_arguments
            for key, (runner, plan) in self.bound.plans.items():
                executable.bound.remember(key, runner, plan)
            executable.found.update(self._found)
            self._executable, self.bound = executable, executable.bound

    @property
    def _plans(self) -> Mapping[Any, tuple[Runner, BoundPlan]]:
        return self.bound.plans

    # --- the disk

    def _recall(self, key: Any) -> None:
        """Take the plan for calls of this form from the disk, if it is there."""
        with self._lock:
            if self._known is None or len(self._asked) >= MOST_FORMS or key in self._asked:
                return
            text = form_text(key)
            found = None if text is None else stored_bound_plan(default_disk_cache(), (*self._key, text))
            if found is not None:
                plan, facts = found
                self._kept.add(key)
                self._found.update({(str(label), str(what)): None for label, what in facts.get("found", ())})
                self.bound.remember(key, cpu_runner(plan), plan)
            self._asked.add(key)  # after which other threads do not wait

    def _keep(self, executable: Executable, key: Any) -> None:
        """Leave what a call did on the disk, if it can be repeated."""
        bound = executable.bound.plans.get(key)
        if bound is None or key in self._kept or len(self._kept) >= MOST_FORMS:
            return
        with self._lock:
            self._kept.add(key)
            disk, text = default_disk_cache(), form_text(key)
            if disk.folder is None or text is None or not self._keeps(executable):
                return
            facts = {"found": [*executable.found]}
            if not store_bound_plan(disk, (*self._key, text), bound[1], facts):
                return
            if self._known is None or self._known != executable.bound.size_arguments:
                self._known = executable.bound.size_arguments
                import json  # which nothing that reads records needs

                disk.put(self._key, json.dumps({"size_arguments": sorted(self._known)}).encode())


def _size_arguments(disk: DiskCache, key: tuple[str, ...]) -> frozenset[int] | None:
    """The positions of the scalar arguments on which plans depend; None if nothing of the program is on the disk."""
    data = disk.get(key)
    try:
        return None if data is None else frozenset(map(int, read_json(data)["size_arguments"]))
    except (ValueError, KeyError, TypeError):  # of another version
        return None


def form_text(key: Any) -> str | None:
    """A key of `BoundPlans` as text; None for types that have no simple one.

    >>> form_text((2, ((3,), (8,), np.dtype(float)), float, (int, 5), None))
    '2 threads; <f8 (3,) (8,); builtins.float; builtins.int 5; new'
    """
    parts = []
    for part in key or ():
        match part:
            case int():
                parts.append(f"{part} threads")
            case None:
                parts.append("new")
            case (tuple() as shape, tuple() as strides, np.dtype() as dtype) if dtype.isbuiltin == 1:
                parts.append(f"{dtype.str} {shape} {strides}")
            case type() if _is_plain(part):
                parts.append(f"{part.__module__}.{part.__name__}")
            case (type() as scalar, value) if _is_plain(scalar) and issubclass(scalar, int | np.integer):
                parts.append(f"{scalar.__module__}.{scalar.__name__} {int(value)}")
            case _:
                return None
    return "; ".join(parts) or None


def _is_plain(scalar: type) -> bool:
    """Whether a type of scalars is known by its name."""
    return scalar in (bool, int, float, complex) or (issubclass(scalar, np.generic) and scalar.__module__ == "numpy")
