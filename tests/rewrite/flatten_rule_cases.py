"""One small program for each flattening rule, and programs where the rules decline."""

from __future__ import annotations

ADD = "(\\(s{0}: f32, t{0}: f32) ->\n  let (u{0}: f32) = s{0} + t{0}\n  in (u{0})) (0.0f32)"


def add(number: int = 0) -> str:
    """An addition with its neutral element; names differ by number."""
    return ADD.format(number)


# rule, parameters, body
FIRES = [
    (
        "distribute",  # the example of the slides: map (\xs -> let y = redomap ... in map (\x -> x + y) xs) xss
        "xss: [n][m]f32",
        f"""\
let (zss: [n][m]f32) = map n (\\(xs: [m]f32) ->
  let (y: f32) = reduce m {add()} xs
  let (zs: [m]f32) = map m (\\(x: f32) ->
    let (z: f32) = x + y
    in (z)) xs
  in (zs)) xss
in (zss)""",
    ),
    (
        "distribute",  # in a context of two maps, with a scalar part after and a result that is only passed on
        "xsss: [n][m][k]f32, ws: [m]f32",
        f"""\
let (aas: [n][m]f32, bs: [n][m]f32) = map n (\\(xss: [m][k]f32) ->
  let (aas1: [m]f32, bs1: [m]f32) = map m (\\(xs: [k]f32, w: f32) ->
    let (d: f32) = reduce k {add()} xs
    let (e: f32) = d * w
    in (e, w)) xss ws
  in (aas1, bs1)) xsss
in (aas, bs)""",
    ),
    (
        "distribute",  # an irregular array keeps its maker and its user together, around a regular statement
        "ps: [n]i64, xss: [n][m]f32",
        f"""\
let (rs: [n]f32, zs: [n]i64) = map n (\\(p: i64, xs: [m]f32) ->
  let (c: i64) = p % 3i64
  let (is: [c]i64) = iota c i64
  let (y: f32) = reduce m {add()} xs
  let (z: i64) = reduce c (\\(s1: i64, t1: i64) ->
    let (u1: i64) = s1 + t1
    in (u1)) (0i64) is
  in (y, z)) ps xss
in (rs, zs)""",
    ),
    (
        "interchange_loop",
        "xss: [n][m]f32, y0: f32, k: i64",
        f"""\
let (zs: [n]f32, ws: [n]f32) = map n (\\(xs: [m]f32) ->
  let (z: f32, w: f32) = loop (a: f32, b: f32) = (y0, 1.0f32) for i: i64 < k do
    let (y: f32) = reduce m {add()} xs
    let (c: f32) = a + y
    in (c, a)
  in (z, w)) xss
in (zs, ws)""",
    ),
    (
        "interchange_if",
        "xss: [n][m]f32, p: bool",
        f"""\
let (zs: [n]f32) = map n (\\(xs: [m]f32) ->
  let (z: f32) = if p then
    let (y: f32) = reduce m {add()} xs
    in (y)
  else (2.0f32)
  in (z)) xss
in (zs)""",
    ),
    (
        "split_invariant",  # an exponential for every y; a scalar that both parts need is cheap and stays on both sides
        "xss: [n][m]f32, ys: [m]f32, z: f32",
        f"""\
let (rs: [n]f32) = map n (\\(xs: [m]f32) ->
  let (h: f32) = 0.5f32 * z
  let (es: [m]f32) = map m (\\(x: f32, y: f32) ->
    let (d: f32) = h * y
    let (e: f32) = exp(d)
    let (f: f32) = e + h
    let (g: f32) = d * x
    let (p: f32) = f * g
    in (p)) xs ys
  let (r: f32) = reduce m {add()} es
  in (r)) xss
in (rs)""",
    ),
    (
        "split_invariant",  # out of two maps and a scan, whose other values vary; what is the same as a whole goes too
        "xs: [n]f32, yss: [m][k]f32, places: [k]i64",
        """\
let (rsss: [n][m][k]f32, tss: [n][k]f32) = map n (\\(x: f32) ->
  let (rss: [m][k]f32) = map m (\\(ys: [k]f32) ->
    let (ss: [k]f32) = scan k (\\(s: f32, t: f32) ->
      let (u: f32) = s + t
      in (u)) (0.0f32) ys
    let (rs: [k]f32) = scanomap k (\\(s1: f32, t1: f32) ->
      let (u1: f32) = max(s1, t1)
      in (u1)) (0.0f32) (\\(y: f32, s2: f32) ->
      let (q: f32) = y / 3.0f32
      let (v: f32) = q * x
      let (w: f32) = v + s2
      in (w)) ys ss
    in (rs)) yss
  let (ts: [k]f32) = map k (\\(place: i64) ->
    let (t2: f32) = place as f32
    in (t2)) places
  in (rss, ts)) xs
in (rsss, tss)""",
    ),
    (
        "split_fold",
        "xss: [n][m]f32",
        f"""\
let (z: f32, ws: [n]f32) = redomap n {add()} (\\(xs: [m]f32) ->
  let (y: f32) = reduce m {add(1)} xs
  let (w: f32) = exp(y)
  in (w, y)) xss
in (z, ws)""",
    ),
    (
        "interchange_reduce",
        "xsss: [n][k][m]f32",
        f"""\
let (zeros: [m]f32) = replicate m 0.0f32
let (yss: [n][m]f32) = map n (\\(xss: [k][m]f32) ->
  let (ys: [m]f32) = reduce k (\\(p: [m]f32, q: [m]f32) ->
    let (r: [m]f32) = map m {add().split(" (0.0f32)")[0]} p q
    in (r)) (zeros) xss
  in (ys)) xsss
in (yss)""",
    ),
    (
        "lift_constant",
        "xss: [n][m]f32",
        """\
let (yss: [n][m]f32) = map n (\\(xs: [m]f32) ->
  let (zs: [m]f32) = replicate m 1.0f32
  let (ys: [m]f32) = map m (\\(x: f32, z: f32) ->
    let (y: f32) = x * z
    in (y)) xs zs
  in (ys)) xss
in (yss)""",
    ),
    (
        "lift_constant",  # from a map inside a map, then from the outer one
        "xss: [n][m]f32",
        """\
let (ysss: [n][m][m]i64) = map n (\\(xs: [m]f32) ->
  let (yss: [m][m]i64) = map m (\\(x: f32) ->
    let (is: [m]i64) = iota m i64
    in (is)) xs
  in (yss)) xss
in (ysss)""",
    ),
    (
        "flatten_rearrange",
        "xs: [n][m][k]f32",
        "let (ys: [n][k][m]f32) = map n (\\(x: [m][k]f32) ->\n"
        "  let (y: [k][m]f32) = rearrange (1, 0) x\n  in (y)) xs\nin (ys)",
    ),
    (
        "flatten_reshape",
        "xs: [n][m][k]f32",
        "let (ys: [n][k*m]f32) = map n (\\(x: [m][k]f32) ->\n"
        "  let (y: [k*m]f32) = reshape (k*m) x\n  in (y)) xs\nin (ys)",
    ),
    (
        "flatten_redomap",
        "xss: [n][m]f32, ys: [m]f32",
        f"""\
let (zs: [n]f32, wss: [n][m]f32) = map n (\\(xs: [m]f32) ->
  let (z: f32, ws: [m]f32) = redomap_comm m {add()} (\\(x: f32, y: f32) ->
    let (w: f32) = x * y
    in (w, x)) xs ys
  in (z, ws)) xss
in (zs, wss)""",
    ),
    ("flatten_redomap", "xs: [n]f32", f"let (z: f32) = reduce n {add()} xs\nin (z)"),
    (
        "flatten_scan",
        "xss: [n][m]f32",
        f"""\
let (zss: [n][m]f32) = map n (\\(xs: [m]f32) ->
  let (zs: [m]f32) = scan m {add()} xs
  in (zs)) xss
in (zss)""",
    ),
    (
        "flatten_hist",
        "iss: [n][m]i64, xss: [n][m]f32, bins: [k]f32",
        f"""\
let (hs: [n][k]f32) = map n (\\(is: [m]i64, xs: [m]f32) ->
  let (h: [k]f32) = hist (bins) {add()} is xs
  in (h)) iss xss
in (hs)""",
    ),
    (
        "flatten_scatter",
        "iss: [n][m]i64, xss: [n][m]f32, ds: [n][k]f32",
        """\
let (ys: [n][k]f32) = map n (\\(d: [k]f32, is: [m]i64, xs: [m]f32) ->
  let (y: [k]f32) = scatter d is xs
  in (y)) ds iss xss
in (ys)""",
    ),
    (
        "flatten_map",
        "xss: [n][m]f32, ys: [n]f32",
        """\
let (zss: [n][m]f32) = map n (\\(xs: [m]f32, y: f32) ->
  let (zs: [m]f32) = map m (\\(x: f32) ->
    let (z: f32) = x + y
    in (z)) xs
  in (zs)) xss ys
in (zss)""",
    ),
    (
        "version_outer",
        "xss: [n][m]f32",
        f"""\
let (ys: [n]f32) = map n (\\(xs: [m]f32) ->
  let (y: f32) = reduce m {add()} xs
  in (y)) xss
in (ys)""",
    ),
    (
        "version_outer",
        "xss: [n][m]f32",
        f"""\
let (z: f32) = redomap n {add()} (\\(xs: [m]f32) ->
  let (y: f32) = reduce m {add(1)} xs
  in (y)) xss
in (z)""",
    ),
    (
        "version_block",
        "xss: [n][m]f32",
        f"""\
let (yss: [n][m]f32) = map n (\\(xs: [m]f32) ->
  let (zs: [m]f32) = scan m {add()} xs
  let (ys: [m]f32) = scan m {add(1)} zs
  in (ys)) xss
in (yss)""",
    ),
]
SQUARES = """\
let (ys: [n]f32) = segmap@thread (i: i64 < n) do
  let (x: f32) = xs[i]
  let (y: f32) = x * x
  in (y)
"""
FIRES += [
    (
        "segmap_into_operation",
        "xs: [n]f32",
        SQUARES + f"let (z: f32) = segred@thread (j: i64 < n) {add()} do\n  let (e: f32) = ys[j]\n  in (e)\nin (z)",
    ),
    (
        "segmap_into_operation",  # a few scalar operations are computed again along further dimensions
        "xs: [n]f32, zss: [n][m]f32",
        SQUARES
        + """\
let (wss: [n][m]f32) = segmap@thread (j: i64 < n, k: i64 < m) do
  let (e: f32) = ys[j]
  let (z: f32) = zss[j, k]
  let (w: f32) = e + z
  in (w)
in (wss)""",
    ),
]
FIRES += [
    (
        "iota_into_operation",
        "xs: [n]i64, ws: [m]f32",
        f"""\
let (is: [m]i64) = iota m i64
let (ys: [n]i64) = segmap@thread (i: i64 < n) do
  let (x: i64) = xs[i]
  let (y: i64) = redomap m {add().replace("f32", "i64").replace("0.0i64", "0i64")} (\\(j: i64) ->
    let (z: i64) = j * x
    in (z)) is
  in (y)
in (ys)""",
    )
]

