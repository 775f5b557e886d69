"""A tensor operation as text: the loop nest that it is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tilewright.contraction.kinds import Kind
from tilewright.contraction.tensor_primitives import Execution, Primitive, TensorDimension

if TYPE_CHECKING:
    from tilewright.contraction.tensor_operation import TensorOperation

_SYMBOLS = {Primitive.ADD: "+", Primitive.SUB: "-", Primitive.MUL: "*", Primitive.DIV: "/"}
_UNARY = {
    Primitive.COPY: "{}", Primitive.TRANSPOSE: "{}", Primitive.NEG: "-{}", Primitive.RECIPROCAL: "1 / {}",
    Primitive.SQUARE: "{0} * {0}",
}  # fmt: skip

Named = list[tuple[str, TensorDimension]]


def print_operation(operation: TensorOperation) -> str:
    """The loops, one per line, and the primitives inside with the elements that they touch."""
    counts: Counter[Kind] = Counter()
    named: Named = []
    for one in operation.dimensions:
        named.append((f"{one.kind.value.lower()}{counts[one.kind]}", one))
        counts[one.kind] += 1
    lines = [f"tensor operation on {operation.dtype}" + _result(operation)]
    indent = ""
    for name, one in named:
        if one.execution is not Execution.PRIM:
            word = "parallel for" if one.execution is Execution.SHARED else "for"
            lines.append(f"{indent}{word} {name} < {one.size}:")
            indent += "  "
    possible = (_touch(operation, named, True), _main(operation, named), _touch(operation, named, False))
    rows = [row for row in possible if row]
    width = max(len(head) for head, _ in rows)
    return "\n".join([*lines, *(f"{indent}{head:<{width}} {text}" for head, text in rows)])


def _result(operation: TensorOperation) -> str:
    return "" if operation.out_dtype == operation.dtype else f", summed in {operation.out_dtype}"


def _element(array: str, position: int, named: Named) -> str:
    terms = [
        name if one.strides[position] == 1 else f"{one.strides[position]} {name}"
        for name, one in named
        if one.strides[position]
    ]
    return f"{array}[{' + '.join(terms) or '0'}]"


def _ranges(named: Named) -> str:
    inner = ", ".join(f"{name} < {one.size}" for name, one in named if one.execution is Execution.PRIM)
    return f"    for {inner}" if inner else ""


def _main(operation: TensorOperation, named: Named) -> tuple[str, str]:
    main = operation.main
    in0, in1, out = (_element(array, position, named) for position, array in enumerate(("in0", "in1", "out")))
    if main.family == "ternary":
        text = f"{out} += {in0} * {in1}"
    elif main.family == "binary":
        text = f"{out} = " + (f"{in0} {_SYMBOLS[main]} {in1}" if main in _SYMBOLS else f"{main.value}({in0}, {in1})")
    else:
        text = f"{out} = {_applied(operation, main, in0)}"
    return f"{main.value}:", text + _ranges(named)


def _touch(operation: TensorOperation, named: Named, first: bool) -> tuple[str, str] | None:
    touch = operation.first_touch if first else operation.last_touch
    if touch is Primitive.NONE:
        return None
    out = _element("out", 2, named)
    # The contracted loops around the primitive tell when a block is touched first and last.
    loops = [
        f"{name} = {0 if first else one.size - 1}"
        for name, one in named
        if one.kind is Kind.K and one.execution is not Execution.PRIM and one.size > 1
    ]
    when = f"    when {' and '.join(loops)}" if loops else ""
    written = [(name, one) for name, one in named if one.kind is not Kind.K]
    return f"{touch.value}:", f"{out} = {_applied(operation, touch, out)}{_ranges(written)}{when}"


def _applied(operation: TensorOperation, primitive: Primitive, value: str) -> str:
    if primitive is Primitive.ZERO:
        return "0"
    if primitive is Primitive.CLAMP and operation.clamp is not None:
        lower, upper = operation.clamp
        return f"clamp({value}, {_number(lower)}, {_number(upper)})"
    pattern: str = _UNARY.get(primitive, f"{primitive.value}({{}})")
    return pattern.format(value)


def _number(bound: float) -> str:
    """All digits of a bound, and no more: 6, -2147483648, 0.1."""
    return repr(bound).removesuffix(".0")
