"""Sums of what mathematical functions give, in steps of several terms: Intel's OpenCL compiler crashed on them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.ir.scalars import F32, I32
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.ir import (
    Assign,
    Buffer,
    Constant,
    Declare,
    For,
    Kernel,
    Name,
    Operation,
    ScalarParameter,
    Store,
    integer,
    load,
)
from tilewright.kernel.opencl import opencl_text
from tilewright.runtime.backends import backend_for
from tilewright.runtime.devices import device_for


def summed(function: str) -> Kernel:
    """total += function(x[k + q]) for four q, unrolled, in a loop over k."""
    x, y = Buffer("x", F32, read_only=True), Buffer("y", F32)
    k, q, total = Name("k", I32), Name("q", I32), Name("total", F32)
    value = Operation(function, (load(x, Operation("add", (k, q), I32)),), F32)
    term = Assign("total", Operation("add", (total, value), F32))
    zero, four = Constant(0, I32), Constant(4, I32)
    inner = For("q", zero, four, (term,), step=Constant(1, I32), unroll=True)
    outer = For("k", zero, Name("n", I32), (inner,), step=four)
    body = (Declare("total", Constant(0.0, F32)), outer, Store(y, integer(0), total))
    return Kernel("summed", (x, y), (ScalarParameter("n", I32),), (), body, index_type=I32)


def test_opencl_does_not_unroll_calls() -> None:
    assert "#pragma unroll 1\n" in opencl_text(summed("tanh"))
    assert "#pragma unroll\n" in opencl_text(summed("neg"))
    assert all("#pragma unroll\n" in cuda_text(summed(one)) for one in ("tanh", "neg"))


@pytest.mark.opencl
def test_such_sums_are_compiled(opencl_runtime: object) -> None:
    """In a process of its own, which the compiler may end."""
    command = "from test_unrolled_calls import *; [built(one) for one in ('tanh', 'sqrt', 'exp')]"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]


def built(function: str) -> object:
    """The kernel as OpenCL's compiler makes it."""
    return backend_for(device_for("opencl")).compile(summed(function), {})
