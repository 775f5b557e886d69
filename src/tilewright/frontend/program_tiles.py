"""Tuned tile sizes in the calls of a program: from the user's store, by device and by the sizes of the arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.nodes import Program
from tilewright.runtime.devices import Device

if TYPE_CHECKING:
    from tilewright.passes.contractions.contraction_launches import Tiles
    from tilewright.runtime.executable import Executable


class TunedTiles:
    """An executable, and others of the same program with tile sizes that were found for some classes of sizes.

    Args:
        plain: with the model's tile sizes.
        program, device: what it was compiled from and for.
        compiled: makes the executable with given tile sizes.
    """

    def __init__(
        self, plain: Executable, program: Program, device: Device, compiled: Callable[[Tiles], Executable]
    ) -> None:
        from tilewright.tune.tiles import stored_tiles

        self.plain = plain
        self._compiled = compiled
        self._stored = stored_tiles(program, device) if device.machine.is_gpu_like else {}
        self._executables: dict[str, Executable] = {}

    def __bool__(self) -> bool:
        """Whether any are stored."""
        return bool(self._stored)

    def __call__(self, arguments: Sequence[Any], out: Any) -> Any:
        """The result of a call; tile sizes that these very sizes do not allow are told of and not used again."""
        from tilewright.passes.tiled.tiling import IllegalTiling
        from tilewright.tune.keys import TuningWarning, shape_class

        shape = shape_class(arguments)
        if shape in self._stored:
            if shape not in self._executables:
                self._executables[shape] = self._compiled(self._stored[shape])
            try:
                return self._executables[shape](*arguments, out=out)
            except IllegalTiling as error:
                del self._stored[shape]
                warnings.warn(f"tuned tile sizes {shape!r} are not used: {error}", TuningWarning, stacklevel=3)
        return self.plain(*arguments, out=out)
