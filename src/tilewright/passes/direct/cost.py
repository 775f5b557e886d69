"""What a direct form costs: a model of cycles and of memory traffic.

The model counts in the time that it takes to start a multiply-add of whole vectors, a cycle or half of one; what else
cores do meanwhile is their `Pace` (machine/paces.py). Constants here, called cycles, are a Zen 4's, which starts one.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.contraction.form import Operand
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BF16, F16, ScalarType
from tilewright.machine.model import Machine
from tilewright.machine.paces import Pace
from tilewright.passes.direct.form import LINE, DirectForm, Results, rows_are_one_run
from tilewright.passes.direct.past_caches import array_bytes, is_past
from tilewright.passes.direct.points import SIDES, has_next_point, point_bytes, points_are_asked
from tilewright.passes.direct.traffic import FAR_PIECE, read_once, written_once
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.items.sum_trees import PIECE, grows_errors, levels_of, tree_loops
from tilewright.passes.packed.blocks import consecutive, level_of, lines_stay, sets_of
from tilewright.passes.packed.combine import nan_guard

TILE_CYCLES = 8  # loops and addresses of one tile
TAIL_CYCLES = 25  # to go on with a narrower last tile: squares of 64 and 128 gain nothing by it
BLOCK_CYCLES = 10  # to find where the arrays of a point of the outer dimensions begin, and its loops
COPIED_VECTOR, TURNED_VECTOR, GATHERED_ELEMENT, COPIED_SCALAR = 6.0, 25.0, 2.0, 1.7  # cycles to put into a panel
STORED_VECTOR = {Results.VECTORS: 1.0, Results.TURNED: 5.0, Results.COLLECTED: 7.0}
BOXED_VECTOR, FAR_BOXED_VECTOR = 8.0, 25.0  # more for one that goes through a box: in the second cache, or beyond it
WIDENED = {F16: 3.0, BF16: 1.0}  # measured on a Zen 5: squares of 64 and 128, beside those of f32
TURNED_PAIRS = 1.0  # cycles to exchange the parts of a vector of complex numbers, and to negate one
STRAY_ROWS, STRAY_PANEL = 0.5, 0.3  # of what vectors take in place: rows along a side, and vectors of a panel
SUMMED_VECTOR = 4.0  # cycles to add a vector of sums to those of the next level of a tree
FORESEEN_STEP = 1024  # bytes
FEW_SUMS = 8  # of a tile whose multiply-adds hide no miss of the first cache: 8 rows of one vector
COLLECTED_LOADS = 0.5  # share of the time that loading vectors of collected results takes from what fills the caches
LOADS_BY_POINTS = 0.2  # the same of vectors that were asked for with the last point
CROWDED_STRIP = 26.0  # times as long as reading it, for a strip as long as the second cache (half of it counts)
PAGE = 4096  # bytes of memory that are open together
OPEN_PAGES = 8  # of them that stay open at the same time: six rows are as fast as neighbours are, 14 are not
NEAR_PIECE = 20.0  # of the third cache, where steps of the sum are far apart
WRITTEN_PIECE = 20.0  # of an output, while stores wait in a queue
PAST_PIECE, FAR_PAST_PIECE = 18.0, 54.0  # past the caches: on a page that is open, or on another one


@dataclass(frozen=True)
class DirectCost:
    """Cycles of one core: arithmetic with the stores, packing, the memory for what is read once or written through the
    caches and for what is written past them, and waiting for what is read again or is written in pieces.
    """

    compute: float
    packing: float
    memory: float
    past: float
    again: float

    @property
    def cycles(self) -> float:
        """Prefetching hides most of the shorter behind the longer, and half of what is read again; nothing waits for
        what is written past the caches, as long as the memory keeps up.
        """
        return max(self.work, self.memory + self.past) + 0.2 * min(self.work, self.memory) + 0.5 * self.again

    @property
    def work(self) -> float:
        """What the core does itself."""
        return self.compute + self.packing


def direct_cost(form: DirectForm, machine: Machine, compute: float | None = None) -> DirectCost:
    """What a form costs on one core; `compute` are its `compute_cycles`, where they are known."""
    cost = _cost(form, machine, compute)
    times = 1.0 if form.collected is None else machine.pace.collected
    return cost if times == 1 else DirectCost(*(times * one for one in vars(cost).values()))


def _cost(form: DirectForm, machine: Machine, compute: float | None) -> DirectCost:
    outer, pace, past = _rounds(form), machine.pace, is_past(form, machine)
    if compute is None:
        compute = compute_cycles(form, machine)
    memory, again = _read_once(form, machine), _memory_again(form, machine)
    out, others = array_bytes(form, "out"), array_bytes(form, "vector") + array_bytes(form, "scalar")
    packing = _packing(form, outer, pace) + _waiting_for_panels(form, machine)
    through = _through_second_cache(form, machine) * outer * form.column_tiles * form.scalar_tiles
    memory, again = memory + through, again + through * _crowding(form, machine)
    writing, pieces = written_once(out, others, past, machine), _pieces_written(form, machine)
    if past:
        # The busier the memory is, the more pieces disturb it.
        busy = min(1.0, (memory + writing) / (compute + packing))
        return DirectCost(compute, packing, memory, writing, again + busy * pieces)
    return DirectCost(compute, packing, memory + writing, 0.0, again + pieces)


def _rounds(form: DirectForm) -> int:
    """How often the tiles of an output are gone over."""
    further = (one.size for one in (form.collected, form.joined) if one is not None)
    return math.prod(constant(size) for size in (*(one.size for one in form.outer), *further))


def compute_cycles(form: DirectForm, machine: Machine) -> float:
    """Cycles of the arithmetic with the stores; a form takes no fewer in all."""
    pace, past = machine.pace, is_past(form, machine)
    row_of_tiles = form.fitting_tiles * _tile_cycles(form, machine)
    if form.tail != form.lanes and not past:  # tiles that are written past the caches begin with its lines instead
        row_of_tiles += _tile_cycles(replace(form, lanes=form.tail), machine) - row_of_tiles / form.fitting_tiles
        row_of_tiles += pace.other * TAIL_CYCLES
    points = math.prod(constant(one.size) for one in form.outer)
    tiles = _rounds(form) * form.column_tiles * form.scalar_tiles
    return tiles * row_of_tiles + points * pace.other * BLOCK_CYCLES


def _tile_cycles(form: DirectForm, machine: Machine) -> float:
    """A register tile: its multiply-adds, or what they wait for, and the stores."""
    widest = machine.lanes(component_types(form.accumulator)[0].bytes)
    pace = machine.pace
    wide = sum(max(lanes / widest, pace.narrow) for lanes in form.lanes[: form.own_vectors])
    if form.shared_rows > 1:
        wide += max(form.shared_rows * form.lanes[-1] / widest, pace.narrow) / form.shared_rows
        wide += pace.mixed * math.log2(form.shared_rows)
    each_row = pace.element_load
    if form.elementwise:
        each_row = pace.vector_load * (len(form.lanes) if form.columns is None else 1)
    loads = _vector_loads(form, machine) + form.rows * form.parts * each_row
    step = max(wide * form.rows * form.parts, pace.chain * form.parts, loads)
    step += (form.parts - 1) * TURNED_PAIRS * len(form.lanes)
    if not form.fused_multiply_add:
        # min and max of floats take more than one instruction, unless panels are known to make no nan.
        instructions = 2 if nan_guard(form.contraction) is None else 4
        step = max(instructions * wide * form.rows, pace.chain)
    step += pace.hidden_load * (len(form.lanes) + form.rows * form.parts)
    step += pace.stray * _strays(form, machine)
    step += _widened(form.vector_operand, form.accumulator) * len(form.lanes)
    step += _widened(form.scalar_operand, form.accumulator) * form.rows
    sums = len(form.lanes) * form.rows
    waits = pace.stored(sums, form.contracted_total) - sums if form.results is Results.VECTORS else 0.0
    stores = _stored_vector(form, machine) * sums + waits
    loops = tree_loops([constant(one.size) for one in form.contracted])
    if levels_of(loops) and grows_errors(form.contraction.combine):
        stores += SUMMED_VECTOR * sums * -(-form.contracted_total // PIECE)
    return form.contracted_total * step + pace.other * (stores + TILE_CYCLES)


def _strays(form: DirectForm, machine: Machine) -> float:
    """Vectors that each step reads in the second cache, on another page than the last ones."""
    vector_level, scalar_level = _levels_again(form, machine)
    in_place = not (form.scalar_packed or form.elementwise or _is_foreseen(form, "scalar"))
    strays = STRAY_ROWS if in_place and scalar_level == 2 else 0.0
    if vector_level == 2 and form.collected is None:
        strays += STRAY_PANEL if form.vector_packed else float(not _is_foreseen(form, "vector"))
    return strays


def _widened(operand: Operand, accumulator: ScalarType) -> float:
    """Cycles to widen a vector, or an element for all lanes, which is done each time that it is read."""
    return 0.0 if accumulator == operand.element else WIDENED.get(operand.element, 0.0)


def _stored_vector(form: DirectForm, machine: Machine) -> float:
    if not form.boxed:
        return STORED_VECTOR[form.results]
    near = level_of(form.box_elements * form.contraction.out.element.bytes, machine) <= 2
    return STORED_VECTOR[form.results] + (BOXED_VECTOR if near else FAR_BOXED_VECTOR)


def _packing(form: DirectForm, outer: int, pace: Pace) -> float:
    steps, cycles = form.contracted_total, 0.0
    if form.scalar_packed:
        cycles += pace.other * COPIED_SCALAR * outer * form.scalar_tiles * steps * form.rows * form.parts
    if form.vector_packed:
        vectors = form.pitch // form.lanes[0]
        if form.stride(form.vector, "vector") == 1:
            each = pace.panels * COPIED_VECTOR
        elif form.step("vector") == form.parts:  # in squares, of which short runs fill a part
            extent, side = constant(form.contracted[-1].size), form.lanes[0] // form.parts
            each = pace.panels * TURNED_VECTOR * -(-extent // side) * side / extent
        else:
            each = pace.gathered * GATHERED_ELEMENT * form.lanes[0] / form.parts
        times = (
            outer * form.fitting_tiles * (form.scalar_tiles if form.onward else 1)
        )  # each block has one tile of rows
        cycles += each * times * steps * vectors
        if not form.all_vectors_packed:
            cycles += pace.panel_wait * times
    return cycles


def _waiting_for_panels(form: DirectForm, machine: Machine) -> float:
    """Cycles in which copies into panels wait for main memory: nothing asks for the next panel, and where few misses
    have buffers the core itself does not look so far ahead.
    """
    size = array_bytes(form, "vector")
    waits = form.vector_packed and machine.pace.shares_buffers and level_of(size, machine) == 4
    return size / machine.pace.memory if waits else 0.0


def _read_once(form: DirectForm, machine: Machine) -> float:
    """Cycles to read either operand once, from the memory where all of them fit."""
    sides = SIDES[:2]
    sizes = (array_bytes(form, "vector"), array_bytes(form, "scalar"))
    by_points = [points_are_asked(form, machine) and has_next_point(form, side) for side in sides]
    vector, scalar = (
        point_bytes(form, side) if whole else _run(form, side) for side, whole in zip(sides, by_points, strict=True)
    )
    vectors_asked = vectors_are_asked(form) and _requests_stay(form, machine)
    asked, out = (vectors_asked or by_points[0], rows_are_asked(form) or by_points[1]), array_bytes(form, "out")
    foreseen = (_is_foreseen(form, "vector"), _is_foreseen(form, "scalar"))
    return read_once(sizes, (vector, scalar), out, machine, asked, foreseen)


def _requests_stay(form: DirectForm, machine: Machine) -> bool:
    """Whether the second cache holds what a tile reads of the vector side and asks for until the next one reads it."""
    return level_of(2 * form.contracted_total * sum(form.lanes) * form.vector_operand.element.bytes, machine) <= 2


def _is_foreseen(form: DirectForm, side: str) -> bool:
    """The steps of a tile's sum are so near each other that the processor's prefetchers follow them."""
    operand = form.vector_operand if side == "vector" else form.scalar_operand
    return abs(form.step(side)) * operand.element.bytes <= FORESEEN_STEP


def _pieces_written(form: DirectForm, machine: Machine) -> float:
    """Cycles that pieces of an output in main memory take: stores wait in a queue, where they disturb less."""
    out = array_bytes(form, "out")
    if level_of(array_bytes(form, "vector") + array_bytes(form, "scalar") + out, machine) < 4:
        return 0.0
    cycles = out / _written_together(form) * _piece_cycles(form, machine)
    if _goes_on(form, machine):
        row = consecutive([(form.stride(form.vector, "out"), form.vector_size)]) * form.contraction.out.element.bytes
        cycles -= (1 - machine.pace.going_on) * max(0.0, cycles - out / row * PAST_PIECE)
    return cycles * machine.pace.pieces


def _goes_on(form: DirectForm, machine: Machine) -> bool:
    """Whether tiles go on along rows that are written past the caches, with vectors out of panels: neighbours, or so
    few that the page of each stays open.
    """
    stay_open = form.rows <= OPEN_PAGES or _rows_share_pages(form)
    return form.scalar_outer and form.vector_packed and is_past(form, machine) and stay_open


def _piece_cycles(form: DirectForm, machine: Machine) -> float:
    if not is_past(form, machine):
        return WRITTEN_PIECE
    # The next tile goes on with the same pages of the memory.
    in_lines = form.collected is not None and not form.boxed
    return PAST_PIECE if form.scalar_outer or in_lines or _rows_share_pages(form) else FAR_PAST_PIECE


def _rows_share_pages(form: DirectForm) -> bool:
    """Whether neighbouring rows of the output begin on one page of the memory."""
    step = 0 if form.scalar is None else abs(form.stride(form.scalar, "out")) * form.contraction.out.element.bytes
    return step < PAGE


def vectors_are_asked(form: DirectForm) -> bool:
    """The next tile's vectors can be asked for while this one is computed."""
    return not form.vector_packed and (form.collected is not None or not form.scalar_outer)


