"""A pytest plugin: NumPy's own tests of einsum run with `numpy.einsum` rebound to Tilewright's.

Every test that is left out is named below with the reason.
"""

from __future__ import annotations

import numpy
import pytest

import tilewright

NO_OBJECTS = "object arrays: a compiler has no machine type for Python objects"
NO_LONGDOUBLE = "longdouble arrays: no device but the x86 CPU's old floating-point unit has the type"
MORE_INDICES = "asserts that more than 52 indices and negative labels are refused; here any hashable label is accepted"
REPEATED_OUTPUT = "asserts that a repeated output index is refused; here it writes a diagonal"
OVERLAP = "lets out share memory with an operand; here that is refused with a message"
UNSAFE_OUT = "puts float64 into an int64 out under casting='safe', which NumPy's loops (optimize=False) refuse too"
BLOCKED_SUM = "asks for the accuracy of sums in blocks of 8192; ours is that of the device's order of summation"

EXCLUDED = {
    "TestEinsum::test_einsum_errors[einsum-True]": REPEATED_OUTPUT,
    "TestEinsum::test_einsum_errors[einsum-False]": REPEATED_OUTPUT,
    "TestEinsum::test_einsum_object_errors": NO_OBJECTS,
    "TestEinsum::test_object_loop": NO_OBJECTS,
    "TestEinsum::test_einsum_sums_object": NO_OBJECTS,
    "TestEinsum::test_einsum_sums_longdouble": NO_LONGDOUBLE,
    "TestEinsum::test_einsum_sums_clongdouble": NO_LONGDOUBLE,
    "TestEinsum::test_different_paths[g]": NO_LONGDOUBLE,
    "TestEinsum::test_different_paths[G]": NO_LONGDOUBLE,
    "TestEinsum::test_subscript_range": MORE_INDICES,
    "TestEinsum::test_einsum_0d_out": UNSAFE_OUT,
    "TestEinsum::test_out_is_res": OVERLAP,
    "test_overlap": OVERLAP,
    "test_einsum_chunking_precision": BLOCKED_SUM,
}


def pytest_configure() -> None:
    numpy.einsum = tilewright.einsum


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    unknown = set(EXCLUDED)
    for item in items:
        name = item.nodeid.partition("::")[2]
        if name in EXCLUDED:
            unknown.remove(name)
            item.add_marker(pytest.mark.skip(reason=EXCLUDED[name]))
    if unknown:
        raise pytest.UsageError(f"excluded, but not among NumPy's tests: {', '.join(sorted(unknown))}")
