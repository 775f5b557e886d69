"""Programs of streams inside nests: fixed ones, and random ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

NBODY = """\
def bodies (xs: [n]f32, ys: [n]f32, ms: [n]f32, eps: f32) =
  let (fx: [n]f32, fy: [n]f32) = map n (\\(x: f32, y: f32) ->
    let (sx: f32, sy: f32) = redomap n (\\(a: f32, b: f32, c: f32, d: f32) ->
      let (e: f32) = a + c
      let (f: f32) = b + d
      in (e, f)) (0.0f32, 0.0f32) (\\(ox: f32, oy: f32, m: f32) ->
      let (dx: f32) = ox - x
      let (dy: f32) = oy - y
      let (xx: f32) = dx * dx
      let (yy: f32) = dy * dy
      let (r: f32) = xx + yy
      let (s: f32) = r + eps
      let (t: f32) = sqrt(s)
      let (g: f32) = m / t
      let (gx: f32) = g * dx
      let (gy: f32) = g * dy
      in (gx, gy)) xs ys ms
    in (sx, sy)) xs ys
  in (fx, fy)
"""
BOXES = """\
def boxes (places: [b][p]f32, near: [b][k]i64) =
  let (out: [b][p]f32) = map b (\\(row: [p]f32, which: [k]i64) ->
    let (one: [p]f32) = map p (\\(x: f32) ->
      let (parts: [k]f32) = map k (\\(box: i64) ->
        let (others: [p]f32) = places[box]
        let (part: f32) = redomap p (\\(d: f32, e: f32) -> let (t: f32) = d + e in (t)) (0.0f32)
          (\\(y: f32) ->
            let (g: f32) = y - x
            let (h: f32) = g * g
            in (h)) others
        in (part)) which
      let (all: f32) = reduce k (\\(a: f32, c: f32) -> let (s: f32) = a + c in (s)) (0.0f32) parts
      in (all)) row
    in (one)) places near
  in (out)
"""
PAIRS = """\
def pairs (xs: [n][q]f32, ys: [m][q]f32, ws: [q]f32) =
  let (near: [n][m]f32, far: [n][m]f32) = map n (\\(x: [q]f32) ->
    let (one: [m]f32, two: [m]f32) = map m (\\(y: [q]f32) ->
      let (total: f32, most: f32) = redomap q (\\(a: f32, a2: f32, c: f32, c2: f32) ->
        let (s: f32) = a + c
        let (s2: f32) = max(a2, c2)
        in (s, s2)) (0.0f32, 0.0f32)
        (\\(u: f32, v: f32, w: f32) ->
          let (d: f32) = u - v
          let (f: f32) = d * d
          let (g: f32) = f * w
          in (g, f)) x y ws
      in (total, most)) ys
    in (one, two)) xs
  in (near, far)
"""
FIRST = """\
def first (xs: [n][q]f32, ys: [m]f32) =
  let (most: [m][n]f32, least: [m][n]f32) = map m (\\(y: f32) ->
    let (one: [n]f32, two: [n]f32) = map n (\\(x: [q]f32) ->
      let (high: f32, low: f32) = redomap q (\\(a: f32, b: f32, c: f32, d: f32) ->
        let (s: f32) = max(a, c)
        let (t: f32) = min(b, d)
        in (s, t)) (-f32.inf, f32.inf)
        (\\(u: f32) ->
          let (e: f32) = u - y
          let (f: f32) = e * e
          in (f, e)) x
      in (high, low)) xs
    in (one, two)) ys
  in (most, least)
"""
"""The only reuse is along the outer dimension: the block must extend in that one."""


FLAT = """\
def flat (xs: [n][m]f32, ys: [q]f32) =
  let (most: [n][m]f32, least: [n][m]f32) = map n (\\(row: [m]f32) ->
    let (one: [m]f32, two: [m]f32) = map m (\\(x: f32) ->
      let (high: f32, low: f32) = redomap q (\\(a: f32, b: f32, c: f32, d: f32) ->
        let (s: f32) = max(a, c)
        let (t: f32) = min(b, d)
        in (s, t)) (-f32.inf, f32.inf)
        (\\(y: f32) ->
          let (e: f32) = y - x
          let (f: f32) = e * e
          in (f, e)) ys
      in (high, low)) row
    in (one, two)) xs
  in (most, least)
