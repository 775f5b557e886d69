"""From a tensor operation to one kernel for the CPU."""

from __future__ import annotations

from tilewright.contraction.tensor_operation import TensorOperation
from tilewright.kernel.ir import Kernel
from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine
from tilewright.passes.tensor_elementwise import ElementwiseWriter
from tilewright.passes.tensor_gemm import GemmWriter
from tilewright.passes.tensor_writer import TensorWriter


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
    w = TensorWriter(operation, machine)
    primitive = GemmWriter(w) if operation.main.family == "ternary" else ElementwiseWriter(w)
    blocks = w.outer_loops(primitive.write)
    kernel = Kernel(
        name=f"tensor_{operation.main.value}_{operation.dtype}",
        buffers=tuple(w.buffers.values()),
        scalars=tuple(w.parameters),
        arrays=tuple(w.arrays),
        body=w.emit.statements,
    )
    return Launch(kernel, blocks, tuple(w.buffers), tuple(w.values))
