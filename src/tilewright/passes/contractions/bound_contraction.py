"""The launches of a contraction whose sizes and strides are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping

from tilewright.contraction.form import Contraction, Kind, Operand
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import compute_type
from tilewright.ir.sizes import product
from tilewright.kernel.launch import Launch, LaunchDeclined
from tilewright.machine.model import Machine
from tilewright.passes.contractions.contraction_launches import Asked, Kernels, contraction_launches
from tilewright.passes.contractions.remembered import Launches, remembered
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.items.sum_trees import LEAST_ROWS
from tilewright.passes.matrix_vector.form import choose_matrix_vector_form
from tilewright.passes.tiled.tiling import IllegalTiling
from tilewright.rewrite.names import expression_key
from tilewright.runtime.cache import MemoryCache
from tilewright.runtime.cpu_pool import get_num_threads

ONE_RESULT = "there is one result, whose sum a fold shares out among the threads of all blocks"


def launches_of(contraction: Contraction, machine: Machine, asked: Asked) -> Launches:
    """`bound_launches` of sizes and strides, remembered."""
    return remembered(
        sorted(contraction.size_names), lambda values: bound_launches(contraction, machine, asked, values)
    )


def bound_launches(
    contraction: Contraction, machine: Machine, asked: Asked, values: Mapping[str, int]
) -> tuple[Launch, ...]:
    """The launches for known sizes and strides.

    Raises:
        LaunchDeclined: if the tiling declines them.
        IllegalTiling: if tile sizes that the user gave break a limit.
    """
    bound = contraction.bind(values)
    empty = [d.name for d in bound.dimensions if d.size.constant == 0]
    if empty:
        raise LaunchDeclined(f"dimension {empty[0]} of the contraction is empty")
    check_indices(contraction, values)
    if asked and not isinstance(asked, Kernels):
        names = {d.name for d in bound.dimensions}
        return contraction_launches(bound, machine, {name: one for name, one in asked.items() if name in names})
    fold = why_a_fold(bound, machine)
    if fold:
        raise LaunchDeclined(fold)
    if not machine.is_gpu_like:  # the work is shared out among the threads that may be used, not among all cores
        machine = dataclasses.replace(machine, cores=get_num_threads())
    try:
        return _written(bound, machine, asked)
    except (IllegalTiling, LoweringError) as error:
        raise LaunchDeclined(str(error)) from error


_WRITTEN: MemoryCache[Hashable, tuple[tuple[str, ...], tuple[Launch, ...]]] = MemoryCache(capacity=128)


def _written(bound: Contraction, machine: Machine, asked: Asked) -> tuple[Launch, ...]:
    """The launches, written once for all contractions that differ in names only: the many alike of a long einsum."""
    names = tuple(one.buffer for one in _operands(bound))
    if bound.scalars:  # which the launches name too
        return contraction_launches(bound, machine, asked)
    key = (_without_names(bound), tuple(map(names.index, names)), machine, isinstance(asked, Kernels))
    first, launches = _WRITTEN.get_or_build(key, lambda: (names, contraction_launches(bound, machine, asked)))
    if first == names:
        return launches
    given = dict(zip(first, names, strict=True))
    return tuple(
        dataclasses.replace(one, buffers=tuple(given.get(name, name) for name in one.buffers)) for one in launches
    )


def _operands(contraction: Contraction) -> tuple[Operand, ...]:
    further = (one.operand for one in contraction.epilogue_operands)
    return (contraction.left, contraction.right, contraction.out, *further)


def _without_names(contraction: Contraction) -> Hashable:
    """A value that is equal for contractions with known sizes that differ in names only."""
    functions = (contraction.map, contraction.combine, contraction.epilogue)
    return (
        tuple((d.kind, d.size, d.stride_left, d.stride_right, d.stride_out) for d in contraction.dimensions),
        tuple((one.element, one.offset) for one in _operands(contraction)),
        tuple(one.strides for one in contraction.epilogue_operands),
        tuple(one and (tuple(p.type for p in one.parameters), expression_key(one)) for one in functions),
        expression_key(contraction.neutral),
    )


def check_indices(contraction: Contraction, values: Mapping[str, int]) -> None:
    """Leave a contraction with an index out of range to the general lowering, which tells it.

    Raises:
        LaunchDeclined: if there is one.
    """
    if not all(one.is_inside(values) for one in contraction.indices):
        raise LaunchDeclined("an index of the contraction is out of range")


def why_a_fold(contraction: Contraction, machine: Machine) -> str:
    """Why a contraction with known sizes is left to the lowering of folds; empty if it is not.

    Folds in lanes read operands of which no element is used twice once, where they lie: in the type in which they are
    stored, real, and with long sums. On devices with blocks of threads, a fold shares one long sum out among all.
    """
    accumulator = contraction.accumulator
    reused = any(one.kind in (Kind.M, Kind.N) and one.size.constant != 1 for one in contraction.dimensions)
    length = product(one.size for one in contraction.of_kind(Kind.K)).constant or 0
    plain = not accumulator.is_complex and compute_type(accumulator) == accumulator
    if not plain or length < LEAST_ROWS:
        return ""
    if machine.is_gpu_like:
        one = all(d.size.constant == 1 for d in contraction.dimensions if d.kind is not Kind.K)
        return ONE_RESULT if one else ""
    if reused:
        return ""
    streamed = choose_matrix_vector_form(normalise(contraction), machine)
    if not isinstance(streamed, str):
        return ""
    return f"no element of the contraction is used twice, and {streamed}: its operands are read once by a fold"
