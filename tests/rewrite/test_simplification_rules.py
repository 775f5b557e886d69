"""Each simplification rule: a program before and after, and one where it declines, with the reason."""

from __future__ import annotations

import textwrap

import pytest
from rewrite_programs import body_text, everywhere_once, program

from tilewright.rewrite.rule import Declined, Site, resolve, rule_named

# rule, parameters, before, after
FIRES = [
    (
        "copy_propagation",
        "a: i32",
        "let (x: i32) = a\nlet (y: i32) = x + x\nin (y, x)",
        "let (y: i32) = a + a\nin (y, a)",
    ),
    ("constant_folding", "", "let (x: i8) = 127i8 + 2i8\nlet (y: bool) = 1.0f32 < 2.0f32\nin (x, y)", "(-127i8, true)"),
    ("constant_folding", "", "let (x: i32) = 7i32 // 0i32\nin (x)", "(0i32)"),
    (
        "constant_folding",
        "",
        "let (k: i64) = 2i64 + 3i64\nlet (x: [2*k]i64) = iota (2*k) i64\nin (x)",
        "let (x: [10]i64) = iota 10 i64\nin (x)",
    ),
    ("algebraic_identity", "a: f32", "let (x: f32) = a * 1.0f32\nlet (y: f32) = x - 0.0f32\nin (y)", "(a)"),
    ("algebraic_identity", "a: f32", "let (x: f32) = -0.0f32 + a\nlet (y: f32) = x / 1.0f32\nin (y)", "(a)"),
    ("algebraic_identity", "a: i32", "let (x: i32) = a + 0i32\nlet (y: i32) = x % 1i32\nin (x, y)", "(a, 0i32)"),
    ("algebraic_identity", "a: i32", "let (x: i32) = a - a\nlet (y: bool) = a <= a\nin (x, y)", "(0i32, true)"),
    ("algebraic_identity", "a: bool", "let (x: bool) = a & true\nlet (y: bool) = true | x\nin (x, y)", "(a, true)"),
    (
        "double_inverse",
        "a: f32",
        "let (x: f32) = neg(a)\nlet (y: f32) = neg(x)\nin (y)",
        "let (x: f32) = neg(a)\nin (a)",
    ),
    ("select_known", "a: f32, b: f32, c: bool", "let (x: f32) = select(true, a, b)\nin (x)", "(a)"),
    ("select_known", "a: f32, b: f32, c: bool", "let (x: f32) = select(c, b, b)\nin (x)", "(b)"),
    ("constant_size", "a: f32", "let (x: i64) = size(7)\nin (x)", "(7i64)"),
    ("cast_same", "a: f32", "let (x: f32) = a as f32\nin (x)", "(a)"),
    ("cast_constant", "", "let (x: i32) = -2.5f32 as i32\nlet (y: u8) = -1i32 as u8\nin (x, y)", "(-2i32, 255u8)"),
    (
        "cast_of_cast",
        "a: i8",
        "let (x: i32) = a as i32\nlet (y: f32) = x as f32\nin (y)",
        "let (x: i32) = a as i32\nlet (y: f32) = a as f32\nin (y)",
    ),
    ("index_nothing", "a: [n]f32", "let (x: [n]f32) = a[]\nin (x)", "(a)"),
    (
        "index_iota",
        "i: i64",
        "let (x: [7]i32) = iota 7 i32\nlet (y: i32) = x[6i64]\nin (y)",
        "let (x: [7]i32) = iota 7 i32\nlet (y: i32) = 6i64 as i32\nin (y)",
    ),
    (
        "index_replicate",
        "a: [n]f32, j: i64",
        "let (x: [3][n]f32) = replicate 3 a\nlet (y: f32) = x[2i64, j]\nin (y)",
        "let (x: [3][n]f32) = replicate 3 a\nlet (y: f32) = a[j]\nin (y)",
    ),
    (
        "index_index",
        "a: [n][m]f32, i: i64, j: i64",
        "let (x: [m]f32) = a[i]\nlet (y: f32) = x[j]\nin (y)",
        "let (x: [m]f32) = a[i]\nlet (y: f32) = a[i, j]\nin (y)",
    ),
    (
        "index_rearrange",
        "a: [n][m][k]f32, i: i64, j: i64",
        "let (x: [m][n][k]f32) = rearrange (1, 0, 2) a\nlet (y: [k]f32) = x[i, j]\nin (y)",
        "let (x: [m][n][k]f32) = rearrange (1, 0, 2) a\nlet (y: [k]f32) = a[j, i]\nin (y)",
    ),
    (
        "index_slice",
        "a: [9][m]f32, i: i64",
        "let (x: [2][m]f32) = a[5 :+ 2 by -3, 0 :+ m]\nlet (y: f32) = x[1i64, i]\nin (y)",
        "let (x: [2][m]f32) = a[5 :+ 2 by -3, 0 :+ m]\nlet (y: f32) = a[2i64, i]\nin (y)",
    ),
    (
        "index_copy",
        "a: [n]f32, i: i64",
        "let (x: [n]f32) = copy a\nlet (y: f32) = x[i]\nin (y)",
        "let (x: [n]f32) = copy a\nlet (y: f32) = a[i]\nin (y)",
    ),
    (
        "index_map",
        "a: [n]f32, b: [n][m]f32, i: i64, j: i64",
        """\
        let (x: [n][m]f32) = map n (\\(p: f32, q: [m]f32) ->
          let (r: [m]f32) = map m (\\(s: f32) ->
            let (t: f32) = s * p
            in (t)) q
          in (r)) a b
        let (y: f32) = x[i, j]
        in (y)""",
        """\
        let (p: f32) = a[i]
        let (q: [m]f32) = b[i]
        let (s: f32) = q[j]
        let (t: f32) = s * p
        let (y: f32) = t
        in (y)""",
    ),
    ("slice_whole", "a: [n][4]f32", "let (x: [n][4]f32) = a[0 :+ n, 0 :+ 4]\nin (x)", "(a)"),
    (
        "slice_slice",
        "a: [99]f32, k: i64",
        "let (x: [20]f32) = a[k :+ 20 by 2]\nlet (y: [3]f32) = x[9 :+ 3 by -1]\nin (y)",
        "let (x: [20]f32) = a[k :+ 20 by 2]\nlet (y: [3]f32) = a[k + 18 :+ 3 by -2]\nin (y)",
    ),
    ("rearrange_identity", "a: [n][m]f32", "let (x: [n][m]f32) = rearrange (0, 1) a\nin (x)", "(a)"),
    (
        "rearrange_rearrange",
        "a: [n][m][k]f32",
        "let (x: [m][k][n]f32) = rearrange (1, 2, 0) a\nlet (y: [n][m][k]f32) = rearrange (2, 0, 1) x\nin (y)",
        "let (x: [m][k][n]f32) = rearrange (1, 2, 0) a\nlet (y: [n][m][k]f32) = rearrange (0, 1, 2) a\nin (y)",
    ),
    ("reshape_same", "a: [n][m]f32", "let (x: [n][m]f32) = reshape (n, m) a\nin (x)", "(a)"),
    (
        "reshape_reshape",
        "a: [n][m]f32",
        "let (x: [m*n]f32) = reshape (m*n) a\nlet (y: [m][n]f32) = reshape (m, n) x\nin (y)",
        "let (x: [m*n]f32) = reshape (m*n) a\nlet (y: [m][n]f32) = reshape (m, n) a\nin (y)",
    ),
    ("dead_code", "a: f32", "let (x: f32) = a + a\nlet (y: f32) = a * a\nin (y)", "let (y: f32) = a * a\nin (y)"),
    (
        "dead_result",
        "a: [n]f32",
        "let (x: [n]f32, y: [n]f32) = map n (\\(p: f32) ->\n  let (q: f32) = exp(p)\n  in (q, p)) a\nin (x)",
        "let (x: [n]f32) = map n (\\(p: f32) ->\n  let (q: f32) = exp(p)\n  in (q)) a\nin (x)",
    ),
    (
        "dead_result",
        "a: f32, c: bool",
        "let (x: f32, y: f32) = if c then (a, a) else (1.0f32, 2.0f32)\nin (y)",
        "let (y: f32) = if c then (a) else (2.0f32)\nin (y)",
    ),
    (
        "common_subexpression",
        "a: [n]f32, b: f32",
        """\
        let (x: f32) = b * b
        let (y: [n]f32) = map n (\\(p: f32) ->
          let (q: f32) = b * b
          let (r: f32) = q + p
          in (r)) a
        let (z: [n]f32) = map n (\\(s: f32) ->
          let (t: f32) = x + s
          in (t)) a
        in (y, z)""",
        """\
        let (x: f32) = b * b
        let (y: [n]f32) = map n (\\(p: f32) ->
          let (r: f32) = x + p
          in (r)) a
        in (y, y)""",
    ),
    (
        "if_known",
        "a: f32",
        "let (x: f32) = if true then\n  let (y: f32) = a + a\n  in (y)\nelse (a)\nin (x)",
        "let (y: f32) = a + a\nin (y)",
    ),
    (
        "if_same_result",
        "a: f32, c: bool",
        "let (x: f32, y: f32) = if c then (a, a) else (a, 2.0f32)\nin (x, y)",
        "let (y: f32) = if c then (a) else (2.0f32)\nin (a, y)",
    ),
    ("loop_never", "a: f32", "let (x: f32) = loop (y: f32) = (a) for i: i64 < 0 do (2.0f32)\nin (x)", "(a)"),
    (
        "loop_once",
        "a: [9]f32",
        """\
        let (x: f32) = loop (y: f32) = (0.5f32) for i: i64 < 1 do
          let (z: f32) = a[i]
          let (w: f32) = z + y
          in (w)
        in (x)""",
        "let (z: f32) = a[0i64]\nlet (w: f32) = z + 0.5f32\nin (w)",
    ),
    (
        "loop_constant_value",
        "a: f32, n: i64",
        """\
        let (x: f32, y: f32) = loop (p: f32, q: f32) = (a, 0.0f32) for i: i64 < n do
          let (r: f32) = q + p
          in (p, r)
        in (x, y)""",
        """\
        let (y: f32) = loop (q: f32) = (0.0f32) for i: i64 < n do
          let (r: f32) = q + a
          in (r)
        in (a, y)""",
    ),
    (
        "loop_constant_value",
        "a: i64",
        """\
        let (x: i64, y: i64) = loop (p: i64, q: i64) = (a, 0i64) while (\\(c: i64, d: i64) ->
          let (e: bool) = d < c
          in (e)) do
          let (r: i64) = q + 1i64
          in (p, r)
        in (x, y)""",
        """\
        let (y: i64) = loop (q: i64) = (0i64) while (\\(d: i64) ->
          let (e: bool) = d < a
          in (e)) do
          let (r: i64) = q + 1i64
          in (r)
        in (a, y)""",
    ),
    (
        "reduce_nothing",
        "a: [0]f32",
        "let (x: f32) = reduce 0 (\\(p: f32, q: f32) ->\n  let (r: f32) = p + q\n  in (r)) (0.0f32) a\nin (x)",
        "(0.0f32)",
    ),
    ("map_identity", "a: [n]f32", "let (x: [n]f32) = map n (\\(p: f32) -> (p)) a\nin (x)", "(a)"),
    (
        "map_identity",
        "a: [n]f32",
        """\
        let (x: f32, y: [n]f32) = redomap n (\\(p: f32, q: f32) ->
          let (r: f32) = p + q
          in (r)) (0.0f32) (\\(s: f32) -> (s, s)) a
        in (x, y)""",
        """\
        let (x: f32) = redomap n (\\(p: f32, q: f32) ->
          let (r: f32) = p + q
          in (r)) (0.0f32) (\\(s: f32) -> (s)) a
        in (x, a)""",
    ),
    (
        "map_same_result",
        "a: [n]f32",
        "let (x: [n]f32, y: [n]f32) = map n (\\(p: f32) ->\n  let (q: f32) = exp(p)\n  in (q, q)) a\nin (x, y)",
        "let (x: [n]f32) = map n (\\(p: f32) ->\n  let (q: f32) = exp(p)\n  in (q)) a\nin (x, x)",
    ),
    (
        "map_constant",
        "a: [n]f32, b: [m]f32",
        "let (x: [n][m]f32, y: [n]f32) = map n (\\(p: f32) -> (b, p)) a\nin (x, y)",
        "let (x: [n][m]f32) = replicate n b\nlet (y: [n]f32) = map n (\\(p: f32) -> (p)) a\nin (x, y)",
    ),
    (
        "map_unused_input",
        "a: [n]f32, b: [n]f32",
        "let (x: [n]f32) = map n (\\(p: f32, q: f32) ->\n  let (r: f32) = exp(q)\n  in (r)) a b\nin (x)",
        "let (x: [n]f32) = map n (\\(q: f32) ->\n  let (r: f32) = exp(q)\n  in (r)) b\nin (x)",
    ),
    (
        "map_same_input",
        "a: [n]f32",
        "let (x: [n]f32) = map n (\\(p: f32, q: f32) ->\n  let (r: f32) = p * q\n  in (r)) a a\nin (x)",
        "let (x: [n]f32) = map n (\\(p: f32) ->\n  let (r: f32) = p * p\n  in (r)) a\nin (x)",
    ),
    (
        "map_replicate",
        "a: [n]f32, v: f32",
        """\
        let (w: [n]f32) = replicate n v
        let (x: [n]f32) = map n (\\(p: f32, q: f32) ->
          let (r: f32) = p * q
          in (r)) a w
        in (x)""",
        """\
        let (w: [n]f32) = replicate n v
        let (x: [n]f32) = map n (\\(p: f32) ->
          let (r: f32) = p * v
          in (r)) a
        in (x)""",
    ),
    (
        "hoist_invariant",
        "a: [n]f32, b: [m][k]f32, v: f32",
        """\
        let (x: [n][k]f32) = map n (\\(p: f32) ->
          let (c: [k][m]f32) = rearrange (1, 0) b
          let (w: f32) = exp(v)
          let (q: [k]f32) = map k (\\(r: [m]f32) ->
            let (s: f32) = p * w
            in (s)) c
          in (q)) a
        in (x)""",
        """\
        let (c: [k][m]f32) = rearrange (1, 0) b
        let (w: f32) = exp(v)
        let (x: [n][k]f32) = map n (\\(p: f32) ->
          let (s: f32) = p * w
          let (q: [k]f32) = map k (\\(r: [m]f32) -> (s)) c
          in (q)) a
        in (x)""",
    ),
    (
        "hoist_invariant",
        "a: [4]f32, b: [n]f32, i: i64",
        "let (x: [4]f32) = map 4 (\\(p: f32) ->\n  let (q: f32) = b[i]\n  in (q)) a\nin (x)",
        "let (q: f32) = b[i]\nlet (x: [4]f32) = map 4 (\\(p: f32) -> (q)) a\nin (x)",
    ),
    (
        "hoist_invariant",
        "a: [n]f32, b: [m]f32",
        """\
        let (is: [m]i64) = iota m i64
        let (x: [n][m]f32) = map n (\\(p: f32) ->
          let (q: [m]f32) = map m (\\(i: i64) ->
            let (k: i64) = size(max(0, i - 1))
            let (before: f32) = b[k]
            let (first: f32) = b[0i64]
            let (r: f32) = before - first
            in (r)) is
          in (q)) a
        in (x)""",
        """\
        let (is: [m]i64) = iota m i64
        let (q: [m]f32) = map m (\\(i: i64) ->
          let (k: i64) = size(max(0, i - 1))
          let (before: f32) = b[k]
          let (first: f32) = b[0i64]
          let (r: f32) = before - first
          in (r)) is
        let (x: [n][m]f32) = map n (\\(p: f32) -> (q)) a
        in (x)""",
    ),
    (
        "map_single_elements",
        "a: [n]f32, b: [n]f32",
        """\
        let (c: [n][1]f32) = reshape (n, 1) a
        let (x: [n]f32) = map n (\\(p: [1]f32, q: f32) ->
          let (r: f32) = p[0i64]
          let (s: f32) = r * q
          in (s)) c b
        in (x)""",
        """\
        let (c: [n][1]f32) = reshape (n, 1) a
        let (x: [n]f32) = map n (\\(a.element: f32, q: f32) ->
          let (s: f32) = a.element * q
          in (s)) a b
        in (x)""",
    ),
]

