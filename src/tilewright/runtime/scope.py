"""What a running program's names stand for on the host: scalars, and arrays placed in a device's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.lmad import LMAD
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import Size, size
from tilewright.runtime.backends import Memory
from tilewright.runtime.flat_plan import row_major_strides
from tilewright.runtime.host import Layout

Step: TypeAlias = tuple[int, int]
"""A counter of rounds, and by how much something grows in each of them."""


@dataclass(frozen=True, eq=False)
class Scalar:
    """A scalar that the host knows. `argument` is its position if it is an argument that may change between calls of
    one bound plan; `changing` says that it was computed from such. `rounds` are the counters of the loops whose rounds
    have other values; `step`, if it is known, is that one of them and by how much it grows in each.
    """

    value: Any
    argument: int | None = None
    changing: bool = False
    rounds: frozenset[int] = frozenset()
    step: Step | None = None


KNOWN_STRIDES = {1: (2, 3, 4), 2: (2, 3, 4), 4: (2, 4), 8: (2,)}
"""By the bytes of elements, how near one another they lie where kernels are made for it: these read vectors and pick
the elements out of them. Others LLVM would gather, which takes longer than a load for each.
"""


@dataclass(frozen=True, eq=False)
class Placed:
    """An array (rank 0: a scalar in memory); offset and strides in elements. `step` is that of the offset."""

    memory: Memory
    element: ScalarType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    fresh: bool = False
    step: Step | None = None

    @property
    def layout(self) -> Layout:
        """What a kernel may assume of it."""
        known = (-1, 0, 1, *KNOWN_STRIDES.get(self.element.bytes, ()))
        strides = tuple(stride if stride in known else None for stride in self.strides)
        at_start = self.offset == 0 and self.step is None
        if 0 in self.shape:
            return Layout((0,) * len(self.shape), at_start=at_start)
        if self.strides == row_major_strides(self.shape) or self._dense_but_for_units():
            return Layout((), dense=True, at_start=at_start)
        return Layout(strides, at_start=at_start)

    def _dense_but_for_units(self) -> bool:
        expected = row_major_strides(self.shape)
        return all(
            extent == 1 or stride == right
            for extent, stride, right in zip(self.shape, self.strides, expected, strict=True)
        )

    @property
    def lmad(self) -> LMAD:
        """As an LMAD of constants."""
        return LMAD(size(self.offset), tuple(map(size, self.shape)), tuple(map(size, self.strides)))

    def seen_as(self, lmad: LMAD) -> Placed:
        """The same memory under another LMAD of constants."""

        def number(value: Size) -> int:
            return value.evaluate({})

        return Placed(
            self.memory, self.element, tuple(map(number, lmad.shape)), tuple(map(number, lmad.strides)),
            number(lmad.offset), step=self.step,
        )  # fmt: skip


Entry: TypeAlias = Scalar | Placed


class Scope(Mapping[str, int]):
    """The names in scope; one dictionary serves all nested scopes, because names are unique in a program."""

    def __init__(self, entries: Mapping[str, Entry] | None = None) -> None:
        self.entries: dict[str, Entry] = dict(entries or {})
        self.used_changing = False
        self.used_rounds: set[int] = set()

    def __getitem__(self, name: str) -> int:
        """The value of a name in a size: a scalar, or an offset or stride of an array (`x.offset`, `x.stride0`)."""
        entry = self.entries.get(name)
        if isinstance(entry, Scalar):
            if entry.changing or entry.argument is not None:
                self.used_changing = True
            self.used_rounds |= entry.rounds
            return int(entry.value)
        base, _, part = name.rpartition(".")
        array = self.entries.get(base)
        if isinstance(array, Placed):
            if array.step is not None and part == "offset":
                self.used_rounds.add(array.step[0])
            return array.offset if part == "offset" else array.strides[int(part.removeprefix("stride"))]
        raise KeyError(f"{name} has no value on the host")

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def size(self, value: Size) -> int:
        """The value of a size."""
        return value.constant if value.constant is not None else value.evaluate(self)

    def shape(self, extents: Sequence[Size]) -> tuple[int, ...]:
        """The values of extents; a negative one becomes 0."""
        return tuple(max(0, self.size(extent)) for extent in extents)

    def layouts(self, names: Sequence[str]) -> tuple[tuple[str, Layout], ...]:
        """The layouts of those names that are in memory."""
        found = ((name, self.entries.get(name)) for name in names)
        return tuple((name, entry.layout) for name, entry in found if isinstance(entry, Placed))
