"""Thresholds chosen for several data sets at once, from all ways in which these were run."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.tune.search import Measured, Question, search
from tilewright.tune.together import Way, best_together

NAMES = ("outer_0", "outer_1")
EDGES = (*(float(n) for n in range(8)), math.inf)


@st.composite
def measured(draw: st.DrawFn) -> dict[str, list[Way]]:
    """Data sets, and some of the ways that each can go: the first question is asked, and the second after a no."""
    found = {}
    for data in range(draw(st.integers(1, 4))):
        first, second = (draw(st.integers(0, 6)) for _ in range(2))
        every = [
            (("outer_0", first, True),),
            (("outer_0", first, False), ("outer_1", second, True)),
            (("outer_0", first, False), ("outer_1", second, False)),
        ]
        chosen = draw(st.lists(st.sampled_from(every), unique=True, min_size=1))
        found[f"d{data}"] = [Way(one, draw(st.floats(0.5, 9))) for one in chosen]
    return found


def costs(ways: Mapping[str, list[Way]], values: Mapping[str, float]) -> float:
    """What all data sets cost with these values; infinite if one goes a way that was not measured."""
    total = 0.0
    for own in ways.values():
        fitting = [one.cost for one in own if all((v >= values[name]) == yes for name, v, yes in one.compared)]
        total += fitting[0] if fitting else math.inf
    return total


@given(measured())
def test_no_values_are_better_than_those_chosen_together(ways: dict[str, list[Way]]) -> None:
    every = [dict(zip(NAMES, one, strict=True)) for one in itertools.product(EDGES, repeat=2)]
    least = min(costs(ways, one) for one in every)
    found = best_together(ways)
    if math.isinf(least):
        assert found is None
        return
    assert found is not None and found.cost == pytest.approx(least, rel=1e-12)
    values = {name: found.intervals[name].high if name in found.intervals else 0.0 for name in NAMES}
    assert costs(ways, values) == pytest.approx(least, rel=1e-12)


def nested(data: str, settings: Mapping[str, float], costs_of: Mapping[str, tuple[float, ...]]) -> Measured:
    """A program of three questions in each other, all about the same number of points: that in the data's name."""
    points, compared = int(data), []
    for number, cost in enumerate(costs_of[data]):
        if number == len(costs_of[data]) - 1:
            return Measured(data, tuple(compared), cost)
        name = f"outer_{number}"
        compared.append((name, points, points >= settings[name]))
        if compared[-1][2]:
            return Measured(data, tuple(compared), cost)
    raise AssertionError("the last way is always open")


ASKED = [Question(f"outer_{n}", tuple((f"outer_{k}", math.inf) for k in range(n))) for n in reversed(range(3))]


def test_what_each_decision_may_lose_does_not_add_up() -> None:
    """Each way is 2.5% slower than the one before, which a tolerance of 3% calls equal, and the model prefers the
    last: without the last race it would be taken, 7% slower than the best.
    """
    costs_of = {"5": (1.0, 1.025, 1.05, 1.07)}
    found = search(ASKED, dict.fromkeys(("outer_0", "outer_1", "outer_2"), 50.0), ["5"],
                   lambda data, settings: nested(data, settings, costs_of), tolerance=0.03)  # fmt: skip
    assert nested("5", found.thresholds, costs_of).seconds == 1.0
    (last,) = (one for one in found.answers if one.name == "outer_0")
    assert last.choice.value == found.thresholds["outer_0"] and last.choice.value in last.choice.interval


@given(st.randoms(use_true_random=False))
def test_a_choice_together_is_never_worse_than_one_by_one(luck: random.Random) -> None:
    costs_of = {str(n): tuple(luck.uniform(1, 1.2) for _ in range(4)) for n in luck.sample(range(1, 90), 3)}
    data = list(costs_of)
    found = search(ASKED, dict.fromkeys(("outer_0", "outer_1", "outer_2"), 50.0), data,
                   lambda one, settings: nested(one, settings, costs_of))  # fmt: skip
    total = sum(nested(one, found.thresholds, costs_of).seconds for one in data)
    seen = {one: [run.seconds for run in found.runs if run.data == one] for one in data}
    alike = (dict.fromkeys(("outer_0", "outer_1", "outer_2"), value) for value in (0.0, math.inf))
    for settings in (*alike, {"outer_0": math.inf, "outer_1": 0.0, "outer_2": 0.0}):
        runs = [nested(one, settings, costs_of).seconds for one in data]
        if all(taken in seen[one] for one, taken in zip(data, runs, strict=True)):
            assert total <= sum(runs) * (1 + 1e-9) / (1 - 0.003)


def test_what_there_is_no_time_for_keeps_its_value() -> None:
    costs_of = {"5": (4.0, 3.0, 2.0, 1.0)}
    left = iter([False, False, True, True, True])
    found = search(ASKED, {"outer_0": 2.0, "outer_1": 3.0, "outer_2": 4.0}, ["5"],
                   lambda data, settings: nested(data, settings, costs_of), is_over=lambda: next(left))  # fmt: skip
    assert found.untried == ("outer_1, 5", "outer_0, 5")
    # The first way was measured as the one that there was: the last two are better, and need their outer questions.
    assert found.thresholds == {"outer_0": 6.0, "outer_1": 6.0, "outer_2": 6.0}
