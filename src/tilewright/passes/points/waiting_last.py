"""Loops whose rounds wait for one another at least and greatest values, which then take what is waited for last.

    for j:  t = min(min(left, up[j]), diagonal);  left = t + cost[j];  diagonal = up[j]
=>  for j:  t = min(min(up[j], diagonal), left);  ...

So a round waits for one operation of the last one instead of two. Of the two sides of a float's min or max the second
one is waited for: the processor's instruction gives nan if that is one, and only the first one is compared with itself.
Any order of min and max gives the same number, or nan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TypeAlias

from tilewright.ir.cached import remembered
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, Load, Name, Statement, Store
from tilewright.kernel.traversal import bodies, expressions, expressions_in, parts, walk, with_bodies

_EXTREMA = ("min", "max")


def all_waiting_last(statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """The statements with this done in all loops whose rounds follow one another."""
    return in_following_rounds(statements, with_waiting_last)


def in_following_rounds(
    statements: Sequence[Statement], change: Callable[[Sequence[Statement], str], tuple[Statement, ...]]
) -> tuple[Statement, ...]:
    """The statements with `change(body, index)` in place of each body of a loop whose rounds follow one another."""
    found: list[Statement] = []
    for one in statements:
        inside = tuple(in_following_rounds(body, change) for body in bodies(one))
        if isinstance(one, kernel.For) and not one.independent:
            inside = (change(inside[0], one.index),)
        found.append(with_bodies(one, inside))
    return tuple(found)


def with_waiting_last(body: Sequence[Statement], index: str = "") -> tuple[Statement, ...]:
    """The body of a loop whose rounds follow one another, with the operands of min and max in such an order.

    Args:
        body: the body.
        index: the loop's index, which grows.

    Example:
        >>> from tilewright.ir.scalars import I64
        >>> from tilewright.kernel.ir import Assign, Let, operation
        >>> last, here = Name("last", I64), Name("here", I64)
        >>> body = (Let("t", operation("min", last, here)), Assign("last", Name("t", I64)))
        >>> [one.name for one in with_waiting_last(body)[0].value.operands]
        ['here', 'last']
    """
    if not any(isinstance(one, kernel.Let) and _is_extremum(one.value) for one in body):
        return tuple(body)
    if not _any_waits(body, _depths(body, set())):  # nor will they if something is read ahead, which is long to see
        return tuple(body)
    depths = depths_of(body, index)
    if not _any_waits(body, depths):
        return tuple(body)
    places = {one.name: place for place, one in enumerate(body) if isinstance(one, kernel.Let)}
    uses = Counter(one.name for one in expressions_in(body) if isinstance(one, Name))
    inner: set[str] = set()

    def let_within(value: Expression, operator: str, until: int) -> kernel.Let | None:
        """What binds an operand, if it is the same operator, for this use only, and means the same there."""
        if not isinstance(value, Name) or uses[value.name] > 1 or value.name not in places:
            return None
        place = places[value.name]
        let = body[place]
        assert isinstance(let, kernel.Let)
        if not isinstance(let.value, kernel.Operation) or let.value.operator != operator:
            return None
        reads = _reads(let)
        return let if all(reads.isdisjoint(_writes(one)) for one in body[place + 1 : until]) else None

    def leaves(value: Expression, operator: str, until: int) -> Iterator[Expression]:
        let = let_within(value, operator, until)
        if let is not None:
            inner.add(let.name)
            value = let.value
        if isinstance(value, kernel.Operation) and value.operator == operator:
            for one in value.operands:
                yield from leaves(one, operator, until)
        else:
            yield value

    found: list[Statement] = []
    for place, one in reversed(list(enumerate(body))):
        if isinstance(one, kernel.Let) and one.name in inner:
            continue
        if isinstance(one, kernel.Let) and _is_extremum(one.value) and depths.get(one.name, 0):
            assert isinstance(one.value, kernel.Operation)
            operands = leaves(one.value, one.value.operator, place)
            first, *others = sorted(operands, key=lambda leaf: _depth(leaf, depths))
            for other in others:
                first = replace(one.value, operands=(first, other))
            one = kernel.Let(one.name, first)
        found.append(one)
    return tuple(reversed(found))


def _any_waits(body: Sequence[Statement], depths: Mapping[str, int]) -> bool:
    """Whether an extremum among the statements waits for an earlier round."""
    return any(isinstance(one, kernel.Let) and _is_extremum(one.value) and depths.get(one.name, 0) for one in body)


def depths_of(body: Sequence[Statement], index: str) -> dict[str, int]:
    """How many operations after what rounds of a loop wait for each name of its body is known; others are not there."""
    return _depths(body, read_ahead(body, index))


def _is_extremum(value: Expression) -> bool:
    return isinstance(value, kernel.Operation) and value.operator in _EXTREMA


@remembered
def _reads(statement: Statement) -> frozenset[str]:
    """The names and buffers that a statement reads, and those in it; nests are asked once for each loop around."""
    own = [*parts(expressions(statement))]
    names = [one.name for one in own if isinstance(one, Name)]
    buffers = [f"{one.buffer.name}[]" for one in own if isinstance(one, Load)]
    inside = [_reads(one) for body in bodies(statement) for one in body]
    return frozenset((*names, *buffers)).union(*inside)


@remembered
def _writes(statement: Statement) -> frozenset[str]:
    """What of it later rounds may read: variables and buffers."""
    own = frozenset[str]()
    if isinstance(statement, kernel.Assign):
        own = frozenset((statement.name,))
    elif isinstance(statement, Store):
        own = frozenset((f"{statement.buffer.name}[]",))
    return own.union(*(_writes(one) for body in bodies(statement) for one in body))


def _depths(body: Sequence[Statement], ahead: Set[str]) -> dict[str, int]:
    """How many operations after something that rounds wait for from one to the next each name is known."""
    carried: set[str] = set().union(*map(_writes, body)) - {f"{one}[]" for one in ahead}
    sources: dict[str, Set[str]] = {one: {one} for one in carried}
    needed: dict[str, set[str]] = {one: set() for one in carried}
    for one in body:
        behind: set[str] = set().union(*(sources[name] for name in _reads(one) if name in sources))
        if isinstance(one, kernel.Let):
            sources[one.name] = behind
        for written in _writes(one) & carried:
            needed[written] |= behind
    late = shifted(body, carried)
    depths = {one: 1 for one in _in_circles(needed) if one not in late}
    for one in body:
        if isinstance(one, kernel.Let):
            depth = _depth(one.value, depths)
            if depth:
                depths[one.name] = depth + 1
    return depths


def shifted(body: Sequence[Statement], carried: Set[str]) -> set[str]:
    """Which of some variables become in each round what another one was before it: nobody waits for them, as they were
    known a round earlier.

    Example:
        >>> from tilewright.ir.scalars import F64
        >>> from tilewright.kernel.ir import Assign, Let, operation
        >>> y, z = Name("y", F64), Name("z", F64)
        >>> body = (Let("t", operation("add", y, z)), Let("u", y), Assign("y", Name("t", F64)))
        >>> shifted((*body, Assign("z", Name("u", F64))), {"y", "z"})
        {'z'}
    """
    held = {one: one for one in carried}  # by name: the variable of which it has the value before the round
    found: set[str] = set()
    changed: set[str] = set()
    for one in body:
        match one:
            case kernel.Let(name, Name(source)) if source in held:
                held[name] = held[source]
            case kernel.Assign(name, Name(source)) if name not in changed and held.get(source, name) != name:
                found.add(name)
        written = _writes(one)
        found -= written & changed
        changed |= written
        held = {name: variable for name, variable in held.items() if name not in written}
    return found


def _in_circles(needed: Mapping[str, Set[str]]) -> list[str]:
    """What needs itself, or what needs it, and so on, of an earlier round.

    Example:
        >>> _in_circles({"a": {"a"}, "b": {"a"}, "c": {"d"}, "d": {"c", "b"}, "e": {"c"}, "f": set()})
        ['a', 'c', 'd']
    """
    numbers = {one: number for number, one in enumerate(needed)}
    reached = [sum(1 << numbers[one] for one in ones) for ones in needed.values()]
    for through in range(len(reached)):  # [Warshall, A theorem on Boolean matrices, 1962]
        bit, further = 1 << through, reached[through]
        for start, ones in enumerate(reached):
            if ones & bit:
                reached[start] = ones | further
    return [one for one, number in numbers.items() if reached[number] >> number & 1]


def _depth(value: Expression, depths: Mapping[str, int]) -> int:
    """The largest depth of what an expression reads; 0 where it waits for nothing."""
    most = 0
    for one in parts([value]):
        if isinstance(one, Name):
            most = max(most, depths.get(one.name, 0))
        elif isinstance(one, Load):
            most = max(most, depths.get(f"{one.buffer.name}[]", 0))
    return most


def read_ahead(body: Sequence[Statement], index: str) -> set[str]:
    """The buffers of which the rounds of a loop read only what lies beyond all that those before them have written.

    Example:
        >>> from tilewright.ir.scalars import F64, I64
        >>> from tilewright.kernel.ir import Buffer, add, integer
        >>> x, i = Buffer("x", F64), Name("i", I64)
        >>> sorted(read_ahead((Store(x, i, Load(x, add(i, integer(1)), F64)),), "i"))
        ['x']
        >>> sorted(read_ahead((Store(x, add(i, integer(1)), Load(x, i, F64)),), "i"))
        []
    """
    lets = {one.name: one.value for one in body if isinstance(one, kernel.Let)}
    inside = {one.name for one in walk(tuple(body)) if isinstance(one, kernel.Let | kernel.Assign)}
    inside |= {one.index for one in walk(tuple(body)) if isinstance(one, kernel.For)}
    written: dict[str, list[Affine]] = {}
    for one in walk(tuple(body)):
        if isinstance(one, Store):
            written.setdefault(one.buffer.name, []).append(_affine(one.index, lets))
    read: dict[str, list[Affine]] = {name: [] for name in written}
    for part in expressions_in(body):
        if isinstance(part, Load) and part.buffer.name in read:
            read[part.buffer.name].append(_affine(part.index, lets))

    def is_ahead(load: Affine, store: Affine) -> bool:
        if load is None or store is None or not inside.isdisjoint(store) or store.get(index, 0) <= 0:
            return False
        return {**load, "": 0} == {**store, "": 0} and load[""] > store[""]

    return {name for name, stores in written.items() if all(is_ahead(a, b) for a in read[name] for b in stores)}


Affine: TypeAlias = Mapping[str, int] | None
"""The coefficients of names in an integer, and what is added to them as that of ""; None for what is no such sum."""


def _affine(value: Expression, lets: Mapping[str, Expression]) -> Affine:
    match value:
        case Constant(int() as number):
            return {"": number}
        case Name(name) if name in lets:
            return _affine(lets[name], lets)
        case Name(name):
            return {"": 0, name: 1}
        case kernel.Operation("add" | "sub" | "mul" as operator, (left, right)):
            one, two = _affine(left, lets), _affine(right, lets)
            if one is None or two is None:
                return None
            if operator == "mul":
                one, two = (one, two) if two.keys() == {""} else (two, one)
                return {name: number * two[""] for name, number in one.items()} if two.keys() == {""} else None
            sign = 1 if operator == "add" else -1
            return {name: one.get(name, 0) + sign * two.get(name, 0) for name in (*one, *two)}
    return None
