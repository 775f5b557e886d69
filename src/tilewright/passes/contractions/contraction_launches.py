"""From a contraction with known sizes to kernel launches, for the machine at hand.

A machine whose blocks have threads and shared memory gets the block- and register-tiled form, a CPU the direct or the
packed form (form_choice.py); all cut the same dimensions into tiles and stage them one level down.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise, order_dimensions, reclassify
from tilewright.contraction.split_sum import SplitSum
from tilewright.kernel.launch import Launch, Temporary
from tilewright.machine.model import Machine
from tilewright.passes.contractions.form_choice import FormChoice, choose_form
from tilewright.passes.contractions.lane_choice import choose_lane_product
from tilewright.passes.contractions.record_choice import choose_record_product
from tilewright.passes.contractions.relaid import relaid_launches, relaid_of
from tilewright.passes.contractions.split_sums import split_of, split_over_blocks
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.matrix_vector.form import MatrixVectorForm
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.tiled.tiling import IllegalTiling

if TYPE_CHECKING:  # what writes a kernel is imported when it is written
    from tilewright.passes.tiled.form import TileForm

Tiles: TypeAlias = Mapping[str, tuple[int, int] | int]


class Kernels(Enum):
    """What may be asked of the kernels of contractions instead of tile sizes."""

    ANY_SHAPE = "any shape"
    """On a CPU, where little is to be done: the kernel of any shape, which is compiled once for all of them."""


Asked: TypeAlias = Tiles | Kernels | None


def tiled_form(contraction: Contraction, machine: Machine, tiles: Tiles | None = None) -> TileForm:
    """The decisions for the block- and register-tiled kernel.

    With `tiles`, dimensions keep their names and are not fused.

    Raises:
        IllegalTiling: if no tiling, or not the given one, fits the machine; names the limit.
    """
    from tilewright.passes.tiled.choice import choose_tiling, ranked_tilings
    from tilewright.passes.tiled.form import make_form

    ready = order_dimensions(reclassify(contraction)) if tiles else normalise(contraction)
    if not tiles:
        forms = (make_form(ready, tiling) for tiling in ranked_tilings(ready, machine))
        return next(form for form in forms if form.shared_bytes <= machine.shared_bytes_per_block)
    form = make_form(ready, choose_tiling(ready, machine, tiles))
    if form.shared_bytes > machine.shared_bytes_per_block:
        raise IllegalTiling(
            f"the padded tiles need {form.shared_bytes} bytes of shared memory per block;"
            f" {machine.name} has {machine.shared_bytes_per_block}"
        )
    return form


def cpu_form(contraction: Contraction, machine: Machine, tiles: Tiles | None = None) -> FormChoice:
    """The direct or the packed form, and why.

    Raises:
        IllegalTiling: if tile sizes are given; on a CPU they follow from the vector registers.
    """
    _refuse_tiles(tiles)
    return choose_form(normalise(contraction), machine)


def _refuse_tiles(tiles: Tiles | None) -> None:
    if tiles:
        raise IllegalTiling(
            f"tiles are given for {', '.join(tiles)}, but on a CPU the register tile is not chosen by hand"
        )


def write_cpu_kernel(form: DirectForm | PackedForm | MatrixVectorForm) -> Launch:
    """The kernel of a form of the CPU, and its launch."""
    if isinstance(form, MatrixVectorForm):
        from tilewright.passes.matrix_vector.kernel import write_matrix_vector_kernel

        return write_matrix_vector_kernel(form)
    if isinstance(form, DirectForm):
        from tilewright.passes.direct.kernel import write_direct_kernel

        return write_direct_kernel(form)
    from tilewright.passes.packed.kernel import write_packed_kernel

    return write_packed_kernel(form)


def contraction_launches(contraction: Contraction, machine: Machine, asked: Asked = None) -> tuple[Launch, ...]:
    """The launches that compute a contraction, in order.

    Args:
        contraction: with known sizes, strides and offsets (see `Contraction.bind`).
        machine: the machine that runs them.
        asked: tile sizes fixed by the user, by dimension: (T, R) for parallel ones, Q for contracted ones; or kernels
            of any shape.

    Raises:
        IllegalTiling: if given tiles are wrong or break a limit of the machine.
    """
    any_shape = isinstance(asked, Kernels)
    tiles = None if isinstance(asked, Kernels) else asked
    if machine.is_gpu_like:
        from tilewright.passes.tiled.kernel import write_kernel

        over_blocks = "" if tiles else split_over_blocks(contraction, machine)
        if isinstance(over_blocks, str):
            return (write_kernel(tiled_form(contraction, machine, tiles)),)
        return split_launches(over_blocks, lambda one: write_kernel(tiled_form(one, machine)))
    _refuse_tiles(tiles)
    split = split_of(contraction, machine)
    if isinstance(split, str):
        return _cpu_launches(contraction, machine, any_shape)
    return split_launches(split, lambda one: write_cpu_kernel(cpu_form(one, machine).form))


def _cpu_launches(contraction: Contraction, machine: Machine, any_shape: bool) -> tuple[Launch, ...]:
    """The launches of a contraction whose sum is not split; with `any_shape`, little work gets such a kernel."""
    records = choose_record_product(contraction, machine)
    if not isinstance(records, str):
        from tilewright.passes.lane_products.record_kernel import write_record_product

        return (write_record_product(records),)
    in_lanes = choose_lane_product(contraction, machine)
    if not isinstance(in_lanes, str):
        from tilewright.passes.lane_products.kernel import write_lane_product

        return (write_lane_product(in_lanes.form),)
    if any_shape:
        from tilewright.passes.contractions.any_shape import any_shape_launch

        launch = any_shape_launch(contraction, machine)
        if not isinstance(launch, str):
            return (launch,)
    relaid = relaid_of(contraction, machine)
    if isinstance(relaid, str):
        return (write_cpu_kernel(cpu_form(contraction, machine).form),)
    return relaid_launches(relaid, write_cpu_kernel(cpu_form(relaid.contraction, machine).form), machine)


def split_launches(split: SplitSum, written: Callable[[Contraction], Launch]) -> tuple[Launch, ...]:
    """The launches of a split sum: its pieces, the rest if there is one, and what combines their results."""
    launches = [written(one) for one in (*split.parts, split.combined)]
    partial = Temporary(split.partial, split.element, split.elements)
    return (dataclasses.replace(launches[0], temporaries=(partial,)), *launches[1:])
