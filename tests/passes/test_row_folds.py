"""Folds and scans of rows, and scans of columns, against the interpreter and NumPy."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_checks import check
from naive import examples

import tilewright as tw
from tilewright.ir.nodes import Rearrange, Scan, SegScan
from tilewright.ir.parser import parse_program
from tilewright.passes.items.lower_columns import COLUMNS
from tilewright.passes.last_rewrites import scan_columns
from tilewright.rewrite.derivation import Recording

OPERATORS = {"add": "e{0} + f{0}", "max": "max(e{0}, f{0})", "mul": "e{0} * f{0}"}
DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]


def folds_of_rows(kind: str, operator: str, element: str, pairs: bool, fills: bool) -> str:
    """A fold or scan of rows; of two arrays where `pairs`; the neutral rows are arrays of one scalar, or given."""
    point = ".0" if element[0] == "f" else ""
    zero = {"mul": "1"}.get(operator, "0") + point + element
    shape = "[n][d]" if kind == "scan" else "[d]"
    names = ("x", "y") if pairs else ("x",)
    left, right, out = ([f"{one}{i}" for i in range(len(names))] for one in "abc")
    typed = ", ".join(f"{one}: [d]{element}" for one in (*left, *right))
    elements = ", ".join(f"e{i}: {element}" for i in range(len(names)))
    elements += ", " + ", ".join(f"f{i}: {element}" for i in range(len(names)))
    results = "\n".join(f"      let (g{i}: {element}) = {OPERATORS[operator].format(i)}" for i in range(len(names)))
    made = f"  let (neutral: [d]{element}) = replicate d {zero}\n" if fills else ""
    given = "" if fills else f", neutral: [d]{element}"
    return f"""def rows ({", ".join(f"{one}: [n][d]{element}" for one in names)}{given}) =
{made}  let ({", ".join(f"r{i}: {shape}{element}" for i in range(len(names)))}) = {kind} n (\\({typed}) ->
    let ({", ".join(f"{one}: [d]{element}" for one in out)}) = map d (\\({elements}) ->
{results}
      in ({", ".join(f"g{i}" for i in range(len(names)))})) {" ".join((*left, *right))}
    in ({", ".join(out)})) {" ".join(["(neutral)" if not pairs else "(neutral, neutral)"])} {" ".join(names)}
  in ({", ".join(f"r{i}" for i in range(len(names)))})
"""


@pytest.mark.parametrize("device", DEVICES)
def test_folds_of_rows(device: str) -> None:
    @settings(max_examples=examples(40 if device == "cpu" else 8), deadline=None)
    @given(
        kind=st.sampled_from(["scan", "reduce"]),
        operator=st.sampled_from(["add", "max", "mul"]),
        element=st.sampled_from(["f32", "f64", "i32", "f16"]),
        rows=st.sampled_from([0, 1, 2, 5, 33, 150, 300]),
        columns=st.sampled_from([0, 1, 3, 4, 17, 70]),
        pairs=st.booleans(),
        fills=st.booleans(),
        turned=st.booleans(),
        threads=st.sampled_from([1, 2]),
        seed=st.integers(0, 99),
    )
    def run(
        kind: str, operator: str, element: str, rows: int, columns: int, pairs: bool, fills: bool, turned: bool,
        threads: int, seed: int,
    ) -> None:  # fmt: skip
        random = np.random.default_rng(seed)
        dtype = np.dtype(element[0] + str(int(element[1:]) // 8))
        low, high = (1, 2) if operator == "mul" else (0, 3)
        arrays = [random.integers(low, high, (rows, columns)).astype(dtype) for _ in range(2 if pairs else 1)]
        if turned:
            arrays = [np.asfortranarray(one) for one in arrays]
        if not fills:
            arrays.append(np.full(columns, 1 if operator == "mul" else 0, dtype))
        with tw.num_threads(threads):
            check(folds_of_rows(kind, operator, element, pairs, fills), arrays, device)

    run()


SCANS = """def scans (x: [n][m]f32, y: [n][m]i32) =
  let (t: [m][n]f32) = rearrange (1, 0) x
  let (u: [m][n]i32) = rearrange (1, 0) y
  let (s: [m][n]f32, p: [m][n]i32) = map m (\\(c: [n]f32, d: [n]i32) ->
    let (e: [n]f32, f: [n]i32) = scan n (\\(a: f32, i: i32, b: f32, j: i32) ->
      let (q: f32) = max(a, b)
      let (k: i32) = i + j
      in (q, k)) (-3.0f32, 0i32) c d
    in (e, f)) t u