def rows_are_asked(form: DirectForm) -> bool:
    """So can its rows, along which the sum runs."""
    along = len(form.contracted) == 1 and form.stride(form.contracted[0], "scalar") == form.parts
    own = form.vector_tiles == 1 or form.onward or (form.scalar_outer and rows_are_one_run(form))
    return along and own and not (form.scalar_packed or form.elementwise)


def _memory_again(form: DirectForm, machine: Machine) -> float:
    """Cycles for what tiles of the other side, and outer dimensions that an operand does not have, read again, from
    where it stayed meanwhile.
    """
    vector, scalar = array_bytes(form, "vector"), array_bytes(form, "scalar")
    vector_level, scalar_level = _levels_again(form, machine)
    vector_times, scalar_times = _outer_times(form, "vector"), _outer_times(form, "scalar")
    cycles = vector_times * (form.scalar_tiles - 1) * vector * _byte_again(form, "vector", vector_level, machine.pace)
    if _goes_on(form, machine) and vector_level == 2:
        cycles *= machine.pace.panels_again
    waits = machine.pace.again / machine.pace.again_past if is_past(form, machine) else 1.0
    if vector_level == 2:
        cycles *= waits
    tiles = form.column_tiles if form.elementwise else form.vector_tiles
    rows = scalar_times * (tiles - 1) * scalar * _byte_again(form, "scalar", scalar_level, machine.pace)
    cycles += rows * waits if scalar_level == 2 else rows
    for times, size in ((vector_times, vector), (scalar_times, scalar)):
        level = level_of(size, machine)
        again = (times - 1) * size / machine.pace.bytes_again_from(level)
        cycles += again * waits if level == 2 else again
    if form.scalar is not None and not (form.scalar_packed or form.elementwise) and not _rows_stay(form, machine):
        points = math.prod(constant(one.size) for one in form.contraction.dimensions)
        cycles += points / form.width * LINE / machine.pace.second_cache
    return cycles


