"""Tensor operations from the disk: the same results as when they are compiled, in processes that have no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_support import BINARY, UNARY, arrays, check, random_contraction, random_elementwise

from tilewright.contraction.tensor_operation import TensorDimension, TensorOperation
from tilewright.ir.scalars import F64
from tilewright.machine.named import named_machine
from tilewright.passes.tensor import compile, kernel
from tilewright.runtime import cpu_jit, plan_record

pytestmark = pytest.mark.skipif(not cpu_jit.host_cpu().is_x86, reason="images are made for 64-bit x86")

COMPILER = ("tilewright.passes.tensor.kernel", "tilewright.passes.permute", "tilewright.kernel.ir",
            "tilewright.kernel.llvm", "tilewright.ir.nodes", "tilewright.runtime.cpu_jit", "llvmlite")  # fmt: skip
SCRIPT = """
import sys
import numpy as np
import tilewright as tw
before = set(sys.modules)
size = int(sys.argv[1])
lists = ("MNK", ["seq"] * 3, (size, 9, 40), (1, 0, size), (0, 40, 1), (1, size, 0))
product = tw.TensorOperation.from_lists("f32", "contraction", *lists, "zero").optimise().compile()
out = np.empty((9, size), np.float32)
assert (product(np.ones((40, size), np.float32), np.ones((9, 40), np.float32), out) == 40).all()
relu = tw.TensorOperation("f64", "relu", [tw.TensorDimension("C", "prim", size, 1, 0, 1)]).compile("cpu")
assert (relu(np.arange(size) - 4.0, None, np.empty(size)) == np.maximum(np.arange(size) - 4, 0)).all()
print(" ".join(sorted(set(sys.modules) - before)))
"""


def modules_of(cache: Path, size: int) -> list[str]:
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": str(cache), "TILEWRIGHT_NUM_THREADS": "2"}
    command = [sys.executable, "-c", SCRIPT, str(size)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_later_processes_compile_no_tensor_operation(tmp_path: Path) -> None:
    assert "llvmlite" in modules_of(tmp_path / "c", 17)
    later: list[str] = []
    for _ in range(3):  # a process whose sources change meanwhile stores nothing
        later = modules_of(tmp_path / "c", 17)
        if "llvmlite" not in later:
            break
    assert [name for name in later if name.startswith(COMPILER)] == []
    assert "llvmlite" in modules_of(tmp_path / "c", 18)


# --- in one process ---------------------------------------------------------------------------------------------------


def begin_anew(patched: pytest.MonkeyPatch, cache: Path) -> None:
    """An own cache; sources count as not having changed, and what a new process does not know is forgotten."""
    patched.setenv("TILEWRIGHT_CACHE_DIR", str(cache))
    patched.setattr(compile, "fingerprint", lambda: ("this version",))
    plan_record._KERNELS.clear()


def nothing_compiles(patched: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise AssertionError("an operation was compiled")

    plan_record._KERNELS.clear()
    patched.setattr(kernel, "tensor_launch", fail)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from(["f32", "f64", "c64", "c128", "f16", "i8"]),
    main=st.sampled_from(["contraction", *BINARY, *(name for name in UNARY if name != "none"), "clamp"]),
)
def test_from_the_disk_they_are_what_was_compiled(
    tmp_path_factory: pytest.TempPathFactory, seed: int, dtype: str, main: str
) -> None:
    if main == "contraction":
        operation = random_contraction(seed, dtype)
    else:
        operation = random_elementwise(seed, ["f32", "f64"][seed % 2], main)
    with pytest.MonkeyPatch.context() as patched:
        begin_anew(patched, tmp_path_factory.mktemp("disk"))
        made = operation.compile("cpu")
        check(operation, made, seed)
        told, code = made.explain(), made.code
        nothing_compiles(patched)
        found = operation.compile("cpu")
        assert found is not made
        assert found.code[1:] == code[1:]
        for turn in range(3):
            check(operation, found, seed + turn)
        assert found.explain() == told


RELU = TensorOperation("f32", "relu", [TensorDimension("C", "prim", 40, 1, 0, 1)])


def test_the_launch_of_one_from_the_disk_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_anew(monkeypatch, tmp_path)
    launch = RELU.compile("cpu").launch
    plan_record._KERNELS.clear()
    assert RELU.compile("cpu").launch == launch


def test_errors_are_the_same_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_anew(monkeypatch, tmp_path)
    messages = []
    for turn in range(2):
        compiled = RELU.compile("cpu")
        in0, _, out = arrays(RELU, turn)
        with pytest.raises(ValueError, match="inside-arrays") as caught:
            compiled(in0[:30], None, out)
        with pytest.raises(TypeError, match="relu has no in1"):
            compiled(in0, in0, out)
        messages.append(str(caught.value))
        nothing_compiles(monkeypatch)
    assert messages[0] == messages[1]
    loop = TensorOperation("f32", "relu", [TensorDimension("C", "seq", 40, 1, 0, 1)])
    monkeypatch.undo()
    with pytest.raises(ValueError, match="no dimension of this operation is prim"):
        loop.compile("cpu")


def test_a_damaged_record_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_anew(monkeypatch, tmp_path)
    check(RELU, RELU.compile("cpu"))
    for one in tmp_path.rglob("*"):
        if one.is_file():
            one.write_bytes(one.read_bytes()[:-1] + b"?")
    plan_record._KERNELS.clear()
    with pytest.warns(UserWarning, match="is damaged"):
        check(RELU, RELU.compile("cpu"))
    nothing_compiles(monkeypatch)
    check(RELU, RELU.compile("cpu"))


@pytest.mark.parametrize("change", ["TILEWRIGHT_VERIFY", "TILEWRIGHT_CACHE", "sources"])
def test_what_switches_the_disk_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    begin_anew(monkeypatch, tmp_path)
    if change == "sources":
        monkeypatch.setattr(compile, "fingerprint", lambda: None)
    else:
        monkeypatch.setenv(change, "1" if change == "TILEWRIGHT_VERIFY" else "0")
    check(RELU, RELU.compile("cpu"))
    assert not any(b'"launches"' in one.read_bytes() for one in tmp_path.rglob("*") if one.is_file())
    nothing_compiles(monkeypatch)
    with pytest.raises(AssertionError, match="was compiled"):
        RELU.compile("cpu")


def test_other_machines_and_operations_have_other_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_anew(monkeypatch, tmp_path)
    machine = named_machine("cpu-avx512")
    wider = RELU.replace(dimensions=(TensorDimension("C", "prim", 41, 1, 0, 1),))
    operations = (RELU, wider, RELU.replace(last_touch="neg"), RELU.replace(dtype=F64))
    keys = {compile._record_key(one, machine) for one in operations}
    keys.add(compile._record_key(RELU, named_machine("cpu-avx2")))
    assert len(keys) == 5
    assert None not in keys
    assert compile._record_key(RELU, named_machine("h100")) is None
