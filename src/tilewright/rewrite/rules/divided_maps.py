"""Maps and folds that divide the number of their point by the length of a row: nests over rows and places in them."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Lambda, Statement, Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ONE, ZERO, Size, SizeFunction, exact_quotient, product, size, size_function
from tilewright.ir.traversal import all_statements, bound, replace_bodies, with_fresh_names
from tilewright.rewrite.names import replace_names
from tilewright.rewrite.rule import Declined, Place, no_match, rule

SHORTEST_ROW = 16
"""Rows of fewer elements take longer one by one than the divisions do, which are cheap if they are by a constant."""

_DIVISIONS = ("floordiv", "mod")


@rule("nests", nodes.Map)
def map_divided(at: Place) -> Body | Declined:
    """map (n*m) (\\i -> f (i // m) (i % m)) (iota (n*m))
    =>  reshape (n*m) (map n (\\q -> map m (\\r -> f q r) (iota m)) (iota n))

    Nothing is divided then, what is read at q is read once for each row, and rows are read in their order. Of other
    arrays that the map goes over, rows are the same elements under another shape.
    """
    points = at.expect(nodes.Map)
    index = _index_of(at, points)
    if index is None:
        return no_match("the map does not count its points")
    found = _row_length(at, points, index)
    if found is None:
        return no_match("no point divides its number by the length of rows of the map")
    return at.replace(*_nested(at, points, index, *found))


@rule("nested folds", nodes.Redomap)
def fold_divided(at: Place) -> Body | Declined:
    """redomap op ne (\\i -> f (i // m) (i % m)) (iota (n*m))
    =>  reduce op ne (map n (\\q -> redomap op ne (\\r -> f q r) (iota m)) (iota n))

    The rows of `map_divided`, folded before they are folded together, as an associative operator allows.
    """
    points = at.expect(nodes.Redomap)
    index = _index_of(at, points)
    if index is None:
        return no_match("the fold does not count its points")
    if len(points.function.body.results) > len(points.neutral) or any(one.type.rank for one in points.neutral):
        return no_match("the fold gives more than numbers")
    found = _row_length(at, points, index)
    if found is None:
        return no_match("no point divides its number by the length of rows of the fold")
    return at.replace(*_folded(at, points, index, *found))


def _index_of(at: Place, points: nodes.Map | nodes.Redomap) -> Variable | None:
    """The parameter that is a point's number."""
    for parameter, array in zip(points.function.parameters, points.arrays, strict=True):
        if isinstance(at.definition(array), nodes.Iota) and parameter.type == Type(I64):
            return parameter
    return None


def _row_length(at: Place, points: nodes.Map | nodes.Redomap, index: Variable) -> tuple[Size, Size] | None:
    """How many rows there are, and of how many points each: the first divisor that divides the others, too, or tells
    at all.
    """
    inside, found = bound(points.function), list[tuple[Size, Size]]()
    lengths = _sizes_in(points.function.body)
    for one in all_statements(points.function.body):
        for length in _divisors(at, one, index, lengths):
            rows = exact_quotient(points.width, length)
            if rows is None or not length.names.isdisjoint(inside) or (length.constant or SHORTEST_ROW) < SHORTEST_ROW:
                continue
            if _is_natural(at, length) and _is_natural(at, rows):
                found.append((rows, length))
    dividing = (one for one in found if all(exact_quotient(other, one[1]) is not None for _, other in found))
    return next(dividing, found[0] if found else None)


def _divisors(at: Place, statement: Statement, index: Variable, lengths: dict[str, Size]) -> list[Size]:
    """What a statement divides the index by: in an operation, or, by constants, in a size."""
    match statement.expression:
        case nodes.Apply(operator, (dividend, divisor)) if operator in _DIVISIONS and dividend == index:
            length = _as_size(at, divisor, lengths)
            return [] if length is None else [length]
        case nodes.SizeValue(value):
            return [atom.right for atom in _divisions(value, index)]
    return []


def _divisions(value: Size, index: Variable) -> list[SizeFunction]:
    """The divisions of the index in a size."""
    found: list[SizeFunction] = []
    for atom in (atom for monomial, _ in value.terms for atom in monomial if isinstance(atom, SizeFunction)):
        if atom.function in _DIVISIONS and atom.left == nodes.atom_size(index):
            found.append(atom)
        else:
            found += _divisions(atom.left, index) + _divisions(atom.right, index)
    return found


def _sizes_in(body: Body) -> dict[str, Size]:
    """The names in a body that are sizes."""
    return {
        one.targets[0].name: one.expression.size
        for one in all_statements(body)
        if isinstance(one.expression, nodes.SizeValue)
    }


def _as_size(at: Place, atom: Atom, known: dict[str, Size]) -> Size | None:
    if isinstance(atom, Variable) and atom.name in known:
        return known[atom.name]
    definition = at.definition(atom)
    if isinstance(definition, nodes.SizeValue):
        return definition.size
    return nodes.atom_size(atom) if definition is None else None


def _is_natural(at: Place, value: Size) -> bool:
    """Whether a size is made of extents of arguments so that it cannot be below 0."""
    extents = {name for one in at.program.parameters for extent in one.type.shape for name in extent.names}
    return bool(value.terms) and _is_sum_of(value, extents)


def _is_sum_of(value: Size, extents: set[str]) -> bool:
    return all(
        coefficient > 0
        and all(
            _is_sum_of(atom.left, extents) and _is_sum_of(atom.right, extents)
            if isinstance(atom, SizeFunction)
            else atom in extents
            for atom in monomial
        )
        for monomial, coefficient in value.terms
    )


def _nested(at: Place, points: nodes.Map, index: Variable, rows: Size, length: Size) -> tuple[Statement, ...]:
    """The statements that bind the map's targets by a nest."""
    names = at.names
    nests = tuple(Variable(names(f"{one}.nest"), _parted(one, rows, length)) for one in at.statement.targets)
    lines = tuple(Variable(names(f"{one}.line"), one.type.row) for one in nests)

    def of_row(point: Lambda, arrays: tuple[Variable, ...]) -> nodes.Map:
        return nodes.Map(length, point, arrays)

    pairs = zip(at.statement.targets, nests, strict=True)
    flat = (Statement((one,), nodes.Reshape(made, one.type.shape)) for one, made in pairs)
    return (*_over_rows(at, points, index, (rows, length), nests, lines, of_row), *flat)


def _folded(at: Place, points: nodes.Redomap, index: Variable, rows: Size, length: Size) -> tuple[Statement, ...]:
    """The statements that bind the fold's targets by folds of the rows."""
    names, targets = at.names, at.statement.targets
    parts = tuple(Variable(names(f"{one}.rows"), Type(one.type.element, (rows,))) for one in targets)
    lines = tuple(Variable(names(f"{one}.row"), one.type) for one in targets)
    inner = with_fresh_names(points.combine, names)

    def of_row(point: Lambda, arrays: tuple[Variable, ...]) -> nodes.Redomap:
        return nodes.Redomap(length, inner, points.neutral, point, arrays, points.commutative)

    whole = nodes.Reduce(rows, points.combine, points.neutral, parts, points.commutative)
    return (*_over_rows(at, points, index, (rows, length), parts, lines, of_row), Statement(targets, whole))


def _over_rows(
    at: Place, points: nodes.Map | nodes.Redomap, index: Variable, extents: tuple[Size, Size],
    nests: tuple[Variable, ...], lines: tuple[Variable, ...],
    of_row: Callable[[Lambda, tuple[Variable, ...]], nodes.Map | nodes.Redomap],
) -> tuple[Statement, ...]:  # fmt: skip
    """The statements that bind `nests` by a map over rows, what each of which gives, by `of_row`, is bound to `lines`.

    `of_row` is given the function of a place in a row, and the arrays of the row that it goes over.
    """
    names, (rows, length) = at.names, extents
    row, place = Variable(names(f"{index}.row"), Type(I64)), Variable(names(f"{index}.place"), Type(I64))
    numbers, places = Variable(names("rows"), Type(I64, (rows,))), Variable(names("places"), Type(I64, (length,)))
    over, along, views = [(row, numbers)], [(place, places)], [Statement((numbers,), nodes.Iota(rows, I64))]
    for parameter, array in zip(points.function.parameters, points.arrays, strict=True):
        if parameter != index:
            parted = Variable(names(f"{array}.rows"), _parted(array, rows, length))
            line = Variable(names(f"{array}.row"), parted.type.row)
            views.append(Statement((parted,), nodes.Reshape(array, parted.type.shape)))
            over.append((line, parted))
            along.append((parameter, line))
    body = _divided(at, points.function.body, index, (row, place, length), _sizes_in(points.function.body))
    number = Statement((index,), nodes.SizeValue(nodes.atom_size(row) * length + nodes.atom_size(place)))
    point = Lambda(tuple(one for one, _ in along), Body((number, *body.statements), body.results))
    statements = (
        Statement((places,), nodes.Iota(length, I64)),
        Statement(lines, of_row(point, tuple(array for _, array in along))),
    )
    nest = nodes.Map(
        rows, Lambda(tuple(one for one, _ in over), Body(statements, lines)), tuple(array for _, array in over)
    )
    return (*views, Statement(nests, nest))


def _parted(array: Variable, rows: Size, length: Size) -> Type:
    """An array of rows * length elements as so many rows."""
    return Type(array.type.element, (rows, length, *array.type.shape[1:]))


def _divided(
    at: Place, body: Body, index: Variable, at_row: tuple[Variable, Variable, Size], lengths: dict[str, Size]
) -> Body:
    """A body with what its divisions of the index give by row and place."""
    found: list[Statement] = []
    known: dict[str, Atom] = {}
    for one in body.statements:
        divisors = _divisors(at, one, index, lengths)
        times = exact_quotient(divisors[0], at_row[2]) if divisors else None
        if isinstance(one.expression, nodes.SizeValue):
            found.append(Statement(one.targets, nodes.SizeValue(_by_row(one.expression.size, index, at_row))))
        elif times == ONE and isinstance(one.expression, nodes.Apply):
            known[one.targets[0].name] = at_row[0] if one.expression.operator == "floordiv" else at_row[1]
        elif times is not None and isinstance(one.expression, nodes.Apply):
            found += _of_rows(at, one.targets, one.expression.operator, times, at_row)
        else:
            inside = replace_bodies(one.expression, lambda inner: _divided(at, inner, index, at_row, lengths))
            found.append(Statement(one.targets, inside))
    return replace_names(Body(tuple(found), body.results), known)


def _by_row(value: Size, index: Variable, at_row: tuple[Variable, Variable, Size]) -> Size:
    """A size with what its divisions of the index by constants give."""

    def known(atom: str | SizeFunction) -> Size:
        if isinstance(atom, str):
            return size(atom)
        row, place, length = at_row
        times = exact_quotient(atom.right, length)
        if times is None or atom not in _divisions(value, index):
            return size_function(atom.function, _by_row(atom.left, index, at_row), _by_row(atom.right, index, at_row))
        among = size_function(atom.function, nodes.atom_size(row), times)
        return among if atom.function == "floordiv" else among * length + nodes.atom_size(place)

    total = ZERO
    for monomial, coefficient in value.terms:
        total += product(map(known, monomial)) * coefficient
    return total


def _of_rows(
    at: Place, targets: tuple[Variable, ...], operator: str, times: Size, at_row: tuple[Variable, Variable, Size]
) -> list[Statement]:
    """What a point's number divided by the length of k rows is: i // (k*m) = q // k, and i % (k*m) = q % k * m + r."""
    row, place, length = at_row
    factor = Variable(at.names("rows_together"), Type(I64))
    counted = Statement((factor,), nodes.SizeValue(times))
    if operator == "floordiv":
        return [counted, Statement(targets, nodes.Apply(operator, (row, factor)))]
    among = Variable(at.names(f"{row}.among"), Type(I64))
    together = nodes.SizeValue(nodes.atom_size(among) * length + nodes.atom_size(place))
    return [counted, Statement((among,), nodes.Apply(operator, (row, factor))), Statement(targets, together)]
