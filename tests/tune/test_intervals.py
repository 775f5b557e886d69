"""The interval method on synthetic costs: never worse than the best threshold, in a bounded number of runs."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuned_programs import normalised, row_sums

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.passes.flattening.flatten_contractions import flattening_pipeline
from tilewright.passes.flattening.flatten_tree import version_settings
from tilewright.passes.pipelines import run_pipeline, standard_pipeline
from tilewright.tune.intervals import Choice, Interval, Samples, best_interval, choose
from tilewright.tune.search import MOST_VALUES, WORTH, Measured, Question, questions, search

COSTS = st.one_of(st.floats(0.001, 1000), st.just(math.inf))


@st.composite
def sampled(draw: st.DrawFn) -> Samples:
    values = tuple(sorted(draw(st.sets(st.integers(0, 60), max_size=4))))
    count = len(values) + 1
    return Samples(values, tuple(draw(st.lists(COSTS, min_size=count, max_size=count))))


def total(samples: list[Samples], threshold: float) -> tuple[int, float]:
    costs = [one.cost(threshold) for one in samples]
    return sum(map(math.isinf, costs)), sum(one for one in costs if math.isfinite(one))


@given(st.lists(sampled(), min_size=1, max_size=4), st.one_of(st.integers(0, 70), st.just(math.inf)))
def test_no_single_threshold_is_better(samples: list[Samples], preferred: float) -> None:
    choice = choose(samples, preferred)
    every = [*range(63), math.inf]
    runnable = [one for one in samples if not all(map(math.isinf, one.costs))]
    failed, cost = total(runnable, choice.value)
    best_failed, best_cost = min(total(runnable, one) for one in every)
    assert failed == best_failed
    assert cost == pytest.approx(best_cost, rel=1e-12)
    assert choice.value in choice.interval and choice.value >= 0


@given(st.lists(sampled(), min_size=1, max_size=4), st.floats(0, 0.5))
def test_a_tolerance_costs_at_most_itself(samples: list[Samples], tolerance: float) -> None:
    choice = choose(samples, 5, tolerance)
    if choice.agreed:
        for one in samples:
            assert one.cost(choice.value) <= min(one.costs) * (1 + tolerance) * (1 + 1e-12)


@given(st.lists(sampled(), min_size=1, max_size=4), st.integers(0, 70))
def test_the_model_decides_where_measurements_do_not(samples: list[Samples], preferred: int) -> None:
    choice = choose(samples, preferred)
    if preferred in choice.interval:
        assert choice.value == preferred
    if all(len(set(one.costs)) == 1 for one in samples):
        assert choice == Choice(float(preferred), Interval(), True)


def test_intervals_of_two_data_sets_meet() -> None:
    small, large = Samples((8,), (3.0, 1.0)), Samples((512,), (1.0, 3.0))
    assert best_interval(small) == Interval(8, math.inf)
    assert best_interval(large) == Interval(-1, 512)
    assert choose([small, large], 2**16) == Choice(64.0, Interval(8, 512), True)
    assert choose([small, large], 100).value == 100.0
    assert choose([small], 3).value == 9.0  # what is nearest to the model's value
    assert choose([large], 2**16).value == 512.0


def test_data_sets_that_disagree_are_weighed() -> None:
    one, other = Samples((8,), (1.0, 2.0)), Samples((4,), (10.0, 5.0))
    assert choose([one, other], 0) == Choice(6.0, Interval(4, 8), True)
    other = Samples((40,), (10.0, 5.0))
    assert choose([one, other], 0) == Choice(41.0, Interval(40, math.inf), False)
    assert choose([one, Samples((40,), (10.0, 5.0), weight=0.1)], 0).value == 0.0


def test_samples_must_fit_their_values() -> None:
    with pytest.raises(ValueError, match="must be at least 0 and ascend"):
        Samples((3, 2), (1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="1 values need 2 costs, not 1"):
        Samples((3,), (1.0,))


# --- the search over a program's comparisons --------------------------------------------------------------------------


class Synthetic:
    """A program of `depth` nested questions, asked about given values; each way through it has a cost."""

    def __init__(self, values: Mapping[str, Mapping[str, int]], costs: Mapping[tuple[str, int], float]) -> None:
        self.values, self.costs = values, costs
        self.names = list(next(iter(values.values())))
        self.runs: Counter[tuple[str, tuple[tuple[str, float], ...]]] = Counter()

    def way(self, data: str, settings: Mapping[str, float]) -> tuple[int, tuple[tuple[str, int, bool], ...]]:
        """The first question that is answered by yes (their number if none is), and what was compared."""
        compared = []
        for number, name in enumerate(self.names):
            value = self.values[data][name]
            compared.append((name, value, value >= settings[name]))
            if compared[-1][2]:
                return number, tuple(compared)
        return len(self.names), tuple(compared)

    def run(self, data: str, settings: Mapping[str, float]) -> Measured:
        self.runs[data, tuple(settings.items())] += 1
        number, compared = self.way(data, settings)
        cost = self.costs[data, number]
        if math.isinf(cost):
            return Measured(data, (), cost, "RuntimeError: it fails", tuple(settings.items()))
        return Measured(data, compared, cost)

    @property
    def asked(self) -> list[Question]:
        return [
            Question(name, tuple((outer, math.inf) for outer in self.names[:number]))
            for number, name in reversed(list(enumerate(self.names)))
        ]


@st.composite
def synthetic(draw: st.DrawFn, failing: bool = False) -> Synthetic:
    names = [f"outer_{n}" for n in range(draw(st.integers(1, 4)))]
    data = [f"d{n}" for n in range(draw(st.integers(1, 4)))]
    values = {one: {name: draw(st.integers(1, 100)) for name in names} for one in data}
    cost = COSTS if failing else st.floats(0.1, 10)
    costs = {(one, number): draw(cost) for one in data for number in range(len(names) + 1)}
    return Synthetic(values, costs)


@given(synthetic())
def test_one_data_set_gets_its_fastest_version(program: Synthetic) -> None:
    (data, *_) = program.values
    found = search(program.asked, dict.fromkeys(program.names, 50.0), [data], program.run)
    number, _ = program.way(data, found.thresholds)
    assert program.costs[data, number] == min(program.costs[data, n] for n in range(len(program.names) + 1))


@given(synthetic())
def test_the_number_of_runs_is_linear(program: Synthetic) -> None:
    found = search(program.asked, dict.fromkeys(program.names, 50.0), list(program.values), program.run)
    limit = len(program.values) * (len(program.names) + 1)
    assert sum(program.runs.values()) == len(found.runs) <= limit


@given(synthetic())
def test_no_thresholds_are_better_by_what_was_measured(program: Synthetic) -> None:
    """Where each data set goes a way that it was run in, other thresholds have no smaller sum of costs."""
    data = list(program.values)
    found = search(program.asked, dict.fromkeys(program.names, 50.0), data, program.run)
    measured = {(one.data, one.compared) for one in found.runs}

    def costs(settings: Mapping[str, float]) -> float:
        ways = [(one, *program.way(one, settings)) for one in data]
        known = all((one, compared) in measured for one, _, compared in ways)
        return sum(program.costs[one, number] for one, number, _ in ways) if known else math.inf

    edges = ([*{values[name] for values in program.values.values()}, math.inf] for name in program.names)
    every = (dict(zip(program.names, one, strict=True)) for one in itertools.product(*edges))
    assert costs(found.thresholds) * (1 - WORTH) <= min(map(costs, every)) * (1 + 1e-12)


@given(synthetic(failing=True))
def test_versions_that_fail_are_left_out(program: Synthetic) -> None:
    data = list(program.values)
    found = search(program.asked, dict.fromkeys(program.names, 50.0), data[:1], program.run)
    count = len(program.names) + 1
    costs = [program.costs[data[0], number] for number in range(count)]
    if len(found.answers) == len(program.names):
        number, _ = program.way(data[0], found.thresholds)
        assert program.costs[data[0], number] == min(costs)
    for one in found.failures:
        assert one.failure == "RuntimeError: it fails" and one.settings


def test_a_search_goes_on_where_it_was() -> None:
    program = Synthetic({"d": {"outer_0": 4, "outer_1": 9}}, {("d", 0): 3.0, ("d", 1): 1.0, ("d", 2): 2.0})
    initial = dict.fromkeys(program.names, 50.0)
    first = search(program.asked, initial, ["d"], program.run)
    count = sum(program.runs.values())
    assert count == 3
    again = search(program.asked, initial, ["d"], program.run, known=first.runs)
    assert again.thresholds == first.thresholds and sum(program.runs.values()) == count
    part = search(program.asked, initial, ["d"], program.run, known=first.runs[:2])
    assert part.thresholds == first.thresholds and sum(program.runs.values()) == count + 1


@given(synthetic(), st.randoms(use_true_random=False))
def test_close_times_are_decided_by_a_race(program: Synthetic, luck: random.Random) -> None:
    """Times that are up to 10% off when they are measured alone; a race knows the true ones."""
    raced: Counter[tuple[str, tuple[tuple[str, int, bool], ...]]] = Counter()

    def run(data: str, settings: Mapping[str, float]) -> Measured:
        return replace(found := program.run(data, settings), seconds=found.seconds * luck.uniform(1, 1.1))

    def race(runs: Sequence[Measured], is_last: bool) -> list[Measured]:
        assert len({one.data for one in runs}) == 1 and len(set(runs)) == len(runs) > 1
        raced.update((one.data, one.compared) for one in runs)
        number = [next(n for n, (_, _, yes) in enumerate((*one.compared, ("", 0, True))) if yes) for one in runs]
        return [replace(one, seconds=program.costs[one.data, n]) for one, n in zip(runs, number, strict=True)]

    (data, *_) = program.values
    initial = dict.fromkeys(program.names, 50.0)
    found = search(program.asked, initial, [data], run, race=race)
    number, _ = program.way(data, found.thresholds)
    assert program.costs[data, number] == min(program.costs[data, n] for n in range(len(program.names) + 1))
    before = raced.copy()
    again = search(program.asked, initial, [data], run, race=race, known=found.runs)
    assert again.thresholds == found.thresholds and raced == before and not again.runs


def test_progress_counts_comparisons_and_data_sets() -> None:
    program = Synthetic({"d": {"outer_0": 4}, "e": {"outer_0": 9}}, {(d, n): 1.0 for d in "de" for n in (0, 1)})
    told: list[tuple[str, int, int]] = []
    search(program.asked, {"outer_0": 5}, ["d", "e"], program.run, progress=lambda *one: told.append(one))
    assert told == [("outer_0, d", 0, 2), ("outer_0, e", 1, 2)]


def test_the_mean_counts_small_data_sets_as_much_as_large_ones() -> None:
    costs = {("small", 0): 1.0, ("small", 1): 3.0, ("large", 0): 1010.0, ("large", 1): 1000.0}
    program = Synthetic({"small": {"outer_0": 8}, "large": {"outer_0": 80}}, costs)
    names = list(program.values)
    by_sum = search(program.asked, {"outer_0": 1}, names, program.run)
    by_mean = search(program.asked, {"outer_0": 1}, names, program.run, cost="mean")
    assert (by_sum.thresholds["outer_0"], by_mean.thresholds["outer_0"]) == (81.0, 1.0)


def test_many_values_of_one_data_set_are_thinned() -> None:
    def run(data: str, settings: Mapping[str, float]) -> Measured:
        compared = tuple(("outer_0", value, value >= settings["outer_0"]) for value in range(1, 100))
        return Measured(data, compared, abs(settings["outer_0"] - 40) if settings["outer_0"] < 1000 else 500.0)

    found = search([Question("outer_0")], {"outer_0": 5}, ["d"], run)
    assert len(found.runs) == MOST_VALUES + 1 + 1  # and as it was
    assert 29 < found.thresholds["outer_0"] <= 57


def flat(source: Program) -> Program:
    return run_pipeline(source, (*standard_pipeline, *flattening_pipeline("incremental")))


def test_questions_are_asked_from_the_deepest_on() -> None:
    assert questions(flat(row_sums.trace())) == (
        Question("block_0", (("outer_0", math.inf),)), Question("outer_0"),
    )  # fmt: skip
    asked = questions(flat(normalised.trace()))
    names = [one.name for one in asked]
    assert len(set(names)) == len(names)
    for number, one in enumerate(asked):
        for outer, value in one.reached:
            assert value == math.inf and names.index(outer) > number
    reachable = {name for settings in version_settings(flat(normalised.trace())) for name in settings}
    assert set(names) | {"threads_per_block", "bytes_per_block"} >= reachable


def test_what_is_searched_is_what_the_interpreter_compares() -> None:
    """With the others as the question says, the two sides of a comparison are two versions with the same results."""
    import numpy as np

    program = flat(row_sums.trace())
    x = np.arange(6.0).reshape(2, 3)
    for one in questions(program):
        for value in (0.0, math.inf):
            thresholds = {
                "outer_0": 5.0,
                "block_0": 5.0,
                "threads_per_block": 99.0,
                **dict(one.reached),
                one.name: value,
            }
            np.testing.assert_array_equal(interpret(program, [x], thresholds)[0], x.sum(axis=1))
