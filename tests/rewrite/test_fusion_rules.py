"""Each fusion rule: before and after, where it declines and why, and that it never duplicates work."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from rewrite_programs import body_text, everywhere_once, operations, program

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.rewrite.derivation import agree
from tilewright.rewrite.rule import Declined, Site, resolve, rule_named

EXP = "map n (\\(p: f32) ->\n  let (q: f32) = exp(p)\n  in (q)) a"
ADD = "(\\(s: f32, t: f32) ->\n  let (u: f32) = s + t\n  in (u)) (0.0f32)"

# rule, parameters, before, after
FIRES = [
    (
        "rearrange_gather",
        "a: [n][m]f32, b: [k]f32",
        f"""\
let (z: [k][m]f32) = map k (\\(v: f32) ->
  let (i: [n]i64) = iota n i64
  let (x: [n][m]f32) = map n (\\(j: i64) ->
    let (r: [m]f32) = a[j]
    in (r)) i
  let (y: [m][n]f32) = rearrange (1, 0) x
  let (w: [m]f32) = map m (\\(e: [n]f32) ->
    let (f: f32) = reduce n {ADD} e
    in (f)) y
  in (w)) b
in (z)""",
        """\
let (z: [k][m]f32) = map k (\\(v: f32) ->
  let (i: [n]i64) = iota n i64
  let (y.places: [n]i64) = map n (\\(j: i64) -> (j)) i
  let (columns: [m]i64) = iota m i64
  let (y: [m][n]f32) = map m (\\(column: i64) ->
    let (y.row: [n]f32) = map n (\\(place: i64) ->
      let (y.element: f32) = a[place, column]
      in (y.element)) y.places
    in (y.row)) columns
  let (w: [m]f32) = map m (\\(e: [n]f32) ->
    let (f: f32) = reduce n (\\(s: f32, t: f32) ->
      let (u: f32) = s + t
      in (u)) (0.0f32) e
    in (f)) y
  in (w)) b
in (z)""",
    ),
    (
        "rearrange_map",
        "a: [n][m]f32, b: [m]f32, c: [n]f32",
        f"""\
let (x: [n][m]f32) = map n (\\(c1: f32, row: [m]f32) ->
  let (d: [m]f32) = map m (\\(p: f32, b1: f32) ->
    let (q: f32) = fma(p, b1, c1)
    in (q)) row b
  in (d)) c a
let (y: [m][n]f32) = rearrange (1, 0) x
let (z: [m]f32) = map m (\\(e: [n]f32) ->
  let (f: f32) = reduce n {ADD} e
  in (f)) y
in (z)""",
        """\
let (a.turned: [m][n]f32) = rearrange (1, 0) a
let (y: [m][n]f32) = map m (\\(a.column: [n]f32, b1: f32) ->
  let (y.row: [n]f32) = map n (\\(p: f32, c1: f32) ->
    let (q: f32) = fma(p, b1, c1)
    in (q)) a.column c
  in (y.row)) a.turned b
let (z: [m]f32) = map m (\\(e: [n]f32) ->
  let (f: f32) = reduce n (\\(s: f32, t: f32) ->
    let (u: f32) = s + t
    in (u)) (0.0f32) e
  in (f)) y
in (z)""",
    ),
    (
        "map_map",
        "a: [n]f32, b: [n]f32",
        f"""\
let (x: [n]f32) = {EXP}
let (y: [n]f32) = map n (\\(s: f32, t: f32, u: f32) ->
  let (v: f32) = fma(s, t, u)
  in (v)) b x a
in (y)""",
        """\
let (y: [n]f32) = map n (\\(s: f32, p: f32) ->
  let (q: f32) = exp(p)
  let (v: f32) = fma(s, q, p)
  in (v)) b a
in (y)""",
    ),
    (
        "map_map",
        "a: [n][m]f32",
        f"""\
let (x: [n][m]f32) = map n (\\(c: [m]f32) ->
  let (d: [m]f32) = map m (\\(p: f32) ->
    let (q: f32) = p + 2.0f32
    in (q)) c
  in (d)) a
let (y: [n]f32) = map n (\\(e: [m]f32) ->
  let (f: f32) = reduce m {ADD} e
  in (f)) x
in (y)""",
        """\
