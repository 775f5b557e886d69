"""Fusion: producers disappear into their consumers, and constructs over the same rows become one [S2]."""

from __future__ import annotations

from functools import cache

from tilewright.ir.nodes import Program
from tilewright.rewrite.derivation import Recording
from tilewright.rewrite.rule import rules_of
from tilewright.rewrite.strategy import Strategy, each, everywhere, first_of, repeat, rewritten, sequence


@cache
def fusion() -> Strategy:
    """Vertical fusion until nothing fires, then horizontal and what that makes possible; outer constructs first. Of two
    folds that find the same, one is left.

    The other way round, a horizontally fused producer would have two consumers and fuse with neither.
    """
    vertical = everywhere(first_of((*rules_of("fusion"), *rules_of("shared folds"))))
    horizontal = everywhere(first_of(rules_of("horizontal fusion")))
    return sequence(repeat(vertical), repeat(each(horizontal, vertical)))


def fuse(program: Program, derivation: Recording | None = None) -> Program:
    """The fused program; the steps, and the reasons for what was not fused, are added to `derivation`.

    sum (map (2*) xs)  =>  redomap (+) 0 (2*) xs
    """
    return rewritten(program, fusion(), derivation)


@cache
def further_fusion() -> Strategy:
    """Fusion with results that stay needed, side by side and across ifs, and what that makes possible."""
    families = ("further fusion", "fusion", "horizontal fusion")
    return repeat(each(*(everywhere(first_of(rules_of(one))) for one in families)))


def fuse_further(program: Program, derivation: Recording | None = None) -> Program:
    """The program fused further, which has fewer nests but larger ones: what flattening starts from.

    ys = map (2*) xs; z = sum ys; (z, ys)  =>  z, ys = redomap (+) 0 (\\x -> (2*x, 2*x)) xs; (z, ys)
    """
    return rewritten(program, further_fusion(), derivation)
