"""The state of writing one direct kernel: its parameters by role, its arrays and panels, and the loops over the sum."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewright.contraction.form import Dimension, Operand
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.kernel.ir import Buffer, Expression, FirstLanes, VectorType, add, integer, multiply
from tilewright.passes.direct.form import PANEL_ELEMENTS, DirectForm
from tilewright.passes.items.launch_writer import LaunchWriter
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.items.sum_trees import PieceLoop, over_tree
from tilewright.passes.packed.two_sides import Bases


@dataclass(frozen=True)
class Step:
    """A point of the sum: the offsets in either operand, and how many points came before it."""

    vector: Expression
    scalar: Expression
    number: Expression


class DirectWriter(LaunchWriter):
    """The state of writing one direct kernel."""

    def __init__(self, form: DirectForm) -> None:
        """Begin the kernel of a form: arrays, and the parameters that every part needs."""
        super().__init__(form.contraction, I64)
        self.form = form
        self.tiles = form.vector_tiles  # along the vector side, the narrower last one among them
        self.vector_source = self.global_buffer(form.vector_operand, "vector_side", True)
        self.scalar_source = self.global_buffer(form.scalar_operand, "scalar_side", True)
        self.out = self.global_buffer(form.contraction.out, "out", False)
        self.further = tuple(
            self.global_buffer(one.operand, "further", True) for one in form.contraction.epilogue_operands
        )
        self._strides: dict[tuple[str, str], Expression] = {}
        self._levels: dict[int, Buffer] = {}
        roles = [("v", form.vector)] + ([("s", form.scalar)] if form.scalar is not None else [])
        roles += [(f"o{position}", one) for position, one in enumerate(form.outer)]
        roles += [(f"k{position}", one) for position, one in enumerate(form.contracted)]
        roles += [
            (role, one)
            for role, one in (("w", form.collected), ("q", form.columns), ("j", form.joined))
            if one is not None
        ]
        roles += [(f"f{position}", one) for position, one in enumerate(form.fused)]
        self._roles = {one.name: role for role, one in roles}
        self.sums = tuple(
            self.parameter(f"{self._roles[one.name]}_size", constant(one.size)) for one in form.contracted
        )
        self.last_column = self.parameter("last_column", max(0, form.vector_size - form.width))
        self.last_row = self.parameter("last_row", max(0, form.scalar_size - form.rows))
        self._places = {one.name: position for position, one in enumerate(form.contraction.dimensions)}
        self.last_group = self.parameter("last_group", max(0, form.column_size - len(form.lanes)))
        self.valid: Expression | None = None  # elements of the last vector that are inside the dimension
        self.mask: Expression | None = None
        if form.masked:
            self.valid = self.parameter("last_lanes", form.vector_size - (form.width - form.lanes[-1]))
            self.mask = self.emit.let(FirstLanes(self.valid, VectorType(BOOL, form.lanes[-1])), "mask")

    def of_tail(self) -> DirectWriter:
        """What writes the narrower last tile along the vector side into the same kernel."""
        narrow = copy.copy(self)
        narrow.form = replace(self.form, lanes=self.form.tail)
        narrow.last_column = self.parameter("last_tail", self.form.vector_size - narrow.form.width)
        return narrow

    def of_piece(self, steps: Expression) -> DirectWriter:
        """What writes the tiles of so many steps of the sum into the same kernel."""
        part = copy.copy(self)
        part.sums = (steps,)
        return part

    def stride(self, dimension: Dimension, side: str) -> Expression:
        """The stride of a dimension in "vector", "scalar", "out" or a further operand ("0", "1", ...)."""
        key = (dimension.name, side)
        if key not in self._strides:
            if side.isdigit():
                operand = self.form.contraction.epilogue_operands[int(side)]
                value = constant(operand.strides[self._places[dimension.name]])
            else:
                value = self.form.stride(dimension, side)
            self._strides[key] = self.parameter(f"{self._roles[dimension.name]}_{side}", value)
        return self._strides[key]

    def mask_of(self, number: int) -> Expression | None:
        """The mask of a vector of the tile: all of them begin together, or only the last one may not be whole."""
        alike = self.form.columns is not None or number == len(self.form.lanes) - 1
        return self.mask if alike else None

    def column_offsets(self, side: str, q: Expression) -> list[Expression]:
        """How far each vector of the tile is from the first along `vector`, in an array."""
        form = self.form
        if form.columns is None:
            return [integer(sum(form.lanes[:number])) for number in range(len(form.lanes))]
        stride = self.stride(form.columns, side)
        return [self.emit.let(multiply(add(q, integer(i)), stride), "column") for i in range(len(form.lanes))]

    def bases(self, coordinates: Sequence[Expression]) -> Bases:
        """Where each array begins at a point of the outer dimensions."""
        contraction, form = self.form.contraction, self.form

        def base(side: str, offset: int) -> Expression:
            total = self.parameter(f"{side}_offset", offset)
            for one, coordinate in zip(form.outer, coordinates, strict=True):
                total = add(total, multiply(coordinate, self.stride(one, side)))
            return self.emit.let(total, "base")

        return Bases(
            base("vector", constant(form.vector_operand.offset)),
            base("scalar", constant(form.scalar_operand.offset)),
            base("out", constant(contraction.out.offset)),
            tuple(
                base(str(number), constant(one.operand.offset))
                for number, one in enumerate(contraction.epilogue_operands)
            ),
        )

    def panel(self, hint: str, operand: Operand) -> Buffer:
        """Scratch memory of an operand's panel."""
        return self.workspace(hint, component_types(operand.element)[0], PANEL_ELEMENTS)

    def over_sum(self, write: Callable[[Step], None], loops: int | None = None) -> None:
        """`write(step)` for all points of the sum, or of its `loops` outermost dimensions."""
        dimensions = self.form.contracted[:loops]

        def descend(position: int, step: Step) -> None:
            if position == len(dimensions):
                write(step)
                return
            one, extent = dimensions[position], self.sums[position]

            def at(index: Expression) -> None:
                inner = self._within(step, one, extent, index)
                if position + 1 < len(dimensions):
                    inner = Step(*(self.emit.let(part, "at") for part in (inner.vector, inner.scalar, inner.number)))
                descend(position + 1, inner)

            if position + 1 < len(dimensions) or loops is not None:
                self.loop("k", integer(0), extent, at)
            else:
                self._steps(integer(0), extent, at)

        descend(0, Step(integer(0), integer(0), integer(0)))

    def over_pieces(
        self, write: Callable[[Step], None], loops: Sequence[PieceLoop], fold: Callable[[int], None]
    ) -> None:
        """`write(step)` for all points of the sum, in the loops of a tree; `fold(level)` where a node ends."""
        dimensions = self.form.contracted
        *outer, last = dimensions

        def innermost(indices: Sequence[Expression], start: Expression, stop: Expression) -> None:
            step = Step(integer(0), integer(0), integer(0))
            for one, extent, index in zip(outer, self.sums, indices, strict=False):
                step = self._within(step, one, extent, index)
            step = Step(*(self.emit.let(part, "at") for part in (step.vector, step.scalar, step.number)))
            self._steps(start, stop, lambda k: write(self._within(step, last, self.sums[-1], k)))

        over_tree(self, loops, self.sums, innermost, fold)

    def _steps(self, start: Expression, stop: Expression, write: Callable[[Expression], None]) -> None:
        """The innermost loop over the sum."""
        if self.form.rows_first:
            self.rounds("k", start, stop, write, lambda: None)
        else:
            self.loop("k", start, stop, write)

    def _within(self, step: Step, dimension: Dimension, extent: Expression, index: Expression) -> Step:
        """A point of a further dimension of the sum."""
        return Step(
            add(step.vector, multiply(index, self.stride(dimension, "vector"))),
            add(step.scalar, multiply(index, self.stride(dimension, "scalar"))),
            add(multiply(step.number, extent), index),
        )

    def level(self, number: int, element: ScalarType, room: int) -> Buffer:
        """Scratch memory for the sums of a tile on a level of a tree; all tiles share it."""
        if number not in self._levels:
            self._levels[number] = self.workspace("level", element, room)
        return self._levels[number]
