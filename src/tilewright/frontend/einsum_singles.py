"""Indices of size 1 in programs that would be nested deeply: they are left out, for they need no loop.

Every index is a level of the nest that a step is, and passes over it call one another for each. Few einsums have steps
of many indices; of these most have size 1, since others would have more elements than memories hold.

>>> spec = EinsumSpec((tuple(range(40)), (39, 40)), (0, 40))
>>> gone = needless(spec, (1,) * 39 + (3, 5), ((0, 1),), True)
>>> len(gone), without(spec, gone).output
(39, (40,))
"""

from __future__ import annotations

from typing import Any

from tilewright.frontend.einsum_arrays import Array
from tilewright.frontend.einsum_parse import BROADCAST, EinsumSpec, Labels
from tilewright.frontend.einsum_path import Path, steps_of

_DEEP = 16
"""Nests of more levels do without those of one element. Python's usual limit is reached at twice as many."""


def needless(spec: EinsumSpec, sizes: tuple[int, ...], path: Path, distributive: bool) -> frozenset[int]:
    """The labels that the program does without; none if its nests are not deep. A result keeps a dimension.

    Args:
        spec: the expression.
        sizes: of its labels.
        path: the order of contraction.
        distributive: as of the semiring.
    """
    if len(sizes) <= _DEEP or 1 not in sizes:
        return frozenset()
    steps = steps_of(spec, path, distributive)
    if max(len({*one.output, *(label for labels in one.inputs for label in labels)}) for one in steps) <= _DEEP:
        return frozenset()
    single = {label for label, extent in enumerate(sizes) if extent == 1}
    if spec.output and single.issuperset(spec.output):
        single.discard(spec.output[0])
    return frozenset(single)


def marked(labels: Labels, gone: frozenset[int]) -> Labels:
    """Labels of dimensions with those that are gone as ones that are read at 0."""
    return tuple(BROADCAST if one in gone else one for one in labels)


def without(spec: EinsumSpec, gone: frozenset[int]) -> EinsumSpec:
    """The expression whose inputs are read at 0 there, and whose output has not these dimensions."""
    inputs = tuple(marked(labels, gone) for labels in spec.inputs)
    return EinsumSpec(inputs, tuple(one for one in spec.output if one not in gone))


class Squeezed:
    """The view of a result without dimensions of size 1, as the program writes it.

    Example:
        >>> import numpy as np
        >>> Squeezed((0, 1, 0), frozenset([1]))(np.zeros((3, 1, 3))).shape
        (3, 3)
    """

    def __init__(self, output: Labels, gone: frozenset[int]) -> None:
        """Of results with dimensions of these labels."""
        self._index: tuple[Any, ...] = tuple(0 if one in gone else slice(None) for one in output)

    def __call__(self, array: Array) -> Array:
        """The view, which can be written to if the array can."""
        view: Array = array[self._index]
        return view
