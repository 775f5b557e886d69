"""Memory between pages that nobody may touch: what is caught, and that a few random trials touch nothing outside."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fuzz_guarded import AT_END, AT_START, has_guards, tight

COMMAND = Path(__file__).parent / "run_fuzz.py"
pytestmark = pytest.mark.skipif(not has_guards(), reason="needs Linux and a C compiler")

_TOUCH = """
import ctypes, sys
sys.path.insert(0, {folder!r})
import numpy as np
import fuzz_guarded
guard = fuzz_guarded._the_guard()
guard.mode.value = {mode}
before = guard.set(guard.capsule)
one = np.empty({count}, np.float32)
assert np.isnan(one).all()
one[:] = 1
zeros = np.zeros(3)
assert (zeros == 0).all()
one.resize(2 * {count}, refcheck=False)
assert (one == [1] * {count} + [0] * {count}).all()
guard.set(before)
print("ready", flush=True)
ctypes.c_char.from_address(one.ctypes.data + {offset}).value
print("touched")
"""


@pytest.mark.parametrize(
    ("mode", "offset", "fails"),
    [(AT_END, 40, True), (AT_END, 39, False), (AT_START, -1, True), (AT_START, 0, False), (AT_END, 40 + 4095, True)],
)
def test_a_byte_outside_ends_the_process(mode: int, offset: int, fails: bool) -> None:
    text = _TOUCH.format(folder=str(Path(__file__).parent), mode=mode, count=5, offset=offset)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert "ready" in done.stdout, done.stderr
    assert done.returncode == (-signal.SIGSEGV if fails else 0)


def test_tight_arrays_are_the_same_ones() -> None:
    whole = np.arange(120, dtype=np.int16).reshape(4, 5, 6)
    views = [whole, whole[::-2, 1:, ::3], whole.T, np.broadcast_to(whole[:, :1], (4, 3, 6)), whole[:0], np.int16(3)]
    for one in views:
        copy = tight(one)
        assert np.array_equal(copy, one)
        assert np.shape(one) == () or copy.strides == one.strides


@pytest.mark.parametrize("further", [[], ["--contractions"], ["--numpy"]], ids=" ".join)
def test_random_trials_touch_nothing_outside(further: list[str]) -> None:
    """In processes of their own, which an access outside ends."""
    command = [sys.executable, str(COMMAND), "--guarded", "--first", "0", "--count", "12", "--as-it-is", *further]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "'trials': 12" in done.stdout