def _levels_again(form: DirectForm, machine: Machine) -> tuple[int, int]:
    """Where the vectors and the rows of a tile stay until the tiles of the other side read them again."""
    steps = form.contracted_total
    vector_element, scalar_element = form.vector_operand.element.bytes, form.parts * form.scalar_operand.element.bytes
    strip = steps * _bytes_held(form, "vector", sum(form.lanes) * vector_element)
    row = steps * _bytes_held(form, "scalar", form.rows * scalar_element)
    all_vectors, all_rows = steps * form.vector_size * vector_element, steps * form.scalar_size * scalar_element
    if form.elementwise:
        row, all_rows = row * form.lanes[0], all_rows * form.lanes[0]
    if form.scalar_outer or form.onward:
        vector_level, scalar_level = level_of(all_vectors + 2 * row, machine), level_of(strip + row, machine)
    else:
        held = strip + row if form.collected is None else 2 * strip + row  # the results pass through the cache too
        vector_level, scalar_level = level_of(held, machine), level_of(all_rows + 2 * strip, machine)
    if not form.vector_packed:
        vector_level = max(vector_level, _aliaslevel_of(form, "vector", strip, machine))
    if not (form.scalar_packed or form.elementwise):
        scalar_level = max(scalar_level, _aliaslevel_of(form, "scalar", row, machine))
    return vector_level, scalar_level


