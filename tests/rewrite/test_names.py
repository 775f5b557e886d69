"""The remembered answers about names agree with the plain walks of `ir.traversal`."""

from __future__ import annotations

import pytest
from random_programs.generator import random_program

from tilewright.ir.nodes import Atom, Program, Variable
from tilewright.ir.traversal import (
    FreshNames,
    all_statements,
    bodies_of,
    bound,
    bound_variables,
    mentioned,
    sub_bodies,
    substitute,
    visit,
    with_fresh_names,
)
from tilewright.rewrite.names import expression_key, replace_names, used, users, with_body
from tilewright.rewrite.rule import body_at, replace_body, resolve
from tilewright.rewrite.strategy import sites


def mentioned_names(node: object) -> set[str]:
    """The names by a plain walk."""
    names: set[str] = set()

    def on_variable(one: Variable) -> None:
        names.add(one.name)
        for extent in one.type.shape:
            names.update(extent.names)

    visit(node, on_variable, lambda size: names.update(size.names))
    return names


@pytest.mark.parametrize("seed", range(15))
def test_names_of_every_node(seed: int) -> None:
    source = random_program(seed)
    assert mentioned(source) == mentioned_names(source)
    assert bound(source) == {one.name for one in bound_variables(source)}
    for statement in all_statements(source.body):
        assert mentioned(statement) == mentioned_names(statement)
        assert bound(statement) == {one.name for one in bound_variables(statement)}
        assert used(statement) == mentioned_names(statement) - bound(statement)
        assert bodies_of(statement.expression) == tuple(sub_bodies(statement.expression))
        again = with_fresh_names(statement.expression, FreshNames(source))
        assert expression_key(again) == expression_key(statement.expression)
    for index in range(len(source.body.statements)):
        for target in source.body.statements[index].targets:
            assert all(use > index for use in users(source.body).get(target.name, ()))


@pytest.mark.parametrize("seed", range(15))
def test_replacing_names_is_substitution(seed: int) -> None:
    source = random_program(seed)
    values: dict[str, Atom] = {
        one.name: Variable(f"new_{one.name}", one.type) for one in source.parameters if one.type.rank == 0
    }
    assert replace_names(source.body, values) == substitute(source.body, values)
    untouched = {"no_such_name": source.parameters[0]}
    assert replace_names(source.body, untouched) is source.body


@pytest.mark.parametrize("seed", range(5))
def test_putting_a_body_back_changes_nothing(seed: int) -> None:
    source: Program = random_program(seed)
    for site in sites(source):
        place = resolve(source, site)
        assert place.statement == body_at(source, site.path).statements[site.index]
        assert replace_body(place, place.body) == source
        for number, body in enumerate(bodies_of(place.expression)):
            assert with_body(place.expression, number, body) is place.expression
