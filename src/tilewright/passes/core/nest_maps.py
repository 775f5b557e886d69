"""Maps and folds over rows and places that are written as such over numbers."""

from __future__ import annotations

from functools import cache

from tilewright.ir.nodes import Program, Redomap
from tilewright.ir.traversal import all_statements
from tilewright.passes.core.simplify import simplify
from tilewright.rewrite.derivation import Recording
from tilewright.rewrite.rule import rules_of
from tilewright.rewrite.strategy import Strategy, everywhere, first_of, repeat, rewritten


@cache
def nesting(family: str = "nests") -> Strategy:
    """The rules of a family until nothing fires."""
    return repeat(everywhere(first_of(rules_of(family))))


def nest_maps(program: Program, derivation: Recording | None = None) -> Program:
    """The program with nests in place of maps that divide their points' numbers; the steps are added to `derivation`.

    map (n*m) (\\i -> x[i // m] * y[i % m]) (iota (n*m))
    =>  reshape (n*m) (map n (\\q -> map m (\\r -> x[q] * y[r]) (iota m)) (iota n))
    """
    return rewritten(program, nesting(), derivation)


def nest_folds(program: Program, derivation: Recording | None = None) -> Program:
    """The program with folds of folds in place of folds that divide their points' numbers.

    redomap (+) 0 (\\i -> x[i // m] * y[i % m]) (iota (n*m))
    =>  reduce (+) 0 (map n (\\q -> redomap (+) 0 (\\r -> x[q] * y[r]) (iota m)) (iota n))
    """
    if not any(isinstance(one.expression, Redomap) for one in all_statements(program.body)):
        return program
    nested = rewritten(program, nesting("nested folds"), derivation)
    return program if nested is program else simplify(nested, derivation)
