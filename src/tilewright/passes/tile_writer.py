"""The state of writing one tiled kernel: its parameters and buffers, and index arithmetic with constants."""

from __future__ import annotations

from tilewright.contraction.form import Operand
from tilewright.ir.scalars import ScalarType
from tilewright.kernel.ir import (
    Buffer,
    Constant,
    Expression,
    Name,
    ScalarParameter,
    add,
    integer,
    operation,
)
from tilewright.kernel.launch import ScalarReference
from tilewright.passes.scalar_values import (
    KernelBuilder,
    Value,
    component_types,
    memory_element,
)
from tilewright.passes.tile_form import TileForm


class TileWriter:
    """The state of writing one kernel: its parameters, its buffers, and the names that its parts share."""

    def __init__(self, form: TileForm) -> None:
        self.form = form
        self.parameters: list[ScalarParameter] = []
        self.values: list[int | float | bool | ScalarReference] = []
        self.emit = KernelBuilder(self._free_scalar)
        self.index = form.index_type
        self.buffers: list[Buffer] = []
        self.buffer_names: list[str] = []
        self.arrays: list[Buffer] = []

    # parameters

    def parameter(self, hint: str, value: int) -> Expression:
        """A launch parameter; 0 and 1 are written into the kernel, since they decide its form."""
        if value in (0, 1):
            return integer(value, self.index)
        return self._add_parameter(hint, self.index, value)

    def _add_parameter(self, hint: str, scalar: ScalarType, value: int | float | bool | ScalarReference) -> Name:
        name = Name(self.emit.name(hint), scalar)
        self.parameters.append(ScalarParameter(name.name, scalar))
        self.values.append(value)
        return name

    def _free_scalar(self, name: str) -> Value | None:
        for variable in self.form.contraction.scalars:
            if variable.name == name:
                types = component_types(variable.type.element)
                return tuple(
                    self._add_parameter(name, scalar, ScalarReference(name, which))
                    for which, scalar in enumerate(types)
                )
        return None

    def global_buffer(self, operand: Operand, hint: str, read_only: bool) -> Buffer:
        """The buffer of an array."""
        buffer = Buffer(self.emit.name(hint), memory_element(operand.element), read_only=read_only, alignment=16)
        self.buffers.append(buffer)
        self.buffer_names.append(operand.buffer)
        return buffer

    # arithmetic with constants

    def integer(self, value: int) -> Constant:
        """A constant of the index type."""
        return integer(value, self.index)

    def divide(self, value: Expression, divisor: int) -> Expression:
        """value / divisor for a value that is not negative."""
        if divisor == 1:
            return value
        if divisor & (divisor - 1) == 0:
            return operation("shr", value, self.integer(divisor.bit_length() - 1))
        return operation("floordiv", value, self.integer(divisor))

    def remainder(self, value: Expression, divisor: int) -> Expression:
        """value % divisor for a value that is not negative."""
        if divisor == 1:
            return self.integer(0)
        if divisor & (divisor - 1) == 0:
            return operation("and", value, self.integer(divisor - 1))
        return operation("mod", value, self.integer(divisor))

    def sum(self, terms: list[Expression]) -> Expression:
        """The sum of terms."""
        total: Expression = self.integer(0)
        for term in terms:
            total = add(total, term)
        return total


def all_of(conditions: list[Expression]) -> Expression:
    """The conjunction of at least one condition."""
    total = conditions[0]
    for one in conditions[1:]:
        total = operation("and", total, one)
    return total
