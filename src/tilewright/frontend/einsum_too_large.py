"""What is told of an einsum for whose arrays the host has too little memory, in the user's indices."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilewright.frontend.einsum_parse import Labels, ResolvedEinsum
from tilewright.frontend.einsum_program import size_name
from tilewright.ir.nodes import Map, Program, Variable
from tilewright.ir.sizes import size
from tilewright.runtime.memory import available_host_bytes, format_bytes


def too_large(resolved: ResolvedEinsum, program: Program, error: MemoryError) -> str:
    """What an error of the program means, which knows its arrays by names of its own."""
    made = {one: _labels(one, resolved) for one in _intermediates(program)}
    needed = {
        one: math.prod(resolved.sizes[n] for n in labels) * one.type.element.bytes for one, labels in made.items()
    }
    available = available_host_bytes()
    if max(needed.values(), default=0) <= available:  # something else took the memory
        return f"einsum {resolved.expression!r}: {error}"
    largest = max(made, key=needed.__getitem__)
    shape = tuple(resolved.sizes[n] for n in made[largest])
    return (
        f"einsum {resolved.expression!r}: the intermediate {resolved.text(made[largest])!r} of shape {shape} in "
        f"{largest.type.element} needs {format_bytes(needed[largest])}, but the host has {format_bytes(available)} "
        "available; another order (optimize=) may do without it, and tw.einsum computes sums of products in slices "
        "with a memory_limit"
    )


def _intermediates(program: Program) -> Iterator[Variable]:
    for statement in program.body.statements:
        if isinstance(statement.expression, Map):
            yield from (one for one in statement.targets if one not in program.body.results)


def _labels(array: Variable, resolved: ResolvedEinsum) -> Labels:
    labels = {size(size_name(label)): label for label in range(len(resolved.sizes))}
    return tuple(labels[extent] for extent in array.type.shape)
