"""Concatenations whose elements are read where they lie."""

from __future__ import annotations

from functools import cache

from tilewright.ir.nodes import Program
from tilewright.rewrite.derivation import Recording
from tilewright.rewrite.rule import rules_of
from tilewright.rewrite.strategy import Strategy, everywhere, first_of, repeat, rewritten


@cache
def reading() -> Strategy:
    """The rules of the family `concatenations` until nothing fires."""
    return repeat(everywhere(first_of(rules_of("concatenations"))))


def read_concatenations(program: Program, derivation: Recording | None = None) -> Program:
    """The program without concatenations that only maps take apart; the steps are added to `derivation`.

    map f (concat xs ys)  =>  map (\\i -> f (if i < n then xs[i] else ys[i - n])) (iota (n + m))
    """
    return rewritten(program, reading(), derivation)
