"""Scatters of what maps give: indices and values are computed where they are used, and never stored.

is = map f xs; vs = map g ys; out = scatter dest is vs
=>  for each row: out[f x] = g y, if `is` and vs are used nowhere else
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Lambda, Statement, Variable
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import used_variables
from tilewright.passes.items import lower_folds
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_general import Places, Points
from tilewright.passes.items.lower_items import call, row_of, write
from tilewright.passes.sweeps.form import RowCode, Sweep, is_row_map
from tilewright.passes.sweeps.offset_form import Offsets
from tilewright.rewrite.names import definitions, users

Form: TypeAlias = Statement | Sweep | Offsets


@dataclass(frozen=True)
class MapScatter:
    """A scatter whose indices and values a function of the rows of arrays gives."""

    width: Size
    arrays: tuple[Variable, ...]
    function: Lambda
    target: Variable
    destination: Variable

    @property
    def targets(self) -> tuple[Variable, ...]:
        """What it gives."""
        return (self.target,)


def with_scatters(body: Body, forms: Iterable[Form]) -> Iterator[Form | MapScatter]:
    """is = map f xs; vs = map g ys; out = scatter ds is vs  =>  out = ds; for each row: out[f x] = g y

    Gives statements of a body, and other forms, with scatters that compute what only they use.
    """
    given = list(forms)
    present = {id(one) for one in given}
    found: dict[int, MapScatter] = {}
    needless: set[int] = set()
    for index, statement in enumerate(body.statements):
        if id(statement) in present and isinstance(statement.expression, nodes.Scatter):
            maps = [one for one in _maps(body, index) if id(one) in present]
            if maps:
                found[id(statement)] = _fused(statement, maps)
                needless |= {id(one) for one in maps}
    for one in given:
        if id(one) not in needless:
            yield found.get(id(one), one)


def _maps(body: Body, index: int) -> list[Statement]:
    """The maps whose results only the scatter here uses."""
    scatter = body.statements[index].expression
    assert isinstance(scatter, nodes.Scatter)
    if scatter.values.type.rank != 1 or scatter.values.type.shape != scatter.indices.type.shape:
        return []
    found = []
    for at in dict.fromkeys(definitions(body).get(one.name, -1) for one in (scatter.indices, scatter.values)):
        if at < 0 or not is_row_map(body.statements[at], scatter.indices.type.shape[0]):
            continue
        targets = body.statements[at].targets
        alone = all(users(body).get(one.name, ()) in ((), (index,)) for one in targets)
        if alone and scatter.destination not in targets:
            found.append(body.statements[at])
    return found


def _fused(statement: Statement, maps: Sequence[Statement]) -> MapScatter:
    scatter = statement.expression
    assert isinstance(scatter, nodes.Scatter)
    rows = RowCode("row")
    for one in maps:
        rows.add(one)
    results = (rows.row(scatter.indices), rows.row(scatter.values))
    function = Lambda(tuple(rows.parameters.values()), Body(tuple(rows.statements), results))
    width = scatter.indices.type.shape[0]
    return MapScatter(width, tuple(rows.arrays.values()), function, statement.targets[0], scatter.destination)


def scatter_points(form: MapScatter) -> Points:
    """A point for each row."""

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        rows = [item.row(one, at[0]) for one in lower_folds.arrays_of(item, form.arrays)]
        index, value = call(item, form.function, rows)
        assert isinstance(index, tuple)
        (place,) = places
        lower_folds.when_bin_exists(
            item, index[0], place.lmad.shape[0], lambda bin_: write(item, value, row_of(place, bin_))
        )

    return Points((form.width,), write_point, ((0, form.destination),))


def reads_of_scatter(form: MapScatter) -> tuple[Variable, ...]:
    """The arrays and scalars that it uses."""
    bound = {one.name for one in form.function.parameters}
    bound |= {target.name for one in form.function.body.statements for target in one.targets}
    free = [one for one in used_variables(form.function) if one.name not in bound]
    return tuple(dict.fromkeys((*form.arrays, form.destination, *free)))
