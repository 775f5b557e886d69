"""The choice of a direct form: every way of placing the dimensions, judged by a model of cycles and of memory traffic.

The model counts cycles of one core that starts one vector multiply-add and one vector load in each (a core that starts
more of both is faster by a common factor, which decides nothing). Its constants were measured on a Zen 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.scalars import BOOL, ScalarType, compute_type
from tilewright.machine.model import Machine
from tilewright.passes.direct_form import COLLECTED_ELEMENTS, LINE, PANEL_ELEMENTS, DirectForm, Results
from tilewright.passes.packed_combine import nan_guard
from tilewright.passes.packed_form import is_multiply_add
from tilewright.passes.scalar_values import component_types
from tilewright.passes.vectorise import is_vectorisable

SERIAL_CYCLES = 160_000
"""Work that takes some 10 microseconds: less is not worth waking other threads."""

CACHE_WAYS = 8  # of the first and second cache: lines that share a set
CHAINS = 4  # cycles until the result of a multiply-add can be added to
TILE_CYCLES = 15  # loops and addresses of one tile
COPIED_VECTOR, TURNED_VECTOR, GATHERED_ELEMENT, COPIED_SCALAR = 6.0, 15.0, 2.0, 1.7  # cycles to put into a panel
STORED_VECTOR = {Results.VECTORS: 1.0, Results.TURNED: 5.0, Results.COLLECTED: 7.0}
FAR_PIECE = 120.0  # cycles until a piece of main memory comes that no prefetcher of the processor foresees
BYTES_PER_CYCLE = {1: math.inf, 2: 32.0, 3: 12.0, 4: 7.0}  # by level of the memory; 4 is main memory


@dataclass(frozen=True)
class DirectCost:
    """Cycles of one core: arithmetic with the stores, packing, waiting for what is read once, and for what is again."""

    compute: float
    packing: float
    memory: float
    again: float

    @property
    def cycles(self) -> float:
        """Prefetching hides most of the shorter behind the longer; of what is read again it hides half."""
        work = self.compute + self.packing
        return max(work, self.memory) + 0.2 * min(work, self.memory) + 0.5 * self.again


def choose_direct_form(contraction: Contraction, machine: Machine) -> tuple[DirectForm, DirectCost] | str:
    """The cheapest direct form of a normalised contraction with known sizes, or why there is none."""
    refused = _refusal(contraction, machine)
    if refused:
        return refused
    best: tuple[DirectForm, DirectCost] | None = None
    for form in direct_forms(contraction, machine):
        cost = direct_cost(form, machine)
        if best is None or cost.cycles < best[1].cycles:
            best = (form, cost)
    if best is None:
        return _unplaced(contraction)
    form, cost = best
    return _shared_out(_with_hints(form, machine), cost, machine), cost


def _with_hints(form: DirectForm, machine: Machine) -> DirectForm:
    """What is prefetched, and whether results go past the caches."""
    past = form.results is Results.VECTORS and _rows_align(form) and is_past_caches(_array_bytes(form, "out"), machine)
    far_vectors = not form.vector_packed and _level(_array_bytes(form, "vector"), machine) > 2
    far_rows = not (form.scalar_packed or form.elementwise) and _level(_array_bytes(form, "scalar"), machine) > 2
    along = len(form.contracted) == 1 and form.stride(form.contracted[0], "scalar") == 1
    return replace(
        form,
        nontemporal=past,
        prefetched=far_vectors and (form.collected is not None or not form.scalar_outer),
        out_prefetched=form.collected is not None and _level(_array_bytes(form, "out"), machine) > 2,
        rows_prefetched=far_rows and along and (form.scalar_outer or form.vector_tiles == 1),
    )


def direct_forms(contraction: Contraction, machine: Machine) -> Iterator[DirectForm]:
    """Every direct form of a contraction that has any."""
    for placed in _placements(contraction):
        yield from _tiles(placed, machine)


def _refusal(contraction: Contraction, machine: Machine) -> str:
    """Why the direct form does not compute such elements at all; empty if it does."""
    accumulator = contraction.combine.parameters[0].type.element
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


def _placements(contraction: Contraction) -> Iterator[DirectForm]:
    """Forms without a tile: which dimensions the vectors and the rows run along."""
    unit = [one for one in contraction.dimensions if one.kind is not Kind.K and constant(one.stride_out) == 1]
    if len(unit) != 1:
        return
    if any(_along(contraction, number, unit[0]) not in (0, 1) for number in range(len(contraction.epilogue_operands))):
        return
    if unit[0].kind is Kind.C:
        yield from _elementwise(contraction, unit[0])
        return
    own = contraction.of_kind(unit[0].kind)
    other = contraction.of_kind(Kind.N if unit[0].kind is Kind.M else Kind.M)
    left = unit[0].kind is Kind.M
    for scalar in other or (None,):
        yield from _with_panels(_placed(contraction, left, unit[0], scalar, None, Results.VECTORS))
    if contraction.epilogue is not None:
        return
    for vector in other:
        if _stride(vector, not left) == 1:
            yield from _with_panels(_placed(contraction, not left, vector, unit[0], None, Results.TURNED))
    for vector in own:
        if vector != unit[0] and _stride(vector, left) == 1:
            for scalar in other or (None,):
                yield from _with_panels(_placed(contraction, left, vector, scalar, unit[0], Results.COLLECTED))


def _elementwise(contraction: Contraction, unit: Dimension) -> Iterator[DirectForm]:
    """Vectors along a dimension of all arrays; the tile's two indices run along other dimensions of either side."""
    if not _stride(unit, True) == _stride(unit, False) == 1:
        return
    for columns in (None, *contraction.of_kind(Kind.M)):
        for scalar in (None, *contraction.of_kind(Kind.N)):
            form = _placed(contraction, True, unit, scalar, None, Results.VECTORS)
            outer = tuple(one for one in form.outer if one != columns)
            yield replace(form, columns=columns, outer=outer)


