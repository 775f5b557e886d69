"""Versions of a program that are made when they are first needed.

Most calls have points enough to be run as the program is written. Making all versions takes much longer than that, so
it waits for a call with fewer points, or for someone who asks for thresholds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from tilewright.ir.cached import cached_property
from tilewright.ir.dataclass import dataclass
from tilewright.ir.sizes import ONE, Size
from tilewright.machine.forking import ForkSafeLock
from tilewright.runtime.collecting import collection_later
from tilewright.runtime.host import HostProgram

MOST_ROUNDS = 512
"""Of a loop of the host; more make recordings that are too long (`recording.LONGEST_RECORDING`)."""

Made: TypeAlias = tuple[HostProgram, Mapping[str, float]]


SHORT_ROUND = 1 << 10
"""Points of a round, for each point of the nest, that a core is through with before its arrays are back in memory."""


@dataclass(frozen=True)
class NestPoints:
    """The points of a nest as it is written, and of the largest construct in it with all parallelism used, if known.

    `rounds`: how many of a loop of the host such a construct may go through. `hides_in_rounds`: the points loop, and
    products hidden in a round are what its versions have kernels for, launched in each.
    """

    written: Size
    whole: Size | None
    rounds: Size = ONE
    hides_in_rounds: bool = False


@dataclass(frozen=True)
class FillsMachine:
    """Whether each of the nests that have other versions fills the machine by its points as written.

    The machine, not the threads that are set: a sum has the same bits whatever their number.

    Attributes:
        nests: their points.
        resident: points that fill the machine.
        least: fewer points than this, all parallelism used, are not worth a version. What all points share in a round
            is saved in each, so that the points of all rounds count, if native code repeats so many; those of a round
            where a version is only more parallel.
        is_beaten: whether a version is better than the nests as written however many points these have. It is asked
            only for as many points as are worth a version, since all of them must be made to tell.
    """

    nests: tuple[NestPoints, ...]
    resident: float
    least: int
    is_beaten: Callable[[], bool] | None = field(default=None, compare=False, repr=False)

    def __call__(self, sizes: Mapping[str, int]) -> bool:
        """Whether the program is run as it is written, for these sizes."""
        return all(self._fills(one, sizes) for one in self.nests)

    def _fills(self, nest: NestPoints, sizes: Mapping[str, int]) -> bool:
        written = nest.written.evaluate(sizes)
        enough = written >= self.resident or written == 0
        if nest.whole is not None:
            points, rounds = nest.whole.evaluate(sizes), nest.rounds.evaluate(sizes)
            counts = enough and rounds <= MOST_ROUNDS
            if points * (rounds if counts else 1) < self.least:
                return True
            if nest.hides_in_rounds and points < SHORT_ROUND * written:
                return True
        return enough and not self._beaten

    @property
    def _beaten(self) -> bool:
        if self.is_beaten is None:
            return False
        with collection_later():
            return self.is_beaten()

    @property
    def always(self) -> bool:
        """Whether it is, whatever the sizes are."""
        return not self.nests

    def __str__(self) -> str:
        asked = dict.fromkeys(" or ".join(self._questions(one)) or "never" for one in self.nests)
        return " and ".join(f"({one})" if len(asked) > 1 else one for one in asked)

    def _questions(self, nest: NestPoints) -> Iterator[str]:
        if not self._beaten:
            yield f"{nest.written} >= {self.resident:.17g}"
        if nest.hides_in_rounds and nest.whole is not None:
            yield f"{nest.whole} < {SHORT_ROUND * nest.written}"
        if nest.whole is not None and self.least:
            if nest.rounds == ONE or not self._beaten:
                yield f"{nest.whole} < {self.least}"
            else:
                yield f"({nest.rounds}) * ({nest.whole}) < {self.least}"
                few = f"{nest.rounds} > {MOST_ROUNDS} or {nest.written} < {self.resident:.17g}"
                yield f"({few}) and {nest.whole} < {self.least}"


class Versions:
    """The versions of a program with the thresholds that pick them, made once, whoever asks first.

    Args:
        make: gives the program that holds all versions, and the thresholds by the machine's model.
        fills: says when the program as written is run instead; None for never.
        inside: gives how many points are inside each of those that a threshold asks about.
    """

    def __init__(
        self, make: Callable[[], Made], fills: FillsMachine | None, inside: Callable[[], Mapping[str, Size]] = dict
    ) -> None:
        self.fills = fills
        self._make, self._count = make, inside
        self._made: Made | None = None
        self._lock = ForkSafeLock()

    @property
    def made(self) -> Made:
        """The program that holds all versions, and the thresholds by the machine's model."""
        if self._made is None:
            with self._lock:
                if self._made is None:
                    with collection_later():
                        self._made = self._make()
        return self._made

    @cached_property
    def inside(self) -> Mapping[str, Size]:
        """How many points are inside each of those that a threshold asks about, where sizes of arguments say it."""
        return self._count()


def told(written: HostProgram | None, versions: Versions | None) -> list[str]:
    """How each statement is lowered: of the program as written, and of the versions that calls may need."""
    if versions is None or versions.fills is None or written is None:
        only = written if written is not None or versions is None else versions.made[0]
        return [] if only is None else only.lines
    if versions.fills.always:
        return [*written.lines, "  other versions are made when thresholds are set or tuned"]
    head = f"  as it is written, where {versions.fills}:"
    return [head, *written.lines, "  its versions otherwise:", *versions.made[0].lines]
