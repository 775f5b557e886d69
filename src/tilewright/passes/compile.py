"""From a program to something that can be called.

The standard rewrites come first, then flattening if it is asked for; then each statement gets its lowering
(`contraction_steps`, `statements`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tilewright.ir import nodes
from tilewright.ir.joined import doubtful_parts
from tilewright.ir.nodes import Program
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import all_statements
from tilewright.kernel.launch import Launch
from tilewright.passes.contractions.contraction_steps import contraction_block
from tilewright.passes.core.used_names import size_names
from tilewright.passes.pipelines import machine_pipeline, run_pipeline
from tilewright.rewrite.derivation import Recording
from tilewright.runtime.collecting import collection_later
from tilewright.runtime.devices import Device
from tilewright.runtime.executable import Executable
from tilewright.runtime.host import Block, Copier, HostProgram, KernelStep, Later, Notes, Step
from tilewright.runtime.versions import FillsMachine, Versions

Extents: TypeAlias = tuple[int, ...]
Offsets: TypeAlias = tuple[int, int]
Lowered: TypeAlias = Callable[[Program, Recording | None], HostProgram]

if TYPE_CHECKING:
    from tilewright.passes.contractions.contraction_launches import Asked, Tiles
    from tilewright.passes.flattening.kinds import Flattening


def compile_program(
    program: Program,
    device: Device,
    *,
    optimise: bool = True,
    tiles: Tiles | None = None,
    any_shape: bool = False,
    flattening: Flattening | None = None,
    contractions: bool = True,
    unchecked: bool = False,
) -> Executable:
    """The program, ready to be called on a device.

    Args:
        program: a well-typed program.
        device: where it runs (`runtime.devices.device_for`).
        optimise: run the standard pipeline first.
        tiles: tile sizes fixed by the user for the dimensions of contractions, by size name: (T, R) of a parallel
            dimension, Q of a contracted one. Sizes that break a limit raise `IllegalTiling` when the program is called.
        any_shape: on a CPU, contractions of little work get a kernel of any shape, compiled once for all of them.
        flattening: which nested parallelism becomes flat after that [S2]: "full" all of it, "outer" that of the
            outermost nests; "incremental" keeps versions from the one to the other, picked when the program runs by
            the executable's thresholds, and made when that has nests with too few points to be run as they are
            written. None leaves nests as they are written, which makes a kernel of each.
        contractions: nests that are contractions are tiled and not flattened (incrementally: that is one version).
        unchecked: kernels do not check indices; one out of range reads what lies there, or ends the process.

    Raises:
        LoweringError: if a statement cannot be lowered, saying why; of a program with versions that calls ask for, when
            it is called.
        ValueError: if there is no such flattening.

    Example:
        >>> import numpy as np
        >>> from tilewright.ir.builder import Builder
        >>> from tilewright.ir.scalars import F32
        >>> from tilewright.runtime.devices import device_for
        >>> b = Builder()
        >>> x = b.variable("x", nodes.array(F32, "n"))
        >>> double = b.program("double", [x], [b.map([x], lambda e: b.apply("add", e, e))])
        >>> compile_program(double, device_for("cpu"))(np.array([1, 2], np.float32))
        array([2., 4.], dtype=float32)
    """
    asked: Asked = tiles
    if any_shape:
        from tilewright.passes.contractions.contraction_launches import Kernels

        asked = Kernels.ANY_SHAPE
    with collection_later():
        written, versions = prepare_program(program, device, optimise, asked, flattening, contractions, unchecked)
    return Executable(written, device, _copier(device), versions)


def prepare_program(
    program: Program,
    device: Device,
    optimise: bool = True,
    asked: Asked = None,
    flattening: Flattening | None = None,
    contractions: bool = True,
    unchecked: bool = False,
    derivation: Recording | None = None,
    versions_derivation: Recording | None = None,
) -> tuple[HostProgram | None, Versions | None]:
    """The steps of a program as `compile_program` makes them; the device need not exist.

    With a `derivation` all rewrites from the program to the first result's are added to it; to `versions_derivation`
    those that lead to the versions, when these are made.

    Returns:
        The program as it is written (or flattened without versions); None where one of the versions is always better.
        And the versions, which are made when they are needed; None of a program that has no other.
    """
    wanted = [one for one in (derivation, versions_derivation) if one is not None]
    standard = Recording(program) if wanted else None
    ready = run_pipeline(program, derivation=standard) if optimise else program
    for one in wanted:
        assert standard is not None, "what is wanted has been recorded"
        one.add(standard.derivation.steps, standard.derivation.refusals)

    def lowered(one: Program, derivation: Recording | None, later: bool = False) -> HostProgram:
        return replace(_lowered(one, device, asked, unchecked, derivation, later), parts=doubtful_parts(program))

    if flattening == "incremental":
        written, versions = _with_versions(ready, device, contractions, lowered, versions_derivation)
        later = versions is not None and versions.fills is not None and not versions.fills.always
        return (lowered(ready, derivation, later) if written else None), versions
    if flattening is not None:
        from tilewright.passes.flattening.flatten_contractions import flattening_pipeline

        ready = run_pipeline(ready, flattening_pipeline(flattening, contractions), derivation)
    if any(isinstance(one.expression, nodes.Threshold) for one in all_statements(ready.body)):
        return None, _versions(lambda: ready, device, lowered, versions_derivation)  # the program itself asks
    return lowered(ready, derivation), None


def _with_versions(
    ready: Program, device: Device, contractions: bool, lowered: Lowered, derivation: Recording | None
) -> tuple[bool, Versions | None]:
    """Whether a program is ever run as it is written, and its versions, if it has any."""
    from tilewright.passes.core.found_contractions import only_contractions

    @functools.cache
    def flattened() -> Program:
        from tilewright.passes.flattening.flatten_contractions import flattening_pipeline

        return run_pipeline(ready, flattening_pipeline("incremental", contractions), derivation)

    asks = any(isinstance(one.expression, nodes.Threshold) for one in all_statements(ready.body))
    if asks or not contractions:  # without contractions nests that are tiled as they are written are flattened too
        return False, _versions(flattened, device, lowered, derivation)
    if only_contractions(ready):  # without the rules of flattening, which take longer to import than this to compile
        return True, _versions(flattened, device, lowered, derivation, FillsMachine((), 0, 0))
    from tilewright.passes.flattening.flat_programs import is_flat

    if is_flat(ready):
        return True, None
    from tilewright.passes.flattening.as_written import fills_machine

    fills = fills_machine(ready, device.machine, flattened)
    return fills is not None, _versions(flattened, device, lowered, derivation, fills)


def _versions(
    flattened: Callable[[], Program],
    device: Device,
    lowered: Lowered,
    derivation: Recording | None,
    fills: FillsMachine | None = None,
) -> Versions:
    """The versions of a program, to be made when they are needed."""

    def make() -> tuple[HostProgram, dict[str, float]]:
        from tilewright.passes.flattening.flatten_tree import machine_thresholds

        return lowered(flattened(), derivation), machine_thresholds(flattened(), device.machine)

    def inside() -> dict[str, Size]:
        from tilewright.passes.flattening.flatten_tree import points_inside

        return points_inside(flattened())

    return Versions(make, fills, inside)


def _lowered(
    program: Program, device: Device, asked: Asked, unchecked: bool, derivation: Recording | None, later: bool = False
) -> HostProgram:
    """The steps of a program and what a call of it depends on; `later`: lowered when they are needed, if ever."""
    program = run_pipeline(program, machine_pipeline(device.machine), derivation)
    if unchecked:
        from tilewright.passes.core.unchecked import without_checks

        program = without_checks(program)
    checked = any(getattr(one.expression, "checked", False) for one in all_statements(program.body))
    if later:
        form = Later(program.body.results, (), lambda: program_block(program, device, asked))
        return HostProgram(program, form, (form,), _size_arguments(program), checked)
    return HostProgram(program, *program_block(program, device, asked), _size_arguments(program), checked)


def program_block(program: Program, device: Device, asked: Asked = None) -> tuple[Block, Notes]:
    """The steps of a program for a device (which need not exist: its limits are enough), and how each was lowered."""

    def general(number: int) -> Step:
        from tilewright.passes.statements import statements_of

        return statements_of(program, device, asked).step_without_tiling(program.body, number)

    found = contraction_block(program, device, asked, general)
    if found is not None:
        return found
    from tilewright.passes.statements import lower_program

    return lower_program(program, device, asked)


def _size_arguments(program: Program) -> frozenset[int]:
    """Positions of the scalar arguments that occur in sizes or as indices."""
    names = size_names(program.body)
    for statement in all_statements(program.body):
        if isinstance(statement.expression, nodes.Index | nodes.Update):
            names.update(str(atom) for atom in statement.expression.indices)
    return frozenset(p for p, one in enumerate(program.parameters) if one.type.rank == 0 and one.name in names)


def _copier(device: Device) -> Copier:
    """How arrays are copied on a device."""

    def step(element: ScalarType, rank: int) -> KernelStep:
        from tilewright.passes.kernel_steps import copy_step, threads_per_block

        return copy_step(element, rank, threads_per_block(device))

    def permutation(element: ScalarType, shape: Extents, source: Extents, target: Extents, at: Offsets) -> Launch:
        from tilewright.passes.permute.kernel import permute_launch

        return permute_launch(element, shape, source, target, at, machine=device.machine)

    def transposed(element: ScalarType, shape: Extents, source: Extents, target: Extents, at: Offsets) -> Launch | None:
        from tilewright.passes.permute.transposed import transposed_launch

        return transposed_launch(element, shape, source, target, at, device.machine)

    return Copier(step, transposed if device.machine.is_gpu_like else permutation)
