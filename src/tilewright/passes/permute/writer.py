"""What writing the kernel of a copy needs everywhere: parameters, loops, and runs of words in the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from tilewright.ir.scalars import BOOL, I64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Name, add, integer, load, multiply, operation
from tilewright.machine.model import power_of_two_at_least
from tilewright.passes.items.scalar_values import KernelBuilder
from tilewright.passes.permute.form import PermuteForm
from tilewright.passes.permute.tiles import LINE

SOURCE, TARGET = "source", "target"
UNROLLED = 4  # vectors of a row in one step, so that their loads are under way together
RunValue: TypeAlias = Callable[[Expression, int, Expression | None], Expression]


def atom_pieces(atom: int) -> list[tuple[int, int]]:
    """(where it begins, words) of the one or two vectors in which an atom is moved; the second one reaches back.

    Example:
        >>> atom_pieces(8), atom_pieces(7), atom_pieces(3)
        ([(0, 8)], [(0, 4), (3, 4)], [(0, 2), (1, 2)])
    """
    lanes = 1 << (atom.bit_length() - 1)
    return [(0, lanes)] if lanes == atom else [(0, lanes), (atom - lanes, lanes)]


class PermuteWriter:
    """Collects one kernel. All places are in words.

    Attributes:
        beside: what is written after each instruction that picks words of two vectors.
    """

    def __init__(self, form: PermuteForm) -> None:
        """Begin the kernel of a form."""
        self.form = form
        self.emit = KernelBuilder()
        self.parameters: list[kernel.ScalarParameter] = []
        self.values: list[int] = []
        self.arrays: list[Buffer] = []
        self.source = Buffer(SOURCE, form.word, read_only=True)
        self.target = Buffer(TARGET, form.word)
        self.bytes = form.word.bytes
        self.vector = form.vector
        self.past = form.nontemporal
        self.beside: Callable[[], None] | None = None

    # --- statements

    def parameter(self, hint: str, value: int) -> Name:
        """A launch parameter and its value."""
        name = Name(self.emit.name(hint), I64)
        self.parameters.append(kernel.ScalarParameter(name.name, I64))
        self.values.append(value)
        return name

    def let(self, value: Expression, hint: str) -> Expression:
        """The expression by a name."""
        return self.emit.let(value, hint)

    def loop(
        self, hint: str, start: Expression, stop: Expression, body: Callable[[Expression], None], step: int = 1
    ) -> None:
        """for hint in start .. stop by step."""
        self.emit.loop(hint, start, stop, body, step)

    def when(
        self, condition: Expression, then: Callable[[], None], otherwise: Callable[[], None] = lambda: None
    ) -> None:
        """if condition then else."""
        self.emit.when(condition, then, otherwise)

    def overlapping(self, hint: str, count: Expression, width: int, body: Callable[[Expression], None]) -> None:
        """Pieces of `width` that cover `count` (at least `width`); the last one reaches back where it has to."""
        if width == 1:
            self.loop(hint, integer(0), count, body)
            return
        last = self.let(operation("sub", count, integer(width)), "last")
        self.loop(hint, integer(0), count, lambda i: body(self.let(operation("min", i, last), hint)), step=width)

    def first_line(self, source: Expression, column: Expression) -> Expression:
        """The column, seen from the one at `source` (the one with the number `column` of all), where a cache line of
        the source begins first; of the very first columns the one where the line of the first one begins, before it."""
        words = self.up_to(source, LINE, self.source)
        odd = self.let(operation("floordiv", words, integer(self.form.atom)), "odd")
        is_first = operation("and", operation("eq", column, integer(0)), operation("ne", odd, integer(0)))
        return self.let(operation("select", is_first, operation("sub", odd, integer(self.form.width)), odd), "first")

    def by_lines(
        self, source: Expression, column: Expression, count: Expression, body: Callable[[Expression], None]
    ) -> None:
        """Columns from each cache line of the source on that begins in a piece of `count` columns, which lies at
        `source` and is `column` columns from the first one of all; those before the first line and after the last one
        of all with others that are moved for the second time."""
        width = self.form.width
        size = self.parameter("size", self.form.column.size if self.form.column is not None else 0)
        last = self.let(operation("sub", size, add(column, integer(width))), "last")
        self.loop("line", self.first_line(source, column), count, lambda c: body(
            self.let(operation("min", operation("max", c, integer(0)), last), "c")
        ), step=width)  # fmt: skip

    # --- words

    def atom(self, source: Expression, target: Expression, spilled: int = 0) -> None:
        """Copy one atom; or so many words, with some that follow it."""
        for word, lanes in [(0, spilled)] if spilled else atom_pieces(self.form.atom):
            value = load(self.source, add(source, integer(word)), lanes)
            self.emit.emit(kernel.Store(self.target, add(target, integer(word)), value))

    def some_words(self, buffer: Buffer, at: Expression, words: int) -> Expression:
        """The words from `at` on, in a vector that may be longer; what follows them is not touched."""
        longer = power_of_two_at_least(words)
        value = load(buffer, at, longer)
        return value if longer == words else replace(value, mask=self._first(words, longer))

    def put(self, buffer: Buffer, at: Expression, value: Expression) -> None:
        """Write the column of a square."""
        words = self.form.lanes * self.form.atom
        longer = power_of_two_at_least(words)
        self.emit.emit(kernel.Store(buffer, at, value, mask=None if longer == words else self._first(words, longer)))

    def _first(self, words: int, lanes: int) -> Expression:
        return self.let(kernel.FirstLanes(integer(words), kernel.VectorType(BOOL, lanes)), "some")

    def run(
        self, target: Expression, low: Expression, high: Expression, value: RunValue,
        ask: Callable[[Expression], None] | None = None,
    ) -> None:  # fmt: skip
        """target[target + k] = value(k) for k from `low` below `high`; value(k, n, mask) gives n words from k on;
        `ask(k)` may ask for others beside.

        Past the caches: aligned vectors, and at either end one in part, so that a line that is written past the caches
        is not touched through them as well, which takes very long. Else the last vector overlaps the one before it.
        """
        lanes = self.vector

        def store(k: Expression, count: int, aligned: bool = False, mask: Expression | None = None) -> None:
            found = value(k, count, mask)
            self.emit.emit(
                kernel.Store(self.target, add(target, k), found, aligned=aligned, nontemporal=aligned, mask=mask)
            )

        def first_lanes(count: Expression) -> Expression:
            return self.let(kernel.FirstLanes(count, kernel.VectorType(BOOL, lanes)), "some")

        def vectors() -> None:
            first = low
            last = self.let(operation("sub", high, integer(lanes)), "last")
            if self.past:
                odd = self.up_to(add(target, low), lanes * self.bytes)
                first = self.let(add(low, odd), "first")
                self.when(operation("lt", low, first), lambda: store(low, lanes, mask=first_lanes(odd)))
            end = self.let(add(last, integer(1)), "end")
            many = self.let(operation("sub", end, integer(lanes * (UNROLLED - 1))), "many")

            def several(k: Expression) -> None:
                for number in range(UNROLLED):
                    at = self.let(add(k, integer(number * lanes)), "k")
                    if ask is not None:
                        ask(at)
                    store(at, lanes, self.past)

            self.loop("k", first, many, several, step=lanes * UNROLLED)
            steps = operation("floordiv", operation("sub", add(many, integer(lanes * UNROLLED - 1)), first),
                              integer(lanes * UNROLLED))  # fmt: skip
            done = operation("max", self.let(steps, "steps"), integer(0))
            rest = self.let(add(first, multiply(done, integer(lanes * UNROLLED))), "rest")
            self.loop("k", rest, end, lambda k: store(k, lanes, self.past), step=lanes)
            over = self.let(operation("and", operation("sub", high, first), integer(lanes - 1)), "over")
            begin = self.let(operation("sub", high, over), "begin")
            self.when(operation("ne", over, integer(0)), lambda: (
                store(begin, lanes, mask=first_lanes(over)) if self.past else store(last, lanes)
            ))  # fmt: skip

        def words() -> None:
            self.loop("k", low, high, lambda k: store(k, 1))

        length = operation("sub", high, low)
        self.when(operation("ge", length, integer(lanes)), vectors, words)

    def up_to(self, at: Expression, alignment: int, buffer: Buffer | None = None) -> Expression:
        """Words of the target (or another array) from a place to the next multiple of `alignment`."""
        address = add(kernel.Address(buffer or self.target), multiply(at, integer(self.bytes)))
        odd = operation("and", operation("sub", integer(0), address), integer(alignment - 1))
        return self.let(operation("floordiv", odd, integer(self.bytes)), "up_to")