let (y: [n]f32) = map n (\\(c: [m]f32) ->
  let (d: [m]f32) = map m (\\(p: f32) ->
    let (q: f32) = p + 2.0f32
    in (q)) c
  let (f: f32) = reduce m (\\(s: f32, t: f32) ->
    let (u: f32) = s + t
    in (u)) (0.0f32) d
  in (f)) a
in (y)""",
    ),
    (
        "reduce_map",
        "a: [n]f32",
        f"let (x: [n]f32) = {EXP}\nlet (y: f32) = reduce_comm n {ADD} x\nin (y)",
        f"""\
let (y: f32) = redomap_comm n {ADD} (\\(p: f32) ->
  let (q: f32) = exp(p)
  in (q)) a
in (y)""",
    ),
    (
        "redomap_map",
        "a: [n]f32",
        f"""\
let (x: [n]f32) = {EXP}
let (y: f32) = redomap n {ADD} (\\(v: f32) ->
  let (w: f32) = v * v
  in (w)) x
in (y)""",
        f"""\
let (y: f32) = redomap n {ADD} (\\(p: f32) ->
  let (q: f32) = exp(p)
  let (w: f32) = q * q
  in (w)) a
in (y)""",
    ),
    (
        "scan_map",
        "a: [n]f32",
        f"let (x: [n]f32) = {EXP}\nlet (y: [n]f32) = scan n {ADD} x\nin (y)",
        f"""\
let (y: [n]f32) = scanomap n {ADD} (\\(p: f32) ->
  let (q: f32) = exp(p)
  in (q)) a
in (y)""",
    ),
    (
        "scanomap_map",
        "a: [n]f32, b: [n]f32",
        f"""\
let (x: [n]f32) = {EXP}
let (y: [n]f32) = scanomap n {ADD} (\\(v: f32, w: f32) ->
  let (z: f32) = v * w
  in (z)) b x
in (y)""",
        f"""\
let (y: [n]f32) = scanomap n {ADD} (\\(v: f32, p: f32) ->
  let (q: f32) = exp(p)
  let (z: f32) = v * q
  in (z)) b a
in (y)""",
    ),
    (
        "map_beside_map",
        "a: [n]f32, b: [n]f32",
        f"""\
let (x: [n]f32) = {EXP}
let (y: [n]f32) = map n (\\(s: f32, t: f32) ->
  let (u: f32) = s * t
  in (u)) b a
in (y, x)""",
        """\
let (x: [n]f32, y: [n]f32) = map n (\\(p: f32, s: f32) ->
  let (q: f32) = exp(p)
  let (u: f32) = s * p
  in (q, u)) a b
in (y, x)""",
    ),
    (
        "reduce_beside_reduce",
        "a: [n]f32",
        """\
let (x: f32) = reduce n (\\(p: f32, q: f32) ->
  let (r: f32) = p + q
  in (r)) (0.0f32) a
let (y: f32, z: [n]f32) = redomap n (\\(s: f32, t: f32) ->
  let (u: f32) = max(s, t)
  in (u)) (-f32.inf) (\\(v: f32) ->
  let (w: f32) = exp(v)
  in (w, v)) a
in (x, y, z)""",
        """\
let (x: f32, y: f32, z: [n]f32) = redomap n (\\(p: f32, s: f32, q: f32, t: f32) ->
  let (r: f32) = p + q
  let (u: f32) = max(s, t)
  in (r, u)) (0.0f32, -f32.inf) (\\(a_1: f32) ->
  let (w: f32) = exp(a_1)
  in (a_1, w, a_1)) a
in (x, y, z)""",
    ),
    (
        "reduce_beside_reduce",
        "a: [n]f32",
        """\
let (b: [n]f32, c: [n]f32) = map n (\\(v: f32) ->
  let (w: f32) = exp(v)
  in (v, w)) a
let (x: f32) = reduce n (\\(p: f32, q: f32) ->
  let (r: f32) = p + q
  in (r)) (0.0f32) b
let (y: f32) = reduce n (\\(s: f32, t: f32) ->
  let (u: f32) = max(s, t)
  in (u)) (-f32.inf) c
in (x, y)""",
        """\
let (b: [n]f32, c: [n]f32) = map n (\\(v: f32) ->
  let (w: f32) = exp(v)
  in (v, w)) a
