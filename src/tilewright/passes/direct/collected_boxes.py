"""Boxes of collected results: whole lines of an output that no cache holds, of results that are collected in pieces.

Collected results are written a vector at a time, to lines that begin within a vector: each line comes from memory
first, and is written in two parts. A *box* is what all points of the collected dimension, and some of the one that
follows it in the output's memory, give for a piece of the operand. It is assembled in the second and third cache, as
[column][row][joined][collected], of which the last two are one run of the output: whole lines, which go past the
caches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.contraction.normalise import constant
from tilewright.kernel.ir import Address, Buffer, Expression, Store, add, integer, load, multiply, operation
from tilewright.passes.direct.collect import Columns, Target
from tilewright.passes.direct.form import LINE, DirectForm
from tilewright.passes.direct.writer import DirectWriter
from tilewright.passes.packed.two_sides import Bases

LONGEST_SUM = 128  # steps: longer ones hide what writing takes


def boxed(form: DirectForm, least_run: int) -> Iterator[DirectForm]:
    """The placement of collected results with boxes of runs of so many bytes, if there are any: at most one."""
    assert form.collected is not None
    if form.contracted_total > LONGEST_SUM:
        return
    bytes_ = form.contraction.out.element.bytes
    row = constant(form.collected.size)
    others = [one for one in form.contraction.dimensions if one not in form.contracted and one != form.collected]
    following = [one for one in form.outer if one.kind is form.vector.kind and form.stride(one, "out") == row]
    joined = following[0] if following else None
    chunk = _joined_chunk(1 if joined is None else constant(joined.size), row * bytes_, least_run)
    if chunk is None:
        return
    joined = None if chunk == 1 else joined
    lines = [form.stride(one, "out") * bytes_ % LINE == 0 for one in others if one != joined]
    if all(lines):
        outer = tuple(one for one in form.outer if one != joined)
        yield replace(form, boxed=True, joined=joined, joined_chunk=chunk, outer=outer)


def _joined_chunk(most: int, row_bytes: int, least_run: int) -> int | None:
    """How many rows of the output are whole lines and a long run together, of a dimension that they divide."""
    for chunk in range(1, most + 1):
        together = chunk * row_bytes
        if most % chunk == 0 and together % LINE == 0 and together >= least_run:
            return chunk
    return None


def box_target(w: DirectWriter, box: Buffer, piece: Columns, joined: Expression, first: Expression) -> Target:
    """Where results from `first` on of the collected dimension, at a point of the joined one, are in the box."""
    form = w.form
    run = form.box_run
    start = add(multiply(joined, w.parameter("w_size", constant(form.collected.size))), first)  # type: ignore[union-attr]
    column = w.parameter("box_column", form.scalar_size * run)

    def place(of: Expression) -> Expression:
        return multiply(operation("sub", of, piece.first), column)

    return Target(box, w.emit.let(start, "box_at"), w.parameter("box_run", run), place)


def copy_box(w: DirectWriter, box: Buffer, piece: Columns, bases: Bases) -> None:
    """The box to the output: past the caches if that begins with a line, as all runs do then."""
    form, emit = w.form, w.emit
    bytes_, lanes = w.out.element.bytes, form.lanes[0]
    address = add(Address(w.out), multiply(bases.out, integer(bytes_)))
    aligned = operation("eq", operation("and", address, integer(LINE - 1)), integer(0))
    row_stride = integer(0) if form.scalar is None else w.stride(form.scalar, "out")
    run, rows = w.parameter("box_run", form.box_run), w.parameter("s_size", form.scalar_size)

    def copy(past: bool) -> None:
        def column(number: Expression) -> None:
            start = emit.let(add(bases.out, piece.place(w, add(piece.first, number))), "to_column")
            box_row = emit.let(multiply(number, rows), "box_row")

            def row(s: Expression) -> None:
                to = emit.let(add(start, multiply(s, row_stride)), "to_row")
                source = emit.let(multiply(add(box_row, s), run), "from_row")

                def vector(at: Expression) -> None:
                    value = emit.let(load(box, add(source, at), lanes, aligned=True), "line")
                    emit.emit(Store(w.out, add(to, at), value, aligned=past, nontemporal=past))

                w.loop("at", integer(0), run, vector, integer(lanes))

            w.loop("s", integer(0), rows, row)

        w.loop("column", integer(0), piece.count, column)

    w.branch(emit.let(aligned, "aligned"), lambda: copy(True), lambda: copy(False))
