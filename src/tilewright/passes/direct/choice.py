"""The choice of a direct form: every way of placing the dimensions, every register tile, judged by cost.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.scalars import BOOL, compute_type
from tilewright.ir.sizes import size
from tilewright.machine.model import Machine
from tilewright.passes.direct.cost import DirectCost, compute_cycles, direct_cost, rows_are_asked, vectors_are_asked
from tilewright.passes.direct.form import LINE, DirectForm, Results, results_are_one_run
from tilewright.passes.direct.next_pieces import PIECE_BYTES
from tilewright.passes.direct.onward import onward
from tilewright.passes.direct.pairs import as_pairs, suits_pairs
from tilewright.passes.direct.past_caches import array_bytes, is_past, is_written_in_pieces
from tilewright.passes.direct.points import piece_of_sum, points_are_asked
from tilewright.passes.direct.register_tiles import register_tiles, turned_rows
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.passes.packed.blocks import PACK_VECTOR, level_of, numbers_of_parts, shared_time
from tilewright.passes.packed.form import is_multiply_add

SERIAL_CYCLES = 80_000
"""Work that takes some 20 microseconds: less is done when another thread, which has to be woken, begins."""

MOST_BLOCKS_PER_CORE = 16
BLOCK_CYCLES = 300.0
"""What a block of the launch costs, beside its tiles: to be taken, and to begin."""
FAR_BYTES_PER_CYCLE = 4.0
"""What is read again comes from the third cache or main memory."""

LEAST_SUM = 16
"""Steps of a sum during which it pays to ask for the lines that its results are written to next, in one run. Results of
shorter ones follow each other so closely that the processor itself asks for them.
"""

PIECE_VECTORS = 4  # of a tile that asks for the next piece of its operand, or one fewer
APART = 1 << 14  # bytes between steps of such a sum, at the least
BUSY = 3  # times as long as the memory takes for a line its multiply-adds may take: longer ones hide the wait anyway


def choose_direct_form(contraction: Contraction, machine: Machine) -> tuple[DirectForm, DirectCost] | str:
    """The cheapest direct form of a normalised contraction with known sizes, or why there is none."""
    refused = refusal(contraction, machine)
    if refused and not suits_pairs(contraction, machine):
        return refused
    best: tuple[DirectForm, DirectCost] | None = None
    for one in direct_forms(contraction, machine):
        compute = compute_cycles(one, machine)
        if best is None or compute <= best[1].cycles:
            found = one, direct_cost(one, machine, compute)
            best = found if best is None else min(best, found, key=_preferred)
    if best is None:
        return refused or _unplaced(contraction)
    form, cost = best
    return shared_out(_in_pieces(_with_hints(form, machine), machine), cost, machine), cost


def _preferred(found: tuple[DirectForm, DirectCost]) -> tuple[float, float, bool]:
    """The less the better: cycles; where memory alone decides, work meanwhile; and of two orders of the same tiles the
    one that keeps the rows of a tile and comes by all vectors, which are read in longer runs (squares of 192 and 256 in
    f64 3% faster on a Zen 5).
    """
    form, cost = found
    return cost.cycles, cost.work, not form.scalar_outer


def _in_pieces(form: DirectForm, machine: Machine) -> DirectForm:
    """Where steps of the sum are far apart in main memory, a tile that leaves time to ask for the next piece of it."""
    if not (form.prefetched and form.collected is None and form.columns is None) or form.scalar is None:
        return form
    step = abs(form.step("vector")) * form.vector_operand.element.bytes
    far = level_of(array_bytes(form, "vector"), machine) > 3 and len(form.contracted) == 1 and step >= APART
    uneven = form.shared_rows > 1 or len(set(form.lanes)) > 1 or form.parts > 1
    if not far or form.scalar_outer or uneven or len(form.lanes) < PIECE_VECTORS:
        return form
    few = form.vector_size < 2 * PIECE_BYTES // form.vector_operand.element.bytes
    if few or machine.pace.memory * form.scalar_size > BUSY * LINE:
        return form
    registers = machine.vector_registers or 16
    tiles = [_rows_for(form, vectors, registers) for vectors in (PIECE_VECTORS - 1, PIECE_VECTORS)]
    tiles = [one for one in tiles if one.rows and not (form.nontemporal and not is_past(one, machine))]
    return min(tiles, key=lambda one: one.scalar_tiles * one.rows, default=form)


def _rows_for(form: DirectForm, vectors: int, registers: int) -> DirectForm:
    """A tile of so many vectors that asks for the next piece, with equal parts of all rows, or with squares where it is
    turned; without rows if there are too few registers.
    """
    most = (registers - 1 - vectors) // vectors
    if form.results is Results.TURNED:
        rows = max((one for one in turned_rows(form.lanes[:vectors]) if one <= min(most, form.scalar_size)), default=0)
    else:
        rows = -(-form.scalar_size // -(-form.scalar_size // most)) if most > 0 else 0
    return replace(form, lanes=form.lanes[:vectors], rows=rows, in_runs=True)


def _with_hints(form: DirectForm, machine: Machine) -> DirectForm:
    """What is prefetched, and whether results go past the caches."""
    past = is_past(form, machine)
    far_vectors, far_rows, far_results = (
        level_of(array_bytes(form, side), machine) for side in ("vector", "scalar", "out")
    )
    waits = is_written_in_pieces(form, machine)
    if results_are_one_run(form):
        waits = form.contracted_total >= LEAST_SUM and far_results > 3
    piece = piece_of_sum(form, machine)
    if piece:  # where both orders of tiles find it in the second cache
        form = replace(form, scalar_outer=False)
    prefetched = far_vectors > 2 and vectors_are_asked(form) and _has_next_vectors(form) and not piece
    in_order = _lines_in_order(form, machine) if prefetched else 0
    return replace(
        form,
        nontemporal=past,
        prefetched=prefetched,
        in_runs=in_order > 0 or (prefetched and _can_ask_in_runs(form, machine)),
        run_lines=in_order,
        out_prefetched=waits and not past,
        rows_prefetched=far_rows > 2 and rows_are_asked(form),
        points_asked=points_are_asked(form, machine),
        piece=piece,
    )


def _has_next_vectors(form: DirectForm) -> bool:
    """There is a next tile of vectors to ask for; behind the only one of a row lies what the sum reads next anyway."""
    return form.collected is not None or form.vector_tiles > 1


def _lines_in_order(form: DirectForm, machine: Machine) -> int:
    """Lines of a long piece that each step asks for; 0 where so many would be too few, or one more too many: where
    steps of a whole row ask for less than 16 of 17 of its lines.
    """
    if not machine.pace.long_pieces or form.collected is None or len(form.contracted) != 1:
        return 0
    steps = form.vector_chunk * form.scalar_tiles
    each = max(1, form.row_lines // steps)
    return each if 16 * form.row_lines <= 17 * steps * each else 0


def _can_ask_in_runs(form: DirectForm, machine: Machine) -> bool:
    """Whether the memory gives what a step asks for in the time of its multiply-adds; else an even rate is faster
    (`adb,cd->cba` in f32 on a Zen 5: 196 GFLOP/s, where it was 109).
    """
    if form.collected is None or form.boxed or len(form.contracted) != 1:
        return False
    return form.lines_in_runs * LINE <= machine.pace.memory * len(form.lanes) * form.rows


def direct_forms(contraction: Contraction, machine: Machine) -> Iterator[DirectForm]:
    """Every direct form of a contraction that has any."""
    for placed in _placements(contraction, machine):
        for form in register_tiles(placed, machine):
            yield form
            yield from onward(form, machine)


def refusal(contraction: Contraction, machine: Machine) -> str:
    """Why the direct form does not compute such elements at all; empty if it does."""
    accumulator = contraction.accumulator
    elements = (contraction.left.element, contraction.right.element, contraction.out.element, accumulator)
    for element in elements:
        if element.is_complex:
            return f"elements of type {element} have two components, which only panels separate"
        if element == BOOL:
            return "bools are not computed in vectors"
    if 0 in (constant(one.size) for one in contraction.dimensions):
        return "a dimension is empty"
    if machine.lanes(component_types(accumulator)[0].bytes) == 1:
        return f"{machine.name} has no vector registers"
    functions = [contraction.map, contraction.combine]
    if contraction.epilogue is not None:
        functions.append(contraction.epilogue)
    elif compute_type(contraction.out.element) != component_types(accumulator)[0]:
        return f"sums of type {accumulator} are stored as {contraction.out.element}"
    if not is_vectorisable(functions):
        return "its functions have control flow, which vectors cannot follow"
    return ""


def _unplaced(contraction: Contraction) -> str:
    units = [one for one in contraction.dimensions if one.kind is not Kind.K and constant(one.stride_out) == 1]
    if not units:
        return "the output has no dimension of unit stride"
    if units[0].kind is Kind.C:
        return f"dimension {units[0].name}, which all arrays have, is not consecutive in each of them"
    for number, one in enumerate(contraction.epilogue_operands):
        if _along(contraction, number, units[0]) not in (0, 1):
            return f"further operand {one.operand.buffer} is not consecutive along dimension {units[0].name}"
    return "the sum is too long for the panels that its strides need"


# --- placements -------------------------------------------------------------------------------------------------------


def _placements(contraction: Contraction, machine: Machine) -> Iterator[DirectForm]:
    """Forms without a tile: which dimensions the vectors and the rows run along."""
    unit = [one for one in contraction.dimensions if one.kind is not Kind.K and constant(one.stride_out) == 1]
    if len(unit) != 1:
        return
    if any(_along(contraction, number, unit[0]) not in (0, 1) for number in range(len(contraction.epilogue_operands))):
        return
    is_complex = contraction.accumulator.is_complex
    if is_complex and unit[0].kind is Kind.C:
        return
    if unit[0].kind is Kind.C:
        yield from _elementwise(contraction, unit[0])
        return
    own = contraction.of_kind(unit[0].kind)
    other = contraction.of_kind(Kind.N if unit[0].kind is Kind.M else Kind.M)
    left = unit[0].kind is Kind.M
    for scalar in other or (None,):
        placed = place(contraction, left, unit[0], scalar, None, Results.VECTORS)
        yield from _with_panels(as_pairs(placed) if is_complex else placed)
    if contraction.epilogue is not None or is_complex:
        return
    from tilewright.passes.direct.collected_boxes import boxed  # with most of what writes such kernels

    for vector in other:
        if _stride(vector, not left) == 1:
            yield from _with_panels(place(contraction, not left, vector, unit[0], None, Results.TURNED))
    for vector in own:
        if vector != unit[0] and _stride(vector, left) == 1:
            for scalar in other or (None,):
                placed = place(contraction, left, vector, scalar, unit[0], Results.COLLECTED)
                yield from _with_panels(_fused(placed, [one for one in own if one != unit[0]]))
                for one in boxed(placed, machine.pace.box_run):
                    yield from _with_panels(_fused(one, [other for other in own if other in (one.vector, *one.outer)]))


def _fused(form: DirectForm, own: list[Dimension]) -> DirectForm:
    """The vectors run along all dimensions that are one in their operand."""
    chain = [form.vector]
    while True:
        run = _stride(chain[0], form.vector_left) * constant(chain[0].size)
        following = [one for one in own if one not in chain and _stride(one, form.vector_left) == run]
        if not following:
            break
        chain.insert(0, following[0])
    if len(chain) == 1:
        return form
    total = math.prod(constant(one.size) for one in chain)
    name = "*".join(one.name for one in chain)
    vector = replace(form.vector, name=name, size=size(total), stride_out=size(0))
    outer = tuple(one for one in form.outer if one not in chain)
    return replace(form, vector=vector, fused=tuple(chain), outer=outer)


def _elementwise(contraction: Contraction, unit: Dimension) -> Iterator[DirectForm]:
    """Vectors along a dimension of all arrays; the tile's two indices run along other dimensions of either side."""
    if not _stride(unit, True) == _stride(unit, False) == 1:
        return
    for columns in (None, *contraction.of_kind(Kind.M)):
        for scalar in (None, *contraction.of_kind(Kind.N)):
            form = place(contraction, True, unit, scalar, None, Results.VECTORS)
            outer = tuple(one for one in form.outer if one != columns)
            yield replace(form, columns=columns, outer=outer)