# rule, parameters, program, statement, words of the reason
DECLINES = [
    (
        "hoist_invariant",
        "a: [n]f32, b: [m]f32",
        """\
        let (is: [m]i64) = iota m i64
        let (x: [n][m]f32) = map n (\\(p: f32) ->
          let (q: [m]f32) = map m (\\(i: i64) ->
            let (k: i64) = size(i + 1)
            let (r: f32) = b[k]
            in (r)) is
          in (q)) a
        in (x)""",
        1,
        "could fail",
    ),
    ("constant_folding", "", "let (x: f32) = 1.0f32 / 0.0f32\nin (x)", 0, "inf"),
    ("constant_folding", "", "let (x: f16) = 1.0f16 + 1.0f16\nin (x)", 0, "carried in f32"),
    ("constant_folding", "a: f32", "let (x: f32) = a + 1.0f32\nin (x)", 0, "not a constant"),
    ("algebraic_identity", "a: f32", "let (x: f32) = a + 0.0f32\nin (x)", 0, "-0.0"),
    ("algebraic_identity", "a: f32", "let (x: f32) = a * 0.0f32\nin (x)", 0, "no identity"),
    ("algebraic_identity", "a: f32", "let (x: f32) = a - a\nin (x)", 0, "no identity"),
    ("algebraic_identity", "a: c64", "let (x: c64) = a * c64(1.0, 0.0)\nin (x)", 0, "no identity"),
    ("algebraic_identity", "a: f32", "let (x: f32) = a - -0.0f32\nin (x)", 0, "no identity"),
    ("double_inverse", "a: f32", "let (x: f32) = neg(a)\nin (x)", 0, "not a neg"),
    ("select_known", "a: f32, c: bool", "let (x: f32) = select(c, a, 0.0f32)\nin (x)", 0, "not a constant"),
    ("select_known", "c: bool", "let (x: f32) = select(c, -0.0f32, 0.0f32)\nin (x)", 0, "not a constant"),
    ("constant_size", "a: [n]f32", "let (x: i64) = size(2*n)\nin (x)", 0, "not a constant"),
    ("cast_same", "a: f32", "let (x: f64) = a as f64\nin (x)", 0, "differ"),
    ("cast_constant", "", "let (x: i8) = 300.0f32 as i8\nin (x)", 0, "outside i8"),
    ("cast_constant", "", "let (x: f16) = 1.0f32 as f16\nin (x)", 0, "carried in f32"),
    ("cast_of_cast", "a: f64", "let (x: f32) = a as f32\nlet (y: f64) = x as f64\nin (y)", 1, "f64 to f32"),
    ("cast_of_cast", "a: f32", "let (x: f64) = a as f64\nlet (y: i8) = x as i8\nin (y)", 1, "outside i8"),
    ("index_nothing", "a: [n]f32, i: i64", "let (x: f32) = a[i]\nin (x)", 0, "there are indices"),
    ("index_iota", "a: [n]f32, i: i64", "let (x: f32) = a[i]\nin (x)", 0, "not an iota"),
    (
        "index_iota",
        "i: i64",
        "let (x: [7]i64) = iota 7 i64\nlet (y: i64) = x[i]\nin (y)",
        1,
        "i may be out of range of x",
    ),
    (
        "index_iota",
        "i: i64",
        "let (x: [7]i64) = iota 7 i64\nlet (y: i64) = x[7i64]\nin (y)",
        1,
        "7i64 may be out of range of x",
    ),
    ("index_replicate", "a: [n]f32, i: i64", "let (x: f32) = a[i]\nin (x)", 0, "not a replicate"),
    (
        "index_replicate",
        "a: [n]f32, i: i64",
        "let (x: [3][n]f32) = replicate 3 a\nlet (y: [n]f32) = x[i]\nin (y)",
        1,
        "i may be out of range of x",
    ),
    (
        "index_map",
        "a: [n]f32, b: f32, i: i64",
        "let (x: [n]f32) = map n (\\(p: f32) ->\n  let (q: f32) = p + p\n  let (r: f32) = exp(b)\n  in (r)) a\n"
        "let (y: f32) = x[i]\nin (y)",
        1,
        "which reads nothing there",
    ),
    ("index_index", "a: [n]f32, i: i64", "let (x: f32) = a[i]\nin (x)", 0, "not itself indexed"),
    (
        "index_rearrange",
        "a: [n][m]f32, i: i64",
        "let (x: [m][n]f32) = rearrange (1, 0) a\nlet (y: [n]f32) = x[i]\nin (y)",
        1,
        "1 indices of a rearrange by (1, 0) are not outer indices of a",
    ),
    (
        "index_slice",
        "a: [n]f32, i: i64",
        "let (x: [n - 1]f32) = a[1 :+ n - 1]\nlet (y: f32) = x[i]\nin (y)",
        1,
        "have to be computed",
    ),
    (
        "index_slice",
        "a: [n]f32, i: i64",
        "let (x: [n - 1]f32) = a[0 :+ n - 1]\nlet (y: f32) = x[i]\nin (y)",
        1,
        "i may be out of range of x where it is in range of a",
    ),
    (
        "slice_slice",
        "a: [n]f32, k: i64",
        "let (x: [3]f32) = a[0 :+ 3]\nlet (y: [2]f32) = x[k :+ 2]\nin (y)",
        1,
        "it may be out of range of x where it is in range of a",
    ),
    (
        "index_copy",
        "a: [n]f32, i: i64",
        "let (x: [n]f32) = copy a @block\nlet (y: f32) = x[i]\nin (y)",
        1,
        "stage a in the memory of level block",
    ),
    (
        "index_map",
        "a: [n]f32, i: i64",
        "let (x: [n]f32) = map n (\\(p: f32) ->\n  let (q: f32) = exp(p)\n  in (q)) a\nlet (y: f32) = x[i]\nin (y, x)",
        1,
        "x is also used by the results",
    ),
    ("slice_whole", "a: [n]f32", "let (x: [n]f32) = a[n - 1 :+ n by -1]\nin (x)", 0, "cut"),
    ("slice_slice", "a: [n]f32", "let (x: [n]f32) = a[n - 1 :+ n by -1]\nin (x)", 0, "not a slice"),
    ("rearrange_identity", "a: [n][m]f32", "let (x: [m][n]f32) = rearrange (1, 0) a\nin (x)", 0, "not the identity"),
    ("rearrange_rearrange", "a: [n][m]f32", "let (x: [m][n]f32) = rearrange (1, 0) a\nin (x)", 0, "not a rearrange"),
    ("reshape_same", "a: [n][m]f32", "let (x: [m][n]f32) = reshape (m, n) a\nin (x)", 0, "differ"),
    ("reshape_reshape", "a: [n][m]f32", "let (x: [m][n]f32) = reshape (m, n) a\nin (x)", 0, "not a reshape"),
    ("dead_code", "a: f32", "let (x: f32) = a + a\nin (x)", 0, "x is used by the results"),
    ("dead_code", "k: i64", "let (j: i64) = k + k\nlet (x: [j]i64) = iota j i64\nin (x)", 0, "j is used by x"),
    ("dead_result", "a: f32, c: bool", "let (x: f32) = if c then (a) else (2.0f32)\nin (x)", 0, "is used"),
    ("common_subexpression", "a: f32", "let (x: f32) = a + a\nlet (y: f32) = a * a\nin (x, y)", 1, "nothing in scope"),
    (
        "common_subexpression",
        "a: f32",
        "let (x: f32) = a / 0.0f32\nlet (y: f32) = a / -0.0f32\nin (x, y)",
        1,
        "nothing in scope",
    ),
    ("common_subexpression", "a: f32", "let (x: [2]f32) = replicate 2 a\nin (x)", 0, "not shared"),
    ("if_known", "a: f32, c: bool", "let (x: f32) = if c then (a) else (2.0f32)\nin (x)", 0, "not a constant"),
    ("if_same_result", "c: bool", "let (x: f32) = if c then (0.0f32) else (-0.0f32)\nin (x)", 0, "different results"),
    (
        "loop_never",
        "a: f32, n: i64",
        "let (x: f32) = loop (y: f32) = (a) for i: i64 < n do (2.0f32)\nin (x)",
        0,
        "no round",
    ),
    ("loop_once", "a: f32", "let (x: f32) = loop (y: f32) = (a) for i: i64 < 2 do (2.0f32)\nin (x)", 0, "one round"),
    (
        "loop_constant_value",
        "a: f32",
        "let (x: f32) = loop (y: f32) = (a) for i: i64 < 2 do (2.0f32)\nin (x)",
        0,
        "changes",
    ),
    (
        "reduce_nothing",
        "a: [n]f32",
        "let (x: f32) = reduce n (\\(p: f32, q: f32) ->\n  let (r: f32) = p + q\n  in (r)) (0.0f32) a\nin (x)",
        0,
        "not known to be 0",
    ),
    (
        "map_replicate",
        "v: f32",
        "let (w: [3]f32) = replicate 3 v\nlet (x: [3]f32) = map 3 (\\(p: f32) -> (p)) w\nin (x)",
        1,
        "only input",
    ),
    (
        "hoist_invariant",
        "a: [n]f32, b: [m]f32, i: i64",
        "let (x: [n]f32) = map n (\\(p: f32) ->\n  let (q: f32) = b[i]\n  in (q)) a\nin (x)",
        0,
        "q does not vary, but it could fail",
    ),
    (
        "map_single_elements",
        "a: [n]f32",
        "let (c: [n][1]f32) = reshape (n, 1) a\nlet (x: [n][1]f32) = map n (\\(p: [1]f32) -> (p)) c\nin (x)",
        1,
        "p is used otherwise than as its one element",
    ),
    (
        "map_single_elements",
        "a: [n]f32, i: i64",
        "let (c: [n][1]f32) = reshape (n, 1) a\n"
        "let (x: [n]f32) = map n (\\(p: [1]f32) ->\n  let (q: f32) = p[i]\n  in (q)) c\nin (x)",
        1,
        "p is used otherwise than as its one element, or by an index that may be another",
    ),
] + [
    (
        name,
        "a: [n]f32",
        "let (x: [n]f32) = map n (\\(p: f32) ->\n  let (q: f32) = exp(p)\n  in (q)) a\nin (x)",
        0,
        reason,
    )
    for name, reason in (
        ("map_identity", "no result"),
        ("map_same_result", "differ"),
        ("map_constant", "no result"),
        ("map_unused_input", "every input"),
        ("map_same_input", "differ"),
        ("hoist_invariant", "varies"),
        ("copy_propagation", "Map is not Alias"),
    )
]


@pytest.mark.parametrize(("rule", "parameters", "before", "after"), FIRES, ids=[one[0] for one in FIRES])
def test_rule_fires(rule: str, parameters: str, before: str, after: str) -> None:
    state = everywhere_once(rule_named(rule), program(parameters, before))
    assert body_text(state.program) == textwrap.dedent(after).strip()


@pytest.mark.parametrize(("rule", "parameters", "text", "index", "reason"), DECLINES, ids=[one[0] for one in DECLINES])
def test_rule_declines(rule: str, parameters: str, text: str, index: int, reason: str) -> None:
    outcome = rule_named(rule)(resolve(program(parameters, text), Site((), index)))
    assert isinstance(outcome, Declined)
    assert reason in outcome.reason
