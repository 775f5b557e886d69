"""Statements over the same rows that one pass can compute: maps, a scan of what they give, maps and scatters of that.

    ys = map f xs; zs = scan op ne ys; is = map g zs ys; out = scatter dest is vs
    =>  for each row: y = f x; z = z op y; i = g z y; out[i] = v, where ys, zs and `is` are kept if used elsewhere

Where the indices number the rows that a flag picks, the scatter is a filter, for which neither indices nor prefixes are
computed: the picked values of a vector are packed and stored behind those of the vector before.

    is = map (\\b z -> if b then z - 1 else -1) bs zs, zs = scan (+) 0 (map (\\b -> b as i64) bs)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Lambda, Literal, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import Size
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.passes.sweeps.scan_lanes import is_plain
from tilewright.rewrite.names import definitions, mentioned, replace_names, users


@dataclass(frozen=True)
class Scattered:
    """One array that rows are scattered into: it begins as `destination`, or filled with a scalar of that name."""

    target: Variable
    destination: Atom


@dataclass(frozen=True)
class Sweep:
    """One pass over `width` rows.

    Attributes:
        arrays, before: what is read, and a function of a row of them: the values to be scanned, then those kept.
        combine, neutral: of the scan.
        again, after: a function of the scan's results, the kept values, and a row of the arrays `again`: an index and a
            value for each of `scattered`, then the values of `mapped`.
        totals: scalars that are the scan's last results; only of a filter.
        picks: of a filter the position, among the kept values, of the flag that picks rows.
    """

    width: Size
    arrays: tuple[Variable, ...]
    before: Lambda
    combine: Lambda
    neutral: tuple[Atom, ...]
    again: tuple[Variable, ...]
    after: Lambda
    scattered: tuple[Scattered, ...]
    mapped: tuple[Variable, ...]
    totals: tuple[Variable, ...] = ()
    picks: int | None = None

    @property
    def targets(self) -> tuple[Variable, ...]:
        """What it gives."""
        return (*self.totals, *(one.target for one in self.scattered), *self.mapped)


def sweeps_of(body: Body) -> Iterator[Statement | Sweep]:
    """ys = map f xs; zs = scan op ne ys; is = map g zs ys; out = scatter ds is vs  =>  out = ds;
    for each row: y = f x; z = z op y; out[g z y] = v

    Gives the statements of a body in an order in which they can run, some of them together as sweeps.
    """
    placed: dict[int, Sweep] = {}
    taken: set[int] = set()
    for index, statement in enumerate(body.statements):
        if isinstance(statement.expression, nodes.Scan | nodes.Scanomap) and index not in taken:
            members = _members(body, index)
            if members is not None and taken.isdisjoint(members):
                sweep, absorbed = _composed(body, index, members)
                if sweep.targets:  # else nothing reads what they give
                    placed[max(members)] = sweep
                taken |= members | absorbed
    for index, statement in enumerate(body.statements):
        if index in placed:
            yield placed[index]
        elif index not in taken:
            yield statement


# --- which statements -------------------------------------------------------------------------------------------------


def is_row_map(statement: Statement, width: Size) -> bool:
    """Whether a statement maps scalars to real scalars by code without loops."""
    one = statement.expression
    return (
        isinstance(one, nodes.Map)
        and one.width == width
        and is_plain(one.function.body)
        and all(array.type.rank == 1 for array in one.arrays)
        and not any(target.type.element.is_complex for target in statement.targets)
    )


def _members(body: Body, scan: int) -> set[int] | None:
    """The statements that the pass around a scan takes; None if there is nothing but the scan and what it reads."""
    fold = body.statements[scan].expression
    if not isinstance(fold, nodes.Scan | nodes.Scanomap) or not _is_simple_scan(fold):
        return None
    made = {target.name for target in body.statements[scan].targets}
    after: set[int] = set()
    for index in range(scan + 1, len(body.statements)):
        statement = body.statements[index]
        one = statement.expression
        if isinstance(one, nodes.Map) and is_row_map(statement, fold.width):
            follows = any(array.name in made for array in one.arrays)
        else:
            follows = (
                isinstance(one, nodes.Scatter) and one.indices.name in made and _is_simple_scatter(one, fold.width)
            )
        if follows:
            after.add(index)
            made.update(target.name for target in statement.targets)
    members = {scan, *after}
    bound_at = definitions(body)
    waiting = list(members)
    while waiting:
        for array in _read(body.statements[waiting.pop()]):
            made_at = bound_at.get(array.name, -1)
            if made_at >= 0 and made_at not in members and is_row_map(body.statements[made_at], fold.width):
                members.add(made_at)
                waiting.append(made_at)
    members |= _totals(body, scan, members)
    return members if after and _can_stand_together(body, members) else None


def _is_simple_scan(fold: nodes.Scan | nodes.Scanomap) -> bool:
    real = not any(atom.type.rank or atom.type.element.is_complex for atom in fold.neutral)
    plain = isinstance(fold, nodes.Scan) or is_plain(fold.function.body)
    return real and plain and all(one.type.rank == 1 for one in fold.arrays) and is_vectorisable([fold.combine])


def _is_simple_scatter(one: nodes.Scatter, width: Size) -> bool:
    same = one.indices.type.shape == (width,) and one.values.type.shape == (width,)
    return same and not one.values.type.element.is_complex


def _read(statement: Statement) -> tuple[Variable, ...]:
    """The arrays of which a statement reads rows."""
    one = statement.expression
    if isinstance(one, nodes.Scatter):
        return (one.indices, one.values)
    return one.arrays if isinstance(one, nodes.Map | nodes.Scan | nodes.Scanomap | nodes.Reduce) else ()


def _totals(body: Body, scan: int, members: set[int]) -> set[int]:
    """Reductions that give the last result of the scan of integers."""
    fold = body.statements[scan].expression
    if not isinstance(fold, nodes.Scan) or not _is_count(fold):
        return set()
    found = {
        index
        for index, one in enumerate(body.statements)
        if isinstance(one.expression, nodes.Reduce) and one.expression.arrays == fold.arrays
        and one.expression.neutral == fold.neutral and _operator(one.expression.combine) == "add"
    }  # fmt: skip
    return found if _composed(body, scan, members)[0].picks is not None else set()


def _can_stand_together(body: Body, members: set[int]) -> bool:
    """Whether all members can stand where the last one is: nothing before that uses them but by their rows."""
    made = {target.name for index in members for target in body.statements[index].targets}
    last = max(members)
    for index, statement in enumerate(body.statements[: last + 1]):
        if index not in members and not made.isdisjoint(mentioned(statement.expression)):
            return False
        if index in members:
            one = statement.expression
            whole = [
                getattr(one, name) for name in ("function", "combine", "neutral", "destination") if hasattr(one, name)
            ]
            if not made.isdisjoint(mentioned(tuple(whole))):
                return False
    return True


# --- their functions --------------------------------------------------------------------------------------------------


@dataclass
class RowCode:
    """The code of a row: `values` are the rows of arrays as atoms, `parameters` those that are read from memory."""

    suffix: str
    values: dict[str, Atom] = field(default_factory=dict)
    parameters: dict[str, Variable] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    arrays: dict[str, Variable] = field(default_factory=dict)

    def row(self, array: Variable) -> Atom:
        """The row of an array."""
        if array.name not in self.values:
            parameter = Variable(f"{array.name}.{self.suffix}", array.type.row)
            self.values[array.name] = self.parameters[array.name] = parameter
            self.arrays[array.name] = array
        return self.values[array.name]

    def apply(self, function: Lambda, arrays: tuple[Variable, ...]) -> tuple[Atom, ...]:
        """The results of a function on the rows of arrays."""
        given = {p.name: self.row(array) for p, array in zip(function.parameters, arrays, strict=True)}
        body = replace_names(function.body, given)
        self.statements += body.statements
        return body.results

    def add(self, statement: Statement) -> None:
        """Compute the rows that a map gives."""
        one = statement.expression
        assert isinstance(one, nodes.Map)
        for target, value in zip(statement.targets, self.apply(one.function, one.arrays), strict=True):
            self.values[target.name] = value


def _composed(body: Body, scan: int, members: set[int]) -> tuple[Sweep, set[int]]:
    """The sweep of some statements, and further statements that it makes needless."""
    statement = body.statements[scan]
    fold = statement.expression
    assert isinstance(fold, nodes.Scan | nodes.Scanomap)
    first, second = RowCode("row"), RowCode("again")
    for one in _in_order(body, members, scan, before=True):
        first.add(one)
    if isinstance(fold, nodes.Scan):
        scanned = tuple(first.row(array) for array in fold.arrays)
    else:
        results = first.apply(fold.function, fold.arrays)
        scanned = results[: len(fold.neutral)]
        extra = zip(statement.targets[len(fold.neutral) :], results[len(fold.neutral) :], strict=True)
        first.values.update({target.name: value for target, value in extra})
    inside = {name: value for name, value in first.values.items() if name not in first.arrays}
    keeping = {name: Variable(f"{name}.kept", Type(value.type.element)) for name, value in inside.items()}
    prefixes = [Variable(f"{one.name}.prefix", one.type.row) for one in statement.targets[: len(fold.neutral)]]
    second.values.update(keeping)
    second.values.update({one.name: value for one, value in zip(statement.targets, prefixes, strict=False)})
    outputs: list[Atom] = []
    scattered: list[Scattered] = []
    for one in _in_order(body, members, scan, before=False):
        match one.expression:
            case nodes.Map():
                second.add(one)
            case nodes.Scatter(destination, indices, values):
                outputs += [second.row(indices), second.row(values)]
                scattered.append(Scattered(one.targets[0], destination))
    made = [t for index in sorted(members) for t in body.statements[index].targets if t.type.rank]
    into = {one.target.name for one in scattered}
    mapped = tuple(one for one in made if one.name not in into and _is_needed(body, members, one))
    outputs += [second.row(one) for one in mapped]
    after = Body(tuple(second.statements), tuple(outputs))
    used = {name: value for name, value in keeping.items() if value.name in mentioned(after)}
    kept = tuple(inside[name] for name in used)
    sweep = Sweep(
        fold.width,
        tuple(first.arrays.values()),
        Lambda(tuple(first.parameters.values()), Body(tuple(first.statements), (*scanned, *kept))),
        fold.combine,
        fold.neutral,
        tuple(second.arrays.values()),
        Lambda((*prefixes, *used.values(), *second.parameters.values()), after),
        tuple(scattered),
        mapped,
        tuple(t for index in sorted(members) for t in body.statements[index].targets if t.type.rank == 0),
    )
    picked = _picked(sweep)
    return (sweep, set()) if picked is None else _with_fills(body, picked)


def _in_order(body: Body, members: set[int], scan: int, before: bool) -> Iterator[Statement]:
    """The members that the scan needs, or those that need the scan."""
    made = {target.name for target in body.statements[scan].targets}
    for index in sorted(members - {scan}):
        statement = body.statements[index]
        follows = any(one.name in made for one in _read(statement))
        if follows:
            made.update(target.name for target in statement.targets)
        if follows != before and not isinstance(statement.expression, nodes.Reduce):
            yield statement


def _is_needed(body: Body, members: set[int], target: Variable) -> bool:
    """Whether something outside uses an array."""
    return any(use not in members for use in users(body).get(target.name, ()))


def _fill(body: Body, destination: Variable) -> tuple[Atom, set[int]]:
    """A scalar that fills the destination, if that has no other use, and the statement that would fill it."""
    index = definitions(body).get(destination.name)
    one = None if index is None else body.statements[index].expression
    alone = len(users(body).get(destination.name, ())) == 1
    if index is None or not isinstance(one, nodes.Replicate) or one.value.type.rank or not alone:
        return destination, set()
    return one.value, {index}


def _with_fills(body: Body, sweep: Sweep) -> tuple[Sweep, set[int]]:
    """The filter with the scalars of destinations that are filled, and the statements that it makes needless."""
    found = [_fill(body, one.destination) for one in sweep.scattered if isinstance(one.destination, Variable)]
    scattered = tuple(Scattered(one.target, fill) for one, (fill, _) in zip(sweep.scattered, found, strict=True))
    return dataclasses.replace(sweep, scattered=scattered), {index for _, needless in found for index in needless}


# --- filters ----------------------------------------------------------------------------------------------------------


def _operator(combine: Lambda) -> str | None:
    """The operator of its two parameters that a function is."""
    if len(combine.parameters) != 2 or len(combine.body.statements) != 1:
        return None
    (one,) = combine.body.statements
    match one.expression:
        case nodes.Apply(operator, operands) if operands == combine.parameters and combine.body.results == one.targets:
            return operator
    return None


def _is_count(fold: nodes.Scan | nodes.Scanomap) -> bool:
    return fold.neutral == (Literal(0, I64),) and _operator(fold.combine) == "add"


def _picked(sweep: Sweep) -> Sweep | None:
    """The sweep as a filter, if it is one: without indices, each scatter's value alone."""
    if sweep.neutral != (Literal(0, I64),) or _operator(sweep.combine) != "add" or not sweep.scattered:
        return None
    if any(one.target.type.shape != (sweep.width,) for one in sweep.scattered):
        return None
    made = _made(sweep.after.body)
    prefix, *kept = sweep.after.parameters[: len(sweep.before.body.results)]
    results, count = sweep.after.body.results, len(sweep.scattered)
    flags = {_flag(made, atom, prefix) for atom in results[: 2 * count : 2]}
    flag = flags.pop()
    if flags or flag is None or flag not in kept:
        return None
    number, *others = sweep.before.body.results
    position = kept.index(flag)
    match _made(sweep.before.body).get(number):
        case nodes.Cast(scalar, operand) if (
            scalar == I64 and operand == others[position] and operand.type == Type(BOOL)
        ):
            pass
        case _:
            return None
    wanted = (*results[1 : 2 * count : 2], *results[2 * count :])
    body = _needed(Body(sweep.after.body.statements, wanted))
    if prefix.name in mentioned(body):
        return None
    after = Lambda(sweep.after.parameters, body)
    return dataclasses.replace(sweep, after=after, picks=position)


def _made(body: Body) -> Mapping[Atom, nodes.Expression]:
    return {one.targets[0]: one.expression for one in body.statements if len(one.targets) == 1}


def _flag(made: Mapping[Atom, nodes.Expression], index: Atom, prefix: Atom) -> Variable | None:
    """The flag of select(flag, prefix - 1, a negative number)."""
    match made.get(index):
        case nodes.Apply("select", (Variable() as flag, number, Literal(value=int(other)))) if other < 0:
            match made.get(number):
                case nodes.Apply("sub", (one, Literal(value=1))) if one == prefix:
                    return flag
    return None


def _needed(body: Body) -> Body:
    """The body without statements whose results nothing uses."""
    names = set(mentioned(body.results))
    kept: list[Statement] = []
    for one in reversed(body.statements):
        if any(target.name in names for target in one.targets):
            kept.append(one)
            names |= mentioned(one.expression)
    return Body(tuple(reversed(kept)), body.results)
