"""Simplification: constants, copies, common subexpressions, dead code, views of views, and what does not vary."""

from __future__ import annotations

from functools import cache

from tilewright.ir.nodes import Program
from tilewright.rewrite.derivation import Recording
from tilewright.rewrite.rule import rules_of
from tilewright.rewrite.strategy import Strategy, each, everywhere, first_of, repeat, rewritten


@cache
def simplification() -> Strategy:
    """The rules of the family `simplification`, then dead code from the end, until nothing fires."""
    simpler = everywhere(first_of(rules_of("simplification")))
    fewer = everywhere(first_of(rules_of("dead code")), backwards=True)
    return repeat(each(simpler, fewer))


def simplify(program: Program, derivation: Recording | None = None) -> Program:
    """The simplified program; the steps are added to `derivation`.

    x = 2*3; y = x + a; z = x + a; rearrange (1, 0) (rearrange (1, 0) b)  =>  y = 6 + a; b
    """
    return rewritten(program, simplification(), derivation)
