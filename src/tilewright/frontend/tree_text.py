"""Trees with their sizes, costs and layouts as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.frontend.deep_trees import Walk, answer
from tilewright.frontend.einsum_parse import Labels
from tilewright.frontend.tree_memory import MemoryPlan
from tilewright.frontend.tree_steps import ResolvedTree, TreeStep
from tilewright.ir.scalars import ScalarType
from tilewright.runtime.memory import available_host_bytes, format_bytes


def describe(tree: ResolvedTree, memory: MemoryPlan, orders: Sequence[Labels], dtype: ScalarType, device: str) -> str:
    """The tree from its result down to its inputs: for each value its order in memory, shape, dimensions and flops."""
    shape = [tree.sizes[label] for label in tree.output]
    lines = [
        f"TreePlan {tree.tree}",
        f"{dtype}{shape} on {device}: {_counted(len(tree.steps), 'step')}, {_amount(memory.flops)}flop, "
        f"peak memory {format_bytes(memory.peak)}",
    ]
    if memory.pieces:
        cuts = ", ".join(f"{tree.names[label]}={tree.sizes[label]} by {piece}" for label, piece in memory.pieces)
        how = "added up" if memory.accumulates else "written into the result"
        lines.append(f"{_counted(memory.slices(tree), 'slice')} of {cuts}, {how}")
        if memory.first:
            values = ", ".join(tree.text(orders[value]) for value, _ in memory.first)
            lines.append(f"computed once before: {values}")
    ranks = [value for _, schedule in memory.first for value in schedule.order] + list(memory.main.order)
    places = {value: number for number, value in enumerate(ranks, start=1)}
    rows: list[tuple[str, ...]] = []
    answer(_add_rows(rows, tree, orders, places, tree.root, "", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def too_large(tree: ResolvedTree, memory: MemoryPlan, orders: Sequence[Labels], error: MemoryError) -> str:
    """What is told of a tree for whose arrays the host has too little memory, by an error that names no indices."""
    available = available_host_bytes()
    if memory.peak <= available:  # something else took the memory
        return f"tree {tree.tree}: {error}"
    pieces = dict(memory.pieces)
    sizes = tuple(pieces.get(label, extent) for label, extent in enumerate(tree.sizes))
    computed = [value for _, schedule in memory.first for value in schedule.order] + list(memory.main.order)
    largest = max(computed, key=lambda value: tree.volume(orders[value], sizes))
    shape = tuple(sizes[label] for label in orders[largest])
    return (
        f"tree {tree.tree} needs {format_bytes(memory.peak)} at its peak, but the host has {format_bytes(available)} "
        f"available; the largest array{' of a slice' * bool(pieces)} is {tree.text(orders[largest])} of shape {shape}. "
        f"With a {'lower ' * bool(pieces)}memory_limit it is computed in slices"
    )


def _add_rows(
    rows: list[tuple[str, ...]],
    tree: ResolvedTree,
    orders: Sequence[Labels],
    places: dict[int, int],
    value: int,
    head: str,
    tail: str,
) -> Walk[None]:
    labels = orders[value]
    shape = "x".join(str(tree.sizes[label]) for label in labels) or "scalar"
    if value < len(tree.inputs):
        rows.append((f"{head}{tree.text(labels)}", shape, f"input {value}", "", ""))
        return
    step = tree.step(value)
    what = _kinds(tree, step) + "".join(f" {name}" for name in step.activations)
    rows.append(
        (f"{head}{tree.text(labels)}", shape, f"step {places[value]}", what, f"{_amount(tree.flops(step))}flop")
    )
    for position, one in enumerate(step.operands):
        last = position == len(step.operands) - 1
        yield _add_rows(
            rows, tree, orders, places, one, tail + ("└─ " if last else "├─ "), tail + ("   " if last else "│  ")
        )


def _kinds(tree: ResolvedTree, step: TreeStep) -> str:
    """The step's dimensions by kind: M=.. N=.. K=.. C=.. as in a matrix product."""
    if len(step.operands) == 1:
        return f"sum over {tree.text(step.contracted)}" if step.contracted else "a pass over an input"
    left, right = (set(tree.labels(one)) for one in step.operands)
    kinds = {
        "M": [a for a in step.output if a not in right],
        "N": [a for a in step.output if a not in left],
        "K": list(step.contracted),
        "C": [a for a in step.output if a in left and a in right],
    }
    return " ".join(f"{kind}={tree.volume(tuple(labels))}" for kind, labels in kinds.items() if labels)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _amount(value: float) -> str:
    """A number with three digits and a prefix: "1.23 M"."""
    if value < 1000:
        return f"{int(value)} "
    exponent = min(int(math.log10(value)) // 3, 5)
    return f"{value / 1000**exponent:.3g} " + " kMGTP"[exponent]
