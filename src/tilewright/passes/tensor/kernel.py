"""From a tensor operation to one kernel for the CPU."""

from __future__ import annotations

from tilewright.contraction.tensor_operation import TensorOperation
from tilewright.contraction.tensor_primitives import Primitive
from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine
from tilewright.passes.permute.choose import permute_form
from tilewright.passes.permute.form import PermuteForm
from tilewright.passes.permute.kernel import permute_launch
from tilewright.passes.tensor.elementwise import ElementwiseWriter
from tilewright.passes.tensor.gemm import GemmWriter
from tilewright.passes.tensor.writer import TensorWriter


def tensor_launch(operation: TensorOperation, machine: Machine) -> Launch:
    """The kernel of an operation and what its launch needs; the buffers are in0, in1 and out, where the operation has
    them.

    Kernels of operations with the same primitive block, kinds of loops and unit strides are the same: other strides
    and sizes are scalars of the launch.

    Raises:
        ValueError: if the operation is unplaced, or the machine is no CPU.
    """
    if not operation.is_placed:
        raise ValueError(
            f"no dimension of this operation is prim; optimise() finds primitive dimensions for it:\n{operation}"
        )
    if machine.is_gpu_like:
        raise ValueError(f"tensor operations are compiled for CPUs; {machine.name} is of kind {machine.kind}")
    if _gathered(operation, machine) is not None:
        return permute_launch(operation.dtype, *_layouts(operation), (0, 0), machine)
    w = TensorWriter(operation, machine)
    primitive = GemmWriter(w) if operation.main.family == "ternary" else ElementwiseWriter(w)
    blocks = w.outer_loops(primitive.write)
    return w.launch(f"tensor_{operation.main.value}_{operation.dtype}", blocks)


def _gathered(operation: TensorOperation, machine: Machine) -> PermuteForm | None:
    """The form of a copy past the caches that is made of tiles of all dimensions, and not of primitive blocks."""
    around = (operation.first_touch, operation.last_touch)
    if operation.main not in (Primitive.COPY, Primitive.TRANSPOSE) or around != (Primitive.NONE, Primitive.NONE):
        return None
    form = permute_form(operation.dtype, *_layouts(operation), machine)
    return form if form.tile or form.overlapped or form.joined or form.straight or form.carried else None


def _layouts(operation: TensorOperation) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Sizes, and the strides of the input and the output."""
    dimensions = operation.dimensions
    return (
        tuple(one.size for one in dimensions),
        tuple(one.strides[0] for one in dimensions),
        tuple(one.strides[2] for one in dimensions),
    )


def describe_primitive(operation: TensorOperation, machine: Machine) -> str:
    """What the code of the primitive does on a machine, a line for each decision.

    Example:
        >>> from tilewright.contraction.tensor_operation import TensorDimension
        >>> from tilewright.machine.named import named_machine
        >>> dims = (TensorDimension("C", "prim", 64, 64, 0, 1), TensorDimension("C", "prim", 64, 1, 0, 64))
        >>> print(describe_primitive(TensorOperation("f32", "transpose", dims), named_machine("cpu-avx512")))
        in0: in squares of 16 x 16, turned in registers
        out: in the caches
    """
    form = _gathered(operation, machine)
    if form is not None and form.joined is not None:
        return f"in0: in rows of {form.row.size} elements\nout: past the caches, rows joined to whole lines"
    if form is not None:
        how = "line by line" if form.overlapped is None else "a tile while the next one is gathered"
        if form.tile is not None:
            how = f"gathered into runs of {form.tile.run} elements"
        return f"in0: in squares of {form.lanes} x {form.columns}, turned in registers\nout: past the caches, {how}"
    w = TensorWriter(operation, machine)
    if operation.main.family == "ternary":
        return "\n".join(_described_gemm(GemmWriter(w)))
    writer = ElementwiseWriter(w)
    shape = f"in squares of {writer.lanes} x {writer.lanes}, turned in registers" if writer.lanes > 1 else "by elements"
    words = {
        "direct": f"in vectors of {writer.lanes}" if writer.lanes > 1 else "by elements",
        "constant": "one element, broadcast", "crossing": shape, "strided": "by elements",
    }  # fmt: skip
    lines = [f"{one.array}: {words[one.form]}" for one in writer.inputs]
    past = "past the caches, which all arrays together do not fit" if writer.streams else "in the caches"
    return "\n".join([*lines, f"out: {past}"])


def _described_gemm(writer: GemmWriter) -> list[str]:
    form = writer.form
    vectors, rows = form.largest_tile
    lines = [
        f"vectors of {form.lanes} along {form.vector.kind.value}; broadcasts along {form.scalar.kind.value}",
        f"register tiles of up to {vectors} vectors x {rows} rows",
    ]
    if form.panel:
        batches, depth = writer.pieces
        size = f"{vectors * form.lanes} x {batches * depth}"
        lines.append(f"{form.vector_array}: copied into panels of up to {size} elements, for {form.why_panel}")
    else:
        lines.append(f"{form.vector_array}: vectors are read where they lie")
    lines.append("out: vectors in place" if form.direct_output else "out: by elements, from a small tile")
    return lines
