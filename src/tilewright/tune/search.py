"""The search for the thresholds of an incrementally flattened program [S2, Autotuning].

From the deepest comparison up, each data set is run with the version below a comparison and with the one above; what
it compares there and what it costs gives an interval for the threshold (`intervals`). The comparisons further in have
their values by then, and those further out are set so that the one in question is reached. Since the version below is
the best that was found further in, a run that took the same way before is not repeated: the number of runs grows with
the number of comparisons, not with that of their combinations. Nothing is compiled again.

Ways whose times are close are run again against each other (`races`), since times measured one after the other say
little about them. What is still equal then leaves the threshold open, for other data sets or the model to decide.

Where data sets disagree about a threshold, and have not as much inside the points that are asked about, it gets other
values where less is inside (`bands`): that takes no further runs.

Last, the ways of each data set that are near its best all race against each other, whichever comparison they belong to,
and the thresholds are chosen anew from these times (`together`): what single decisions may lose does not add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal, TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Program
from tilewright.passes.flattening.flatten_tree import Node, Work, decisions
from tilewright.runtime.thresholds import band, bands_of, merged, resolved, threshold_of
from tilewright.tune.bands import of_bands, values_of
from tilewright.tune.intervals import Choice, Interval, Samples, best_interval, choose, within
from tilewright.tune.together import Compared, Way, best_together

MOST_VALUES = 8
"""Of the values that one data set compares with one threshold, so many are tried."""
CLOSE = 1.25
"""Ways that took up to so many times the shortest time are raced: times measured apart vary by as much."""

NEAR = 1.1
"""Ways that take up to so many times as long as the best of a data set race once more, all of them together."""
WORTH = 0.003
"""The fraction of the costs of all data sets that other thresholds must save to be taken in place of those found."""

CostKind: TypeAlias = Literal["sum", "mean"]
COSTS: tuple[CostKind, ...] = ("sum", "mean")


@dataclass(frozen=True)
class Question:
    """A comparison to be tuned: the name of its threshold, and the values of others with which it is reached."""

    name: str
    reached: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Measured:
    """A run: what it compared, with the answers, in order of first occurrence; its time, or why it failed.

    A run that failed is known by the thresholds' values (`settings`), since not all of its way was seen. `last`: it was
    a run of the last race of this search.
    """

    data: str
    compared: tuple[tuple[str, int, bool], ...]
    seconds: float
    failure: str = ""
    settings: tuple[tuple[str, float], ...] = ()
    last: bool = False

    def is_for(self, settings: Mapping[str, float]) -> bool:
        """Whether a run with these values would go the same way."""
        if self.failure:
            return dict(self.settings) == dict(settings)
        return all((value >= settings[name]) == answer for name, value, answer in self.compared)

    def fits(self, name: str, setting: float) -> bool:
        """Whether it is a way with this value of one threshold."""
        return all((value >= setting) == answer for one, value, answer in self.compared if one == name)


Run: TypeAlias = Callable[[str, Mapping[str, float]], Measured]
Race: TypeAlias = Callable[[Sequence[Measured], bool], Sequence[Measured]]
"""Repeats runs of a data set in turns, and gives them with times that can be compared with each other; the last time,
it takes longer and tells them apart more finely."""
Insides: TypeAlias = Mapping[str, Mapping[str, int]]
Progress: TypeAlias = Callable[[str, int, int], None]
"""Told what is about to be done, how many such parts are done, and how many there are."""


def silent(text: str, done: int, total: int) -> None:
    """No progress is shown."""


@dataclass(frozen=True)
class Answer:
    """What was found for one threshold: its value, from which data sets' intervals and costs.

    `bands`: its values where less is inside, each with how much that is at most.
    """

    name: str
    choice: Choice
    samples: tuple[tuple[str, Samples], ...]
    intervals: tuple[tuple[str, Interval], ...]
    bands: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Found:
    """The thresholds' values after a search, how each came about, every run of it, and what there was no time for."""

    thresholds: Mapping[str, float]
    answers: tuple[Answer, ...]
    runs: tuple[Measured, ...]
    untried: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[Measured, ...]:
        """The runs that failed and were left out."""
        return tuple(one for one in self.runs if one.failure)


def questions(program: Program) -> tuple[Question, ...]:
    """The comparisons of a program whose thresholds can be chosen, the deepest first."""
    return tuple({one.name: one for one in _questions(decisions(program.body), {})}.values())


def _questions(nodes: tuple[Node, ...], reached: Mapping[str, float]) -> Iterator[Question]:
    for one in nodes:
        if isinstance(one, Work):
            yield from _questions(one.inside, reached)
            continue
        (first, true), *_ = one.asked
        for side, value in ((one.yes, 0.0 if true else math.inf), (one.no, math.inf if true else 0.0)):
            yield from _questions(side, {**reached, first.name: value})
        yield Question(first.name, tuple(reached.items()))


