"""Thresholds with other values where less is inside a point: found from data sets, kept, shown, and taken by calls."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.passes.compile import compile_program
from tilewright.passes.flattening.flatten_tree import explain_versions, points_inside
from tilewright.runtime.devices import device_for
from tilewright.runtime.executable import Executable
from tilewright.runtime.thresholds import band, bands_of, merged, resolved, threshold_of
from tilewright.tune import tuner
from tilewright.tune.bands import of_bands, values_of
from tilewright.tune.intervals import Interval
from tilewright.tune.lookup import tuned
from tilewright.tune.search import Measured, Question, search
from tilewright.tune.store import TuningStore
from tilewright.tune.text import Tuning, parse_tunings, tuning_text
from tilewright.tune.tuner import Timing, tune

NUMBERS = st.sampled_from([0, 1, 2, 5, 16, 17, 300, 4096])
EDGES = st.sampled_from([-1.0, 0.0, 3.0, 8.0, 40.0, math.inf])


@st.composite
def intervals(draw: st.DrawFn) -> list[tuple[int, Interval]]:
    found = draw(st.lists(st.tuples(NUMBERS, EDGES, EDGES), min_size=1, max_size=6))
    return [(inside, Interval(*sorted(edges))) for inside, *edges in found if edges[0] != edges[1]]


@given(intervals(), EDGES)
def test_every_data_set_has_what_it_wants_from_as_few_bands_as_can_be(
    found: list[tuple[int, Interval]], preferred: float
) -> None:
    bands = of_bands(found)
    groups = {inside: Interval() for inside, _ in found}
    for inside, interval in found:
        groups[inside] &= interval
    if bands is None:
        assert any(one.is_empty for one in groups.values())
        return
    values = values_of("outer_0", bands, max(preferred, 0.0))
    for inside, interval in found:
        assert resolved(values, {"outer_0": inside})["outer_0"] in interval
    least, common = 1, Interval()
    for _, interval in sorted(groups.items()):
        common &= interval
        if common.is_empty:
            least, common = least + 1, interval
    assert len(bands) == len(values) == least


# --- the search -------------------------------------------------------------------------------------------------------

NAMES = ("outer_0", "outer_1")


class Nested:
    """Two questions, one in the other, about points given for each data set; each of three ways has a cost."""

    def __init__(self, points: Mapping[str, tuple[int, int]], costs: Mapping[str, tuple[float, ...]]) -> None:
        self.points, self.costs = points, costs

    def run(self, data: str, settings: Mapping[str, float]) -> Measured:
        compared = []
        for name, points, cost in zip(NAMES, self.points[data], self.costs[data][:2], strict=True):
            compared.append((name, points, points >= settings[name]))
            if compared[-1][2]:
                return Measured(data, tuple(compared), cost)
        return Measured(data, tuple(compared), self.costs[data][2])

    def total(self, values: Mapping[str, float], inside: Mapping[str, Mapping[str, int]]) -> float:
        return sum(self.run(data, resolved(values, inside.get(data, {}))).seconds for data in self.points)


ASKED = (Question("outer_1", (("outer_0", math.inf),)), Question("outer_0"))
MODEL = {"outer_0": 2.0, "outer_1": 2.0}


@st.composite
def programs(draw: st.DrawFn) -> tuple[Nested, dict[str, dict[str, int]]]:
    data = [f"d{number}" for number in range(draw(st.integers(1, 4)))]
    points = {name: (draw(st.integers(1, 9)), draw(st.integers(1, 9))) for name in data}
    costs = {name: tuple(draw(st.floats(1, 9)) for _ in range(3)) for name in data}
    counts = draw(st.lists(st.integers(0, 50), min_size=len(data), max_size=len(data), unique=True))
    inside = {name: {"outer_0": count, "outer_1": count} for name, count in zip(data, counts, strict=True)}
    return Nested(points, costs), inside


@given(programs())
def test_data_sets_with_not_as_much_inside_all_get_their_best_version(
    given_: tuple[Nested, dict[str, dict[str, int]]],
) -> None:
    program, inside = given_

    def race(runs: Any, is_last: bool) -> Any:
        return list(runs)

    data = list(program.points)
    found = search(ASKED, MODEL, data, program.run, inside=inside, race=race)
    best = sum(min(program.costs[name]) for name in data)
    assert program.total(found.thresholds, inside) <= best * 1.003 + 1e-9
    without = search(ASKED, MODEL, data, program.run, race=race)
    assert all(name == threshold_of(name) for name in without.thresholds)
    assert len({(one.data, one.compared) for one in found.runs}) <= 3 * len(data), "there are no more ways with bands"


def test_a_threshold_has_bands_only_where_data_sets_disagree() -> None:
    points = {"many": (128, 128), "few": (16, 16)}
    inside = {"many": {"outer_0": 40, "outer_1": 40}, "few": {"outer_0": 4000, "outer_1": 4000}}
    agree = Nested(points, {"many": (1.0, 2.0, 3.0), "few": (3.0, 2.0, 1.0)})
    found = search(ASKED, MODEL, list(points), agree.run, inside=inside)
    assert set(found.thresholds) == set(NAMES)
    disagree = Nested(points, {"many": (3.0, 2.0, 1.0), "few": (1.0, 2.0, 3.0)})
    found = search(ASKED, MODEL, list(points), disagree.run, inside=inside)
    assert bands_of(found.thresholds, "outer_0") == ((400, found.thresholds["outer_0@400"]),)
    assert found.thresholds["outer_0@400"] > 128 and found.thresholds["outer_0"] <= 16
    answer = next(one for one in found.answers if one.name == "outer_0")
    assert answer.bands and answer.choice.agreed


# --- programs ---------------------------------------------------------------------------------------------------------


@tw.program
def softmax(xs: tw.f64["b", "n"]) -> Any:
    def row(x: Any) -> Any:
        top = tw.reduce("max", -math.inf, x)
        weights = tw.map(lambda one: tw.exp(one - top), x)
        total = tw.reduce("add", 0, weights)
        return tw.map(lambda one: one / total, weights)

    return tw.map(row, xs)


@tw.program
def attention(q: tw.f64["b", "n", "d"], k: tw.f64["b", "m", "d"]) -> Any:
    def head(qs: Any, ks: Any) -> Any:
        def row(x: Any) -> Any:
            scores = tw.map(lambda y: tw.reduce("add", 0, tw.map(lambda s, t: s * t, x, y)), ks)
            total = tw.reduce("add", 0, tw.map(tw.exp, scores))
            return tw.map(lambda one: tw.exp(one) / total, scores)

        return tw.map(row, qs)

    return tw.map(head, q, k)


def compiled(program: Any) -> Executable:
    return compile_program(program.trace(), device_for("cpu"), flattening="incremental")


def test_what_is_inside_is_known_by_the_sizes() -> None:
    assert {name: str(size) for name, size in points_inside(compiled(softmax).program).items()} == {
        "outer_0": "n", "block_0": "n",
    }  # fmt: skip
    found = compiled(attention).inside(np.ones((2, 3, 4)), np.ones((2, 5, 4)))
    assert {name: found[name] for name in ("outer_0", "outer_1", "contraction_0")} == {
        "outer_0": 20, "outer_1": 4, "contraction_0": 120,
    }  # fmt: skip


@given(st.dictionaries(NUMBERS, NUMBERS, max_size=3), NUMBERS, st.integers(1, 20), st.integers(1, 20))
def test_a_call_takes_the_value_of_its_band(bands: dict[int, int], value: int, b: int, n: int) -> None:
    values = {"outer_0": float(value), **{band("outer_0", most): float(one) for most, one in bands.items()}}
    executable = compiled_softmax.with_thresholds({"block_0": math.inf, **values})
    xs = np.random.default_rng(0).normal(size=(b, n))
    wanted = np.exp(xs) / np.exp(xs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(executable(xs), wanted, rtol=1e-12)
    holds = [most for most in sorted(bands) if n <= most]
    threshold = bands[holds[0]] if holds else value
    plain = compiled_softmax.with_thresholds({"block_0": math.inf, "outer_0": 0 if b >= threshold else math.inf})
    plain(xs)
    assert executable.launched(xs) == plain.launched(xs)


compiled_softmax = compiled(softmax)


@pytest.mark.parametrize("seed", range(4))
def test_bands_change_no_results(seed: int) -> None:
    random = np.random.default_rng(seed)
    executable = compiled(attention)
    names = list(executable.thresholds)
    edges = (0.0, 1.0, 4.0, 30.0, math.inf)
    for _ in range(4):
        values = {name: random.choice(edges) for name in names}
        values |= {band(name, int(random.integers(100))): random.choice(edges) for name in names}
        b, n, m, d = random.integers(1, 7, 4)
        q, k = random.normal(size=(b, n, d)), random.normal(size=(b, m, d))
        scores = np.exp(q @ k.swapaxes(1, 2))
        wanted = scores / scores.sum(axis=2, keepdims=True)
        np.testing.assert_allclose(executable.with_thresholds(values)(q, k), wanted, rtol=1e-11)


def test_a_threshold_that_is_set_anew_has_no_bands_of_before() -> None:
    banded = compiled_softmax.with_thresholds({"outer_0": 2, "outer_0@90": 32})
    assert bands_of(banded.thresholds, "outer_0") == ((90, 32),)
    assert not bands_of(banded.with_thresholds({"outer_0": 0}).thresholds, "outer_0")
    assert banded.with_thresholds({"block_0": 0}).thresholds["outer_0@90"] == 32
    assert merged({"a": 1, "a@5": 2, "a@9": 3}, {"a@7": 4}) == {"a": 1, "a@7": 4}
    again = softmax.with_thresholds({"outer_0": 2, "outer_0@90": 32}).with_thresholds({"outer_0": 3})
    assert again.thresholds()["outer_0"] == 3 and "outer_0@90" not in again.thresholds()


def test_bands_are_shown_and_wrong_ones_refused() -> None:
    banded = compiled_softmax.with_thresholds({"outer_0": 2, "outer_0@90": 32, "outer_0@7": math.inf})
    assert "b >= outer_0 = 2 (inf where n <= 7, 32 where n <= 90)?" in explain_versions(
        banded.program, banded.thresholds
    )
    with pytest.raises(ValueError, match=r"no threshold 'outer_7@3'; it has .*outer_0"):
        compiled_softmax.with_thresholds({"outer_7@3": 1})
    for wrong in ("outer_0@", "outer_0@-1", "outer_0@x"):
        with pytest.raises(ValueError, match="how many points are inside at most"):
            compiled_softmax.with_thresholds({wrong: 1})
    with pytest.raises(ValueError, match="outer_0@5 = -1 is no number of at least 0"):
        compiled_softmax.with_thresholds({"outer_0@5": -1})


# --- tuning -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuningStore:
    monkeypatch.setenv("TILEWRIGHT_TUNINGS", str(tmp_path / "tunings.sqlite3"))
    return TuningStore()


def test_a_tuning_with_bands_is_kept_and_found(store: TuningStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight long rows are best one by one and sixty-four short ones are not, which no number of rows can say."""
    running: list[Any] = []
    comparisons = Executable.comparisons

    def noting(self: Executable, *arguments: Any) -> Any:
        running[:] = [self, arguments]
        return comparisons(self, *arguments)

    def of(self: Timing, call: Any, limit: float = math.inf) -> float:
        call()
        executable, arguments = running
        answers = dict(comparisons(executable, *arguments))
        is_outer = answers["outer_0"] >= executable.thresholds["outer_0"]
        return 1.0 if is_outer == (len(arguments[0]) == 8) else 2.0

    monkeypatch.setattr(Executable, "comparisons", noting)
    monkeypatch.setattr(Executable, "launched", lambda *_: None)
    monkeypatch.setattr(Timing, "of", of)
    monkeypatch.setattr(tuner, "race", lambda calls, *_: dict.fromkeys(calls, 1.0))
    data = {"long": (np.ones((8, 300)),), "short": (np.ones((64, 3)),)}
    report = tune(compiled(softmax), data, timing=Timing(1, 0.0))
    assert bands_of(report.thresholds, "outer_0") == ((30, report.thresholds["outer_0@30"]),)
    assert {name: after for name, (_, after) in report.times.items()} == {"long": 1.0, "short": 1.0}
    assert "where at most 30 points are inside" in str(report)
    assert store.get(report.tuning.digest, report.device) == report.thresholds
    (read,) = parse_tunings(tuning_text([report.tuning]))
    assert read == Tuning(report.program, report.tuning.digest, report.device, tuple(report.thresholds.items()))
    found = tuned(compiled(softmax), None)
    assert bands_of(found.thresholds, "outer_0") == bands_of(report.thresholds, "outer_0")
