"""Every operator on every real type, scalar and vector: OpenCL on a CPU against NumPy, and CUDA through NVRTC."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from c_support import REALS, has_opencl, operands_of, ulps
from opencl_runner import run_opencl

from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import BOOL, C64, F32, F64, I8, I32, U8, ScalarType
from tilewright.kernel import ir
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.ir import Buffer, Constant, Name, Statement, add, integer, load, multiply
from tilewright.kernel.nvrtc import compile_cuda
from tilewright.kernel.opencl import opencl_text

# Largest errors that OpenCL allows, in ulps (OpenCL C 1.2, section 7.4: single precision; double where it differs).
ALLOWED = {"div": 2.5, "sqrt": 3, "rsqrt": 2, "exp": 3, "log": 3, "log1p": 2, "expm1": 3, "sin": 4, "cos": 4, "tan": 5,
           "asin": 4, "acos": 4, "atan": 5, "atan2": 6, "sinh": 4, "cosh": 4, "tanh": 5, "pow": 16,
           "asinh": 4, "acosh": 4, "atanh": 5, "exp2": 3, "log2": 3, "log10": 3, "cbrt": 2, "hypot": 4, "erf": 16,
           "erfc": 16,
           "floordiv": 2.5}  # fmt: skip
CORRECTLY_ROUNDED_IN_F64 = {"div", "sqrt", "floordiv"}
NUMPY_ULPS = 4  # the error of NumPy's own vectorised functions


def operators_on(type_: ScalarType) -> list[str]:
    return [name for name, entry in OPERATORS.items() if type_.kind in entry.kinds]


def apply_all(type_: ScalarType, lanes: int, count: int) -> ir.Kernel:
    """Block b applies every operator to (vector) element b and stores each result in its row of `same` or `truth`."""
    value_type = ir.VectorType(type_, lanes) if lanes > 1 else type_
    bools = ir.VectorType(BOOL, lanes) if lanes > 1 else BOOL
    inputs = [Buffer(name, type_, read_only=True, alignment=64) for name in ("left", "right", "third")]
    same, truth = Buffer("same", type_), Buffer("truth", BOOL)
    at = multiply(ir.BlockIndex(), integer(lanes))
    body: list[Statement] = [ir.Let(buffer.name, load(buffer, at, lanes)) for buffer in inputs]
    names = tuple(Name(buffer.name, value_type) for buffer in inputs)
    for row, name in enumerate(operators_on(type_)):
        entry = OPERATORS[name]
        operands = names[: entry.arity]
        if name == "select":
            operands = (ir.Operation("lt" if type_ != BOOL else "xor", names[:2], bools), names[1], names[2])
        target, result = (truth, bools) if entry.result == "bool" else (same, value_type)
        body.append(ir.Store(target, add(at, integer(row * count)), ir.Operation(name, operands, result)))
    return ir.Kernel("apply", (*inputs, same, truth), (), (), tuple(body))


def exact_fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        result = a * b + c
    for i in range(a.size):
        if np.isfinite(a[i]) and np.isfinite(b[i]) and np.isfinite(c[i]):
            exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
            # a sum of exactly nothing has the sign that IEEE gives it, which NumPy's has too
            result[i] = result[i] if exact == 0 else nearest(exact, a.dtype.type)
    return result


def nearest(exact: Fraction, kind: type[np.floating]) -> np.floating:
    """Correct rounding: of the candidates around the exact value the nearest (the test's values make no ties)."""
    with np.errstate(all="ignore"):
        first = kind(np.float64(min(max(exact, -(Fraction(10) ** 300)), Fraction(10) ** 300)))
        candidates = [first, np.nextafter(first, kind(-np.inf)), np.nextafter(first, kind(np.inf))]
    if not np.isfinite(first):
        return first
    return min((c for c in candidates if np.isfinite(c)), key=lambda c: abs(Fraction(float(c)) - exact))


def expected_of(name: str, type_: ScalarType, arrays: list[np.ndarray]) -> np.ndarray:
    entry = OPERATORS[name]
    left, right, third = arrays
    if name == "select":
        return np.where(left < right if type_ != BOOL else left ^ right, right, third)
    if name == "fma":
        return exact_fma(left, right, third)
    with np.errstate(all="ignore"):
        if type_ == F32 and name in ALLOWED and name != "floordiv":
            return entry.meaning(*(array.astype(np.float64) for array in arrays[: entry.arity])).astype(np.float32)
        return entry.meaning(*arrays[: entry.arity])


def check(name: str, type_: ScalarType, found: np.ndarray, expected: np.ndarray, arrays: list[np.ndarray]) -> None:
    __tracebackhide__ = True
    if not type_.is_float or expected.dtype == bool:
        wrong = np.flatnonzero(found != expected)
    else:
        allowed = 0.0 if name not in ALLOWED else ALLOWED[name] + (NUMPY_ULPS if type_ == F64 else 1)
        if type_ == F64 and name in CORRECTLY_ROUNDED_IN_F64:
            allowed = 0.0
        bad = ulps(found, expected) > allowed
        if allowed == 0 and name not in ("min", "max"):
            bad |= (np.signbit(found) != np.signbit(expected)) & ~np.isnan(expected)
        wrong = np.flatnonzero(bad)
    told = [([array[i] for array in arrays[: OPERATORS[name].arity]], found[i], expected[i]) for i in wrong[:5]]
    assert not len(wrong), f"{name} on {type_}: {len(wrong)} wrong; (operands, found, expected): {told}"


@pytest.mark.opencl
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("type_", REALS, ids=str)
def test_operators_on_opencl(type_: ScalarType, lanes: int) -> None:
    if not has_opencl():
        pytest.skip("no OpenCL runtime for the CPU")
    arrays = operands_of(type_, lanes)
    count, names = arrays[0].size, operators_on(type_)
    outputs = [np.zeros((len(names), count), dtype) for dtype in (type_.numpy, np.bool_)]
    # An operator alone must be that operator: nothing is contracted across two of them.
    text = "#pragma OPENCL FP_CONTRACT OFF\n" + opencl_text(apply_all(type_, lanes, count))
    same, truth = run_opencl(text, "apply", [*arrays, *outputs], count // lanes, 1)[3:]
    for row, name in enumerate(names):
        found = (truth if OPERATORS[name].result == "bool" else same)[row]
        check(name, type_, found, expected_of(name, type_, arrays), arrays)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("type_", REALS, ids=str)
def test_operators_compile_for_cuda(type_: ScalarType, lanes: int) -> None:
    compiled = compile_cuda(cuda_text(apply_all(type_, lanes, 400)), "sm_80" if lanes == 4 else "sm_90a")
    assert compiled.registers["apply"] > 0


def test_complex_operators_and_half_values_are_refused() -> None:
    for expression in (
        ir.Operation("real", (Constant(1.0, F32),), F32),
        ir.Operation("conj", (Constant(1.0, C64),), C64),
        ir.Operation("shl", (Constant(1.0, F32), Constant(1.0, F32)), F32),
        ir.Operation("nonsense", (Constant(1.0, F32),), F32),
    ):
        kernel = ir.Kernel("k", (), (), (), (ir.Let("x", expression),))
        for printer in (opencl_text, cuda_text):
            with pytest.raises(TypeError, match=r"not defined|do not exist"):
                printer(kernel)


def cast_all(source: ScalarType, lanes: int, count: int) -> ir.Kernel:
    at = multiply(ir.BlockIndex(), integer(lanes))
    given = Buffer("given", source, read_only=True)
    outputs = tuple(Buffer(f"to_{type_}", type_) for type_ in REALS)
    value = load(given, at, lanes)
    body = [
        ir.Store(out, at, ir.Cast(value, ir.VectorType(out.element, lanes) if lanes > 1 else out.element))
        for out in outputs
    ]
    return ir.Kernel("cast_all", (given, *outputs), (), (), tuple(body))


@pytest.mark.opencl
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("source", REALS, ids=str)
def test_casts_on_opencl(source: ScalarType, lanes: int) -> None:
    if not has_opencl():
        pytest.skip("no OpenCL runtime for the CPU")
    if source.is_float:  # only what every target type can hold: elsewhere C promises nothing
        given = np.array([0.0, -0.0, 0.4, 1.0, 1.9, 2.5, 100.7, 127.0], source.numpy)
    else:
        given = np.resize(operands_of(source, 4)[0], 64)
    outputs = [np.zeros(given.size, type_.numpy) for type_ in REALS]
    text = opencl_text(cast_all(source, lanes, given.size))
    found = run_opencl(text, "cast_all", [given, *outputs], given.size // lanes, 1)[1:]
    for type_, array in zip(REALS, found, strict=True):
        np.testing.assert_array_equal(array, given.astype(type_.numpy), err_msg=f"{source} to {type_}")


@pytest.mark.parametrize("source", [BOOL, I8, U8, I32, F32, F64], ids=str)
def test_casts_compile_for_cuda(source: ScalarType) -> None:
    assert compile_cuda(cuda_text(cast_all(source, 4, 64))).spill_bytes["cast_all"] == 0


@pytest.mark.opencl
def test_nan_and_infinity_become_true() -> None:
    if not has_opencl():
        pytest.skip("no OpenCL runtime for the CPU")
    given = np.array([np.nan, np.inf, -np.inf, 1e-300], np.float64)
    out = Buffer("out", BOOL)
    source = Buffer("given", F64, read_only=True)
    body = (ir.Store(out, ir.BlockIndex(), ir.Cast(load(source, ir.BlockIndex()), BOOL)),)
    text = opencl_text(ir.Kernel("truth", (source, out), (), (), body))
    assert run_opencl(text, "truth", [given, np.zeros(4, bool)], 4, 1)[1].all()
