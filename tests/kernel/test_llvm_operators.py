"""Every operator, on every type of the kernel language, scalar and vector, against its meaning in NumPy."""

import itertools
import re

import numpy as np
import pytest
from llvm_support import run

from tilewright.ir.operators import OPERATORS, result_type
from tilewright.ir.scalars import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    ScalarType,
    compute_type,
)
from tilewright.kernel import ir
from tilewright.kernel.ir import Buffer, Name, add, integer, load, multiply, operation
from tilewright.kernel.llvm import CpuTarget, llvm_text
from tilewright.runtime.cpu_jit import assembly, compile_text, host_cpu

TYPES = (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.3, -3.7, 7.0, 88.0, -104.0, 1e-3, 1e30, -1e30, 3e-39,
          float("inf"), float("-inf"), float("nan"))  # fmt: skip
# Functions of the C library and of NumPy's own vector code differ in the last bits.
INEXACT = {"pow", "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh",
           "tanh", "asinh", "acosh", "atanh", "exp2", "log2", "log10", "cbrt", "hypot", "erf", "erfc",
           "rsqrt", "fma"}  # fmt: skip


def values_of(type_: ScalarType) -> np.ndarray:
    if type_ == BOOL:
        return np.array([False, True])
    if type_.is_float:
        return np.array(FLOATS).astype(type_.numpy)
    limits = np.iinfo(type_.numpy)
    numbers = {limits.min, limits.min + 1, limits.max, limits.max - 1, limits.max // 3, 0, 1, 2, 3, 5, 7, 8}
    numbers |= {-1, -2, -3, -7, limits.min // 2} if limits.min < 0 else set()
    return np.array(sorted(numbers), type_.numpy)


def operands_of(type_: ScalarType, arity: int, lanes: int) -> list[np.ndarray]:
    """All combinations of two special values (a third operand runs through them), filled up to whole vectors."""
    values = values_of(type_)
    left, right = map(np.array, zip(*itertools.product(values, values), strict=True))
    third = np.resize(values[::-1], left.shape)
    size = -(-left.size // lanes) * lanes
    return [np.resize(array, size) for array in (left, right, third)][:arity]


def typed(type_: ScalarType, lanes: int) -> ScalarType | ir.VectorType:
    return ir.VectorType(type_, lanes) if lanes > 1 else type_


def operators_on(type_: ScalarType) -> list[str]:
    return [name for name, operator in OPERATORS.items() if type_.kind in operator.kinds]


def all_operators_kernel(type_: ScalarType, lanes: int) -> ir.Kernel:
    """One output per operator; input buffers a, b, c and, for select, a condition."""
    inputs = [Buffer(name, type_, read_only=True) for name in "abc"] + [Buffer("condition", BOOL, read_only=True)]
    at = multiply(ir.BlockIndex(), integer(lanes))
    body: list = [ir.Let(f"{buffer.name}_value", load(buffer, at, lanes)) for buffer in inputs]
    names = [Name(f"{buffer.name}_value", typed(buffer.element, lanes)) for buffer in inputs]
    outputs = []
    for operator in operators_on(type_):
        operands = names[: OPERATORS[operator].arity]
        if operator == "select":
            operands = [names[3], names[0], names[1]]
        result = result_type(operator, tuple(o.type.element if lanes > 1 else o.type for o in operands))
        outputs.append(Buffer(f"out_{operator}", result))
        body.append(ir.Store(outputs[-1], at, ir.Operation(operator, tuple(operands), typed(result, lanes))))
    return ir.Kernel("operators", (*inputs, *outputs), (), (), tuple(body))


def check(actual: np.ndarray, expected: np.ndarray, operator: str, type_: ScalarType) -> None:
    assert actual.dtype == expected.dtype, operator
    if operator in INEXACT:
        tolerance = 4e-6 if type_ == F32 else 1e-13
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=0 if operator != "fma" else 1e-6)
    else:
        np.testing.assert_array_equal(actual, expected, err_msg=operator)


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize(("lanes", "optimisation"), [(1, "none"), (1, "full"), (8, "none")])
def test_operators(type_, lanes, optimisation):
    kernel = all_operators_kernel(type_, lanes)
    a, b, c = operands_of(type_, 3, lanes)
    condition = np.resize(np.array([True, False, False, True, True]), a.shape)
    outputs = [np.zeros(a.shape, buffer.element.numpy) for buffer in kernel.buffers[4:]]
    run(kernel, [a, b, c, condition, *outputs], (), a.size // lanes, optimisation)
    with np.errstate(all="ignore"):
        for operator, actual in zip(operators_on(type_), outputs, strict=True):
            operands = (condition, a, b) if operator == "select" else (a, b, c)[: OPERATORS[operator].arity]
            check(actual, OPERATORS[operator].meaning(*operands), operator, type_)


def test_the_sign_of_zero_results():
    """Division and rounding keep the sign of zero as NumPy does."""
    a, b = operands_of(F64, 2, 1)
    kernel = all_operators_kernel(F64, 1)
    outputs = [np.zeros(a.shape, buffer.element.numpy) for buffer in kernel.buffers[4:]]
    run(kernel, [a, b, a, np.ones(a.shape, bool), *outputs], (), a.size)
    by_name = dict(zip(operators_on(F64), outputs, strict=True))
    with np.errstate(all="ignore"):
        for operator in ("floordiv", "mod", "div", "floor", "ceil", "trunc", "round", "neg", "abs", "mul"):
            expected = OPERATORS[operator].meaning(*(a, b)[: OPERATORS[operator].arity])
            zero = expected == 0
            np.testing.assert_array_equal(np.signbit(by_name[operator][zero]), np.signbit(expected[zero]), operator)


def cast_kernel(source: ScalarType, lanes: int) -> ir.Kernel:
    at = multiply(ir.BlockIndex(), integer(lanes))
    x = Buffer("x", source, read_only=True)
    outputs = [Buffer(f"to_{target}", target) for target in TYPES]
    body = [ir.Store(o, at, ir.Cast(load(x, at, lanes), typed(o.element, lanes))) for o in outputs]
    return ir.Kernel("casts", (x, *outputs), (), (), tuple(body))


@pytest.mark.parametrize("source", TYPES, ids=str)
@pytest.mark.parametrize("lanes", [1, 4])
def test_casts(source, lanes):
    values = values_of(source)
    x = np.resize(values, -(-values.size // lanes) * lanes)
    outputs = [np.zeros(x.shape, target.numpy) for target in TYPES]
    run(cast_kernel(source, lanes), [x, *outputs], (), x.size // lanes)
    for target, actual in zip(TYPES, outputs, strict=True):
        expected = _cast(x, target) if source.is_float and target.is_integer else None
        if expected is None:
            with np.errstate(all="ignore"):
                expected = x.astype(target.numpy)
        np.testing.assert_array_equal(actual, expected, err_msg=f"{source} -> {target}")


def _cast(x: np.ndarray, target: ScalarType) -> np.ndarray:
    """Truncated and saturated, nan to 0, in exact integers."""
    limits = np.iinfo(target.numpy)
    whole = [0 if np.isnan(v) else limits.max if v == np.inf else limits.min if v == -np.inf else int(v) for v in x]
    return np.array([min(max(v, limits.min), limits.max) for v in whole], target.numpy)


def half_kernel(element: ScalarType, lanes: int) -> ir.Kernel:
    at = multiply(ir.BlockIndex(), integer(lanes))
    narrow, wide = Buffer("narrow", element), Buffer("wide", F32)
    widened, narrowed = Buffer("widened", F32), Buffer("narrowed", element)
    assert compute_type(element) == F32
    return ir.Kernel(
        "halves",
        (narrow, wide, widened, narrowed),
        (),
        (),
        (ir.Store(widened, at, load(narrow, at, lanes)), ir.Store(narrowed, at, load(wide, at, lanes))),
    )


def round_bf16(x: np.ndarray) -> np.ndarray:
    """Round to nearest even by comparing with the two neighbours."""
    bits = x.view(np.uint32).astype(np.uint64)
    low = bits & np.uint64(0xFFFF0000)
    rest = bits & np.uint64(0xFFFF)
    up = (rest > 0x8000) | ((rest == 0x8000) & ((low >> np.uint64(16)) & np.uint64(1) == 1))
    return ((low + np.where(up, np.uint64(0x10000), np.uint64(0))) >> np.uint64(16)).astype(np.uint16)


HOST = "host"
WITHOUT_F16C = "without f16c"


@pytest.mark.parametrize("cpu", [HOST, WITHOUT_F16C])
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("element", [F16, BF16], ids=str)
def test_half_precision_buffers(element, lanes, cpu):
    target = host_cpu()
    if cpu == WITHOUT_F16C:
        if target.is_arm:
            pytest.skip("this CPU always has the conversions")
        target = CpuTarget(target.triple, target.name, re.sub(r"\+f16c", "-f16c", target.features))
        assert not target.has_half_conversion
    kernel = half_kernel(element, lanes)
    narrow = np.arange(1 << 16, dtype=np.uint16)
    generator = np.random.default_rng(7)
    wide = generator.integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
    wide[: 1 << 15] = np.ldexp(generator.standard_normal(1 << 15), generator.integers(-28, 18, 1 << 15))
    halfway = (np.arange(1 << 12, dtype=np.uint32) << 16 | 0x3F808000).view(np.float32)
    wide[: halfway.size] = halfway
    wide[-4:] = [np.inf, -np.inf, np.nan, 65519.99]
    widened, narrowed = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.uint16)
    code = compile_text(llvm_text(kernel, target), "none")
    run(kernel, [narrow, wide, widened, narrowed], (), (1 << 16) // lanes, code=code)
    with np.errstate(all="ignore"):
        if element == F16:
            expected_wide, expected_narrow = narrow.view(np.float16).astype(np.float32), wide.astype(np.float16)
            actual_narrow: np.ndarray = narrowed.view(np.float16)
        else:
            expected_wide = (narrow.astype(np.uint32) << 16).view(np.float32)
            nan = np.isnan(wide)
            actual_narrow, expected_narrow = np.where(nan, 0, narrowed), np.where(nan, 0, round_bf16(wide))
            assert np.all(np.isnan((narrowed[nan].astype(np.uint32) << 16).view(np.float32)))
    np.testing.assert_array_equal(widened, expected_wide)
    np.testing.assert_array_equal(actual_narrow, expected_narrow)


def test_bool_buffers_take_any_nonzero_byte_and_hold_one():
    x, y = Buffer("x", BOOL, read_only=True), Buffer("y", BOOL)
    kernel = ir.Kernel("bools", (x, y), (), (), (ir.Store(y, ir.BlockIndex(), load(x, ir.BlockIndex())),))
    out = np.full(4, 9, np.uint8)
    run(kernel, [np.array([0, 1, 2, 255], np.uint8), out], (), 4)
    np.testing.assert_array_equal(out, [0, 1, 1, 1])


def test_every_operator_of_the_table_is_covered():
    covered = {operator for type_ in TYPES for operator in operators_on(type_)}
    assert covered == set(OPERATORS) - {"conj", "real", "imag"}


def run_all_operators(type_: ScalarType, lanes: int, target: CpuTarget) -> None:
    kernel = all_operators_kernel(type_, lanes)
    a, b, c = operands_of(type_, 3, lanes)
    condition = np.resize(np.array([True, False, False, True, True]), a.shape)
    outputs = [np.zeros(a.shape, buffer.element.numpy) for buffer in kernel.buffers[4:]]
    code = compile_text(llvm_text(kernel, target), "none")
    run(kernel, [a, b, c, condition, *outputs], (), a.size // lanes, code=code)
    with np.errstate(all="ignore"):
        for operator, actual in zip(operators_on(type_), outputs, strict=True):
            operands = (condition, a, b) if operator == "select" else (a, b, c)[: OPERATORS[operator].arity]
            check(actual, OPERATORS[operator].meaning(*operands), operator, type_)


@pytest.mark.parametrize("type_", [I32, F32, F64], ids=str)
@pytest.mark.parametrize("lanes", [3, 12, 32])
def test_vectors_longer_than_a_register_or_of_odd_length(type_, lanes):
    run_all_operators(type_, lanes, host_cpu())


@pytest.mark.parametrize("type_", [F32, F64], ids=str)
@pytest.mark.parametrize("lanes", [1, 8])
def test_a_host_without_vector_functions_and_fma(type_, lanes):
    host = host_cpu()
    plain = CpuTarget(host.triple, host.name, host.features.replace("+fma,", "-fma,"))
    assert not plain.vector_functions and (plain.is_arm or not plain.has_fma)
    assert "_ZGV" not in llvm_text(all_operators_kernel(type_, lanes), plain)
    run_all_operators(type_, lanes, plain)


@pytest.mark.parametrize("type_", [F32, F64], ids=str)
def test_vectors_kept_around_a_call_fill_whole_lines_of_the_stack(type_):
    host = host_cpu()
    if "sinf" not in host.vector_functions or host.vector_bits < 512:
        pytest.skip("this host has no library of vector functions for vectors of a line")
    x, y = Buffer("x", type_, read_only=True), Buffer("y", type_)
    i, lanes = Name("i", I64), 64 // type_.bytes
    body = tuple(ir.Let(f"x{n}", load(x, add(i, integer(n * lanes)), lanes)) for n in range(2))
    for n in range(2):
        value = operation("sin", Name(f"x{n}", ir.VectorType(type_, lanes)))
        body += (ir.Store(y, add(i, integer(n * lanes)), value),)
    text = assembly(
        ir.Kernel("twice", (x, y), (), (), (ir.For("i", integer(0), integer(1000), body, step=integer(2 * lanes)),)),
        "none",
    )
    kept = [line for line in text.splitlines() if "zmm" in line and "rsp" in line]
    assert kept
    assert not [line for line in kept if re.search(r"vmov\w*u\w*", line)], kept


@pytest.mark.parametrize("type_", [F32, F64], ids=str)
@pytest.mark.parametrize("operator", ["min", "max"])
def test_the_lesser_of_two_waits_for_one_instruction(type_, operator):
    """A nan is put in its place beside it; as one choice by two comparisons, a chain of them was twice as long."""
    if host_cpu().is_arm:
        pytest.skip("about the instructions of x86-64")
    x, y = Buffer("x", type_, read_only=True), Buffer("y", type_)
    value = operation(operator, load(x, integer(0)), load(x, integer(1)))
    text = assembly(ir.Kernel("lesser", (x, y), (), (), (ir.Store(y, integer(0), value),)), "full")
    assert re.search(rf"v?{operator}s[sd]", text) and not re.search(r"cmp\w*lt\w*s[sd]|kor\w", text)


def test_vector_functions_are_called_where_the_host_has_them():
    if "sinf" not in host_cpu().vector_functions:
        pytest.skip("this host has no library of vector functions")
    x, y = Buffer("x", F32, read_only=True), Buffer("y", F32)
    i = Name("i", I64)
    loop = ir.For("i", integer(0), integer(1000), (ir.Store(y, i, operation("sin", load(x, i))),), independent=True)
    explicit = ir.Store(y, integer(0), operation("sin", load(x, integer(0), 8)))
    assert "_ZGV" in assembly(ir.Kernel("loop", (x, y), (), (), (loop,)), "full")
    assert "N8v_sinf" in assembly(ir.Kernel("explicit", (x, y), (), (), (explicit,)), "none") or not host_cpu().has(
        "avx2"
    )
    data = np.linspace(-110, 90, 1000, dtype=np.float32)
    out = np.zeros_like(data)
    run(ir.Kernel("loop", (x, y), (), (), (loop,)), [data, out], (), 1, "full")
    np.testing.assert_allclose(out, np.sin(data), rtol=1e-6, atol=1e-6)
