"""Cases run in a child process, so that none of them can take the others with it.

A kernel that fails breaks the context of its process: every later call of the driver gives the same error. A driver may
also end the process, or wait for ever. Then the cases that are left are run by another child. The process that calls
this must not have used a GPU, since its children could not.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What came of a case: its `result` (anything that JSON holds), or the text of what went wrong; `seconds` it took.

    Neither of them if the time was up before the case was begun.
    """

    name: str
    result: Any = None
    problem: str = ""
    seconds: float = 0.0

    @property
    def begun(self) -> bool:
        return self.seconds > 0


def isolated(
    names: Sequence[str],
    work: Callable[[str], Any],
    fatal: type[Exception],
    seconds: float = float("inf"),
    seconds_each: float = 120.0,
    late: float = 40.0,
) -> Iterator[Outcome]:
    """The outcomes of cases, in order, each as soon as it is known.

    Args:
        names: of the cases.
        work: does a case; runs in a child.
        fatal: errors after which the child is not used any more.
        seconds: no case is begun after this time.
        seconds_each: a child that needs longer for a case is killed.
        late: so is one that is not done so long after the time was up.
    """
    rest, end = list(names), time.monotonic() + seconds
    while rest:
        for outcome in _from_child(tuple(rest), work, fatal, end, seconds_each, late):
            rest.remove(outcome.name)
            yield outcome


def _from_child(
    names: Sequence[str], work: Callable[[str], Any], fatal: type[Exception], end: float, seconds_each: float,
    late: float,
) -> Iterator[Outcome]:  # fmt: skip
    """The outcomes that one child comes to: at least one."""
    readable, writable = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(readable)
        _work(names, work, fatal, end, writable)
    os.close(writable)
    done, begun = 0, time.monotonic()
    why = "the process ended"
    with os.fdopen(readable, "rb", buffering=0) as pipe:
        text = b""
        while True:
            limit = begun + seconds_each
            if begun < end:  # afterwards no case is begun
                limit = min(limit, end + late)
            if not select.select([pipe], [], [], max(0.0, limit - time.monotonic()))[0]:
                why = f"not done after {time.monotonic() - begun:.0f} seconds"
                os.kill(child, signal.SIGKILL)
                break
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                break
            *lines, text = (text + piece).split(b"\n")
            for line in lines:
                done, begun = done + 1, time.monotonic()
                yield Outcome(**json.loads(line))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0 and done < len(names):
        yield Outcome(names[done], None, f"{why} (exit code {code})", max(1e-9, time.monotonic() - begun))


def _work(names: Sequence[str], work: Callable[[str], Any], fatal: type[Exception], end: float, pipe: int) -> None:
    """The child's life: a line for each case; leaves early after an error that is fatal."""
    code = 1
    try:
        for name in names:
            found: dict[str, Any] = {"name": name}
            broken, start = False, time.monotonic()
            if start < end:
                try:
                    found["result"] = work(name)
                except Exception as error:  # what went wrong is told
                    found["problem"] = traceback.format_exc()
                    broken = isinstance(error, fatal)
                found["seconds"] = max(1e-9, time.monotonic() - start)
            sys.stdout.flush()
            line = json.dumps(found).encode() + b"\n"
            while line:
                line = line[os.write(pipe, line) :]
            if broken:
                break
        code = 0
    finally:
        os._exit(code)
