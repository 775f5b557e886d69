"""A fold of mapped rows as a map and a fold, where they cannot be lowered together."""

from __future__ import annotations

from tilewright.ir import nodes
from tilewright.ir.nodes import Expression, Statement, Variable


def split_fold(statement: Statement, fold: nodes.Redomap | nodes.Scanomap) -> tuple[Statement, Statement]:
    """redomap combine neutral f xs = reduce combine neutral (map f xs), and the same for scanomap."""
    count = len(fold.neutral)
    rows = tuple(
        Variable(f"{target}.rows", atom.type.array_of(fold.width))
        for target, atom in zip(statement.targets[:count], fold.neutral, strict=True)
    )
    mapped = Statement((*rows, *statement.targets[count:]), nodes.Map(fold.width, fold.function, fold.arrays))
    folded: Expression
    if isinstance(fold, nodes.Redomap):
        folded = nodes.Reduce(fold.width, fold.combine, fold.neutral, rows, fold.commutative)
    else:
        folded = nodes.Scan(fold.width, fold.combine, fold.neutral, rows)
    return mapped, Statement(statement.targets[:count], folded)
