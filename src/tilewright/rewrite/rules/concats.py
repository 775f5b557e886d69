"""Concatenations that maps take apart element by element need no memory: the elements are read where they lie.

Worth it only where every element is read about once, as the input of a map beside the concatenation: then reading from
one of the parts costs a comparison, which the lowering takes out of most loops (passes/items/split_ranges.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Lambda, Literal, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import Size, size
from tilewright.rewrite.names import definitions, mentioned
from tilewright.rewrite.rule import Declined, Place, no_match, rule

Source: TypeAlias = tuple[Variable, tuple[Size, ...]]
"""An array and the indices at which a part or an element of it stands for a parameter."""


@rule("concatenations", nodes.Map)
def map_concat(at: Place) -> Body | Declined:
    """zs = concat xs ys; map f zs  =>  map (\\i -> f (if i < n then xs[i] else ys[i - n])) (iota (n + m))

    For xs of n and ys of m rows, if zs is used by maps only and its rows, where they are arrays, again by maps only.
    Seen through slices, permutations and repetitions; further inputs of f stay what they are.
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
            case nodes.Slice() | nodes.Rearrange() | nodes.Alias():
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
    mapped = dataclasses.replace(consumer, function=function, arrays=arrays)
    return [Statement((count,), nodes.Iota(consumer.width, I64))], mapped


def _with_rows(at: Place, body: Body, parameters: Sequence[Variable], rows: Mapping[str, Source]) -> Body:
    """A function's body without some of its parameters: scalars are read first, arrays in the maps that use them."""
    statements: list[Statement] = []
    for parameter in parameters:
        if parameter.type.rank == 0:
            array, indices = rows[parameter.name]
            before, atom = _element(at, array, indices)
            statements += [*before, Statement((parameter,), nodes.Alias(atom))]
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


def _element(at: Place, array: Variable, indices: tuple[Size, ...]) -> tuple[list[Statement], Atom]:
    """Code for array[indices], with the array's definition in place of the array where it is made of others."""
    match at.definition(array):
        case nodes.Alias(Variable() as inner):
            return _element(at, inner, indices)
        case nodes.Slice(inner, dimensions):
            places = zip(indices, dimensions, strict=True)
            return _element(at, inner, tuple(one.start + index * one.step for index, one in places))
        case nodes.Rearrange(inner, permutation):
            order = sorted(range(len(indices)), key=permutation.__getitem__)
            return _element(at, inner, tuple(indices[d] for d in order))
        case nodes.Replicate(_, Literal() as value):
            return [], value
        case nodes.Replicate(_, Variable() as value):
            return _element(at, value, indices[1:]) if value.type.rank else ([], value)
        case nodes.Concat(axis, arrays):
            return _part(at, axis, arrays, indices)
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
    element = Variable(at.names("e"), Type(array.type.element))
    return [*statements, Statement((element,), nodes.Index(array, tuple(atoms)))], element


def _part(at: Place, axis: int, arrays: Sequence[Variable], indices: tuple[Size, ...]) -> tuple[list[Statement], Atom]:
    """Code for the element of a concatenation, which the first array whose end the index is below has."""
    first, *others = arrays
    if not others:
        return _element(at, first, indices)
    extent = first.type.shape[axis]
    before, index = _position(at, indices[axis])
    end, end_atom = _number(at, extent)
    below = Variable(at.names("below"), Type(BOOL))
    found = Variable(at.names("part"), Type(first.type.element))
    then, one = _element(at, first, indices)
    moved = (*indices[:axis], indices[axis] - extent, *indices[axis + 1 :])
    otherwise, two = _part(at, axis, others, moved)
    return [
        *before,
        *end,
        Statement((below,), nodes.Apply("lt", (index, end_atom))),
        Statement((found,), nodes.If(below, Body(tuple(then), (one,)), Body(tuple(otherwise), (two,)))),
    ], found


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
