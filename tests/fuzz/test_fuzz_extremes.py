"""A small part of the random trials of numbers at the ends of their types, and what they consist of."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import re
from collections import Counter
from typing import Any

import fuzz_extreme_lines
import fuzz_extremes
import fuzz_numpy
import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime.devices import device_for


@pytest.mark.parametrize("first", range(0, 24, 6))
def test_trials_of_extremes_on_the_cpu(first: int) -> None:
    for number in range(first, first + 6):
        failure = fuzz_extremes.run_trial(fuzz_extremes.make_trial(number), device_for("cpu"))
        assert failure is None, str(failure)


def test_trials_of_extremes_are_reproducible_and_varied() -> None:
    made = [fuzz_extremes.written(number) for number in range(60)]
    trials = [trial for trial, _ in made]
    assert [str(one) for one in map(fuzz_extremes.make_trial, range(3))] == [str(one) for one in trials[:3]]
    text = "\n".join(one.text for one in trials)
    names = Counter(re.findall(r"\w+(?=\()", text))
    assert {"each", "astype", "where", "scanned", "reduced", "binned", "take", "clip", "argmin"} <= names.keys(), names
    assert all(f" {operator} " in text for operator in ("//", "%", "<<", ">>", "**", "^", "<", "=="))
    refused = [reason for _, reasons in made for reason in reasons]
    assert len(refused) < text.count(" = ") / 20, refused
    given = [value for one in trials for values in one.arguments for value in values]
    kinds = {np.asarray(one).dtype.name for one in given}
    assert len(kinds) >= 13, kinds
    floats = [one for one in given if np.asarray(one).dtype.kind == "f" and np.ndim(one)]
    assert any(np.any(np.isnan(one)) for one in floats) and any(np.any(np.isinf(one)) for one in floats)
    assert any(np.any(np.signbit(one) & (one == 0)) for one in floats)
    assert any(0 in np.shape(one) for one in given)
    assert any(a is b for one in trials for a in one.arguments[0] for b in one.arguments[0][1:] if np.ndim(a))


def _trial(line: str, dtype: str, given: Any, **changes: Any) -> fuzz_numpy.NumpyTrial:
    trial = fuzz_numpy.NumpyTrial(
        0, (("a", dtype, ("n",)),), (f"v0 = {line}",), ("v0",), ((given,), (given,)), exact=True
    )
    return fuzz_numpy._replaced(trial, **{"further": (fuzz_extreme_lines.HERE, fuzz_extreme_lines.THERE), **changes})


def test_signs_of_zero_are_told_apart_unless_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fuzz_extreme_lines.THERE, "either", lambda c, x, y: x * 0)
    line, given = "either(np.all(a == a), a, a)", np.array([-0.0, 0.0])
    failure = fuzz_extremes.run_trial(_trial(line, "f64", np.abs(given)), device_for("cpu"))
    assert failure is None, str(failure)
    monkeypatch.setitem(fuzz_extreme_lines.HERE, "either", lambda c, x, y: -x)
    failure = fuzz_extremes.run_trial(_trial(line, "f64", np.abs(given)), device_for("cpu"))
    assert failure is not None and "where NumPy gives" in failure.problem
    unsigned = _trial(line, "f64", np.abs(given), unsigned=frozenset({"v0"}))
    assert fuzz_extremes.run_trial(unsigned, device_for("cpu")) is None


def test_results_that_destroy_an_argument_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a result were written while an argument that it lies on is still read."""
    trial = _trial("a[::-1]", "i32", np.arange(5, dtype=np.int32))
    assert fuzz_extremes.run_trial(trial, device_for("cpu")) is None
    program = trial.program()

    def careless(*arguments: Any, target: Any = None, out: Any = None) -> Any:
        if out is None:
            return program(*arguments, target=target)
        for place in range(len(out)):
            out[place] = arguments[0][len(out) - 1 - place]
        return out

    monkeypatch.setattr(fuzz_numpy.NumpyTrial, "program", lambda _: careless)
    failure = fuzz_extremes._into_others(trial, device_for("cpu"))
    assert failure is not None and failure.way == "results into arguments"


def test_scans_with_operators_that_are_not_commutative() -> None:
    @tw.program
    def scanned(xss: tw.i32["n", "m"]) -> Any:
        return fuzz_extreme_lines.THERE["scanned"]("affine", xss), fuzz_extreme_lines.THERE["reduced"]("last", xss)

    xss = np.array([[1, -7, 2**31 - 1], [0, 5, 0]], np.int32)
    with np.errstate(all="ignore"):
        expected = fuzz_extreme_lines.HERE["scanned"]("affine", xss), fuzz_extreme_lines.HERE["reduced"]("last", xss)
    for one, wanted in zip(scanned(xss), expected, strict=True):
        np.testing.assert_array_equal(one, wanted)
