"""Contractions in nests whose further code has no form as their epilogue: they become nests of their own.

Fusion puts everything that is done to the elements of a product into its nest. Most of that is an epilogue of its
tiles. But code that reads at places which an array holds, or loops, would have the whole nest computed element by
element; it is better done afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.contraction.form import Kind
from tilewright.ir.nodes import Atom, Body, Lambda, Map, Program, Redomap, Reduce, Statement, Type, Variable
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import all_statements, mentioned, with_fresh_names
from tilewright.passes.core.found_contractions import contraction_of
from tilewright.passes.core.simplify import simplify
from tilewright.rewrite.derivation import Recording
from tilewright.rewrite.names import replace_names
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.strategy import everywhere, first_of, rewritten

_COMBINATORS = (Map, Redomap, Reduce)


@rule("contraction fission", Map)
def free_contraction(at: Place) -> Body | Declined:
    """zs = map (\\\\x -> g x (redomap op ne f x)) xs  =>  ys = map (\\\\x -> redomap op ne f x) xs; zs = map g xs ys

    Where ys is a contraction that uses the elements of both operands again, and zs would be none.
    """
    if not at.is_on_host:
        return no_match("it is inside of a nest")
    core = _core(at.statement)
    if core is None or contraction_of(at.statement, at.program) is not None:
        return no_match("it is a contraction as it is, or none")
    product = with_fresh_names(_without_rest(at.statement, at.names("product")), at.names)
    found = contraction_of(product, at.program)
    if found is None or not (found.of_kind(Kind.M) and found.of_kind(Kind.N)):
        return Declined("the reduction in it is no contraction by itself, or one that reads each element once")
    rest = _rest(at.statement, product.targets[0], at)
    return at.replace(product, rest)


def free_contractions(program: Program, derivation: Recording | None = None) -> Program:
    """The program with contractions apart from what cannot be done with their tiles; the steps are added to
    `derivation`.

    zs = map (\\\\x -> g x (redomap op ne f x)) xs  =>  ys = map (\\\\x -> redomap op ne f x) xs; zs = map g xs ys
    """
    if not any(isinstance(one.expression, Redomap) for one in all_statements(program.body)):
        return program
    freed = rewritten(program, everywhere(first_of((free_contraction,))), derivation)
    return freed if freed is program else simplify(freed, derivation)


def _inner(statement: Statement) -> Statement | None:
    """The one combinator in the function of a map."""
    assert isinstance(statement.expression, Map)
    inside = [one for one in statement.expression.function.body.statements if isinstance(one.expression, _COMBINATORS)]
    return inside[0] if len(inside) == 1 and len(inside[0].targets) == 1 else None


def _core(statement: Statement) -> Statement | None:
    """The reduction to a number, in a nest of maps, that further code follows; None if there is none."""
    inner = _inner(statement)
    if inner is None:
        return None
    if isinstance(inner.expression, Map):
        return _core(inner)
    assert isinstance(statement.expression, Map)
    follows = statement.expression.function.body.results != inner.targets
    return inner if follows and not inner.targets[0].type.rank else None


def _without_rest(statement: Statement, name: str) -> Statement:
    """The nest around the reduction, and what that needs; it binds `name`."""
    nest, inner = statement.expression, _inner(statement)
    assert isinstance(nest, Map) and inner is not None
    body = nest.function.body
    before = body.statements[: body.statements.index(inner)]
    last = _without_rest(inner, inner.targets[0].name) if isinstance(inner.expression, Map) else inner
    kept = (*_needed(before, last), last)
    result = last.targets[0]
    function = Lambda(nest.function.parameters, Body(kept, (result,)))
    shape: tuple[Size, ...] = (nest.width, *result.type.shape)
    return Statement((Variable(name, Type(result.type.element, shape)),), replace(nest, function=function))


def _needed(before: Sequence[Statement], last: Statement) -> list[Statement]:
    """Those statements on which the last one depends."""
    wanted = mentioned(last.expression)
    kept: list[Statement] = []
    for one in reversed(before):
        if any(target.name in wanted for target in one.targets):
            kept.insert(0, one)
            wanted = wanted | mentioned(one.expression)
    return kept


def _rest(statement: Statement, product: Variable, at: Place) -> Statement:
    """The nest with elements of the product in place of the reduction."""
    nest, inner = statement.expression, _inner(statement)
    assert isinstance(nest, Map) and inner is not None
    element = Variable(at.names(product.name), product.type.row)
    body = nest.function.body
    where = body.statements.index(inner)
    if isinstance(inner.expression, Map):
        statements: tuple[Statement, ...] = (
            *body.statements[:where],
            _rest(inner, element, at),
            *body.statements[where + 1 :],
        )
        inside = Body(statements, body.results)
    else:
        taken: dict[str, Atom] = {inner.targets[0].name: element}
        inside = replace_names(Body((*body.statements[:where], *body.statements[where + 1 :]), body.results), taken)
    function = Lambda((*nest.function.parameters, element), inside)
    return Statement(statement.targets, replace(nest, function=function, arrays=(*nest.arrays, product)))
