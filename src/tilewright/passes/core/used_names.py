"""Names that a part of a program uses: those of sizes, and its free variables."""

from __future__ import annotations

from tilewright.ir.nodes import Variable
from tilewright.ir.traversal import bound_variables, used_variables, visit


def size_names(node: object) -> set[str]:
    """Names that occur in the sizes of a node, those in types included."""
    names: set[str] = set()

    def on_variable(one: Variable) -> None:
        for extent in one.type.shape:
            names.update(extent.names)

    visit(node, on_variable, lambda size: names.update(size.names))
    return names


def free_variables(node: object) -> tuple[Variable, ...]:
    """Variables that an expression (or a tuple of nodes) uses but does not bind, in order of first use."""
    bound = {one.name for one in bound_variables(node)}
    return tuple({one.name: one for one in used_variables(node) if one.name not in bound}.values())
