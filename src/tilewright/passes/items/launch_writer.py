"""What writing any kernel needs: its launch parameters and its buffers, collected as they are used."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.contraction.form import Contraction, Operand
from tilewright.ir.scalars import ScalarType
from tilewright.kernel.ir import Buffer, Expression, Kernel, Name, ScalarParameter, Space, add, integer, operation
from tilewright.kernel.launch import Launch, ScalarReference
from tilewright.passes.items.scalar_values import KernelBuilder, Value, component_types, memory_element

STEPS_OF_ROUND = 4
"""Short steps of a sum in one round of the loop: what the loop itself takes is then a sixth of its instructions and not
a third, and a core whose other thread is busy has none to spare.
"""


class KernelWriter:
    """Parameters with their values, buffers with the arrays that they stand for, local arrays, and statements."""

    def __init__(self, index: ScalarType, free: Callable[[str], Value | None] | None = None) -> None:
        """Begin a kernel whose indices have the type `index`; `free` gives the value of a name from outside."""
        self.index = index
        self.emit = KernelBuilder(free)
        self.arrays: list[Buffer] = []
        self._parameters: list[ScalarParameter] = []
        self._values: list[int | float | bool | ScalarReference] = []
        self._buffers: list[Buffer] = []
        self._buffer_names: list[str] = []

    def parameter(self, hint: str, value: int) -> Expression:
        """A launch parameter; 0 and 1 are written into the kernel, since they decide its form."""
        return integer(value, self.index) if value in (0, 1) else self._add(hint, self.index, value)

    def workspace(self, hint: str, element: ScalarType, size: int) -> Buffer:
        """A scratch array of one worker."""
        buffer = Buffer(self.emit.name(hint), element, Space.WORKSPACE, size)
        self.arrays.append(buffer)
        return buffer

    def launch(self, name: str, blocks: int, threads_per_block: int = 1) -> Launch:
        """The kernel of everything emitted so far, and its launch."""
        kernel = Kernel(
            name,
            tuple(self._buffers),
            tuple(self._parameters),
            tuple(self.arrays),
            self.emit.statements,
            threads_per_block,
            self.index,
        )
        return Launch(kernel, blocks, tuple(self._buffer_names), tuple(self._values))

    def _add(self, hint: str, scalar: ScalarType, value: int | float | bool | ScalarReference) -> Name:
        name = Name(self.emit.name(hint), scalar)
        self._parameters.append(ScalarParameter(name.name, scalar))
        self._values.append(value)
        return name


class LaunchWriter(KernelWriter):
    """The same of a contraction, whose operands are the buffers."""

    def __init__(self, contraction: Contraction, index: ScalarType, alignment: int = 0) -> None:
        """Begin a kernel whose indices have the type `index` and whose buffers start at multiples of `alignment`."""
        super().__init__(index, self._free_scalar)
        self.contraction = contraction
        self.alignment = alignment

    def global_buffer(self, operand: Operand, hint: str, read_only: bool) -> Buffer:
        """The buffer of an array."""
        element = memory_element(operand.element)
        buffer = Buffer(self.emit.name(hint), element, read_only=read_only, alignment=self.alignment)
        self._buffers.append(buffer)
        self._buffer_names.append(operand.buffer)
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
        self.emit.loop(hint, start, stop, write, step, independent)

    def rounds(
        self,
        hint: str,
        start: Expression,
        stop: Expression,
        write: Callable[[Expression], None],
        after: Callable[[], None],
    ) -> None:
        """The same, with a few steps of 1 in each round of the loop, and `after` between any two of these."""
        rest = operation("mod", operation("sub", stop, start), integer(STEPS_OF_ROUND))
        whole = self.emit.let(operation("sub", stop, rest), "whole")

        def several(index: Expression) -> None:
            for number in range(STEPS_OF_ROUND):
                write(self.emit.let(add(index, integer(number)), hint))
                after()

        self.loop(hint, start, whole, several, integer(STEPS_OF_ROUND))
        self.loop(hint, whole, stop, write)

    def branch(self, condition: Expression, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """if condition then else."""
        self.emit.when(condition, then, otherwise)

    def minimum(self, left: Expression, right: Expression) -> Expression:
        """min, bound to a name."""
        return self.emit.let(operation("min", left, right), "count")

    def _free_scalar(self, name: str) -> Value | None:
        for variable in self.contraction.scalars:
            if variable.name == name:
                types = component_types(variable.type.element)
                return tuple(self._add(name, one, ScalarReference(name, which)) for which, one in enumerate(types))
        return None
