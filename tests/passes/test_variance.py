"""The variance analysis: against values read at all points of a nest, on random chains of indices."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir.interpreter import interpret
from tilewright.ir.parser import parse_program
from tilewright.ir.verifier import verify
from tilewright.passes.core.nests import nest_of
from tilewright.passes.core.variance import Variance, variance_of, variance_table

EXTENTS = (3, 4, 2)


def analysed(text: str) -> Variance:
    program = parse_program(text)
    verify(program)
    nest = nest_of(program.body.statements[-1].expression)
    assert nest is not None
    return variance_of(nest)


@dataclass(frozen=True)
class Chain:
    """Scalar statements over the indices of a nest, and an element that a fold over k reads."""

    text: str
    uses: frozenset[int]


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """Indices computed by sums, products, loads, ifs and loops of the nest's; `uses` are those that they mention."""
    known: dict[str, frozenset[int]] = {f"i{d}": frozenset((d,)) for d in range(3)}
    known["one"] = frozenset()
    lines = ["let (one: i64) = size(1)"]
    for number in range(draw(st.integers(1, 5))):
        a, b, c = (draw(st.sampled_from(sorted(known))) for _ in range(3))
        name = f"v{number}"
        kind = draw(st.sampled_from(["+", "*", "load", "if", "loop"]))
        known[name] = known[a] | known[b]
        if kind == "load":
            lines += [f"let (b{name}: i64) = {a} % 30i64", f"let ({name}: i64) = table[b{name}]"]
            known[name] = known[a]
        elif kind == "if":
            branches = (
                f"then let (t{name}: i64) = {c} + one in (t{name}) else let (e{name}: i64) = {b} + {b} in (e{name})"
            )
            lines += [f"let (q{name}: bool) = {a} < {b}", f"let ({name}: i64) = if q{name} {branches}"]
            known[name] |= known[c]
        elif kind == "loop":
            body = f"let (d{name}: i64) = c{name} + {b} in (d{name})"
            lines.append(f"let ({name}: i64) = loop (c{name}: i64) = ({a}) for r{name}: i64 < 2 do {body}")
        else:
            lines.append(f"let ({name}: i64) = {a} {kind} {b}")
    lines += [f"let (safe: i64) = v{number} % 30i64", "let (row: [5]i64) = xs[safe]"]
    statements = "\n      ".join(lines)
    return Chain(NEST.replace("STATEMENTS", statements), known[f"v{number}"])


NEST = """\
def chain (xs: [30][5]i64, table: [30]i64, n: i64, m: i64, p: i64) =
  let (out: [n][m][p][5]i64) = segmap@thread (i0: i64 < n, i1: i64 < m, i2: i64 < p) do
      STATEMENTS
      let (read: [5]i64) = scan 5 (\\(u: i64, v: i64) ->
        let (w: i64) = u + v
        in (w)) (0i64) row
      in (read)
  in (out)
"""


@given(chains(), st.integers(0, 1000))
def test_no_value_changes_with_a_dimension_of_its_reuse(chain: Chain, seed: int) -> None:
    """What is invariant to a dimension is the same at all of its points; and only what mentions one changes with it."""
    variance = analysed(chain.text)
    (read,) = variance.reads
    assert read.variant == chain.uses
    rng = np.random.default_rng(seed)
    rows = rng.permutation(150).reshape(30, 5)
    (values,) = interpret(parse_program(chain.text), [rows, rng.integers(0, 1000, 30), *EXTENTS])
    for dimension in variance.invariant(read):
        first = np.take(values, [0], axis=dimension)
        assert np.array_equal(values, np.broadcast_to(first, values.shape))


