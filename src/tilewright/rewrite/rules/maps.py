"""Simplification of maps (and the mapped parts of redomap and scanomap): results and inputs that are not needed."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from tilewright.ir.nodes import Atom, Body, Index, Lambda, Map, Redomap, Replicate, Scanomap, Statement, Variable
from tilewright.ir.sizes import ONE
from tilewright.ir.traversal import bound, mentioned
from tilewright.rewrite.names import replace_names
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.columns import column_of
from tilewright.rewrite.rules.scalars import same_atom
from tilewright.rewrite.rules.simplification import drop_results
from tilewright.rewrite.rules.views import may_be_outside

Mapping: TypeAlias = Map | Redomap | Scanomap


def _mapping(at: Place) -> Mapping:
    expression = at.expression
    if not isinstance(expression, Map | Redomap | Scanomap):
        raise TypeError(f"{type(expression).__name__} does not map a function")
    return expression


def _folded(expression: Mapping) -> int:
    return 0 if isinstance(expression, Map) else len(expression.neutral)


def _without_results(at: Place, expression: Mapping, dropped: list[int], values: dict[str, Atom]) -> Body:
    """The construct without some results, whose targets are replaced by `values` from here on."""
    targets = tuple(one for k, one in enumerate(at.statement.targets) if k not in dropped)
    smaller = dataclasses.replace(expression, function=drop_results(expression.function, dropped))
    return at.substitute(values, (Statement(targets, smaller),) if targets else ())


@rule("simplification", Map, Redomap, Scanomap)
def map_identity(at: Place) -> Body | Declined:
    """ys, zs = map (\\x a -> (x, e)) xs as  =>  zs = map (\\x a -> e) xs as and ys := xs"""
    expression = _mapping(at)
    inputs = {p.name: a for p, a in zip(expression.function.parameters, expression.arrays, strict=True)}
    dropped: list[int] = []
    values: dict[str, Atom] = {}
    for k, result in enumerate(expression.function.body.results):
        if k >= _folded(expression) and isinstance(result, Variable) and result.name in inputs:
            dropped.append(k)
            values[at.statement.targets[k].name] = inputs[result.name]
    if not dropped:
        return no_match("no result is one of the function's parameters")
    return _without_results(at, expression, dropped, values)


@rule("simplification", Map, Redomap, Scanomap)
def map_same_result(at: Place) -> Body | Declined:
    """ys, zs = map (\\x -> (e, e)) xs  =>  ys = map (\\x -> e) xs and zs := ys"""
    expression = _mapping(at)
    results = expression.function.body.results
    folded = _folded(expression)
    for k in range(folded + 1, len(results)):
        for j in range(folded, k):
            if same_atom(results[j], results[k]):
                return _without_results(at, expression, [k], {at.statement.targets[k].name: at.statement.targets[j]})
    return no_match("the results differ")


@rule("simplification", Map, Redomap, Scanomap)
def map_constant(at: Place) -> Body | Declined:
    """ys = map (\\x -> c) xs of width n  =>  ys = replicate n c, if c is bound outside"""
    expression = _mapping(at)
    inside = bound(expression)
    for k, result in enumerate(expression.function.body.results):
        if k < _folded(expression) or (isinstance(result, Variable) and result.name in inside):
            continue
        target = at.statement.targets[k]
        copies = Statement((target,), Replicate(expression.width, result))
        body = _without_results(at, expression, [k], {})
        before, after = body.statements[: at.index], body.statements[at.index :]
        return Body((*before, copies, *after), body.results)
    return no_match("no result is the same for every row")


def _without_inputs(expression: Mapping, dropped: list[int], values: dict[str, Atom]) -> Mapping:
    parameters = tuple(one for k, one in enumerate(expression.function.parameters) if k not in dropped)
    function = replace_names(Lambda(parameters, expression.function.body), values)
    arrays = tuple(one for k, one in enumerate(expression.arrays) if k not in dropped)
    return dataclasses.replace(expression, function=function, arrays=arrays)


@rule("simplification", Map, Redomap, Scanomap)
def map_unused_input(at: Place) -> Body | Declined:
    """map (\\x y -> e) xs ys  =>  map (\\x -> e) xs, if e does not use y"""
    expression = _mapping(at)
    names = mentioned(expression.function.body)
    unused = [k for k, one in enumerate(expression.function.parameters) if one.name not in names]
    if len(unused) == len(expression.arrays):
        unused = unused[1:]  # the rows of at least one array are counted
    if not unused:
        return no_match("every input is used")
    return at.become(_without_inputs(expression, unused, {}))


@rule("simplification", Map, Redomap, Scanomap)
def map_same_input(at: Place) -> Body | Declined:
    """map (\\x y -> e) xs xs  =>  map (\\x -> e[y := x]) xs"""
    expression = _mapping(at)
    parameters, arrays = expression.function.parameters, expression.arrays
    for k in range(1, len(arrays)):
        for j in range(k):
            if arrays[j].name == arrays[k].name:
                return at.become(_without_inputs(expression, [k], {parameters[k].name: parameters[j]}))
    return no_match("the inputs differ")


@rule("simplification", Map, Redomap, Scanomap)
def map_replicate(at: Place) -> Body | Declined:
    """map (\\x y -> e) xs (replicate n v)  =>  map (\\x -> e[y := v]) xs"""
    expression = _mapping(at)
    for k, array in enumerate(expression.arrays):
        definition = at.definition(array)
        if isinstance(definition, Replicate):
            if len(expression.arrays) == 1:
                return Declined(f"{array} is the only input: its rows are counted")
            parameter = expression.function.parameters[k]
            return at.become(_without_inputs(expression, [k], {parameter.name: definition.value}))
    return no_match("no input is a replicate")


@rule("simplification", Map, Redomap, Scanomap)
def map_single_elements(at: Place) -> Body | Declined:
    """map (\\x -> e) (reshape (n, 1) xs)  =>  map (\\a -> e[x[0] := a]) xs, if e uses x in no other way

    An index that a user wrote may be another than 0, unless it is known, and is checked where it is.
    """
    expression = _mapping(at)
    for k, (row, array) in enumerate(zip(expression.function.parameters, expression.arrays, strict=True)):
        column = column_of(at, array) if row.type.rank == 1 else None
        if column is None:
            continue
        body = expression.function.body
        indexed = [(one, one.expression) for one in body.statements if isinstance(one.expression, Index)]
        reads = [one for one, read in indexed if read.array == row and read.indices and not may_be_outside(read, ONE)]
        others = tuple(one for one in body.statements if one not in reads)
        if row.name in mentioned((others, body.results)):
            return Declined(f"{row} is used otherwise than as its one element, or by an index that may be another")
        element = Variable(at.names(f"{column}.element"), column.type.row)
        inside = replace_names(Body(others, body.results), {one.targets[0].name: element for one in reads})
        parameters, arrays = list(expression.function.parameters), list(expression.arrays)
        parameters[k], arrays[k] = element, column
        function = Lambda(tuple(parameters), inside)
        return at.become(dataclasses.replace(expression, function=function, arrays=tuple(arrays)))
    return no_match("no input has rows of one element")