def search(
    asked: Sequence[Question],
    initial: Mapping[str, float],
    data: Sequence[str],
    run: Run,
    *,
    cost: CostKind = "sum",
    tolerance: float = 0.0,
    known: Sequence[Measured] = (),
    progress: Progress = silent,
    race: Race | None = None,
    is_over: Callable[[], bool] = lambda: False,
    inside: Insides | None = None,
) -> Found:
    """The best thresholds for these data sets.

    Args:
        asked: `questions` of the program.
        initial: a value for each threshold: the model's.
        data: the names of the data sets.
        run: runs one with values for all thresholds, and tells of a failure instead of raising.
        cost: what is smallest in the end where data sets disagree: the sum of their times, or the mean of how many
            times slower than its own best each of them is.
        tolerance: differences of times below this fraction mean nothing.
        known: runs made before, which are not repeated; of runs of the same way the last counts.
        progress: called once for each comparison and data set.
        race: compares runs whose times are `CLOSE`; None to believe the times as they are.
        is_over: whether the time for it is; comparisons that were not reached by then keep their values.
        inside: for each data set how many points are inside those that a threshold asks about, where that is known.
    """
    inside = inside or {}
    seeker = _Seeker(run, list(known), race, is_over, inside)
    values = dict(initial)
    answers: list[Answer] = []
    untried: list[str] = []
    for name in data:  # what is found is not to be worse than what there was
        if not is_over():
            seeker.measured(name, values)
    for place, question in enumerate(asked):
        around = merged(values, dict(question.reached))
        samples: dict[str, Samples] = {}
        for number, name in enumerate(data):
            if is_over():
                untried.append(f"{question.name}, {name}")
                continue
            progress(f"{question.name}, {name}", place * len(data) + number, len(asked) * len(data))
            found = seeker.sample(name, question.name, around)
            if found is not None and not all(map(math.isinf, found.costs)):
                weight = 1.0 if cost == "sum" else 1.0 / max(min(found.costs), 1e-12)
                samples[name] = Samples(found.values, found.costs, weight)
        if not samples:
            continue
        chosen = choose(list(samples.values()), values[question.name], tolerance)
        intervals = tuple((name, best_interval(one, tolerance)) for name, one in samples.items())
        wanted = {question.name: chosen.value}
        if not chosen.agreed:
            wanted = _in_bands(question.name, intervals, inside, values[question.name]) or wanted
        values = merged(values, wanted)
        answers.append(Answer(question.name, chosen, tuple(samples.items()), intervals))
    if answers:
        for name in () if untried or race is None else data:
            if is_over():
                untried.append(f"a last race, {name}")
                continue
            progress(f"a last race, {name}", len(asked) * len(data), len(asked) * len(data))
            seeker.decide_last(name)
        values = _together(seeker, data, values, {one.name for one in asked}, cost)
    answers = [_as_chosen(one, values, inside) for one in answers]
    return Found(values, tuple(answers), tuple(seeker.made), tuple(untried))


def _in_bands(
    threshold: str, intervals: Sequence[tuple[str, Interval]], inside: Insides, preferred: float
) -> dict[str, float] | None:
    """The values of a threshold with which all data sets have what they want; None if what is inside says no more."""
    if not all(threshold in inside.get(name, {}) for name, _ in intervals):
        return None
    bands = of_bands((inside[name][threshold], interval) for name, interval in intervals)
    return None if bands is None else values_of(threshold, bands, preferred)


def _together(
    seeker: _Seeker, data: Sequence[str], values: Mapping[str, float], names: Collection[str], cost: CostKind
) -> dict[str, float]:
    """The values, or others that are better for all data sets together by the times of the last races."""
    ways: dict[str, list[Way]] = {}
    marked: dict[str, list[Way]] = {}
    now, fixed = 0.0, tuple((name, value) for name, value in values.items() if threshold_of(name) not in names)
    for name in data:
        runs = [one for one in seeker.ways(name) if all(one.fits(*pair) for pair in fixed)]
        if not runs:  # it cannot be run at all
            continue
        weight = 1.0 if cost == "sum" else 1.0 / max(min(one.seconds for one in runs), 1e-12)
        ways[name] = [Way(tuple(a for a in one.compared if a[0] in names), weight * one.seconds) for one in runs]
        own = seeker.inside.get(name, {})
        marked[name] = [replace(one, compared=_marked(one.compared, own)) for one in ways[name]]
        plain = resolved(values, own)
        now += next((weight * one.seconds for one in runs if one.is_for(plain)), math.inf)
    chosen = dict(values)
    best, free = best_together(ways), best_together(marked)
    if best is not None and best.cost < now * (1 - WORTH):
        now = best.cost
        chosen = merged(values, {name: within(one, values[name]) for name, one in best.intervals.items()})
    if free is not None and free.cost < now * (1 - WORTH):
        chosen = merged(values, _of_marked(free.intervals, values))
    return chosen


