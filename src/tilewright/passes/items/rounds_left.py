"""Rounds of a loop that end where a slice is out of range, so that what follows reads the slice as it is written.

    for i < n:  record(bad);  for k:  ... x[bad ? 0 : i + k] ...
=>  for i < n:  record(bad);  if !bad:  for k:  ... x[i + k] ...

What such a loop computes is not looked at any more: only that no memory is read or written that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Expression, If
from tilewright.passes.items.scalar_values import KernelBuilder


class RoundLeft:
    """The statements of a round, which go into a branch from each place on where it may be left."""

    def __init__(self, emit: KernelBuilder) -> None:
        self.emit, self.depth = emit, -1
        self.branches = ExitStack()

    @contextmanager
    def one(self) -> Iterator[None]:
        """All of a round is emitted inside; rounds of loops in it are on their own."""
        around = self.depth, self.branches
        with ExitStack() as self.branches:
            self.depth = self.emit.depth
            yield
        self.depth, self.branches = around

    def leave_where(self, wrong: Expression) -> bool:
        """Leave the rest of the round out where a condition holds; False inside of something that is not left so."""
        if self.emit.depth != self.depth:
            return False
        self.branches.enter_context(self._rest(wrong))
        self.depth = self.emit.depth
        return True

    @contextmanager
    def _rest(self, wrong: Expression) -> Iterator[None]:
        with self.emit.scope() as rest:
            yield
        self.emit.emit(If(kernel.operation("not", wrong), tuple(rest), ()))
