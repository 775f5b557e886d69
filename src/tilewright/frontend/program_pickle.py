"""How programs go to other processes: by name, as Python's functions do, and never as code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.frontend.program import TracedProgram


def pickled(program: TracedProgram, function: Callable[..., Any]) -> str | tuple[Any, ...]:
    """What `__reduce__` gives for a program: its name; or where that is the program without its options, both.

    Raises:
        TypeError: for a program that its module does not have by that name.
    """
    module, name = function.__module__, function.__qualname__
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is program:
        return name
    if type(found) is type(program) and found.function is function:
        return _with_options, (found, program.options)
    raise TypeError(
        f"program {name} cannot be pickled: programs go to other processes by name, and module {module} does not have "
        "it by that name; define it with @tw.program at the top of a module, or in the process that calls it"
    )


def _with_options(program: TracedProgram, options: Any) -> TracedProgram:
    return program.with_options(options)
