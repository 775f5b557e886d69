"""`tw.einsum` in programs: the nests of maps and folds that it is outside of them, over the program's own sizes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontend import program_tracing as tracing
from tilewright.frontend.einsum_calls import parsed_expression
from tilewright.frontend.einsum_lists import interleaved
from tilewright.frontend.einsum_parse import ExtentError, resolve_extents
from tilewright.frontend.einsum_path import contraction_path, hashable_optimize
from tilewright.frontend.einsum_program import write_einsum
from tilewright.frontend.named_types import type_named
from tilewright.frontend.scalar_constants import constant
from tilewright.frontend.scalar_tracing import ScalarProxy, common_type
from tilewright.frontend.semiring import semiring_named
from tilewright.ir.nodes import Atom, Variable
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import Size, size

UNKNOWN_EXTENT = 64
"""What an extent that is not known before a call counts as where the order of contraction is looked for."""

_INSTEAD = {
    "out": "the result is an array of the program",
    "order": "the program's results are in C order",
    "epilogue": "write tw.map over the result; it is fused",
    "epilogue_operands": "write tw.map over the result; it is fused",
    "alpha": "write a product with the result; it is fused",
    "beta": "write a sum with another array; it is fused",
    "target": "give the program its target",
    "tiles": "use with_tiles of the program",
    "casting": "give a dtype, to which operands are converted",
    "memory_limit": "call einsum with it outside of the program",
}


def traced_einsum(operands: Sequence[Any], dtype: Any, optimize: Any, semiring: Any, **others: Any) -> Any:
    """An einsum of arrays and scalars of the program that is being traced.

    Args:
        operands: as of `einsum`: an expression and operands, or operands and indices in turns.
        dtype: the type to compute in (default: where the operands' types meet; plain numbers adapt).
        optimize: the order of contraction, as for `einsum`. Extents that only a call tells count as `UNKNOWN_EXTENT`.
            Integers of min_plus and the like, whose sums may then be empty, are one nest.
        semiring: what multiplies and adds.
        others: arguments that have no meaning in programs, None if they are not given.

    Raises:
        TypeError: for these, and for operands that are not of the program.
        ValueError: for expressions, sizes and paths that do not fit; sizes of two names are not known to be equal.
    """
    tracer = tracing.current("einsum")
    for name, value in others.items():
        if value is not None:
            raise TypeError(f"einsum: {name} has no meaning in a program: {_INSTEAD[name]}")
    first, values = (operands[0], operands[1:]) if isinstance(operands[0], str) else interleaved(operands)
    for number, one in enumerate(values):
        if not (tracing.is_array(one) or isinstance(one, ScalarProxy | int | float | complex | np.generic)):
            raise TypeError(f"einsum: operand {number} must be an array or a scalar, not {tracing.describe_value(one)}")
    scalar = _computed_in(values, dtype)
    atoms = [_atom(one, scalar) for one in values]
    parsed, shapes = parsed_expression(first), [_extents(one) for one in atoms]
    try:
        spec, sizes = resolve_extents(parsed, shapes)
    except ExtentError as error:
        if all(isinstance(one, int) for shape in shapes for one in shape):
            raise
        raise ExtentError(
            f"{error}; sizes of different names are not known to be equal: write one name for both in the annotations "
            "of the parameters, or say so with tw.reshape, which is checked when the program runs"
        ) from None
    known = tuple(one if isinstance(one, int) else UNKNOWN_EXTENT for one in sizes.values())
    operators = semiring_named(semiring)
    extreme = scalar.is_integer and isinstance(operators.neutral, float) and math.isinf(operators.neutral)
    if extreme and not all(isinstance(one, int) and one for one in sizes.values()):
        # A sum without terms may be drawn out of a product only if its value swallows the other factor, as inf does.
        operators = dataclasses.replace(operators, distributive=False)
    path = contraction_path(spec, known, hashable_optimize(optimize), operators.distributive)
    extents = tuple(size(one) if isinstance(one, int) else one for one in sizes.values())
    result = write_einsum(tracer, spec, atoms, extents, scalar, semiring=operators, path=path)
    if isinstance(result, Variable):
        tracer.origins[result.name] = f"einsum at {tracing.user_location()}"
    return tracing.wrap(tracer, result)


def _computed_in(values: Sequence[Any], dtype: Any) -> ScalarType:
    if dtype is not None:
        return type_named(dtype)
    strong = [one.scalar for one in values if not tracing.is_number(one)]
    met = common_type(strong) if strong else None
    return common_type([*strong, *(tracing.number_type(one, met) for one in values if tracing.is_number(one))])


def _atom(value: Any, scalar: ScalarType) -> Atom:
    if tracing.is_array(value):
        variable: Variable = value.variable
        return variable
    return value.astype(scalar).atom if isinstance(value, ScalarProxy) else constant(value, scalar)


def _extents(value: Atom) -> tuple[int | Size, ...]:
    """The sizes of a value, those that are known as numbers."""
    return tuple(one if one.constant is None else one.constant for one in value.type.shape)