def _along(contraction: Contraction, number: int, dimension: Dimension) -> int:
    """The stride of a further operand along a dimension."""
    return constant(contraction.epilogue_operands[number].strides[contraction.dimensions.index(dimension)])


def _stride(dimension: Dimension, left: bool) -> int:
    return constant(dimension.stride(left))


def place(
    contraction: Contraction,
    left: bool,
    vector: Dimension,
    scalar: Dimension | None,
    collected: Dimension | None,
    results: Results,
) -> DirectForm:
    """The form of a placement, with a tile of one element: which operand's vectors (`left`) run along which dimension,
    the dimension of the rows, and that of collected results.
    """
    fused = is_multiply_add(contraction)
    used = {one.name for one in (vector, scalar, collected) if one is not None}
    outer = tuple(one for one in contraction.dimensions if one.kind is not Kind.K and one.name not in used)
    contracted = order_of_sum(contraction, left)
    return DirectForm(
        contraction, left, vector, scalar, collected, contracted, outer, (1,), 1, False, False, results, fused
    )


def order_of_sum(contraction: Contraction, left: bool) -> tuple[Dimension, ...]:
    """The contracted dimensions, outermost first, where vectors are read from the left operand, or from the right."""
    sums = contraction.of_kind(Kind.K)
    return tuple(sorted(sums, key=lambda one: (_stride(one, left) == 1, constant(one.size))))


