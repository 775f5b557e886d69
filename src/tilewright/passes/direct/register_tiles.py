"""The register tiles that a machine has room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.machine.model import Machine
from tilewright.passes.direct.form import (
    BOX_ELEMENTS,
    COLLECTED_ELEMENTS,
    FUSED_COLUMNS,
    PANEL_ELEMENTS,
    DirectForm,
    Results,
)
from tilewright.passes.direct.past_caches import (
    array_bytes,
    boxes_go_past,
    is_past,
    is_written_in_pieces,
    leaves_caches,
    rows_align,
)
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.packed.blocks import is_past_caches

BESIDE_PAIRS = 5  # registers beside sums, columns and turned columns: two factors, the next, and what turns columns
MOST_SHARED = 4
"""Rows that have one vector for their last columns, at the most: to bring the elements of eight rows together takes
longer than it saves (rows of 50 in f32 on a Zen 5: with four rows 1.46 times as fast as with eight).
"""
FEW_SHARED = 2  # the fewest
NARROWER = (2, 4)  # parts of a vector that the last one of a tile may be, where many such tiles divide a dimension

MOST_TOGETHER = 3  # tiles of collected results that no cache holds
READ_TOGETHER = 640  # bytes of a piece of memory that collected results are read from: longer ones are no faster
LONG_PIECE = 4096  # bytes, where longer ones are
LONG_PIECE_OF_LINES = 1536  # the same of results that are lines past the caches


def register_tiles(form: DirectForm, machine: Machine) -> Iterator[DirectForm]:
    """The form with every register tile that the machine has room for."""
    if form.boxed and not boxes_go_past(form, machine):
        return
    widest = machine.lanes(component_types(form.accumulator)[0].bytes)
    registers = machine.vector_registers or 16
    for vectors in range(1, 7):
        lanes = (widest,) * vectors
        if form.columns is None:
            is_last = vectors * widest >= form.vector_size
            lanes = exact_vectors(form.vector_size, widest) if is_last else lanes
        else:
            is_last = vectors >= form.column_size
            lanes = exact_vectors(min(form.vector_size, widest), widest) * vectors
        if vectors == 1 and not is_last and form.collected is not None and machine.pace.long_pieces:
            continue  # The elements of many rows leave the first cache no time for the lines that come.
        found = [*_rows_of(form, lanes, widest, machine)]
        for one in _dividing(form, lanes, machine):
            most = min(form.scalar_size, _most_rows(form, one, registers))
            found += [(one, rows, 1) for rows in _rows(form, one, most)]
        for own, rows, shared in found:
            tile = replace(form, lanes=own, rows=rows, shared_rows=shared)
            if shared == 1 and rows > _most_rows(form, lanes, registers):
                tile = replace(tile, rows_first=True)
            if form.collected is not None:
                tile = replace(tile, vector_chunk=_read_together(tile, machine))
            if panels_fit(tile):
                yield tile
        if is_last:
            return


def _rows_of(
    form: DirectForm, lanes: tuple[int, ...], widest: int, machine: Machine
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """The vectors of tiles, numbers of rows for them, and of how many rows the narrower last vectors are one."""
    registers = machine.vector_registers or 16
    most = _most_rows(form, lanes, registers)
    if _is_plain(form):
        most = max(most, min(len(lanes) - 1, (registers - 1) // (len(lanes) + 1)))
    for rows in sorted({*_rows(form, lanes, min(form.scalar_size, most)), *_few_rows(form, lanes, most, machine)}):
        yield lanes, rows, 1
    if lanes[-1] == widest or len(lanes) == 1 or not _may_share(form):
        return
    many = min(MOST_SHARED, widest // lanes[-1])
    # Two rows fill a part of a vector, which is worth it where that takes less time than all of one.
    for shared in {min(FEW_SHARED, many), many} if machine.pace.narrow < 1 else {many}:
        wider = (*lanes[:-1], widest // many)
        # Beside sums and columns: an element, those of several rows, and where more than two share, one on its way.
        free = registers - len(lanes) - min(shared, 3)
        most = free * shared // ((len(lanes) - 1) * shared + 1)
        most = min(form.scalar_size, most) // shared * shared
        for rows in sorted({min(most, -(-one // shared) * shared) for one in _rows(form, lanes, most)}):
            yield wider, rows, shared


def _dividing(form: DirectForm, lanes: tuple[int, ...], machine: Machine) -> Iterator[tuple[int, ...]]:
    """The vectors with a narrower one after them, which takes less time, where such tiles divide the dimension."""
    past = rows_align(form) and is_past_caches(array_bytes(form, "out"), machine)
    if machine.pace.narrow >= 1 or len(lanes) < 2 or past or form.results is not Results.VECTORS or not _is_plain(form):
        return
    for part in NARROWER:
        narrow = lanes[0] // part
        width = sum(lanes) + narrow
        if narrow > 1 and width < form.vector_size and form.vector_size % width == 0:
            yield (*lanes, narrow)


def _most_rows(form: DirectForm, lanes: tuple[int, ...], registers: int) -> int:
    """Rows whose sums have registers beside all vectors of a step, which are read first, and an element of a row."""
    # Where each broadcast serves one multiply-add, the next is loaded meanwhile.
    broadcasts = BESIDE_PAIRS if form.parts > 1 else 2 if len(lanes) == 1 else 1
    return (registers - broadcasts - form.parts * len(lanes)) // len(lanes)


def _may_share(form: DirectForm) -> bool:
    """Whether vectors follow each other along a dimension of one side, of the elements that are summed."""
    accumulator = form.accumulator
    alike = form.vector_operand.element == form.scalar_operand.element == accumulator
    return alike and _is_plain(form)


def _is_plain(form: DirectForm) -> bool:
    """Each step is a multiply-add of each vector and each row's element."""
    return form.parts == 1 and form.columns is None and not form.elementwise and form.fused_multiply_add


