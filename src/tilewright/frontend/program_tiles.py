"""Tile sizes of a program: those that a user gives, and in its calls those of the user's store, by device and by the
sizes of the arguments.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.nodes import Program
from tilewright.ir.scalars import I64
from tilewright.runtime.devices import Device
from tilewright.runtime.messages import value_text

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


def given_tiles(tiles: Any) -> dict[str, tuple[int, int] | int]:
    """Tile sizes as a user gives them.

    Raises:
        TypeError: for anything but a mapping of names to sizes.
        IllegalTiling: for sizes that are neither (T, R) nor Q.

    Example:
        >>> given_tiles({"n": [8, 4], "k": 16})
        {'n': (8, 4), 'k': 16}
    """
    if not isinstance(tiles, Mapping):
        raise TypeError(f"tiles map dimensions to sizes, as in {{'n': (8, 4), 'k': 16}}; {value_text(tiles)} does not")
    return {name: _given_sizes(name, one) for name, one in tiles.items()}


def _given_sizes(name: Any, given: Any) -> tuple[int, int] | int:
    from tilewright.passes.tiled.tiling import IllegalTiling

    if not isinstance(name, str):
        raise TypeError(f"tiles map names of dimensions to sizes; {value_text(name)} is no name")
    is_pair = isinstance(given, tuple | list) and len(given) == 2
    listed = given if is_pair else (given,)
    try:
        sizes = () if any(isinstance(one, bool) for one in listed) else tuple(map(operator.index, listed))
    except TypeError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise IllegalTiling(
            f"tiles[{name!r}] is {value_text(given)}; it must be (T, R) for a dimension of the result, Q for a "
            "contracted one, each at least 1"
        )
    return (sizes[0], sizes[1]) if is_pair else sizes[0]


def check_dimensions(program: Program, tiles: Tiles) -> None:
    """Refuse tile sizes of dimensions that a program does not have.

    Those of its own sizes have their names; d0, d1, ... are those of contractions whose sizes have none.

    Raises:
        IllegalTiling: naming the dimensions that there are.
    """
    from tilewright.ir.traversal import bound_variables
    from tilewright.passes.pipelines import run_pipeline
    from tilewright.passes.tiled.tiling import IllegalTiling

    unknown = [name for name in tiles if name not in program.size_names and not re.fullmatch(r"d\d+", name)]
    if not unknown:
        return
    inside = (*program.parameters, *bound_variables(run_pipeline(program).body))
    made = {one.name for one in inside if not one.type.rank and one.type.element == I64}
    for name in unknown:
        if name not in made:
            has = ", ".join(program.size_names) or "none"
            raise IllegalTiling(f"program {program.name}: tiles names dimension {name!r}; it has {has}")
