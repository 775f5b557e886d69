"""Random kernels of exact arithmetic: what OpenCL computes is what NumPy does, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from c_support import has_opencl, values_of
from hypothesis import given, settings
from hypothesis import strategies as st
from opencl_runner import EXACT, run_opencl

from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import BOOL, F64, I8, I16, I32, I64, U8, U16, U32, U64, ScalarType
from tilewright.kernel import ir
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.ir import Buffer, Constant, Expression, Name, add, integer, load, operation
from tilewright.kernel.nvrtc import compile_cuda
from tilewright.kernel.opencl import opencl_text
from tilewright.kernel.ranges import kernel_ranges

THREADS = 64
TYPES = (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F64)
_INEXACT = {"pow", "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh",
            "tanh", "asinh", "acosh", "atanh", "exp2", "log2", "log10", "cbrt", "hypot", "erf", "erfc",
            "rsqrt", "fma"}  # fmt: skip
# Which zero is the lesser is not defined, and a division shows the difference.
_AMBIGUOUS = {"min", "max"}
EXPRESSIONS = 4


def operators_giving(type_: ScalarType) -> list[tuple[str, ScalarType]]:
    """The exact operators with a result of a type, with the type of their operands."""
    found = []
    for name, entry in OPERATORS.items():
        for operand in TYPES:
            result = BOOL if entry.result == "bool" else operand
            skipped = name in _INEXACT or (name in _AMBIGUOUS and operand == F64)
            if operand.kind in entry.kinds and result == type_ and not skipped:
                found.append((name, operand))
    return found


def constants(type_: ScalarType) -> st.SearchStrategy[Expression]:
    usual = [value.item() for value in values_of(type_)]
    small = [] if type_ == BOOL else [Constant(value, type_) for value in (1, 2, 3, 8)]
    return st.sampled_from([Constant(value, type_) for value in usual] + small)


def expressions_of(type_: ScalarType, depth: int) -> st.SearchStrategy[Expression]:
    leaves: list[st.SearchStrategy[Expression]] = [constants(type_), st.just(Name(f"x_{type_}", type_))]
    if type_ == I64:
        leaves += [st.just(ir.ThreadIndex(I64)), st.just(Name("j", I64))]
    if depth == 0:
        return st.one_of(leaves)

    def applied(choice: tuple[str, ScalarType]) -> st.SearchStrategy[Expression]:
        name, operand = choice
        inner = expressions_of(operand, depth - 1)
        operands = [inner] * OPERATORS[name].arity
        if name == "select":
            operands[0] = expressions_of(BOOL, depth - 1)
        return st.tuples(*operands).map(lambda values: ir.Operation(name, values, type_))

    sources = [other for other in TYPES if other != type_ and (other != F64 or type_ == BOOL)]
    cast = (
        st.sampled_from(sources)
        .flatmap(lambda source: expressions_of(source, depth - 1))
        .map(lambda value: ir.Cast(value, type_))
    )
    operations = st.sampled_from(operators_giving(type_)).flatmap(applied)
    return st.one_of(operations, operations, cast, *leaves[:1])


def kernel_of(expressions: list[Expression]) -> ir.Kernel:
    """Every thread evaluates the expressions for j = 0, 1, 2; integers are summed, of others the last is kept."""
    inputs = [Buffer(f"in_{type_}", type_, read_only=True) for type_ in TYPES]
    outputs = [Buffer(f"out_{i}", expression.type) for i, expression in enumerate(expressions)]
    body = [ir.Let(f"x_{buffer.element}", load(buffer, ir.ThreadIndex())) for buffer in inputs]
    body += [ir.Declare(f"sum_{i}", Constant(0, expression.type)) for i, expression in enumerate(expressions)]
    steps = []
    for i, expression in enumerate(expressions):
        total = Name(f"sum_{i}", expression.type)
        value = add(total, expression) if expression.type.is_integer else expression
        steps.append(ir.Assign(total.name, value))
    body.append(ir.For("j", integer(0), integer(3), tuple(steps)))
    body += [ir.Store(out, ir.ThreadIndex(), Name(f"sum_{i}", out.element)) for i, out in enumerate(outputs)]
    return ir.Kernel("random", (*inputs, *outputs), (), (), tuple(body), THREADS)


def evaluate(expression: Expression, environment: dict[str, np.ndarray]) -> np.ndarray:
    match expression:
        case Constant(value=value, type=type_):
            return np.full(THREADS, value, type_.numpy)
        case Name(name=name):
            return environment[name]
        case ir.ThreadIndex():
            return np.arange(THREADS)
        case ir.Cast(operand=operand, type=type_):
            return evaluate(operand, environment).astype(type_.numpy)
        case ir.Operation(operator=operator, operands=operands):
            return np.asarray(OPERATORS[operator].meaning(*(evaluate(operand, environment) for operand in operands)))
    raise AssertionError(expression)


def inputs_of(seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    arrays = []
    for type_ in TYPES:
        values = values_of(type_)
        picked = random.choice(values, THREADS)
        if type_ != BOOL:
            picked[::2] = random.integers(0, 12, THREADS // 2).astype(type_.numpy)
        arrays.append(picked)
    return arrays


def expected_of(expressions: list[Expression], arrays: list[np.ndarray]) -> list[np.ndarray]:
    environment = {f"x_{type_}": array for type_, array in zip(TYPES, arrays, strict=True)}
    results = [np.zeros(THREADS, expression.type.numpy) for expression in expressions]
    with np.errstate(all="ignore"):
        for j in range(3):
            environment["j"] = np.full(THREADS, j)
            for i, expression in enumerate(expressions):
                value = evaluate(expression, environment)
                results[i] = results[i] + value if expression.type.is_integer else value
    return results


several = st.lists(
    st.sampled_from(TYPES).flatmap(lambda type_: expressions_of(type_, 4)), min_size=EXPRESSIONS, max_size=EXPRESSIONS
)


@pytest.mark.opencl
@given(several, st.integers(0, 99))
def test_opencl_computes_what_numpy_does(expressions: list[Expression], seed: int) -> None:
    if not has_opencl():
        pytest.skip("no OpenCL runtime for the CPU")
    arrays = inputs_of(seed)
    text = EXACT + opencl_text(kernel_of(expressions))
    outputs = [np.zeros(THREADS, expression.type.numpy) for expression in expressions]
    found = run_opencl(text, "random", [*arrays, *outputs], 1, THREADS)[len(arrays) :]
    for array, expected, expression in zip(found, expected_of(expressions, arrays), expressions, strict=True):
        np.testing.assert_array_equal(array, expected, err_msg=f"{expression}\n{text}")


@settings(max_examples=10)
@given(several)
def test_their_cuda_text_compiles(expressions: list[Expression]) -> None:
    compile_cuda(cuda_text(kernel_of(expressions)), "sm_80")


@given(
    st.sampled_from([t for t in TYPES if t != F64]).flatmap(lambda type_: expressions_of(type_, 4)), st.integers(0, 99)
)
def test_bounds_hold(expression: Expression, seed: int) -> None:
    """Whatever a random integer expression gives lies within the bounds that are claimed for it."""
    low, high = kernel_ranges(kernel_of([expression])).of(expression)
    environment = {f"x_{type_}": array for type_, array in zip(TYPES, inputs_of(seed), strict=True)}
    with np.errstate(all="ignore"):
        for j in range(3):
            value = evaluate(expression, environment | {"j": np.full(THREADS, j)})
            assert low <= int(value.min()) <= int(value.max()) <= high


def test_bounds_are_tight_where_it_matters() -> None:
    thread = ir.ThreadIndex()
    ranges = kernel_ranges(ir.Kernel("k", (), (), (), (ir.For("i", integer(2), integer(10), ()),), 256))
    row, column = operation("floordiv", thread, integer(16)), operation("mod", thread, integer(16))
    assert ranges.of(row) == (0, 15)
    assert ranges.of(column) == (0, 15)
    assert ranges.of(add(operation("mul", row, integer(33)), column)) == (0, 510)
    assert ranges.of(Name("i", I64)) == (2, 9)
    assert ranges.of(operation("sub", Name("i", I64), thread)) == (-253, 9)
