"""How the intermediates of an einsum lie in memory: the orders of their indices, by the model of trees.

>>> from tilewright.frontend.einsum_parse import EinsumSpec
>>> spec = EinsumSpec(((0, 1, 2, 3), (0, 4), (1, 5)), (4, 5, 2, 3))  # mnpq,mi,nj->ijpq
>>> intermediate_orders(spec, ((0, 1), (0, 1)), (5, 5, 12, 12, 5, 5), spec.inputs, spec.output, 16)
((4, 1, 2, 3),)
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontend.einsum_layout import Signature
from tilewright.frontend.einsum_parse import EinsumSpec, Labels, ResolvedEinsum
from tilewright.frontend.einsum_path import Path, distinct, steps_of
from tilewright.frontend.tree_layout import TrafficModel, choose_orders
from tilewright.frontend.tree_steps import Steps, TreeStep

_WORTH = 0.86
"""Of the model's cost in the order of the result: what promises to save less than that is not to be relied on."""


def intermediate_orders(
    spec: EinsumSpec, path: Path, sizes: tuple[int, ...], inputs: Sequence[Labels], output: Labels, width: int
) -> tuple[Labels, ...]:
    """The order of the result of each step but the last, outermost first; () where that of the result is as good, and
    for paths of other steps than pairs.

    Args:
        spec: the expression.
        path: the order of contraction.
        sizes: of the labels.
        inputs: the labels of each operand from the outermost in memory to the innermost.
        output: those of the result.
        width: bytes of an element.
    """
    if len(path) < 2 or any(len(positions) != 2 for positions in path) or len(distinct(output)) != len(output):
        return ()
    values = list(range(len(spec.inputs)))
    steps: list[TreeStep] = []
    for number, step in enumerate(steps_of(spec, path)):
        operands = tuple(values[position] for position in step.positions)
        gone = (*step.contracted, *(one for early in step.summed for one in early))
        steps.append(TreeStep(operands, step.output, gone))
        values = [one for position, one in enumerate(values) if position not in step.positions]
        values.append(len(spec.inputs) + number)
    order = [distinct(labels) for labels in inputs]
    statements = Steps(tuple(order), tuple(steps), sizes)
    chosen = choose_orders(statements, order, output, sizes, width)
    model = TrafficModel(statements, sizes, width)
    usual = [*order, *(step.output for step in steps[:-1]), output]
    if model.cost([*order, *chosen]) > _WORTH * model.cost(usual):
        return ()
    return chosen[:-1]


def orders_between(
    resolved: ResolvedEinsum, path: Path, operands: Sequence[Signature], axes: Sequence[int], width: int
) -> tuple[Labels, ...]:
    """The same beside operands that lie as they do.

    Args:
        resolved: the expression.
        path: the order of contraction.
        operands: their shapes and strides.
        axes: of the result, from the outermost in memory to the innermost.
        width: bytes of an element.
    """
    spec = resolved.spec
    inputs = [
        tuple(labels[axis] for axis in sorted(range(len(labels)), key=lambda axis: -abs(one.strides[axis])))
        for one, labels in zip(operands, spec.inputs, strict=True)
    ]
    output = tuple(spec.output[axis] for axis in axes)
    return intermediate_orders(spec, path, resolved.sizes, inputs, output, width)
