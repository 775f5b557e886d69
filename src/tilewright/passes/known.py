"""What is known of the names in scope when a statement gets its lowering."""

from __future__ import annotations

from dataclasses import field

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Body, Statement, Variable
from tilewright.ir.scalars import I64, compute_type
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import bodies_of, host_statements, mentioned

LONGEST_CHAIN = 32  # scalars that a kernel computes again, at the most: all that read one of them do
_REPLACING = nodes.Update | nodes.Scatter | nodes.Hist | nodes.SegHist


@dataclass
class Known:
    """Grows from statement to statement.

    Attributes:
        arguments: the program's scalar arguments.
        cells: scalars that lie in memory.
        iotas: arrays that count, which kernels do not read from memory.
        sizes: scalars of the host that are known as sizes.
        computed: the statements that compute scalars from scalar arguments.
        chain: the statements that compute scalars from cells since the last one that does anything else: later ones of
            them compute these again.
        chained: the names of all scalars that were ever in a chain, and that only kernels read.
        fills: the scalars that arrays are full of.
        counting: numbers of rounds of the host's loops, and integers that grow with them.
        asked: scalars that tell which version is run.
        in_loop: this is code of a loop that the host runs.
        on_host: scalars are computed by the host, which asks for them, or launches kernels one by one.
        extents: names of sizes of the program's arguments, which are 0 at least.
    """

    arguments: frozenset[str]
    cells: set[str] = field(default_factory=set)
    iotas: set[str] = field(default_factory=set)
    sizes: dict[str, Size] = field(default_factory=dict)
    computed: dict[str, Statement] = field(default_factory=dict)
    chain: dict[str, Statement] = field(default_factory=dict)
    chained: set[str] = field(default_factory=set)
    fills: dict[str, Atom] = field(default_factory=dict)
    counting: frozenset[str] = frozenset()
    asked: set[str] = field(default_factory=set)
    in_loop: bool = False
    on_host: bool = False
    extents: frozenset[str] = frozenset()

    def copy(self) -> Known:
        """The same, to grow by itself."""
        return Known(
            self.arguments, set(self.cells), set(self.iotas), dict(self.sizes), dict(self.computed),
            dict(self.chain), set(self.chained), dict(self.fills), self.counting, set(self.asked), self.in_loop,
            self.on_host, self.extents,
        )  # fmt: skip

    def continue_chain(self, statement: Statement) -> None:
        """Note a scalar that is computed from cells, unless a kernel's result of its type is rounded."""
        if len(self.chain) >= LONGEST_CHAIN:
            self.chain.clear()
        (target,) = statement.targets
        if compute_type(target.type.element) == target.type.element:
            self.chain[target.name] = statement
            if target.type.element != I64:  # which sizes may name: a step does not tell of all that it has
                self.chained.add(target.name)

    def note_count(self, statement: Statement) -> None:
        """Note an integer that grows by as much in each round."""
        match statement.expression:
            case nodes.SizeValue(value):
                names = value.names
            case nodes.Apply("add" | "sub" | "mul", operands):
                names = frozenset(one.name for one in operands if isinstance(one, Variable))
            case _:
                return
        if names & self.counting and names <= self.counting | self.sizes.keys():
            self.counting |= {target.name for target in statement.targets}

    def note_question(self, statement: Statement) -> None:
        """Note a scalar that is computed from nothing but comparisons with thresholds."""
        expression = statement.expression
        if isinstance(expression, nodes.Apply) and all(str(one) in self.asked for one in expression.operands):
            self.asked.update(target.name for target in statement.targets)

    def may_wait(self, choice: nodes.If) -> bool:
        """Whether the branches of a choice may be lowered when they are first run.

        Those of versions may, most of which are never run; what a program chooses itself is lowered at once, and so is
        told of at once if it cannot be. The steps around must not depend on what the steps inside are: whether they
        write over arrays that a loop carries (`core/overwriting.py`), or read numbers in order from memory.
        """
        if not isinstance(choice.condition, Variable) or choice.condition.name not in self.asked:
            return False
        branches = bodies_of(choice)
        if self.in_loop and any(
            isinstance(one.expression, _REPLACING) for body in branches for one in host_statements(body)
        ):
            return False
        return all(mentioned(body).isdisjoint(self.iotas) for body in branches)

    def mentioned_in(self, body: Body) -> frozenset[str]:
        """The names that the steps of a body may mention; in place of full arrays these read what they are full of."""
        names = mentioned(body)
        return names.union(*(mentioned(self.fills[one]) for one in names if one in self.fills))
