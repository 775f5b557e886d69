"""Maps over rows and places that are written as maps over numbers."""

from __future__ import annotations

from functools import cache

from tilewright.ir.nodes import Program
from tilewright.rewrite.derivation import Recording
from tilewright.rewrite.rule import rules_of
from tilewright.rewrite.strategy import Strategy, everywhere, first_of, repeat, rewritten


@cache
def nesting() -> Strategy:
    """The rules of the family `nests` until nothing fires."""
    return repeat(everywhere(first_of(rules_of("nests"))))


def nest_maps(program: Program, derivation: Recording | None = None) -> Program:
    """The program with nests in place of maps that divide their points' numbers; the steps are added to `derivation`.

    map (n*m) (\\i -> x[i // m] * y[i % m]) (iota (n*m))
    =>  reshape (n*m) (map n (\\q -> map m (\\r -> x[q] * y[r]) (iota m)) (iota n))
    """
    return rewritten(program, nesting(), derivation)
