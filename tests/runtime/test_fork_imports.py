"""A child of a fork imports what another thread of its parent was importing, and does not wait for that thread."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import test_fork_safety
from children import SECONDS, true_in_a_child

from tilewright.machine import forking

pytestmark = test_fork_safety.pytestmark

_SLOW = """
import slow_to_import
slow_to_import.begun()
done = True
"""


class _Slow:
    """A module's name for the events that the import of another one waits for, in the parent only."""

    def __init__(self) -> None:
        self.parent, self.reached, self.released = os.getpid(), threading.Event(), threading.Event()

    def begun(self) -> None:
        if os.getpid() == self.parent and threading.current_thread() is not threading.main_thread():
            self.reached.set()
            assert self.released.wait(SECONDS)


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Slow:
    slow = _Slow()
    monkeypatch.setitem(sys.modules, "slow_to_import", slow)  # type: ignore[arg-type]
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "imported_slowly.py").write_text(_SLOW)
    (tmp_path / "imports_a_slow_one.py").write_text("import imported_slowly\n")
    yield slow
    for name in ("imported_slowly", "imports_a_slow_one"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["imported_slowly", "imports_a_slow_one"])
def test_modules_that_another_thread_imports(slow: _Slow, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "IMPORTED_ANEW", {"imported_slowly", "imports_a_slow_one"})
    thread = threading.Thread(target=importlib.import_module, args=("imports_a_slow_one",))
    thread.start()
    assert slow.reached.wait(SECONDS)
    try:
        assert true_in_a_child(
            lambda: importlib.import_module(name) is sys.modules[name] and sys.modules["imported_slowly"].done
        )
        half = sys.modules["imported_slowly"]
        assert not hasattr(half, "done"), "the parent's import goes on where it was"
    finally:
        slow.released.set()
        thread.join()
    assert half.done
    assert importlib.import_module("imported_slowly") is half


def test_modules_of_other_packages_are_left_alone(slow: _Slow) -> None:
    thread = threading.Thread(target=importlib.import_module, args=("imported_slowly",))
    thread.start()
    assert slow.reached.wait(SECONDS)
    try:
        assert true_in_a_child(lambda: not hasattr(sys.modules["imported_slowly"], "done"))
    finally:
        slow.released.set()
        thread.join()


def test_a_module_that_forks_while_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its child is in the middle of it, too, and goes on with it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "forks_meanwhile.py").write_text(
        "import sys, children\nright = children.true_in_a_child(lambda: 'forks_meanwhile' in sys.modules)\n"
    )
    try:
        assert importlib.import_module("forks_meanwhile").right
    finally:
        sys.modules.pop("forks_meanwhile", None)


_FIRST_CALLS = """
import faulthandler, os, signal, sys, threading, time
import numpy as np
import tilewright as tw

def call(count):
    for n in range(1, count):
        a = np.ones((n, 3))
        assert tw.einsum("ij,kj->ik", a, a, epilogue=lambda x: x + n)[0, 0] == 3 + n

threads = [threading.Thread(target=call, args=(3,)) for _ in range(3)]
for one in threads:
    one.start()
children = []
for _ in range(12):
    time.sleep(0.02)
    child = os.fork()
    if child == 0:
        faulthandler.register(signal.SIGALRM, chain=True)
        signal.alarm(500)
        call(2)
        os._exit(0)
    children.append(child)
statuses = [os.waitpid(one, 0)[1] for one in children]
for one in threads:
    one.join()
assert statuses == [0] * len(statuses), statuses
"""


def test_children_in_the_middle_of_first_calls(tmp_path: Path) -> None:
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", _FIRST_CALLS], check=True, timeout=600, env=environment)


_IN_THE_MIDDLE_OF_A_FORK = """
import faulthandler, os, signal, sys, threading

in_fork, taken, done = threading.Event(), threading.Event(), threading.Event()

def before():
    in_fork.set()
    taken.wait(SECONDS_TO_WAIT)

os.register_at_fork(before=before)
IMPORTED_BEFORE

def work():
    in_fork.wait()
    from tilewright.machine.llvm_lock import LLVM_LOCK
    with LLVM_LOCK:
        taken.set()
        done.wait()

thread = threading.Thread(target=work)
thread.start()
child = os.fork()
if child == 0:
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(60)
    from tilewright.machine.llvm_lock import LLVM_LOCK
    with LLVM_LOCK:
        os._exit(EXPECTED is not taken.is_set())
done.set()
status = os.waitpid(child, 0)[1]
thread.join()
assert status == 0, status
"""


@pytest.mark.parametrize("imported", [True, False])
def test_a_lock_that_is_made_in_the_middle_of_a_fork(imported: bool) -> None:
    """What is registered with forks while another thread forks waits for that, once it is known that it does."""
    words = {
        "IMPORTED_BEFORE": "import tilewright.machine.forking" if imported else "",
        "SECONDS_TO_WAIT": "1" if imported else "60",
        "EXPECTED": "False" if imported else "True",
    }
    program = _IN_THE_MIDDLE_OF_A_FORK
    for word, value in words.items():
        program = program.replace(word, value)
    quietly = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]  # which forks beside threads give
    ran = subprocess.run(quietly, check=False, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr
