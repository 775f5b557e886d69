"""Indices out of range are errors that name the line, the program, the array, the index and the extent."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from recorded_device import recorded_device

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.parser import parse_program
from tilewright.ir.verifier import verify
from tilewright.kernel.llvm import CpuTarget, llvm_text
from tilewright.passes.compile import compile_program, program_block
from tilewright.runtime.devices import DeviceError, device_for
from tilewright.runtime.host import KernelStep, Layout

FILE = "test_index_errors.py"
X = np.arange(20.0)
each_device = pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])


def line_of(function: Callable[..., Any], part: str) -> int:
    """The number of the line of a function that has this in it."""
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if part in line)


def gathered(xs: tw.f64["n"], at: tw.i64["m"]):
    return tw.map(lambda i: xs[i] + 1.0, at)


def gathered_rows(xss: tw.f64["k", "n"], at: tw.i64["m"]):
    return tw.map(lambda xs: tw.reduce("add", 0, tw.map(lambda i: xs[i] * 2.0, at)), xss)


def in_a_branch(xs: tw.f64["n"], at: tw.i64["m"]):
    return tw.map(lambda i: tw.cond(i < 18, lambda: 0.0, lambda: xs[i]), at)


def in_a_loop(xs: tw.f64["n"], at: tw.i64["m"]):
    def row(i):
        return tw.loop(3, 0.0, lambda k, total: total + xs[i + k])

    return tw.map(row, at)


def in_a_while_loop(xs: tw.f64["n"], at: tw.i64["m"]):
    def row(i):
        return tw.while_loop(lambda k, total: total < 100.0, (i, 0.0), lambda k, total: (k + 1, total + xs[k]))[1]

    return tw.map(row, at)


def scanned(xs: tw.f64["n"], at: tw.i64["m"]):
    return tw.scan("add", 0, tw.map(lambda i: xs[i], at))


def updated(xs: tw.f64["n"], at: tw.i64["m"]):
    return tw.map(lambda i: tw.update(xs, i, 0.0)[0], at)


def cut_short(xs: tw.f64["n"], at: tw.i64["m"]):
    part = xs[:9]
    return tw.map(lambda i: part[i], at)


def cut_twice(xs: tw.f64["n"], at: tw.i64["m"]):
    return tw.map(lambda i: tw.reduce("add", 0, xs[:9][0:i]), at)


OUTSIDE = "of xs is out of range in dimension 0 of extent 20"
CASES = [
    (gathered, [3, 25], "xs[i]", f"index 25 {OUTSIDE}"),
    (gathered, [-1, 3], "xs[i]", f"index -1 {OUTSIDE}"),
    (gathered_rows, [0, 4, 20], "xs[i]", "is out of range in dimension"),
    (in_a_branch, [3, 17, 20], "xs[i]", f"index 20 {OUTSIDE}"),
    (in_a_loop, [0, 18], "xs[i + k]", f"index 20 {OUTSIDE}"),
    (in_a_while_loop, [0, 15], "xs[k]", f"index 20 {OUTSIDE}"),
    (scanned, [19, 2, 21], "xs[i]", f"index 21 {OUTSIDE}"),
    (updated, [0, 20], "tw.update", f"index 20 {OUTSIDE}"),
    (cut_short, [8, 9], "part[i]", "is out of range in dimension 0 of extent 9"),
    (cut_twice, [9, 10], "[0:i]", "is out of range in dimension 0 of extent 9"),
]


@each_device
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("function", "at", "part", "message"), CASES, ids=[f"{c[0].__name__}{c[1]}" for c in CASES])
def test_errors_name_line_program_index_and_extent(
    function: Callable[..., Any], at: list[int], part: str, message: str, threads: int, target: str
) -> None:
    skip_without(target)
    program = tw.program(function)
    xs = np.stack([X, X, X]) if function is gathered_rows else X
    right, wrong = np.zeros(3, np.int64), np.array(at)
    where = f"{FILE}:{line_of(function, part)}: in program {function.__name__}: "
    with tw.num_threads(threads):
        expected = program(xs, right, target=target)
        for _ in range(2):
            with pytest.raises(IndexError) as caught:
                program(xs, wrong, target=target)
            shown = str(caught.value)
            assert shown.startswith(where) and message in shown, shown
        np.testing.assert_array_equal(program(xs, right, target=target), expected)


def last_but(xs: tw.f64["n"]):
    return xs[-26]


def column(xss: tw.f64["k", "n"]):
    return xss[:, 20]


def computed_column(xss: tw.f64["k", "n"], at: tw.i64):
    return xss[:, at]


def columns(xss: tw.f64["k", "n"], at: tw.i64["m"]):
    return xss[:, at]


def between(cube: tw.f64["k", 2, "n"], at: tw.i64["m"]):
    return cube[at, :, at]


def marked(xss: tw.f64["k", "n"]):
    return tw.update(xss, (0, -21), 0.0)


def too_short(xs: tw.f64["n"]):
    return xs[:23]


def too_short_rows(xss: tw.f64["k", "n"], end: tw.i64):
    return xss[0, 1 : end + 1]


def twice(cube: tw.f64["k", 2, "n"], at: tw.i64):
    return cube[:, :, 3][:, at]


def row_of_column(cube: tw.f64["k", 2, "n"], at: tw.i64):
    return cube[:, 1][at]


def transposed(cube: tw.f64["k", 2, "n"], at: tw.i64):
    return cube.T[at, 0]


def of_a_part(cube: tw.f64["k", 2, "n"], at: tw.i64):
    return cube[1:, :, 2:][0, 1, at]


def of_mapped(xss: tw.f64["k", "n"], at: tw.i64):
    return (xss + 1)[:, at], tw.map(lambda xs: xs * 2, xss)[0, -26]


def unsigned(xs: tw.f64["n"], at: tw.u64["m"]):
    return xs[at]


def unsigned_row(xss: tw.f64["k", "n"], at: tw.u64):
    return xss[at]


def taken(xs: tw.f64["n"], at: tw.i64["m"]):
    return np.take(xs, at)


def taken_of_all(xss: tw.f64["k", "n"], at: tw.i64["m"]):
    return np.take(xss, at)


def of_a_sum(xs: tw.f64["n"], at: tw.i64):
    return (xs + 1)[at]


def of_a_part_of_a_sum(xss: tw.f64["k", "n"], at: tw.i64):
    return (xss + 1)[1:][0, at]


def first_of_none(xs: tw.f64["n"]):
    return xs[:1] + np.clip(xs, 0, 1)


XSS, CUBE, AT = np.stack([X, X]), np.ones((30, 2, 20)), np.array([3, 20])
BEYOND = "goes beyond; a slice is cut off where its bounds and the size are numbers; else write tw.minimum"
WRITTEN = [
    (last_but, (X,), "index -26 of xs is out of range in dimension 0 of extent 20"),
    (column, (XSS,), "index 20 of xss is out of range in dimension 1 of extent 20"),
    (computed_column, (XSS, 20), "index 20 of xss is out of range in dimension 1 of extent 20"),
    (columns, (XSS, AT), "index 20 of xss is out of range in dimension 1 of extent 20"),
    (between, (CUBE, AT), "index 20 of cube is out of range in dimension 2 of extent 20"),
    (twice, (CUBE, 2), "index 2 of cube is out of range in dimension 1 of extent 2"),
    (row_of_column, (CUBE, 30), "index 30 of cube is out of range in dimension 0 of extent 30"),
    (transposed, (CUBE, 20), "index 20 of cube is out of range in dimension 2 of extent 20"),
    (of_a_part, (CUBE, 18), "index 18 of cube[1:, :, 2:] is out of range in dimension 2 of extent 18"),
    (of_mapped, (XSS, 2), f"index -26 of the result of map at {FILE}:"),
    (of_a_sum, (X, 20), f"index 20 of the result of map at {FILE}:"),
    (of_a_part_of_a_sum, (XSS, 20), f"index 20 of part of the result of map at {FILE}:"),
    (first_of_none, (X[:0],), f"index 0 of xs is out of range in dimension 0 of extent 0: xs[:1] {BEYOND}"),
    (marked, (XSS,), "index -21 of xss is out of range in dimension 1 of extent 20"),
    (unsigned, (X, np.array([1, 2**64 - 1], np.uint64)), f"index {2**64 - 1} of xs is out of range in dimension 0"),
    (unsigned_row, (XSS, np.uint64(2**63)), f"index {2**63} of xss is out of range in dimension 0 of extent 2"),
    (taken, (X, AT), "index 20 of xs is out of range in dimension 0 of extent 20"),
    (taken_of_all, (XSS, AT * 2), "index 40 of xss.ravel() is out of range in dimension 0 of extent 40"),
    (too_short, (X,), f"index 22 of xs is out of range in dimension 0 of extent 20: xs[:23] {BEYOND}"),
    (
        too_short_rows, (XSS, 30),
        f"index 30 of xss is out of range in dimension 1 of extent 20: xss[0, 1:end + 1] {BEYOND}",
    ),
]  # fmt: skip


@each_device
@pytest.mark.parametrize(("function", "arguments", "message"), WRITTEN, ids=[one[0].__name__ for one in WRITTEN])
def test_errors_name_what_is_written(
    function: Callable[..., Any], arguments: tuple[Any, ...], message: str, target: str
) -> None:
    skip_without(target)
    program = tw.program(function)
    where = f"{FILE}:{line_of(function, 'return')}: "
    with pytest.raises(IndexError) as caught:
        program(*arguments, target=target)
    assert str(caught.value).startswith(f"{where}in program {function.__name__}: {message}"), str(caught.value)
    with pytest.raises(IndexError) as caught:
        interpret(program.trace(), arguments)
    assert str(caught.value).startswith(where) and message in str(caught.value), str(caught.value)


def test_constants_of_known_sizes() -> None:
    @tw.program
    def sixth(xss: tw.f64[2, 5]):
        return xss[:, -6]

    with pytest.raises(IndexError, match="index -6 of xss is out of range in dimension 1 of extent 5"):
        sixth(np.ones((2, 5)))


def test_numpy_integers_of_no_dimension_are_indices() -> None:
    @tw.program
    def element(xss: tw.f64[2, 5]):
        return xss[np.array(1), np.int64(-1)]

    assert element(np.arange(10.0).reshape(2, 5)) == 9


def skip_without(target: str) -> None:
    """Skip a test, saying why, where there is no such device."""
    try:
        device_for(target)
    except DeviceError as error:
        pytest.skip(str(error))


@each_device
@pytest.mark.parametrize("count", [40, 100_000])
def test_one_wrong_index_among_many(target: str, count: int) -> None:
    skip_without(target)
    program = tw.program(gathered)
    for place in (0, count // 2 + 1, count - 1):
        at = np.arange(count) % 20
        at[place] = 1_000_000_007
        with tw.num_threads(2), pytest.raises(IndexError, match="index 1000000007 of xs is out of range"):
            program(X, at, target=target)


TEXT = """\
def take (xs: [n]f64, yss: [m][n]f64, at: [k]i64) =
  let (zs: [k]f64) = map k (\\(i: i64) ->
    let (x: f64) = xs[i]
    let (y: f64) = yss[0i64, i]
    let (z: f64) = x + y
    in (z)) at
  let (w: f64) = yss[1i64, 0i64]
  in (zs, w)
