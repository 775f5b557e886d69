"""Core programs for tests: one text that has every construct, and random small ones."""

from __future__ import annotations

from functools import partial

from hypothesis import strategies as st

from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Atom, Body, Lambda, Literal, Program, SizeValue, Type, Variable, array
from tilewright.ir.scalars import BF16, BOOL, C64, F32, F64, I8, I32, I64, U64, ScalarType
from tilewright.ir.sizes import Size, maximum, minimum, size
from tilewright.ir.traversal import FreshNames, substitute, with_fresh_names

MATMUL = """\
def matmul (a: [n][k]f32, b: [k][m]f32) =
  let (b_columns: [m][k]f32) = rearrange (1, 0) b
  let (c: [n][m]f32) = map n (\\(row: [k]f32) ->
    let (c_row: [m]f32) = map m (\\(column: [k]f32) ->
      let (element: f32) = redomap_comm k (\\(s: f32, t: f32) ->
        let (sum: f32) = s + t
        in (sum)) (0.0f32) (\\(x: f32, y: f32) ->
        let (xy: f32) = x * y
        in (xy)) row column
      in (element)) b_columns
    in (c_row)) a
  in (c)
"""

EVERYTHING = """\
def everything (x: [n]f32, y: [n][m]f32, p: bool, j: i64, index: [n]i64, bins: [m]f32, z: [m][8]c64) =
  let (a1: [n]f32) = x
  let (a2: f32) = -f32.inf
  let (a3: bool) = false
  let (e1: f32) = a2 + -0.5f32
  let (e2: f32) = exp(e1)
  let (e3: f32) = select(p, e1, f32.nan)
  let (e4: f32) = min(e1, 1e-45f32)
  let (e5: c64) = c64(1.0, -inf) * c64(-0.0, nan)
  let (e6: bool) = -1i8 < 127i8
  let (e7: f64) = e1 as f64
  let (e8: i64) = size(m*n - 3*floordiv(n, 2) - max(m, n) + mod(n, 7))
  let (e9: i64) = n // 2i64
  let (e10: bool) = threshold outer_0 (m*n)
  let (f1: f32, f2: i64) = if p then (e1, 1i64) else (e2, j)
  let (f3: f32) = if a3 then
    let (f4: f32) = neg(e1)
    in (f4)
  else (e1)
  let (f5: f32) = if a3 then (e1) else
    let (f6: f32) = neg(e1)
    in (f6)
  let (g1: f32, g2: [n]f32) = loop (s: f32, u: [n]f32) = (0.0f32, x) for i: i64 < 2*n + 1 do
    let (g3: f32) = x[j]
    let (g4: f32) = s + g3
    in (g4, u)
  let (h1: i64) = loop (c1: i64) = (0i64) while (\\(c2: i64) ->
    let (h2: bool) = c2 < j
    in (h2)) do
    let (h3: i64) = c1 + 1i64
    in (h3)
  let (k1: [m]f32) = y[0i64]
  let (k2: f32) = y[j, n]
  let (k3: [n][m]f32) = y[]
  let (k4: [n][2]f32) = y[n - 1 :+ n by -1, 0 :+ 2]
  let (k5: [j + 1]f32) = x[0 :+ j + 1]
  let (k6: f32) = k2[:+]
  let (k7: [n][m]f32) = y with [j, 0i64] = 1.0f32
  let (k8: [n]f32) = x with [] = x
  let (l1: [n]i32) = iota n i32
  let (l2: [m*n]i64) = iota (m*n) i64
  let (l3: [2*n]bool) = replicate (2*n) true
  let (l4: [min(m, n)][n]f32) = replicate min(m, n) x
  let (l5: [n][2*m]f32) = concat 1 y y
  let (l6: [m*n]f32) = reshape (m*n) y
  let (l7: [m][n]f32) = rearrange (1, 0) y
  let (l8: f32) = reshape () e1
  let (l9: [n]f32) = copy x
  let (`map`: [n][m]f32) = copy y @block
  let (o1: [n]f32, o2: [n][m]f32) = map n (\\(q1: f32, q2: [m]f32) -> (q1, q2)) x y
  let (`×÷`: f32) = reduce n (\\(r1: f32, r2: f32) ->
    let (r3: f32) = r1 + r2
    in (r3)) (0.0f32) x
  let (λ.x_1: [n]f32) = scan n (\\(s1: f32, s2: f32) ->
    let (s3: f32) = max(s1, s2)
    in (s3)) (-f32.inf) x
  let (o5: f32, o6: [n]f32) = redomap n (\\(t1: f32, t2: f32) ->
    let (t3: f32) = t1 * t2
    in (t3)) (1.0f32) (\\(t4: f32) -> (t4, t4)) x
  let (`a\\{60}b`: [n]f32) = scanomap n (\\(u1: f32, u2: f32) ->
    let (u3: f32) = u1 * u2
    in (u3)) (1.0f32) (\\(u4: f32) -> (u4)) x
  let (o8: i64) = reduce_comm n (\\(v1: i64, v2: i64) ->
    let (v3: i64) = v1 + v2
    in (v3)) (0i64) index
  let (v4: [m]f32) = scatter bins index x
  let (v5: [m]f32) = hist (bins) (\\(w1: f32, w2: f32) ->
    let (w3: f32) = w1 + w2
    in (w3)) (0.0f32) index x
  let (v6: f32, v7: [n]f32) = stream_seq n 64 (\\(length: i64, acc: f32, chunk: [length]f32) ->
    let (first: f32) = chunk[0i64]
    let (acc2: f32) = acc + first
    in (acc2, chunk)) (0.0f32) x
  let (v8: f32, v9: [m]f32, v10: [n]f32) = sweep_totals n (\\(b1: f32, b2: i64) -> (b1, b2)) (\\(b3: f32, b4: f32) ->
    let (b5: f32) = b3 + b4
    in (b5)) (0.0f32) (\\(b6: f32, b7: i64) -> (b7, b6, b6)) (bins) x index
  let (v11: [n]f32) = sweep n (\\(b8: f32) -> (b8)) (\\() -> ()) () (\\(b9: f32) -> (b9)) () x
  let (v12: [n - 1]f32) = offset_folds (n - 1) n index (\\(d1: f32) -> (d1)) (\\(d2: f32, d3: f32) ->
    let (d4: f32) = d2 + d3
    in (d4)) (0.0f32) (\\(d5: i64, d6: i64, d7: i64, d8: f32) -> (d8)) x else
    let (d9: [n - 1]f32) = replicate (n - 1) 0.0f32
    in (d9)
  let (w4: [n]f32) = segmap@cluster (i1: i64 < n) do
    let (w5: f32) = segred_comm@block (i2: i64 < m) (\\(x1: f32, x2: f32) ->
      let (x3: f32) = x1 + x2
      in (x3)) (0.0f32) do
      let (w6: [m]f32) = segmap@thread (i3: i64 < m) do (1.0f32)
      let (w7: f32) = y[i1, i2]
      in (w7)
    in (w5)
  let (w8: f32) = segred@thread (i4: i64 < n) (\\(y1: f32, y2: f32) ->
    let (y3: f32) = y1 + y2
    in (y3)) (0.0f32) do (2.5f32)
  let (w9: [n][m]f32) = segscan@block (i5: i64 < n, i6: i64 < m) (\\(z1: f32, z2: f32) ->
    let (z3: f32) = z1 + z2
    in (z3)) (0.0f32) do
    let (z4: f32) = y[i5, i6]
    in (z4)
  let (last: [n][m]f32) = seghist@block (i7: i64 < n, `i8`: i64 < m) (y) (\\(z5: f32, z6: f32) ->
    let (z7: f32) = z5 + z6
    in (z7)) (0.0f32) do (`i8`, 1.0f32)
  in (a1, e5, last, 18446744073709551615u64, 1.5bf16, true)
"""
SCALARS: tuple[ScalarType, ...] = (BOOL, I8, I32, I64, U64, BF16, F32, F64, C64)


