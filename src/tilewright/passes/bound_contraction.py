"""The launches of a contraction whose sizes and strides are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.contraction.form import Contraction
from tilewright.kernel.launch import Launch, LaunchDeclined
from tilewright.machine.model import Machine
from tilewright.passes.lower_reduction import is_long_fold
from tilewright.passes.scalar_values import LoweringError
from tilewright.passes.tile import Tiles, contraction_launches
from tilewright.passes.tiling import IllegalTiling
from tilewright.runtime.cpu_pool import get_num_threads


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
    if not tiles and is_long_fold(bound, machine):
        raise LaunchDeclined("no element of the contraction is used twice, so its operands are read once by a fold")
    if tiles:
        names = {d.name for d in bound.dimensions}
        return contraction_launches(bound, machine, {name: one for name, one in tiles.items() if name in names})
    if not machine.is_gpu_like:  # the work is shared out among the threads that may be used, not among all cores
        machine = dataclasses.replace(machine, cores=get_num_threads())
    try:
        return contraction_launches(bound, machine)
    except (IllegalTiling, LoweringError) as error:
        raise LaunchDeclined(str(error)) from error
