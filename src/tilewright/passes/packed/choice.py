"""The choice of the packed form: the sides' order, the register tile, the blocks, and where results wait."""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.scalars import BOOL, ScalarType
from tilewright.kernel.tiles import LANES, ROWS
from tilewright.machine.model import Machine
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.items.sum_trees import FAN, PIECE, grows_errors
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.passes.packed.blocks import (
    BLOCK,
    LINE,
    PACK_VECTOR,
    USUAL_L1,
    choose_chunks,
    even,
    is_past_caches,
    level_of,
    lines_stay,
    longest_piece,
    panel_bytes,
    room_for_vectors,
    shorter_piece,
    steps_apart,
)
from tilewright.passes.packed.boxes import with_boxes
from tilewright.passes.packed.dots import Dots, choose_dots, choose_tiles
from tilewright.passes.packed.form import (
    BUFFERED_ELEMENTS,
    PackedForm,
    SideDimension,
    holds_partial_sums,
    is_multiply_add,
    is_written_by_blocks,
    rows_are_scattered,
    rows_suit,
    run_of_rows,
    tiles_lie_there,
)
from tilewright.passes.packed.operands import with_conversions_in_packing
from tilewright.passes.packed.register_shape import (
    MOST_VECTORS,
    PastCaches,
    register_shape,
    run_of_operand,
    run_of_results,
)
from tilewright.passes.packed.tiles import shape_in_tiles

LONGEST_PIECE = 1024
"""Steps of the sum that are packed at once at most, where the errors of their results add up. Pieces of longer sums
whose results stay in the first cache are those of all trees (`PIECE`), since adding to them there costs nothing.
"""
USUAL_PIECE = 256  # steps of those of longer sums, about
LONGEST_ROW, LONGEST_WAITING_ROW = 2048, 8192
"""Bytes of a row of tiles, as a rule and where partial sums would wait in scratch memory."""
MANY_COLUMNS = 1024
"""Beyond which packing rows of tiles pays, if the first cache does not hold as many of them where they lie."""
WAITING_ELEMENTS = 1 << 22  # of a level of partial sums: 2048 by 2048 results are packed for at once
COPIED_WORD = 0.5  # cycles to pack four bytes of the scalar side
LEAST_RUN = 128  # steps of a row of the scalar side that are read in place as a piece of a sum over several dimensions
ADDED_TILE = 50.0  # cycles that a register tile takes more for each piece of the sum, beside its vectors

STRIP = 5 / 12  # of the first cache, where strips of the scalar side stay while stores past the caches pass

LONG_RUN = 4  # register tiles of a run of the output, which are written one after the other past the caches
LEAST_SUMS = 8  # of a register tile, of which fewer wait for their own multiply-adds
FEW_ROWS = 2  # of a register tile
LEAST_PANELS = 4  # of vectors in a block of such tiles
LEAST_LANES = 4
"""Of vectors of complex numbers, which are halved as long as one holds the whole side: what is packed, multiplied and
masked beyond it is for nothing.
"""


def make_packed_form(contraction: Contraction, machine: Machine) -> PackedForm:
    """The form of a normalised contraction with known sizes."""
    form = _plain_form(contraction, machine)
    if not form.nontemporal or form.in_halves:
        return form
    results = _past_caches(form)
    in_parts = form.lanes > 1 and results.in_parts
    if in_parts and results.joins_rows:
        joined = _plain_form(contraction, machine, results)
        if results.suits(joined.vectors, joined.rows) and joined.vectors * joined.rows >= LEAST_SUMS:
            return joined
    boxed = with_boxes(form, machine)
    if boxed.boxes is not None or not in_parts:
        return boxed
    if _leaves_lines(form) or not results.suits(results.granule, min(2, form.rows)):
        return _plain_form(contraction, machine, past=False)
    form = _plain_form(contraction, machine, results)
    return form if form.rows > FEW_ROWS or form.scalar_inner else _with_vectors_near(form, machine)


