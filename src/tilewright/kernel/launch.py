"""What a lowering hands to the runtime: a kernel and everything that its launch needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import ScalarType

if TYPE_CHECKING:  # programs from the disk do without the kernel language
    from tilewright.kernel.ir import Kernel


class LaunchDeclined(Exception):
    """A special lowering has no kernel for these sizes: the user is shown why, and the general one is used."""


@dataclass(frozen=True)
class ScalarReference:
    """A scalar known only when the launch happens: one of the program, by name (component 1: its imaginary part)."""

    name: str
    component: int = 0


@dataclass(frozen=True)
class Temporary:
    """An array between launches: its name, the type of its elements, and how many there are."""

    name: str
    element: ScalarType
    elements: int


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    `buffers` names the array given for each of `kernel.buffers`, `scalars` holds the value of each of
    `kernel.scalars` (a `ScalarReference` is looked up at launch), `blocks` the number of blocks. With 0 blocks
    nothing is launched. `temporaries` are made before it, for it and the launches that follow it.
    """

    kernel: Kernel
    blocks: int
    buffers: tuple[str, ...]
    scalars: tuple[int | float | bool | ScalarReference, ...]
    temporaries: tuple[Temporary, ...] = ()
