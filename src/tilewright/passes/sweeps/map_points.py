"""The kernel of a sweep without a scan: a point for each row, which scatters what it computes and never stores it."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.nodes import Variable
from tilewright.ir.sizes import Size
from tilewright.passes.items import lower_folds
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_items import call, row_of, write
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.sweeps.form import SweepForm


def map_points(form: SweepForm) -> Points:
    """A point for each row."""
    count = len(form.scattered)

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        rows = [item.row(one, at[0]) for one in lower_folds.arrays_of(item, form.arrays)]
        results = call(item, form.after, call(item, form.before, rows))
        for index, value, place in zip(results[: 2 * count : 2], results[1 : 2 * count : 2], places, strict=False):
            assert isinstance(index, tuple)
            lower_folds.when_bin_exists(
                item,
                index[0],
                place.lmad.shape[0],
                lambda bin_, value=value, place=place: write(item, value, row_of(place, bin_)),  # type: ignore[misc]
            )
        for value, place in zip(results[2 * count :], places[count:], strict=True):
            write(item, value, row_of(place, at[0]))

    copied = enumerate(one.destination for one in form.scattered)
    return Points((form.width,), write_point, tuple((k, one) for k, one in copied if isinstance(one, Variable)))
