"""Why the operands of a tiled kernel wait where they do and not elsewhere, one sentence for each other way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from tilewright.machine.model import Machine
from tilewright.passes.tiled.choice import ONE_SIDED_MARGIN, not_held, tile_cost
from tilewright.passes.tiled.form import TileForm
from tilewright.passes.tiled.tiling import Place, Tiling, in_left, in_right
from tilewright.report.text import duration

Rivals = Mapping[tuple[Place, Place], tuple[float, Tiling]]


def places_text(places: tuple[Place, Place]) -> str:
    """Where the operands wait.

    Example:
        >>> places_text((Place.REGISTERS, Place.SHARED))
        'left in registers, right in shared memory'
    """
    if places[0] is places[1]:
        return f"both operands in {places[0].value}"
    return f"left in {places[0].value}, right in {places[1].value}"


def declined_places(form: TileForm, machine: Machine, rivals: Rivals) -> Iterator[str]:
    """A sentence for each way of placing the operands that was not chosen, and for each operand without reuse.

    Args:
        form: the one chosen.
        machine: for which the model speaks.
        rivals: the best tiling of each way that is legal, with its modelled time (`tile_choice.best_by_place`).
    """
    chosen = (form.tiling.left, form.tiling.right)
    seconds = tile_cost(form.contraction, form.tiling, machine).seconds
    for name, has in (("left", in_left), ("right", in_right)):
        if form.parallel and all(map(has, form.parallel)):
            yield f"no reuse of {name}: it is variant to every parallel dimension, so no element is used twice"
    for places in itertools.product(Place, Place):
        if places == chosen:
            continue
        text = places_text(places)
        if places not in rivals:
            yield f"not with {text}: {_why_not(form, places)}"
            continue
        other, tiling = rivals[places]
        sizes = ", ".join(
            f"{letter} = {' x '.join(map(str, values))}"
            for letter, values in (("T", tiling.thread), ("R", tiling.register), ("Q", tiling.sequential))
            if values
        )
        close = f", which is not {ONE_SIDED_MARGIN} times as fast" if other < seconds else ""
        says = f"the model says {duration(other)} at best ({sizes}), {duration(seconds)} as chosen"
        yield f"not with {text}: {says}{close}"


def _why_not(form: TileForm, places: tuple[Place, Place]) -> str:
    for name, place in zip(("left", "right"), places, strict=True):
        reason = not_held(form.contraction, form.tiling, name) if place is Place.REGISTERS else None
        if reason is not None:
            return reason
    return "the tiles that would be staged do not fit into shared memory"
