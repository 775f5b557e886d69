"""Variance: with which parallel dimensions each array that a sequential stream reads changes [S0 4.7.3, S3 1].

The dimensions with which a read does not change are its reuse: all points along them read the same elements, so that a
block of points can stage these once. A value changes with the dimensions of everything that it is computed from; a row
of an array with those of the array and of its index; what is known before the nest with none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Body, Expression, Lambda, Statement, Variable
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import bound_variables, mentioned, sub_bodies
from tilewright.passes.core.nests import Nest

Dimensions = frozenset[int]
NONE: Dimensions = frozenset()
Stream = nodes.Fold | nodes.StreamSeq


@dataclass(frozen=True)
class Read:
    """An array that a stream runs over (or that is indexed inside a sequential loop), and how it changes.

    Attributes:
        stream: the first name that the stream or the statement that reads binds.
        array: the array.
        variant: the parallel dimensions with which the elements read change, as positions in the nest's space.
        position: the array's place among those that the stream runs over; None for one that is indexed.
    """

    stream: str
    array: Variable
    variant: Dimensions
    position: int | None = None


@dataclass(frozen=True)
class Variance:
    """What is known of a nest.

    Attributes:
        space: the extents of its dimensions, outermost first.
        names: the dimensions with which each name that is bound inside changes.
        reads: the arrays that are read inside sequential streams and loops, in program order.
    """

    space: tuple[Size, ...]
    names: Mapping[str, Dimensions]
    reads: tuple[Read, ...]

    def of(self, node: object) -> Dimensions:
        """The dimensions with which anything made of names changes: an atom, a size, an expression."""
        found = node.names if isinstance(node, Size) else mentioned(node)
        return union(self.names.get(name, NONE) for name in found)

    def invariant(self, read: Read) -> tuple[int, ...]:
        """The dimensions along which a read is reused."""
        return tuple(d for d in range(len(self.space)) if d not in read.variant)


def union(parts: Iterator[Dimensions] | Sequence[Dimensions]) -> Dimensions:
    """All dimensions of some sets."""
    return frozenset().union(*parts)


def variance_of(nest: Nest) -> Variance:
    """The variance of everything inside a nest.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> from tilewright.passes.core.nests import nest_of
        >>> program = parse_program('''def pairs (xs: [n]f32, ys: [m]f32) =
        ...   let (total: [n]f32) = map n (\\\\(x: f32) ->
        ...     let (sum: f32) = redomap m (\\\\(a: f32, b: f32) -> let (c: f32) = a + b in (c)) (0.0f32)
        ...       (\\\\(y: f32) -> let (p: f32) = x * y in (p)) ys
        ...     in (sum)) xs
        ...   in (total)''')
        >>> print(variance_table(variance_of(nest_of(program.body.statements[0].expression))))
        read  in   changes with  reused along
        ys    sum  nothing       n
    """
    analysis = _Analysis()
    for dimension, (function, arrays, prefix) in enumerate(nest.levels):
        for parameter, array in zip(function.parameters, arrays, strict=True):
            analysis.names[parameter.name] = analysis.of(array) | {dimension}
        analysis.statements(prefix, inside=False)
    for dimension, index in enumerate(nest.indices):
        analysis.names[index.name] = frozenset((dimension,))
    analysis.statements(nest.body.statements, inside=False)
    reads = {(one.stream, one.array.name, one.position): one for one in analysis.reads}
    return Variance(nest.space, analysis.names, tuple(reads.values()))


def variance_table(variance: Variance) -> str:
    """The reads as a table for a person."""
    rows = [("read", "in", "changes with", "reused along")]
    for one in variance.reads:
        rows.append(
            (
                one.array.name,
                one.stream,
                _named(variance.space, sorted(one.variant)) or "nothing",
                _named(variance.space, variance.invariant(one)) or "nothing",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _named(space: Sequence[Size], dimensions: Sequence[int]) -> str:
    """Dimensions by their extents; by number too where two extents are equal."""
    several = len(set(space)) < len(space)
    return ", ".join(f"{space[d]} (dimension {d})" if several else str(space[d]) for d in dimensions)


class _Analysis:
    """Names to the dimensions with which they change; what loops carry grows until nothing changes."""

    def __init__(self) -> None:
        self.names: dict[str, Dimensions] = {}
        self.reads: list[Read] = []

    def of(self, node: object) -> Dimensions:
        found = node.names if isinstance(node, Size) else mentioned(node)
        return union(self.names.get(name, NONE) for name in found)

    def statements(self, statements: Sequence[Statement], inside: bool) -> None:
        """`inside` a sequential stream or loop."""
        for statement in statements:
            found = self.expression(statement, inside)
            for target, one in zip(statement.targets, found, strict=True):
                self.names[target.name] = one | self.of(target.type.shape)

    def expression(self, statement: Statement, inside: bool) -> Sequence[Dimensions]:
        """For each result the dimensions with which it changes."""
        expression, count = statement.expression, len(statement.targets)
        match expression:
            case nodes.Map(width, function, arrays):
                self.runs_over(statement, arrays)
                self.function(function, [self.of(one) for one in arrays], inside)
                return [self.of(width) | self.of(one) for one in function.body.results]
            case nodes.If(condition, then, otherwise):
                results = []
                for body in (then, otherwise):
                    self.statements(body.statements, inside)
                for one, two in zip(then.results, otherwise.results, strict=True):
                    results.append(self.of(condition) | self.of(one) | self.of(two))
                return results
            case nodes.Loop():
                return self.loop(expression)
            case nodes.Reduce() | nodes.Redomap() | nodes.Scan() | nodes.Scanomap() | nodes.StreamSeq():
                return [self.stream(statement, expression)] * count
            case nodes.Index(array, indices) if inside and indices:
                found = self.of(array) | union([self.of(one) for one in indices])
                if expression.array.type.rank == len(indices):
                    self.reads.append(Read(statement.targets[0].name, array, found))
                return [found]
        return [self._whatever(expression, inside)] * count

    def function(self, function: Lambda, arguments: Sequence[Dimensions], inside: bool) -> None:
        for parameter, one in zip(function.parameters, arguments, strict=True):
            self.names[parameter.name] = self.names.get(parameter.name, NONE) | one
        self.statements(function.body.statements, inside)

    def stream(self, statement: Statement, stream: Stream) -> Dimensions:
        """A fold: its accumulators may change with all that it reads."""
        self.runs_over(statement, stream.arrays)
        if isinstance(stream, nodes.Redomap | nodes.Scanomap):
            self.function(stream.function, [self.of(one) for one in stream.arrays], inside=True)
        if isinstance(stream, nodes.StreamSeq):
            carried: Dimensions = union([self.of(one) for one in stream.initial])
            rows = [self.of(one) | self.of(stream.width) for one in stream.arrays]
            while True:
                arguments = [self.of(stream.width), *[carried] * len(stream.initial), *rows]
                self.function(stream.function, arguments, inside=True)
                after = carried | union([self.of(one) for one in stream.function.body.results])
                if after == carried:
                    return after | self.of(stream)
                carried = after
        everything = self._known(stream)
        self.function(stream.combine, [everything] * len(stream.combine.parameters), inside=True)
        return everything

    def runs_over(self, statement: Statement, arrays: Sequence[Variable]) -> None:
        for position, array in enumerate(arrays):
            self.reads.append(Read(statement.targets[0].name, array, self.of(array), position))

    def loop(self, loop: nodes.Loop) -> Sequence[Dimensions]:
        """The merge values, until they change with nothing more."""
        bound: Dimensions = NONE
        if isinstance(loop.form, nodes.ForLoop):
            bound = self.of(loop.form.bound)
            self.names[loop.form.index.name] = NONE
        carried = [self.of(one) for one in loop.initial]
        while True:
            for parameter, one in zip(loop.parameters, carried, strict=True):
                self.names[parameter.name] = one
            if isinstance(loop.form, nodes.WhileLoop):
                self.function(loop.form.condition, carried, inside=True)
                bound = union([self.of(one) for one in loop.form.condition.body.results])
            self.statements(loop.body.statements, inside=True)
            after = [one | self.of(result) | bound for one, result in zip(carried, loop.body.results, strict=True)]
            if after == carried:
                return after
            carried = after

    def _whatever(self, expression: Expression, inside: bool) -> Dimensions:
        """All that an expression mentions; its functions are analysed with the worst arguments."""
        found = self._known(expression)
        for variable in bound_variables(expression):
            self.names[variable.name] = found
        for body in sub_bodies(expression):
            self.statements(body.statements, inside)
        return found | self._known(expression)

    def _known(self, expression: Expression) -> Dimensions:
        return self.of(expression)


def streams_of(body: Body) -> Iterator[tuple[Statement, tuple[Statement, ...]]]:
    """The folds of a body, each with the statements around it, outermost first; a fold before those inside it."""
    yield from _streams(body, ())


def _streams(body: Body, around: tuple[Statement, ...]) -> Iterator[tuple[Statement, tuple[Statement, ...]]]:
    for statement in body.statements:
        if isinstance(statement.expression, nodes.Reduction):
            yield statement, around
        for inner in sub_bodies(statement.expression):
            yield from _streams(inner, (*around, statement))
