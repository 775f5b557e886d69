"""Why an optimisation of a contraction did not happen, one sentence each, with the names and sizes that decide."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.scalars import BOOL, C128, F64, I64
from tilewright.kernel.tiles import LANES, ROWS
from tilewright.machine.model import Machine
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.passes.matrix_vector.form import MatrixVectorForm
from tilewright.passes.packed.dots import choose_tiles
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.tiled.form import StagedOperand, TileForm, axis_place

NO_GPU_KERNELS = "matrix instructions, asynchronous copies, double buffering"


def declined_tiled(form: TileForm, machine: Machine, blocks: int, not_split: str = "") -> tuple[str, ...]:
    """The reasons for what a tiled kernel does without."""
    contraction = form.numbers if isinstance(form, DirectForm) else None
    reasons = list(not_fused(contraction or form.contraction))
    doubles = [one.element for one in (form.contraction.left, form.contraction.right, form.contraction.out)]
    if not machine.supports_f64 and {F64, C128} & {*doubles, form.contraction.neutral.scalar}:
        reasons.insert(0, f"this cannot run: {machine.name} does not compute in double precision")
    for staged in form.staged:
        if staged.vector == 1:
            reasons.append(f"copies of {staged.name} move one element at a time: {_not_vector(staged, form)}")
    if form.partial.contracted and form.padding is None and form.staged:
        reasons.append(f"no padding with neutral elements: {_no_padding(form.contraction)}; the last piece is guarded")
    if 0 < blocks < machine.cores:
        why = f", and the sum is not split: {not_split}" if not_split else ""
        reasons.append(f"{machine.cores - blocks} of {machine.cores} cores idle: there are {blocks} blocks{why}")
    if form.index_type == I64:
        reasons.append("indices take 64 bits: an array (or the launch) spans 2^31 elements or more")
    reasons.append(f"there are no kernels yet with: {NO_GPU_KERNELS}")
    return tuple(reasons)


def declined_on_cpu(form: PackedForm | DirectForm | MatrixVectorForm, machine: Machine, blocks: int) -> list[str]:
    """The reasons for what a kernel on a CPU does without, whatever its form."""
    reasons = list(not_fused(form.contraction))
    if not form.fused_multiply_add and form.contraction.of_kind(Kind.K):
        reasons.append("no fused multiply-add: the contraction is no sum of products of floating-point numbers")
    if 0 < blocks < machine.cores:
        reasons.append(f"{blocks} of {machine.cores} cores used: there is too little work to share out")
    return reasons


def declined_packed(form: PackedForm, machine: Machine, blocks: int) -> tuple[str, ...]:
    """The reasons for what a packed kernel does without."""
    contraction = form.contraction
    reasons = declined_on_cpu(form, machine, blocks)
    if form.lanes == 1 and machine.vector_bytes:
        if not is_vectorisable((contraction.map, contraction.combine)):
            reasons.append("no vectors: map or combine has a loop, whose rounds lanes cannot count separately")
        else:
            reasons.append(f"no vectors: one {form.accumulator} fills a register of {machine.vector_bytes} bytes")
    if not form.in_tiles and choose_tiles(contraction, form.vector_left, machine) is not None:
        reasons.append(f"not in tiles: these results, or this sum, would fill too little of {ROWS} x {LANES} sums")
    if form.contracted_total > form.depth // 2 and _keeps_whole_sum(contraction):
        why = "an epilogue follows" if contraction.epilogue is not None else "the result is stored in another type"
        reasons.append(
            f"the sum of {form.contracted_total} is not cut into cache-sized pieces: {why}, so partial sums cannot "
            "wait in the output"
        )
    waste = padding_waste(form)
    if waste > 0.1:
        tile = f"{form.vector_tile} x {form.rows}"
        reasons.append(f"{waste:.0%} of the register tiles' work is on padding: no tile fits better than {tile}")
    return tuple(reasons)


def declined_direct(form: DirectForm, machine: Machine, blocks: int) -> tuple[str, ...]:
    """The reasons for what a direct kernel does without."""
    reasons = declined_on_cpu(form, machine, blocks)
    waste = direct_waste(form)
    if waste > 0.1:
        tile = f"{form.width} x {form.rows}"
        reasons.append(f"{waste:.0%} of the work is done twice or on padding: no tile is better than {tile}")
    return tuple(reasons)


def direct_waste(form: DirectForm) -> float:
    """The share of multiply-adds that are done twice, or on lanes that are masked."""
    computed = form.computed_columns * form.scalar_tiles * form.rows
    return 1.0 - form.vector_size * form.scalar_size / computed


def padding_waste(form: PackedForm) -> float:
    """The share of multiply-adds that are done on padding."""
    useful = form.total(form.vector_dimensions) * form.total(form.scalar_dimensions)
    vector = form.vector_tiles * form.vector_tile - (form.vectors - form.tail) * form.lanes
    scalar = form.scalar_tiles * form.rows
    return 1.0 - useful / (vector * scalar) if useful else 0.0


def not_fused(contraction: Contraction) -> Iterator[str]:
    """For each neighbouring pair of dimensions of one kind: the array in which they are not one dimension."""
    for kind in Kind:
        members = contraction.of_kind(kind)
        for outer, inner in pairwise(members):
            broken = [
                f"in {array} the stride of {outer.name} is {x}, {inner.name} spans {y}"
                for array, x, y in _steps(outer, inner)
                if x != y
            ]
            why = ", ".join(broken) or "an operand of the epilogue does not run through them as one"
            yield f"{outer.name} and {inner.name} stay two dimensions: {why}"


def _steps(outer: Dimension, inner: Dimension) -> tuple[tuple[str, int, int], ...]:
    """For each array: the outer stride, and what it would have to be."""
    extent = constant(inner.size)
    return (
        ("left", constant(outer.stride_left), extent * constant(inner.stride_left)),
        ("right", constant(outer.stride_right), extent * constant(inner.stride_right)),
        ("out", constant(outer.stride_out), extent * constant(inner.stride_out)),
    )


def _not_vector(staged: StagedOperand, form: TileForm) -> str:
    """The first thing that stands in the way of 8- or 16-byte copies (see `tile_form`)."""
    element, layout = staged.operand.element, staged.layout
    if element.is_complex or element == BOOL:
        return f"its elements are {element}"
    if not layout.axes:
        return "its tile is a single element"
    dimensions = (*form.parallel, *form.contracted)
    unit = layout.axes[layout.copy_order[-1]]
    place = axis_place(unit, len(form.parallel))
    name = dimensions[place].name
    if staged.strides[place] != 1:
        return f"no dimension has stride 1 (the smallest is {staged.strides[place]}, of {name})"
    width = max(2, 8 // element.bytes)
    along = unit.thread if not unit.contracted else unit.register
    checks = [
        (f"the size of {name}", constant(dimensions[place].size)),
        (f"the {'Q' if unit.contracted else 'T'} of {name}", along),
        ("its offset", constant(staged.operand.offset)),
        *((f"the stride of {dimensions[p].name}", s) for p, s in enumerate(staged.strides) if p != place),
    ]
    odd = [f"{what} is {value}" for what, value in checks if value % width]
    if not odd or 8 // element.bytes < 2:
        width = max(2, 16 // element.bytes)
        odd = [f"{what} is {value}" for what, value in checks if value % width]
    return f"{', '.join(odd)}: no multiple of {width}"


def _no_padding(contraction: Contraction) -> str:
    if contraction.scalars:
        names = ", ".join(one.name for one in contraction.scalars)
        return f"map or combine uses {names} from outside, known only at launch"
    return f"no values a, b are known with map(a, b) = {contraction.neutral}"


def _keeps_whole_sum(contraction: Contraction) -> bool:
    accumulator = contraction.accumulator
    return contraction.epilogue is not None or contraction.out.element != accumulator


def tiles_text(values: tuple[int, ...]) -> str:
    """Sizes as "4 x 8"; the product behind it where there are several."""
    text = " x ".join(map(str, values))
    return f"{text} = {math.prod(values)}" if len(values) > 1 else text
