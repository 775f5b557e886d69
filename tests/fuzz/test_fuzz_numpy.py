"""A small part of the random trials of NumPy's functions, and what they consist of."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import fuzz_numpy
import fuzz_numpy_lines
import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime.devices import device_for


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_trials_of_numpy_on_the_cpu(first: int) -> None:
    for number in range(first, first + 10):
        failure = fuzz_numpy.run_trial(fuzz_numpy.make_trial(number), device_for("cpu"))
        assert failure is None, str(failure)


def test_trials_of_numpy_are_reproducible_and_of_many_functions() -> None:
    trials = [fuzz_numpy.written(number) for number in range(60)]
    assert [str(one) for one in map(fuzz_numpy.make_trial, range(5))] == [str(one.trial) for one in trials[:5]]
    text = "\n".join(one.trial.text for one in trials)
    functions = Counter(re.findall(r"np\.(\w+)", text))
    assert len(functions) >= 40, functions
    assert {"einsum", "sum", "cumsum", "where", "stack"} <= functions.keys()
    assert "each(lambda r0: " in text and "lambda r1: " in text
    refused = [reason for one in trials for reason in one.refused]
    assert len(refused) < text.count(" = ") / 20, refused
    sizes = [max(np.size(value) for value in one.trial.arguments[0]) for one in trials]
    assert 5 < sum(one.trial.large for one in trials) < 40 and max(sizes) > 10_000
    given = [value for one in trials for values in one.trial.arguments for value in values]
    assert any(np.asarray(one).dtype.kind == "f" and not np.all(np.isfinite(one)) for one in given)
    assert any(0 in np.shape(one) for one in given) and "tw.array['n'" in text


@pytest.mark.parametrize(("name", "wrong"), [("each", lambda f, x: tw.map(lambda r: f(f(r)), x)), ("gathered", None)])
def test_another_answer_than_numpys_is_found(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Any) -> None:
    wrong = wrong or (lambda x, places: tw.map(lambda i: x[x.shape[0] - 1 - i], places))
    monkeypatch.setitem(fuzz_numpy_lines.TRACED, name, wrong)
    lines = {"each": "v0 = each(lambda r0: r0 + 1, a)", "gathered": "v0 = gathered(a, b % a.shape[0])"}
    given = (np.arange(5), np.array([1, 0, 3]))
    trial = fuzz_numpy.NumpyTrial(
        0, (("a", "i64", ("n",)), ("b", "i64", ("m",))), ("v1 = a * 2", lines[name]), ("v1", "v0"),
        (given, given),
    )  # fmt: skip
    failure = fuzz_numpy.run_trial(trial, device_for("cpu"))
    assert failure is not None and failure.way == "numpy" and "where NumPy gives" in failure.problem
    assert "v1 = " not in str(failure)  # nothing that the wrong result does not need


def test_a_plan_on_the_disk_that_depends_on_values_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second program of a trial gets other values first, in a call that is of the same form."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    given = (np.arange(5)[::-1], np.float32(3))
    trial = fuzz_numpy.NumpyTrial(0, (("a", "i64", ("n",)), ("b", "f32", ())), ("v0 = a * 2",), ("v0",), (given,) * 2)
    assert fuzz_numpy.run_trial(trial, device_for("cpu")) is None
    other = fuzz_numpy._with_other_values(given[0])
    assert other.strides == given[0].strides and sorted(other) == sorted(given[0]) and other[0] != given[0][0]
    stale = Stale(trial.program())
    monkeypatch.setattr(fuzz_numpy.NumpyTrial, "program", lambda _: stale)
    failure = fuzz_numpy.run_trial(trial, device_for("cpu"))
    assert failure is not None and "calls of the program, 1" in failure.way


class Stale:
    """A program that gives its first result again."""

    def __init__(self, program: Any) -> None:
        self.program, self.trace, self.known = program, program.trace, None

    def __call__(self, *arguments: Any, target: Any = None, out: Any = None) -> Any:
        if out is not None:
            return self.program(*arguments, out=out)
        self.known = self.program(*arguments) if self.known is None else self.known
        return self.known