def test_every_dimension_can_change_a_value() -> None:
    """The brute force can fail: an index that mentions a dimension does give different values along it."""
    for used in itertools.product((0, 1), repeat=3):
        index = " + ".join(f"i{d}" if one else "0i64" for d, one in enumerate(used))
        first, second, third = index.split(" + ")
        lines = [f"let (a: i64) = {first} + {second}", f"let (b: i64) = a + {third}", "let (row: [5]i64) = xs[b]"]
        text = NEST.replace("STATEMENTS", "\n      ".join(lines))
        (values,) = interpret(parse_program(text), [np.arange(150).reshape(30, 5), np.zeros(30, np.int64), *EXTENTS])
        changing = {d for d in range(3) if not np.array_equal(values, np.roll(values, 1, axis=d))}
        (read,) = analysed(text).reads
        assert read.variant == changing == {d for d, one in enumerate(used) if one}


NBODY = """\
def bodies (xs: [n]f32, ms: [n]f32) =
  let (forces: [n]f32) = map n (\\(x: f32) ->
    let (total: f32) = redomap n (\\(a: f32, b: f32) -> let (c: f32) = a + b in (c)) (0.0f32)
      (\\(other: f32, mass: f32) ->
        let (d: f32) = other - x
        let (f: f32) = d * mass
        in (f)) xs ms
    in (total)) xs
  in (forces)
"""
BOXES = """\
def boxes (places: [b][p]f32, near: [b][k]i64) =
  let (out: [b][p]f32) = map b (\\(row: [p]f32, which: [k]i64) ->
    let (one: [p]f32) = map p (\\(x: f32) ->
      let (all: f32) = redomap k (\\(a: f32, c: f32) -> let (s: f32) = a + c in (s)) (0.0f32)
        (\\(box: i64) ->
          let (others: [p]f32) = places[box]
          let (part: f32) = redomap p (\\(d: f32, e: f32) -> let (t: f32) = d + e in (t)) (0.0f32)
            (\\(y: f32) -> let (g: f32) = y - x in (g)) others
          in (part)) which
      in (all)) row
    in (one)) places near
  in (out)
"""
PAIRS = """\
def pairs (xs: [n][q]f32, ys: [m][q]f32, zs: [n][m][q]f32) =
  let (out: [n][m]f32) = map n (\\(x: [q]f32, z: [m][q]f32) ->
    let (inner: [m]f32) = map m (\\(y: [q]f32, w: [q]f32) ->
      let (total: f32) = redomap q (\\(a: f32, b: f32) -> let (c: f32) = a + b in (c)) (0.0f32)
        (\\(p: f32, r: f32, v: f32) ->
          let (d: f32) = p - r
          let (f: f32) = d * v
          in (f)) x y w
      in (total)) ys z
    in (inner)) xs zs
  in (out)
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (NBODY, {"xs": (0,), "ms": (0,)}),
        (BOXES, {"which": (1,), "others": (1,)}),
        (PAIRS, {"x": (1,), "y": (0,), "w": ()}),
    ],
    ids=["nbody", "boxes", "pairs"],
)
def test_reuse_of_the_seeds_examples(program: str, expected: dict[str, tuple[int, ...]]) -> None:
    variance = analysed(program)
    assert {read.array.name: variance.invariant(read) for read in variance.reads} == expected


def test_table() -> None:
    assert variance_table(analysed(PAIRS)) == (
        "read  in     changes with  reused along\n"
        "x     total  n             m\n"
        "y     total  m             n\n"
        "w     total  n, m          nothing"
    )


def test_what_a_loop_carries_changes_with_what_its_later_rounds_read() -> None:
    text = NEST.replace(
        "STATEMENTS",
        "let (last: i64, other: i64) = loop (u0: i64, u1: i64) = (0i64, i0) for r: i64 < 2 do (u1, u0)\n"
        "      let (row: [5]i64) = xs[last]",
    )
    assert analysed(text).reads[0].variant == {0}


def test_the_number_of_rounds_changes_what_a_loop_gives() -> None:
    text = NEST.replace(
        "STATEMENTS",
        "let (last: i64) = loop (u0: i64) = (0i64) for r: i64 < i1 do let (u1: i64) = u0 + 1i64 in (u1)\n"
        "      let (row: [5]i64) = xs[last]",
    )
    assert analysed(text).reads[0].variant == {1}