def _past_caches(form: PackedForm) -> PastCaches:
    """How the rows of a form's register tiles lie in the output."""
    width = form.contraction.out.element.bytes
    apart = abs(form.scalar_dimensions[-1].stride_out) if form.scalar_dimensions else 0
    run = run_of_results(form.vector_dimensions, form.scalar_dimensions, LINE // width)
    return PastCaches(form.lanes * width, apart * width, run.elements * width, run.rows, run.of)


def _leaves_lines(form: PackedForm) -> bool:
    """Whether register tiles write parts of cache lines that others complete after all rows have passed by. Past the
    caches each part is written by itself (`cda,db->cba` of runs of 200 f32 on a Zen 3 76 GFLOP/s, through them 84).
    Parts of lines that rows have together are soon complete.
    """
    contraction = form.contraction
    width = contraction.out.element.bytes
    strides = [abs(constant(one.stride_out)) * width for one in contraction.dimensions if constant(one.size) > 1]
    return form.scalar_inner and any(one % LINE and LINE % one for one in strides)


def _with_vectors_near(form: PackedForm, machine: Machine) -> PackedForm:
    """The form with as many panels of vectors in a block as the first cache holds: few rows take too little time for
    them to come from the second one (16 x 4096 by 4096 x 16 f64 for each of 16, with 16 terms, on a Zen 3 33, then 38).
    """
    step_bytes = form.pitch * sum(one.bytes for one in component_types(form.accumulator))
    most = (machine.l1_bytes or USUAL_L1) // 2 // step_bytes
    if most < LEAST_PANELS * form.vector_tile:
        return form
    return replace(form, vector_block=min(form.vector_block, even(form.vector_block, most, form.vector_tile)))


def _plain_form(
    contraction: Contraction, machine: Machine, goes_past: PastCaches | None = None, past: bool = True
) -> PackedForm:
    """The form before results are assembled, with register tiles for results that go past the caches so; `past`
    allows them to go there at all.
    """
    contraction = with_conversions_in_packing(contraction)
    vector_left = _vector_side_is_left(contraction)
    vector = side_of(contraction, Kind.M if vector_left else Kind.N, vector_left)
    scalar = side_of(contraction, Kind.N if vector_left else Kind.M, not vector_left)
    accumulator = contraction.accumulator
    vector_total = math.prod(one.size for one in vector)
    lanes = _lanes(contraction, machine, accumulator)
    while accumulator.is_complex and lanes >= 2 * max(vector_total, LEAST_LANES):
        lanes //= 2
    scalar_total = math.prod(one.size for one in scalar)
    scalar_rows = lanes > 1 and _sum_is_contiguous(contraction, scalar, vector_left)
    totals, parts = (vector_total, scalar_total), component_types(accumulator)
    line = LINE // contraction.out.element.bytes
    contracted = math.prod(constant(one.size) for one in contraction.of_kind(Kind.K))
    near = _keeps_vectors_near(contraction, contracted, machine)
    dots = choose_dots(contraction, vector_left, machine) if lanes > 1 else None
    results, run = run_of_results(vector, scalar, line), 0 if scalar_rows else run_of_operand(scalar)
    usual = min(contracted, USUAL_PIECE)
    vectors, rows = register_shape(machine, lanes, len(parts), totals, results, run, usual, near, goes_past)
    in_tiles = _tiles(contraction, vector_left, totals, lanes, machine)
    if in_tiles is not None:
        dots, (vectors, rows) = in_tiles
    together = 1 if dots is None else dots.together
    element_bytes = len(parts) * parts[0].bytes // together
    tile = vectors * lanes
    longest = longest_piece(machine, tile, rows, element_bytes)
    few = vector_total * scalar_total * element_bytes <= (machine.l1_bytes or USUAL_L1) // 2
    if few and contracted > LONGEST_PIECE:
        longest = min(longest, PIECE)
    depth = _depth(contraction, contracted, lanes * together, longest)
    memory = panel_bytes(machine)
    far, scalar_far = (_is_far(contraction, left, machine) for left in (vector_left, not vector_left))
    if in_tiles is not None:
        depth = _depth_in_tiles(contraction, contracted, element_bytes)
    elif far and depth < contracted and holds_partial_sums(contraction):
        sides = tile * element_bytes, min(BLOCK, scalar_total) * element_bytes
        depth = shorter_piece(contracted, depth, lanes * together, *sides, memory[0])
    run = run_of_rows(contraction, vector_left) if scalar_rows and dots is None else 0
    if LEAST_RUN <= run < depth and rows_suit(contraction, scalar, vector_left, rows, run, machine):
        tiles = -(-vector_total // tile) * -(-scalar_total // rows)
        added = tiles * (vectors * rows + ADDED_TILE) * (contracted // run - contracted // depth)
        copied = COPIED_WORD * element_bytes / 4 * scalar_total * contracted
        depth = run if machine.pace.other * added < machine.pace.packing * copied else depth
    batch = math.prod(constant(one.size) for one in contraction.of_kind(Kind.C))
    tiles_in_place = in_tiles is not None and scalar_rows and tiles_lie_there(contraction, scalar, vector_left, depth)
    apart = scalar[-1].stride * contraction.operand(not vector_left).element.bytes if scalar else 0
    stay = lines_stay(rows, apart, machine)
    tiles_in_place = tiles_in_place and (stay or vector_total <= MANY_COLUMNS)
    speed = ROWS * LANES / machine.pace.tile if in_tiles else 1.0
    levels = _levels(contraction, -(-contracted // depth))
    rows_in_place = scalar_rows and dots is None and rows_suit(contraction, scalar, vector_left, rows, depth, machine)
    kept = scalar_total * contracted * element_bytes <= machine.l3_bytes // 4  # else each part waits for memory again
    in_place = kept and (tiles_in_place or rows_in_place)
    packing = machine.pace.packed_far if far or scalar_far else PACK_VECTOR
    units = (tile, rows)
    chunks = choose_chunks(machine.cores, batch, totals, units, lanes, contracted, levels < 2, speed, in_place, packing)
    steps, wide_bytes = -(-max(1, min(depth, contracted)) // together), element_bytes * together
    step_bytes = max(1, min(depth, contracted)) * element_bytes
    step_bytes += (steps_apart(steps, tile * wide_bytes) - steps) * wide_bytes  # room for it; see PackedForm.pitch
    if in_tiles is not None:
        step_bytes = -(-step_bytes // LINE) * LINE
    scalar_block = even(chunks[1], min(BLOCK, memory[1] // step_bytes), rows)
    if levels > 1:
        chunks = even(chunks[0], WAITING_ELEMENTS // scalar_block, tile), chunks[1]
    part = machine.pace.block if in_tiles is None else 1.0
    room = room_for_vectors(memory[0], scalar_block * step_bytes, part) if far else int(part * memory[0])
    vector_block = even(chunks[0] if levels > 1 else vector_total, min(BLOCK, room // step_bytes), tile)
    if levels == 1:
        scalar_block = even(chunks[1], min(scalar_block, 2 * BUFFERED_ELEMENTS // (vector_block + lanes)), rows)
    buffered = (
        depth >= contracted
        and is_written_by_blocks(vector)
        and (vector_block + lanes) * scalar_block <= 2 * BUFFERED_ELEMENTS
    )
    is_written_once = depth >= contracted and not buffered and in_tiles is None
    is_far = is_written_once and is_past_caches(_output_bytes(contraction), machine)
    past = past and is_far and not contraction.updates
    stays = 2 * memory[0] if past else memory[0]
    scattered = past and rows_are_scattered(contraction, scalar, vector_left)
    out_bytes = contraction.out.element.bytes
    is_inner = _scalar_side_is_inner(vector, scalar, step_bytes * scalar_block <= stays)
    is_inner = is_inner and not (past and _shares_channels(vector, scalar, tile, out_bytes, machine.pace.channels))
    is_inner = is_inner and (goes_past is None or goes_past.run < LONG_RUN * tile * out_bytes)
    is_inner = (past and near) or is_inner
    in_strips = past and is_inner and machine.pace.shares_buffers
    return PackedForm(
        contraction=contraction,
        vector_left=vector_left,
        vector_dimensions=vector,
        scalar_dimensions=scalar,
        lanes=lanes,
        vectors=vectors,
        rows=rows,
        vector_block=vector_block,
        scalar_block=scalar_block,
        depth=depth,
        fused_multiply_add=is_multiply_add(contraction),
        scalar_inner=is_inner,
        buffered=buffered,
        nontemporal=past,
        through_caches=is_far and not past,
        asked_rows=machine.pace.asked_rows,
        scalar_rows=scalar_rows,
        vector_chunk=chunks[0],
        scalar_chunk=chunks[1],
        panel_bytes=memory,
        levels=levels,
        fan=FAN,
        far=far,
        scalar_far=scalar_far,
        asks_ahead=machine.pace.asks_third or _is_worth_asking(contraction, machine),
        scalar_in_place=rows_in_place and not scattered,
        tiles_in_place=tiles_in_place,
        strip=_strip(step_bytes, scalar_block, (tile, rows), machine) if in_strips else 0,
        part=_part(depth * element_bytes, rows, machine) if in_tiles and (stay or not tiles_in_place) else 0,
        dots=dots,
    )


def _is_worth_asking(contraction: Contraction, machine: Machine) -> bool:
    """Whether packing asks ahead for main memory, on machines whose own prefetchers bring what the third cache holds.

    They bring the two operands of a matrix product from main memory as well: products of 1500 x 1500 and 2048 x 2048,
    either operand transposed or not, are 0.95 to 1.13 times as fast on a Granite Rapids without requests (1.05 in the
    mean); contractions of more dimensions 0.81 to 1.10 times (0.95).
    """
    dimensions = {kind: len(contraction.of_kind(kind)) for kind in Kind}
    is_matrix_product = dimensions == {Kind.C: 0, Kind.M: 1, Kind.N: 1, Kind.K: 1}
    return level_of(_bytes(contraction), machine) > 3 and not is_matrix_product


def _keeps_vectors_near(contraction: Contraction, contracted: int, machine: Machine) -> bool:
    """Whether the rows of the scalar side pass by while a panel of the vector side stays in the first cache: where
    results go past the caches, misses of it would take the buffers that these stores wait in.
    """
    panel = contracted * MOST_VECTORS * machine.vector_bytes
    goes_past = is_past_caches(_output_bytes(contraction), machine)
    return machine.pace.shares_buffers and goes_past and 2 * panel <= machine.l1_bytes


def _strip(step_bytes: int, block: int, tile: tuple[int, int], machine: Machine) -> int:
    """Panels of the scalar side, of `block` elements of so many bytes, that the first cache holds beside one of the
    vector side; 0 if it holds all of them, or not even the latter.
    """
    room = int(STRIP * machine.l1_bytes)
    if tile[0] * step_bytes > room or block * step_bytes <= room:
        return 0
    panels = -(-block // tile[1])
    return even(panels, room // (tile[1] * step_bytes), 1)


def _is_far(contraction: Contraction, left: bool, machine: Machine) -> bool:
    operand = contraction.operand(left)
    return _elements(contraction, Kind.N if left else Kind.M) * operand.element.bytes > machine.l2_bytes


def _sum_is_contiguous(contraction: Contraction, scalar: tuple[SideDimension, ...], vector_left: bool) -> bool:
    """True if the scalar side's operand has its unit stride along the sum."""
    along = [abs(constant(d.stride(left=not vector_left))) for d in contraction.of_kind(Kind.K)]
    return 1 in along and all(abs(one.stride) != 1 for one in scalar)


def _bytes(contraction: Contraction) -> int:
    left, right = (_elements(contraction, missing) for missing in (Kind.N, Kind.M))
    nbytes = left * contraction.left.element.bytes + right * contraction.right.element.bytes
    return nbytes + _output_bytes(contraction)


def _output_bytes(contraction: Contraction) -> int:
    return _elements(contraction, Kind.K) * contraction.out.element.bytes


def _vector_side_is_left(contraction: Contraction) -> bool:
    """True if the output's innermost dimension of a side belongs to the left operand."""
    sides = [one for one in contraction.dimensions if one.kind in (Kind.M, Kind.N)]
    if not sides:
        return True
    return min(sides, key=lambda one: abs(constant(one.stride_out))).kind is Kind.M


def side_of(contraction: Contraction, kind: Kind, left: bool) -> tuple[SideDimension, ...]:
    """A side's dimensions, outermost first. Innermost is the unit stride of the larger array, be it the operand (then
    packing reads whole vectors) or the output (then whole vectors are written); next to it the other array's, so that
    a block of the side covers whole cache lines of both.
    """
    positions = {one.name: place for place, one in enumerate(contraction.dimensions)}
    members = [
        SideDimension(
            one,
            constant(one.size),
            constant(one.stride(left)),
            constant(one.stride_out),
            tuple(constant(further.strides[positions[one.name]]) for further in contraction.epilogue_operands),
        )
        for one in contraction.of_kind(kind)
    ]
    members.sort(key=lambda one: -abs(one.stride_out))
    if len(members) > 1:
        own = min(members, key=lambda one: abs(one.stride))
        contracted = [abs(constant(d.stride(left))) for d in contraction.of_kind(Kind.K)]
        operand, out = _elements(contraction, Kind.N if left else Kind.M), _elements(contraction, Kind.K)
        leads = operand >= out and abs(own.stride) < min(contracted)
        if 4 * operand > out:
            members.remove(own)
            members.insert(len(members) if leads or own.stride_out == 1 else len(members) - 1, own)
    return tuple(members)


def _scalar_side_is_inner(
    vector: tuple[SideDimension, ...], scalar: tuple[SideDimension, ...], stays_in_l2: bool
) -> bool:
    """True if the output moves in smaller strides along the scalar side, and that side's panels stay in L2."""
    along_scalar = min((abs(one.stride_out) for one in scalar), default=0)
    along_vector = min((abs(one.stride_out) for one in vector[:-1]), default=0)
    return along_scalar < along_vector and stays_in_l2


def _shares_channels(
    vector: tuple[SideDimension, ...], scalar: tuple[SideDimension, ...], tile: int, element_bytes: int, channels: float
) -> bool:
    """True if register tiles that follow each other along the scalar side would write parts of runs which begin a power
    of two apart: such parts are in few of the memory's channels.
    """
    apart = min((abs(one.stride_out) for one in scalar), default=0) * element_bytes
    parts = bool(vector) and vector[-1].stride_out == 1 and vector[-1].size >= 2 * tile
    return parts and apart >= channels and apart & (apart - 1) == 0


def _elements(contraction: Contraction, missing: Kind) -> int:
    """Elements of the array that lacks the dimensions of one kind."""
    return math.prod(constant(one.size) for one in contraction.dimensions if one.kind is not missing)


def _lanes(contraction: Contraction, machine: Machine, accumulator: ScalarType) -> int:
    """Lanes of a vector of the accumulator; of what the map takes, where the accumulator is one bool."""
    functions = (contraction.map, contraction.combine)
    if not is_vectorisable(functions):
        return 1
    deciding = {accumulator, *(one.type.element for one in contraction.map.parameters if accumulator == BOOL)}
    return machine.lanes(max(component_types(one)[0].bytes for one in deciding))


def _tiles(
    contraction: Contraction, vector_left: bool, totals: tuple[int, int], lanes: int, machine: Machine
) -> tuple[Dots, tuple[int, int]] | None:
    """The instruction on tiles and the register tile (vectors, rows) for it, if it takes less time than instructions on
    vectors: of few rows, or of a sum of few steps, most of a tile would be padding.
    """
    tiles = choose_tiles(contraction, vector_left, machine) if lanes == LANES else None
    if tiles is None:
        return None
    contracted = math.prod(constant(one.size) for one in contraction.of_kind(Kind.K))
    dots = choose_dots(contraction, vector_left, machine)
    steps = -(-contracted // (1 if dots is None else dots.together))
    time, shape = shape_in_tiles(totals, -(-contracted // tiles.together), machine)
    return (tiles, shape) if time < -(-totals[0] // lanes) * totals[1] * steps else None


def _depth(contraction: Contraction, contracted: int, lanes: int, longest: int) -> int:
    """Length of the sum that is packed at once, of whole `lanes`: all of a sum of middle length that cannot wait in the
    output, and no chain of additions longer than that.
    """
    if not holds_partial_sums(contraction) and contracted <= LONGEST_PIECE:
        longest = LONGEST_PIECE
    elif grows_errors(contraction.combine):
        longest = min(longest, LONGEST_PIECE)
    return even(contracted, longest, lanes)


def _depth_in_tiles(contraction: Contraction, contracted: int, element_bytes: int) -> int:
    """The same where sums are in tiles, whose instructions add up 16 steps in a tree of their own: what adding partial
    sums costs, and how long rows may be that come from the second cache, decides.
    """
    nbytes = contracted * element_bytes
    waits = not holds_partial_sums(contraction) and nbytes <= LONGEST_WAITING_ROW
    return even(contracted, (LONGEST_WAITING_ROW if waits else LONGEST_ROW) // element_bytes, LINE // element_bytes)


def _part(nbytes: int, rows: int, machine: Machine) -> int:
    """Tiles along a row of so many bytes for which a register tile's rows fill two thirds of the first cache; 0 if all
    do, or nearly.
    """
    tiles, most = -(-nbytes // LINE), max(1, (machine.l1_bytes or USUAL_L1) * 2 // 3 // (rows * LINE))
    return 0 if tiles <= most * 5 // 4 else even(tiles, most, 1)


def _levels(contraction: Contraction, pieces: int) -> int:
    """Levels of partial sums in scratch memory, for a sum of so many pieces."""
    levels = 0 if pieces <= 1 or holds_partial_sums(contraction) else 1
    if pieces > FAN and grows_errors(contraction.combine):
        levels = 2
        while FAN**levels < pieces:
            levels += 1
    return levels