"""


@each_device
@pytest.mark.parametrize("flattening", [None, "full", "incremental"])
def test_lines_of_texts(target: str, flattening: Any) -> None:
    skip_without(target)
    program = parse_program(TEXT)
    verify(program)
    run = compile_program(program, device_for(target), flattening=flattening)
    xs, yss = np.ones(5), np.ones((2, 5))
    run(xs, yss, np.array([0, 4]))
    for at, rows, line in ((np.array([0, 5]), yss, 3), (np.array([0]), np.ones((1, 5)), 7)):
        with pytest.raises(IndexError, match=f"^line {line}: in program take: index [15] of (xs|yss) is out of range"):
            run(xs, rows, at)
        with pytest.raises(IndexError, match=f"^line {line}: index"):
            interpret(program, [xs, rows, at])


def test_unchecked_programs_hold_no_check() -> None:
    """Their kernels are shorter, and have no record of errors; in range, they give the same."""
    program = parse_program(TEXT)
    kernels = {}
    for unchecked in (False, True):
        run = compile_program(program, device_for("cpu"), unchecked=unchecked)
        kernels[unchecked] = kernel_of(run.program)
        xs, yss = np.arange(5.0), np.arange(10.0).reshape(2, 5)
        zs, w = run(xs, yss, np.array([3, 0]))
        assert zs.tolist() == [6.0, 0.0] and w == 5.0
    assert "errors_0" in kernels[False] and "errors_0" not in kernels[True]
    assert len(kernels[True]) < len(kernels[False])


def kernel_of(program: Any) -> str:
    """The text of the kernel of a program's first map."""
    block, _ = program_block(program, device_for("cpu"))
    step = next(one for one in block.steps if isinstance(one, KernelStep))
    layouts = tuple((one.name, Layout((), dense=True, at_start=True)) for one in (*step.reads, *step.targets))
    return llvm_text(step.lower(layouts).kernel, CpuTarget("x86_64"))


