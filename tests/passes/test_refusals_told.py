"""What `explain` says where a form is refused: of vector lanes on a CPU, of blocks on a machine with shared memory."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tilewright as tw
from tilewright.cli.main import app
from tilewright.ir.parser import parse_program
from tilewright.machine.named import CPU_AVX512, H100, NAMED_MACHINES
from tilewright.passes.core.nest_folds import with_folds
from tilewright.passes.streams.choice import NotTiled
from tilewright.passes.streams.lane_choice import lane_form

LANES = "not in the lanes of vectors: "


@tw.program(flattening=None)
def powers_read(xss: tw.f32["n", "m"]):
    """Points that loop along rows of their own."""

    def power(row: Any) -> Any:
        def step(p: Any, i: Any) -> Any:
            return p * row[tw.minimum(i, row.shape[0] - 1)] + 1, i + 1

        return tw.while_loop(lambda p, _: p < 100, (row[0], 1), step)[0]

    return tw.map(power, xss)


@tw.program(flattening=None)
def running_products(xs: tw.c64["n"]):
    return tw.scan("mul", 1, xs)


@tw.program(flattening=None)
def scans_read(xss: tw.f32["n", "m"]):
    """Two chains of scans, with indices that are checked and differ from row to row."""

    def row(xs: Any) -> Any:
        sums = tw.scan("add", 0, tw.map(lambda x: xs[tw.cast(x, "i64")], xs))
        return tw.scan("max", 0, tw.map(lambda s, x: s - x, sums, xs))

    return tw.map(row, xss)


@tw.program(flattening=None)
def distances(xs: tw.f32["n"], ys: tw.f32["m"]):
    def farthest(x: Any, y: Any) -> Any:
        return tw.reduce("max", 0, tw.map(lambda z: abs(x - z) + abs(y - z), xs))

    return tw.map(lambda x: tw.map(lambda y: farthest(x, y), ys), xs)


def reasons(program: Any, machine: Any) -> list[str]:
    return [line.partition("not otherwise: ")[2] for line in program.explain(target=machine).splitlines()]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (powers_read, f"points one by one, {LANES}memory is read at places that are not side by side"),
        (running_products, f"a scan row by row, {LANES}it has values that are no real scalars"),
        (scans_read, f"points that scan or loop with arrays one by one, {LANES}lanes would write to one place"),
    ],
)
def test_scalar_loops_have_a_reason(program: Any, reason: str) -> None:
    assert reason in reasons(program, CPU_AVX512)
    without = dataclasses.replace(CPU_AVX512, vector_bytes=0)
    assert not any(one.startswith("points one by one") for one in reasons(program, without))


def test_what_runs_in_lanes_has_none() -> None:
    @tw.program
    def powers(xs: tw.f32["n"]):
        return tw.map(lambda x: tw.while_loop(lambda p: p < 100, x, lambda p: p * x + 1), xs)

    assert "of them at once in the lanes of vectors" in powers.explain(target=CPU_AVX512)
    assert not any(LANES in one for one in reasons(powers, CPU_AVX512))


def test_other_blocks_have_a_reason() -> None:
    told = distances.explain(target=H100)
    assert "stage" in told and "in shared memory" in told
    others = [one for one in reasons(distances, H100) if one.startswith("not blocks of ")]
    assert len(others) == 2  # of one or two dimensions, three in all
    assert all("elements from memory for each point and row, those chosen" in one for one in others)


def test_streams_that_give_all_points_the_same_have_a_reason() -> None:
    program = parse_program(
        "def f (xs: [n]f32, ys: [m]f32) =\n"
        "  let (r: [n]f32) = map n (\\(x: f32) ->\n"
        "    let (s: f32) = reduce m (\\(a: f32, b: f32) -> let (c: f32) = a + b in (c)) (0.0f32) ys\n"
        "    let (t: f32) = x * s\n"
        "    in (t)) xs\n"
        "  in (r)"
    )
    found = lane_form(with_folds(program.body.statements[0].expression), CPU_AVX512)
    assert found == NotTiled(("no vectors of points: no stream gives what differs along n",))


@pytest.mark.parametrize("name", sorted(NAMED_MACHINES))
def test_every_machine_is_explained_without_being_here(name: str) -> None:
    for program in (powers_read, running_products, distances):
        assert program.explain(target=NAMED_MACHINES[name]).splitlines()[0].endswith(f" on {name}")


def test_the_command_explains_files(tmp_path: Any) -> None:
    file = tmp_path / "two.py"
    file.write_text(
        "import tilewright as tw\n\n"
        "@tw.program\ndef twice(xs: tw.f32['n']):\n    return tw.map(lambda x: x + x, xs)\n\n"
        "@tw.program\ndef total(xs: tw.f32['n']):\n    return tw.reduce('add', 0, xs)\n"
    )
    done = CliRunner().invoke(app, ["explain", str(file), "--machine", "h100"])
    assert done.exit_code == 0, done.output
    assert "twice on h100\n" in done.output and "total on h100\n" in done.output
    missing = CliRunner().invoke(app, ["explain", str(tmp_path / "none.py")])
    assert missing.exit_code and "there is no file" in missing.output


@tw.program(flattening=None)
def halves_of_scans(xss: tw.f32["n", "m"]):
    """Two chains of scans, whose rows loop for as long as they need."""

    def halved(x: Any) -> Any:
        return tw.while_loop(lambda y: y > 1, x, lambda y: y * 0.5)

    def row(xs: Any) -> Any:
        sums = tw.scan("add", 0, tw.map(halved, xs))
        return tw.scan("max", 0, tw.map(lambda s, x: s - x, sums, xs))

    return tw.map(row, xss)


def test_scans_of_points_that_loop_are_in_lanes() -> None:
    assert "16 of them at once in the lanes of vectors" in halves_of_scans.explain(target=CPU_AVX512)
    xs = np.random.default_rng(3).normal(size=(19, 40)).astype(np.float32) * 8
    halved = xs.copy()
    while (halved > 1).any():
        halved = np.where(halved > 1, halved * np.float32(0.5), halved)
    sums = np.cumsum(halved.astype(np.float64), axis=1)
    expected = np.maximum(np.maximum.accumulate(sums - xs, axis=1), 0)
    bound = 41 * np.finfo(np.float32).eps * np.abs(halved).sum(axis=1).max()  # of one addition after another
    np.testing.assert_allclose(halves_of_scans(xs, target="cpu"), expected, atol=bound)