def _rows(form: DirectForm, lanes: tuple[int, ...], most: int) -> Sequence[int]:
    """Numbers of rows worth a thought: the fewest that need one, two or three tiles more than the most do."""
    if form.results is Results.TURNED:
        return [rows for rows in turned_rows(lanes) if rows <= most]
    if most < 1:
        return ()
    least = -(-form.scalar_size // most)
    return sorted({-(-form.scalar_size // tiles) for tiles in range(least, least + 3)})


def turned_rows(lanes: tuple[int, ...]) -> Sequence[int]:
    """Numbers of rows of tiles that are turned in squares as wide as they are high."""
    return [rows for rows in (4, 8, 16) if rows <= min(lanes)]


def _few_rows(form: DirectForm, lanes: tuple[int, ...], most: int, machine: Machine) -> tuple[int, ...]:
    """Rows whose vectors are stored without waiting for each other, where those of the `most` rows would."""
    at_once = machine.pace.stored_at_once(form.contracted_total)
    if form.results is not Results.VECTORS or len(lanes) * min(form.scalar_size, most) <= at_once:
        return ()
    rows = max(1, int(at_once) // len(lanes))
    return (-(-form.scalar_size // -(-form.scalar_size // rows)),)


def exact_vectors(size: int, widest: int) -> tuple[int, ...]:
    """Vectors for all of a short dimension; the last one is as narrow as it can be."""
    whole, rest = divmod(size, widest)
    tail = (max(2, 1 << (rest - 1).bit_length()),) if rest else ()
    return (widest,) * whole + tail


def panels_fit(form: DirectForm) -> bool:
    """The scratch memory for panels and collected results holds those of the form."""
    collected = 0 if form.collected is None else form.collected_elements
    box = form.box_elements if form.boxed else 0
    return max(form.panel_elements) <= PANEL_ELEMENTS and collected <= COLLECTED_ELEMENTS and box <= BOX_ELEMENTS


def _read_together(form: DirectForm, machine: Machine) -> int:
    """Tiles of the vector side whose results are collected together: so many that two pieces of the operand and the
    results stay in half of the second cache.
    """
    width, results = form.width * form.vector_operand.element.bytes, form.collected_elements
    results_bytes = results * component_types(form.accumulator)[0].bytes
    if machine.pace.long_pieces:
        most = _longest_piece(form, machine, width, results_bytes)
    else:
        far = is_written_in_pieces(form, machine) or leaves_caches(form, machine)
        most = MOST_TOGETHER if far else -(-READ_TOGETHER // width)
        most = min(most, machine.l2_bytes // 2 // (2 * form.contracted_total * width + results_bytes))
    most = min(most, COLLECTED_ELEMENTS // results)
    return max(1, min(most, form.vector_tiles, FUSED_COLUMNS // form.width))


def _longest_piece(form: DirectForm, machine: Machine, width: int, results: int) -> int:
    """The same where long pieces come faster: one piece, its results and their box fill three quarters of the second
    cache. As the next piece comes this one's tiles are done with.
    """
    box = form.box_elements * form.contraction.out.element.bytes if form.boxed else 0
    used = form.contracted_total * width + results + box
    length = LONG_PIECE_OF_LINES if is_past(form, machine) and not form.boxed else LONG_PIECE
    return min(-(-length // width), machine.l2_bytes // 4 * 3 // used)
