"""Where the results of a direct register tile go: as vectors, turned in registers, or collected for a turn."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.nodes import Apply
from tilewright.ir.scalars import BOOL
from tilewright.ir.traversal import all_statements
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Constant, Expression, Name, add, integer, load, multiply, operation
from tilewright.passes.direct.form import LINE
from tilewright.passes.direct.tile import Accumulators, Edge, Place, starts
from tilewright.passes.direct.writer import DirectWriter
from tilewright.passes.lanes.vector_transposes import transposed
from tilewright.passes.lanes.vectorise import lower_lambda_vector
from tilewright.passes.packed.two_sides import Bases

ROUNDED_ALIKE = frozenset(
    {"add", "sub", "min", "max", "neg", "abs", "select", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not"}
)
"""Operators that give the same bits in all tiles, whatever is beside them but a product."""


def store_vectors(w: DirectWriter, place: Place, accumulators: Accumulators) -> None:
    """Each vector of each row, after the epilogue. With further operands, one of which may be the output itself, only
    what no tile has stored before.
    """
    form, emit = w.form, w.emit
    base = emit.let(add(place.bases.out, place.v), "out_at")
    stride = integer(0) if form.scalar is None else w.stride(form.scalar, "out")
    offsets = w.column_offsets("out", place.q)
    if place.edges:
        _store_edges(w, place, accumulators, base, stride, offsets)
    elif form.nontemporal:
        aligned = _is_aligned(w, base, place, stride, offsets)
        w.branch(
            operation("and", aligned, _is_new(w, place)) if _is_written_once(w) else aligned,
            lambda: _store_rows(w, place, accumulators, base, stride, offsets, True),
            lambda: _store_rows(w, place, accumulators, base, stride, offsets, False),
        )
    else:
        _store_rows(w, place, accumulators, base, stride, offsets, False)


def _is_aligned(
    w: DirectWriter, base: Expression, place: Place, stride: Expression, offsets: list[Expression]
) -> Expression:
    """Every vector of the tile begins at a multiple of the widest one's size."""
    together = stride if w.form.rows > 1 else integer(0)
    for offset in offsets if w.form.columns is not None else ():
        together = operation("or", together, offset)
    bytes_ = w.out.element.bytes
    first = add(kernel.Address(w.out), multiply(add(base, multiply(place.s, stride)), integer(bytes_)))
    remainder = operation("or", multiply(together, integer(bytes_)), first)
    mask = integer(max(w.form.lanes) * bytes_ - 1)
    return w.emit.let(operation("eq", operation("and", remainder, mask), integer(0)), "aligned")


def beyond_vector(w: DirectWriter, bases: Bases, s: Expression) -> Expression:
    """Elements from a whole vector of the output's memory to the first one of the block's row `s`."""
    bytes_ = w.out.element.bytes
    row = bases.out if w.form.scalar is None else add(bases.out, multiply(s, w.stride(w.form.scalar, "out")))
    address = add(kernel.Address(w.out), multiply(row, integer(bytes_)))
    odd = operation("and", address, integer(max(w.form.lanes) * bytes_ - 1))
    return w.emit.let(operation("floordiv", odd, integer(bytes_)), "back")


def _store_rows(
    w: DirectWriter,
    place: Place,
    accumulators: Accumulators,
    base: Expression,
    stride: Expression,
    offsets: list[Expression],
    past: bool,
) -> None:
    """The rows one after another; `past` the caches where a vector is whole, of a tile without columns that another
    one stores, if only one of them may.
    """
    form, emit = w.form, w.emit
    once = not past and (_is_written_once(w) or place.back is not None)
    masks = _new_columns(w, place) if once else _valid_columns(w)
    for j in range(form.rows):
        number = emit.let(add(place.s, integer(j)), "number")
        row = emit.let(add(base, multiply(number, stride)), "out_row")

        def store(j: int = j, number: Expression = number, row: Expression = row) -> None:
            for i, offset in enumerate(offsets):

                def one(i: int = i, offset: Expression = offset) -> None:
                    value = _with_epilogue(w, place, accumulators[i, j], number, i, masks[i])
                    whole = past and masks[i] is None and form.lanes[i] == max(form.lanes)
                    emit.emit(
                        kernel.Store(w.out, add(row, offset), value, aligned=whole, nontemporal=whole, mask=masks[i])
                    )

                _unless_old(w, place.old_group, i, one)

        _unless_old(w, place.old_rows, j, store)


