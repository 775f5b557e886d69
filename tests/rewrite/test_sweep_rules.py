"""The rules that make sweeps: both sides mean the same, and derivations with them replay."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir import nodes
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program, Sweep
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.ir.verifier import verify
from tilewright.passes.compile import compile_program, prepare_program
from tilewright.passes.last_rewrites import sweep
from tilewright.passes.sweeps.form import unfolded
from tilewright.rewrite.derivation import Recording, agree
from tilewright.rewrite.rule import rules_of
from tilewright.runtime.devices import device_for

OPERATORS = {"i64": ("+", "-", "*", "min", "max"), "f64": ("+", "-", "min", "max")}
SCANS = {"i64": (("+", "0i64"), ("max", "-99i64")), "f64": (("+", "0.0f64"), ("min", "f64.inf"))}


def _applied(operator: str, left: str, right: str) -> str:
    return f"{operator}({left}, {right})" if operator.isalpha() else f"{left} {operator} {right}"


def random_rows(seed: int) -> Program:
    """Maps, scans, reductions, filters and scatters of rows of one width in a random order, some results asked for."""
    pick = random.Random(seed)
    kinds = {"x": "i64", "y": "i64", "w": "f64"}
    arrays = list(kinds)
    lines: list[str] = []
    names = (f"t{number}" for number in range(999))

    def bind(type_: str, expression: str) -> str:
        name = next(names)
        lines.append(f"  let ({name}: {type_}) = {expression}")
        return name

    def mapped(kind: str, one: str, other: str) -> str:
        code = _applied(pick.choice(OPERATORS[kind]), (a := next(names)), (b := next(names)))
        parameters, body = f"{a}: {kind}, {b}: {kind}", f"let ({(c := next(names))}: {kind}) = {code} in ({c})"
        return bind(f"[n]{kind}", f"map n (\\({parameters}) -> {body}) {one} {other}")

    def folded(word: str, type_: str, kind: str, array: str, scan: tuple[str, str]) -> str:
        a, b, c = (next(names) for _ in range(3))
        operator = f"(\\({a}: {kind}, {b}: {kind}) -> let ({c}: {kind}) = {_applied(scan[0], a, b)} in ({c}))"
        return bind(type_, f"{word} n {operator} ({scan[1]}) {array}")

    def filtered() -> list[str]:
        a, b, c, d, e, f, g = (next(names) for _ in range(7))
        flags = bind("[n]bool", f"map n (\\({a}: i64) -> let ({b}: bool) = {a} < 3i64 in ({b})) {pick.choice('xy')}")
        ones = bind("[n]i64", f"map n (\\({c}: bool) -> let ({d}: i64) = {c} as i64 in ({d})) {flags}")
        ends = folded("scan", "[n]i64", "i64", ones, ("+", "0i64"))
        body = f"let ({g}: i64) = {f} - 1i64 let ({(h := next(names))}: i64) = select({e}, {g}, -1i64) in ({h})"
        at = bind("[n]i64", f"map n (\\({e}: bool, {f}: i64) -> {body}) {flags} {ends}")
        rest = bind("[n]i64", "replicate n 7i64")
        out = bind("[n]i64", f"scatter {rest} {at} {pick.choice('xy')}")
        return [out, *([folded("reduce", "i64", "i64", ones, ("+", "0i64"))] if pick.random() < 0.5 else [])]

    results: list[str] = filtered() if pick.random() < 0.5 else []
    for _ in range(pick.randint(2, 8)):
        kind = pick.choice(("i64", "i64", "f64"))
        some = [one for one in arrays if kinds[one] == kind]
        what = pick.random()
        if what < 0.5:
            made = mapped(kind, pick.choice(some), pick.choice(some))
        elif what < 0.8:
            made = folded("scan", f"[n]{kind}", kind, pick.choice(some), pick.choice(SCANS[kind]))
        elif what < 0.95:
            places = pick.choice([one for one in arrays if kinds[one] == "i64"])
            results.append(
                bind("[m]i64", f"scatter d {places} {pick.choice([a for a in arrays if kinds[a] == 'i64'])}")
            )
            continue
        else:
            results.append(folded("reduce", kind, kind, pick.choice(some), SCANS[kind][0]))
            continue
        kinds[made] = kind
        arrays.append(made)
    results += [one for one in arrays[3:] if pick.random() < 0.4]
    head = "def rows (x: [n]i64, y: [n]i64, w: [n]f64, d: [m]i64) =\n"
    return parse_program(f"{head}{chr(10).join(lines)}\n  in ({', '.join(results)})")


def arguments(seed: int) -> tuple[np.ndarray, ...]:
    values = np.random.default_rng(seed)
    count = int(values.choice([0, 1, 2, 9, 33]))
    whole = values.integers(-3, 9, (2, count))
    return *whole, values.normal(size=count), np.arange(8)


def sweeps(program: Program) -> list[Sweep]:
    return [one.expression for one in program.body.statements if isinstance(one.expression, Sweep)]


def without_sweeps(program: Program) -> Program:
    statements = (
        part
        for one in program.body.statements
        for part in (unfolded(one, one.expression) if isinstance(one.expression, Sweep) else (one,))
    )
    return Program(program.name, program.parameters, nodes.Body(tuple(statements), program.body.results))


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=150)
def test_both_sides_mean_the_same(seed: int) -> None:
    """The interpreter, the verifier and the printer know sweeps, and these can be taken apart again."""
    source, given_arrays = random_rows(seed), arguments(seed)
    recording = Recording(source)
    swept = sweep(source, recording)
    verify(swept)
    assert parse_program(print_program(swept)) == swept
    recording.derivation.check([given_arrays])
    assert recording.derivation.replay(source) == swept
    apart = without_sweeps(swept)
    assert not sweeps(apart)
    assert agree(interpret(source, given_arrays), interpret(apart, given_arrays)) is None


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=15)
def test_the_kernels_agree(seed: int) -> None:
    """No two rows go to one place, which is what a scatter asks for: `d` has none."""
    source, (x, y, w, _) = random_rows(seed), arguments(seed)
    d = np.zeros(0, np.int64)
    found = compile_program(source, device_for("cpu"))(x, y, w, d)
    assert agree(interpret(source, (x, y, w, d)), found if isinstance(found, tuple) else (found,)) is None


SPARSE = """
def sums (values: [e]i64, weights: [e]i64, starts: [r]i64, rows: [q]i8) =
  let (none: [e]bool) = replicate e false
  let (all: [r]bool) = replicate r true
  let (first: [e]bool) = scatter none starts all
  let (found: [e]i64, flags: [e]bool) = scanomap e (\\(a: i64, f: bool, b: i64, g: bool) ->
    let (c: i64) = OPERATOR
    let (h: i64) = select(g, b, c)
    let (k: bool) = or(f, g)
    in (h, k)) (0i64, false) (\\(v: i64, w: i64, h1: bool) -> let (p: i64) = v * w in (p, h1)) values weights first
  let (numbers: [q]i64) = iota q i64
  let (out: [q]i64) = map q (\\(i: i64) ->
    let (j: i64) = i + 1i64
    let (low: i64) = starts[i]
    let (high: i64) = starts[j]
    let (some: bool) = high > low
    let (s: i64) = if some then
      let (last: i64) = high - 1i64
      let (t: i64) = found[last]
      let (t1: i64) = t + i
      in (t1)
    else (-7i64)
    in (s)) numbers
  in (out)
