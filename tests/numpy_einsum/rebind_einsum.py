"""A pytest plugin: NumPy's own tests of einsum run with `numpy.einsum` rebound to Tilewright's.

Every test that is left out is named below with the reason.
"""

from __future__ import annotations

import os
from typing import Any

import numpy
import pytest

import tilewright

NO_OBJECTS = "object arrays: a compiler has no machine type for Python objects"
NO_LONGDOUBLE = "longdouble arrays: no device but the x86 CPU's old floating-point unit has the type"
MORE_INDICES = "asserts that more than 52 indices and negative labels are refused; here any hashable label is accepted"
REPEATED_OUTPUT = "asserts that a repeated output index is refused; here it writes a diagonal"
OVERLAP = "lets out share memory with an operand; here that is refused with a message"
UNSAFE_OUT = "puts float64 into an int64 out under casting='safe', which NumPy's loops (optimize=False) refuse too"

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
}


SAME_CHECKS = "the same checks run over int8, float64 and cfloat64; NUMPY_EINSUM_DTYPES=all (`make fuzz`) runs all"

ONLY_WITH_ALL_DTYPES = {
    f"TestEinsum::test_einsum_sums_{dtype}": SAME_CHECKS
    for dtype in ("uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "cfloat128")
}


def exclusions() -> dict[str, str]:
    """The tests that are left out of this run, and why."""
    return EXCLUDED if os.environ.get("NUMPY_EINSUM_DTYPES") == "all" else EXCLUDED | ONLY_WITH_ALL_DTYPES


def einsum(*operands: Any, order: str = "K", **options: Any) -> Any:
    """Ours, but for the default order: a new array of ours is C-ordered, NumPy's follows the operands."""
    return tilewright.einsum(*operands, order=order, **options)


def pytest_configure() -> None:
    numpy.einsum = einsum


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    excluded = exclusions()
    unknown = set(excluded)
    for item in items:
        name = item.nodeid.partition("::")[2]
        if name in excluded:
            unknown.remove(name)
            item.add_marker(pytest.mark.skip(reason=excluded[name]))
    if unknown:
        raise pytest.UsageError(f"excluded, but not among NumPy's tests: {', '.join(sorted(unknown))}")
