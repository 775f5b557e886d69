"""Random expressions: compiled code gives what NumPy gives, bit for bit (any nan counts as any other)."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llvm_support import run
from test_llvm_operators import FLOATS, TYPES, _cast, operators_on, typed, values_of

from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import BOOL, ScalarType
from tilewright.kernel import ir
from tilewright.kernel.ir import Buffer, Constant, Expression, Name, integer, load, multiply

SIZE = 64
INPUTS = {type_: Buffer(f"x_{type_}", type_, read_only=True) for type_ in TYPES}
# Approximate functions are left out, and min and max of floats, which may pick either of two zeros of unlike signs.
LEFT_OUT = {"pow", "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh",
            "tanh", "asinh", "acosh", "atanh", "exp2", "log2", "log10", "cbrt", "hypot", "erf", "erfc",
            "rsqrt", "fma"}  # fmt: skip


def usable(type_: ScalarType, result: ScalarType) -> list[str]:
    """Operators on a type that give a result type."""
    names = [name for name in operators_on(type_) if name not in LEFT_OUT and name != "select"]
    names = [name for name in names if not (type_.is_float and name in ("min", "max"))]
    return [name for name in names if (BOOL if OPERATORS[name].result == "bool" else type_) == result]


@st.composite
def trees(draw, type_: ScalarType, lanes: int, depth: int) -> Expression:
    """An expression whose element type is `type_`."""
    kind = draw(st.sampled_from(("load", "constant") if depth == 0 else ("operator",) * 5 + ("cast", "select", "load")))
    if kind == "load":
        return load(INPUTS[type_], multiply(ir.BlockIndex(), integer(lanes)), lanes)
    if kind == "constant":
        value = draw(st.sampled_from([v.item() for v in values_of(type_)]))
        constant = Constant(value, type_)
        return ir.Broadcast(constant, typed(type_, lanes)) if lanes > 1 else constant
    if kind == "cast":
        return ir.Cast(draw(trees(draw(st.sampled_from(TYPES)), lanes, depth - 1)), typed(type_, lanes))
    if kind == "select":
        operands = tuple(draw(trees(t, lanes, depth - 1)) for t in (BOOL, type_, type_))
        return ir.Operation("select", operands, typed(type_, lanes))
    source = draw(st.sampled_from(TYPES)) if type_ == BOOL else type_
    name = draw(st.sampled_from(usable(source, type_)))
    operands = tuple(draw(trees(source, lanes, depth - 1)) for _ in range(OPERATORS[name].arity))
    return ir.Operation(name, operands, typed(type_, lanes))


def evaluate(node: Expression, data: dict[str, np.ndarray]) -> np.ndarray:
    match node:
        case Constant(value=value, type=type_):
            return np.full(SIZE, value, type_.numpy)
        case ir.Broadcast(operand=operand):
            return evaluate(operand, data)
        case ir.Load(buffer=buffer):
            return data[buffer.name]
        case ir.Cast(operand=operand, type=type_):
            source, target = ir.element_of(operand.type), ir.element_of(type_)
            value = evaluate(operand, data)
            return _cast(value, target) if source.is_float and target.is_integer else value.astype(target.numpy)
        case ir.Operation(operator=operator, operands=operands, type=type_):
            result = OPERATORS[operator].meaning(*(evaluate(operand, data) for operand in operands))
            assert result.dtype == ir.element_of(type_).numpy
            return result
    raise AssertionError(node)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_random_expressions(data):
    lanes = data.draw(st.sampled_from((1, 1, 4, 16)))
    trees_ = [data.draw(trees(data.draw(st.sampled_from(TYPES)), lanes, 3)) for _ in range(3)]
    outputs = [Buffer(f"y_{n}", ir.element_of(tree.type)) for n, tree in enumerate(trees_)]
    body: list = []
    for number, (tree, out) in enumerate(zip(trees_, outputs, strict=True)):
        name = f"t_{number}"
        body.append(data.draw(st.sampled_from((ir.Let, ir.Declare)))(name, tree))
        body.append(ir.Store(out, multiply(ir.BlockIndex(), integer(lanes)), Name(name, tree.type)))
    kernel = ir.Kernel("random", (*INPUTS.values(), *outputs), (), (), tuple(body))
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    inputs = {buffer.name: generator.choice(values_of(type_), SIZE) for type_, buffer in INPUTS.items()}
    results = [np.zeros(SIZE, out.element.numpy) for out in outputs]
    optimisation = data.draw(st.sampled_from(("none", "full")))
    run(kernel, [*inputs.values(), *results], (), SIZE // lanes, optimisation)
    with np.errstate(all="ignore"):
        for tree, result in zip(trees_, results, strict=True):
            np.testing.assert_array_equal(result, evaluate(tree, inputs), err_msg=f"{tree}")


def test_the_values_contain_the_special_ones():
    assert any(np.isnan(FLOATS)) and any(np.isinf(FLOATS))