VARYING_SCAN = f"""\
let (rs: [n]f32) = map n (\\(p: i64) ->
  let (c: i64) = p % 3i64
  let (xs: [c]f32) = replicate c 1.0f32
  let (y: f32) = reduce c {add()} xs
  in (y)) ps
in (rs)"""
VARYING_LOOP = f"""\
let (rs: [n]f32) = map n (\\(p: i64) ->
  let (r: f32) = loop (a: f32) = (0.0f32) for i: i64 < p do
    let (y: f32) = reduce m {add()} xs
    let (b: f32) = a + y
    in (b)
  in (r)) ps
in (rs)"""
VARYING_IF = f"""\
let (rs: [n]f32) = map n (\\(p: bool) ->
  let (r: f32) = if p then
    let (y: f32) = reduce m {add()} xs
    in (y)
  else (0.0f32)
  in (r)) qs
in (rs)"""
VARYING_NEUTRAL = """\
let (rs: [n]f32) = map n (\\(p: f32) ->
  let (r: f32) = reduce m (\\(s: f32, t: f32) ->
    let (u: f32) = max(s, t)
    in (u)) (p) xs
  in (r)) ps
in (rs)"""
SCALARS_ONLY = "let (ys: [n]f32) = map n (\\(x: f32) ->\n  let (y: f32) = x + x\n  in (y)) ps\nin (ys)"

