"""An interrupt (Ctrl-C) at any instruction of some files: at all places where Python looks for one.

That is at the beginning of a function, after a call, and where a loop goes round; never between a call of C and what
keeps its result.
"""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any

_LOOKS = ("RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD")


class _Interrupter:
    """A trace function that interrupts at the place of this number."""

    def __init__(self, number: int, files: Collection[str]) -> None:
        self.left, self.files = number, files
        self.before: dict[int, str] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in self.files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._look()
        self.before[id(frame)] = ""
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            if self.before.get(id(frame)) in _LOOKS:
                self._look()
            self.before[id(frame)] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        return self._step

    def _look(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise KeyboardInterrupt


def interrupts(call: Callable[[], object], files: Collection[str]) -> Iterator[int]:
    """Call again and again, each time with an interrupt at the next place of these files; which one that was.

    The last call has none. What is to hold after an interrupt is looked at between them. No search for cycles begins by
    itself meanwhile: it would free what other tests have left, and an interrupt in there would be lost.
    """
    number = 0
    while True:
        interrupter, before, threshold = _Interrupter(number, files), sys.gettrace(), gc.get_threshold()
        gc.set_threshold(0)
        sys.settrace(interrupter)
        try:
            call()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
            gc.set_threshold(*threshold)
        yield number
        if interrupter.left >= 0:
            return
        number += 1