def _along(contraction: Contraction, number: int, dimension: Dimension) -> int:
    """The stride of a further operand along a dimension."""
    return constant(contraction.epilogue_operands[number].strides[contraction.dimensions.index(dimension)])


def _stride(dimension: Dimension, left: bool) -> int:
    return constant(dimension.stride_left if left else dimension.stride_right)


def _placed(
    contraction: Contraction,
    left: bool,
    vector: Dimension,
    scalar: Dimension | None,
    collected: Dimension | None,
    results: Results,
) -> DirectForm:
    contracted = sorted(contraction.of_kind(Kind.K), key=lambda one: (_stride(one, left) == 1, constant(one.size)))
    fused = is_multiply_add(contraction)
    used = {one.name for one in (vector, scalar, collected) if one is not None}
    outer = tuple(one for one in contraction.dimensions if one.kind is not Kind.K and one.name not in used)
    return DirectForm(
        contraction, left, vector, scalar, collected, tuple(contracted), outer, (1,), 1, False, False, results, fused
    )


def _with_panels(form: DirectForm) -> Iterator[DirectForm]:
    vector_choices = (False, True) if form.stride(form.vector, "vector") == 1 else (True,)
    for vector_packed in vector_choices:
        yield replace(form, vector_packed=vector_packed)
        if form.collected is None:
            for scalar_packed in (False, True):
                yield replace(form, vector_packed=vector_packed, scalar_packed=scalar_packed, scalar_outer=True)


# --- register tiles ---------------------------------------------------------------------------------------------------


