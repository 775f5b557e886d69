"""Rounds of a loop that replace an array point by point, so written that a point reads no element but its own.

    loop (a) for k < n do  b = map (\\i -> map (\\j -> a[i, j] - a[i, k] * a[k, j]) iota) iota  in (b)
=>  loop (a) for k < n do  row = map id a[k]
                           b = map (\\r -> (s = r[k]; map (\\x y -> x - s * y) r row)) a  in (b)

What all points of a map read at places that stay the same is read before it: a row into memory of its own, an element
as a scalar. What a point reads at its own place becomes a parameter. The points can then be written where the array
lies (core/overwriting.py). Only for code in order, where memory and copies count; elsewhere the form stays as it is.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Sequence

from tilewright.ir import nodes
from tilewright.ir.index_ranges import is_within
from tilewright.ir.nodes import Atom, Body, Expression, Index, Lambda, Map, Statement, Variable, atom_size
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import FreshNames, all_statements, bound_variables, mentioned, replace_bodies, substitute


class _ReadsOthers(Exception):
    """A point reads what other points write."""


def with_own_elements(statement: Statement, counted: Collection[str] = ()) -> Statement:
    """A loop whose rounds, and those of loops in it, replace arrays so where they can.

    Args:
        statement: a loop.
        counted: arrays that are 0, 1, 2, ... and that the loop may use.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> from tilewright.ir.printer import print_statement
        >>> text = '''def f (x: [n]f64) =
        ...   let (is: [n]i64) = iota n i64
        ...   let (y: [n]f64) = loop (a: [n]f64) = (x) for k: i64 < n do
        ...     let (b: [n]f64) = map n (\\\\(i: i64) ->
        ...       let (own: f64) = a[i]
        ...       let (other: f64) = a[k]
        ...       let (s: f64) = own + other
        ...       in (s)) is
        ...     in (b)
        ...   in (y)'''
        >>> print(print_statement(with_own_elements(parse_program(text).body.statements[1], ["is"])))
        let (y: [n]f64) = loop (a: [n]f64) = (x) for k: i64 < n do
          let (a_kept: f64) = a[k]
          let (b: [n]f64) = map n (\\(i: i64, a_own: f64) ->
            let (own: f64) = a_own
            let (other: f64) = a_kept
            let (s: f64) = own + other
            in (s)) is a
          in (b)
    """
    numbers = {
        target.name
        for one in all_statements(Body((statement,), ()))
        if isinstance(one.expression, nodes.Iota)
        for target in one.targets
    }
    return _Rewriting(FreshNames(statement), numbers | set(counted)).loop(statement)


class _Rewriting:
    def __init__(self, names: FreshNames, numbers: Collection[str]) -> None:
        self.names, self.numbers = names, numbers
        self.ranges: dict[str, Size] = {}

    def loop(self, statement: Statement) -> Statement:
        """The loop with rounds of points that read their own elements."""
        loop = statement.expression
        assert isinstance(loop, nodes.Loop)
        if isinstance(loop.form, nodes.ForLoop):
            self.ranges[loop.form.index.name] = loop.form.bound
        body = Body(
            tuple(self.loop(one) if isinstance(one.expression, nodes.Loop) else one for one in loop.body.statements),
            loop.body.results,
        )
        for parameter, result in zip(loop.parameters, loop.body.results, strict=True):
            if parameter.type.rank and isinstance(result, Variable):
                body = self._replacing(body, parameter, result)
        return Statement(statement.targets, dataclasses.replace(loop, body=body))

    def _replacing(self, body: Body, array: Variable, result: Variable) -> Body:
        """The body with the map that makes `result` of an array reading it in this way, if it does and can."""
        for at, one in enumerate(body.statements):
            if result not in one.targets or not isinstance(one.expression, Map):
                continue
            after = mentioned(tuple(body.statements[at + 1 :]))
            if array.name not in mentioned(one.expression) or array.name in after:
                break
            copies = self._lines(body.statements[:at], array, one.expression)
            points = substitute(one.expression, {line.name: copy.targets[0] for line, copy in copies.items()})
            try:
                before, points = self._own(points, array, one.targets.index(result))
            except _ReadsOthers:
                break
            here = (*copies.values(), *before, Statement(one.targets, points))
            return Body((*body.statements[:at], *here, *body.statements[at + 1 :]), body.results)
        return body

    def _lines(self, statements: Sequence[Statement], array: Variable, points: Map) -> dict[Variable, Statement]:
        """Rows, columns and the like of an array of which the points read something, and copies of them."""
        used = mentioned(points)
        lines = [
            target
            for one in statements
            for target in one.targets
            if isinstance(one.expression, Index | nodes.Slice) and one.expression.array == array
            if target.name in used and 0 < target.type.rank < array.type.rank
        ]
        return {one: self.copy(one, array) for one in lines}

    def copy(self, line: Variable, array: Variable) -> Statement:
        """A part of an array in memory of its own."""
        row = Variable(self.names("row"), line.type.row)
        copy = Variable(self.names(f"{array.name}_copy"), line.type)
        return Statement((copy,), Map(line.type.shape[0], Lambda((row,), Body((), (row,))), (line,)))

    def _own(self, points: Map, array: Variable, result: int) -> tuple[list[Statement], Map]:
        """What is read before, and a map over the array whose function does not mention it."""
        function, arrays = points.function, points.arrays
        own = [one for one, whole in zip(function.parameters, arrays, strict=True) if whole == array]
        if not own:
            own = [Variable(self.names(f"{array.name}_own"), array.type.row)]
            function, arrays = dataclasses.replace(function, parameters=(*function.parameters, *own)), (*arrays, array)
        reads = _Reads(self, array, points, own[0])
        function = Lambda(function.parameters, reads.inside(function.body))
        if array.name in mentioned(function) or len(own) > 1:
            raise _ReadsOthers
        made = function.body.results[result]
        if own[0].type.rank and isinstance(made, Variable) and made.name != own[0].name:
            function = Lambda(function.parameters, self._replacing(function.body, own[0], made))
        return reads.before, Map(points.width, function, arrays)


class _Reads:
    """What the points of a map read of an array."""

    def __init__(self, rewriting: _Rewriting, array: Variable, points: Map, own: Variable) -> None:
        self.rewriting, self.array, self.own = rewriting, array, own
        pairs = zip(points.function.parameters, points.arrays, strict=True)
        self.numbers = {one.name for one, whole in pairs if whole.name in rewriting.numbers}
        self.bound = {one.name for one in bound_variables(points.function)}
        self.kept: dict[tuple[Atom, ...], Variable] = {}
        self.before: list[Statement] = []

    def inside(self, body: Body) -> Body:
        """A body that reads what it reads of the array elsewhere."""
        found = []
        for one in body.statements:
            expression = one.expression
            if isinstance(expression, Index) and expression.array == self.array:
                found.append(Statement(one.targets, self._elsewhere(expression)))
            else:
                found.append(Statement(one.targets, replace_bodies(expression, self.inside)))
        return Body(tuple(found), body.results)

    def _elsewhere(self, read: Index) -> Expression:
        first = read.indices[0]
        if isinstance(first, Variable) and first.name in self.numbers:
            return _element(read, self.own, read.indices[1:])
        same = tuple(itertools.takewhile(lambda one: str(one) not in self.bound, read.indices))
        return _element(read, self._kept(read, same), read.indices[len(same) :])

    def _kept(self, read: Index, same: tuple[Atom, ...]) -> Variable:
        """What is read before all points; an index that might be out of range must not be used there."""
        ranges, pairs = self.rewriting.ranges, zip(same, self.array.type.shape, strict=False)
        if not same or not all(is_within(atom_size(one), extent, ranges) for one, extent in pairs):
            raise _ReadsOthers
        if same not in self.kept:
            names, type_ = self.rewriting.names, nodes.Type(self.array.type.element, self.array.type.shape[len(same) :])
            there = Variable(names(f"{self.array.name}_kept"), type_)
            self.before.append(Statement((there,), dataclasses.replace(read, indices=same)))
            if type_.rank:
                copy = self.rewriting.copy(there, self.array)
                self.before.append(copy)
                there = copy.targets[0]
            self.kept[same] = there
        return self.kept[same]


def _element(read: Index, array: Variable, indices: tuple[Atom, ...]) -> Expression:
    return dataclasses.replace(read, array=array, indices=indices) if indices else nodes.Alias(array)