COULD_FAIL = """\
let (rss: [n][m]f32) = map n (\\(x: f32) ->
  let (es: [m]f32) = map m (\\(i: i64) ->
    let (y: f32) = ys[i]
    let (e: f32) = exp(y)
    let (p: f32) = e * x
    in (p)) is
  let (rs: [m]f32) = scan m (\\(s: f32, t: f32) ->
    let (u: f32) = s + t
    in (u)) (0.0f32) es
  in (rs)) xs
in (rss)"""

# rule, parameters, body, words of the reason; the first statement is tried (of segment fusion the second)
DECLINES = [
    ("distribute", "ps: [n]i64", VARYING_SCAN, "xs has type [c]f32, which varies in the nest"),
    ("distribute", "ps: [n]i64, xs: [m]f32", VARYING_LOOP, "r is computed by parallelism under control that varies"),
    ("distribute", "ps: [n]f32", SCALARS_ONLY, "there is no parallelism inside"),
    ("interchange_loop", "ps: [n]i64, xs: [m]f32", VARYING_LOOP, "the loop's bound or values vary"),
    ("interchange_if", "qs: [n]bool, xs: [m]f32", VARYING_IF, "the condition varies in the nest"),
    (
        "flatten_redomap",
        "ps: [n]f32, xs: [m]f32",
        VARYING_NEUTRAL,
        "the operator, the neutral element or a size varies",
    ),
    ("flatten_redomap", "ps: [n]f32", SCALARS_ONLY, "the nest is not around a reduction"),
    ("flatten_scan", "ps: [n]f32", SCALARS_ONLY, "the nest is not around a scan"),
    ("flatten_hist", "ps: [n]f32", SCALARS_ONLY, "the nest is not around a histogram"),
    ("flatten_scatter", "ps: [n]f32", SCALARS_ONLY, "the nest is not around a scatter"),
    ("split_invariant", "ps: [n]f32", SCALARS_ONLY, "the nest is perfect"),
    ("split_invariant", "ps: [n]i64", VARYING_SCAN, "nothing dear inside is the same at all points"),
    ("split_invariant", "xs: [n]f32, is: [m]i64, ys: [k]f32", COULD_FAIL, "does not vary, but it could fail"),
    ("split_fold", "ps: [n]f32", SCALARS_ONLY, "the nest is not around a fused fold"),
    ("lift_constant", "ps: [n]f32", SCALARS_ONLY, "nothing is constant"),
    ("version_outer", "ps: [n]f32", SCALARS_ONLY, "there is no regular parallelism inside"),
    ("version_block", "ps: [n]f32", SCALARS_ONLY, "there is no regular parallelism inside"),
    (
        "version_block",
        "ps: [n]i64, xss: [n][m]f32",
        VARYING_SCAN.replace("p: i64)", "p: i64, row: [m]f32)").replace(
            "in (y)) ps", f"let (w: f32) = reduce m {add(1)} row\n  let (v: f32) = y + w\n  in (v)) ps xss"
        ),
        "vary in size, so that it is not known if a block holds them",
    ),
    (
        "iota_into_operation",
        "xs: [n]i64, ws: [m]f32",
        "let (ys: [n]i64) = segmap@thread (i: i64 < n) do\n  let (x: i64) = xs[i]\n  in (x)\nin (ys)",
        "it reads no iota",
    ),
    (
        "flatten_rearrange",
        "xs: [n][m][k]f32, zs: [m]f32",
        "let (ys: [n][m][k][m]f32) = map n (\\(x: [m][k]f32) ->\n"
        "  let (y: [m][k][m]f32) = map m (\\(z: f32) ->\n"
        "    let (w: [k][m]f32) = rearrange (1, 0) x\n    in (w)) zs\n  in (y)) xs\nin (ys)",
        "what is taken varies along an outer dimension",
    ),
    *(
        ("segmap_into_operation", parameters, SQUARES.replace("x * x", operator) + rest, reason)
        for parameters, operator, rest, reason in (
            (
                "xs: [n]f32",
                "x * x",
                f"let (z: f32) = segred@thread (j: i64 < n) {add()} do\n  let (e: f32) = ys[j]\n  in (e)\nin (z, ys)",
                "is also read elsewhere",
            ),
            (
                "xs: [n]f32",
                "x * x",
                f"let (z: f32) = segred@thread (j: i64 < n) {add()} do\n  let (e: f32) = ys[0i64]\n  in (e)\nin (z)",
                "is read at other points too",
            ),
            (
                "xs: [n]f32, m: i64",
                "exp(x)",
                "let (wss: [n][m]f32) = segmap@thread (j: i64 < n, k: i64 < m) do\n"
                "  let (e: f32) = ys[j]\n  in (e)\nin (wss)",
                "would be computed again",
            ),
            (
                "xs: [n]f32",
                "x * x",
                "let (zs: [n]f32) = segmap@block (j: i64 < n) do\n  let (e: f32) = ys[j]\n  in (e)\nin (zs)",
                "is computed by blocks",
            ),
            (
                "xs: [n]f32, m: i64",
                "x * x",
                "let (zs: [m]f32) = segmap@thread (j: i64 < m) do\n  let (e: f32) = ys[j]\n  in (e)\nin (zs)",
                "is computed over another space",
            ),
        )
    ),
]
