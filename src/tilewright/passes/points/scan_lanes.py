"""Scans by one worker of a CPU, in vectors, reading each row once.

    for each strip of STRIP rows: xs = its rows; for each vector of the strip: ys = prefixes of xs; ys = carry + ys

The rows of a strip are computed by a loop of their own, which LLVM can put into vectors, and lie in the first cache.
The prefixes of a vector are found in log2(lanes) steps [Hillis and Steele 1986, "Data parallel algorithms"]: in step s
lane l is combined with lane l - 2^s. The order of rows is kept, so that the operator need not be commutative; that it
is associative is what a scan asks for. Sums of floats are trees of strips, whose errors scan_strips.py states.

Rows may also come in chunks, each of which is scanned by itself; what the chunks before give is combined with that,
`before + ys`. So one worker that takes all chunks agrees in each bit with several that first find what each of them
gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Lambda, Variable
from tilewright.ir.scalars import BOOL, compute_type
from tilewright.ir.sizes import ONE, Size
from tilewright.ir.traversal import is_plain
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import If, Lane, element_of, integer, operation
from tilewright.passes.items import lower_folds
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_folds import Fold
from tilewright.passes.items.lower_items import AnyValue, lower_expression
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.passes.points.scan_strips import Before, Strip, each_strip, given_value

LEAST_ROWS = 32
"""Fewer rows are scanned one after another."""


def _obstacle(combine: Lambda, neutral: Sequence[Atom], plain: bool) -> str:
    """Why the rows of a scan are not done in vectors; empty if they are. `plain`: its function may be done so."""
    if any(atom.type.rank or atom.type.element.is_complex for atom in neutral):
        return "it has values that are no real scalars"
    if any(one.type.rank for one in combine.parameters) or not is_vectorisable([combine]):
        return "its operator is no straight-line code on scalars"
    return "" if plain else "what computes its rows is no straight-line code on scalars"


def scan_rows(
    whole: Fold,
    scanned: Sequence[ArrayView],
    lanes: bool = True,
    before: Before | None = None,
    sources: Sequence[Variable] = (),
    chain: bool = False,
) -> None:
    """`lower_folds.fold` with the accumulators written to `scanned` after every row; with `lanes` in vectors where
    there are enough rows (always, if something stands before them) and the operator allows it. `sources` are arrays
    whose elements are the rows, if they are no more than that. As a `chain` rows are added one after another.
    """
    item, start = whole.item, whole.start
    direct = _direct(item, sources)

    def in_order(short: bool = False) -> None:
        lower_folds.fold(whole, None, scanned, short, None if before is None else before.values)

    obstacle = _obstacle(whole.combine, whole.neutral, lanes)
    if chain or obstacle or not item.vector_lanes or item.lanes is not None:
        if obstacle and item.vector_lanes and not chain:
            item.refused.append(f"a scan row by row, not in the lanes of vectors: {obstacle}")
        in_order(short=chain)
        return

    def write_strip(strip: Strip) -> None:
        if not direct:
            strip.read(whole.rows, start, whole.mapped)
        loaded = [_part(one, start + strip.first) for one in direct]
        strip.scan([_part(place, start + strip.first) for place in scanned], loaded)

    with item.emit.scope() as in_strips:
        each_strip(item, whole.extent, whole.combine, whole.neutral, write_strip, before)
    if before is not None:
        for one in in_strips:
            item.emit.emit(one)
        return
    with item.emit.scope() as one_by_one:
        in_order(short=True)
    many = operation("ge", lower_size(whole.extent, item.emit), integer(LEAST_ROWS))
    item.emit.emit(If(item.emit.let(many, "many"), tuple(in_strips), tuple(one_by_one)))


def _direct(item: Item, sources: Sequence[Variable]) -> list[ArrayView]:
    """The arrays, if all of them can be loaded as vectors; else none."""
    views = [item.arrays.get(one.name) for one in sources]
    found = [
        one
        for one in views
        if isinstance(one, ArrayView) and one.lmad.strides == (ONE,)
        and one.element != BOOL and compute_type(one.element) == one.element
    ]  # fmt: skip
    return found if len(found) == len(views) else []


def total_of_rows(whole: Fold, sources: Sequence[Variable] = ()) -> list[Value]:
    """What `scan_rows` in vectors has at the end of a chunk, to the bit, without writing anything.

    That is only so if the extent is a multiple of the lanes; otherwise a neutral element is combined once too often.
    """
    direct = _direct(whole.item, sources)

    def read(strip: Strip) -> list[ArrayView]:
        if not direct:
            strip.read(whole.rows, whole.start, ())
        return [_part(one, whole.start + strip.first) for one in direct]

    return total_of_strips(whole.item, whole.extent, whole.combine, whole.neutral, read)


def total_of_strips(
    item: Item, extent: Size, combine: Lambda, neutral: Sequence[Atom], read: Callable[[Strip], Sequence[ArrayView]]
) -> list[Value]:
    """`total_of_rows` of rows whose values `read` puts into strips, or gives as vectors in memory."""

    def write_strip(strip: Strip) -> None:
        strip.scan(None, read(strip))

    carries = each_strip(item, extent, combine, neutral, write_strip)
    totals = []
    for (carry,), atom in zip(carries, neutral, strict=True):
        value = item.emit.let(Lane(carry, 0, element_of(carry.type)), "total")
        totals.append(given_value(item, value, atom.type.element))
    return totals


@lower_expression.register(nodes.Scan)
@lower_expression.register(nodes.Scanomap)
def _(expression: nodes.Scan | nodes.Scanomap, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    count = len(expression.neutral)
    places = [item.target(target) for target in targets]
    function = expression.function if isinstance(expression, nodes.Scanomap) else None
    rows = lower_folds.function_rows(item, function, lower_folds.arrays_of(item, expression.arrays))
    lanes = function is None or is_plain(function.body)
    whole = Fold(item, expression.width, expression.combine, expression.neutral, rows, places[count:])
    scan_rows(whole, places[:count], lanes, sources=expression.arrays if function is None else ())
    return places


def _part(place: ArrayView, first: Size) -> ArrayView:
    """The rows of a vector of results from `first` on."""
    lmad = place.lmad
    return ArrayView(place.buffer, place.element, type(lmad)(lmad.flat((first,)), lmad.shape, lmad.strides))
