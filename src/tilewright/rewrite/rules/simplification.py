"""Simplification of structure: dead code, common subexpressions, branches and loops that are decided."""

from __future__ import annotations

import dataclasses

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Lambda, Literal, Statement, Variable
from tilewright.ir.traversal import bound
from tilewright.rewrite.names import alike, definitions, expression_key, replace_names, used
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.scalars import same_atom


@rule("dead code")
def dead_code(at: Place) -> Body | Declined:
    """x = e; rest  =>  rest, if x is not used"""
    for target in at.statement.targets:
        if uses := at.uses(target.name):
            return no_match(f"{target} is used by {at.describe_use(uses[0])}")
    return at.replace()


def _dead(at: Place, first: int = 0) -> list[int]:
    """Which targets, from `first` on, nothing uses, unless none is used at all (which is `dead_code`)."""
    dead = [k for k, one in enumerate(at.statement.targets) if not at.uses(one.name)]
    return [] if len(dead) == len(at.statement.targets) else [k for k in dead if k >= first]


def _drop_results(body: Body, dropped: list[int]) -> Body:
    return Body(body.statements, tuple(one for k, one in enumerate(body.results) if k not in dropped))


def drop_results(function: Lambda, dropped: list[int]) -> Lambda:
    """A lambda without some of its results."""
    return Lambda(function.parameters, _drop_results(function.body, dropped))


@rule("dead code", nodes.Map, nodes.Redomap, nodes.Scanomap, nodes.If)
def dead_result(at: Place) -> Body | Declined:
    """x, y = map (\\a -> (p, q)) as  =>  x = map (\\a -> p) as, if y is not used; also of if"""
    expression = at.expression
    folded = len(expression.neutral) if isinstance(expression, nodes.Redomap | nodes.Scanomap) else 0
    dead = _dead(at, folded)
    if not dead:
        return no_match("every result that could be left out is used")
    targets = tuple(one for k, one in enumerate(at.statement.targets) if k not in dead)
    if isinstance(expression, nodes.If):
        then, otherwise = _drop_results(expression.then, dead), _drop_results(expression.otherwise, dead)
        return at.replace(Statement(targets, nodes.If(expression.condition, then, otherwise)))
    if not isinstance(expression, nodes.Map | nodes.Redomap | nodes.Scanomap):
        raise TypeError(f"dead_result does not know {type(expression).__name__}")
    function = drop_results(expression.function, dead)
    return at.replace(Statement(targets, dataclasses.replace(expression, function=function)))


@rule("simplification")
def common_subexpression(at: Place) -> Body | Declined:
    """x = e; ...; y = e; rest  =>  x = e; ...; rest[y := x]

    A replicate or a copy is not shared: it is often there to be written into.
    """
    if isinstance(at.expression, nodes.Alias | nodes.Copy | nodes.Segmented | nodes.Replicate):
        return no_match(f"{type(at.expression).__name__} is not shared")
    chain = [(body, [index for index in alike(body, at.statement) if index < before]) for body, before in at.chain]
    if not any(indices for _, indices in chain):
        return no_match("nothing in scope is alike")
    names = used(at.statement)
    for body, indices in reversed(chain):
        for same in (body.statements[index] for index in indices):
            if used(same) == names and expression_key(same.expression) == expression_key(at.expression):
                return at.bind(*same.targets)
        if not names.isdisjoint(definitions(body)):
            break  # what is further out cannot use these
    return no_match("nothing in scope computes the same")


# --- if ---------------------------------------------------------------------------------------------------------------


@rule("simplification", nodes.If)
def if_known(at: Place) -> Body | Declined:
    """if true then e1 else e2  =>  e1; if false then e1 else e2  =>  e2"""
    branch = at.expect(nodes.If)
    if not isinstance(branch.condition, Literal):
        return no_match("the condition is not a constant")
    body = branch.then if branch.condition.value else branch.otherwise
    return at.splice(body.statements, body.results)


