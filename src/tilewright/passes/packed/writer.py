"""The state of writing one packed kernel: its parameters, buffers and scratch arrays, and the two sides of its tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.contraction.form import Operand
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64, U8
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Constant, Expression, add, integer, load, multiply, operation
from tilewright.passes.items.launch_writer import LaunchWriter
from tilewright.passes.packed.form import PackedForm, SideDimension
from tilewright.passes.packed.operands import in_panel_type
from tilewright.passes.packed.runs import Runs


@dataclass(frozen=True)
class Side:
    """One side of the register tile in the kernel: where its elements come from and where its panels lie."""

    name: str
    operand: Operand
    source: Buffer
    dimensions: tuple[SideDimension, ...]
    width: int
    pitch: Expression
    sizes: tuple[Expression, ...]
    strides: tuple[Expression, ...]
    depth_strides: tuple[Expression, ...]
    source_table: Buffer
    out_table: Buffer
    further_tables: tuple[Buffer, ...]
    depth_table: Buffer
    panels: tuple[Buffer, ...]
    source_runs: Buffer
    source_heads: Buffer
    out_runs: Buffer
    depth_runs: Buffer
    runs: Runs


class PackedWriter(LaunchWriter):
    """The state of writing one packed kernel.

    `tiles_lie_there`: whether the scalar side is read in place by tiles, of a form for which that is possible.
    """

    def __init__(self, form: PackedForm) -> None:
        """Begin the kernel of a form."""
        super().__init__(form.contraction, I64)
        self.form = form
        self.tiles_lie_there: Expression | None = None

    def parameter(self, hint: str, value: int) -> Expression:
        """As `LaunchWriter` has it; 0 and 1 too where one kernel serves all shapes."""
        return self._add(hint, self.index, value) if self.form.any_shape else super().parameter(hint, value)

    def fill(self, panel: Buffer, at: Expression, value: Expression, aligned: bool = False) -> None:
        """panel[at] = value, converted to what the panel holds."""
        self.emit.emit(kernel.Store(panel, at, in_panel_type(value, panel.element), aligned=aligned))

    def row_start(self, side: Side, row: Expression) -> Expression:
        """Where the present piece of a row begins: of the scalar side, where the sum runs along its rows."""
        if self.form.scalar_in_place:
            return self.emit.let(add(load(side.source_table, row), load(side.depth_table, integer(0))), "scalar_row")
        return self.emit.let(multiply(row, side.pitch), "scalar_row")

    def ask_for(self, source: Buffer, starts: Sequence[Expression], ahead: Expression) -> None:
        """Ask for the lines so far behind each of these places of an operand."""
        for start in starts:
            self.emit.emit(kernel.Prefetch(source, self.emit.let(add(start, ahead), "at")))

    def first_lanes(self, count: Expression, before: int) -> Expression:
        """A mask of a vector's lanes that are among `count`, of which `before` come in other vectors."""
        left = operation("max", operation("sub", count, integer(before)), integer(0))
        return self.emit.let(
            kernel.FirstLanes(self.emit.let(left, "left"), kernel.VectorType(BOOL, self.form.lanes)), "inside"
        )

    def unless(self, condition: Expression | None, write: Callable[[], None]) -> None:
        """if not condition; None is never true."""
        if condition is None:
            write()
        else:
            self.emit.when(operation("not", condition), write)

    def panels(self, count: Expression, width: int) -> Expression:
        """Panels that hold `count` elements."""
        if width == 1:
            return count
        return self.emit.let(operation("floordiv", add(count, integer(width - 1)), integer(width)), "panels")


def run_of(runs: Buffer, first: Expression, number: int, lanes: int) -> Expression:
    """The mark of vector `number` of the panel that begins at element `first`."""
    return load(runs, add(operation("floordiv", first, integer(lanes)), integer(number)))


def run_is(mark: Expression, least: int) -> Expression:
    """The vector is consecutive at least to this degree."""
    return operation("ge", mark, Constant(least, U8))
