"""Flattening: nested parallelism becomes segmented operations over flat spaces [S2].

    flatten_fully   every regular parallelism is used: nests are distributed down to their innermost parallel construct
    flatten_outer   only the outermost nests are parallel; everything inside runs sequentially
    flatten_incrementally   both, and blocks that share what is inside, picked by thresholds when the program runs

All run the rules of `rewrite.rules.flatten_*` from the outside in, and record every step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from tilewright.ir.nodes import Program
from tilewright.rewrite.derivation import Recording
from tilewright.rewrite.rule import Declined, Place, Rule, no_match, resolve, rule_named, rules_of
from tilewright.rewrite.strategy import State, Strategy, bottom_up, each, everywhere, first_of, repeat, rewritten

SEGMENTS = ("flatten_redomap", "flatten_scan", "flatten_hist")
VIEWS = ("flatten_rearrange", "flatten_reshape")
INWARDS = ("interchange_loop", "interchange_if", "interchange_reduce", "split_fold", "split_invariant", "distribute")

Spared: TypeAlias = Callable[[Place], bool]
SPARED = no_match("it is spared: another pass has a form for it")


def _rules(*names: str) -> list[Rule]:
    return [rule_named(one) for one in names]


def nowhere(at: Place) -> bool:
    """No place is spared."""
    return False


def _nests(*names: str, spared: Spared = nowhere, first: tuple[Rule, ...] = ()) -> Strategy:
    """These rules at every statement that is not spared, and where none fires a segmented map.

    Why the others did not fire is kept: that is why something inside the map stays sequential.
    """
    rules, last = first_of((*first, *_rules(*names))), first_of(_rules("flatten_map"))

    def run(state: State) -> State | Declined:
        if state.site is not None and spared(resolve(state.program, state.site)):
            return SPARED
        outcome = rules(state)
        if isinstance(outcome, State):
            return outcome
        flat = last(state)
        if isinstance(flat, Declined):
            return outcome
        return dataclasses.replace(flat, refusals=tuple(dict.fromkeys((*flat.refusals, *outcome.refusals))))

    split = repeat(bottom_up(first_of(_rules("split_invariant"))))
    return each(repeat(everywhere(first_of(_rules("lift_constant")))), split, everywhere(run))


@cache
def full_flattening(spared: Spared = nowhere) -> Strategy:
    """Constant arrays out of the nests first; then nests from the outside in, a perfect one becomes an operation."""
    return _nests(*INWARDS, *VIEWS, *SEGMENTS, "flatten_scatter", spared=spared)


def incremental_flattening(spared: Spared = nowhere, *first: Rule) -> Strategy:
    """Full flattening that, before it goes into a nest, keeps the versions that do not; rules tried `first` may too."""
    versions = ("split_invariant", "version_outer", "version_block")  # what all points share is part of no version
    return _nests(*versions, *INWARDS, *VIEWS, *SEGMENTS, "flatten_scatter", spared=spared, first=first)


@cache
def outer_flattening(spared: Spared = nowhere) -> Strategy:
    """The outermost nests as they are; folds that stand in no nest."""
    rules = first_of(_rules("flatten_map", *SEGMENTS))

    def run(state: State) -> State | Declined:
        if state.site is not None and spared(resolve(state.program, state.site)):
            return SPARED
        return rules(state)

    return everywhere(run)


def flatten_fully(program: Program, derivation: Recording | None = None) -> Program:
    """The program with all its regular parallelism used; the steps, and what stays sequential, go to `derivation`.

    map (\\xs -> reduce (+) 0 xs) xss  =>  segred (i < n, j < m) (+) 0 do xss[i, j]
    """
    return rewritten(program, full_flattening(), derivation)


def flatten_outer(program: Program, derivation: Recording | None = None) -> Program:
    """The program with only its outermost parallelism used.

    map (\\xs -> reduce (+) 0 xs) xss  =>  segmap (i < n) do reduce (+) 0 xss[i]
    """
    return rewritten(program, outer_flattening(), derivation)


def flatten_incrementally(program: Program, derivation: Recording | None = None) -> Program:
    """The program with a version for every amount of parallelism, picked by thresholds (`rules.flatten_versions`).

    map (\\xs -> reduce (+) 0 xs) xss  =>  if n >= outer_0 then segmap (i < n) do reduce (+) 0 xss[i]
    else if n >= block_0 and m fits a block then segmap@block (i < n) do segred (j < m) (+) 0 do xss[i, j]
    else segred (i < n, j < m) (+) 0 do xss[i, j]
    """
    return rewritten(program, incremental_flattening(), derivation)


@cache
def segment_fusion() -> Strategy:
    """Segmented maps into the operations that read them, until nothing fires."""
    return repeat(everywhere(first_of(rules_of("segment fusion"))))


def fuse_segments(program: Program, derivation: Recording | None = None) -> Program:
    """The program without segmented maps whose points one other operation reads.

    ys = segmap (i < n) do x[i] * x[i]; z = segred (i < n) (+) 0 do ys[i]  =>  z = segred (i < n) (+) 0 do x[i] * x[i]
    """
    return rewritten(program, segment_fusion(), derivation)


def number_inside(program: Program, derivation: Recording | None = None) -> Program:
    """The program with numbers in order made where operations read them, after what finds equal expressions.

    is = iota n; ys = segmap S (e is)  =>  is = iota n; ys = segmap S (js = iota n; e js)
    """
    return rewritten(program, everywhere(first_of(rules_of("numbering"))), derivation)
