"""What differs between iterations of a loop that are to run in the lanes of vectors (the code: lane_code.py)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import I64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, Load, Name, Statement, Store, VectorType, element_of
from tilewright.kernel.traversal import expressions, parts, walk

UNIFORM, LINEAR, STRIDED, NEAR, WIDE = range(5)
"""The same in all lanes; an i64 that is one more in each lane; one that is so much more in each; one that is one more
in each but for edges, where it is clamped, replaced or taken modulo something; anything else."""


class NotInLanes(ValueError):
    """A loop that has something which vectors do not do."""


@dataclass
class LaneVariance:
    """How the values of a loop's names differ between lanes.

    Attributes:
        names: `UNIFORM`, `LINEAR`, `STRIDED`, `NEAR` or `WIDE` for each name that the body binds; others are uniform.
        apart: memory is accessed at any places, each of which only one iteration writes; else rows are not read across
            the lanes, and places are written side by side and not read.
        variables: those declared variables that differ.
        widest: bytes of the widest float that differs, or (without floats) of the widest number.
    """

    names: dict[str, int] = field(default_factory=dict)
    apart: bool = False
    variables: set[str] = field(default_factory=set)
    widest: int = 0

    def kind(self, expression: Expression) -> int:
        """How an expression differs.

        Raises:
            NotInLanes: for one that vectors do not compute, and loads across rows.
        """
        if isinstance(expression.type, VectorType):
            raise NotInLanes("a vector is not widened again")
        match expression:
            case Constant() | kernel.BlockIndex():
                return UNIFORM
            case Name(name):
                return self.names.get(name, UNIFORM)
            case kernel.Cast(operand):
                kind = self.kind(operand)
                return kind if kind == UNIFORM or operand.type == expression.type else WIDE
            case Load(index=index, mask=None):
                kind = self.kind(index)
                if kind == STRIDED and not self.apart:
                    raise NotInLanes("memory is read at places that are not side by side")
                return UNIFORM if kind == UNIFORM else WIDE
            case kernel.Operation(operator, operands):
                kinds = [self.kind(one) for one in operands]
                if all(one == UNIFORM for one in kinds):
                    return UNIFORM
                return _combined(operator, kinds) if expression.type == I64 else WIDE
        raise NotInLanes(f"{type(expression).__name__} is not done in lanes")

    def reads_side_by_side(self, body: Sequence[Statement]) -> bool:
        """Whether no lane reads memory but next to its neighbour, or all of them at one place."""
        every = (value for one in walk(tuple(body)) for value in expressions(one))
        return all(self.kind(one.index) in (UNIFORM, LINEAR) for value in every for one in loads(value))


def loads(value: Expression) -> list[Load]:
    """What an expression reads."""
    return [one for one in parts([value]) if isinstance(one, Load)]


def _combined(operator: str, kinds: Sequence[int]) -> int:
    """How what an operator makes of integers differs, which do not all stay the same."""
    near = (LINEAR, NEAR)
    if operator == "select":
        return NEAR if kinds[1] == UNIFORM and kinds[2] in near else WIDE
    if len(kinds) != 2:
        return WIDE
    left, right = kinds
    moved = (left if right == UNIFORM else WIDE) if operator in ("sub", "mod") else max(kinds)
    one_stays = UNIFORM in kinds
    if operator in ("min", "max", "mod"):
        return NEAR if one_stays and moved in near else WIDE
    if operator in ("add", "sub"):
        if one_stays and moved in near:
            return moved
        return STRIDED if max(kinds) <= STRIDED else WIDE
    return STRIDED if operator == "mul" and one_stays and max(kinds) <= STRIDED else WIDE


def lane_variance(
    index: Name,
    body: Sequence[Statement],
    apart: bool = False,
    flags: Collection[str] = (),
    turning: Collection[str] = (),
) -> LaneVariance:
    """How the values in a loop's body differ between iterations.

    Args:
        index, body: the loop's index and what is done for it.
        apart: as of a `LaneVariance`.
        flags: variables from outside of the loop that iterations may set, and none reads but to keep what was set.
        turning: buffers of which iterations write another part than any of them reads.

    Raises:
        NotInLanes: if the body does something that vectors do not do.

    Example:
        >>> from tilewright.ir.scalars import F32
        >>> from tilewright.kernel.ir import Buffer, Let, add, load
        >>> x, i = Buffer("x", F32), Name("i", I64)
        >>> lane_variance(i, [Let("at", add(i, Name("n", I64))), Let("e", load(x, Name("at", I64)))]).names
        {'i': 1, 'at': 1, 'e': 4}
    """
    if index.type != I64:
        raise NotInLanes(f"the index is of type {index.type}")
    found = LaneVariance({index.name: LINEAR} | dict.fromkeys(flags, WIDE), apart, set(flags))
    stored = {one.buffer.name for one in walk(tuple(body)) if isinstance(one, Store) and not apart}
    walker = _Walker(found, stored.difference(turning), depth=dict.fromkeys(flags, -1))
    while True:  # a variable that differs makes others differ
        before = len(found.variables)
        walker.floats, walker.numbers = 0, 0
        walker.visit(body, 0)
        if len(found.variables) == before:
            break
    found.widest = walker.floats or walker.numbers or I64.bytes
    return found


@dataclass
class _Walker:
    found: LaneVariance
    stored: set[str]
    floats: int = 0
    numbers: int = 0
    depth: dict[str, int] = field(default_factory=dict)  # of each variable: conditions that differ around it

    def visit(self, statements: Sequence[Statement], depth: int) -> None:
        """Note the names of statements inside of `depth` conditions that differ between lanes."""
        for statement in statements:
            for one in parts(expressions(statement)):
                self._check(one)
            match statement:
                case kernel.Let(name, value):
                    self.found.names[name] = self._note(value)
                case kernel.Declare(name, value):
                    self.depth[name] = depth
                    self._assigned(name, value, depth)
                case kernel.Assign(name, value):
                    if name in self.depth:
                        self._assigned(name, value, depth)
                    elif not self.found.apart or depth or self.found.kind(value) != UNIFORM:
                        raise NotInLanes(f"the variable {name} is declared outside of the loop")
                case Store(index=index, value=value, mask=None):
                    self._store(self.found.kind(index), self._note(value), depth)
                case kernel.If(condition, then, otherwise):
                    inner = depth + (self.found.kind(condition) != UNIFORM)
                    self.visit(then, inner)
                    self.visit(otherwise, inner)
                case kernel.For(name, start, stop, inside):
                    differs = self.found.kind(start) != UNIFORM or self.found.kind(stop) != UNIFORM
                    if self.found.kind(statement.step) != UNIFORM:
                        raise NotInLanes("the step of a loop differs between lanes")
                    self.found.names[name] = WIDE if differs else UNIFORM
                    self.visit(inside, depth + differs)
                case kernel.While(prelude, condition, inside):
                    self._while(prelude, condition, inside, depth)
                case kernel.Prefetch(index=index) if self.found.kind(index) == UNIFORM:
                    pass
                case kernel.Comment():
                    pass
                case _:
                    raise NotInLanes(f"{type(statement).__name__} is not done in lanes")

    def _store(self, index: int, value: int, depth: int) -> None:
        if index == UNIFORM and (not self.found.apart or depth or value != UNIFORM):
            raise NotInLanes("lanes would write to one place")
        if index != LINEAR and not self.found.apart:
            raise NotInLanes("memory is written at places that are not side by side")

    def _while(
        self, prelude: Sequence[Statement], condition: Expression, body: Sequence[Statement], depth: int
    ) -> None:
        """Under a condition that differs, a loop must end where no lane wants it: it is one that differs itself."""
        self.visit(prelude, depth)
        if depth or self.found.kind(condition) != UNIFORM:
            depth += 1
            self.visit(prelude, depth)
        self.visit(body, depth)

    def _assigned(self, name: str, value: Expression, depth: int) -> None:
        differs = self._note(value) != UNIFORM or depth > self.depth[name] or name in self.found.variables
        if differs:
            self.found.variables.add(name)
            self._widen(value)
        self.found.names[name] = WIDE if differs else UNIFORM

    def _note(self, value: Expression) -> int:
        kind = self.found.kind(value)
        if kind >= NEAR:
            self._widen(value)
        return kind

    def _widen(self, value: Expression) -> None:
        element = element_of(value.type)
        self.numbers = max(self.numbers, element.bytes)
        if element.is_float:
            self.floats = max(self.floats, element.bytes)

    def _check(self, expression: Expression) -> None:
        """Refuse to read what the loop itself writes."""
        if isinstance(expression, Load) and expression.buffer.name in self.stored:
            raise NotInLanes(f"{expression.buffer.name} is read and written")
