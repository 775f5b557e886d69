"""Steps that launch a kernel for the points of a statement, lowered when the layouts of its arrays are known.

Scalars that a program computes from its scalar arguments and its sizes, and that kernels use, are computed in the
kernels, and those that it computes from results of kernels by kernels of their own: the host then has nothing to do
between calls, which can be repeated as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

from tilewright.ir import nodes
from tilewright.ir.nodes import Statement, Type, Variable
from tilewright.ir.scalars import I64, ScalarType, compute_type
from tilewright.ir.sizes import Size, size
from tilewright.passes.core.used_names import free_variables
from tilewright.passes.items.all_replaced import without_unseen
from tilewright.passes.points.lower_general import Points, copy_points
from tilewright.passes.points.point_kernels import lower_points
from tilewright.runtime.cache import MemoryCache
from tilewright.runtime.collecting import collection_later
from tilewright.runtime.devices import Device
from tilewright.runtime.host import KernelPlan, KernelStep, Layouts

Computed = Mapping[str, Statement]
"""The statements that compute scalars from a program's scalar arguments, by name, in their order."""


def kernel_step(
    label: str,
    points: Points,
    targets: tuple[Variable, ...],
    reads: tuple[Variable, ...],
    threads: int,
    iotas: frozenset[str] = frozenset(),
    sizes: Mapping[str, Size] | None = None,
    computed: Computed | None = None,
    extents: frozenset[str] = frozenset(),
) -> KernelStep:
    """A step that lowers its points once for each combination of layouts; `iotas` are not read from memory, `sizes`
    are scalars of the host that are known as sizes, `computed` those that the kernel computes itself;
    `extents` are names of sizes that are 0 at least.
    """
    plans: MemoryCache[Layouts, KernelPlan] = MemoryCache(capacity=64)
    prologue = _needed(reads, computed or {})
    own = {one.targets[0].name for one in prologue}
    outside = [*reads, *(one for statement in prologue for one in free_variables(statement.expression))]
    reads = tuple(dict.fromkeys(one for one in outside if one.name not in own))

    def lower(layouts: Layouts) -> KernelPlan:
        return plans.get_or_build(layouts, lambda: lowered(layouts))

    def lowered(layouts: Layouts) -> KernelPlan:
        with collection_later():
            return lower_points(label, points, targets, reads, layouts, threads, iotas, sizes, prologue, extents)

    names = {name for extent in points.space for name in extent.names}
    return KernelStep(label, targets, reads, lower, points.copied, tuple(sorted(names)))


def computes_scalar(statement: Statement, known: Collection[str], cells: Collection[str] = ()) -> bool:
    """Whether a kernel computes a scalar as it is from constants and the scalars of these names alone.

    Integers of 64 bits, which the host may need for sizes, only if it would have to read one of `cells`, which lie in
    memory.
    """
    expression = statement.expression
    if not isinstance(expression, nodes.Apply | nodes.Cast):
        return False
    operands = expression.operands if isinstance(expression, nodes.Apply) else (expression.operand,)
    types = [one.type.element for one in (*statement.targets, *operands)]
    names = [one.name for one in operands if isinstance(one, Variable)]
    is_narrow = types[0].is_integer and types[0] != I64
    stored = any(one in cells for one in names)  # by a kernel of its own, whose result is rounded to f16
    if not (types[0].is_float or types[0].is_complex or is_narrow or (types[0] == I64 and stored)):
        return False
    if not stored and any(compute_type(one) != one for one in types):
        return False
    return all(one in known or one in cells for one in names)


def _needed(reads: Sequence[Variable], computed: Computed) -> tuple[Statement, ...]:
    """The statements that compute scalars among what is read, and those that these need."""
    wanted = {one.name for one in reads}
    found: list[Statement] = []
    for name, statement in reversed(list(computed.items())):
        if name in wanted:
            found.append(statement)
            wanted.update(one.name for one in free_variables(statement.expression))
    return tuple(reversed(found))


def threads_per_block(device: Device) -> int:
    """Threads of the general kernels' blocks."""
    return 1 if device.machine.kind == "cpu" else max(2, min(256, device.machine.max_threads_per_block))


@functools.lru_cache(maxsize=256)
def copy_step(element: ScalarType, rank: int, threads: int) -> KernelStep:
    """Copying `source` to `target`, arrays of extents n0, n1, ...; a scalar `source` for rank 0."""
    shape = tuple(size(f"n{d}") for d in range(rank))
    source, target = (Variable(name, Type(element, shape)) for name in ("source", "target"))
    return kernel_step(f"copy_{element}_{rank}", copy_points(source), (target,), (source,), threads)


def read_by(expression: nodes.Expression, points: Points) -> tuple[Variable, ...]:
    """What a kernel of a statement reads; what its targets begin as is copied into them before."""
    match expression:
        case nodes.Scatter(_, indices, values):
            return free_variables((indices, values))
        case nodes.If() | nodes.Loop():
            begun = {one.name for _, one in points.copied}
            return tuple(one for one in free_variables(without_unseen(expression)) if one.name not in begun)
    return free_variables(expression)
