"""The state of writing one tiled kernel: its parameters and buffers, and index arithmetic with constants."""

from __future__ import annotations

from tilewright.kernel.ir import Constant, Expression, add, integer, multiply, operation
from tilewright.passes.items.launch_writer import LaunchWriter
from tilewright.passes.tiled.form import TileForm


class TileWriter(LaunchWriter):
    """The state of writing one tiled kernel."""

    def __init__(self, form: TileForm) -> None:
        """Begin the kernel of a form."""
        super().__init__(form.contraction, form.index_type, alignment=16)
        self.form = form

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


def element_of_thread(form: TileForm, position: int, thread: Expression, number: int) -> list[Expression]:
    """Terms of where element `number` of a thread lies in its block along a parallel dimension."""
    group, threads = form.groups[position], form.tiling.thread[position]
    place = number % group + number // group * group * threads
    return [multiply(thread, integer(group, form.index_type)), integer(place, form.index_type)]


def all_of(conditions: list[Expression]) -> Expression:
    """The conjunction of at least one condition."""
    total = conditions[0]
    for one in conditions[1:]:
        total = operation("and", total, one)
    return total
