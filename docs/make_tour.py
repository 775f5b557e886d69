"""Writes docs/tour.md: one matrix product through every folder, with what each of them really prints.

    make docs            (or: python docs/make_tour.py)

Only named machines are used, so that the text is the same wherever it is made; a test compares the two.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import passes as passes_package
from tilewright.cli.stages import launch_text
from tilewright.contraction.form import Contraction
from tilewright.ir.interpreter import interpret
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.ir.views import parameter_view, view_of
from tilewright.kernel.checks import check_kernel
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX512, H100, OPENCL_GPU
from tilewright.machine.occupancy import occupancy
from tilewright.passes.contractions.contraction_launches import contraction_launches, cpu_form, tiled_form
from tilewright.passes.pipelines import run_pipeline, standard_pipeline
from tilewright.report.contraction_text import contraction_text, form_text
from tilewright.report.contractions import contractions_of
from tilewright.report.explain import explain_contraction
from tilewright.rewrite.derivation import Recording

TOUR = Path(__file__).with_name("tour.md")
SOURCE = TOUR.parents[1] / "src" / "tilewright"
SIZES = {"a": 100, "b": 64, "q": 48}


WHERE = (
    ("an option of `tw.einsum`", "frontend/einsum.py", "frontend/einsum_options.py", "frontend/einsum_bind.py"),
    ("a function of NumPy on traced arrays", "frontend/numpy_functions.py", "frontend/numpy_ufuncs.py"),
    ("a function of scalars, as `tw.erf`", "ir/operators.py", "frontend/scalar_functions.py", "kernel/c_operators.py",
     "kernel/llvm_operators.py"),
    ("an element type", "ir/scalars.py", "frontend/annotations.py", "kernel/c_text.py", "kernel/llvm_conversions.py"),
    ("a construct of the language", "ir/nodes.py", "ir/typing.py", "ir/interpreter.py", "passes/statements.py"),
    ("a rewrite rule", "rewrite/rules/__init__.py", "rewrite/rule.py"),
    ("the order of the passes", "passes/pipelines.py", "passes/last_rewrites.py"),
    ("versions of nests", "rewrite/rules/flatten_versions.py"),
    ("the thresholds that pick them", "passes/flattening/flatten_tree.py", "runtime/thresholds.py", "tune/lookup.py"),
    ("which form a contraction gets", "passes/contractions/form_choice.py", "machine/paces.py"),
    ("its tiles on a CPU", "passes/direct/cost.py", "passes/packed/choice.py"),
    ("its tiles on a GPU", "passes/tiled/choice.py"),
    ("a primitive of tensor operations", "contraction/tensor_primitives.py", "passes/tensor/elementwise.py"),
    ("checks of indices, and their errors", "passes/items/checks.py", "runtime/index_errors.py"),
    ("how work is shared by threads", "runtime/scheduling.py", "runtime/cpu_pool.py"),
    ("what is known of a machine", "machine/model.py", "machine/detect.py", "machine/named.py"),
    ("what is kept on the disk", "runtime/cache.py", "frontend/einsum_stored.py", "frontend/program_stored.py"),
    ("what `explain` tells", "report/explain.py", "report/declined.py", "passes/flattening/flatten_tree.py"),
    ("the command line", "cli/main.py"),
)  # fmt: skip
"""Where to begin with a change. Each folder's docstring (`__init__.py`) tells what its other files are for."""


@tw.program
def layer(x: tw.f32["a", "q"], w: tw.f32["q", "b"], bias: tw.f32["b"]):  # type: ignore[no-untyped-def]
    columns = tw.transpose(w)
    products = tw.map(
        lambda row: tw.map(lambda column: tw.reduce("add", 0, tw.map(lambda s, t: s * t, row, column)), columns), x
    )
    return tw.map(lambda row: tw.map(lambda s, t: tw.maximum(s + t, 0), row, bias), products)


