"""One kernel of the packed form for contractions of any shape: what those get that are not worth one of their own.

    sizes, strides, blocks as written into a kernel's form    =>    as parameters of one kernel of each type and tile

Compiling a kernel takes as long as ten thousand products of 16 x 16 matrices. This one is compiled once: it has as many
dimensions of each kind as most contractions have, of which some have one element; it asks its tables what lies side by
side, and copies the rest by elements. Its sums have the same bits as those of the form that it stands for: a chain in
the order of that form's dimensions, of that form's vector side (of complex products the parts are added in that order).
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant, normalise
from tilewright.ir.scalars import C64, C128, F32, F64
from tilewright.ir.sizes import size
from tilewright.kernel.ir import Kernel
from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.contractions.relaid import relaid_of, sum_to_turn
from tilewright.passes.direct.choice import order_of_sum
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.matrix_vector.form import MatrixVectorForm, choose_matrix_vector_form
from tilewright.passes.matrix_vector.row_products import choose_row_products
from tilewright.passes.packed.blocks import BLOCK, even, panel_bytes
from tilewright.passes.packed.choice import make_packed_form, side_of
from tilewright.passes.packed.form import MOST_STEPS, PackedForm, SideDimension, is_multiply_add
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.runtime.cache import MemoryCache

MOST_POINTS = 1 << 23
"""Multiply-adds beyond which a contraction is worth a kernel of its own at once: they take a millisecond."""
ROOMS: tuple[dict[Kind, int], ...] = (
    {Kind.C: 1, Kind.M: 3, Kind.N: 3, Kind.K: 2},
    {Kind.C: 3, Kind.M: 8, Kind.N: 8, Kind.K: 6},
)
"""Dimensions of each kind that kernels have: as many as usual, and as there are in the middle of large networks."""
LARGE_FILE = 32
"""Vector registers that hold the sums of eight rows of two vectors; half as many rows are of complex numbers."""

_WRITTEN: MemoryCache[Hashable, Kernel] = MemoryCache(capacity=64)


def any_shape_launch(contraction: Contraction, machine: Machine) -> Launch | str:
    """The launch of the kernel of any shape that computes the bits of a contraction's own form, or why there is none.

    Args:
        contraction: with known sizes.
        machine: the CPU.

    Raises:
        LoweringError: if the contraction has no form of its own.
    """
    contraction = normalise(contraction)
    reason = _why_not(contraction, machine)
    form = reason or _sure_form(contraction, machine) or _chosen_form(contraction, machine)
    if isinstance(form, str):
        return form
    packed = any_shape_form(form, contraction, machine)
    dimensions = len(packed.contraction.dimensions)
    key = contraction.accumulator, packed.lanes, packed.vectors, packed.rows, packed.panel_bytes, dimensions
    names = tuple(one.buffer for one in (packed.vector_operand, packed.scalar_operand, contraction.out))
    kernel = _WRITTEN.get_or_build(key, lambda: write_packed_kernel(packed).kernel)
    values = parameters_of(packed)
    scalars = tuple(values[one.name.rpartition("_")[0]] for one in kernel.scalars)
    return Launch(kernel, math.prod(constant(one.size) for one in contraction.of_kind(Kind.C)), names, scalars)


def _why_not(contraction: Contraction, machine: Machine) -> str:
    """Why the kernel of any shape is not for a contraction; empty if it may be."""
    accumulator = contraction.accumulator
    operands = (contraction.left, contraction.right, contraction.out)
    types = {accumulator, *(one.element for one in operands), *(one.type.element for one in contraction.map.parameters)}
    points = _steps(contraction) * math.prod(_total(contraction, kind) for kind in (Kind.C, Kind.M, Kind.N))
    if accumulator not in (F32, F64, C64, C128) or types != {accumulator} or not is_multiply_add(contraction):
        return "it does not sum products of numbers of one type of 32 or 64 bits"
    if contraction.epilogue is not None or contraction.scalars:
        return "it has an epilogue"
    if points > MOST_POINTS:
        return f"of {points} multiply-adds a kernel of its own is worth it"
    if not contraction.of_kind(Kind.K):
        return "there is no sum"
    if _steps(contraction) > MOST_STEPS:
        return "the sum is one of pieces"
    if _room_for(contraction) is None:
        return "there are more dimensions than it has"
    if machine.lanes(component_types(accumulator)[0].bytes) < 2:
        return "the machine has no vectors"
    return ""


def _sure_form(contraction: Contraction, machine: Machine) -> PackedForm | None:
    """A form that sums as the contraction's own does, whichever that is, since none is possible that has partial sums,
    and all have the same order of the sum's dimensions. To choose takes ten times as long.
    """
    orders = {contraction.of_kind(Kind.K), *(order_of_sum(contraction, left) for left in (True, False))}
    if contraction.of_kind(Kind.C) or len(orders) > 1:
        return None
    if sum_to_turn(contraction, machine) is not None:
        return None
    for choose in (choose_matrix_vector_form, choose_row_products):
        if not isinstance(choose(contraction, machine), str):
            return None
    form = make_packed_form(contraction, machine)
    return form if form.depth >= _steps(contraction) and form.fused_multiply_add else None


def _chosen_form(contraction: Contraction, machine: Machine) -> DirectForm | PackedForm | str:
    """The contraction's own form, if the kernel of any shape can stand for it, or why it cannot."""
    relaid = relaid_of(contraction, machine)
    form = choose_form(contraction, machine).form if isinstance(relaid, str) else relaid.choice.form
    if isinstance(form, MatrixVectorForm) or not form.fused_multiply_add:
        return "its own form sums along vectors"
    if isinstance(form, PackedForm) and form.depth < _steps(contraction):
        return "the sum is one of pieces"
    if {one.name for one in contraction.of_kind(Kind.K)} != set(_sums_of(form)):
        return "the sum is over other dimensions"
    return form


