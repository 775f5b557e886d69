"""Flattened programs, run: every version and every forced threshold gives the answers of the interpreter."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from flatten_cases import batched, verified
from hypothesis import given, settings
from hypothesis import strategies as st
from locvolcalib_program import sweep
from lowering_checks import assert_close
from random_programs.generator import random_arguments, random_program
from tuned_programs import matmul, normalised, row_sums

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Body, Map, Program, SegMap, SegRed, Threshold
from tilewright.ir.parser import parse_program
from tilewright.ir.traversal import all_statements
from tilewright.ir.verifier import verify
from tilewright.machine.named import named_machine
from tilewright.passes.compile import compile_program
from tilewright.passes.flattening.flatten_contractions import contractions, flattening_pipeline
from tilewright.passes.flattening.flatten_tree import explain_versions, machine_thresholds, version_settings
from tilewright.passes.flattening.kinds import FLATTENINGS, Flattening
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.pipelines import run_pipeline, standard_pipeline
from tilewright.passes.segments.rows import as_nested_maps
from tilewright.rewrite.derivation import Recording
from tilewright.runtime.devices import DeviceError, device_for
from tilewright.runtime.executable import Executable

RANDOM = np.random.default_rng(11)
EXAMPLES = 12 if os.environ.get("HYPOTHESIS_PROFILE") != "fuzz" else 2000
PROGRAMS: list[tuple[str, Program, Sequence[Any]]] = [
    ("matmul", matmul.trace("f4", "f4"),
     [RANDOM.normal(size=(5, 9)).astype("f4"), RANDOM.normal(size=(9, 4)).astype("f4")]),
    ("normalised", normalised.trace(), [RANDOM.uniform(1, 2, (3, 4, 5)), RANDOM.uniform(1, 2, (3, 5, 2))]),
    ("sweep", sweep.trace(), [RANDOM.normal(size=(2, 3, 7))]),
    ("row_sums", row_sums.trace(), [RANDOM.normal(size=(6, 7))]),
]  # fmt: skip
each_program = pytest.mark.parametrize(("name", "source", "arguments"), PROGRAMS, ids=[one[0] for one in PROGRAMS])
each_device = pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
each_flattening = pytest.mark.parametrize("flattening", FLATTENINGS)


def flat(source: Program, flattening: Flattening, contractions: bool = True) -> Program:
    passes = (*standard_pipeline, *flattening_pipeline(flattening, contractions))
    return run_pipeline(source, passes, verify=True)


def compiled(source: Program, target: str, flattening: Flattening | None, contractions: bool = True) -> Executable:
    try:
        device = device_for(target)
    except DeviceError as error:
        pytest.skip(str(error))
    return compile_program(source, device, flattening=flattening, contractions=contractions)


def settings_of(executable: Executable) -> list[dict[str, float]]:
    """Values of all thresholds that reach each version; and everything at 0, at 1 and without limit."""
    names = executable.thresholds
    reached = [{**dict.fromkeys(names, math.inf), **one} for one in version_settings(executable.program)]
    return [*reached, *(dict.fromkeys(names, value) for value in (0, 1, math.inf))]


def check(executable: Executable, expected: Sequence[Any], arguments: Sequence[Any]) -> None:
    """Twice: the second call goes by the bound plan."""
    for thresholds in settings_of(executable):
        version = executable.with_thresholds(thresholds)
        for _ in range(2):
            results = version(*arguments)
            for actual, wanted in zip(results if len(expected) > 1 else (results,), expected, strict=True):
                assert_close(actual, wanted)


@each_device
@each_flattening
@each_program
@pytest.mark.parametrize("contracting", [True, False])
def test_every_version_runs(
    name: str, source: Program, arguments: Sequence[Any], flattening: Flattening, target: str, contracting: bool
) -> None:
    check(compiled(source, target, flattening, contracting), interpret(source, arguments), arguments)


@each_device
@pytest.mark.parametrize("maps", [0, 1])
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_programs(maps: int, target: str, seed: int) -> None:
    source = random_program(seed, depth=3 - maps, statements=5 - maps)
    source = batched(source, "outer") if maps else source
    verify(source)
    arguments = random_arguments(source, seed)
    expected = interpret(source, arguments)
    try:
        compiled(source, target, None)
    except LoweringError:
        return  # what cannot be lowered at all is refused with its reason
    for flattening in FLATTENINGS:
        check(compiled(source, target, flattening), expected, arguments)


def test_a_contraction_is_spared_and_is_the_first_version() -> None:
    source = matmul.trace("f4", "f4")
    for flattening in ("full", "outer"):
        assert len(contractions(flat(source, flattening))) == 1
    versions = flat(source, "incremental")
    assert len(contractions(versions)) == 1
    first, second = explain_versions(versions).splitlines()[1:3]
    assert first.endswith("m*n >= contraction_0?")
    assert second.strip() == "yes: a contraction, tiled"
    without = flat(source, "full", contractions=False)
    assert [type(one.expression) for one in without.body.statements if isinstance(one.expression, SegRed | Map)] == [
        SegRed
    ]


def test_a_contraction_in_a_nest_is_laid_bare_and_spared() -> None:
    source = normalised.trace()
    assert contractions(run_pipeline(source)) == ()
    program = flat(source, "full")
    (found,) = contractions(program)
    assert found.targets[0].type.rank == 3
    assert any(isinstance(one.expression, SegMap | SegRed) for one in program.body.statements)


def test_nests_around_contractions_are_opened_until_they_are_tuned() -> None:
    program = flat(normalised.trace(), "incremental")
    values = machine_thresholds(program, named_machine("h100"))
    assert values["contraction_0"] == 0
    assert values["outer_0"] == values["block_0"] == math.inf
    assert values["outer_2"] == 132 * 2048


def test_fusion_that_would_lose_a_contraction_is_not_done() -> None:
    source = matmul.trace("f8", "f8")
    recording = Recording(source)
    passes = (*standard_pipeline, *flattening_pipeline("full"))
    program = run_pipeline(source, passes, recording, verify=True)
    assert len(contractions(program)) == 1
    recording.derivation.check([random_arguments(source, 3)])


def test_thresholds_are_values_of_an_executable() -> None:
    executable = compiled(matmul.trace("f4", "f4"), "cpu", "incremental")
    changed = executable.with_thresholds({"outer_0": 7})
    assert changed.thresholds["outer_0"] == 7 != executable.thresholds["outer_0"]
    with pytest.raises(ValueError, match=r"no threshold 'outer_9'; it has .*outer_0"):
        executable.with_thresholds({"outer_9": 7})
    for wrong in (-1, math.nan, True, "7"):
        with pytest.raises(ValueError, match=r"outer_0 = .* is no number of at least 0"):
            executable.with_thresholds({"outer_0": wrong})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="'incremental', 'full', 'outer', and None"):
        compile_program(matmul.trace("f4", "f4"), device_for("cpu"), flattening="half")  # type: ignore[arg-type]


def test_what_is_compared_is_seen() -> None:
    a, b = np.ones((3, 5), np.float32), np.ones((5, 4), np.float32)
    executable = compiled(matmul.trace("f4", "f4"), "cpu", "incremental")
    unreached = executable.with_thresholds(dict.fromkeys(executable.thresholds, math.inf))
    assert unreached.comparisons(a, b) == (
        ("contraction_0", 12), ("outer_0", 12), ("block_0", 12), ("threads_per_block", 5),
    )  # fmt: skip
    assert executable.comparisons(a, b) == (("contraction_0", 12),)
    assert unreached.with_thresholds({"outer_0": 12}).comparisons(a, b) == (("contraction_0", 12), ("outer_0", 12))


@pytest.mark.parametrize("seed", [100070, 100074])
@pytest.mark.parametrize("contracting", [True, False])
def test_nothing_is_flattened_in_a_stream(seed: int, contracting: bool) -> None:
    """A stream is one kernel, which can hold no question about thresholds."""
    source = random_program(seed, depth=3, statements=5)
    arguments = random_arguments(source, seed)
    check(compiled(source, "cpu", "incremental", contracting), interpret(source, arguments), arguments)


def test_rows_that_only_the_host_can_compute() -> None:
    """The sizes of arrays inside are computed there: no kernel can hold them, and the host goes row by row."""
    source = batched(random_program(5916402, depth=2, statements=4), "outer")
    arguments = random_arguments(source, 5916402)
    for target in ("cpu", "opencl"):
        for flattening in FLATTENINGS:
            check(compiled(source, target, flattening), interpret(source, arguments), arguments)


def test_a_segmented_map_of_several_dimensions_as_nested_maps() -> None:
    source = verified("""\
