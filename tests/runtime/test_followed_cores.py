"""Workers of the CPU's thread pool use the cores that the process may use, also where these change later."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
import threading
import time

import numpy as np

import tilewright as tw
from tilewright.runtime import thread_count


def masks():
    return [os.sched_getaffinity(one.native_id) for one in threading.enumerate() if one.name.startswith("tilewright-")]


def asked():
    thread_count._state.known_until = 0.0
    return tw.get_num_threads()


def become(wanted, ask=asked):
    # Whether they are that soon: a worker that steps aside or is moved has another mask for a moment.
    until = time.monotonic() + 500
    while masks() != [wanted] and time.monotonic() < until:
        time.sleep(0.01)
        ask()  # as calls do each second
    return masks() == [wanted]


every = os.sched_getaffinity(0)
a = np.ones((700, 700))
with tw.num_threads(2):
    tw.einsum("ij,jk->ik", a, a)
assert become(every), masks()
os.sched_setaffinity(0, {min(every)})
assert asked() == 1
for one in threading.enumerate():
    if one.name.startswith("tilewright-"):
        os.sched_setaffinity(one.native_id, every)  # as a worker that steps aside in that moment puts back what it had
assert become({min(every)}), masks()
os.sched_setaffinity(0, every)
assert asked() == len(every)
assert become(every), masks()
assert (tw.einsum("ij,jk->ik", a, a) == 700).all()


def bound():
    os.sched_setaffinity(0, {max(every)})
    asked()


caller = threading.Thread(target=bound)
caller.start()
caller.join()
assert become(every, ask=lambda: None), masks()
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
def test_workers_follow_the_process() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
