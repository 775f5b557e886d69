"""A small part of the random trials, what they consist of, and the command that runs many (`make fuzz`)."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import fuzz_contractions
import numpy as np
import pytest
from fuzz_reached import (
    NOT_ON_CPUS,
    NOT_ON_GPUS,
    NOT_REACHED,
    OF_CONTRACTIONS,
    OF_CPU_PROGRAMS,
    OF_PROGRAMS,
    ONLY_OF_LARGE_ARRAYS,
    PASSES,
    expected,
    table,
    watched,
)
from fuzz_shrink import shrunk
from fuzz_tolerance import Tolerance, difference, tolerances
from fuzz_trials import Failure, Trial, make_trial, run_trial
from random_programs.generator import random_arguments

from tilewright.ir import nodes
from tilewright.ir.interpreter import infer_sizes, interpret
from tilewright.ir.nodes import Body
from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import SCALAR_TYPES
from tilewright.ir.traversal import all_statements, sub_bodies
from tilewright.ir.verifier import verify
from tilewright.passes.last_rewrites import sweep
from tilewright.passes.pipelines import run_pipeline
from tilewright.runtime.devices import device_for

COMMAND = Path(__file__).parent / "run_fuzz.py"
NUMBERS = range(200)
NESTING = (nodes.Map, nodes.Reduce, nodes.Scan, nodes.Redomap, nodes.Scanomap, nodes.StreamSeq, nodes.If, nodes.Loop)
INNER = (*NESTING, nodes.Scatter, nodes.Hist)


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_trials_on_the_cpu(first: int) -> None:
    device = device_for("cpu")
    for number in range(first, first + 10):
        failure = run_trial(make_trial(number), device)
        assert failure is None, str(failure)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_contractions_on_the_cpu(first: int) -> None:
    device = device_for("cpu")
    for number in range(first, first + 20):
        failure = fuzz_contractions.run_trial(fuzz_contractions.make_trial(number), device)
        assert failure is None, str(failure)


def test_complex_elements_may_be_infinite_and_undefined() -> None:
    """Sums of products with infinite real numbers, whose parts are infinite or undefined one by one."""
    trial = fuzz_contractions.make_trial(65100105)
    assert not all(np.isfinite(one).all() for one in trial.operands)
    failure = fuzz_contractions.run_trial(trial, device_for("cpu"))
    assert failure is None, str(failure)


def test_infinite_elements_are_folded_first_where_no_other_operand_has_the_index() -> None:
    """Where min_plus has both infinities its distributive law is none: this is what `Semiring` says of it."""
    trial = fuzz_contractions.make_trial(86000554)
    assert "min_plus" in trial.options.values() and any(np.isneginf(one).any() for one in trial.operands)
    failure = fuzz_contractions.run_trial(trial, device_for("cpu"))
    assert failure is None, str(failure)


def test_parts_of_sums_in_f16_are_rounded_once() -> None:
    """Two parts, each rounded, and their sum were held to the bound of one rounding."""
    trial = fuzz_contractions.make_trial(85241049)
    assert {one.dtype for one in trial.operands} == {np.dtype(np.float16)}
    failure = fuzz_contractions.run_trial(trial, device_for("cpu"))
    assert failure is None, str(failure)


@pytest.mark.opencl
def test_trials_on_opencl(opencl_runtime: object) -> None:
    """In a process of its own, as all of many trials: a device's compiler may crash."""
    command = [sys.executable, str(COMMAND), "--target", "opencl", "--first", "0", "--count", "8", "--as-it-is"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "'trials': 8" in done.stdout


@pytest.mark.parametrize(
    ("target", "further", "count"),
    [("cuda-emulated", [], 12), ("cuda-emulated", ["--contractions"], 20), ("cuda-races", ["--contractions"], 3)],
)
def test_trials_on_emulated_gpus(target: str, further: list[str], count: int) -> None:
    """In a process of its own, which a sanitizer ends."""
    command = [sys.executable, str(COMMAND), "--target", target, "--first", "0", "--count", str(count), "--as-it-is"]
    done = subprocess.run([*command, *further], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    if "no trials" in done.stdout:
        pytest.skip(done.stdout)
    assert f"'trials': {count}" in done.stdout


@pytest.mark.opencl
def test_sums_of_products_of_complex_elements_on_opencl(opencl_runtime: object) -> None:
    """A compiler crashed on a loop that read real and imaginary parts apart and called a function (`fma`)."""
    command = [sys.executable, str(COMMAND), "--contractions", "--target", "opencl", "--first", "65100001"]
    done = subprocess.run([*command, "--count", "1", "--as-it-is"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


# --- what trials consist of -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    return [make_trial(number) for number in NUMBERS]


def nested(body: Body, around: tuple[type, ...] = ()) -> Iterator[tuple[type, ...]]:
    """For every statement, the kinds of the combinators, ifs and loops around it, and its own."""
    for statement in body.statements:
        kind = type(statement.expression)
        yield (*around, kind)
        for inner in sub_bodies(statement.expression):
            yield from nested(inner, (*around, kind))


def test_trials_nest_everything_in_everything_down_to_the_fifth_level(trials: Sequence[Trial]) -> None:
    pairs: Counter[tuple[type, type]] = Counter()
    depths: Counter[int] = Counter()
    for trial in trials:
        paths = list(nested(trial.program.body))
        depths[max(len(one) for one in paths) - 1] += 1
        pairs.update({pair for path in paths for pair in pairwise(path)})
    outer = {nodes.Map, nodes.Redomap, nodes.Scanomap, nodes.If, nodes.Loop}
    missing = [(a.__name__, b.__name__) for a in outer for b in INNER if not pairs[a, b]]
    assert len(missing) <= 6, missing  # the rarest pairs come up in every few hundred programs
    assert sum(depths[one] for one in depths if one >= 4) > len(trials) // 5
    assert max(depths) >= 5


def test_trials_compute_on_all_types_and_sizes(trials: Sequence[Trial]) -> None:
    types: Counter[str] = Counter()
    sizes: set[int] = set()
    for trial in trials:
        types.update({str(t.type.element) for s in all_statements(trial.program.body) for t in s.targets})
        sizes.update(infer_sizes(trial.program, trial.arguments).values())
    assert set(types) == set(SCALAR_TYPES) - {"bf16"}
    assert sizes >= {0, 1, 2, 3, 5, 7, 13, 16, 31, 33, 64, 67}


def test_trials_reach_the_forms_of_several_statements(trials: Sequence[Trial]) -> None:
    programs = [sweep(run_pipeline(trial.program)) for trial in trials]
    found = [one.expression for program in programs for one in all_statements(program.body)]
    assert any(isinstance(one, nodes.OffsetFolds) for one in found)
    assert {bool(one.neutral) for one in found if isinstance(one, nodes.Sweep)} == {False, True}


SCAN_OF_MAP = """\
def f (x: [n]f32) =
  let (y: [n]f32) = map n (\\(a: f32) -> let (b: f32) = a * a in (b)) x
  let (z: [n]f32) = scan n (\\(p: f32, q: f32) -> let (r: f32) = p + q in (r)) (0.0f32) y
  in (z)
"""


def test_what_trials_reach_is_counted() -> None:
    """A scan of a map: the rule and the writers of scans are found, what has nothing to do with it is not."""
    program = parse_program(SCAN_OF_MAP)
    rules, everything = set[str](), set[str]()
    for found, traced in ((rules, False), (everything, True)):
        with watched(found, traced):
            assert run_trial(Trial(0, program, (np.arange(5, dtype=np.float32),)), device_for("cpu")) is None
    assert rules >= {"rule scan_map", "rule flatten_scan"} and all(one.startswith("rule ") for one in rules)
    assert everything >= rules | {"core/fuse", "segments/steps", "statements"}
    wanted = expected(contractions=False, on_cpu=True)
    assert rules <= wanted and {"sweeps/offset_points", "rule map_map"} <= wanted - everything
    assert "offset_points 0" in table(dict.fromkeys(everything, 1), wanted) and not everything & {"packed/writer"}
    assert expected(contractions=True, on_cpu=True) >= {"packed/writer", "direct/writer", "matrix_vector/writer"}


def test_what_trials_are_to_reach_is_there() -> None:
    """Modules that moved were looked for where they had been, and folders that came later were left out."""
    named = NOT_REACHED | NOT_ON_CPUS | NOT_ON_GPUS | ONLY_OF_LARGE_ARRAYS
    assert [one for one in sorted(named) if not (PASSES / f"{one}.py").exists()] == []
    folders = {*OF_PROGRAMS, *OF_CPU_PROGRAMS, *OF_CONTRACTIONS["cpu"], *OF_CONTRACTIONS["gpu"], "tensor"}
    assert folders == {one.parent.name for one in PASSES.glob("*/__init__.py")}


def test_trials_are_called_with_other_sizes(trials: Sequence[Trial]) -> None:
    changed = [infer_sizes(one.program, one.arguments) != infer_sizes(one.program, one.further) for one in trials]
    assert sum(changed) > len(trials) // 2


def test_arguments_lie_in_memory_in_all_ways(trials: Sequence[Trial]) -> None:
    found: Counter[str] = Counter()
    for trial in trials:
        for one in trial.arguments:
            if isinstance(one, np.ndarray) and one.size > 1:
                found["contiguous"] += one.flags.c_contiguous
                found["turned over"] += min(one.strides) < 0
                found["with gaps"] += not one.flags.c_contiguous and min(one.strides) > 0
                found["unaligned"] += not one.flags.aligned
                found["read-only"] += not one.flags.writeable
    assert len(found) == 5 and all(found.values()), found
    assert {one.threads for one in trials} == {1, 2} and {one.small_grains for one in trials} == {False, True}


def test_trials_are_reproducible(trials: Sequence[Trial]) -> None:
    for trial in trials[::20]:
        again = make_trial(trial.number)
        assert again.program == trial.program
        assert all(np.array_equal(a, b) for a, b in zip(trial.arguments, again.arguments, strict=True))


# --- failures ---------------------------------------------------------------------------------------------------------

TEXT = """\
def wrong (xs: [n]f64, ys: [n]i64, k: i64) =
  let (zs: [n]f64) = map n (\\(x: f64, y: i64) ->
    let (b: f64) = x * x
    let (c: i64) = y + k
    let (d: i64) = c // 2i64
    let (e: f64) = b + 1.0f64
    in (e)) xs ys
  let (s: i64) = reduce n (\\(p: i64, q: i64) ->
    let (r: i64) = p + q
    in (r)) (0i64) ys
  in (zs, s)
"""


def test_an_answer_that_differs_is_found_and_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is made to add wrongly: what is left is a program with one addition of floats."""
    import fuzz_trials

    def add_wrongly(*arguments: object) -> tuple[object, ...]:
        program = arguments[0]
        floats = [one for one in all_statements(program.body) if "f64" in str(one.targets[0].type)]  # type: ignore[attr-defined]
        adds = any(getattr(one.expression, "operator", "") == "add" for one in floats)
        results = interpret(*arguments)  # type: ignore[arg-type]
        return tuple(one + 1 if adds and one.dtype == np.float64 else one for one in results)

    monkeypatch.setattr(fuzz_trials, "interpret", add_wrongly)
    program = parse_program(TEXT)
    trial = Trial(0, program, (np.arange(3.0)[::-1], np.arange(3), np.int64(4)), threads=2, small_grains=True)
    device = device_for("cpu")
    failure = run_trial(trial, device)
    assert isinstance(failure, Failure) and "result 0: 3 of 3 elements differ" in failure.problem
    smaller = shrunk(failure, device, 600.0)
    assert smaller.trial.threads == 1 and not smaller.trial.small_grains
    assert [type(one.expression).__name__ for one in all_statements(smaller.trial.program.body)] in (
        ["Map", "Apply"],
        ["Map", "Apply", "Apply"],
    )
    assert smaller.trial.program.parameters[0].name == "xs" and len(smaller.trial.program.body.results) == 1
    assert "def wrong (xs: [n]f64" in str(smaller) and "xs: float64, strides (8,), [2., 1., 0.]" in str(smaller)


def test_the_command_tells_of_failures_and_keeps_them(tmp_path: Path) -> None:
    command = [sys.executable, str(COMMAND), "--target", "none", "--first", "3", "--count", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no trial could be run" in done.stderr
    command = [sys.executable, str(COMMAND), "--first", "3", "--count", "2", "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "'trials': 2" in done.stdout and not list(tmp_path.iterdir())


def test_differences() -> None:
    exact, near = Tolerance(), Tolerance(1e-4, 1e-5)
    assert difference(np.arange(3), np.arange(3), exact) is None
    assert "int64 (3,) where int32 (3,)" in str(difference(np.arange(3), np.arange(3, dtype=np.int32), exact))
    assert "1 of 3 elements differ, first at (2,)" in str(difference(np.array([0, 1, 3]), np.arange(3), exact))
    values = np.array([1.0, np.nan, np.inf], np.float32)
    assert difference(values, values, near) is None
    assert difference(np.float32(1.00005), np.float32(1), near) is None
    assert difference(np.float32(1.001), np.float32(1), near) is not None
    assert difference(np.array([1.0, 0, 0], np.float32), values, near) is not None


def test_narrow_types_are_compared_by_what_roundings_do_to_them() -> None:
    program = parse_program("def f (x: [n]f16) = let (y: f16) = reduce n (\\(a: f16, b: f16) -> let (c: f16) = a + b "
                            "in (c)) (0.0f16) x in (y)")  # fmt: skip
    verify(program)
    arguments = [np.full(7, 0.1, np.float16)]
    (tolerance,) = tolerances(program, arguments, interpret(program, arguments))
    assert 0 < tolerance.absolute < 0.05
    wide = replace(program, parameters=program.parameters)
    assert tolerances(wide, arguments, interpret(wide, arguments)) == [tolerance]


def test_parts_of_concatenations_have_no_negative_sizes() -> None:
    """As windows of three may have over two rows: what the interpreter refuses is no answer to compare with."""
    program = parse_program("""def f (x: [n]i64) =
      let (a: [n - 2]i64) = iota (n - 2) i64
      let (b: [2*n - 4]i64) = concat 0 a a
      in (b)""")
    for seed in range(30):
        (x,) = random_arguments(program, seed)
        assert len(x) >= 2  # type: ignore[arg-type]
