"""A mark for tests of what a single core never does: programs with versions, threads that are moved, and so on."""

from __future__ import annotations

import os
import sys

import pytest

two_cores = pytest.mark.skipif(
    sys.platform.startswith("linux") and len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)
