"""Sums of what functions give, in steps of several terms: Intel's OpenCL compiler crashed on them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.ir.scalars import BF16, F32, I32
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
    x = Buffer("x", F32, read_only=True)
    return unrolled((x,), Operation(function, (load(x, Operation("add", (Name("k", I32), Name("q", I32)), I32)),), F32))


def dot() -> Kernel:
    """total += x[k + q] * z[k + q] of elements of bf16."""
    x, z = Buffer("x", BF16, read_only=True), Buffer("z", BF16, read_only=True)
    at = Operation("add", (Name("k", I32), Name("q", I32)), I32)
    return unrolled((x, z), Operation("mul", (load(x, at), load(z, at)), F32))


def unrolled(read: tuple[Buffer, ...], value: Operation) -> Kernel:
    """total += value for four q, unrolled, in a loop over k."""
    y, total = Buffer("y", F32), Name("total", F32)
    term = Assign("total", Operation("add", (total, value), F32))
    zero, four = Constant(0, I32), Constant(4, I32)
    inner = For("q", zero, four, (term,), step=Constant(1, I32), unroll=True)
    outer = For("k", zero, Name("n", I32), (inner,), step=four)
    body = (Declare("total", Constant(0.0, F32)), outer, Store(y, integer(0), total))
    return Kernel("summed", (*read, y), (ScalarParameter("n", I32),), (), body, index_type=I32)


def test_opencl_does_not_unroll_calls() -> None:
    assert "#pragma unroll 1\n" in opencl_text(summed("tanh"))
    assert "#pragma unroll\n" in opencl_text(summed("neg"))
    assert all("#pragma unroll\n" in cuda_text(summed(one)) for one in ("tanh", "neg"))


@pytest.mark.opencl
def test_such_sums_are_compiled(opencl_runtime: object) -> None:
    assert_compiled("*[summed(one) for one in ('tanh', 'sqrt', 'exp')]")


@pytest.mark.opencl
def test_sums_of_products_of_bf16_are_compiled(opencl_runtime: object) -> None:
    assert_compiled("dot()")


def assert_compiled(kernels: str) -> None:
    """In a process of its own, which the compiler may end."""
    command = f"from test_unrolled_calls import *; [built(one) for one in ({kernels},)]"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]


def built(kernel: Kernel) -> object:
    """The kernel as OpenCL's compiler makes it."""
    return backend_for(device_for("opencl")).compile(kernel, {})
