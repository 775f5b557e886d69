"""Map nests that are contractions, written in several styles, and the check that recognising them is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from naive import evaluate

from tilewright.contraction.form import Contraction, Refusal
from tilewright.contraction.recognise import recognise
from tilewright.ir.builder import Builder
from tilewright.ir.interpreter import infer_sizes, interpret
from tilewright.ir.nodes import Iota, Literal, Program, Variable
from tilewright.ir.scalars import I64, ScalarType
from tilewright.ir.sizes import size
from tilewright.ir.verifier import verify
from tilewright.ir.views import parameter_view


def recognised(program: Program) -> Contraction | Refusal:
    """What the last statement of a program is."""
    verify(program)
    *before, last = program.body.statements
    views = {one.name: parameter_view(one) for one in program.parameters if one.type.rank}
    iotas = {
        statement.targets[0].name
        for statement in before
        if isinstance(statement.expression, Iota) and statement.expression.scalar == I64
    }
    out = {target.name: parameter_view(target) for target in last.targets}
    return recognise(last, views, out, iotas)


def contraction_of(program: Program) -> Contraction:
    """The contraction that the last statement of a program is."""
    found = recognised(program)
    assert isinstance(found, Contraction), found
    return found


def refused(program: Program) -> str:
    """Why it is none."""
    found = recognised(program)
    assert isinstance(found, Refusal), found
    (reason,) = found.reasons
    return reason


def placed(shape: Sequence[int], scalar: ScalarType, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """An array of small integers that lies anyhow in a flat buffer, and that buffer."""
    if not shape:
        flat = generator.integers(-4, 5, 4).astype(scalar.numpy)
        return flat[2:3].reshape(()), flat
    order = generator.permutation(len(shape))
    steps = generator.choice([1, 1, 2, -1], len(shape))
    outer = [abs(int(steps[axis])) * shape[axis] for axis in order]
    flat = generator.integers(-4, 5, int(np.prod(outer)) + 3).astype(scalar.numpy)
    view = flat[2 : 2 + int(np.prod(outer))].reshape(outer).transpose(np.argsort(order))
    view = view[tuple(slice(None, None, int(step)) for step in steps)]
    return view[tuple(slice(0, extent) for extent in shape)], flat


def names_of(name: str, view: np.ndarray, flat: np.ndarray) -> dict[str, int]:
    """The values of a parameter view's names."""
    offset = (view.__array_interface__["data"][0] - flat.__array_interface__["data"][0]) // flat.itemsize
    names = {f"{name}.stride{axis}": stride // flat.itemsize for axis, stride in enumerate(view.strides)}
    return names | {f"{name}.offset": offset if view.size else 0}


def check(program: Program, sizes: Mapping[str, int], scalars: Mapping[str, Any] | None = None, seed: int = 0) -> None:
    """The recognised contraction, evaluated naively on strided arrays, gives what the interpreter gives."""
    contraction, scalars = contraction_of(program), scalars or {}
    generator = np.random.default_rng(seed)
    values: dict[str, int] = dict(sizes)
    buffers: dict[str, np.ndarray] = {}
    arguments: list[Any] = []
    for parameter in program.parameters:
        if not parameter.type.rank:
            arguments.append(scalars[parameter.name])
            if parameter.type.element == I64:
                values[parameter.name] = scalars[parameter.name]
            continue
        shape = [extent.evaluate(values) for extent in parameter.type.shape]
        view, flat = placed(shape, parameter.type.element, generator)
        values |= names_of(parameter.name, view, flat)
        buffers[parameter.name] = flat
        arguments.append(view)
    assert infer_sizes(program, arguments) == {name: sizes[name] for name in program.size_names}
    (expected,) = interpret(program, arguments)
    expected = np.asarray(expected)
    (target,) = program.body.results
    out, flat = placed(expected.shape, target.type.element, generator)
    values |= names_of(target.name, out, flat)
    buffers[target.name] = flat
    result = evaluate(contraction.bind(values), buffers, {**values, **scalars})
    offset = values[f"{target.name}.offset"]
    strides = [values[f"{target.name}.stride{axis}"] * flat.itemsize for axis in range(out.ndim)]
    got = np.lib.stride_tricks.as_strided(result[offset:], out.shape, strides) if out.size else out
    np.testing.assert_array_equal(got, expected)


def zero(scalar: ScalarType) -> Literal:
    """0 of a type."""
    return Literal(0.0 if scalar.is_float else 0, scalar)


def matmul_nest(b: Builder, a: Variable, columns: Variable, scalar: ScalarType) -> Variable:
    """map rows: map columns: redomap (+) (*) row column."""
    return b.map([a], lambda row: b.map([columns], lambda column: product(b, [row, column], scalar)))


def product(b: Builder, arrays: Sequence[Variable], scalar: ScalarType) -> Variable:
    """redomap (+) (*) of two vectors."""
    return b.redomap(b.operator("add", scalar), zero(scalar), arrays, lambda x, y: b.apply("mul", x, y))


__all__ = ["check", "contraction_of", "matmul_nest", "product", "recognised", "refused", "size", "zero"]