"""
"""Without the stream, this nest would be one of dimension n*m for dense arrays."""


SEGMENTED = """\
def segmented (xs: [n][m]f32, ys: [q]f32, zs: [n]f32) =
  let (most: [n][m]f32, least: [n][m]f32) = segmap@thread (i: i64 < n, j: i64 < m) do
    let (x: f32) = xs[i, j]
    let (z: f32) = zs[i]
    let (place: f32) = j as f32
    let (high: f32, low: f32) = redomap q (\\(a: f32, b: f32, c: f32, d: f32) ->
      let (s: f32) = max(a, c)
      let (t: f32) = min(b, d)
      in (s, t)) (-f32.inf, f32.inf)
      (\\(y: f32) ->
        let (e: f32) = y - x
        let (f: f32) = e * place
        let (g: f32) = f + z
        in (f, g)) ys
    in (high, low)
  in (most, least)
"""


def floats(*shape: int, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).integers(-16, 17, shape) / 8).astype(np.float32)


def nbody_arguments(n: int) -> list[Any]:
    rng = np.random.default_rng(n)
    return [*(rng.uniform(-1, 1, n).astype(np.float32) for _ in range(3)), np.float32(0.1)]


def boxes_arguments(boxes: int, points: int, near: int) -> list[Any]:
    return [floats(boxes, points), np.random.default_rng(boxes).integers(0, max(boxes, 1), (boxes, near))]


def nbody_reference(xs: Any, ys: Any, ms: Any, eps: Any) -> tuple[Any, ...]:
    """In double precision, rounded."""
    x, y, m = (one.astype(np.float64) for one in (xs, ys, ms))
    dx, dy = x - x[:, None], y - y[:, None]
    g = m / np.sqrt(dx * dx + dy * dy + float(eps))
    return (g * dx).sum(1).astype(np.float32), (g * dy).sum(1).astype(np.float32)


def boxes_reference(places: Any, near: Any) -> tuple[Any, ...]:
    """Exact: the numbers are small multiples of 1/8."""
    others = places[near].reshape(len(places), -1)
    return (((others[:, None, :] - places[:, :, None]) ** 2).sum(-1, dtype=np.float32),)


def pairs_reference(xs: Any, ys: Any, ws: Any) -> tuple[Any, ...]:
    """Exact: the numbers are small multiples of 1/8."""
    squares = (xs[:, None] - ys[None]) ** 2
    return (squares * ws).sum(-1, dtype=np.float32), squares.max(-1, initial=0).astype(np.float32)


# --- random programs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamProgram:
    """A nest over n (and m) points with a stream of q rows, and its arguments."""

    text: str
    arguments: tuple[Any, ...]


@st.composite
def stream_programs(draw: st.DrawFn) -> StreamProgram:
    """Several streamed arrays, some of which change with no dimension, some with one or two; several results."""
    rank = draw(st.integers(1, 2))
    n, m, q = (
        draw(st.sampled_from([1, 2, 15, 35])),
        draw(st.sampled_from([1, 5, 17])),
        draw(st.sampled_from([0, 1, 5, 9])),
    )
    element = draw(st.sampled_from(["f32", "f64", "i32", "i64", "f16", "i16", "u8"]))
    numpy = np.dtype({"f": "f", "i": "i", "u": "u"}[element[0]] + str(int(element[1:]) // 8))
    rng = np.random.default_rng(draw(st.integers(0, 99)))

    def values(*shape: int) -> Any:
        return rng.integers(0 if element == "u8" else -3, 4, shape).astype(numpy)

    parameters: list[str] = []
    arguments: list[Any] = []
    outer: list[tuple[str, str, str]] = []  # (array, parameter, its type) of the map over n
    inner: list[tuple[str, str, str]] = []
    streamed: list[str] = []
    scalars = ["p"]
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["none", "outer", "inner", "both"][: 2 * rank]))
        name = f"a{number}"
        if kind == "none":
            parameters.append(f"{name}: [q]{element}")
            arguments.append(values(q))
            streamed.append(name)
        elif kind == "outer":
            parameters.append(f"{name}: [n][q]{element}")
            arguments.append(values(n, q))
            outer.append((name, f"r{number}", f"[q]{element}"))
            streamed.append(f"r{number}")
        elif kind == "inner":
            parameters.append(f"{name}: [m][q]{element}")
            arguments.append(values(m, q))
            inner.append((name, f"r{number}", f"[q]{element}"))
            streamed.append(f"r{number}")
        else:
            parameters.append(f"{name}: [n][m][q]{element}")
            arguments.append(values(n, m, q))
            outer.append((name, f"s{number}", f"[m][q]{element}"))
            inner.append((f"s{number}", f"r{number}", f"[q]{element}"))
            streamed.append(f"r{number}")
    (outer if rank == 1 else inner).append(("ps", "p", element))
    parameters.append(f"ps: [{'n' if rank == 1 else 'm'}]{element}")
    arguments.append(values(n if rank == 1 else m))
    lines: list[str] = []
    known = [f"e{k}" for k in range(len(streamed))] + scalars
    for number in range(draw(st.integers(1, 4))):
        a, b = (draw(st.sampled_from(known)) for _ in range(2))
        operator = draw(st.sampled_from(["+", "-", "max", "min", "if"]))
        if operator == "if":
            lines += [f"let (c{number}: bool) = {a} < {b}", f"let (t{number}: {element}) = select(c{number}, {a}, {b})"]
        elif operator in "+-":
            lines.append(f"let (t{number}: {element}) = {a} {operator} {b}")
        else:
            lines.append(f"let (t{number}: {element}) = {operator}({a}, {b})")
        known.append(f"t{number}")
    results = draw(st.integers(1, 3))
    given = [draw(st.sampled_from(known)) for _ in range(results)]
    folds = [draw(st.sampled_from(["+", "max", "min"])) for _ in range(results)]
    lowest = {"f": f"-{element}.inf", "i": f"-30000{element}", "u": "0u8"}[element[0]]
    highest = {"f": f"{element}.inf", "i": f"30000{element}", "u": "255u8"}[element[0]]
    zero = f"0.0{element}" if element[0] == "f" else f"0{element}"
    neutral = ", ".join({"+": zero, "max": lowest, "min": highest}[one] for one in folds)
    left = ", ".join([*(f"u{k}: {element}" for k in range(results)), *(f"v{k}: {element}" for k in range(results))])
    combine = " ".join(
        f"let (w{k}: {element}) = " + (f"u{k} + v{k}" if one == "+" else f"{one}(u{k}, v{k})")
        for k, one in enumerate(folds)
    )
    rows = ", ".join(f"e{k}: {element}" for k in range(len(streamed)))
    targets = ", ".join(f"z{k}: {element}" for k in range(results))
    stream = (
        f"let ({targets}) = redomap q (\\({left}) -> {combine} in ({', '.join(f'w{k}' for k in range(results))}))"
        f" ({neutral}) (\\({rows}) -> {' '.join(lines)} in ({', '.join(given)})) {' '.join(streamed)}"
    )
    body = f"{stream} in ({', '.join(f'z{k}' for k in range(results))})"
    if rank == 2:
        inner_targets = ", ".join(f"y{k}: [m]{element}" for k in range(results))
        shown = ", ".join(f"{p}: {t}" for _, p, t in inner)
        body = (
            f"let ({inner_targets}) = map m (\\({shown}) -> {body}) {' '.join(a for a, _, _ in inner)}"
            f" in ({', '.join(f'y{k}' for k in range(results))})"
        )
    if rank == 2 and not outer:
        outer.append(("ns", "i", element))
        parameters.append(f"ns: [n]{element}")
        arguments.append(values(n))
    shape = "[n]" if rank == 1 else "[n][m]"
    whole = ", ".join(f"o{k}: {shape}{element}" for k in range(results))
    shown = ", ".join(f"{p}: {t}" for _, p, t in outer)
    text = (
        f"def streams ({', '.join(parameters)}) =\n  let ({whole}) = map n (\\({shown}) -> {body})"
        f" {' '.join(a for a, _, _ in outer)} in ({', '.join(f'o{k}' for k in range(results))})"
    )
    return StreamProgram(text, tuple(arguments))
