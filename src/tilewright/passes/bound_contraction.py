"""The launches of a contraction whose sizes and strides are known."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import compute_type
from tilewright.ir.sizes import product, size
from tilewright.kernel.launch import Launch, LaunchDeclined
from tilewright.machine.model import Machine
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.split_sums import split_of
from tilewright.passes.tiled.tile import Tiles, contraction_launches
from tilewright.passes.tiled.tiling import IllegalTiling
from tilewright.runtime.cpu_pool import get_num_threads

LEAST_ROWS = 128
"""Fewer rows are not worth a fold in lanes (`lower_reduction`)."""


def bound_launches(
    contraction: Contraction, machine: Machine, tiles: Tiles | None, values: Mapping[str, int]
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
    if tiles:
        names = {d.name for d in bound.dimensions}
        return contraction_launches(bound, machine, {name: one for name, one in tiles.items() if name in names})
    fold = why_a_fold(bound, machine)
    if fold:
        raise LaunchDeclined(fold)
    if not machine.is_gpu_like:  # the work is shared out among the threads that may be used, not among all cores
        machine = dataclasses.replace(machine, cores=get_num_threads())
    try:
        return _written(bound, machine)
    except (IllegalTiling, LoweringError) as error:
        raise LaunchDeclined(str(error)) from error


@functools.lru_cache(maxsize=128)
def _written(bound: Contraction, machine: Machine) -> tuple[Launch, ...]:
    """The launches, written once for the rounds of a loop that the host runs."""
    return contraction_launches(bound, machine)


def check_indices(contraction: Contraction, values: Mapping[str, int]) -> None:
    """Leave a contraction with an index out of range to the general lowering, which tells it.

    Raises:
        LaunchDeclined: if there is one.
    """
    if not all(one.is_inside(values) for one in contraction.indices):
        raise LaunchDeclined("an index of the contraction is out of range")


def why_a_fold(contraction: Contraction, machine: Machine) -> str:
    """Why a contraction with known sizes is left to the lowering of folds; empty if it is not."""
    if not is_long_fold(contraction, machine):
        return ""
    if _streams(contraction) <= 1 and not isinstance(split_of(contraction, machine), str):
        return ""
    return "no element of the contraction is used twice, so its operands are read once by a fold"


def is_long_fold(contraction: Contraction, machine: Machine) -> bool:
    """Whether a contraction with known sizes has no element that is used twice, and long sums of real numbers in the
    type in which they are stored: folds in lanes read its operands once, where they lie, if there are results enough.
    Sums over several indices are folds inside folds, so that those which are one in memory are left to the other forms.
    """
    accumulator = contraction.accumulator
    reused = any(one.kind in (Kind.M, Kind.N) and one.size.constant != 1 for one in contraction.dimensions)
    summed = [one for one in contraction.of_kind(Kind.K) if one.size.constant != 1]
    length = product(one.size for one in summed).constant or 0
    is_one = len(summed) > 1 and _streams(contraction) == 1
    plain = not accumulator.is_complex and compute_type(accumulator) == accumulator
    # Neighbouring results are summed side by side by the form of a matrix and a vector.
    beside = any(
        one.kind is Kind.C and one.stride_left == one.stride_right == size(1) for one in contraction.dimensions
    )
    return not (machine.is_gpu_like or reused or beside or is_one) and plain and length >= LEAST_ROWS


def _streams(contraction: Contraction) -> int:
    """Over how many indices a contraction with known strides sums that are not one in memory."""
    return len(normalise(contraction).of_kind(Kind.K))