def test_unchecked_reads_what_lies_there() -> None:
    """In a process of its own: an index just past a part of an array is one of the array."""
    code = """
import numpy as np, tilewright as tw
@tw.program(unchecked=True)
def take(xs: tw.f64["n"], at: tw.i64["m"]):
    return tw.map(lambda i: xs[i] * 2.0, at)
print(take(np.arange(9.0)[:5], np.array([1, 7])).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[2.0, 14.0]"


def in_a_contraction(xs: tw.f64["n", "k"], ys: tw.f64["m", "k"], shift: tw.i64):
    rows = tw.iota(xs.shape[0])
    dot = lambda i, row: tw.reduce("add", 0.0, tw.map(lambda s, t: s * t, xs[i + shift], row))  # noqa: E731
    return tw.map(lambda i: tw.map(lambda row: dot(i, row), ys), rows)


def in_an_outer_product(xs: tw.f64["n"], ys: tw.f64["m"], shift: tw.i64):
    return tw.map(lambda i: tw.map(lambda t: xs[i * 2 + shift] * t, ys), tw.iota(4))


def in_folds_of_one_array(xs: tw.f64["n", "k"], shift: tw.i64):
    rows = tw.iota(xs.shape[0])
    return tw.map(lambda i: tw.reduce("add", 0.0, tw.map(lambda s: s * s, xs[i + shift])), rows)


@each_device
@pytest.mark.parametrize(
    ("function", "arguments", "bad"),
    [
        (in_a_contraction, (np.ones((5, 3)), np.ones((4, 3))), (-1, 1, 300)),
        (in_an_outer_product, (X[:8], X), (-1, 2, 300)),
        (in_folds_of_one_array, (np.ones((50, 300)),), (-1, 1)),
    ],
)
def test_indices_of_contractions_are_checked(
    function: Callable[..., Any], arguments: tuple[np.ndarray, ...], bad: tuple[int, ...], target: str
) -> None:
    skip_without(target)
    program = tw.program(function)
    program(*arguments, 0, target=target)
    for shift in bad:
        with pytest.raises(IndexError, match=rf"in program {function.__name__}: index -?\d+ of xs is out of range"):
            program(*arguments, shift, target=target)
    program(*arguments, 0, target=target)


# --- when a GPU's records are read ------------------------------------------------------------------------------------


def two_kernels(xs: tw.f64["n"], at: tw.i64["m"]):
    first = tw.scan("add", 0, tw.map(lambda i: xs[i], at))
    return tw.scan("add", 0, tw.map(lambda i: first[i], at))


def a_loop_by_what_was_read(counts: tw.i64["n"], at: tw.i64["m"]):
    read = tw.scan("add", 0, tw.map(lambda i: counts[i], at))
    return tw.map(lambda count: tw.loop(count, 0.0, lambda k, total: total + 1.0), read)


@pytest.mark.parametrize(("function", "last"), [(two_kernels, True), (a_loop_by_what_was_read, False)])
def test_the_host_waits_for_records_no_sooner_than_it_must(function: Callable[..., Any], last: bool) -> None:
    """Once, after the last launch; but before a loop that might never end."""
    with recorded_device() as (device, runtime):
        events: list[str] = []
        for name in ("launch", "download", "upload"):
            done = getattr(runtime, name)
            noted = lambda *given, done=done, name=name, **named: events.append(name) or done(*given, **named)  # noqa: E731
            setattr(runtime, name, noted)
        program, values = tw.program(function), np.ones(5, np.float64 if last else np.int64)
        for _ in range(2):
            events.clear()
            program(values, np.ones(7, np.int64), target=device)
            assert events.count("upload") == 2, events
            launches = [place for place, name in enumerate(events) if name == "launch"]
            assert len(launches) >= 2
            assert (events.index("download") > launches[-1]) is last, events
