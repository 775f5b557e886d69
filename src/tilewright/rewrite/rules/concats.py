"""Concatenations that maps take apart element by element need no memory: the elements are read where they lie.

Worth it only where every element is read about once, as the input of a map beside the concatenation: then reading from
one of the parts costs a comparison, which the lowering takes out of most loops (passes/items/split_ranges.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Lambda, Literal, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import ZERO, Size, minimum, size
from tilewright.ir.traversal import mentioned
from tilewright.rewrite.names import definitions
from tilewright.rewrite.rule import Declined, Place, no_match, rule

Source: TypeAlias = tuple[Variable, tuple[Size, ...]]
"""An array and the indices at which a part or an element of it stands for a parameter."""


@rule("concatenations", nodes.Map)
def map_concat(at: Place) -> Body | Declined:
    """zs = concat xs ys; map f zs  =>  map (\\i -> f (if i < n then xs[i] else ys[i - n])) (iota (n + m))

    For xs of n and ys of m rows, if zs is used by maps only and its rows, where they are arrays, again by maps only.
    Seen through slices, permutations and repetitions; further inputs of f stay what they are. Of parts of one array the
    place is chosen: (if c then xs[i] else xs[j]) is xs[if c then i else j].
    """
    consumer = at.expect(nodes.Map)
    positions: list[int] = []
    reasons: dict[str, None] = {}
    for k, array in enumerate(consumer.arrays):
        joined = _concatenation(at, array)
        if joined is None:
            continue
        reason = _needed_whole(at, array) or _needed_whole(at, joined)
        if reason is None:
            positions.append(k)
        else:
            reasons[f"{joined} is joined in memory: {reason}"] = None
    if not positions:
        return Declined("; ".join(reasons)) if reasons else no_match("no input is a concatenation")
    counting, mapped = _read_by_index(at, consumer, {k: (consumer.arrays[k], ()) for k in positions})
    return at.replace(*counting, Statement(at.statement.targets, mapped))


def _concatenation(at: Place, array: Variable) -> Variable | None:
    """The concatenation of the same body that an array is, or is a view of."""
    while array.name in definitions(at.body):
        match at.definition(array):
            case nodes.Concat():
                return array
            case nodes.Slice(inner) | nodes.Rearrange(inner) | nodes.Alias(Variable() as inner):
                array = inner
            case _:
                return None
    return None


# --- who uses an array ------------------------------------------------------------------------------------------------


def _needed_whole(at: Place, array: Variable) -> str | None:
    """Why an array of this body must lie in memory; None if its users are maps that take it apart, and its views."""
    for use in at.uses(array.name):
        if use == len(at.body.statements):
            return f"{array} is a result"
        statement = at.body.statements[use]
        match statement.expression:
            case nodes.Slice() | nodes.Rearrange() | nodes.Alias() | nodes.Concat():
                reason = _needed_whole(at, statement.targets[0])
                if reason is not None:
                    return reason
            case nodes.Map() as consumer if _takes_apart(consumer, array.name):
                pass
            case _:
                return f"{array} is used by {at.describe_use(use)} as a whole"
    return None


def _takes_apart(consumer: nodes.Map, name: str) -> bool:
    """Whether a map uses an array for nothing but its elements, one after the other."""
    function = consumer.function
    if name in mentioned(function):
        return False
    parameters = [p for p, one in zip(function.parameters, consumer.arrays, strict=True) if one.name == name]
    return all(parameter.type.rank == 0 or _only_mapped(function.body, parameter.name) for parameter in parameters)


def _only_mapped(body: Body, name: str) -> bool:
    if any(isinstance(one, Variable) and one.name == name for one in body.results):
        return False
    users = [one.expression for one in body.statements if name in mentioned(one.expression)]
    return all(isinstance(one, nodes.Map) and _takes_apart(one, name) for one in users)


# --- reading by index -------------------------------------------------------------------------------------------------


def _read_by_index(at: Place, consumer: nodes.Map, sources: Mapping[int, Source]) -> tuple[list[Statement], nodes.Map]:
    """A map whose inputs at these positions are rows of other arrays, read by an index that is a new input."""
    parameters = list(consumer.function.parameters)
    index = Variable(at.names("i"), Type(I64))
    count = Variable(at.names("rows"), Type(I64, (consumer.width,)))
    own = size(index.name)
    rows = {parameters[k].name: (array, (*before, own)) for k, (array, before) in sources.items()}
    body = _with_rows(at, consumer.function.body, [parameters[k] for k in sources], rows)
    kept = [k for k in range(len(parameters)) if k not in sources]
    function = Lambda((index, *(parameters[k] for k in kept)), body)
    arrays = (count, *(consumer.arrays[k] for k in kept))
    mapped = replace(consumer, function=function, arrays=arrays)
    return [Statement((count,), nodes.Iota(consumer.width, I64))], mapped


def _with_rows(at: Place, body: Body, parameters: Sequence[Variable], rows: Mapping[str, Source]) -> Body:
    """A function's body without some of its parameters: scalars are read first, arrays in the maps that use them."""
    statements: list[Statement] = []
    for parameter in parameters:
        if parameter.type.rank == 0:
            array, indices = rows[parameter.name]
            before, element = _element(at, array, indices)
            found = element if isinstance(element, nodes.Index) else nodes.Alias(element)
            statements += [*before, Statement((parameter,), found)]
    arrays = {one.name for one in parameters if one.type.rank}
    for statement in body.statements:
        inner = statement.expression
        if isinstance(inner, nodes.Map) and (
            taken := {k: rows[a.name] for k, a in enumerate(inner.arrays) if a.name in arrays}
        ):
            counting, mapped = _read_by_index(at, inner, taken)
            statements += [*counting, Statement(statement.targets, mapped)]
        else:
            statements.append(statement)
    return Body(tuple(statements), body.results)