def edges_at(w: DirectWriter, v: Expression) -> tuple[Edge, ...]:
    """Which lanes of the vectors of a tile are inside their dimension, if it begins at `v`, which may be before it."""
    size, zero = w.parameter("v_size", w.form.vector_size), integer(0)
    found = []
    for start, lanes in zip(starts(w.form.lanes), w.form.lanes, strict=True):
        first = w.emit.let(add(v, integer(start)), "first")
        skipped = w.emit.let(operation("max", operation("sub", zero, first), zero), "skipped")
        left = operation("min", operation("sub", size, first), integer(lanes))
        kept = w.emit.let(operation("max", left, zero), "kept")
        vector = kernel.VectorType(BOOL, lanes)
        mask = operation("and", kernel.FirstLanes(kept, vector), operation("not", kernel.FirstLanes(skipped, vector)))
        whole = operation("eq", operation("sub", kept, skipped), integer(lanes))
        some = operation("lt", skipped, kept)
        found.append(Edge(w.emit.let(mask, "inside"), w.emit.let(whole, "whole"), w.emit.let(some, "some")))
    return tuple(found)


def _store_edges(
    w: DirectWriter,
    place: Place,
    accumulators: Accumulators,
    base: Expression,
    stride: Expression,
    offsets: list[Expression],
) -> None:
    """The row of a tile that sticks out: whole vectors past the caches if they are aligned; of others what is inside.
    Nothing else of their lines is touched, which may be on its way to the memory.
    """
    emit = w.emit
    aligned = _is_aligned(w, base, place, stride, offsets)
    row = emit.let(add(base, multiply(place.s, stride)), "out_row")
    for i, (offset, edge) in enumerate(zip(offsets, place.edges, strict=True)):

        def store(i: int = i, offset: Expression = offset, edge: Edge = edge) -> None:
            value = _with_epilogue(w, place, accumulators[i, 0], place.s, i, edge.mask)
            past = kernel.Store(w.out, add(row, offset), value, aligned=True, nontemporal=True)
            part = kernel.Store(w.out, add(row, offset), value, mask=edge.mask)
            all_of_it = operation("and", edge.whole, aligned)
            w.branch(all_of_it, lambda: emit.emit(past), lambda: emit.emit(part))

        emit.when(edge.some, store)


def _unless_old(w: DirectWriter, old: Expression, number: int, write: Callable[[], None]) -> None:
    """`write()`, but not a second time where that would do harm."""
    if _is_written_once(w) and old != integer(0):
        w.emit.when(operation("le", old, integer(number)), write)
    else:
        write()


def _is_written_once(w: DirectWriter) -> bool:
    """Whether only one of two tiles may write an element that both compute: where arrays are read that could be the
    output; and where the compiler may round a product and a sum together in one tile and apart in the other, so that
    the bits would be those of whichever thread comes last.
    """
    contraction = w.form.contraction
    if w.further or w.out.element.is_integer:
        return bool(w.further)
    functions = [] if w.form.fused_multiply_add else [contraction.map, contraction.combine]
    functions += [] if contraction.epilogue is None else [contraction.epilogue]
    operators = {
        one.expression.operator
        for function in functions
        for one in all_statements(function.body)
        if isinstance(one.expression, Apply)
    }
    return not (operators <= ROUNDED_ALIKE or operators <= ROUNDED_ALIKE - {"add", "sub"} | {"mul"})


def _valid_columns(w: DirectWriter) -> list[Expression | None]:
    return [w.mask_of(i) for i in range(len(w.form.lanes))]


def _new_columns(w: DirectWriter, place: Place) -> list[Expression | None]:
    masks = _valid_columns(w)
    if place.old_columns == integer(0):
        return masks
    for i, (start, lanes) in enumerate(zip(starts(w.form.lanes), w.form.lanes, strict=True)):
        start = start if w.form.columns is None else 0
        old = operation("max", operation("sub", place.old_columns, integer(start)), integer(0))
        known = kernel.FirstLanes(operation("min", old, integer(lanes)), kernel.VectorType(BOOL, lanes))
        new: Expression = operation("not", known)
        if place.back is not None:
            # The first tile leaves to the next one what begins with a whole vector.
            left = operation("select", operation("eq", place.v, integer(0)), place.back, integer(0))
            kept = operation("sub", integer(w.form.width - start), w.emit.let(left, "left"))
            kept = operation("min", operation("max", kept, integer(0)), integer(lanes))
            new = operation("and", new, kernel.FirstLanes(kept, kernel.VectorType(BOOL, lanes)))
        masks[i] = w.emit.let(new, "new")
    return masks


