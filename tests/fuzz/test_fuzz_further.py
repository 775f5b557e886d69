"""What random programs and contractions are made of besides: products, rows made alike, large arrays, small limits."""

from __future__ import annotations

import dataclasses
from collections import Counter
from importlib import import_module
from random import Random

import fuzz_large
import fuzz_rewrites
import numpy as np
import pytest
from fuzz_grains import ALWAYS, GRAINS, grains, random_grains
from fuzz_related import ADDITIONS, ONE_IN, related
from fuzz_tolerance import Tolerance
from fuzz_trials import Case, Counts, Trial, laid_out, over_an_argument, run_trial
from fuzz_trials import make_trial as make_trial_of_program
from random_contractions import SEMIRINGS, make_trial
from random_programs.generator import Generator, random_arguments
from random_programs.products import PRODUCT_STATEMENTS
from random_programs.rows import ROW_STATEMENTS
from random_programs.variety import random_variety

from tilewright.contraction.form import Contraction
from tilewright.contraction.recognise import recognise
from tilewright.ir import nodes
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import BF16
from tilewright.ir.verifier import verify
from tilewright.ir.views import fresh_view, view_of
from tilewright.passes.compile import compile_program
from tilewright.runtime.devices import device_for


def products(seed: int, rows: bool = False) -> Trial:
    """A program of nothing but products, or rows made alike."""
    random = Random(f"products {seed}")
    variety = random_variety(random)
    g = Generator(Random(seed), variety=variety)
    element = random.choice([one for one in variety.scalars if one.is_float or not rows])
    shapes = (("n",), ("n", "n"), ("m", "n"), ("n", "k"), (8, "n"), (2, 4, "n"))
    parameters = [g.b.variable("a", nodes.array(element, *shape)) for shape in shapes]
    g.size_names = {"n", "m", "k"}
    g.given = len(parameters)
    with g.inside(parameters):
        for _ in range(2):
            random.choice(ROW_STATEMENTS if rows else PRODUCT_STATEMENTS)(g)
        made = [one for one in g.scopes[-1] if one not in parameters]
        program = g.b.program("products", parameters, made or parameters)
    verify(program)
    sizes = tuple(one for one in variety.sizes if one <= 33)
    arguments = random_arguments(program, seed, dataclasses.replace(variety, sizes=sizes))
    return Trial(seed, program, tuple(laid_out(one, random, True) for one in arguments), quick=True)


@pytest.mark.parametrize("rows", [False, True])
def test_products_and_rows(rows: bool) -> None:
    for seed in range(8):
        failure = run_trial(products(seed, rows), device_for("cpu"))
        assert failure is None, str(failure)


def test_products_are_contractions() -> None:
    """Many are recognised: with several summed dimensions, dimensions of all kinds, semirings, mixed types."""
    found: Counter[str] = Counter()
    for seed in range(200):
        program = products(seed).program
        views = {one.name: fresh_view(one.name, one.type) for one in program.parameters}
        for statement in program.body.statements:
            for target in statement.targets:
                views[target.name] = view_of(statement.expression, views) or fresh_view(target.name, target.type)
            made = recognise(statement, views, views)
            if isinstance(made, Contraction):
                found["contraction"] += 1
                found.update({str(one.kind) for one in made.dimensions})
    assert found["contraction"] > 40 and len(found) == 5, found


def test_large_programs_against_themselves() -> None:
    for number in range(3):
        failure = fuzz_large.run_trial(fuzz_large.make_trial(number), device_for("cpu"))
        assert failure is None, str(failure)


WRONG = "def f (x: [n]f64) = let (y: [n]f64) = map n (\\(a: f64) -> let (b: f64) = a * 3.0f64 in (b)) x in (y)"


def test_a_large_program_that_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is expected is made wrong by a hundredth, which no rounding is."""
    trial = Trial(0, parse_program(WRONG), (np.arange(1000.0),))
    assert fuzz_large.run_trial(trial, device_for("cpu")) is None
    results = fuzz_large._results
    monkeypatch.setattr(fuzz_large, "_results", lambda *given: [one * 1.01 for one in results(*given)])
    failure = fuzz_large.run_trial(trial, device_for("cpu"))
    assert failure is not None and "elements differ" in failure.problem


def test_programs_mean_the_same_after_each_pipeline() -> None:
    counts = Counts()
    for number in range(4, 12):
        failure = fuzz_rewrites.run_trial(make_trial_of_program(number), device_for("cpu"), counts)
        assert failure is None, str(failure)
    assert counts.executables >= 20


def test_a_pipeline_that_changes_a_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(1, parse_program(WRONG), (np.arange(5.0),))
    assert fuzz_rewrites.run_trial(trial, device_for("cpu")) is None

    def wrongly(program: Program, arguments: object, *further: object) -> object:
        results = interpret(program, arguments, *further)  # type: ignore[arg-type]
        return results if program is trial.program else tuple(one + 1 for one in results)

    monkeypatch.setattr(fuzz_rewrites, "interpret", wrongly)
    failure = fuzz_rewrites.run_trial(trial, device_for("cpu"))
    assert failure is not None and "5 of 5 elements differ" in failure.problem


def test_results_may_lie_over_arguments() -> None:
    program = parse_program(WRONG)
    executable = compile_program(program, device_for("cpu"))
    for count in (1, 7, 300):
        case = Case((np.arange(count) + 1.0,), (3 * (np.arange(count) + 1.0),), (Tolerance(),))
        assert over_an_argument(executable, case) is None
        wrong = dataclasses.replace(case, expected=(np.arange(count) + 1.0,))
        assert "over argument 0" in str(over_an_argument(executable, wrong))


def test_programs_on_bf16() -> None:
    pytest.importorskip("ml_dtypes", reason="NumPy has bf16 by ml_dtypes only")
    for number in range(6):
        failure = run_trial(make_trial_of_program(number, varied=True, always=(BF16,)), device_for("cpu"))
        assert failure is None, str(failure)


def test_limits_that_are_made_small_are_there() -> None:
    for name, (value, modules) in GRAINS.items():
        for module in modules:
            assert getattr(import_module(f"tilewright.{module}"), name.split()[-1]) != value, name
    with grains(tuple(GRAINS)):
        for name, (value, modules) in GRAINS.items():
            for module in modules:
                assert getattr(import_module(f"tilewright.{module}"), name.split()[-1]) == value
    drawn = [random_grains(Random(seed)) for seed in range(100)]
    assert () in drawn and set(GRAINS) - set(ALWAYS) in map(set, drawn) and len(set(drawn)) > 30


def test_related_contractions() -> None:
    """Parts along indices of the result and along summed ones, of several semirings."""
    found: Counter[str] = Counter()
    device = device_for("cpu")
    for number in range(0, 100 * ONE_IN, ONE_IN):
        trial = make_trial(number)
        for way, _ in related(trial, device):
            label = way[-1] if way.startswith("parts") else ""
            found[("kept" if label in trial.output else "summed") if label else "order"] += 1
    assert len(found) == 3 and min(found.values()) > 10, found
    assert ADDITIONS.keys() == SEMIRINGS.keys()
