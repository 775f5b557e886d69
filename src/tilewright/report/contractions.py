"""The contractions of a program whose sizes are known, for explanations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.contraction.form import Contraction, Refusal
from tilewright.contraction.recognise import recognise
from tilewright.ir.nodes import Apply, Cast, Program, SizeValue, Statement
from tilewright.ir.views import ArrayView, fresh_view, parameter_view, view_of


def contractions_of(
    program: Program, sizes: Mapping[str, int], letters: Mapping[str, str] | None = None, products: bool = False
) -> tuple[tuple[Statement, ...], tuple[Contraction | Refusal, ...]]:
    """The top-level statements that compute something, and the contraction of each or why it is none.

    Args:
        program: after the pipeline.
        sizes: the value of every size name; the parameters are taken to be row-major.
        letters: other names for the dimensions, by size name.
        products: outer products, too, are wanted.
    """
    known = dict(sizes)
    views: dict[str, ArrayView] = {}
    for parameter in program.parameters:
        if parameter.type.rank:
            views[parameter.name] = parameter_view(parameter)
        known[f"{parameter.name}.offset"] = 0
        stride = 1
        for axis, extent in reversed(list(enumerate(parameter.type.shape))):
            known[f"{parameter.name}.stride{axis}"] = stride
            stride *= extent.evaluate(sizes)
    statements: list[Statement] = []
    found: list[Contraction | Refusal] = []
    for statement in program.body.statements:
        view = view_of(statement.expression, views)
        if view is not None:
            views[statement.targets[0].name] = view
        elif not isinstance(statement.expression, Apply | Cast | SizeValue):
            out = {one.name: fresh_view(one.name, one.type) for one in statement.targets}
            one = recognise(statement, views, out, products=products)
            statements.append(statement)
            found.append(one if isinstance(one, Refusal) else _named(one.bind(known), letters or {}))
            views.update(out)
    return tuple(statements), tuple(found)


def _named(contraction: Contraction, letters: Mapping[str, str]) -> Contraction:
    """The contraction with the user's letters for its dimensions."""
    dimensions = tuple(replace(one, name=letters.get(one.name, one.name)) for one in contraction.dimensions)
    return replace(contraction, dimensions=dimensions)
