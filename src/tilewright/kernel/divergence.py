"""Which barriers of a kernel not all threads of a block might reach together."""

from __future__ import annotations

from dataclasses import field

from tilewright.ir.dataclass import dataclass
from tilewright.kernel import ir
from tilewright.kernel.ir import Expression, Kernel, Load, Name, Statement, Store
from tilewright.kernel.traversal import expressions


def divergent_barriers(kernel: Kernel) -> tuple[str, ...]:
    """The barriers under a condition or loop bound that may differ between the threads of one block, with the reason.

    A value differs if it is computed from the thread index, or assigned where only some threads come by. What is
    loaded at an index that all threads share is the same for all, except from a private array that holds such values,
    and what other blocks may write in between.
    """
    analysis = _Analysis()
    before = -1
    while before != len(analysis.varying):  # assignments in loops reach back to their beginning
        before = len(analysis.varying)
        analysis.findings.clear()
        analysis.walk(kernel.body, ())
    return tuple(dict.fromkeys(analysis.findings))


@dataclass
class _Analysis:
    """`varying` holds the names and private arrays whose values differ between threads; it only grows."""

    varying: set[tuple[str, str]] = field(default_factory=set)
    findings: list[str] = field(default_factory=list)

    def varies(self, expression: Expression) -> bool:
        """True if an expression may differ between the threads of a block."""
        match expression:
            case ir.ThreadIndex():
                return True
            case Name(name=name):
                return ("name", name) in self.varying
            case Load(buffer=buffer, order=order) if (
                order is not ir.Order.PLAIN or ("array", buffer.name) in self.varying
            ):
                return True
        return any(self.varies(child) for child in expressions(expression))

    def walk(self, body: tuple[Statement, ...], reasons: tuple[str, ...]) -> None:
        """`reasons` are the conditions around the statements that differ between threads."""
        for statement in body:
            match statement:
                case ir.Let(name=name, value=value) | ir.Declare(name=name, value=value):
                    if self.varies(value):
                        self.varying.add(("name", name))
                case ir.AtomicUpdate(old=name):
                    self.varying.add(("name", name))
                case ir.Assign(name=name, value=value):
                    if reasons or self.varies(value):
                        self.varying.add(("name", name))
                case Store(buffer=buffer, index=index, value=value):
                    if buffer.space is ir.Space.PRIVATE and (reasons or self.varies(index) or self.varies(value)):
                        self.varying.add(("array", buffer.name))
                case ir.For(index=index, start=start, stop=stop, step=step, body=inside):
                    bounds = any(self.varies(bound) for bound in (start, stop, step))
                    if bounds:
                        self.varying.add(("name", index))
                    self.walk(inside, self.extended(reasons, bounds, f"the bounds of loop {index}"))
                case ir.While(prelude=prelude, condition=condition, body=inside):
                    self.loop(prelude, condition, inside, reasons)
                case ir.If(condition=condition, then=then, otherwise=otherwise):
                    within = self.extended(reasons, self.varies(condition), "the condition of an if")
                    self.walk(then, within)
                    self.walk(otherwise, within)
                case ir.Barrier() if reasons:
                    self.findings.append(f"barrier under {' and '.join(reasons)}, which may differ between threads")

    def loop(
        self,
        prelude: tuple[Statement, ...],
        condition: Expression,
        inside: tuple[Statement, ...],
        reasons: tuple[str, ...],
    ) -> None:
        """A while loop: its prelude, too, is run again only by the threads that go on."""
        within = self.extended(reasons, self.varies(condition), "the condition of a while")
        self.walk(prelude, within)
        within = self.extended(reasons, self.varies(condition), "the condition of a while")
        self.walk(inside, within)

    @staticmethod
    def extended(reasons: tuple[str, ...], varies: bool, reason: str) -> tuple[str, ...]:
        """The reasons inside a construct."""
        return (*reasons, reason) if varies else reasons