"""
BACK = """  let (r: [n][m]f32) = rearrange (1, 0) s
  let (z: [n][m]i32) = rearrange (1, 0) p
  in (r, z)
"""


@pytest.mark.parametrize(
    ("end", "wanted"), [(BACK, Scan), ("  in (s, p)\n", SegScan), (BACK.replace("(r, z)", "(r, z, s)"), SegScan)]
)
@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (7, 0), (1, 1), (40, 3), (200, 33), (9, COLUMNS + 3)])
def test_scans_of_columns(end: str, wanted: type, rows: int, columns: int) -> None:
    random = np.random.default_rng(rows)
    x, y = random.integers(-9, 9, (rows, columns)).astype("f4"), random.integers(-9, 9, (rows, columns)).astype("i4")
    program = parse_program(SCANS + end)
    recording = Recording(program)
    turned = scan_columns(program, recording)
    found = [type(one.expression) for one in turned.body.statements]
    if rows * columns < 200:
        recording.derivation.check([(x, y)])
        assert recording.derivation.replay(program) == turned
    assert wanted in found
    assert (found.count(Rearrange) == 2) == (wanted is Scan or end[2:] == "in (s, p)\n")
    for arrays in ([x, y], [np.asfortranarray(x), y], [x[::-1], y[:, ::-1]]):
        check(SCANS + end, arrays, "cpu")


def test_other_scans_stay() -> None:
    """Rows that lie one after another, and what is scanned beside other work."""
    rows = SCANS.replace("rearrange (1, 0)", "rearrange (0, 1)").replace("[n][m]", "[m][n]") + "  in (s, p)\n"
    program = parse_program(rows)
    assert scan_columns(program) is program


def test_sums_of_rows_do_not_depend_on_the_number_of_threads() -> None:
    @tw.program
    def both(xss: tw.f32["n", "m"]) -> Any:
        zeros = tw.replicate(xss.shape[1], 0.0, "f32")

        def add(a: Any, b: Any) -> Any:
            return tw.map(lambda x, y: x + y, a, b)

        return tw.reduce(add, zeros, xss), tw.scan(add, zeros, xss)

    for shape in ((100_000, 5), (300, 900)):
        xss = np.random.default_rng(1).normal(size=shape).astype("f4")
        found = set()
        for threads in (1, 2, 3):
            with tw.num_threads(threads):
                found.add(b"".join(np.asarray(one).tobytes() for one in both(xss)))
        assert len(found) == 1


@pytest.mark.parametrize("kind", ["scan", "reduce"])
@pytest.mark.parametrize("second", ["ones", "given"])
def test_neutral_rows_of_different_scalars_and_of_none(kind: str, second: str) -> None:
    """A sum and a product, of which the second neutral row may be an argument: then all that it needs is there."""
    shape = "[n][d]" if kind == "scan" else "[d]"
    text = f"""def rows (x: [n][d]f32, given: [d]f32) =
  let (zeros: [d]f32) = replicate d 0.0f32
  let (ones: [d]f32) = replicate d 1.0f32
  let (r: {shape}f32, s: {shape}f32) = {kind} n (\\(a: [d]f32, b: [d]f32, c: [d]f32, e: [d]f32) ->
    let (f: [d]f32, g: [d]f32) = map d (\\(h: f32, i: f32, j: f32, k: f32) ->
      let (l: f32) = h + j
      let (m: f32) = i * k
      in (l, m)) a b c e
    in (f, g)) (zeros, {second}) x x
  in (r, s)
"""
    x = np.random.default_rng(1).integers(1, 3, (20, 70)).astype("f4")
    check(text, [x, np.ones(70, "f4")], "cpu")
