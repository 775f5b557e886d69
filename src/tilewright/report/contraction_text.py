"""Contractions and the decisions on their tiles as text, for people."""

from __future__ import annotations

from tilewright.contraction.form import Contraction, Dimension, Operand
from tilewright.contraction.normalise import constant
from tilewright.ir.printer import print_lambda
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.matrix_vector.form import MatrixVectorForm
from tilewright.passes.packed.form import PackedForm, SideDimension
from tilewright.passes.tiled.form import StagedOperand, TileForm
from tilewright.report.text import table


def contraction_text(contraction: Contraction) -> str:
    """The canonical form: dimensions with the strides of each array, operands, functions.

    Example:
        >>> from tilewright.report.examples import matmul
        >>> print(contraction_text(matmul(2, 3, 4)).splitlines()[2])
          N     j     3     0     1      1
    """
    further = contraction.epilogue_operands
    head = ["kind", "name", "size", "left", "right", "out", *(one.operand.buffer for one in further)]
    rows = [head]
    for position, one in enumerate(contraction.dimensions):
        rows.append([*_dimension(one), *(str(operand.strides[position]) for operand in further)])
    lines = table(rows, "  ")
    arrays = [("left", contraction.left), ("right", contraction.right), ("out", contraction.out)]
    arrays += [("epilogue", one.operand) for one in further]
    lines += [f"{name:<9}{_operand(one)}" for name, one in arrays]
    lines.append(f"map      {print_lambda(contraction.map)}")
    lines.append(f"combine  {print_lambda(contraction.combine)}")
    lines.append(f"neutral  {contraction.neutral}")
    if contraction.epilogue is not None:
        lines.append(f"then     {print_lambda(contraction.epilogue)}")
    return "\n".join(lines)


def _dimension(one: Dimension) -> list[str]:
    strides = (one.stride_left, one.stride_right, one.stride_out)
    return [one.kind.value, one.name, str(one.size), *map(str, strides)]


def _operand(one: Operand) -> str:
    return f"{one.buffer}: {one.element}, from element {one.offset} on"


def form_text(form: TileForm | PackedForm | DirectForm | MatrixVectorForm) -> str:
    """What was decided about a kernel before a line of it is written."""
    if isinstance(form, DirectForm):
        return _direct_text(form)
    if isinstance(form, MatrixVectorForm):
        return _matrix_vector_text(form)
    return _packed_text(form) if isinstance(form, PackedForm) else _tiled_text(form)


def _direct_text(form: DirectForm) -> str:
    vector, scalar = form.vector_operand.buffer, form.scalar_operand.buffer
    lanes = " + ".join(map(str, form.lanes))
    sources = ["from a panel" if packed else "read in place" for packed in (form.vector_packed, form.scalar_packed)]
    total = form.contracted_total
    roles = [("vectors", form.vector)]
    others = (("rows", form.scalar), ("collected", form.collected), ("joined", form.joined))
    roles += [(role, one) for role, one in others if one is not None]
    roles += [("outer", one) for one in form.outer] + [("sum", one) for one in form.contracted]
    return "\n".join(
        [
            f"vector side ({vector}): tiles of {lanes}, {sources[0]}",
            f"scalar side ({scalar}): tiles of {form.rows}, {sources[1]}",
            *_role_lines(form, roles, {"vector": "of vectors", "scalar": "of scalars", "out": "in out"}),
            f"results: {form.results.value}; the whole sum of {total} in registers, in {form.accumulator}",
        ]
    )


def _matrix_vector_text(form: MatrixVectorForm) -> str:
    roles = [("vectors", form.along)]
    roles += [("rows", form.side_by_side)] if form.side_by_side is not None else []
    roles += [("columns", form.columns)] if form.columns is not None else []
    roles += [("outer", one) for one in form.outer] + [("sum", one) for one in form.contracted]
    return "\n".join(
        [
            f"matrix ({form.matrix.buffer}): {form.vectors} vectors of {form.lanes} of {form.rows} rows in a step",
            *_role_lines(form, roles, {"matrix": "in matrix", "vector": "in vector", "out": "in out"}),
            f"results: {form.way.value}, in {form.accumulator}",
        ]
    )


def _role_lines(
    form: DirectForm | MatrixVectorForm, roles: list[tuple[str, Dimension]], arrays: dict[str, str]
) -> list[str]:
    """The dimensions with their roles, and their strides in the arrays that `form.stride` knows by these names."""
    rows = [["role", "dimension", "size", *(f"stride {where}" for where in arrays.values())]]
    for role, one in roles:
        rows.append([role, one.name, str(constant(one.size)), *(str(form.stride(one, array)) for array in arrays)])
    return table(rows, "  ")


def _tiled_text(form: TileForm) -> str:
    tiling = form.tiling
    rows = [["kind", "name", "size", "T", "R", "Q", "sticks out"]]
    for place, one in enumerate((*form.parallel, *form.contracted)):
        inside = place < len(form.parallel)
        sizes = (
            [str(tiling.thread[place]), str(tiling.register[place]), "-"]
            if inside
            else ["-", "-", str(tiling.sequential[place - len(form.parallel)])]
        )
        rows.append([one.kind.value, one.name, str(one.size), *sizes, "yes" if form.guarded[place] else "no"])
    lines = table(rows, "  ")
    lines.append(f"partial tiles: {form.partial.value}; indices: {form.index_type}")
    if form.padding is not None:
        lines.append(f"elements outside the arrays are staged as {form.padding[0]} and {form.padding[1]}")
    for operand in (form.left, form.right):
        if isinstance(operand, StagedOperand):
            lines += _staged_lines(operand)
        else:
            lines.append(f"{operand.name}: each thread reads its own elements into registers")
    return "\n".join(lines)


def _staged_lines(staged: StagedOperand) -> list[str]:
    layout = staged.layout
    rows = [["axis", "extent", "stride of threads", "stride of registers"]]
    for position, axis in enumerate(layout.axes):
        threads = "-" if axis.contracted else str(layout.thread_strides[position])
        rows.append([axis.dimension.name, str(axis.extent), threads, str(layout.register_strides[position])])
    order = ", ".join(layout.axes[position].dimension.name for position in layout.copy_order)
    return [
        f"{staged.name}: {layout.size} elements of {staged.shared_element} in shared memory, rows padded by"
        f" {layout.padding}, copied {staged.vector} at a time along {order}",
        *table(rows, "  "),
    ]


def _packed_text(form: PackedForm) -> str:
    vector, scalar = form.vector_operand.buffer, form.scalar_operand.buffer
    pieces = [constant(one.size) for one in form.contraction.dimensions if one.kind.value == "K"]
    lines = [
        f"vector side ({vector}): tiles of {form.vectors} vectors of {form.lanes}, blocks of {form.vector_block}",
        *_side_lines(form.vector_dimensions),
        f"scalar side ({scalar}): tiles of {form.rows}, blocks of {form.scalar_block}",
        *_side_lines(form.scalar_dimensions),
        f"sum over {' x '.join(map(str, pieces)) or 'nothing'} in pieces of {form.piece}, in {form.accumulator}",
    ]
    return "\n".join(lines)


def _side_lines(members: tuple[SideDimension, ...]) -> list[str]:
    if not members:
        return []
    rows = [["dimension", "size", "stride", "stride in out"]]
    rows += [[one.dimension.name, str(one.size), str(one.stride), str(one.stride_out)] for one in members]
    return table(rows, "  ")
