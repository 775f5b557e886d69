"""Core programs of trees: one statement for each step, in the planned order.

>>> from tilewright.frontend.tree_parse import parse_tree
>>> from tilewright.frontend.tree_steps import resolve_tree
>>> from tilewright.ir.scalars import F32
>>> tree = resolve_tree(parse_tree("[[0,1],[1,2]->[0,2]],[2,3]->[0,3]"), {0: 4, 1: 5, 2: 6, 3: 7})
>>> program = tree_program(tree, (3, 4), (*tree.inputs, *(one.output for one in tree.steps)), (F32,) * 3, F32, F32)
>>> [str(one.type) for one in program.parameters], str(program.body.results[0].type)
(['[a][d]f32', '[d][c]f32', '[c][b]f32'], '[a][b]f32')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from tilewright.frontend.einsum_parse import Labels
from tilewright.frontend.einsum_program import size_name, write_contraction
from tilewright.frontend.scalar_functions import relu
from tilewright.frontend.tree_steps import ResolvedTree
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Atom, Program, Type
from tilewright.ir.scalars import ScalarType, compute_type
from tilewright.ir.sizes import size
from tilewright.ir.traversal import FreshNames

_FUNCTIONS: dict[str, Callable[[Any], Any]] = {"relu": relu}


def operands_of(tree: ResolvedTree, order: Sequence[int]) -> tuple[int, ...]:
    """The values that steps need and do not compute themselves, in order of their numbers: a program's parameters."""
    needed = {one for value in order for one in tree.step(value).operands}
    return tuple(sorted(needed - set(order)))


def tree_program(
    tree: ResolvedTree,
    order: Sequence[int],
    orders: Sequence[Labels],
    inputs: Sequence[ScalarType],
    dtype: ScalarType,
    result: ScalarType,
) -> Program:
    """The program of some steps of a tree; its result is that of the last one.

    Args:
        tree: the steps.
        order: the values to compute, in order.
        orders: for every value the indices of its dimensions, outermost first; for inputs those of their dimensions.
        inputs: the element types of the inputs.
        dtype: the type that is computed in; intermediates of f16 and bf16 are kept in f32.
        result: the element type of the result.

    Raises:
        TypeError: if an activation is not defined on the type.
    """
    names = FreshNames()
    for label in range(len(tree.sizes)):
        names.reserve(size_name(label))
    builder = Builder(names)
    inner = compute_type(dtype)
    values: dict[int, Atom] = {}
    parameters = []
    for value in operands_of(tree, order):
        element = inputs[value] if value < len(inputs) else inner
        shape = tuple(size(size_name(label)) for label in orders[value])
        hint = f"input{value}" if value < len(inputs) else f"value{value}"
        values[value] = parameter = builder.variable(hint, Type(element, shape))
        parameters.append(parameter)
    for value in order:
        step = tree.step(value)
        operands = [(values[one], tuple(orders[one])) for one in step.operands]
        stored = result if value == order[-1] else inner
        try:
            values[value] = write_contraction(
                builder, operands, tuple(orders[value]), step.contracted, dtype,
                function=_composed(step.activations), out=stored,
            )  # fmt: skip
        except TypeError as error:
            if not step.activations:
                raise
            raise TypeError(f"tree {tree.tree}: {step.activations[0]} is not defined on {dtype}: {error}") from error
    return builder.program("einsum_tree", parameters, [values[order[-1]]])


@lru_cache(maxsize=64)
def _composed(names: tuple[str, ...]) -> Callable[[Any], Any] | None:
    if not names:
        return None

    def function(value: Any) -> Any:
        for name in names:
            value = _FUNCTIONS[name](value)
        return value

    return function
