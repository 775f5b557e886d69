"""The `tilewright` command. Everything but the command line itself is imported when a command runs.

A user's mistake is told in one line and ends with exit code 2; TILEWRIGHT_TRACEBACK=1 shows where it was noticed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tilewright.cli.stages import Stages
    from tilewright.machine.model import Machine

app = typer.Typer(
    name="tilewright",
    help="Compile and run regular array programs, and see what becomes of them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Expression = Annotated[str, typer.Argument(help="An einsum expression, such as 'ij,jk->ik'.", metavar="EXPR")]
Sizes = Annotated[str, typer.Option("--sizes", "-s", help="The size of every index: a=32,b=64,...")]
Dtype = Annotated[str, typer.Option("--dtype", "-d", help="Element type: f32, f64, f16, i32, c64, ...")]
SemiringName = Annotated[str, typer.Option("--semiring", help="plus_times, min_plus, max_plus, or_and, ...")]


class Stage(StrEnum):
    """Where to look into the compiler."""

    CORE = "core"
    FUSED = "fused"
    CONTRACTION = "contraction"
    TILED = "tiled"
    KERNEL = "kernel"


class Text(StrEnum):
    """How a kernel is printed."""

    IR = "ir"
    OPENCL = "opencl"
    CUDA = "cuda"
    LLVM = "llvm"


_TOLD = (
    ValueError, TypeError, IndexError, AttributeError, OverflowError, OSError, RuntimeError, ImportError, MemoryError
)  # fmt: skip
"""What a user's mistakes raise, in what is asked for or in a program."""


@contextmanager
def _user_errors() -> Iterator[None]:
    """What the library refuses, told in one line."""
    try:
        yield
    except BrokenPipeError:  # whoever reads, such as `head`, has had enough: the command line ends in silence
        raise
    except _TOLD as error:
        if os.environ.get("TILEWRIGHT_TRACEBACK", "0") not in ("", "0") or isinstance(error, typer.Exit):
            raise
        typer.echo(f"tilewright: error: {error or type(error).__name__}", err=True)
        raise typer.Exit(2) from None


