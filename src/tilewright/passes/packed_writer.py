"""The state of writing one packed kernel: its parameters, buffers and scratch arrays, and the two sides of its tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.contraction.form import Operand
from tilewright.ir.scalars import I64, ScalarType
from tilewright.kernel.ir import (
    Buffer,
    Expression,
    For,
    If,
    Name,
    ScalarParameter,
    Space,
    add,
    integer,
    operation,
)
from tilewright.kernel.launch import ScalarReference
from tilewright.passes.packed_form import PackedForm, SideDimension
from tilewright.passes.scalar_values import KernelBuilder, Value, component_types, memory_element


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
    source_table: Buffer
    out_table: Buffer
    further_tables: tuple[Buffer, ...]
    depth_table: Buffer
    panels: tuple[Buffer, ...]
    source_runs: Buffer
    out_runs: Buffer
    depth_runs: Buffer


class PackedWriter:
    """The state of writing one packed kernel."""

    def __init__(self, form: PackedForm) -> None:
        """Start with the parameters that every packed kernel has."""
        self.form = form
        self.parameters: list[ScalarParameter] = []
        self.values: list[int | float | bool | ScalarReference] = []
        self.emit = KernelBuilder(self._free_scalar)
        self.buffers: list[Buffer] = []
        self.buffer_names: list[str] = []
        self.arrays: list[Buffer] = []

    def parameter(self, hint: str, value: int) -> Expression:
        """A launch parameter; 0 and 1 are written into the kernel, since they decide its form."""
        return integer(value) if value in (0, 1) else self._add(hint, I64, value)

    def _add(self, hint: str, scalar: ScalarType, value: int | float | bool | ScalarReference) -> Name:
        name = Name(self.emit.name(hint), scalar)
        self.parameters.append(ScalarParameter(name.name, scalar))
        self.values.append(value)
        return name

    def _free_scalar(self, name: str) -> Value | None:
        for variable in self.form.contraction.scalars:
            if variable.name == name:
                types = component_types(variable.type.element)
                return tuple(self._add(name, one, ScalarReference(name, which)) for which, one in enumerate(types))
        return None

    def global_buffer(self, operand: Operand, hint: str, read_only: bool) -> Buffer:
        """The buffer of an array."""
        buffer = Buffer(self.emit.name(hint), memory_element(operand.element), read_only=read_only)
        self.buffers.append(buffer)
        self.buffer_names.append(operand.buffer)
        return buffer

    def workspace(self, hint: str, element: ScalarType, size: int) -> Buffer:
        """A scratch array of one worker."""
        buffer = Buffer(self.emit.name(hint), element, Space.WORKSPACE, size)
        self.arrays.append(buffer)
        return buffer

    def loop(
        self,
        hint: str,
        start: Expression,
        stop: Expression,
        write: Callable[[Expression], None],
        step: Expression | int = 1,
        independent: bool = False,
    ) -> None:
        """for hint in start .. stop by step."""
        index = Name(self.emit.name(hint), I64)
        step = integer(step) if isinstance(step, int) else step
        with self.emit.scope() as body:
            write(index)
        self.emit.emit(For(index.name, start, stop, tuple(body), step, independent=independent))

    def branch(self, condition: Expression, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """if condition then else."""
        with self.emit.scope() as yes:
            then()
        with self.emit.scope() as no:
            otherwise()
        self.emit.emit(If(condition, tuple(yes), tuple(no)))

    def minimum(self, left: Expression, right: Expression) -> Expression:
        """min, bound to a name."""
        return self.emit.let(operation("min", left, right), "count")

    def panels(self, count: Expression, width: int) -> Expression:
        """Panels that hold `count` elements."""
        if width == 1:
            return count
        return self.emit.let(operation("floordiv", add(count, integer(width - 1)), integer(width)), "panels")