def _tiles(form: DirectForm, machine: Machine) -> Iterator[DirectForm]:
    """The form with every register tile that the machine has room for."""
    widest = machine.lanes(component_types(form.accumulator)[0].bytes)
    registers = machine.vector_registers or 16
    for vectors in range(1, 7):
        lanes = (widest,) * vectors
        if form.columns is None:
            is_last = vectors * widest >= form.vector_size
            lanes = _exact(form.vector_size, widest) if is_last else lanes
        else:
            is_last = vectors >= form.column_size
            lanes = _exact(min(form.vector_size, widest), widest) * vectors
        most = min(form.scalar_size, (registers - 1 - len(lanes)) // len(lanes))
        for rows in _rows(form, lanes, most):
            tile = replace(form, lanes=lanes, rows=rows)
            if _panels_fit(tile):
                yield tile
        if is_last:
            return


def _rows(form: DirectForm, lanes: tuple[int, ...], most: int) -> Sequence[int]:
    """Numbers of rows worth a thought: the fewest that need one, two or three tiles more than the most do."""
    if form.results is Results.TURNED:
        return [rows for rows in (4, 8, 16) if rows <= min(most, *lanes)]
    if most < 1:
        return ()
    least = -(-form.scalar_size // most)
    return sorted({-(-form.scalar_size // tiles) for tiles in range(least, least + 3)})


def _exact(size: int, widest: int) -> tuple[int, ...]:
    """Vectors for all of a short dimension; the last one is as narrow as it can be."""
    whole, rest = divmod(size, widest)
    tail = (max(2, 1 << (rest - 1).bit_length()),) if rest else ()
    return (widest,) * whole + tail


def _panels_fit(form: DirectForm) -> bool:
    collected = 0
    if form.collected is not None:
        collected = form.scalar_tiles * form.rows * form.lanes[0] * form.pitch
    return max(form.panel_elements) <= PANEL_ELEMENTS and collected <= COLLECTED_ELEMENTS


def _shared_out(form: DirectForm, cost: DirectCost, machine: Machine) -> DirectForm:
    """The tiles of one block: all of them, or a part for each core where there are few blocks otherwise."""
    outer = math.prod(form.blocks[:-2])
    form = replace(form, vector_chunk=form.vector_tiles, scalar_chunk=form.scalar_tiles)
    wanted = 4 * machine.cores
    if cost.cycles < SERIAL_CYCLES:
        return replace(form, serial=True)
    if machine.cores == 1 or outer >= wanted:
        return form
    parts = -(-wanted // outer)
    if (form.scalar_tiles >= form.vector_tiles and not form.vector_packed) or form.vector_tiles == 1:
        return replace(form, scalar_chunk=max(1, form.scalar_tiles // parts))
    return replace(form, vector_chunk=max(1, form.vector_tiles // parts))


# --- cost -------------------------------------------------------------------------------------------------------------


def direct_cost(form: DirectForm, machine: Machine) -> DirectCost:
    """What a form costs on one core."""
    outer = math.prod(constant(one.size) for one in form.outer)
    if form.collected is not None:
        outer *= constant(form.collected.size)
    tiles = outer * form.vector_tiles * form.column_tiles * form.scalar_tiles
    widest = machine.lanes(component_types(form.accumulator)[0].bytes)
    wide = sum(max(lanes / widest, 0.5) for lanes in form.lanes)
    loads = len(form.lanes) + form.rows * (len(form.lanes) if form.elementwise and form.columns is None else 1)
    step = max(wide * form.rows, CHAINS, loads)
    if not form.fused_multiply_add:
        # min and max of floats take more than one instruction, unless panels are known to make no nan.
        instructions = 2 if nan_guard(form.contraction) is None else 4
        step = max(instructions * wide * form.rows, CHAINS)
    stores = STORED_VECTOR[form.results] * len(form.lanes) * form.rows
    compute = tiles * (form.contracted_total * step + stores + TILE_CYCLES)
    return DirectCost(compute, _packing(form, outer), _memory_once(form, machine), _memory_again(form, machine))


def _packing(form: DirectForm, outer: int) -> float:
    steps, cycles = form.contracted_total, 0.0
    if form.scalar_packed:
        cycles += COPIED_SCALAR * outer * form.scalar_tiles * steps * form.rows
    if form.vector_packed:
        vectors = form.pitch // form.lanes[0]
        if form.stride(form.vector, "vector") == 1:
            each = COPIED_VECTOR
        elif form.stride(form.contracted[-1], "vector") == 1:
            each = TURNED_VECTOR
        else:
            each = GATHERED_ELEMENT * form.lanes[0]
        cycles += each * outer * form.vector_tiles * steps * vectors
    return cycles


def _memory_once(form: DirectForm, machine: Machine) -> float:
    """Cycles to read either operand and to write the output once, from the memory where all of them fit."""
    vector, scalar, out = (_array_bytes(form, side) for side in ("vector", "scalar", "out"))
    cycles = read_once((vector, scalar), (_run(form, "vector"), _run(form, "scalar")), out, machine)
    cycles += written_once(out, vector + scalar, form.results is Results.VECTORS and _rows_align(form), machine)
    if _level(vector + scalar + out, machine) == 4:
        cycles += out / _written_together(form) * FAR_PIECE / 6  # stores wait in a queue, where they disturb less
    return cycles


def _rows_align(form: DirectForm) -> bool:
    """If one row of the output begins at a cache line, all do; only whole lines are written past the caches."""
    strides = [form.stride(one, "out") for one in form.contraction.dimensions]
    return all(stride * form.contraction.out.element.bytes % LINE == 0 for stride in strides if abs(stride) > 1)


def read_once(sizes: tuple[int, int], pieces: tuple[int, int], out: int, machine: Machine) -> float:
    """Cycles to read the vector and the scalar side (whose tiles read so many bytes together) beside such an output."""
    level = _level(sum(sizes) + out, machine)
    cycles = sum(sizes) / BYTES_PER_CYCLE[level]
    if level == 4:
        far = [(size, piece) for size, piece in zip(sizes, pieces, strict=True) if size > machine.l2_bytes]
        cycles += sum(size / piece * FAR_PIECE for size, piece in far)
    return cycles


def written_once(out: int, others: int, may_pass: bool, machine: Machine) -> float:
    """Cycles to write the output: past the caches if it is larger than they are, else its lines are read before."""
    times = 1 if may_pass and is_past_caches(out, machine) else 2
    return times * out / BYTES_PER_CYCLE[_level(out + others, machine)]


def is_past_caches(out: int, machine: Machine) -> bool:
    """An output of so many bytes is better written past the caches."""
    return out > max(machine.l3_bytes // 2, 1 << 23)


def _memory_again(form: DirectForm, machine: Machine) -> float:
    """Cycles for what tiles of the other side, and outer dimensions that an operand does not have, read again, from
    where it stayed meanwhile.
    """
    vector, scalar = _array_bytes(form, "vector"), _array_bytes(form, "scalar")
    steps = form.contracted_total
    vector_element, scalar_element = form.vector_operand.element.bytes, form.scalar_operand.element.bytes
    strip, row = steps * sum(form.lanes) * vector_element, steps * form.rows * scalar_element
    all_vectors, all_rows = steps * form.vector_size * vector_element, steps * form.scalar_size * scalar_element
    if form.elementwise:
        row, all_rows = row * form.lanes[0], all_rows * form.lanes[0]
    if form.scalar_outer:
        vector_level, scalar_level = _level(all_vectors + 2 * row, machine), _level(strip + row, machine)
    else:
        vector_level, scalar_level = _level(strip + row, machine), _level(all_rows + 2 * strip, machine)
    if not form.vector_packed:
        vector_level = max(vector_level, _alias_level(form, strip, machine))
    each = 1 / BYTES_PER_CYCLE[vector_level]
    if vector_level > 2 and not form.vector_packed:
        each += FAR_PIECE / 2 / _run(form, "vector")
    vector_times, scalar_times = _outer_times(form, "vector"), _outer_times(form, "scalar")
    cycles = vector_times * (form.scalar_tiles - 1) * vector * each
    tiles = form.column_tiles if form.elementwise else form.vector_tiles
    cycles += scalar_times * (tiles - 1) * scalar / BYTES_PER_CYCLE[scalar_level]
    cycles += (vector_times - 1) * vector / BYTES_PER_CYCLE[_level(vector, machine)]
    cycles += (scalar_times - 1) * scalar / BYTES_PER_CYCLE[_level(scalar, machine)]
    if form.scalar is not None and not (form.scalar_packed or form.elementwise) and not _rows_stay(form, machine):
        points = math.prod(constant(one.size) for one in form.contraction.dimensions)
        cycles += points / form.width * LINE / BYTES_PER_CYCLE[2]
    return cycles


def _outer_times(form: DirectForm, side: str) -> int:
    """How many times the outer dimensions come by the whole of an operand."""
    return math.prod(constant(one.size) for one in form.outer if form.stride(one, side) == 0)


def _rows_stay(form: DirectForm, machine: Machine) -> bool:
    """The first cache holds a line of each row, although they are far apart by a power of two."""
    assert form.scalar is not None
    step = form.stride(form.scalar, "scalar") * form.scalar_operand.element.bytes
    period = max(machine.l1_bytes // CACHE_WAYS, 1)
    return form.rows <= period // math.gcd(step, period) * CACHE_WAYS * 3 // 4 or abs(step) < LINE


def _alias_level(form: DirectForm, strip: int, machine: Machine) -> int:
    """The level whose sets hold a strip of vectors: steps far apart by a power of two share few sets of a cache."""
    step = form.stride(form.contracted[-1], "vector") * form.vector_operand.element.bytes
    for level, capacity in ((1, machine.l1_bytes), (2, machine.l2_bytes)):
        period = max(capacity // CACHE_WAYS, 1)
        piece = max(LINE, form.width * form.vector_operand.element.bytes)
        usable = period // math.gcd(step, period) * CACHE_WAYS * piece
        if 4 * strip <= 3 * min(usable, capacity):
            return level
    return 3


def _run(form: DirectForm, side: str) -> int:
    """Bytes of an operand that one tile reads together in memory."""
    operand = form.vector_operand if side == "vector" else form.scalar_operand
    extents = [(form.stride(one, side), constant(one.size)) for one in form.contracted]
    width, rows = min(form.width, form.vector_size), form.rows
    if side == "vector" or form.elementwise:
        extents.append((form.stride(form.vector, side), width))
    if side == "scalar" and form.scalar is not None:
        extents.append((form.stride(form.scalar, side), rows))
    return _consecutive(extents) * operand.element.bytes


def _written_together(form: DirectForm) -> int:
    """Bytes of the output that are written one after another, by one tile or by those of the inner loop."""
    if form.collected is not None:
        return form.lanes[0] * form.contraction.out.element.bytes
    inner_vectors = form.scalar_outer or form.vector_tiles == 1
    inner_rows = not form.scalar_outer or form.scalar_tiles == 1
    extents = [(form.stride(form.vector, "out"), form.vector_size if inner_vectors else form.width)]
    if form.scalar is not None:
        extents.append((form.stride(form.scalar, "out"), form.scalar_size if inner_rows else form.rows))
    return _consecutive(extents) * form.contraction.out.element.bytes


def _consecutive(extents: list[tuple[int, int]]) -> int:
    """Elements that lie side by side, of dimensions with these strides and extents."""
    run = 1
    for stride, extent in sorted((abs(stride), extent) for stride, extent in extents):
        if stride == run:
            run *= extent
    return run


def _array_bytes(form: DirectForm, side: str) -> int:
    operand = {"vector": form.vector_operand, "scalar": form.scalar_operand, "out": form.contraction.out}[side]
    extents = [constant(one.size) for one in form.contraction.dimensions if form.stride(one, side)]
    return math.prod(extents) * operand.element.bytes


def _level(size: int, machine: Machine) -> int:
    """The level of the memory that holds so many bytes beside what else passes through it."""
    for level, capacity in ((1, machine.l1_bytes), (2, machine.l2_bytes), (3, machine.l3_bytes)):
        if 4 * size <= 3 * capacity:
            return level
    return 4


__all__ = ["DirectCost", "ScalarType", "choose_direct_form", "direct_cost"]
