"""What the CUDA texts compute, without a GPU: the same operators, casts and copies as in OpenCL, run on the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from c_support import REALS, operands_of
from cuda_emulation import Emulated, compile_emulated, has_compiler
from test_c_operators import apply_all, cast_all, check, expected_of, operators_on
from test_c_text import ELEMENTS, HELD, bf16_of, convert_kernel, copy_kernel

from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import BF16, BOOL, F16, ScalarType
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.ir import Kernel

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs g++")
LANES = (1, 4)
COPIES = [(element, lanes) for element in ELEMENTS for lanes in (2, 4, 8, 16)]


def operator_kernel(type_: ScalarType, lanes: int) -> Kernel:
    return replace(apply_all(type_, lanes, operands_of(type_, 4)[0].size), name=f"apply_{type_}_{lanes}")


def copied(element: ScalarType, lanes: int) -> Kernel:
    return replace(copy_kernel(element, lanes, True), name=f"copy_{element}_{lanes}")


@pytest.fixture(scope="module")
def emulated() -> Emulated:
    kernels = [operator_kernel(type_, lanes) for type_ in REALS for lanes in LANES]
    kernels += [replace(cast_all(type_, 4, 64), name=f"cast_{type_}") for type_ in REALS]
    kernels += [copied(element, lanes) for element, lanes in COPIES]
    kernels += [replace(convert_kernel(element, 4), name=f"halve_{element}") for element in (F16, BF16)]
    return compile_emulated({kernel.name: cuda_text(kernel) for kernel in kernels})


def assert_defined(capfd: pytest.CaptureFixture[str]) -> None:
    assert "runtime error" not in capfd.readouterr().err


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("type_", REALS, ids=str)
def test_operators(emulated: Emulated, type_: ScalarType, lanes: int, capfd: pytest.CaptureFixture[str]) -> None:
    arrays = operands_of(type_, 4)
    count, names = arrays[0].size, operators_on(type_)
    outputs = [np.zeros((len(names), count), dtype) for dtype in (type_.numpy, np.bool_)]
    same, truth = emulated.run(f"apply_{type_}_{lanes}", [*arrays, *outputs], count // lanes, 1)[3:]
    assert_defined(capfd)
    for row, name in enumerate(names):
        found = (truth if OPERATORS[name].result == "bool" else same)[row]
        check(name, type_, found, expected_of(name, type_, arrays), arrays)


@pytest.mark.parametrize("source", REALS, ids=str)
def test_casts(emulated: Emulated, source: ScalarType, capfd: pytest.CaptureFixture[str]) -> None:
    given = np.resize(operands_of(source, 4)[0], 64)
    if source.is_float:
        given = np.resize(np.array([0.0, -0.0, 0.4, 1.0, 1.9, 2.5, 100.7, 127.0], source.numpy), 64)
    found = emulated.run(f"cast_{source}", [given, *(np.zeros(64, type_.numpy) for type_ in REALS)], 16, 1)[1:]
    assert_defined(capfd)
    for type_, array in zip(REALS, found, strict=True):
        np.testing.assert_array_equal(array, given.astype(type_.numpy), err_msg=f"{source} to {type_}")


@pytest.mark.parametrize(("element", "lanes"), COPIES, ids=str)
def test_vector_copies(emulated: Emulated, element: ScalarType, lanes: int, capfd: pytest.CaptureFixture[str]) -> None:
    dtype = HELD.get(element) or element.numpy
    size = 16 * lanes
    given = (np.arange(size) % 97 * 2.5 - 60).astype(np.float64).astype(np.int64).astype(dtype)
    given = (np.arange(size) % 3 == 0).astype(dtype) if element == BOOL else given
    out = emulated.run(f"copy_{element}_{lanes}", [given, np.zeros_like(given)], 2, 8)[1]
    assert_defined(capfd)
    np.testing.assert_array_equal(out, given)


@pytest.mark.parametrize("element", [F16, BF16], ids=str)
def test_half_types(emulated: Emulated, element: ScalarType) -> None:
    with np.errstate(all="ignore"):
        given = np.array([0.0, 2.0, 131008.0, 131039.8, 131040.0, 2e-7, 1.2e-7, np.inf, -np.inf, 2.0078125, 5.1, 6e38])
        half = given.astype(np.float32) * np.float32(0.5)
        expected = half.astype(np.float16) if element == F16 else bf16_of(half)
        arrays = [given.astype(np.float32), np.zeros_like(expected), np.zeros(given.size, np.float32)]
    np.testing.assert_array_equal(emulated.run(f"halve_{element}", arrays, given.size // 4, 1)[1], expected)


def test_the_sanitizer_is_awake(capfd: pytest.CaptureFixture[str]) -> None:
    text = 'extern "C" __global__ void bad(int* p) { p[0] = p[0] + 2147483647; }'
    compile_emulated({"bad": text}).run("bad", [np.ones(1, np.int32)], 1, 1)
    assert "signed integer overflow" in capfd.readouterr().err


def test_a_barrier_that_some_threads_do_not_come_to() -> None:
    text = 'extern "C" __global__ void bad(int* p) { if (threadIdx.x) __syncthreads(); p[threadIdx.x] = 1; }'
    with pytest.raises(RuntimeError, match="of bad wait at a barrier"):
        compile_emulated({"bad": text}).run("bad", [np.zeros(4, np.int32)], 1, 4)


def test_results_differ_where_a_barrier_is_missing() -> None:
    """Neighbours read what others write at the same time, in orders drawn by chance."""
    text = (
        'extern "C" __global__ void turn(int* p) { __shared__ __align__(16) int held[8]; const int i = threadIdx.x;'
        " held[i] = i; %s p[blockIdx.x * 8 + i] = held[7 - i]; }"
    )
    for barrier, right in (("__syncthreads();", True), ("", False)):
        found = compile_emulated({"turn": text % barrier}).run("turn", [np.zeros(80, np.int32)], 10, 8)[0]
        assert np.array_equal(found, np.tile(np.arange(8)[::-1], 10)) == right
