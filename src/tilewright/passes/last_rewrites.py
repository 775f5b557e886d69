"""The last rewrites of a program: what one pass over rows computes becomes one statement."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tilewright.ir.nodes import (
    Body,
    Concat,
    Expression,
    Hist,
    Loop,
    Map,
    Program,
    Redomap,
    Reduce,
    Scan,
    Scanomap,
    Scatter,
)
from tilewright.ir.traversal import bodies_of
from tilewright.passes.core.fuse import fuse
from tilewright.passes.core.simplify import simplify
from tilewright.rewrite.derivation import Recording
from tilewright.rewrite.rule import rules_of
from tilewright.rewrite.strategy import Strategy, each, everywhere, first_of, rewritten


def fill_histograms(program: Program, derivation: Recording | None = None) -> Program:
    """The program with histograms that compute their own rows; the steps are added to `derivation`.

    js = map f xs; hs = hist ds op ne js vs  =>  hs = seghist (i < n) ds op ne (f xs[i], vs[i])
    """
    if not _has(program.body, lambda one: isinstance(one, Hist)):
        return program
    program = rewritten(program, _once("histogram rows"), derivation)
    if not _has(program.body, lambda one: isinstance(one, Hist) and any(array.type.rank > 1 for array in one.values)):
        return program
    from tilewright.passes.segments.computed_rows import computed_histograms

    return rewritten(program, computed_histograms(), derivation)


def fold_loops(program: Program, derivation: Recording | None = None) -> Program:
    """The program with folds of what loops give after these; the steps are added to `derivation`.

    z = redomap op ne f xs  =>  ys = map f xs; z = reduce op ne ys, if f loops over numbers
    """
    if not _has(program.body, lambda one: isinstance(one, Redomap) and _has(one.function.body, _is_loop)):
        return program
    return rewritten(program, _once("looping folds"), derivation)


def join_rows(program: Program, derivation: Recording | None = None) -> Program:
    """The program with maps that go on row by row as one, where rows are many and long; the steps are added to
    `derivation`.

    ys = map n f xs; zs = map n g ys  =>  zs = if there are many long rows then map n (g . f) xs else both
    """
    if not _has(program.body, lambda one: isinstance(one, Reduce | Redomap)):
        return program
    joined = rewritten(program, everywhere(first_of(rules_of("joined rows")), backwards=True), derivation)
    if joined is not program:
        joined = fuse(simplify(joined, derivation), derivation)
    return rewritten(joined, _once("rows in one pass"), derivation)


def compute_rows(program: Program, derivation: Recording | None = None) -> Program:
    """The program with maps that compute rows in place of columns that are joined; the steps are added to `derivation`.

    ys = map f xs; zs = map g xs; rows = concat 1 (reshape (n, 1) ys) (reshape (n, 1) zs)
    =>  rows = map (\\x -> concat 0 (replicate 1 (f x)) (replicate 1 (g x))) xs
    """
    if not _has(program.body, lambda one: isinstance(one, Concat)):
        return program
    joined = rewritten(program, _once("computed columns"), derivation)
    if joined is program:
        return program
    return fuse(simplify(joined, derivation), derivation)  # views of the columns are nobody's now


def scan_columns(program: Program, derivation: Recording | None = None) -> Program:
    """The program with scans of columns as scans of rows, or segmented ones; the steps are added to `derivation`.

    map m (scan n op ne) (rearrange (1, 0) xs)  =>  segscan (j < m, k < n) op ne (xs[k, j])
    """
    if not _has(program.body, lambda one: isinstance(one, Map) and _has(one.function.body, _is_scan)):
        return program
    from tilewright.passes.segments.row_folds import column_scans

    return rewritten(program, column_scans(), derivation)


def sweep(program: Program, derivation: Recording | None = None) -> Program:
    """The program with sweeps; the steps are added to `derivation`.

    ys = map f xs; zs = scan op ne ys; out = map g zs ys  =>  out = sweep f op ne g () xs
    """
    if not _has(program.body, lambda one: isinstance(one, Scatter) or _is_scan(one)):
        return program
    return rewritten(program, _once("one pass"), derivation)


def _is_loop(expression: Expression) -> bool:
    return isinstance(expression, Loop)


def _is_scan(expression: Expression) -> bool:
    return isinstance(expression, Scan | Scanomap)


def _has(body: Body, wanted: Callable[[Expression], bool]) -> bool:
    """Whether a body has an expression of some kind anywhere."""
    return any(
        wanted(one.expression) or any(_has(inner, wanted) for inner in bodies_of(one.expression))
        for one in body.statements
    )


@cache
def _once(family: str) -> Strategy:
    """Each rule of a family once through the program."""
    return each(*(everywhere(first_of((rule,))) for rule in rules_of(family)))