"""


@given(st.integers(0, 12), st.booleans(), st.sampled_from(["a + b", "max(a, b)"]), st.integers(0, 999))
@settings(deadline=None, max_examples=80)
def test_folds_between_offsets(rows: int, ascending: bool, operator: str, seed: int) -> None:
    """Of offsets that ascend and of others; values are positive, so that 0 is neutral for both operators."""
    pick = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(pick.integers(0, 4, rows))])
    if not ascending:
        starts = np.append(pick.permutation(starts[:-1]), starts[-1])
    entries = int(starts[-1]) + int(pick.integers(0, 3))
    given_arrays = (*pick.integers(0, 9, (2, entries)), starts, np.zeros(rows, np.int8))
    source = parse_program(SPARSE.replace("OPERATOR", operator))
    recording = Recording(source)
    swept = sweep(source, recording)
    verify(swept)
    assert [step.rule for step in recording.derivation.steps] == ["offset_folds"]
    assert parse_program(print_program(swept)) == swept == recording.derivation.replay(source)
    try:
        interpret(source, given_arrays)
    except IndexError:  # an end that is no row's
        with pytest.raises(IndexError):
            interpret(swept, given_arrays)
    else:
        recording.derivation.check([given_arrays])


def test_what_is_scattered_is_not_read_in_the_same_pass() -> None:
    program = parse_program("""
def f (x: [n]i64, y: [n]i64) =
  let (z: [n]i64) = scan n (\\(a: i64, b: i64) -> let (c: i64) = a + b in (c)) (0i64) x
  let (p: [n]i64) = map n (\\(d: i64) -> let (e: i64) = d - 1i64 in (e)) z
  let (s: [n]i64) = scatter y p x
  let (t: [n]i64) = map n (\\(g: i64) -> let (h: i64) = g * 2i64 in (h)) s
  let (u: [n]i64) = map n (\\(i: i64, j: i64, k: i64) -> let (l: i64) = i + j let (m: i64) = l + k in (m)) s z t
  in (u)