def _marked(compared: Compared, inside: Mapping[str, int]) -> Compared:
    """Comparisons under names of their own for each number of points inside: thresholds may differ between these."""
    return tuple((band(one, inside[one]) if one in inside else one, value, answer) for one, value, answer in compared)


def _of_marked(intervals: Mapping[str, Interval], values: Mapping[str, float]) -> dict[str, float]:
    """Values of thresholds that lie in the intervals that were found for each number of points inside."""
    found: dict[str, float] = {}
    for name in {threshold_of(one) for one in intervals}:
        if name in intervals:
            found[name] = within(intervals[name], values[name])
            continue
        own = [(most, intervals[band(name, most)]) for most, _ in bands_of(dict.fromkeys(intervals, 0.0), name)]
        found |= values_of(name, of_bands(own) or (), values[name])
    return found


def _as_chosen(answer: Answer, values: Mapping[str, float], inside: Insides) -> Answer:
    """An answer with the values that the threshold has in the end."""
    value, bands = values[answer.name], bands_of(values, answer.name)
    if not bands and value in answer.choice.interval:
        return replace(answer, choice=replace(answer.choice, value=value))
    own = {name: resolved(values, inside.get(name, {}))[answer.name] for name, _ in answer.samples}
    agreed = all(own[name] in interval for name, interval in answer.intervals)
    common = Interval()
    for name, samples in answer.samples:
        if own[name] == value:
            common &= next(piece for piece in samples.pieces if max(value, 0.0) in piece)
    return replace(answer, choice=Choice(value, common, agreed), bands=bands)


@dataclass
class _Seeker:
    """Runs, each way once, and once more against others that are as fast."""

    run: Run
    known: list[Measured]
    race: Race | None = None
    is_over: Callable[[], bool] = lambda: False
    inside: Insides = field(default_factory=dict)
    made: list[Measured] = field(default_factory=list)

    def measured(self, data: str, settings: Mapping[str, float]) -> Measured:
        settings = resolved(settings, self.inside.get(data, {}))
        for one in reversed(self.known):
            if one.data == data and one.is_for(settings):
                if one.failure and one not in self.made:
                    self.made.append(one)
                return one
        return self._noted(self.run(data, settings))

    def _noted(self, one: Measured) -> Measured:
        self.known.append(one)
        self.made.append(one)
        return one

    def sample(self, data: str, name: str, around: Mapping[str, float]) -> Samples | None:
        """The costs of a data set on both sides of each value that it compares; None if it does not get there."""
        below = self.measured(data, merged(around, {name: math.inf}))
        seen = below if not below.failure else self.measured(data, merged(around, {name: 0.0}))
        values = sorted({value for one, value, _ in seen.compared if one == name})
        if not values:
            return None
        values = _spread(values)
        tried = [merged(around, {name: value}) for value in (*map(float, values), math.inf)]
        self._decide([self.measured(data, one) for one in tried])
        return Samples(tuple(map(float, values)), tuple(self.measured(data, one).seconds for one in tried))

    def _decide(self, runs: Sequence[Measured]) -> None:
        """Have those that are close race; those that did before, all of them, need not again."""
        shortest = min(one.seconds for one in runs)
        close = [one for one in dict.fromkeys(runs) if one.seconds <= CLOSE * shortest and not one.failure]
        if self.race is None or len(close) < 2 or all(map(self._has_raced, close)) or self.is_over():
            return
        for one in self.race(close, False):
            self._noted(one)

    def ways(self, data: str) -> list[Measured]:
        """The last run of each way that a data set was run in, of those that did not fail then."""
        runs = {one.compared: one for one in self.known if one.data == data}
        return [one for one in runs.values() if not one.failure]

    def decide_last(self, data: str) -> None:
        """Have all ways of a data set that are near its best race; those that did before, together, need not again."""
        runs = self.ways(data)
        shortest = min((one.seconds for one in runs), default=math.inf)
        near = [one for one in runs if one.seconds <= NEAR * shortest]
        if self.race is None or len(near) < 2 or all(one.last for one in near):
            return
        for one in self.race(near, True):
            self._noted(replace(one, last=True))

    def _has_raced(self, one: Measured) -> bool:
        return sum((other.data, other.compared) == (one.data, one.compared) for other in self.known) > 1


def _spread(values: list[int]) -> list[int]:
    """At most `MOST_VALUES` of these, evenly, with the first and the last."""
    if len(values) <= MOST_VALUES:
        return values
    return [values[round(k * (len(values) - 1) / (MOST_VALUES - 1))] for k in range(MOST_VALUES)]
