"""Kernel statements of one point, for neighbouring points in the lanes of vectors.

    at = row * n + (first + lane); s = s + x[at]; y[at] = s
    =>  at = row * n + first; s = s + x[at .. at + 7]; y[at .. at + 7] = s

The statements mention the number of the point in its group, `lane`. What does not depend on it stays scalar. An index
`base + c * lane` is known by its base and its factor c: with the factor 1 neighbours lie side by side and are one
access; otherwise each lane has its own (a gather or a scatter: of rows along a loop in squares, `lane_strips`, else
lane by lane).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.kernel.ir import (
    Assign,
    Broadcast,
    Buffer,
    Cast,
    Comment,
    Constant,
    Declare,
    Expression,
    For,
    If,
    Lane,
    Let,
    Load,
    Name,
    Operation,
    Prefetch,
    Statement,
    Store,
    VectorType,
    add,
    children,
    element_of,
    expressions,
    integer,
    multiply,
    operation,
    walk,
)
from tilewright.passes.items.scalar_values import KernelBuilder
from tilewright.passes.lanes.lane_strips import (
    Access,
    Strip,
    accesses_along,
    at_round,
    mask_of,
    read_square,
    width_of,
    write_square,
)
from tilewright.passes.lanes.vectorise import NotVectorisable


@dataclass(frozen=True)
class Line:
    """The integers base + factor * lane; both are scalars that do not depend on the lane."""

    base: Expression
    factor: Expression


def widen_lanes(
    statements: Sequence[Statement],
    lane: Name,
    lanes: int,
    emit: KernelBuilder,
    memory: Callable[[ScalarType, int], Buffer],
) -> None:
    """Emit statements for all of 0 <= lane < lanes at once.

    Args:
        statements: the code of one point; points do not write what others read.
        lane: the number of the point in the group, which the statements mention.
        lanes: points of a group.
        emit: where to.
        memory: makes private memory for some elements of a type.

    Raises:
        NotVectorisable: where lanes would go different ways, or write to one place.
    """
    _Lanes(lane, lanes, emit, memory, varying_names(statements, lane.name)).run(statements)


def varying_names(statements: Sequence[Statement], lane: str) -> frozenset[str]:
    """The names whose values depend on the lane."""
    varying = {lane}
    every = list(walk(tuple(statements)))
    while True:
        before = len(varying)
        for one in every:
            if isinstance(one, Let | Declare | Assign) and names_in((one.value,)) & varying:
                varying.add(one.name)
            elif isinstance(one, If) and names_in((one.condition,)) & varying:
                inside = walk((*one.then, *one.otherwise))
                varying |= {inner.name for inner in inside if isinstance(inner, Assign)}
        if len(varying) == before:
            return frozenset(varying)


def names_in(values: Iterable[Expression]) -> set[str]:
    """All names that expressions mention."""
    found: set[str] = set()
    for one in values:
        if isinstance(one, Name):
            found.add(one.name)
        found |= names_in(children(one))
    return found


class _Lanes:
    """`known`: the vectors that stand for names; `lines`: for names of integers the lines that they are."""

    def __init__(
        self, lane: Name, lanes: int, emit: KernelBuilder, memory: Callable[[ScalarType, int], Buffer],
        varying: frozenset[str],
    ) -> None:  # fmt: skip
        self.lanes, self.emit, self.memory, self.varying = lanes, emit, memory, varying
        self.known: dict[str, Expression] = {}
        self.lines: dict[str, Line] = {lane.name: Line(integer(0), integer(1))}
        self.squares: dict[int, tuple[Buffer, Expression]] = {}
        self.numbers: Expression | None = None
        if any(True for _ in varying):
            self.numbers = self._numbers()

    def _numbers(self) -> Expression:
        """0, 1, 2, ... as a vector."""
        buffer = self.memory(I64, self.lanes)
        for k in range(self.lanes):
            self.emit.emit(Store(buffer, integer(k), integer(k)))
        return self.emit.let(Load(buffer, integer(0), VectorType(I64, self.lanes)), "numbers")

    # --- statements

    def run(self, statements: Sequence[Statement], mask: Expression | None = None) -> None:
        """Emit statements; where `mask` is false nothing is changed."""
        for statement in statements:
            if isinstance(statement, Let | Declare | Assign):
                self._bind(statement, mask)
                continue
            match statement:
                case Store():
                    self._store(statement, mask)
                case If(condition):
                    self._if(statement, condition, mask)
                case For(start=start, stop=stop, step=step):
                    if self.varies((start, stop, step)):
                        raise NotVectorisable(f"lanes would run loop {statement.index} for different numbers of rounds")
                    self._loop(statement, mask)
                case Comment():
                    self.emit.emit(statement)
                case Prefetch() if not self.varies(expressions(statement)):
                    self.emit.emit(statement)
                case _:
                    raise NotVectorisable(f"lanes cannot share a {type(statement).__name__.lower()}")

    def _loop(self, loop: For, mask: Expression | None) -> None:
        rows = accesses_along(loop, self._is_apart) if mask is None else ()
        if not rows:
            with self.emit.scope() as body:
                self.run(loop.body, mask)
            self.emit.emit(replace(loop, body=tuple(body), independent=False))
            return
        width = width_of(rows, self.lanes)
        first = Name(self.emit.name("strip"), I64)
        with self.emit.scope() as strip_body:
            left = operation("sub", loop.stop, first)
            count = self.emit.let(operation("min", integer(width), left), "count")
            self._strip(Strip(loop, first, count, width, self.lanes), rows)
        self.emit.emit(For(first.name, loop.start, loop.stop, tuple(strip_body), step=integer(width)))

    def _strip(self, strip: Strip, rows: Sequence[Access]) -> None:
        """Rounds of a loop with the elements of these rows in squares."""
        loop, mask = strip.loop, mask_of(self.emit, strip)
        squares = [self.memory(one.buffer.element, strip.width * self.lanes) for one in rows]
        lines = []
        for one, square in zip(rows, squares, strict=True):
            line = self.line(at_round(one.index, loop.index, strip.lowest(one)))
            assert line is not None
            lines.append((self.emit.let(line.base, "base"), self.emit.let(line.factor, "factor")))
            self.squares[id(one.statement)] = square, strip.place(one)
            if isinstance(one.statement, Let):
                read_square(self.emit, one, lines[-1], square, strip, mask)
        with self.emit.scope() as body:
            self.run(loop.body)
        stop = operation("add", strip.first, strip.count)
        self.emit.emit(For(loop.index, strip.first, stop, tuple(body)))
        for one, square, place in zip(rows, squares, lines, strict=True):
            if isinstance(one.statement, Store):
                write_square(self.emit, one, place, square, strip, mask)

    def _is_apart(self, index: Expression) -> bool:
        """Whether the elements of an index are neither one for all lanes nor side by side."""
        line = self.line(index)
        return line is not None and line.factor not in (integer(0), integer(1))

    def varies(self, values: Iterable[Expression]) -> bool:
        """Whether one of some expressions depends on the lane."""
        return not names_in(values).isdisjoint(self.varying)

    def _bind(self, statement: Let | Declare | Assign, mask: Expression | None) -> None:
        name, value = statement.name, statement.value
        if name not in self.varying:
            self.emit.emit(statement)
            return
        if isinstance(statement, Let):
            if id(statement) in self.squares:
                square, place = self.squares[id(statement)]
                at = self.emit.let(place, "at")
                self.known[name] = self.emit.let(Load(square, at, VectorType(square.element, self.lanes)), "e")
                return
            line = self.line(value)
            if line is not None:
                self.lines[name] = Line(self.emit.snapshot(line.base, name), line.factor)
            else:
                self.known[name] = self.emit.snapshot(self.wide(value, mask), name)
            return
        vector = self.wide(value, mask)
        if isinstance(statement, Declare):
            self.known[name] = self.emit.declare(vector, name)
            return
        target = self._variable(name)
        assert isinstance(target, Name)
        if mask is not None:
            vector = Operation("select", (mask, vector, target), target.type)
        self.emit.assign(target, vector)

    def _variable(self, name: str) -> Expression:
        """The vector of a variable; one of the code around the lanes (that a check has failed, say) has no vector."""
        if name not in self.known:
            raise NotVectorisable(f"{name} is changed by every lane")
        return self.known[name]

    def _if(self, statement: If, condition: Expression, mask: Expression | None) -> None:
        if not self.varies((condition,)):
            with self.emit.scope() as then:
                self.run(statement.then, mask)
            with self.emit.scope() as otherwise:
                self.run(statement.otherwise, mask)
            self.emit.emit(replace(statement, then=tuple(then), otherwise=tuple(otherwise)))
            return
        taken = self.emit.let(self.wide(condition, mask), "taken")
        other = self.emit.let(operation("not", taken), "other")
        for chosen, body in ((taken, statement.then), (other, statement.otherwise)):
            if body:
                self.run(body, chosen if mask is None else self.emit.let(operation("and", mask, chosen), "both"))

    def _store(self, statement: Store, mask: Expression | None) -> None:
        if statement.mask is not None or isinstance(statement.value.type, VectorType):
            raise NotVectorisable("a store of a vector is not widened again")
        if mask is None and not self.varies((statement.index, statement.value)):  # the same for all
            self.emit.emit(statement)
            return
        line = self.line(statement.index)
        if line is not None and line.factor == integer(0):
            raise NotVectorisable("lanes would write to one place")
        value = self.emit.let(self.wide(statement.value, mask), "value")
        if id(statement) in self.squares:
            square, place = self.squares[id(statement)]
            self.emit.emit(Store(square, self.emit.let(place, "at"), value))
            return
        if line is not None and line.factor == integer(1):
            self.emit.emit(Store(statement.buffer, line.base, value, mask=mask))
            return
        element = element_of(value.type)
        for k, index in enumerate(self._each_index(statement.index, line, mask)):
            part = self.emit.let(Lane(value, k, element), "part")
            self._where(mask, k, Store(statement.buffer, index, part))

    def _where(self, mask: Expression | None, k: int, statement: Statement) -> None:
        """A statement of lane k, if that is not masked."""
        if mask is None:
            self.emit.emit(statement)
        else:
            self.emit.emit(If(self.emit.let(Lane(mask, k, BOOL), "holds"), (statement,)))

    def _each_index(self, index: Expression, line: Line | None, mask: Expression | None) -> list[Expression]:
        """An index for each lane."""
        if line is not None:
            base, factor = self.emit.let(line.base, "base"), self.emit.let(line.factor, "factor")
            return [self.emit.let(add(base, multiply(integer(k), factor)), "at") for k in range(self.lanes)]
        wide = self.emit.let(self.wide(index, mask), "places")
        return [self.emit.let(Lane(wide, k, I64), "at") for k in range(self.lanes)]

    # --- values

    def line(self, value: Expression) -> Line | None:
        """An integer as a line, where it is one."""
        if value.type != I64:
            return None
        if not self.varies((value,)):
            return Line(value, integer(0))
        match value:
            case Name(name):
                return self.lines.get(name)
            case Operation("add" | "sub" | "mul" as operator, (left, right)):
                one, two = self.line(left), self.line(right)
                if one is None or two is None:
                    return None
                if operator == "add":
                    return Line(add(one.base, two.base), add(one.factor, two.factor))
                if operator == "sub":
                    return Line(_minus(one.base, two.base), _minus(one.factor, two.factor))
                for fixed, other in ((one, two), (two, one)):
                    if fixed.factor == integer(0):
                        return Line(multiply(fixed.base, other.base), multiply(fixed.base, other.factor))
        return None

    def wide(self, value: Expression, mask: Expression | None) -> Expression:
        """A value for each lane; what is masked may be anything."""
        type_ = VectorType(element_of(value.type), self.lanes)
        if isinstance(value.type, VectorType):
            raise NotVectorisable("a vector is not widened again")
        if not self.varies((value,)):
            return Broadcast(value, type_)
        line = self.line(value)
        if line is not None:
            assert self.numbers is not None
            return operation("add", Broadcast(line.base, type_),
                             operation("mul", Broadcast(line.factor, type_), self.numbers))  # fmt: skip
        match value:
            case Name(name):
                return self._variable(name)
            case Load():
                return self._load(value, type_, mask)
            case Cast(operand=operand):
                wide = self.wide(operand, mask)
                return wide if wide.type == type_ else Cast(wide, type_)
            case Operation(operator, operands):
                return Operation(operator, tuple(self.wide(one, mask) for one in operands), type_)
        raise NotVectorisable(f"a {type(value).__name__.lower()} differs between lanes")

    def _load(self, load: Load, type_: VectorType, mask: Expression | None) -> Expression:
        line = self.line(load.index)
        if line is not None and line.factor == integer(1):
            return self.emit.let(Load(load.buffer, line.base, type_, mask=mask), "e")
        buffer = self.memory(type_.element, self.lanes)
        if mask is not None:
            self.emit.emit(Store(buffer, integer(0), Broadcast(Constant(0, type_.element), type_)))
        for k, index in enumerate(self._each_index(load.index, line, mask)):
            with self.emit.scope() as one:
                element = self.emit.let(Load(load.buffer, index, load.type), "e")
                self.emit.emit(Store(buffer, integer(k), element))
            for statement in one if mask is None else (If(Lane(mask, k, BOOL), tuple(one)),):
                self.emit.emit(statement)
        return self.emit.let(Load(buffer, integer(0), type_), "gathered")


def _minus(left: Expression, right: Expression) -> Expression:
    if isinstance(right, Constant):
        return add(left, Constant(-right.value, I64))
    return operation("sub", left, right)
