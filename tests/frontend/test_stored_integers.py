"""Integers that kernels need and that are computed from arguments: kernels compute them, so that calls repeat."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.frontend import program_stored
from tilewright.frontend.program import TracedProgram
from tilewright.runtime import plan_record
from tilewright.runtime.cpu_jit import host_cpu
from tilewright.runtime.stored_program import StoredProgram

# ruff: noqa: F821
OPERATORS = {
    "negative": lambda a, b: -a,
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b,
    "quotient": lambda a, b: a // b,
    "rest": lambda a, b: a % b,
    "least": tw.minimum,
}


def shifted(compute):
    """A program of a sum of an array and an integer that is computed from two arguments."""

    def shift(xs: tw.i32["n"], a: tw.i32, b: tw.i32):
        by = compute(a, b)
        first = tw.scan("add", 0, tw.map(lambda x: x + by, xs))
        return tw.map(lambda x: x * by, first)

    return tw.program(shift)


def expected(name, xs, a, b):
    """The same by NumPy, in 32 bits that wrap around."""
    a, b = np.int32(a), np.int32(b)
    with np.errstate(all="ignore"):
        by = {
            "negative": lambda: -a,
            "sum": lambda: a + b,
            "difference": lambda: a - b,
            "product": lambda: a * b,
            "quotient": lambda: np.int32(0) if b == 0 else a // b,
            "rest": lambda: np.int32(0) if b == 0 else a % b,
            "least": lambda: min(a, b),
        }[name]()
        return np.cumsum(xs + by, dtype=np.int32) * by


NUMBERS = st.sampled_from([0, 1, -1, 3, -7, 2**31 - 1, -(2**31), 12345])
PROGRAMS = {name: shifted(compute) for name, compute in OPERATORS.items()}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(OPERATORS)), st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=5))
def test_repeated_calls_follow_the_arguments(name, pairs):
    xs = np.arange(-5, 20, dtype=np.int32)
    for a, b in pairs:
        if name in ("quotient", "rest") and (a, b) == (-(2**31), -1):
            continue  # NumPy's own answer depends on its version
        found = PROGRAMS[name](xs, np.int32(a), np.int32(b))
        np.testing.assert_array_equal(found, expected(name, xs, a, b))


@pytest.mark.skipif(not host_cpu().is_x86, reason="images are made for 64-bit x86")
def test_later_processes_do_not_compile_them(tmp_path, monkeypatch):
    monkeypatch.setattr(program_stored, "fingerprint", lambda: ("this version",))
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    program = shifted(OPERATORS["negative"])
    xs = np.arange(9, dtype=np.int32)
    program(xs, np.int32(2), np.int32(0))
    plan_record._KERNELS.clear()
    again = TracedProgram(program.function, program._around, program.options)
    np.testing.assert_array_equal(again(xs, np.int32(-3), np.int32(0)), expected("negative", xs, -3, 0))
    (known, _), *_ = again._executables.values()
    assert isinstance(known, StoredProgram)
    assert known._executable is None