let (x: f32, y: f32) = redomap n (\\(p: f32, s: f32, q: f32, t: f32) ->
  let (r: f32) = p + q
  let (u: f32) = max(s, t)
  in (r, u)) (0.0f32, -f32.inf) (\\(b_1: f32, c_1: f32) -> (b_1, c_1)) b c
in (x, y)""",
    ),
]

MATMUL_TWICE = """\
let (x: [n][n]f32) = map n (\\(a_row: [n]f32) ->
  let (x_row: [n]f32) = map n (\\(b_row: [n]f32) ->
    let (x_element: f32) = redomap n (\\(s: f32, t: f32) ->
      let (u: f32) = s + t
      in (u)) (0.0f32) (\\(p: f32, q: f32) ->
      let (r: f32) = p * q
      in (r)) a_row b_row
    in (x_element)) b
  in (x_row)) a
let (y: [n][n]f32) = map n (\\(x_row2: [n]f32) ->
  let (y_row: [n]f32) = map n (\\(b_row2: [n]f32) ->
    let (y_element: f32) = redomap n (\\(s2: f32, t2: f32) ->
      let (u2: f32) = s2 + t2
      in (u2)) (0.0f32) (\\(p2: f32, q2: f32) ->
      let (r2: f32) = p2 * q2
      in (r2)) x_row2 b_row2
    in (y_element)) b
  in (y_row)) x
in (y)"""

# rule, parameters, program, statement, words of the reason
TURNED = """\
let (x: [n][m]f32) = map n (\\(row: [m]f32) ->
  let (d: [m]f32) = map m (\\(p: f32) ->
    let (q: f32) = exp(p)
    in (q)) row
  in (d)) a
let (y: [m][n]f32) = rearrange (1, 0) x
"""

DECLINES = [
    ("rearrange_gather", "a: [n][m]f32", f"{TURNED}in (y)", 1, "which stands in a map"),
    ("rearrange_map", "a: [n][m]f32", "let (y: [m][n]f32) = rearrange (1, 0) a\nin (y)", 0, "not computed by a map"),
    ("rearrange_map", "a: [n][m]f32", f"{TURNED}in (y)", 1, "y is not only folded row by row"),
    ("rearrange_map", "a: [n][m]f32", f"{TURNED}in (x, y)", 1, "x is used otherwise than in columns, too"),
    (
        "map_map",
        "a: [n]f32",
        f"let (x: [n]f32) = {EXP}\n"
        "let (y: [n]f32) = map n (\\(s: f32) ->\n  let (t: f32) = s + s\n  in (t)) x\nin (y, x)",
        1,
        "x is also used by the results",
    ),
    (
        "map_map",
        "a: [n]f32, i: i64",
        f"let (x: [n]f32) = {EXP}\n"
        "let (y: [n]f32) = map n (\\(s: f32) ->\n  let (t: f32) = x[i]\n  let (u: f32) = s + t\n  in (u)) x\nin (y)",
        1,
        "x is used as a whole inside the function of y",
    ),
    ("map_map", "a: [n][n]f32, b: [n][n]f32", MATMUL_TWICE, 1, "one nest of both would be imperfect"),
    (
        "map_map",
        "a: [n]f32",
        f"let (x: [n]f32) = {EXP}\nlet (y: [1][n]f32) = replicate 1 x\n"
        "let (z: [n]f32) = map n (\\(s: f32) ->\n  let (t: f32) = s + s\n  in (t)) x\nin (y, z)",
        2,
        "x is also used by y",
    ),
    (
        "map_map",
        "a: [n]f32",
        f"let (x: [n]f32) = {EXP}\nlet (y: [n]f32) = x[n - 1 :+ n by -1]\n"
        "let (z: [n]f32) = map n (\\(s: f32) ->\n  let (t: f32) = s + s\n  in (t)) y\nin (z)",
        2,
        "y takes the rows of x in another order",
    ),
    (
        "map_map",
        "a: [n]f32",
        f"let (x: f32, y: [n]f32) = redomap n {ADD} (\\(v: f32) -> (v, v)) a\n"
        "let (z: [n]f32) = map n (\\(p: f32) ->\n  let (r: f32) = p / x\n  in (r)) y\nin (z)",
        1,
        "x, y is the result of a fused fold",
    ),
    ("map_map", "a: [n]f32", f"let (x: [n]f32) = {EXP}\nin (x)", 0, "no input is computed by a map of the same body"),
    (
        "reduce_map",
        "a: [n][m]f32",
        f"""\