def _bytes_held(form: DirectForm, side: str, nbytes: int) -> int:
    """Bytes of the first cache that so many take which are read together: few of them, in place, share the lines in
    which they begin and end with others.
    """
    operand, packed = form.vector_operand, form.vector_packed
    if side == "scalar":
        operand, packed = form.scalar_operand, form.scalar_packed or form.elementwise
    apart = abs(form.step(side)) * operand.element.bytes
    narrow = form.lanes[0] * form.vector_operand.element.bytes < LINE
    few = narrow or (side == "vector" and len(form.lanes) * form.rows <= FEW_SUMS)
    return nbytes + LINE if few and not packed and apart > LINE else nbytes


def _vector_loads(form: DirectForm, machine: Machine) -> float:
    """Cycles in which the first cache gives a step's vectors: those read in place may begin anywhere in a line, so that
    some of them, of vectors as long as a line nearly all, lie on two; and lines that come from the second cache first
    are written into it.
    """
    if form.vector_packed:
        each = machine.pace.vector_load
    elif _levels_again(form, machine)[0] == 1:
        each = (1 + machine.vector_bytes / LINE) * machine.pace.vector_load
    else:
        each = machine.pace.far_load
    return len(form.lanes) * each


def _through_second_cache(form: DirectForm, machine: Machine) -> float:
    """Cycles in which a row of tiles reads vectors from the second cache, if that is being filled from main memory:
    these are on the same way, so that one hides nothing of the other. So it is in part with collected results, wherever
    their vectors are: of the same arithmetic, tiles of fewer vectors and more rows are faster. What is asked for by
    points comes in long runs.
    """
    strip = form.contracted_total * sum(form.lanes) * form.vector_operand.element.bytes
    if form.vector_packed or (form.collected is None and level_of(strip, machine) == 1):
        return 0.0
    if level_of(sum(array_bytes(form, side) for side in SIDES), machine) < 4:
        return 0.0
    share = 1.0 if form.collected is None else 0.0 if machine.pace.long_pieces else COLLECTED_LOADS
    if points_are_asked(form, machine) and has_next_point(form, "vector"):
        share *= LOADS_BY_POINTS
    return share * form.fitting_tiles * form.contracted_total * _vector_loads(form, machine)


