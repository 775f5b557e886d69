"""An einsum followed through the compiler from sizes alone: what `show` and `explain` print.

>>> stages = follow("aq,qb->ab", {"a": 64, "b": 64, "q": 64}, "f32")
>>> [type(one).__name__ for one in stages.found]
['Contraction']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.contraction.form import Contraction, Refusal
from tilewright.frontend.einsum_orders import intermediate_orders
from tilewright.frontend.einsum_parse import ResolvedEinsum, parse_string, resolve
from tilewright.frontend.einsum_path import contraction_path
from tilewright.frontend.einsum_program import einsum_program, size_name
from tilewright.frontend.semiring import semiring_named
from tilewright.ir.nodes import Program, Statement
from tilewright.ir.scalars import ScalarType, scalar_type_of
from tilewright.kernel.launch import Launch
from tilewright.kernel.llvm_emitter import CpuTarget
from tilewright.machine.model import Machine
from tilewright.machine.named import NAMED_MACHINES, named_machine
from tilewright.machine.processors import named_processor
from tilewright.passes.pipelines import run_pipeline
from tilewright.report.contractions import contractions_of

if TYPE_CHECKING:
    from tilewright.frontend.program import TracedProgram


@dataclass(frozen=True)
class Stages:
    """An einsum on its way.

    Attributes:
        resolved: the expression with its sizes.
        core: the program as the frontend wrote it. optimised: after the standard pipeline.
        statements: the top-level statements that compute something (views and host scalars are left out).
        found: for each of them the contraction with known sizes and row-major operands, or why it is none.
    """

    resolved: ResolvedEinsum
    core: Program
    optimised: Program
    statements: tuple[Statement, ...]
    found: tuple[Contraction | Refusal, ...]


def parse_sizes(text: str) -> dict[str, int]:
    """Sizes from "a=32,b=64".

    Raises:
        ValueError: naming the part that cannot be read.

    Example:
        >>> parse_sizes("a=32, b=64")
        {'a': 32, 'b': 64}
    """
    sizes: dict[str, int] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, equals, number = (one.strip() for one in part.partition("="))
        if not equals or len(name) != 1 or not (number.isascii() and number.isdigit()):
            raise ValueError(f"sizes {text!r}: {part!r} is not of the form a=32")
        if int(number) < 1:
            raise ValueError(f"sizes {text!r}: {name} = {number}; a size must be at least 1")
        if name in sizes:
            raise ValueError(f"sizes {text!r}: {name!r} is given twice")
        sizes[name] = int(number)
    return sizes


def follow(
    expression: str, sizes: Mapping[str, int], dtype: str = "f32", semiring: str = "plus_times", products: bool = False
) -> Stages:
    """The stages of an einsum over row-major operands of one dtype; with `products`, outer products are contractions
    too, as they are on CPUs.

    Raises:
        ValueError: for an expression that cannot be read, sizes that are missing or not needed, an unknown semiring.
        TypeError: for an unknown dtype, or a semiring that is not defined on it.
    """
    parsed = parse_string(expression)
    used = list(dict.fromkeys(str(label) for labels in parsed.inputs for label in labels if label is not Ellipsis))
    if any(label is Ellipsis for labels in parsed.inputs for label in labels):
        raise ValueError(f"einsum {expression!r}: an ellipsis has no sizes to be given; write its indices out")
    missing, unknown = [one for one in used if one not in sizes], [one for one in sizes if one not in used]
    if missing:
        raise ValueError(f"einsum {expression!r}: no size is given for {', '.join(missing)}")
    for one in parsed.output or ():
        if one not in used:
            raise ValueError(f"einsum {expression!r}: output index {one!r} occurs in no operand")
    if unknown:
        raise ValueError(f"einsum {expression!r}: sizes are given for {', '.join(unknown)}, which it does not have")
    shapes = [tuple(sizes[str(label)] for label in labels) for labels in parsed.inputs]
    resolved = resolve(parsed, shapes)
    element, operators = scalar_type_of(dtype), semiring_named(semiring)
    path = contraction_path(resolved.spec, resolved.sizes, True, operators.distributive)
    spec, sizes_of = resolved.spec, resolved.sizes
    orders = intermediate_orders(spec, path, sizes_of, spec.inputs, spec.output, element.bytes)
    core = einsum_program(spec, [element] * len(shapes), element, semiring=operators, path=path, orders=orders)
    optimised = run_pipeline(core)
    known = {size_name(label): extent for label, extent in enumerate(resolved.sizes)}
    letters = {size_name(label): name for label, name in enumerate(resolved.names)}
    statements, found = contractions_of(optimised, known, letters, products)
    return Stages(resolved, core, optimised, statements, found)


def machine_for(name: str) -> Machine:
    """A machine by name: a named one, "host" for the CPU here, or a device such as "opencl:0".

    Raises:
        ValueError: if there is none, with the names there are.
        DeviceError: for a device that is not there.
    """
    if name in NAMED_MACHINES:
        return named_machine(name)
    if name == "host":
        name = "cpu"
    if name.partition(":")[0] in ("cpu", "opencl", "cuda"):
        from tilewright.runtime.devices import device_for

        return device_for(name).machine
    known = ", ".join([*sorted(NAMED_MACHINES), "host", "opencl:0", "cuda:0"])
    raise ValueError(f"no machine is named {name!r}; there are {known}")


def generic_types(program: TracedProgram, dtype: str) -> list[ScalarType]:
    """A type for each generic parameter of a program: this one, or the first that the parameter takes."""
    wanted = scalar_type_of(dtype)
    generic = [one.annotation for one in program.parameters if one.annotation.is_generic]
    return [wanted if wanted in one.accepts else one.accepts[0] for one in generic]


def launch_text(launch: Launch, machine: Machine, text: str) -> str:
    """A kernel as "ir", "opencl", "cuda" or "llvm".

    Raises:
        ValueError: for another text, and for one that the machine's kernels do not have.
    """
    if text == "ir":
        from tilewright.report.kernel_text import kernel_text

        return kernel_text(launch.kernel)
    if text == "llvm":
        if machine.is_gpu_like:
            raise ValueError(f"kernels for {machine.name} have threads and barriers; LLVM text is for a CPU")
        from tilewright.kernel.llvm import llvm_text

        return llvm_text(launch.kernel, _llvm_target(machine))
    if text not in ("opencl", "cuda"):
        raise ValueError(f"no text is named {text!r}; there are ir, opencl, cuda and llvm")
    if not machine.is_gpu_like:
        raise ValueError(
            f"kernels for {machine.name} are for a CPU in process; {text} text needs a GPU or OpenCL machine"
        )
    if text == "opencl":
        from tilewright.kernel.opencl import opencl_text

        return opencl_text(launch.kernel)
    from tilewright.kernel.cuda import cuda_text

    return cuda_text(launch.kernel)


def _llvm_target(machine: Machine) -> CpuTarget:
    from tilewright.runtime.cpu_jit import cpu_target, host_cpu

    named = machine.name in NAMED_MACHINES and machine.kind == "cpu"
    return cpu_target(named_processor(machine.architecture)) if named else host_cpu()


def default_text(machine: Machine) -> str:
    """The text that the machine's own kernels are compiled from."""
    return {"cpu": "llvm", "opencl": "opencl", "cuda": "cuda"}[machine.kind]


def header(stages: Stages, position: int) -> str:
    """A line that says which statement follows, where there are several."""
    targets = ", ".join(f"{one}: {one.type}" for one in stages.statements[position].targets)
    return f"-- step {position + 1} of {len(stages.statements)}: {targets}"
