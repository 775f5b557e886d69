"""Tuning a compiled program on a user's data sets: every candidate is run, timed and stored; the best is kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tilewright.ir.dataclass import dataclass
from tilewright.passes.flattening.flatten_tree import machine_thresholds
from tilewright.runtime.executable import Executable
from tilewright.runtime.messages import value_text
from tilewright.runtime.thresholds import is_number, resolved, threshold_of
from tilewright.tune.keys import data_key, device_key, measurements_key, program_digest
from tilewright.tune.races import race
from tilewright.tune.search import COSTS, CostKind, Found, Measured, Progress, questions, search, silent
from tilewright.tune.store import TuningStore
from tilewright.tune.text import Tuning

Data = Mapping[str, Sequence[Any]]
TOLERANCE = 0.03
"""Times that differ by less are taken to be equal."""
RACE = 5.0
"""Versions that are close are run against each other for up to so many times as long as each was by itself."""
LAST_TOLERANCE, LAST_RACE = 0.003, 20.0
"""The same for the last race of each data set, between all that are near its best."""
HOPELESS = 3.0
"""A version that takes so many times as long as another one did, and long, is not run again."""


@dataclass(frozen=True)
class Timing:
    """How long a candidate is run: `least` times, then until `seconds` have passed; the shortest time counts.

    `clock` gives seconds; `time.process_time` is better than the time of day for one thread on a busy machine. A tuning
    that has taken `budget` of its seconds tries no further candidates.
    """

    least: int = 3
    seconds: float = 0.2
    clock: Callable[[], float] = time.perf_counter
    budget: float = 300.0

    def __post_init__(self) -> None:
        """Refuse what would measure nothing, or never come to an end.

        Raises:
            ValueError: for fewer than one run, seconds that are not finite or negative, and a budget that is no number.
        """
        if not (is_number(self.least) and 1 <= self.least < math.inf):
            raise ValueError(f"a candidate must be run once at least: least = {value_text(self.least)}")
        if not (is_number(self.seconds) and 0 <= self.seconds < math.inf):
            raise ValueError(f"seconds for a candidate must be finite and at least 0, not {value_text(self.seconds)}")
        if not is_number(self.budget) or math.isnan(self.budget):
            raise ValueError(f"the budget of a tuning must be seconds, not {value_text(self.budget)}")

    def of(self, call: Callable[[], Any], limit: float = math.inf) -> float:
        """The time of a call in seconds; a first call, which may compile, does not count, unless it takes longer than
        `limit` seconds and than all repetitions shall: it is not repeated then.
        """
        begin = self.clock()
        call()
        first = self.clock() - begin
        if first > max(limit, self.seconds):
            return first
        best, begin, runs = math.inf, self.clock(), 0
        while runs < self.least or self.clock() - begin < self.seconds:
            start = self.clock()
            call()
            best = min(best, self.clock() - start)
            runs += 1
        return best


def timing_of(given: Timing | None) -> Timing:
    """How long candidates are run: as given, or as is usual.

    Raises:
        TypeError: for something else.
    """
    if given is not None and not isinstance(given, Timing):
        raise TypeError(f"timing is a Timing, as in Timing(seconds=0.2), not {value_text(given)}")
    return given or Timing()


@dataclass(frozen=True)
class TuningReport:
    """What tuning a program gave.

    Attributes:
        program, device: what was tuned, and where.
        before, found: the thresholds of the machine's model, and the search with the values in the end.
        times: for each data set its time in seconds before and after, where it was measured.
        runs: how many candidates were run now (those stored before are not).
        tuning: the values as an entry of a text file.
    """

    program: str
    device: str
    before: Mapping[str, float]
    found: Found
    times: Mapping[str, tuple[float, float]]
    runs: int
    tuning: Tuning

    @property
    def thresholds(self) -> Mapping[str, float]:
        """The values found."""
        return dict(self.tuning.values)

    def __str__(self) -> str:
        lines = [f"{self.program} on {self.device}: {self.runs} runs"]
        for one in self.found.answers:
            agreed = "" if one.choice.agreed else ", data sets disagree"
            bands = "".join(f", {value:g} where at most {most} points are inside" for most, value in one.bands)
            lines.append(f"  {one.name} = {one.choice.value:g} of {one.choice.interval}{bands}{agreed}")
            lines += [f"    {name}: {interval}" for name, interval in one.intervals]
        for name, (before, after) in self.times.items():
            ratio = f" ({before / after:.2f} times as fast)" if after > 0 else ""  # clocks may stand still for a while
            lines.append(f"  {name}: {before:.3g} s, tuned {after:.3g} s{ratio}")
        if self.found.untried:
            first, *others = self.found.untried
            more = f" and {len(others)} more" if others else ""
            lines.append(f"  not tried, the time was over: {first}{more}; tuning again goes on from there")
        lines += [f"  failed and left out: {one.data}, {dict(one.settings)}: {one.failure}"
                  for one in self.found.failures]  # fmt: skip
        return "\n".join(lines)


def tune(
    executable: Executable,
    data: Data,
    *,
    cost: CostKind = "sum",
    timing: Timing | None = None,
    store: TuningStore | None = None,
    fresh: bool = False,
    progress: Progress = silent,
) -> TuningReport:
    """The best thresholds of a compiled program for data sets, which the store then has.

    The search begins with what the machine's model says, whatever values the executable has now.

    Args:
        executable: of a program with thresholds, on the device to be tuned for.
        data: the arguments of each data set, by its name.
        cost: see `search`.
        timing: how long each candidate is run.
        store: where measurements and the result go; None for the user's.
        fresh: measure everything again, also what the store has.
        progress: told what is about to be done (`search.Progress`).

    Raises:
        ValueError: if the program has no thresholds to be tuned, there is no data, or there is no such cost.
        RuntimeError: if no data set could be run at all, with the failures.
    """
    if cost not in COSTS:
        raise ValueError(f"cost must be {' or '.join(map(repr, COSTS))}, not {cost!r}")
    timing = timing_of(timing)
    asked = questions(executable.program)
    if not asked:
        raise ValueError(
            f"{executable.name} has one version only and so no thresholds to tune; "
            "programs with flattening='incremental' (the default) and nested parallelism have several"
        )
    if not data:
        raise ValueError(f"tuning {executable.program.name} needs a data set at least")
    bench = _Bench(executable, data, timing, store or TuningStore())
    if fresh:
        bench.store.forget(bench.digest, bench.measured_on)
    known = bench.known()
    before = machine_thresholds(executable.program, executable.device.machine)
    try:
        found = search(
            asked, before, list(data), bench.run,
            cost=cost, tolerance=TOLERANCE, known=known, progress=progress, race=bench.race,
            is_over=bench.is_over, inside=bench.inside,
        )  # fmt: skip
    except BaseException:  # stopped by who waits, wherever it was: what had begun has not failed
        bench.store.forget_begun(bench.digest, bench.measured_on)
        raise
    if not found.answers and found.failures:
        failures = "\n".join(dict.fromkeys(f"{one.data}: {one.failure}" for one in found.failures))
        raise RuntimeError(f"{executable.program.name}: no data set could be run:\n{failures}")
    names = {one.name for one in asked}
    values = {name: value for name, value in found.thresholds.items() if threshold_of(name) in names}
    every = [*known, *found.runs]
    after = {name: resolved(found.thresholds, own) for name, own in bench.inside.items()}
    times = {name: pair for name in data if (pair := _times(every, name, before, after[name])) is not None}
    bench.store.put(bench.digest, bench.device, values, title=executable.program.name)
    tuning = Tuning(executable.program.name, bench.digest, bench.device, tuple(values.items()))
    return TuningReport(executable.program.name, bench.device, before, found, times, bench.runs, tuning)


def _times(
    measured: Sequence[Measured], data: str, before: Mapping[str, float], after: Mapping[str, float]
) -> tuple[float, float] | None:
    """The times of a data set with these two settings, if both ways were measured."""
    pair = []
    for settings in (before, after):
        found = [one.seconds for one in measured if one.data == data and not one.failure and one.is_for(settings)]
        if not found:
            return None
        pair.append(found[-1])
    return pair[0], pair[1]


def _inside(executable: Executable, arguments: Sequence[Any]) -> dict[str, int]:
    """How many points are inside those that each threshold asks about; nothing for arguments that cannot be run."""
    try:
        return executable.inside(*arguments)
    except (TypeError, ValueError):  # a run says what is wrong with them
        return {}


class _Bench:
    """Runs candidates and stores what they give."""

    def __init__(self, executable: Executable, data: Data, timing: Timing, store: TuningStore) -> None:
        self.executable, self.data, self.timing, self.store = executable, data, timing, store
        self.digest, self.device = program_digest(executable.program), device_key(executable.device)
        self.inside = {name: _inside(executable, arguments) for name, arguments in data.items()}
        self.keys = {name: data_key(name, arguments) for name, arguments in data.items()}
        self.measured_on = measurements_key(executable.device)
        self.runs = 0
        self.shortest: dict[str, float] = {}
        self.timed: list[tuple[str, Any, float]] = []  # data set, what was launched, and how long that took
        self.began = timing.clock()

    @property
    def left(self) -> float:
        """How much of the budget is left, in seconds."""
        return self.began + self.timing.budget - self.timing.clock()

    def is_over(self) -> bool:
        """Whether the time for trying candidates is."""
        return self.left < 0

    def known(self) -> list[Measured]:
        """What was measured before with these data sets, under their names of now."""
        names = {key: name for name, key in self.keys.items()}
        thresholds = self.executable.thresholds  # others can have been written by something else only
        stored = self.store.measurements(self.digest, self.measured_on)
        return [
            Measured(names[one.data], one.compared, one.seconds, one.failure, one.settings)
            for one in stored
            if one.data in names and all(threshold in thresholds for threshold, _, _ in one.compared)
        ]

    def run(self, data: str, settings: Mapping[str, float]) -> Measured:
        """One candidate; whatever it raises is what it gives."""
        number = self.store.begin(self.digest, self.measured_on, self.keys[data], settings)
        given = tuple(settings.items())
        self.runs += 1
        compared: tuple[tuple[str, int, bool], ...] = ()
        try:
            version = self.executable.with_thresholds(settings)
            arguments = self.data[data]
            seen = dict.fromkeys(version.comparisons(*arguments))
            compared = tuple((name, value, value >= settings[name]) for name, value in seen)
            taken = self._timed(data, version, arguments)
            self.shortest[data] = min(taken, self.shortest.get(data, math.inf))
            measured = Measured(data, compared, taken, "", given)
        except Exception as error:  # a candidate may fail in any way: a limit of the device, memory, a driver's bug
            measured = Measured(data, compared, math.inf, f"{type(error).__name__}: {error}", given)
        self.store.finish(number, measured)
        return measured

    def _timed(self, data: str, version: Executable, arguments: Sequence[Any]) -> float:
        """The time of a version; that of another one which launched the same."""
        version(*arguments)
        launched = version.launched(*arguments)
        same = (taken for one, other, taken in self.timed if one == data and other == launched)
        taken = next(same, None) if launched is not None else None
        if taken is None:
            limit = HOPELESS * self.shortest.get(data, math.inf)
            taken = self.timing.of(lambda: version(*arguments), limit)
            self.timed.append((data, launched, taken))
        return taken

    def race(self, runs: Sequence[Measured], is_last: bool) -> list[Measured]:
        """Runs of a data set again, in turns: their times are the shortest one by how many times as long each takes.

        Those that launch the same kernels run as one.
        """
        tolerance, times = (LAST_TOLERANCE, LAST_RACE) if is_last else (TOLERANCE, RACE)
        arguments = self.data[runs[0].data]
        versions = [self.executable.with_thresholds(dict(one.settings)) for one in runs]
        calls = {number: partial(one, *arguments) for number, one in enumerate(versions)}
        shortest, failures = min(one.seconds for one in runs), dict[int, str]()
        for number, call in list(calls.items()):
            try:
                call()
            except Exception as error:  # as in `run`
                failures[number] = f"{type(error).__name__}: {error}"
                del calls[number]
        launched = {number: versions[number].launched(*arguments) for number in calls}
        first = {
            number: next(other for other in calls if other == number or launched[other] == ways is not None)
            for number, ways in launched.items()
        }
        racing = {number: calls[number] for number in first.values()}
        seconds = min(times * self.timing.seconds, max(self.left, 0.0) / max(len(racing), 1))
        ratios = race(racing, seconds, tolerance, self.timing.clock) if racing else {}
        raced = [
            replace(one, seconds=math.inf, failure=failures[number])
            if number in failures
            else replace(one, seconds=shortest * ratios[first[number]])
            for number, one in enumerate(runs)
        ]
        for one in raced:
            number = self.store.begin(self.digest, self.measured_on, self.keys[one.data], dict(one.settings))
            self.store.finish(number, one)
        return raced
