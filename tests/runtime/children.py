"""Checks in a child after a fork, of a process in which many other tests have run before."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
from collections.abc import Callable

SECONDS = 600


def true_in_a_child(check: Callable[[], bool]) -> bool:
    """What the check says in a child after a fork; a child that hangs says where on its errors, and is ended.

    What other tests have left is not searched for cycles there: finalizers of other libraries may wait for threads that
    a child does not have.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            gc.freeze()
            faulthandler.register(signal.SIGALRM, file=2, chain=True)
            signal.alarm(SECONDS)
            status = 0 if check() else 2
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0