@st.composite
def literals(draw: st.DrawFn) -> Literal:
    kind = draw(st.sampled_from(SCALARS))
    number = st.floats(allow_nan=True, allow_infinity=True)
    if kind.kind == "b":
        return Literal(draw(st.booleans()), kind)
    if kind.is_integer:
        low = -(1 << (kind.bits - 1)) if kind.kind == "i" else 0
        return Literal(draw(st.integers(low, low + (1 << kind.bits) - 1)), kind)
    if kind.is_complex:
        return Literal(complex(draw(number), draw(number)), kind)
    return Literal(draw(number), kind)


def sizes(names: list[str]) -> st.SearchStrategy[Size]:
    """Sizes over these names; divisors are positive where the names are."""

    def extend(inner: st.SearchStrategy[Size]) -> st.SearchStrategy[Size]:
        divisors = st.integers(1, 5).map(size) | st.sampled_from(names).map(size)
        return st.one_of(
            st.builds(lambda a, b: a + b, inner, inner),
            st.builds(lambda a, b: a - b, inner, inner),
            st.builds(lambda a, b: a * b, inner, inner),
            st.builds(lambda a, b: a // b, inner, divisors),
            st.builds(lambda a, b: a % b, inner, divisors),
            st.builds(minimum, inner, inner),
            st.builds(maximum, inner, inner),
        )

    return st.recursive(st.integers(-3, 7).map(size) | st.sampled_from(names).map(size), extend, max_leaves=5)


NAMES = st.text(min_size=1, max_size=4) | st.sampled_from(
    ["map", "in", "max", "f32", "size", "f32.inf", "λ", "Ā", "x.y"]
)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Small programs over two arrays of [rows][columns]f32 and an i64 scalar, with odd names and nested maps."""
    b = Builder()
    rows, columns = (b.names(draw(NAMES)) for _ in range(2))
    parameters = [b.variable(draw(NAMES), array(F32, rows, columns)) for _ in range(2)]
    parameters.append(b.variable(draw(NAMES), Type(I64)))

    def element(values: list[Atom], depth: int) -> Atom:
        for _ in range(draw(st.integers(0, 3))):
            operands = [draw(st.sampled_from(values)) for _ in range(2)]
            match draw(st.integers(0, 3)):
                case 0:
                    values.append(b.apply(draw(st.sampled_from(["add", "max", "pow"])), *operands))
                case 1:
                    values.append(b.apply(draw(st.sampled_from(["neg", "exp"])), operands[0]))
                case 2 if depth:
                    condition = b.apply("lt", *operands)
                    then, otherwise = (partial(element, list(values), depth - 1) for _ in range(2))
                    values += b.cond(condition, then, otherwise)
                case _ if depth:
                    values += b.for_loop(draw(st.integers(0, 3)), operands[:1], lambda i, c: element([c], depth - 1))
        return draw(st.sampled_from(values))

    def row(*rows_: Variable) -> Atom:
        return b.map(rows_, lambda *values: element([*values, Literal(draw(st.floats()), F32)], 2), draw(NAMES))

    results: list[Atom] = [b.map(parameters[:2], row, draw(NAMES)) for _ in range(draw(st.integers(1, 2)))]
    results.append(draw(literals().filter(lambda one: one.scalar != BF16)))  # NumPy alone has no bf16
    results.append(b.bind(SizeValue(draw(sizes([rows, columns, parameters[2].name]))), draw(NAMES)))
    return b.program(draw(NAMES), parameters, results)


def inline(function: Lambda, arguments: tuple[Atom, ...], names: FreshNames) -> Body:
    """The body of `function` for these arguments, with fresh names."""
    copy = with_fresh_names(function, names)
    values: dict[str, Atom | Size] = {
        parameter.name: argument for parameter, argument in zip(copy.parameters, arguments, strict=True)
    }
    return substitute(copy.body, values)