def any_shape_form(form: DirectForm | PackedForm, contraction: Contraction, machine: Machine) -> PackedForm:
    """The form of the kernel of any shape that computes what another form does."""
    vector_left = form.vector_left
    order = sorted(contraction.of_kind(Kind.K), key=lambda one: _sums_of(form).index(one.name))
    kinds = {kind: contraction.of_kind(kind) for kind in (Kind.C, Kind.M, Kind.N)} | {Kind.K: order}
    room = _room_for(contraction)
    assert room is not None, "asked before"
    padded = tuple(
        one for kind, members in kinds.items() for one in (*_units(kind, room[kind] - len(members)), *members)
    )
    parts = component_types(contraction.accumulator)
    lanes, element_bytes = machine.lanes(parts[0].bytes), len(parts) * parts[0].bytes
    vector, scalar = (_side(contraction, left, room) for left in (vector_left, not vector_left))
    totals = tuple(math.prod(one.size for one in side) for side in (vector, scalar))
    vectors = 1 if totals[0] <= lanes else 2
    rows = (8 if machine.vector_registers >= LARGE_FILE else 4) // (1 if vectors == 1 else len(parts))
    steps, memory = _steps(contraction), panel_bytes(machine)
    return PackedForm(
        contraction=replace(contraction, dimensions=padded),
        vector_left=vector_left,
        vector_dimensions=vector,
        scalar_dimensions=scalar,
        lanes=lanes,
        vectors=vectors,
        rows=rows,
        vector_block=even(totals[0], min(BLOCK, memory[0] // (steps * element_bytes)), vectors * lanes),
        scalar_block=even(totals[1], min(BLOCK, memory[1] // (steps * element_bytes)), rows),
        depth=steps,
        fused_multiply_add=True,
        scalar_inner=False,
        buffered=False,
        nontemporal=False,
        scalar_rows=False,
        vector_chunk=totals[0],
        scalar_chunk=totals[1],
        panel_bytes=memory,
        any_shape=True,
    )


def parameters_of(form: PackedForm) -> dict[str, int]:
    """The parameters of the kernel of any shape, by the names that its writer gives them."""
    contraction = form.contraction
    batch, sums = contraction.of_kind(Kind.C), contraction.of_kind(Kind.K)
    totals = form.total(form.vector_dimensions), form.total(form.scalar_dimensions)
    values = {
        "vector_block": form.vector_block, "scalar_block": form.scalar_block, "depth_block": form.depth,
        "pitch": form.pitch, "contracted": form.contracted_total, "contracted_loop_end": form.contracted_total,
        "vector_total": totals[0], "scalar_total": totals[1], "vector_chunk": form.vector_chunk,
        "scalar_chunk": form.scalar_chunk, "vector_chunks": 1, "scalar_chunks": 1,
        "vector_offset": constant(form.vector_operand.offset), "scalar_offset": constant(form.scalar_operand.offset),
        "out_offset": constant(contraction.out.offset),
    }  # fmt: skip
    for name, side in (("v", form.vector_dimensions), ("s", form.scalar_dimensions)):
        for place, member in enumerate(side):
            values |= {
                f"{name}{place}_size": member.size, f"{name}{place}_stride": member.stride,
                f"{name}{place}_out_stride": member.stride_out,
            }  # fmt: skip
    left = form.vector_left
    for place, one in enumerate(sums):
        values |= {
            f"k{place}_size": constant(one.size), f"k{place}_v_stride": constant(one.stride(left)),
            f"k{place}_s_stride": constant(one.stride(not left)),
        }  # fmt: skip
    for place, one in enumerate(batch):
        values |= {
            f"c{place}_size": constant(one.size), f"c{place}_vector_stride": constant(one.stride(left)),
            f"c{place}_scalar_stride": constant(one.stride(not left)),
            f"c{place}_out_stride": constant(one.stride_out),
        }  # fmt: skip
    return values


def _sums_of(form: DirectForm | PackedForm) -> tuple[str, ...]:
    """The names of the dimensions of a form's sum, outermost first."""
    order = form.contracted if isinstance(form, DirectForm) else form.contraction.of_kind(Kind.K)
    return tuple(one.name for one in order)


def _steps(contraction: Contraction) -> int:
    """Terms of each sum."""
    return _total(contraction, Kind.K)


def _total(contraction: Contraction, kind: Kind) -> int:
    return math.prod(constant(one.size) for one in contraction.of_kind(kind))


def _room_for(contraction: Contraction) -> dict[Kind, int] | None:
    """The least numbers of dimensions that suffice for a contraction; None if none do."""
    counts = {kind: len(contraction.of_kind(kind)) for kind in Kind}
    return next((room for room in ROOMS if all(counts[kind] <= most for kind, most in room.items())), None)


def _units(kind: Kind, count: int) -> tuple[Dimension, ...]:
    """Dimensions of one element."""
    nothing = size(0)
    return tuple(
        Dimension(f"unit_{kind.value}{number}", kind, size(1), nothing, nothing, nothing) for number in range(count)
    )


def _side(contraction: Contraction, left: bool, room: dict[Kind, int]) -> tuple[SideDimension, ...]:
    """The dimensions of the left operand that the other has not, or of the right one, with some of one element."""
    kind = Kind.M if left else Kind.N
    members = side_of(contraction, kind, left)
    return (*(SideDimension(one, 1, 0, 0) for one in _units(kind, room[kind] - len(members))), *members)