let (x: [n]f32) = map n (\\(p: [m]f32) ->
  let (q: f32) = reduce m {ADD} p
  in (q)) a
let (y: f32) = reduce n (\\(s2: f32, t2: f32) ->
  let (u2: f32) = s2 + t2
  in (u2)) (0.0f32) x
in (y)""",
        1,
        "x is computed by parallelism inside a map",
    ),
    ("redomap_map", "a: [n]f32", f"let (y: f32) = redomap n {ADD} (\\(v: f32) -> (v)) a\nin (y)", 0, "no input"),
    ("scan_map", "a: [n]f32", f"let (y: [n]f32) = scan n {ADD} a\nin (y)", 0, "no input"),
    ("scanomap_map", "a: [n]f32", f"let (y: [n]f32) = scanomap n {ADD} (\\(v: f32) -> (v)) a\nin (y)", 0, "no input"),
    (
        "map_beside_map",
        "a: [n]f32",
        f"let (x: [n]f32) = {EXP}\n"
        "let (y: [n]f32) = map n (\\(s: f32, t: f32) ->\n  let (u: f32) = s + t\n  in (u)) x a\nin (y, x)",
        1,
        "it needs x",
    ),
    ("map_beside_map", "a: [n][n]f32, b: [n][n]f32", MATMUL_TWICE.replace(") x\nin (y)", ") a\nin (x, y)"), 1, "nest"),
    (
        "reduce_beside_reduce",
        "a: [n]f32",
        f"let (x: f32) = reduce n {ADD} a\n"
        "let (y: f32) = reduce_comm n (\\(p: f32, q: f32) ->\n  let (r: f32) = p + q\n  in (r)) (0.0f32) a\nin (x, y)",
        1,
        "commutative",
    ),
]


def _random(source: Program) -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.normal(size=[3 for _ in one.type.shape]).astype(np.float32) for one in source.parameters]


@pytest.mark.parametrize(("rule", "parameters", "before", "after"), FIRES, ids=[one[0] for one in FIRES])
def test_rule_fires(rule: str, parameters: str, before: str, after: str) -> None:
    source = program(parameters, before)
    state = everywhere_once(rule_named(rule), source)
    assert body_text(state.program) == textwrap.dedent(after).strip()
    arguments = _random(source)
    assert agree(interpret(source, arguments), interpret(state.program, arguments)) is None
    assert operations(state.program, arguments) == operations(source, arguments)


@pytest.mark.parametrize(("rule", "parameters", "text", "index", "reason"), DECLINES, ids=[one[0] for one in DECLINES])
def test_rule_declines(rule: str, parameters: str, text: str, index: int, reason: str) -> None:
    outcome = rule_named(rule)(resolve(program(parameters, text), Site((), index)))
    assert isinstance(outcome, Declined)
    assert reason in outcome.reason


def test_a_matrix_product_takes_an_elementwise_epilogue() -> None:
    product = MATMUL_TWICE.split("let (y:", maxsplit=1)[0]
    epilogue = """\
let (y: [n][n]f32) = map n (\\(x_row2: [n]f32) ->
  let (y_row: [n]f32) = map n (\\(e: f32) ->
    let (f: f32) = max(e, 0.0f32)
    in (f)) x_row2
  in (y_row)) x
in (y)"""
    source = program("a: [n][n]f32, b: [n][n]f32", product + epilogue)
    state = everywhere_once(rule_named("map_map"), source)
    assert [step.rule for step in state.steps] == ["map_map", "map_map"]
    expected = product.replace("in (x_element)", "let (f: f32) = max(x_element, 0.0f32)\n    in (f)")
    expected = expected.replace("[n][n]f32) = map n (\\(a_row", "[n][n]f32) = map n (\\(a_row").replace(
        "let (x:", "let (y:"
    )
    expected = expected.replace("let (x_row:", "let (y_row:").replace("in (x_row)", "in (y_row)")
    assert body_text(state.program) == expected + "in (y)"