def _element(
    at: Place, array: Variable, indices: tuple[Size, ...], checked: bool = False
) -> tuple[list[Statement], Atom | nodes.Index]:
    """Code for array[indices], with the array's definition in place of the array where it is made of others.

    The indices are in range of it; of what it is a slice of they are so if the slice is, which has to be `checked` or
    is known.
    """
    match at.definition(array):
        case nodes.Alias(Variable() as inner):
            return _element(at, inner, indices, checked)
        case nodes.Slice(inner, dimensions, checked=of_slice):
            places = zip(indices, dimensions, inner.type.shape, strict=True)
            moved = tuple(_of_some(one.start, extent) + index * one.step for index, one, extent in places)
            return _element(at, inner, moved, checked or of_slice)
        case nodes.Rearrange(inner, permutation):
            order = sorted(range(len(indices)), key=permutation.__getitem__)
            return _element(at, inner, tuple(indices[d] for d in order), checked)
        case nodes.Replicate(_, Literal() as value):
            return [], value
        case nodes.Replicate(_, Variable() as value):
            return _element(at, value, indices[1:], checked) if value.type.rank else ([], value)
        case nodes.Concat(axis, arrays):
            extents = [_of_some(one.type.shape[axis], array.type.shape[axis]) for one in arrays]
            return _part(at, axis, list(zip(arrays, extents, strict=True)), indices, checked)
        case nodes.Iota(_, scalar):
            before, position = _position(at, indices[0])
            number = Variable(at.names("at"), Type(scalar))
            return [*before, Statement((number,), nodes.Cast(scalar, position))], number
    statements: list[Statement] = []
    atoms: list[Atom] = []
    for index in indices:
        before, atom = _position(at, index)
        statements += before
        atoms.append(atom)
    return statements, nodes.Index(array, tuple(atoms), checked=checked)


def _of_some(value: Size, extent: Size) -> Size:
    """A size where an extent is not 0: min(1, extent) is 1."""
    least = minimum(1, extent)
    gone = {atom for monomial, _ in least.terms for atom in monomial}
    kept = (
        Size(((tuple(atom for atom in monomial if atom not in gone), coefficient),))
        for monomial, coefficient in value.terms
    )
    return value if least.constant is not None else sum(kept, ZERO)


def _part(
    at: Place, axis: int, arrays: Sequence[tuple[Variable, Size]], indices: tuple[Size, ...], checked: bool
) -> tuple[list[Statement], Atom | nodes.Index]:
    """Code for the element of a concatenation, which the first array whose end the index is below has."""
    (first, extent), *others = arrays
    if not others:
        return _element(at, first, indices, checked)
    before, index = _position(at, indices[axis])
    end, end_atom = _number(at, extent)
    below = Variable(at.names("below"), Type(BOOL))
    moved = (*indices[:axis], indices[axis] - extent, *indices[axis + 1 :])
    sides = _element(at, first, indices, checked), _part(at, axis, others, moved, checked)
    compared = [*before, *end, Statement((below,), nodes.Apply("lt", (index, end_atom)))]
    (then, one), (otherwise, two) = sides
    if isinstance(one, nodes.Index) and isinstance(two, nodes.Index) and _may_be_one(one, two):
        chosen, atoms = _chosen(at, below, one.indices, two.indices)
        return [*compared, *then, *otherwise, *chosen], replace(one, indices=atoms)
    found = Variable(at.names("part"), Type(first.type.element))
    branches = (
        Body((*statements, *bound), (atom,))
        for statements, (bound, atom) in ((then, _bound(at, one)), (otherwise, _bound(at, two)))
    )
    return [*compared, Statement((found,), nodes.If(below, *branches))], found


def _may_be_one(one: nodes.Index, two: nodes.Index) -> bool:
    """Whether two elements are of one array, and sure to be in range: which of them is read may be chosen first."""
    return one.array == two.array and not one.checked and not two.checked


def _chosen(
    at: Place, condition: Variable, then: Sequence[Atom], otherwise: Sequence[Atom]
) -> tuple[list[Statement], tuple[Atom, ...]]:
    """Indices that are these or those."""
    statements: list[Statement] = []
    atoms: list[Atom] = []
    for one, two in zip(then, otherwise, strict=True):
        atoms.append(one)
        if one != two:
            atoms[-1] = place = Variable(at.names("at"), Type(I64))
            statements.append(Statement((place,), nodes.Apply("select", (condition, one, two))))
    return statements, tuple(atoms)


def _bound(at: Place, element: Atom | nodes.Index) -> tuple[list[Statement], Atom]:
    """An element as an atom."""
    if not isinstance(element, nodes.Index):
        return [], element
    found = Variable(at.names("e"), Type(element.array.type.element))
    return [Statement((found,), element)], found


def _position(at: Place, index: Size) -> tuple[list[Statement], Atom]:
    """An index as an atom; it mentions an index of a map, so that a name alone is that index."""
    name = next(iter(index.names))
    return ([], Variable(name, Type(I64))) if index == size(name) else _number(at, index)


def _number(at: Place, value: Size) -> tuple[list[Statement], Atom]:
    """A size as an atom."""
    if value.constant is not None:
        return [], Literal(value.constant, I64)
    number = Variable(at.names("at"), Type(I64))
    return [Statement((number,), nodes.SizeValue(value))], number
