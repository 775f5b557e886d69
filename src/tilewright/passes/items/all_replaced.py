"""Arrays that a loop carries and of which it replaces every element: of what they begin as nothing is seen.

    loop (a) = (a0) for i < n do  b = a with [i] = x  in (b)       a: [n]...
    loop (a) = (a0) for i < n do  b = a with [n - 1 - i] = x  in (b)

Such a loop writes its results one after another, as a scan does; what they begin as needs no values, and no copy.
"""

from __future__ import annotations

import dataclasses

from tilewright.ir import nodes
from tilewright.ir.nodes import Variable, atom_size
from tilewright.ir.sizes import ONE, ZERO
from tilewright.ir.traversal import mentioned
from tilewright.passes.items.upper_bounds import defined_size


def all_replaced(expression: nodes.Expression) -> frozenset[int]:
    """The places of a loop's arrays whose elements are all replaced, each before anything reads it.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> text = '''def f (x: [n]f64) =
        ...   let (y: [n]f64) = loop (a: [n]f64) = (x) for i: i64 < n do
        ...     let (b: [n]f64) = a with [i] = 1.0f64
        ...     in (b)
        ...   in (y)'''
        >>> sorted(all_replaced(parse_program(text).body.statements[0].expression))
        [0]
    """
    if not isinstance(expression, nodes.Loop) or not isinstance(expression.form, nodes.ForLoop):
        return frozenset()
    pairs = enumerate(zip(expression.parameters, expression.body.results, strict=True))
    return frozenset(place for place, (one, result) in pairs if _is_replaced(expression, expression.form, one, result))


def without_unseen(expression: nodes.If | nodes.Loop) -> tuple[object, ...]:
    """The parts of a choice or loop, without the arrays that it starts from and of which it sees nothing."""
    if isinstance(expression, nodes.If):
        return (expression,)
    unseen = all_replaced(expression)
    initial = tuple(one for place, one in enumerate(expression.initial) if place not in unseen)
    return initial, dataclasses.replace(expression, initial=())


def _is_replaced(loop: nodes.Loop, form: nodes.ForLoop, array: Variable, result: nodes.Atom) -> bool:
    if not array.type.rank:
        return False
    body = loop.body
    uses = [one for one in body.statements if array.name in mentioned(one)]
    if len(uses) != 1 or uses[0].targets != (result,) or body.results.count(result) != 1:
        return False
    update = uses[0].expression
    if not isinstance(update, nodes.Update) or update.array != array or len(update.indices) != 1:
        return False
    others = (update.indices, update.value, *(one for one in body.statements if one is not uses[0]))
    beside = tuple(one for one in body.results if one != result)
    if not {array.name, uses[0].targets[0].name}.isdisjoint(mentioned((others, beside))):
        return False
    known = {one.targets[0].name: found for one in body.statements if (found := defined_size(one.expression))}
    index, extent = atom_size(update.indices[0]), array.type.shape[0]
    for _ in known:
        index = index.substitute(known)
    linear = index.coefficient_of(form.index.name)
    return extent == form.bound and linear in ((ONE, ZERO), (-ONE, extent - 1))