def fence(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def first_lines(text: str, count: int, comment: str) -> str:
    lines = text.splitlines()
    return "\n".join([*lines[:count], f"{comment} ... {len(lines) - count} more lines"]) if len(lines) > count else text


def around(text: str, word: str, count: int, comment: str) -> str:
    """The lines of a text from a few before the first one with a word."""
    lines = text.splitlines()
    start = max(0, next(number for number, line in enumerate(lines) if word in line) - count // 4)
    after = len(lines) - start - count
    return "\n".join([f"{comment} ... {start} lines", *lines[start : start + count], f"{comment} ... {after} lines"])


def machine_table(machines: tuple[Machine, ...]) -> str:
    rows = ["| | " + " | ".join(one.name for one in machines) + " |", "|---" * (len(machines) + 1) + "|"]
    for name in (
        "kind", "cores", "max_threads_per_block", "shared_bytes_per_block", "registers_per_core", "warp",
        "vector_bytes", "vector_registers", "dram_bandwidth", "peak_flops_f32",
    ):  # fmt: skip
        values = [getattr(one, name) for one in machines]
        rows.append(f"| `{name}` | " + " | ".join(v if isinstance(v, str) else f"{v:,.0f}" for v in values) + " |")
    return "\n".join(rows)


def where_table() -> str:
    """Files to begin with. SystemExit for one that is not there."""
    rows = ["| to change | begin with |", "|---|---|"]
    for what, *files in WHERE:
        missing = [one for one in files if not (SOURCE / one).exists()]
        if missing:
            raise SystemExit(f"where to change {what}: there is no {missing[0]}")
        rows.append(f"| {what} | {', '.join(f'`{one}`' for one in files)} |")
    return "\n".join(rows)


def integer_arguments() -> list[np.ndarray]:
    """Small arrays (the interpreter is slow) of small integers, on which single precision is exact in any order."""
    rng = np.random.default_rng(0)
    shapes = [(9, 7), (7, 8), (8,)]
    return [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]


def steps() -> dict[str, Any]:
    """The values that the tour shows."""
    core = layer.trace()
    recording = Recording(core)
    optimised = run_pipeline(core, derivation=recording, verify=True)
    _, (contraction,) = contractions_of(optimised, SIZES)
    if not isinstance(contraction, Contraction):
        raise SystemExit(f"the tour's program is no contraction: {contraction.reasons}")
    arguments = integer_arguments()
    (interpreted,) = interpret(optimised, arguments)
    x, w, bias = arguments
    expected = np.maximum(x @ w + bias, 0)
    if not (np.array_equal(interpreted, expected) and np.array_equal(layer(*arguments, target="cpu"), expected)):
        raise SystemExit("the tour's program computes something else")
    if parse_program(print_program(core)) != core:
        raise SystemExit("the tour's program does not round-trip through its text")
    return {"core": core, "optimised": optimised, "derivation": recording.derivation, "contraction": contraction}


def tour() -> str:
    """The text of docs/tour.md."""
    found = steps()
    core, optimised, contraction = found["core"], found["optimised"], found["contraction"]
    (gpu,) = contraction_launches(contraction, H100)
    (cpu,) = contraction_launches(contraction, CPU_AVX512)
    scalars = {p.name: int(v) for p, v in zip(gpu.kernel.scalars, gpu.scalars, strict=True)}
    report = check_kernel(gpu.kernel, scalars)
    form, chosen = tiled_form(contraction, H100), cpu_form(contraction, CPU_AVX512)
    resident = occupancy(H100, form.tiling.threads, 64, form.shared_bytes)
    weights = next(one for one in core.parameters if one.name.startswith("w"))
    views = {weights.name: parameter_view(weights)}
    transposed = next(view for s in core.body.statements if (view := view_of(s.expression, views)) is not None)
    source = inspect.getsource(layer.function).replace("  # type: ignore[no-untyped-def]", "")
    passes = "\n".join(f"{number}. **{one.name}**: {one.why}" for number, one in enumerate(standard_pipeline, 1))
    sizes = ", ".join(f"{name} = {extent}" for name, extent in SIZES.items())
    parts = [
        "# A tour: one matrix product through every folder",
        "This file is made by `docs/make_tour.py` (`make docs`) out of what the compiler prints; do not edit it. "
        "A test compares it with what is printed now.",
        "## Where is it?",
        where_table(),
        "The docstring of each folder says what its other files are for; tests lie in a folder of the same name. "
        "[glossary.md](glossary.md) has the words that only this project uses beside those of textbooks.",
        "## frontend/: from Python to the core language",
        "A layer of a neural network, written as maps and a reduction:",
        fence(source, "python"),
        "Calling it once with proxies in place of arrays (tracing) gives a core program: every intermediate value has "
        "a name and a type, sizes are symbols, lambdas are nests.",
        fence(print_program(core)),
        "## ir/: the language",
        "The text above can be read back (`ir.parser`) and gives the same program. Where an array lies in memory is an "
        "LMAD: an offset and, for each dimension, `size : stride`. The transposition moves nothing; it is this view of "
        f"`{weights.name}`:",
        fence(str(transposed)),
        "The reference interpreter (`ir.interpreter`) runs any program, slowly and obviously right. This tour was only "
        "written because it, the compiled program, and NumPy's `maximum(x @ w + bias, 0)` agree.",
        "## rewrite/: rules and derivations",
        "A rule is a named equation with a condition. Whatever a pass does is recorded, step by step, and a rule that "
        "does not fire says why:",
        fence(found["derivation"].print()),
        "## passes/: the pipeline",
        passes,
        "The folders there:",
        fence(str(passes_package.__doc__).strip()),
        "Afterwards the program is one nest; the products and the sums are never stored:",
        fence(print_program(optimised)),
        "## contraction/: what it is",
        f"The nest is recognised as a contraction with an epilogue. With {sizes} and row-major arrays:",
        fence(contraction_text(contraction)),
        "Dimensions of one kind that are one in memory would be fused now, dimensions of size 1 dropped, and those of "
        "the output ordered by its strides (`contraction.normalise`).",
        "## machine/: where it shall run",
        "A pass knows a machine as numbers. Three of the named ones, which need not be there:",
        machine_table((H100, OPENCL_GPU, CPU_AVX512)),
        f"`machine.occupancy` says that blocks of {form.tiling.threads} threads with 64 registers and "
        f"{form.shared_bytes} bytes of shared memory run {resident.blocks_per_core} at a time on a core of "
        f"{H100.name}, limited by {resident.limit}.",
        "## passes/tiled/, direct/ and packed/: tiles",
        f"Tile sizes T (threads), R (registers) and Q (pieces of the sum) come from a cost model. For {H100.name}:",
        fence(form_text(form)),
        "On a CPU a register tile is fed from the operands' own strides, or from panels that hold copies of them. For "
        f"{CPU_AVX512.name} the contraction is {chosen.reason}:",
        fence(form_text(chosen.form)),
        "## kernel/: the kernel and its spellings",
        "The kernel in the kernel language, which all targets share. Sizes and strides are parameters, so that other "
        "sizes with the same tiles use the same kernel:",
        fence(launch_text(gpu, H100, "ir")),
        f"{gpu.blocks} blocks of it are launched with "
        f"{', '.join(f'{name} = {value}' for name, value in scalars.items())}.",
        "As CUDA C++:",
        fence(launch_text(gpu, H100, "cuda"), "cuda"),
        "As OpenCL C:",
        fence(first_lines(launch_text(gpu, H100, "opencl"), 30, "//"), "c"),
        "As LLVM IR, of the packed form for a CPU, where the multiply-adds of the register tile begin:",
        fence(around(launch_text(cpu, CPU_AVX512, "llvm"), "@llvm.fma", 24, ";"), "llvm"),
        "Static checks look at every access of a warp: of shared memory, how often it is repeated because of bank "
        "conflicts; of global memory, how many sectors of 32 bytes it touches.",
        fence("\n".join(map(str, (*report.bank_conflicts, *report.global_accesses)))),
        "## runtime/: running it",
        "`runtime.devices` finds the devices, `runtime.cache` keeps compiled programs on disk, and an "
        "`Executable` binds arrays of any strides to the launches; `layer.explain()` tells what it does with each "
        "statement. A call is `layer(x, w, bias)`, or `layer(x, w, bias, target=\"opencl\")`.",
        "## report/: why",
        f"`tilewright explain` and `report.explain` put all of this together, here for {H100.name}:",
        fence(str(explain_contraction(contraction, H100))),
        f"and for {CPU_AVX512.name}:",
        fence(str(explain_contraction(contraction, CPU_AVX512))),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def main() -> int:
    TOUR.write_text(tour(), encoding="utf-8")
    print(f"written: {TOUR}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