def _is_new(w: DirectWriter, place: Place) -> Expression:
    """Whether no other tile stores columns of this one."""
    new = operation("le", place.old_columns, integer(0))
    if place.back is not None:
        stays = operation("or", operation("ne", place.v, integer(0)), operation("eq", place.back, integer(0)))
        new = operation("and", new, stays)
    return w.emit.let(new, "is_new")


def _with_epilogue(
    w: DirectWriter, place: Place, total: Name, row: Expression, i: int, mask: Expression | None
) -> Expression:
    contraction, emit = w.form.contraction, w.emit
    if contraction.epilogue is None:
        return total
    assert isinstance(total.type, kernel.VectorType)
    start = integer(starts(w.form.lanes)[i] if w.form.columns is None else 0)
    values: list[tuple[Expression, ...]] = [(emit.snapshot(total, "total"),)]
    for number, buffer in enumerate(w.further):
        at = place.bases.further[number]
        if w.form.scalar is not None:
            at = add(at, multiply(row, w.stride(w.form.scalar, str(number))))
        along = w.stride(w.form.vector, str(number))
        if w.form.columns is not None:
            at = add(at, w.column_offsets(str(number), place.q)[i])
        if along == integer(0):
            one = load(buffer, at)
            values.append(
                (
                    emit.let(
                        kernel.Broadcast(one, kernel.VectorType(kernel.element_of(one.type), total.type.lanes)),
                        "operand",
                    ),
                )
            )
            continue
        value = load(buffer, add(at, add(place.v, start)), total.type.lanes)
        values.append((emit.let(kernel.Load(buffer, value.index, value.type, mask=mask), "operand"),))
    ((result,),) = lower_lambda_vector(contraction.epilogue, values, total.type.lanes, emit)
    return emit.let(result, "result")


def store_turned(w: DirectWriter, place: Place, accumulators: Accumulators) -> None:
    """Squares of `rows` by `rows`, turned in registers: the output's unit stride is the scalar side's."""
    form, emit = w.form, w.emit
    turned = form.rows
    base = emit.let(add(place.bases.out, place.s), "out_at")
    for i, (start, lanes) in enumerate(zip(starts(form.lanes), form.lanes, strict=True)):
        for first in range(0, lanes, turned):
            rows: list[Expression] = []
            for j in range(turned):
                value: Expression = accumulators[i, j]
                vector = kernel.VectorType(kernel.element_of(value.type), turned)
                if lanes > turned:
                    value = kernel.Shuffle(value, value, tuple(range(first, first + turned)), vector)
                rows.append(emit.snapshot(value, "part"))
            columns = transposed(w.emit, rows)
            for lane, column in enumerate(columns):
                at = add(base, multiply(add(place.v, integer(start + first + lane)), w.stride(form.vector, "out")))
                store = kernel.Store(w.out, emit.let(at, "at"), column)
                where_valid(w, i, first + lane, lambda store=store: emit.emit(store))  # type: ignore[misc]


def prefetch_vectors(w: DirectWriter, place: Place) -> None:
    """Ask for the lines that `store_vectors` will write, while the sums are still computed."""
    form, emit = w.form, w.emit
    stride = integer(0) if form.scalar is None else w.stride(form.scalar, "out")
    at = add(place.bases.out, multiply(place.v, w.stride(form.vector, "out")))
    base = emit.let(add(at, multiply(place.s, stride)), "out_at")
    line = LINE // w.out.element.bytes
    offsets = w.column_offsets("out", place.q)
    if form.columns is None:
        offsets = [integer(start) for start in (*range(0, form.width - 1, line), form.width - 1)]
    for j in range(form.rows):
        row = emit.let(add(base, multiply(integer(j), stride)), "ahead")
        for offset in offsets:
            emit.emit(kernel.Prefetch(w.out, add(row, offset)))


def where_valid(w: DirectWriter, vector: int, lane: int, write: Callable[[], None]) -> None:
    """`write()`, if that lane of that vector of the tile lies inside its dimension."""
    if w.form.masked and vector == len(w.form.lanes) - 1 and lane:
        assert w.valid is not None
        w.emit.when(operation("gt", w.valid, integer(lane)), write)
    else:
        write()


def spill(w: DirectWriter, tile: Buffer, at: Expression, accumulators: Accumulators) -> None:
    """The registers into the scratch tile [row][collected][column], from element `at` on."""
    form = w.form
    for (i, j), total in accumulators.items():
        start = j * form.lanes[0] * form.pitch + starts(form.lanes)[i]
        w.emit.emit(kernel.Store(tile, add(at, integer(start)), total, aligned=True))


__all__ = ["Constant", "prefetch_vectors", "spill", "store_turned", "store_vectors", "where_valid"]