def _crowding(form: DirectForm, machine: Machine) -> float:
    """How many times as long as these reads take they wait, where requests for main memory hold the buffers of misses:
    the longer the strip is that comes so, the less of the second cache is left for the one that is read.
    """
    strip = form.contracted_total * sum(form.lanes) * form.vector_operand.element.bytes
    return CROWDED_STRIP * strip / machine.l2_bytes if machine.pace.shares_buffers else 0.0


def _outer_times(form: DirectForm, side: str) -> int:
    """How many times the outer dimensions come by the whole of an operand."""
    return math.prod(constant(one.size) for one in form.outer if form.stride(one, side) == 0)


def _rows_stay(form: DirectForm, machine: Machine) -> bool:
    """The first cache holds a line of each row until its next element is read: in the next steps where the sum runs
    along it, although rows may be far apart by a power of two; else at the next point of the outer dimensions.
    """
    assert form.scalar is not None
    element = form.scalar_operand.element.bytes
    apart = form.stride(form.scalar, "scalar") * element
    if not any(abs(form.stride(one, "scalar")) == form.parts for one in form.outer):
        return lines_stay(form.rows, apart, machine)
    steps = [abs(form.stride(one, "scalar")) * element for one in form.contracted]
    lines = form.contracted_total * form.scalar_size * min((LINE, *steps)) // LINE
    period, ways = sets_of(machine.l1_bytes)
    return lines <= period // max(math.gcd(period, apart, *steps), LINE) * ways