def _version(wanted: bool) -> None:
    if wanted:
        from tilewright import __version__

        typer.echo(f"tilewright {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Compile and run regular array programs, and see what becomes of them."""


@app.command()
def einsum(
    expression: Expression,
    operands: Annotated[list[Path], typer.Argument(help="One .npy file for each operand.", metavar="A.npy B.npy ...")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The .npy file for the result; without it, it is printed.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="cpu, opencl, cuda:1, ...")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", "-d", help="The type to compute in.")] = None,
    semiring: SemiringName = "plus_times",
) -> None:
    """Contract the arrays in .npy files."""
    with _user_errors():
        import numpy as np

        import tilewright
        from tilewright.frontend.named_types import type_named
        from tilewright.ir.scalars import BF16

        if output is not None and not output.parent.is_dir():
            raise ValueError(f"cannot write {output}: there is no folder {output.parent}")
        named = None if dtype is None else type_named(dtype, f"einsum {expression!r}")
        if output is not None and named == BF16:
            raise ValueError(f"cannot write {output}: NumPy's files do not hold bf16; compute in f32 (--dtype f32)")
        arrays = [_load(path) for path in operands]
        computed = None if named is None else named.numpy
        result = tilewright.einsum(
            expression, *arrays, dtype=computed, semiring=semiring, target=target, casting="same_kind"
        )
        if output is None:
            typer.echo(str(result))
            return
        try:
            with output.open("wb") as file:  # np.save would add an ending to a name without one
                np.save(file, np.asarray(result), allow_pickle=False)
        except OSError as error:
            raise ValueError(f"cannot write {output}: {error.strerror or error}") from error
        typer.echo(f"{output}: {np.asarray(result).dtype}{list(np.shape(result))}")


def _load(path: Path) -> Any:
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (ValueError, EOFError, TokenError):
        raise ValueError(f"{path} is no .npy file of numbers") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError(f"{path} holds several arrays; each operand is one .npy file")
    return array


@app.command()
def show(
    expression: Expression,
    sizes: Sizes,
    dtype: Dtype = "f32",
    stage: Annotated[
        Stage | None, typer.Option(help="Print the program after this stage (default: the kernel).")
    ] = None,
    text: Annotated[
        Text | None, typer.Option(help="How to print the kernel (default: as the machine needs it).")
    ] = None,
    machine: Annotated[str | None, typer.Option("--machine", "-m", help="a100, h100, cpu-avx512, host, ...")] = None,
    semiring: SemiringName = "plus_times",
) -> None:
    """Print an einsum as it is after a stage of the compiler, or its kernel."""
    with _user_errors():
        from tilewright.cli.stages import follow, parse_sizes

        if text is not None and stage not in (None, Stage.KERNEL):
            raise ValueError(f"--text {text.value} prints kernels, and --stage {stage.value} is not the kernel")
        stages = follow(expression, parse_sizes(sizes), dtype, semiring)
        typer.echo(_shown(stages, stage or Stage.KERNEL, text, machine))


_NOTHING = "nothing is computed: the result is a view of the operand"


def _shown(stages: Stages, stage: Stage, text: Text | None, machine: str | None) -> str:
    from tilewright.cli.stages import header, machine_for
    from tilewright.ir.printer import print_program

    if stage in (Stage.CORE, Stage.FUSED):
        return print_program(stages.core if stage is Stage.CORE else stages.optimised).rstrip("\n")
    by_text = {Text.CUDA: "h100", Text.OPENCL: "opencl-gpu", Text.LLVM: "host"}
    if not stages.statements:
        return _NOTHING
    found = machine_for(machine or (by_text.get(text, "host") if text is not None else "host"))
    parts = []
    for position in range(len(stages.statements)):
        if len(stages.statements) > 1:
            parts.append(header(stages, position))
        parts.append(_shown_statement(stages, position, stage, text, found))
    return "\n".join(parts)


def _shown_statement(stages: Stages, position: int, stage: Stage, text: Text | None, machine: Machine) -> str:
    from tilewright.cli.stages import default_text, launch_text
    from tilewright.contraction.form import Refusal
    from tilewright.passes.contractions.contraction_launches import contraction_launches, cpu_form, tiled_form
    from tilewright.report.contraction_text import contraction_text, form_text

    one = stages.found[position]
    if isinstance(one, Refusal):
        return "no contraction, so the general lowering takes it: " + "; ".join(one.reasons)
    if stage is Stage.CONTRACTION:
        return contraction_text(one)
    if stage is Stage.TILED:
        return form_text(tiled_form(one, machine) if machine.is_gpu_like else cpu_form(one, machine).form)
    chosen = text.value if text is not None else default_text(machine)
    return "\n".join(launch_text(launch, machine, chosen) for launch in contraction_launches(one, machine))


@app.command()
def explain(
    expression: Expression,
    sizes: Sizes = "",
    dtype: Dtype = "f32",
    machine: Annotated[
        str, typer.Option("--machine", "-m", help="a100, h100, cpu-avx512, host, opencl:0, ...")
    ] = "host",
    semiring: SemiringName = "plus_times",
) -> None:
    """Say what would be done on a machine and why, from sizes alone: no arrays, no device.

    In place of an expression: a Python file, whose @tw.program functions are explained, for any sizes. --dtype is the
    type of their generic parameters.
    """
    with _user_errors():
        if expression.endswith(".py"):
            from tilewright.cli.bench_file import read_programs
            from tilewright.cli.stages import generic_types, machine_for

            for option, given in (("--sizes", bool(sizes)), ("--semiring", semiring != "plus_times")):
                if given:
                    raise ValueError(
                        f"{option} is for einsum expressions; the programs of {expression} are explained without"
                    )
            for program in read_programs(Path(expression))[1].values():
                typer.echo(program.explain(*generic_types(program, dtype), target=machine_for(machine)))
            return
        from tilewright.cli.stages import follow, header, machine_for, parse_sizes
        from tilewright.contraction.form import Refusal
        from tilewright.report.explain import explain_contraction

        chosen = machine_for(machine)
        stages = follow(expression, parse_sizes(sizes), dtype, semiring, products=not chosen.is_gpu_like)
        if not stages.statements:
            typer.echo(_NOTHING)
        for position, one in enumerate(stages.found):
            if len(stages.found) > 1:
                typer.echo(header(stages, position))
            if isinstance(one, Refusal):
                typer.echo("no contraction, so the general lowering takes it: " + "; ".join(one.reasons))
            else:
                typer.echo(str(explain_contraction(one, chosen)))


@app.command()
def derive(
    file: Annotated[Path, typer.Argument(help="A Python file with programs (@tw.program).", metavar="PROG.py")],
    entry: Annotated[
        list[str] | None, typer.Option("--entry", help="The name of a program (default: all); repeatable.")
    ] = None,
    dtype: Dtype = "f32",
    machine: Annotated[str, typer.Option("--machine", "-m", help="a100, h100, cpu-avx512, host, ...")] = "host",
    page: Annotated[Path | None, typer.Option(help="Write a page for a browser instead.", metavar="FILE.html")] = None,
) -> None:
    """Print the rewrites that programs go through for a machine, each with its rule's equation; or write them as a
    page for a browser, of one program. --dtype is the type of generic parameters.
    """
    with _user_errors():
        from tilewright.cli.bench import picked
        from tilewright.cli.bench_file import read_programs
        from tilewright.cli.stages import generic_types, machine_for

        meant, programs = machine_for(machine), read_programs(file)[1]
        names = picked(file, "program", entry or [], programs)
        if page is not None and len(names) > 1:
            raise ValueError(f"a page shows one program, and {file} has {', '.join(names)}; give --entry NAME")
        if page is not None and not page.parent.is_dir():
            raise ValueError(f"cannot write {page}: there is no folder {page.parent}")
        for name in names:
            found = programs[name].derivation(*generic_types(programs[name], dtype), target=meant)
            if page is None:
                typer.echo(f"{name}\n{found.print()}")
                continue
            from tilewright.report.derivation_page import derivation_page

            page.write_text(derivation_page(found), encoding="utf-8")
            typer.echo(f"written: {page}")


@app.command()
def bench(
    file: Annotated[
        Path | None, typer.Argument(help="A Python file with @tw.program functions and datasets().", metavar="PROG.py")
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", help="A .npz file of arguments, by the parameters' names; repeatable."),
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", help="The name of a data set (default: all); repeatable.")
    ] = None,
    entry: Annotated[
        list[str] | None, typer.Option("--entry", help="The name of a program (default: all); repeatable.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="cpu, opencl, cuda:1, ...")] = None,
    runs: Annotated[int, typer.Option(help="Measurements for each program and data set.")] = 20,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results to this file.")] = None,
    compared: Annotated[
        tuple[Path, Path] | None, typer.Option("--compare", help="Compare two results instead.", metavar="OLD NEW")
    ] = None,
) -> None:
    """Time the programs of a file on its data sets, or compare the results of two such runs."""
    with _user_errors():
        from tilewright.cli import bench as benchmark

        if compared is not None:
            if file is not None:
                raise ValueError(f"--compare takes two results and no program; {file} is one too many")
            old, new = map(benchmark.read_results, compared)
            _print_table(benchmark.comparison_table(benchmark.compare(old, new)))
            return
        if file is None:
            raise ValueError("give a Python file with programs, or --compare OLD.json NEW.json")
        if json_file is not None and not json_file.parent.is_dir():
            raise ValueError(f"cannot write {json_file}: there is no folder {json_file.parent}")
        device, rows = benchmark.run_file(file, data or [], dataset or [], entry or [], target, runs)
        _print_table(benchmark.results_table(device, rows))
        if json_file is not None:
            json_file.write_text(benchmark.results_json(file, device, rows))
            typer.echo(f"written: {json_file}")


class Cost(StrEnum):
    """What is smallest in the end where data sets disagree."""

    SUM = "sum"
    MEAN = "mean"


@app.command()
def tune(
    file: Annotated[Path, typer.Argument(help="A Python file with programs (@tw.program).", metavar="PROG.py")],
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="NAME=FILE.npz: arguments by the parameters' names; repeatable.", metavar="DATA"),
    ] = None,
    entry: Annotated[
        list[str] | None, typer.Option("--entry", help="The name of a program (default: all); repeatable.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="cpu, opencl, cuda:1, ...")] = None,
    cost: Annotated[
        Cost, typer.Option(help="The sum of times, or the mean of times relative to each best.")
    ] = Cost.SUM,
    seconds: Annotated[float, typer.Option(min=0, help="How long each candidate is run.")] = 0.2,
    budget: Annotated[float, typer.Option(min=0, help="Seconds after which no further candidate is tried.")] = 300.0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure everything again.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file for the values (default: PROG.tuning).")
    ] = None,
) -> None:
    """Find the thresholds with which a file's programs pick their versions fastest, by running them on data sets."""
    with _user_errors():
        from tilewright.cli.tune import read_programs, tune_file
        from tilewright.tune.text import file_beside, read_tunings, write_tunings

        where = output or file_beside(file)
        if not where.parent.is_dir():
            raise ValueError(f"cannot write {where}: there is no folder {where.parent}")
        if where.exists():
            read_tunings(where)
        read = read_programs(file, data or [], entry or [])
        try:
            for one in tune_file(read, target, cost.value, seconds, budget, fresh, typer.echo):
                typer.echo(str(one))
                write_tunings(where, [one.tuning])
                typer.echo(f"written: {where}")
        except KeyboardInterrupt:
            typer.echo("stopped: what was measured is stored, and the same command goes on from there", err=True)
            raise typer.Exit(130) from None


def _print_table(table: Any) -> None:
    import sys

    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 140).print(table)


@app.command()
def devices(
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the CPU's peak rates and bandwidth, for the bounds of `explain`.")
    ] = False,
) -> None:
    """List the devices that can be used, and why others cannot."""
    with _user_errors():
        from tilewright.report.text import byte_amount, table
        from tilewright.runtime.devices import absent_devices
        from tilewright.runtime.devices import devices as find

        rows: list[list[str]] = [["device", "cores", "memory", "description"]]
        for one in find():
            memory = byte_amount(one.machine.memory_bytes) if one.machine.memory_bytes else "-"
            rows.append([one.name, str(one.machine.cores), memory, one.description])
        typer.echo("\n".join(table(rows)))
        for kind, reason in absent_devices().items():
            typer.echo(f"no {kind}: {reason}")
        if measure:
            from tilewright.report.text import amount
            from tilewright.runtime.speeds import measure_speeds

            found = measure_speeds()
            rates = f"{amount(found.peak_flops_f32, 'flop/s')} (f32), {amount(found.peak_flops_f64, 'flop/s')} (f64)"
            typer.echo(f"cpu: {rates}, {amount(found.dram_bandwidth, 'B/s')} from memory")


if __name__ == "__main__":
    app()