def table (xs: [n]i64, ys: [m]i64) =
  let (zs: [n][m]i64, ws: [n][m]i64) = segmap@thread (i: i64 < n, j: i64 < m) do
    let (x: i64) = xs[i]
    let (y: i64) = ys[j]
    let (z: i64) = x * y
    in (z, x)
  in (zs, ws)
""")
    (statement,) = source.body.statements
    assert isinstance(statement.expression, SegMap)
    parts = as_nested_maps(statement, statement.expression)
    program = Program(source.name, source.parameters, Body(parts, source.body.results))
    verify(program)
    arguments = [np.arange(3), np.arange(4)]
    for one, other in zip(interpret(source, arguments), interpret(program, arguments), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_threshold_alone_is_computed_by_the_host() -> None:
    source = flat(row_sums.trace(), "incremental")
    questions = [one for one in all_statements(source.body) if isinstance(one.expression, Threshold)]
    program = Program("asked", source.parameters, type(source.body)(tuple(questions), (questions[0].targets[0],)))
    executable = compile_program(program, device_for("cpu"), optimise=False)
    for value, expected in ((6, True), (7, False)):
        assert executable.with_thresholds({"outer_0": value})(np.ones((6, 2))) == expected


@each_device
def test_an_empty_array_that_is_computed_and_reshaped_has_the_new_shape(target: str) -> None:
    text = """\
def rows (xs: [n]f64) =
  let (ys: [n]f64) = map n (\\(x: f64) ->
    let (y: f64) = x + x
    in (y)) xs
  let (zs: [n][2]f64) = reshape (n, 2) ys
  in (zs)
"""
    executable = compiled(parse_program(text), target, None)
    for _ in range(2):
        assert executable(np.ones(0)).shape == (0, 2)