""")
    swept = sweep(program)
    verify(swept)
    assert len(sweeps(swept)) == 1
    arguments = np.array([1, 1, 2, 0, 1]), np.array([7, 8, 9, 10, 11])
    (found,) = interpret(swept, arguments)
    np.testing.assert_array_equal(found, interpret(program, arguments)[0])
    np.testing.assert_array_equal(compile_program(program, device_for("cpu"))(*arguments), found)


def test_random_rows_have_sweeps_of_all_kinds() -> None:
    found = [one for seed in range(80) for one in sweeps(sweep(random_rows(seed)))]
    assert {(bool(one.neutral), bool(one.destinations), one.totals) for one in found} >= {
        (True, True, True), (True, True, False), (True, False, False), (False, True, False)
    }  # fmt: skip


@tw.program
def filtered(xs: tw.f32["n"]) -> Any:
    picked = tw.map(lambda x: x > 0, xs)
    places = tw.scan("add", 0, tw.map(lambda b: b.astype(tw.i64), picked))
    at = tw.map(lambda b, z: tw.where(b, z - 1, -1), picked, places)
    return tw.scatter(tw.replicate(xs.shape[0], 0.0, "f32"), at, xs)


def test_a_derivation_of_what_is_compiled() -> None:
    """It leads from the source to what is lowered; replayed, to the same program and so to the same kernels."""
    source, device = filtered.trace(), device_for("cpu")
    recording = Recording(source)
    host, _ = prepare_program(source, device, derivation=recording)
    derivation = recording.derivation
    assert derivation.program is host.program and "sweep_scan" in [step.rule for step in derivation.steps]
    again, _ = prepare_program(derivation.replay(source), device, optimise=False)
    assert again.program == host.program and again.notes == host.notes
    text = derivation.print()
    assert "sweep_scan at 0" in text or "sweep_scan at 1" in text
    assert "=> out = sweep f op ne g dest xs" in text


def test_a_derivation_of_versions_that_are_made_later() -> None:
    """It begins with the program as well, and grows when the versions are made; those as written are not in it."""

    @tw.program
    def row_sums(xss: tw.f64["n", "m"]) -> Any:
        return tw.map(lambda xs: tw.reduce("add", 0, tw.map(lambda x: x * x, xs)), xss)

    source, device = row_sums.trace(), device_for("cpu")
    recording, later = Recording(source), Recording(source)
    host, versions = prepare_program(
        source, device, flattening="incremental", derivation=recording, versions_derivation=later
    )
    assert host is not None and versions is not None and recording.derivation.program is host.program
    before = len(later.derivation.steps)
    made, _ = versions.made
    derivation = later.derivation
    assert len(derivation.steps) > before and derivation.program is made.program
    rules = [step.rule for step in derivation.steps]
    assert {"version_outer", "version_block", "flatten_redomap"} <= set(rules)
    assert versions.made[0] is made and later.derivation is derivation, "they are made once"
    assert derivation.replay(source) == made.program
    derivation.check([(np.arange(12.0).reshape(3, 4),)])


LOOP = """
def f (x: [n]i64, t: i64) =
  let (y: [n]i64) = loop (a: [n]i64) = (x) for i: i64 < t do
    let (s: [n]i64) = scan n (\\(p: i64, q: i64) -> let (r: i64) = p + q in (r)) (0i64) a
    let (b: [n]i64) = map n (\\(e: i64) -> let (u: i64) = e % 1000i64 in (u)) s
    in (b)
  let (rows: [2][n]i64) = replicate 2 x
  let (z: [2][n]i64) = map 2 (\\(row: [n]i64) ->
    let (s1: [n]i64) = scan n (\\(p1: i64, q1: i64) -> let (r1: i64) = p1 + q1 in (r1)) (0i64) row
    let (b1: [n]i64) = map n (\\(e1: i64) -> let (u1: i64) = e1 * 2i64 in (u1)) s1
    in (b1)) rows
  in (y, z)
"""


@pytest.mark.parametrize("extent", [5, 3000])
def test_loops_of_the_host_hold_sweeps_and_maps_do_not(extent: int) -> None:
    """A loop with few rows runs as one sequential kernel, which takes the sweep apart."""
    program = sweep(parse_program(LOOP))
    assert [type(one.expression).__name__ for one in program.body.statements[0].expression.body.statements] == ["Sweep"]
    assert "sweep" not in print_program(Program("g", (), nodes.Body(program.body.statements[1:], ())))
    x = np.arange(extent)
    wanted = x
    for _ in range(3):
        wanted = np.cumsum(wanted) % 1000
    notes = prepare_program(parse_program(LOOP), device_for("cpu"))[0].notes
    assert any("small rounds" in one.lowered for one in notes)
    found, doubled = compile_program(parse_program(LOOP), device_for("cpu"))(x, 3)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(doubled, np.stack([2 * np.cumsum(x)] * 2))


@pytest.mark.parametrize(
    ("result", "types", "destinations", "reason"),
    [
        ("i64", "i64", "()", "is bound with type i64, but the expression gives"),
        ("[n]i64", "i64", "(x)", "indices and values"),
        ("[n]f32", "f32", "()", "the function takes"),
    ],
)
def test_ill_formed_sweeps_are_refused(result: str, types: str, destinations: str, reason: str) -> None:
    functions = f"(\\(a: i64) -> (a)) (\\() -> ()) () (\\(b: {types}) -> (b)) {destinations}"
    with pytest.raises(ValueError, match=reason):
        verify(parse_program(f"def f (x: [n]i64) = let (z: {result}) = sweep n {functions} x in (z)"))


def test_the_rules_have_their_equations() -> None:
    assert [one.name for one in rules_of("one pass")] == ["offset_folds", "sweep_scan", "sweep_scatter"]
