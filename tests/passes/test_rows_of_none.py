"""Statements of which one result has a size below zero, and so no elements, give the others all the same."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Statement
from tilewright.ir.parser import parse_program
from tilewright.ir.traversal import all_statements
from tilewright.ir.verifier import verify
from tilewright.passes.compile import compile_program
from tilewright.passes.core.rows_of_none import with_rows_of_none
from tilewright.runtime.devices import device_for

PROGRAMS = {
    "rows beside numbers": """\
def f (a: [k][m]f32, s: [k][n]bool) =
  let (few: [3]i64) = iota 3 i64
  let (b: [k][m - 4]f32, c: [k][n]u64) = map k (\\(x: [m]f32, y: [n]bool) ->
    let (z: [n]u64) = map n (\\(e: bool) -> let (g: u64) = e as u64 in (g)) y
    let (p: [m - 4]i64) = iota (m - 4) i64
    let (q: [m - 4]f32) = map (m - 4) (\\(i: i64) ->
      let (r: f32) = redomap_comm 3 (\\(u: f32, v: f32) -> let (w: f32) = u + v in (w)) (0.0f32) (\\(j: i64) ->
        let (o: i64) = i + j
        let (t: f32) = x[o]
        in (t)) few
      in (r)) p
    in (q, z)) a s
  in (b, c)
""",
    "loops in points": """\
def f (a: [k][m]f32, s: [k][n]bool) =
  let (b: [k][m - 4]f32, c: [k]f32) = map k (\\(x: [m]f32, y: [n]bool) ->
    let (t: [m]f32) = loop (u: [m]f32) = (x) for i: i64 < 2 do
      let (o: [m]f32) = map m (\\(j: f32) -> let (l: f32) = j + 1.0f32 in (l)) u
      in (o)
    let (p: [m - 4]f32) = t[2 :+ m - 4]
    let (z: f32) = redomap_comm m (\\(g: f32, h: f32) -> let (w: f32) = g + h in (w)) (0.5f32) (\\(e: f32) -> (e)) t
    in (p, z)) a s
  in (b, c)
""",
    "a fold beside what it maps": """\
def f (a: [k][m]f32, s: [k][n]bool) =
  let (i: [m - 4]i64) = iota (m - 4) i64
  let (t: i64, b: [m - 4]i64) = redomap_comm (m - 4) (\\(u: i64, v: i64) -> let (w: i64) = u + v in (w)) (3i64)
    (\\(x: i64) -> let (y: i64) = x * x in (x, y)) i
  in (t, b)
""",
    "both have the same rows": """\
def f (a: [k][m]f32, s: [k][n]bool) =
  let (i: [m - 4]i64) = iota (m - 4) i64
  let (b: [m - 4]i64, c: [m - 4]i64) = map (m - 4) (\\(x: i64) -> let (y: i64) = x * x in (x, y)) i
  in (b, c)
""",
    "scans of each": """\
def f (a: [k][m]f32, s: [k][n]bool) =
  let (b: [k][m - 4]f32, c: [k][n]i64) = map k (\\(x: [m]f32, y: [n]bool) ->
    let (p: [m - 4]f32) = x[4 :+ m - 4]
    let (q: [m - 4]f32) = scan (m - 4) (\\(u: f32, v: f32) -> let (w: f32) = max(u, v) in (w)) (0.0f32) p
    let (z: [n]i64) = map n (\\(e: bool) -> let (g: i64) = e as i64 in (g)) y
    let (d: [n]i64) = scan n (\\(o: i64, t: i64) -> let (r: i64) = o + t in (r)) (0i64) z
    in (q, d)) a s
  in (b, c)
""",
}
SIZES = ((1, 3, 1), (2, 3, 9), (3, 0, 2), (5, 1, 40), (2, 4, 3), (2, 9, 2), (0, 2, 3))


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_the_cpu(name: str) -> None:
    runs_right(name, "cpu")


@pytest.mark.opencl
@pytest.mark.parametrize("name", PROGRAMS)
def test_on_opencl(opencl_runtime: object, name: str) -> None:
    runs_right(name, "opencl")


def runs_right(name: str, target: str) -> None:
    program = parse_program(PROGRAMS[name])
    verify(program)
    for flattening in (None, "full", "outer"):
        executable = compile_program(program, device_for(target), flattening=flattening)  # type: ignore[arg-type]
        for k, m, n in SIZES:
            given = np.arange(k * m, dtype=np.float32).reshape(k, m) % 7, np.arange(k * n).reshape(k, n) % 3 > 0
            expected = interpret(program, given)
            for _ in range(2):
                remains = [np.full(one.shape, 99).astype(one.dtype) for one in map(np.asarray, expected) for _ in "abc"]
                del remains  # what is left unwritten then shows
                for found, wanted in zip(executable(*given), expected, strict=True):
                    np.testing.assert_array_equal(found, wanted)


def changed(name: str) -> str:
    statements = [one for one in all_statements(parse_program(PROGRAMS[name]).body) if len(one.targets) > 1]
    after = [with_rows_of_none(one, {"k", "m", "n"}.__contains__) for one in statements]
    assert all(isinstance(one, Statement) for one in after)
    return " ".join(str(target.type) for one in after for target in one.targets)


def test_only_sizes_that_are_not_those_of_all_results_change() -> None:
    assert changed("scans of each") == "[k][max(0, m - 4)]f32 [k][n]i64"
    assert changed("a fold beside what it maps") == "i64 [max(0, m - 4)]i64"
    assert changed("both have the same rows") == "[m - 4]i64 [m - 4]i64"
