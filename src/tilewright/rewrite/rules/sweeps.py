"""Passes over rows: a scan, the maps before and after it, and scatters of what these give become one sweep.

These rules fire where the host runs the statements; a sweep inside another construct would gain nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import FreshNames, all_statements, is_plain, mentioned
from tilewright.rewrite.names import definitions, replace_names, used
from tilewright.rewrite.rule import Declined, Place, no_match, rule


@rule("one pass", nodes.Scan, nodes.Scanomap)
def sweep_scan(at: Place) -> Body | Declined:
    """ys = map f xs; zs = scan op ne ys; is, vs = map g zs ys; out = scatter dest is vs  =>
    out = sweep f op ne g dest xs, that is, for each row: y = f x; z = z op y; i, v = g z y; out[i] = v

    There may be several maps and scatters, or none of some; what is used elsewhere is mapped out. Of a filter
    (`picked_flag`) the number of rows that are picked comes from the same sweep.
    """
    if not at.is_on_host:
        return no_match("it is not the host that runs the scan")
    members = _members(at.body, at.index)
    if members is None:
        return no_match("nothing but the scan's own rows can be computed with it")
    totals = _totals(at.body, at.index)
    if totals and _can_stand_together(at.body, members | totals) and _is_filter(at, members):
        members |= totals
    targets, sweep = _composed(at, members, at.names)
    if not targets:
        return no_match("nothing reads what the scan and its maps give")
    return in_place_of(at.body, members, Statement(targets, sweep))


@rule("one pass", nodes.Scatter)
def sweep_scatter(at: Place) -> Body | Declined:
    """is = map f xs; vs = map g ys; out = scatter dest is vs  =>
    out = sweep (\\x y -> (f x, g y)) dest xs ys, that is, for each row: out[f x] = g y, if nothing else reads is and vs
    """
    scatter = at.expect(nodes.Scatter)
    if not at.is_on_host:
        return no_match("it is not the host that runs the scatter")
    maps = _only_scattered(at, scatter)
    if not maps:
        return no_match("no map gives the indices or the values for it alone")
    rows = _RowCode(at.names, "row")
    for index in maps:
        rows.add(at.body.statements[index])
    results = (rows.row(scatter.indices), rows.row(scatter.values))
    through = tuple(Variable(at.names(hint), Type(one.type.element)) for hint, one in zip("iv", results, strict=True))
    sweep = nodes.Sweep(
        scatter.indices.type.shape[0],
        rows.function(results),
        Lambda((), Body((), ())),
        (),
        Lambda(through, Body((), through)),
        (scatter.destination,),
        tuple(rows.arrays.values()),
    )
    return in_place_of(at.body, {*maps, at.index}, Statement(at.statement.targets, sweep))


def in_place_of(body: Body, members: set[int], made: Statement) -> Body:
    """The body with one statement where the last of those stood that it replaces."""
    last = max(members)
    gone = members - {last}
    kept = (made if at == last else one for at, one in enumerate(body.statements) if at not in gone)
    return Body(tuple(kept), body.results)


def is_scalar_code(body: Body) -> bool:
    """Whether a body is code on scalars without loops that reads no arrays."""
    return is_plain(body) and not any(isinstance(one.expression, nodes.Index) for one in all_statements(body))


# --- which statements -------------------------------------------------------------------------------------------------


def _is_row_map(statement: Statement, width: Size) -> bool:
    """Whether a statement maps scalars to real scalars by code without loops."""
    one = statement.expression
    return (
        isinstance(one, nodes.Map)
        and one.width == width
        and is_plain(one.function.body)
        and all(array.type.rank == 1 for array in one.arrays)
        and not any(target.type.element.is_complex for target in statement.targets)
    )


def _only_scattered(at: Place, scatter: nodes.Scatter) -> list[int]:
    """The maps whose results only the scatter here uses."""
    if scatter.values.type.rank != 1:
        return []
    found = []
    for index in dict.fromkeys(definitions(at.body).get(one.name, -1) for one in (scatter.indices, scatter.values)):
        if index < 0 or not _is_row_map(at.body.statements[index], scatter.indices.type.shape[0]):
            continue
        targets = at.body.statements[index].targets
        alone = all(set(at.uses(one.name)) <= {at.index} for one in targets)
        if alone and scatter.destination not in targets:
            found.append(index)
    return found


def _members(body: Body, scan: int) -> set[int] | None:
    """The statements that the pass around a scan takes; None if there is nothing but the scan and what it reads."""
    fold = body.statements[scan].expression
    if not isinstance(fold, nodes.Scan | nodes.Scanomap) or not _is_simple_scan(fold):
        return None
    made = {target.name for target in body.statements[scan].targets}
    after: set[int] = set()
    beyond: set[str] = set()  # what is scattered, and all that needs it: that is whole only when the pass is over
    for index in range(scan + 1, len(body.statements)):
        statement = body.statements[index]
        one, names = statement.expression, {target.name for target in statement.targets}
        if not beyond.isdisjoint(used(statement)):
            beyond |= names
            continue
        if isinstance(one, nodes.Map) and _is_row_map(statement, fold.width):
            follows = any(array.name in made for array in one.arrays)
        else:
            follows = (
                isinstance(one, nodes.Scatter) and one.indices.name in made and _is_simple_scatter(one, fold.width)
            )
        if follows:
            after.add(index)
            (beyond if isinstance(one, nodes.Scatter) else made).update(names)
    members = {scan, *after}
    bound_at = definitions(body)
    waiting = list(members)
    while waiting:
        for array in _read(body.statements[waiting.pop()]):
            made_at = bound_at.get(array.name, -1)
            if made_at >= 0 and made_at not in members and _is_row_map(body.statements[made_at], fold.width):
                members.add(made_at)
                waiting.append(made_at)
    return members if after and _can_stand_together(body, members) else None


def _is_simple_scan(fold: nodes.Scan | nodes.Scanomap) -> bool:
    real = not any(atom.type.rank or atom.type.element.is_complex for atom in fold.neutral)
    plain = isinstance(fold, nodes.Scan) or is_plain(fold.function.body)
    return real and plain and is_scalar_code(fold.combine.body) and all(one.type.rank == 1 for one in fold.arrays)


def _is_simple_scatter(one: nodes.Scatter, width: Size) -> bool:
    same = one.indices.type.shape == (width,) and one.values.type.shape == (width,)
    return same and not one.values.type.element.is_complex


def _read(statement: Statement) -> tuple[Variable, ...]:
    """The arrays of which a statement reads rows."""
    one = statement.expression
    if isinstance(one, nodes.Scatter):
        return (one.indices, one.values)
    return one.arrays if isinstance(one, nodes.Map | nodes.Scan | nodes.Scanomap | nodes.Reduce) else ()


def _totals(body: Body, scan: int) -> set[int]:
    """Reductions that give the last result of the scan of integers."""
    fold = body.statements[scan].expression
    if not isinstance(fold, nodes.Scan) or fold.neutral != (Literal(0, I64),) or _operator(fold.combine) != "add":
        return set()
    return {
        index
        for index, one in enumerate(body.statements)
        if isinstance(one.expression, nodes.Reduce) and one.expression.arrays == fold.arrays
        and one.expression.neutral == fold.neutral and _operator(one.expression.combine) == "add"
    }  # fmt: skip


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
class _RowCode:
    """The code of a row: `values` are the rows of arrays as atoms, `parameters` those that it is given."""

    names: FreshNames
    suffix: str
    values: dict[str, Atom] = field(default_factory=dict)
    parameters: dict[str, Variable] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    arrays: dict[str, Variable] = field(default_factory=dict)

    def row(self, array: Variable) -> Atom:
        """The row of an array."""
        if array.name not in self.values:
            parameter = Variable(self.names(f"{array.name}.{self.suffix}"), array.type.row)
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

    def function(self, results: tuple[Atom, ...]) -> Lambda:
        """The function of the rows of `arrays`."""
        return Lambda(tuple(self.parameters.values()), Body(tuple(self.statements), results))


def _composed(at: Place, members: set[int], names: FreshNames) -> tuple[tuple[Variable, ...], nodes.Sweep]:
    """The targets and the sweep of some statements around the scan here; reductions among them give its totals."""
    statement, body = at.statement, at.body
    fold = statement.expression
    assert isinstance(fold, nodes.Scan | nodes.Scanomap)
    count = len(fold.neutral)
    first, second = _RowCode(names, "row"), _RowCode(names, "kept")
    for one in _in_order(body, members, at.index, before=True):
        first.add(one)
    if isinstance(fold, nodes.Scan):
        scanned = tuple(first.row(array) for array in fold.arrays)
    else:
        results = first.apply(fold.function, fold.arrays)
        scanned = results[:count]
        extra = zip(statement.targets[count:], results[count:], strict=True)
        first.values.update({target.name: value for target, value in extra})
    prefixes = [Variable(names(f"{one.name}.prefix"), one.type.row) for one in statement.targets[:count]]
    second.values.update({one.name: value for one, value in zip(statement.targets, prefixes, strict=False)})
    outputs: list[Atom] = []
    scattered: list[Statement] = []
    for one in _in_order(body, members, at.index, before=False):
        match one.expression:
            case nodes.Map():
                second.add(one)
            case nodes.Scatter(_, indices, values):
                outputs += [second.row(indices), second.row(values)]
                scattered.append(one)
    made = [t for index in sorted(members) for t in body.statements[index].targets if t.type.rank]
    into = [one.targets[0] for one in scattered]
    mapped = [one for one in made if one not in into and set(at.uses(one.name)) - members]
    outputs += [second.row(one) for one in mapped]
    kept = tuple(first.row(one) for one in second.arrays.values())
    after = second.function(tuple(outputs))
    after = Lambda((*prefixes, *after.parameters), after.body)
    destinations = tuple(one.expression.destination for one in scattered if isinstance(one.expression, nodes.Scatter))
    totals = [t for index in sorted(members) for t in body.statements[index].targets if not t.type.rank]
    before, arrays = first.function((*scanned, *kept)), tuple(first.arrays.values())
    sweep = nodes.Sweep(fold.width, before, fold.combine, fold.neutral, after, destinations, arrays, bool(totals))
    return (*totals, *into, *mapped), sweep


def _is_filter(at: Place, members: set[int]) -> bool:
    return picked_flag(_composed(at, members, FreshNames(at.program))[1]) is not None


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


# --- filters ----------------------------------------------------------------------------------------------------------


def picked_flag(sweep: nodes.Sweep) -> int | None:
    """The position, among what `before` gives beside the scanned value, of a flag that picks the scattered rows.

        is = map (\\b z -> if b then z - 1 else -1) bs zs, zs = scan (+) 0 (map (\\b -> b as i64) bs)

    None of a sweep that is no such filter into arrays of its own width, or needs the prefixes zs for anything else.
    """
    if sweep.neutral != (Literal(0, I64),) or _operator(sweep.combine) != "add" or not sweep.destinations:
        return None
    if any(one.type.shape != (sweep.width,) for one in sweep.destinations):
        return None
    prefix, *kept = sweep.after.parameters
    results, count = sweep.after.body.results, len(sweep.destinations)
    made = made_by(sweep.after.body)
    flags = {_flag(made, atom, prefix) for atom in results[: 2 * count : 2]}
    flag = flags.pop()
    if flags or flag is None or flag not in kept:
        return None
    number, *others = sweep.before.body.results
    position = kept.index(flag)
    match made_by(sweep.before.body).get(number):
        case nodes.Cast(scalar, operand) if (
            scalar == I64 and operand == others[position] and operand.type == Type(BOOL)
        ):
            return None if prefix.name in mentioned(without_indices(sweep).body) else position
    return None


def without_indices(sweep: nodes.Sweep) -> Lambda:
    """The second function of a filter, which gives the values of each destination without indices."""
    results, count = sweep.after.body.results, len(sweep.destinations)
    wanted = (*results[1 : 2 * count : 2], *results[2 * count :])
    names = set(mentioned(wanted))
    kept: list[Statement] = []
    for one in reversed(sweep.after.body.statements):
        if any(target.name in names for target in one.targets):
            kept.append(one)
            names |= mentioned(one.expression)
    return Lambda(sweep.after.parameters, Body(tuple(reversed(kept)), wanted))


def made_by(body: Body) -> Mapping[Atom, Expression]:
    """The expressions that bind one name each, by it."""
    return {one.targets[0]: one.expression for one in body.statements if len(one.targets) == 1}


def _operator(combine: Lambda) -> str | None:
    """The operator of its two parameters that a function is."""
    if len(combine.parameters) != 2 or len(combine.body.statements) != 1:
        return None
    (one,) = combine.body.statements
    match one.expression:
        case nodes.Apply(operator, operands) if operands == combine.parameters and combine.body.results == one.targets:
            return operator
    return None


def _flag(made: Mapping[Atom, Expression], index: Atom, prefix: Atom) -> Variable | None:
    """The flag of select(flag, prefix - 1, a negative number)."""
    match made.get(index):
        case nodes.Apply("select", (Variable() as flag, number, Literal(value=int(other)))) if other < 0:
            match made.get(number):
                case nodes.Apply("sub", (one, Literal(value=1))) if one == prefix:
                    return flag
    return None
