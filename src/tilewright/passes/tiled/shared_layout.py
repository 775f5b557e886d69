"""Where the staged tile of an operand lies in shared memory, padded exactly where a bank conflict is seen.

A tile is indexed by (q..., r..., t..., g): the contracted indices, then the register parts and the thread parts of the
operand's parallel dimensions, and at last the neighbours that a thread reads at once. So the threads of a warp read
neighbouring words at every step of the accumulation, whatever R is. The staging writes follow the operand's own
layout in global memory instead, so they may collide; then the rows are padded by [S0 4.4]: one element where the
flattened inner size is even (eq. 19-21).
A copy that moves vectors writes elements that are several rows apart; two, four or eight elements then do what one does
for scalars.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tilewright.contraction.form import Dimension
from tilewright.ir.dataclass import dataclass

Addresses: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]

BANKS = 32
BANK_BYTES = 4


@dataclass(frozen=True)
class TileAxis:
    """One dimension of an operand's tile: its place among the parallel (or contracted) dimensions and its extents.

    A contracted axis has thread == 1 and register == Q. `global_stride` orders the collective copy. Of a register part,
    `group` elements are neighbours; at most one axis of an operand has more than one.
    """

    dimension: Dimension
    contracted: bool
    position: int
    thread: int
    register: int
    global_stride: int
    group: int = 1

    @property
    def extent(self) -> int:
        """Elements of the tile along this axis."""
        return self.thread * self.register


@dataclass(frozen=True)
class SharedLayout:
    """Strides (in elements) of an operand's tile; per axis, of its thread part and its register (or q) part.

    Element g + group * (t + thread * r) of an axis lies at g + t * thread stride + r * register stride.
    """

    axes: tuple[TileAxis, ...]
    thread_strides: tuple[int, ...]
    register_strides: tuple[int, ...]
    size: int
    padding: int
    staging_conflict: int
    load_conflict: int

    @property
    def copy_order(self) -> tuple[int, ...]:
        """Axes as the collective copy runs over them: largest global stride first, the unit stride last."""
        return copy_order(self.axes)

    def stores_vectors(self, vector: int) -> bool:
        """True if the elements of one copy step are neighbours in the tile, and aligned there."""
        unit = self.copy_order[-1]
        axis = self.axes[unit]
        stride = self.register_strides[unit] if axis.contracted else self.thread_strides[unit]
        in_group = axis.group % vector == 0
        others = [
            step
            for position, one in enumerate(self.axes)
            for step, used in (
                (self.thread_strides[position], one.thread > 1),
                (self.register_strides[position], one.register > one.group),
            )
            if used and not (position == unit and step == stride and not in_group)
        ]
        return (in_group or stride == axis.group) and all(step % vector == 0 for step in others)

    def is_linear(self, position: int) -> bool:
        """True if neighbours along an axis are neighbours in the tile."""
        axis = self.axes[position]
        if axis.contracted:
            return self.register_strides[position] == 1
        steps = ((axis.thread, self.thread_strides, axis.group),
                 (axis.register // axis.group, self.register_strides, axis.group * axis.thread))  # fmt: skip
        return all(count == 1 or strides[position] == run for count, strides, run in steps)

    def address(self, position: int, index: int | Addresses) -> Any:
        """Contribution of element `index` along axis `position`."""
        axis = self.axes[position]
        group, whole = index % axis.group, index // axis.group
        return (
            group
            + whole % axis.thread * self.thread_strides[position]
            + whole // axis.thread * self.register_strides[position]
        )


def copy_order(axes: tuple[TileAxis, ...]) -> tuple[int, ...]:
    """Axes as the collective copy runs over them: largest global stride first, the unit stride last."""
    return tuple(sorted(range(len(axes)), key=lambda a: (-abs(axes[a].global_stride), a)))


def operand_axes(
    dimensions: tuple[tuple[Dimension, int, int], ...],
    contracted: tuple[tuple[Dimension, int], ...],
    present: tuple[bool, ...],
    strides: tuple[int, ...],
    groups: tuple[int, ...],
) -> tuple[TileAxis, ...]:
    """The axes of an operand: contracted ones first, then its parallel ones in thread order."""
    axes = [
        TileAxis(one, True, position, 1, q, strides[len(dimensions) + position])
        for position, (one, q) in enumerate(contracted)
    ]
    axes += [
        TileAxis(one, False, position, t, r, strides[position], groups[position])
        for position, (one, t, r) in enumerate(dimensions)
        if present[position]
    ]
    return tuple(axes)


@lru_cache(maxsize=4096)
def choose_layout(
    axes: tuple[TileAxis, ...], thread_shape: tuple[int, ...], element_bytes: int, vector: int = 1
) -> SharedLayout:
    """The smallest layout whose inner loads are free of conflicts, then with the fewest conflicts in staging.

    Candidates: thread axes in thread order or with the operand's unit-stride axis innermost, rows unpadded or padded
    by [S0 4.4]. Conflicts are counted, not guessed: the addresses of one warp are laid out over the banks.
    `vector` is how many elements one step of the collective copy moves.
    """
    thread_axes = [position for position, axis in enumerate(axes) if not axis.contracted]
    orders = [thread_axes]
    if thread_axes:
        unit = min(thread_axes, key=lambda position: abs(axes[position].global_stride))
        orders.append([position for position in thread_axes if position != unit] + [unit])
    group = math.prod(axis.group for axis in axes)
    paddings = (0, 1) if vector == 1 else (0, 1, 2, 4, 8)
    candidates = [
        _layout(axes, tuple(order), pad_threads, row_padding, thread_shape, element_bytes, vector)
        for order in orders
        for pad_threads in (False, True)
        for row_padding in paddings
        if row_padding == 1 or row_padding % group == 0
    ]
    return min(candidates, key=lambda one: (one.load_conflict, one.staging_conflict, one.size))


def pad_term(flat_size: int) -> int:
    """One if the size is even, else zero [S0 eq. 19]."""
    return 1 - flat_size % 2


def _layout(
    axes: tuple[TileAxis, ...],
    order: tuple[int, ...],
    pad_threads: bool,
    row_padding: int,
    thread_shape: tuple[int, ...],
    element_bytes: int,
    vector: int,
) -> SharedLayout:
    thread_strides, register_strides = [0] * len(axes), [0] * len(axes)
    group = math.prod(axis.group for axis in axes)
    stride, padding = group, 0
    for place, position in enumerate(reversed(order)):
        thread_strides[position] = stride
        stride *= axes[position].thread
        if pad_threads and place == 0 and len(order) > 1 and stride > group:
            extra = group * pad_term(stride // group)
            padding += extra
            stride += extra
    for position in reversed(order):
        register_strides[position] = stride
        stride *= axes[position].register // axes[position].group
    if row_padding:
        extra = group * pad_term(stride // group) if row_padding == 1 else row_padding
        padding += extra
        stride += extra
    for position in reversed([p for p, axis in enumerate(axes) if axis.contracted]):
        register_strides[position] = stride
        stride *= axes[position].register
    layout = SharedLayout(axes, tuple(thread_strides), tuple(register_strides), stride, padding, 0, 0)
    return SharedLayout(
        axes,
        layout.thread_strides,
        layout.register_strides,
        stride,
        padding,
        _staging_conflict(layout, math.prod(thread_shape), element_bytes, vector),
        conflict_degree(_load_addresses(layout, thread_shape), element_bytes, group),
    )


def _first_warp(threads: int) -> Addresses:
    return np.arange(min(32, threads), dtype=np.int64)


def _staging_conflict(layout: SharedLayout, threads: int, element_bytes: int, vector: int) -> int:
    addresses = _staging_addresses(layout, threads, vector)
    together = vector if layout.stores_vectors(vector) else 1
    return conflict_degree(addresses, element_bytes, together)


def _staging_addresses(layout: SharedLayout, threads: int, vector: int) -> Addresses:
    """Where the first warp writes the first element of its copy steps."""
    element = _first_warp(threads) * vector
    address = np.zeros_like(element)
    for position in reversed(layout.copy_order):
        axis = layout.axes[position]
        index, element = element % axis.extent, element // axis.extent
        address += layout.address(position, index)
    return address


def _load_addresses(layout: SharedLayout, thread_shape: tuple[int, ...]) -> Addresses:
    thread = _first_warp(math.prod(thread_shape))
    coordinates = []
    for extent in reversed(thread_shape):
        coordinates.append(thread % extent)
        thread = thread // extent
    coordinates.reverse()
    address = np.zeros_like(thread)
    for position, axis in enumerate(layout.axes):
        if not axis.contracted:
            address += coordinates[axis.position] * layout.thread_strides[position]
    return address


def conflict_degree(addresses: Addresses, element_bytes: int, together: int = 1) -> int:
    """Most different words of one bank that a warp's accesses (element addresses) touch at once; 1: no conflict.

    Accesses of `together` elements that are wider than a bank are served in several passes (half warps for 8 bytes,
    quarter warps for 16).
    """
    words = max(1, element_bytes * together // BANK_BYTES)
    group = max(1, BANKS // words)
    worst = 1
    for start in range(0, len(addresses), group):
        first = np.unique(addresses[start : start + group] * element_bytes // BANK_BYTES)
        touched = np.unique(first[:, None] + np.arange(words)) % BANKS
        worst = max(worst, *np.bincount(touched, minlength=BANKS).tolist())
    return worst
