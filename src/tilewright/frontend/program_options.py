"""What a user may ask of a program beside what it computes: how it is flattened, and the values of its thresholds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Program
from tilewright.ir.scalars import ScalarType
from tilewright.passes.flattening.kinds import Flattening, check_flattening
from tilewright.runtime.devices import Device

if TYPE_CHECKING:
    from tilewright.frontend.program_tiles import TunedTiles
    from tilewright.machine.model import Machine
    from tilewright.passes.contractions.contraction_launches import Tiles
    from tilewright.rewrite.derivation import Derivation, Recording
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.host import HostProgram
    from tilewright.runtime.versions import Versions

Arguments: TypeAlias = Sequence[Any]
DataSets: TypeAlias = Mapping[str, Arguments | Callable[[], Arguments]] | Sequence[Arguments]


@dataclass(frozen=True)
class ProgramOptions:
    """How a program is compiled.

    Attributes:
        flattening, contractions: see `passes.compile.compile_program`.
        tuning: a file of tunings; None for what lies beside the program's source, or is in the user's store.
        thresholds: values that the user has given, which go before all others.
        tiles: tile sizes that the user has given, for devices with thread blocks.
        unchecked: kernels do not check indices.
    """

    flattening: Flattening | None = "incremental"
    contractions: bool = True
    tuning: str | os.PathLike[str] | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    tiles: Tiles | None = None
    unchecked: bool = False

    def __post_init__(self) -> None:
        """Refuse a flattening that does not exist.

        Raises:
            ValueError: naming those that there are.
        """
        if self.flattening is not None:
            check_flattening(self.flattening)

    def has_versions(self, program: Program) -> bool:
        """Whether there are versions of a program: it is flattened incrementally, and has nested parallelism."""
        if self.flattening != "incremental":
            return False
        from tilewright.passes.flattening.flat_programs import is_flat
        from tilewright.passes.pipelines import run_pipeline

        return not is_flat(run_pipeline(program))

    def compiled(self, program: Program, device: Device) -> Executable:
        """The program for a device, with the thresholds of the machine's model."""
        from tilewright.runtime.llvm_library import load_ahead

        if device.name == "cpu":
            load_ahead()
        from tilewright.passes.compile import compile_program

        self._check_tiles(program)
        return compile_program(
            program,
            device,
            tiles=self.tiles,
            flattening=self.flattening,
            contractions=self.contractions,
            unchecked=self.unchecked,
        )

    def _check_tiles(self, program: Program) -> None:
        """Refuse tile sizes of dimensions that a program does not have."""
        if self.tiles:
            from tilewright.frontend.program_tiles import check_dimensions

            check_dimensions(program, self.tiles)

    def explained(self, program: Program, machine: Machine) -> str:
        """How each part is run on a machine, which need not be here; with the thresholds of its model."""
        from tilewright.runtime.versions import told

        written, versions = self._prepared(program, machine)
        text = "\n".join([f"{program.name} on {machine.name}", *told(written, versions)])
        if versions is None or (versions.fills is not None and versions.fills.always):
            return text
        return _with_versions(text, versions.made[0].program, versions.made[1])

    def derived(self, program: Program, machine: Machine) -> Derivation:
        """The rewrites between a program and what is run on a machine: those that lead to its versions, if it has any.

        With its refusals: what nearly was rewritten, and why it was not.
        """
        from tilewright.rewrite.derivation import Recording

        written, several = Recording(program), Recording(program)
        _, versions = self._prepared(program, machine, written, several)
        if versions is None or (versions.fills is not None and versions.fills.always):
            return written.derivation
        _ = versions.made  # which records them
        return several.derivation

    def _prepared(
        self, program: Program, machine: Machine, written: Recording | None = None, several: Recording | None = None
    ) -> tuple[HostProgram | None, Versions | None]:
        """See `passes.compile.prepare_program`; with what the rewrites to each are written into."""
        from tilewright.passes.compile import prepare_program

        self._check_tiles(program)
        return prepare_program(
            program,
            Device(machine.name, machine, ""),
            asked=self.tiles,
            flattening=self.flattening,
            contractions=self.contractions,
            unchecked=self.unchecked,
            derivation=written,
            versions_derivation=several,
        )

    def tuned_tiles(self, executable: Executable, program: Program, device: Device) -> TunedTiles | None:
        """The executable with tile sizes from the user's store, where there are some and the user has given none."""
        if self.tiles or not device.machine.is_gpu_like:
            return None
        from tilewright.frontend.program_tiles import TunedTiles

        def compiled(tiles: Tiles) -> Executable:
            one = replace(self, tiles=tiles).compiled(program, device)
            return one.with_thresholds(executable.given)

        return TunedTiles(executable, program, device, compiled) or None

    def tuned(self, executable: Executable, source: str | None) -> Executable:
        """The same with tuned thresholds, where there are some."""
        if not executable.has_versions:
            return executable
        from tilewright.tune.lookup import tuned

        return tuned(executable, source, self.tuning)


def named_data(datasets: DataSets) -> dict[str, tuple[Any, ...]]:
    """The arguments of data sets by name; those in a sequence are named by their number.

    Raises:
        TypeError: for a data set that is no sequence of arguments.
    """
    pairs = datasets.items() if isinstance(datasets, Mapping) else ((str(n), one) for n, one in enumerate(datasets))
    made: dict[str, tuple[Any, ...]] = {}
    for name, one in pairs:
        arguments = one() if callable(one) else one
        if not isinstance(arguments, tuple | list):
            raise TypeError(
                f"the data set {name} must be a tuple of arguments, or a function that makes one, not "
                f"{type(arguments).__name__}"
            )
        made[name] = tuple(arguments)
    return made


def common_types(program: str, types: Mapping[str, tuple[ScalarType, ...]]) -> tuple[ScalarType, ...] | None:
    """The element types of all data sets; None without any.

    Raises:
        ValueError: if they differ, with those of each.
    """
    if len(set(types.values())) > 1:
        shown = "; ".join(f"{name}: {', '.join(map(str, one))}" for name, one in types.items())
        raise ValueError(f"program {program}: the data sets have different element types ({shown})")
    return next(iter(types.values()), None)


def explanation(executable: Executable) -> str:
    """How each part is run; of a program with several versions, also the tree of decisions with the values of now."""
    text = executable.explain()
    return _with_versions(text, executable.program, executable.thresholds) if executable.asks else text


def _with_versions(text: str, program: Program, thresholds: Mapping[str, float]) -> str:
    if not thresholds:
        return text
    from tilewright.passes.flattening.flatten_tree import explain_versions

    return f"{text}\n{explain_versions(program, thresholds)}"