def _with_panels(form: DirectForm) -> Iterator[DirectForm]:
    vector_choices = (False, True) if form.stride(form.vector, "vector") == 1 else (True,)
    for vector_packed in vector_choices:
        yield replace(form, vector_packed=vector_packed)
        if form.collected is None:
            for scalar_packed in (False, True):
                yield replace(form, vector_packed=vector_packed, scalar_packed=scalar_packed, scalar_outer=True)


def shared_out(form: DirectForm, cost: DirectCost, machine: Machine) -> DirectForm:
    """The tiles of one block: all of them, or a part for each core where there are few blocks otherwise."""
    outer = math.prod(form.blocks[:-2])
    together = form.vector_tiles if form.collected is None else form.vector_chunk
    form = replace(form, vector_chunk=together, scalar_chunk=1 if form.onward else form.scalar_tiles)
    if cost.cycles < SERIAL_CYCLES:
        return replace(form, serial=True)
    if machine.cores == 1 or form.collected is not None or form.onward:
        return form
    most = MOST_BLOCKS_PER_CORE * machine.cores // outer
    best, least = form, shared_time(outer, cost.cycles / outer, cost.cycles, machine.cores)
    for along_scalar, tiles in ((True, form.scalar_tiles), (False, form.vector_tiles)):
        again = _done_again(form, machine, along_scalar) + BLOCK_CYCLES
        parts = numbers_of_parts(most)
        chunks = {max(1, tiles // one) for one in parts} | {-(-tiles // one) for one in parts}
        for chunk in sorted(chunks, reverse=True):
            blocks = outer * -(-tiles // chunk)
            task = cost.cycles / outer * chunk / tiles + again
            time = shared_time(blocks, task, cost.cycles + blocks * again, machine.cores)
            if time < least:
                best = replace(form, scalar_chunk=chunk) if along_scalar else replace(form, vector_chunk=chunk)
                least = time
    return best


def _done_again(form: DirectForm, machine: Machine, along_scalar: bool) -> float:
    """Cycles that a side costs again in each part of the other one: where it is packed, and where it is read as a whole
    for each tile of the outer loop and does not stay in the second cache.
    """
    if along_scalar:
        columns = 1 if form.columns is None else form.column_size
        packed, extent, operand = form.vector_packed, form.vector_size * columns, form.vector_operand
    else:
        packed, extent, operand = form.scalar_packed, form.scalar_size, form.scalar_operand
    elements = form.contracted_total * extent
    if packed:
        return PACK_VECTOR * elements / form.lanes[0]
    nbytes = elements * operand.element.bytes
    stays = along_scalar == form.scalar_outer or nbytes <= machine.l2_bytes * 3 // 4
    return 0.0 if stays else nbytes / FAR_BYTES_PER_CYCLE


__all__ = ["choose_direct_form", "direct_cost", "direct_forms", "place", "refusal", "shared_out"]