def _byte_again(form: DirectForm, side: str, level: int, pace: Pace) -> float:
    """Cycles to read a byte of an operand once more, from there: lines of which a tile takes a part come whole."""
    if form.vector_packed if side == "vector" else form.scalar_packed or form.elementwise:
        return 1 / pace.bytes_again_from(level)
    run = _run(form, side)
    piece = {3: NEAR_PIECE, 4: FAR_PIECE / 2}.get(level, 0.0)
    return max(1.0, LINE / run) / pace.bytes_again_from(level) + piece * pace.waiting / run


def _aliaslevel_of(form: DirectForm, side: str, strip: int, machine: Machine) -> int:
    """The level whose sets hold a tile's strip of an operand: steps far apart by a power of two share few sets of a
    cache.
    """
    element = (form.vector_operand if side == "vector" else form.scalar_operand).element.bytes
    step = form.step(side) * element
    together = form.width if side == "vector" else form.rows
    for level, capacity in ((1, machine.l1_bytes), (2, machine.l2_bytes)):
        period, ways = sets_of(capacity)
        usable = period // math.gcd(step, period) * ways * max(LINE, together * element)
        if 4 * strip <= 3 * min(usable, capacity):
            return level
    return 3


def _run(form: DirectForm, side: str) -> int:
    """Bytes of an operand that one tile reads together in memory."""
    operand = form.vector_operand if side == "vector" else form.scalar_operand
    extents = [(form.stride(one, side), constant(one.size)) for one in form.contracted]
    together = 1 if form.collected is None else form.vector_chunk
    width, rows = min(together * form.width, form.vector_size), form.rows
    if side == "vector" or form.elementwise:
        extents.append((form.stride(form.vector, side), width))
    if side == "scalar" and form.scalar is not None:
        extents.append((form.stride(form.scalar, side), rows))
        if form.onward:
            extents.append((form.stride(form.outer[-1], side), constant(form.outer[-1].size)))
    if form.parts > 1 and (side == "scalar" or form.stride(form.vector, side) != 1):
        extents.append((1, form.parts))
    return consecutive(extents) * operand.element.bytes


def _written_together(form: DirectForm) -> int:
    """Bytes of the output that are written one after another by one tile; turned ones are short and many, so that those
    of the inner loop count together.
    """
    if form.boxed:
        return form.box_run * form.contraction.out.element.bytes
    if form.collected is not None:
        return form.lanes[0] * form.contraction.out.element.bytes
    turned = form.results is Results.TURNED
    inner_vectors = form.vector_tiles == 1 or (turned and form.scalar_outer)
    inner_rows = form.scalar_tiles == 1 or (turned and not form.scalar_outer)
    extents = [(form.stride(form.vector, "out"), form.vector_size if inner_vectors else form.width)]
    if form.scalar is not None:
        extents.append((form.stride(form.scalar, "out"), form.scalar_size if inner_rows else form.rows))
    return consecutive(extents) * form.contraction.out.element.bytes
