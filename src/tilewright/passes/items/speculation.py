"""Checks of indices without branches, which would keep LLVM from putting a loop into vectors."""

from __future__ import annotations

from tilewright.ir.dataclass import dataclass
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Name
from tilewright.passes.items.scalar_values import KernelBuilder


@dataclass
class Speculation:
    """Indices are checked without branches: `bad` becomes true if one is out of range where `guard` holds (None:
    everywhere).
    """

    bad: Name
    guard: kernel.Expression | None = None
    used: bool = False

    def note(self, outside: kernel.Expression, emit: KernelBuilder) -> kernel.Expression:
        """Note an index that may be out of range; the condition on which 0 is to be taken in its place."""
        self.used = True
        outside = emit.let(outside, "outside")
        wrong = outside if self.guard is None else kernel.operation("and", self.guard, outside)
        emit.assign(self.bad, kernel.operation("or", self.bad, wrong))
        return outside
