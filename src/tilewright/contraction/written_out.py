"""Terms that a reduction's function writes out, as dimensions of the reduction.

    fold (+) (\\k -> f x[o] y[p] + f x[o + d] y[p + e] + ... + f x[o + (m-1) d] y[p + (m-1) e])
=>  fold (+) (\\k i -> f x[o + i d] y[p + i e])  for i < m

So a convolution is a contraction whether its window is a reduction or a sum of some products. Terms may form a grid, as
the rows and columns of a window do: then each of its dimensions is one of the reduction. Where no element is used at
several points, terms stay as they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from tilewright.contraction.nest import Load, Nest
from tilewright.ir import nodes
from tilewright.ir.lmad import LMAD
from tilewright.ir.nodes import Atom, Body, Lambda, Literal, Variable
from tilewright.ir.sizes import Size, size
from tilewright.ir.traversal import canonical, free_names, mentioned
from tilewright.ir.views import ArrayView

FEWEST_TERMS = 4
"""Fewer stay as they are written."""

Place: TypeAlias = tuple[Size, Size]
"""Where the two elements of a term lie."""


def with_terms_as_dimensions(
    nest: Nest, function: Lambda, loads: tuple[Load, ...], combine: Lambda
) -> tuple[Lambda, tuple[Load, ...]]:
    """The function of one term and its two elements, where a function joins such terms by the reduction's operator.

    Args:
        nest: gets a contracted dimension for each of the grid's.
        function, loads: the reduced function and the elements that it reads, one for each of its parameters.
        combine: the reduction's operator, which commutes.

    Returns:
        The function and loads as they are given if there are no such terms.
    """
    (joined,) = combine.body.statements
    assert isinstance(joined.expression, nodes.Apply)
    leaves = _leaves(function.body, function.body.results[0], joined.expression.operator)
    terms = [_term(function, one, loads) for one in leaves]
    found = [one for one in terms if one is not None]
    if len(found) < max(FEWEST_TERMS, len(terms)) or not _are_alike(found) or not _are_reused(nest, *found[0][1]):
        return function, loads
    places = [(left.view.lmad.offset, right.view.lmad.offset) for _, (left, right) in found]
    steps = _grid(places)
    if steps is None:
        return function, loads
    term, (left, right) = found[0]
    for count, step in steps:
        index = nest.contract(size(count))
        left, right = (_moved(one, by * size(index)) for one, by in zip((left, right), step, strict=True))
    return term, (left, right)


def _moved(load: Load, by: Size) -> Load:
    view = load.view
    lmad = LMAD(view.lmad.offset + by, view.lmad.shape, view.lmad.strides)
    return replace(load, view=ArrayView(view.buffer, view.element, lmad))


def _leaves(body: Body, value: Atom, operator: str) -> list[Atom]:
    """What is joined by an operator to a value, in order, without zeros that a sum begins with."""
    made = {one.targets[0].name: one.expression for one in body.statements if len(one.targets) == 1}
    used = [name for one in (*made.values(), *body.results) for name in mentioned(one)]

    def leaves(atom: Atom) -> list[Atom]:
        if isinstance(atom, Literal):
            return [] if operator == "add" and atom.value == 0 else [atom]
        expression = made.get(atom.name)
        alone = used.count(atom.name) == 1
        if alone and isinstance(expression, nodes.Apply) and expression.operator == operator:
            return [leaf for one in expression.operands for leaf in leaves(one)]
        return [atom]

    return leaves(value)


def _term(function: Lambda, value: Atom, loads: Sequence[Load]) -> tuple[Lambda, tuple[Load, Load]] | None:
    """What computes a value, of the two elements that it needs; None if these are more or fewer."""
    wanted = mentioned(value)
    kept: list[nodes.Statement] = []
    for statement in reversed(function.body.statements):
        if any(one.name in wanted for one in statement.targets):
            kept.insert(0, statement)
            wanted = wanted | free_names(statement.expression)
    needed = [one for one in loads if one.variable.name in wanted]
    if len(needed) != 2 or not isinstance(value, Variable):
        return None
    first, second = sorted(needed, key=lambda one: (one.view.buffer, str(one.variable)))
    if first.view.buffer == second.view.buffer:
        return None
    return Lambda((first.variable, second.variable), Body(tuple(kept), (value,))), (first, second)


def _are_alike(terms: Sequence[tuple[Lambda, tuple[Load, Load]]]) -> bool:
    """Whether all terms are one function of elements of the same two arrays."""
    function, (left, right) = terms[0]
    wanted = canonical(function)
    return all(
        (one.view.buffer, two.view.buffer) == (left.view.buffer, right.view.buffer) and canonical(other) == wanted
        for other, (one, two) in terms[1:]
    )


def _are_reused(nest: Nest, left: Load, right: Load) -> bool:
    """Whether each element is used at several points: a parallel dimension moves either of them and not the other."""
    moves = [{index for index, _ in nest.parallel if index in one.view.lmad.offset.names} for one in (left, right)]
    return bool(moves[0] - moves[1]) and bool(moves[1] - moves[0])


def _grid(places: Sequence[Place]) -> list[tuple[int, Place]] | None:
    """The extents of a grid, outermost first, and by how much a step along each moves; None if places form no grid.

    Example:
        >>> w = size("w")
        >>> places = [(w * i + j, size(3 * i + j)) for i in range(2) for j in range(3)]
        >>> [(count, tuple(map(str, step))) for count, step in _grid(places)]
        [(2, ('w', '3')), (3, ('1', '1'))]
        >>> _grid([(size(0), size(0)), (size(1), size(1)), (size(3), size(2))]) is None
        True
    """
    if len(places) == 1:
        return []
    step = _minus(places[1], places[0])
    run = 2
    while run < len(places) and _minus(places[run], places[run - 1]) == step:
        run += 1
    rows = range(0, len(places), run)
    if len(places) % run or any(_minus(places[r + k], places[r + k - 1]) != step for r in rows for k in range(1, run)):
        return None
    outer = _grid(places[::run])
    return None if outer is None else [*outer, (run, step)]


def _minus(one: Place, other: Place) -> Place:
    return one[0] - other[0], one[1] - other[1]
