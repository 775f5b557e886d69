"""What the panels of the packed form hold: elements in the type in which the map takes them.

A map that begins with the conversion of an operand (i8 to i32, f16 to f32, ...) would convert in the innermost loop.
Here the conversion is drawn out of it: packing converts each element once.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.contraction.form import Contraction
from tilewright.ir.nodes import Cast, Lambda, Type, Variable
from tilewright.ir.scalars import BOOL, U8, ScalarType
from tilewright.ir.traversal import mentioned, substitute
from tilewright.kernel.ir import (
    Buffer,
    Expression,
    Load,
    Shuffle,
    Store,
    VectorType,
    element_of,
    integer,
    load,
    multiply,
)
from tilewright.kernel.ir import Cast as KernelCast
from tilewright.passes.items.scalar_values import KernelBuilder, Value, component_types, load_element, store_element


def with_conversions_in_packing(contraction: Contraction) -> Contraction:
    """map(x, y) = f(cast(x), y)  =>  map(x', y) = f(x', y), where x' is what the panels hold."""
    function = contraction.map
    for parameter in function.parameters:
        function = _without_conversion(function, parameter)
    return replace(contraction, map=function)


def _without_conversion(function: Lambda, parameter: Variable) -> Lambda:
    """The function of the converted parameter, if it is used converted to one other real type and in no other way."""
    source = parameter.type.element
    uses = [one for one in function.body.statements if parameter.name in mentioned(one)]
    targets = {one.expression.scalar for one in uses if isinstance(one.expression, Cast)}
    if (
        len(targets) != 1
        or not all(isinstance(one.expression, Cast) for one in uses)
        or parameter in function.body.results
        or source.is_complex
    ):
        return function
    (target,) = targets
    if target.is_complex or target == BOOL:
        return function
    converted = Variable(parameter.name, Type(target))
    others = replace(function.body, statements=tuple(one for one in function.body.statements if one not in uses))
    body = substitute(others, {one.targets[0].name: converted for one in uses})
    parameters = tuple(converted if one == parameter else one for one in function.parameters)
    return replace(function, parameters=parameters, body=body)


def panel_types(element: ScalarType, lanes: int) -> tuple[ScalarType, ...]:
    """The types of the panels that hold values of a type: vectors of bools are kept as bytes."""
    return (U8,) if element == BOOL and lanes > 1 else component_types(element)


def in_panel_type(value: Expression, panel: ScalarType) -> Expression:
    """A value as its panel holds it."""
    if element_of(value.type) == panel:
        return value
    return KernelCast(value, VectorType(panel, value.type.lanes) if isinstance(value.type, VectorType) else panel)


def load_parts(
    buffer: Buffer, scalar: ScalarType, at: Expression, lanes: int, emit: KernelBuilder, mask: Expression | None = None
) -> Value:
    """`lanes` consecutive elements of an array: a vector, or for complex numbers that of the real parts and that of the
    imaginary parts, taken apart in registers. Of a vector of real numbers a mask may say which are read.
    """
    if lanes == 1:
        return load_element(buffer, scalar, at, emit)
    if mask is not None:
        return (emit.let(Load(buffer, at, VectorType(buffer.element, lanes), mask=mask), "elements"),)
    if not scalar.is_complex:
        return (emit.let(load(buffer, at, lanes), "elements"),)
    pairs = emit.let(load(buffer, multiply(at, integer(2)), 2 * lanes), "pairs")
    vector = VectorType(element_of(pairs.type), lanes)
    real, imaginary = (tuple(range(part, 2 * lanes, 2)) for part in (0, 1))
    return (
        emit.let(Shuffle(pairs, pairs, real, vector), "real"),
        emit.let(Shuffle(pairs, pairs, imaginary, vector), "imaginary"),
    )


def store_parts(
    buffer: Buffer,
    scalar: ScalarType,
    at: Expression,
    value: Value,
    lanes: int,
    emit: KernelBuilder,
    past: bool = False,
    mask: Expression | None = None,
) -> None:
    """Write `lanes` consecutive elements, of real numbers those that a mask picks; `past` the cache, which promises
    that they are aligned.
    """
    assert mask is None or not scalar.is_complex
    if lanes == 1:
        store_element(buffer, scalar, at, value, emit)
    elif not scalar.is_complex:
        emit.emit(Store(buffer, at, value[0], aligned=past, nontemporal=past, mask=mask))
    else:
        real, imaginary = value
        lanes_in_turns = tuple(lane + part * lanes for lane in range(lanes) for part in (0, 1))
        pairs = Shuffle(real, imaginary, lanes_in_turns, VectorType(element_of(real.type), 2 * lanes))
        emit.emit(Store(buffer, multiply(at, integer(2)), pairs, aligned=past, nontemporal=past))