@rule("simplification", nodes.If)
def if_same_result(at: Place) -> Body | Declined:
    """x = if c then ... in a else ... in a  =>  x := a, if a is bound outside"""
    branch = at.expect(nodes.If)
    inside = bound(branch)
    values: dict[str, Atom] = {}
    same: list[int] = []
    for k, (one, two) in enumerate(zip(branch.then.results, branch.otherwise.results, strict=True)):
        if same_atom(one, two) and not (isinstance(one, Variable) and one.name in inside):
            same.append(k)
            values[at.statement.targets[k].name] = one
    if not same:
        return no_match("the branches give different results")
    if len(same) == len(at.statement.targets):
        return at.substitute(values, ())
    targets = tuple(one for k, one in enumerate(at.statement.targets) if k not in same)
    smaller = nodes.If(branch.condition, _drop_results(branch.then, same), _drop_results(branch.otherwise, same))
    return at.substitute(values, (Statement(targets, smaller),))


# --- loops ------------------------------------------------------------------------------------------------------------


@rule("simplification", nodes.Loop)
def loop_never(at: Place) -> Body | Declined:
    """loop x = x0 for i < 0 do e  =>  x0"""
    loop = at.expect(nodes.Loop)
    if not isinstance(loop.form, nodes.ForLoop) or loop.form.bound.constant is None or loop.form.bound.constant > 0:
        return no_match("the loop is not known to run no round")
    return at.bind(*loop.initial)


@rule("simplification", nodes.Loop)
def loop_once(at: Place) -> Body | Declined:
    """loop x = x0 for i < 1 do e  =>  e[x := x0, i := 0]"""
    loop = at.expect(nodes.Loop)
    if not isinstance(loop.form, nodes.ForLoop) or loop.form.bound.constant != 1:
        return no_match("the loop is not known to run one round")
    values: dict[str, Atom] = {
        parameter.name: one for parameter, one in zip(loop.parameters, loop.initial, strict=True)
    }
    values[loop.form.index.name] = nodes.index_literal(0)
    body = replace_names(loop.body, values)
    return at.splice(body.statements, body.results)


@rule("simplification", nodes.Loop)
def loop_constant_value(at: Place) -> Body | Declined:
    """x, y = loop p = x0, q = y0 ... in (p, e)  =>  y = loop q = y0 ... in e [p := x0] and x := x0"""
    loop = at.expect(nodes.Loop)
    kept_as_is = [
        k
        for k, (parameter, result) in enumerate(zip(loop.parameters, loop.body.results, strict=True))
        if same_atom(parameter, result) or same_atom(loop.initial[k], result)
    ]
    if not kept_as_is:
        return no_match("every carried value changes")
    values: dict[str, Atom] = {loop.parameters[k].name: loop.initial[k] for k in kept_as_is}
    after: dict[str, Atom] = {at.statement.targets[k].name: loop.initial[k] for k in kept_as_is}
    if len(kept_as_is) == len(loop.parameters) and isinstance(loop.form, nodes.ForLoop):
        return at.substitute(after, ())
    if len(kept_as_is) == len(loop.parameters):
        return no_match("a while loop that changes nothing runs never or for ever")
    form = loop.form
    if isinstance(form, nodes.WhileLoop):
        condition = form.condition
        arguments: dict[str, Atom] = {condition.parameters[k].name: loop.initial[k] for k in kept_as_is}
        parameters = tuple(one for k, one in enumerate(condition.parameters) if k not in kept_as_is)
        form = nodes.WhileLoop(replace_names(Lambda(parameters, condition.body), arguments))
    smaller = nodes.Loop(
        tuple(one for k, one in enumerate(loop.parameters) if k not in kept_as_is),
        tuple(one for k, one in enumerate(loop.initial) if k not in kept_as_is),
        form,
        replace_names(_drop_results(loop.body, kept_as_is), values),
    )
    targets = tuple(one for k, one in enumerate(at.statement.targets) if k not in kept_as_is)
    return at.substitute(after, (Statement(targets, smaller),))


# --- reductions of nothing --------------------------------------------------------------------------------------------


@rule("simplification", nodes.Reduce, nodes.Redomap)
def reduce_nothing(at: Place) -> Body | Declined:
    """reduce op ne as  =>  ne, for width 0"""
    expression = at.expression
    if not isinstance(expression, nodes.Reduction) or expression.width.constant != 0:
        return no_match("the width is not known to be 0")
    if len(at.statement.targets) != len(expression.neutral):
        return Declined("further results are mapped out, which stay arrays of no rows")
    return at.bind(*expression.neutral)
