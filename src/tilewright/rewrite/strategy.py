"""Strategies: how rules are combined and where they are tried. After ELEVATE: each gives a new state, or declines.

    sequence(a, b)      a, then b on its result; declines if one does
    choice(a, b)        a if it fires, else b
    each(a, b)          a, then b; one that declines is skipped; declines if all do
    try_(a)             a, or nothing
    repeat(a)           a again and again until it declines
    top_down(a)         a at the first statement where it fires, outer before inner
    bottom_up(a)        a at the first statement where it fires, inner before outer
    everywhere(a)       a at every statement where it fires, once through the program

A state is a program, the site in focus, the steps taken so far and what was declined. States are immutable.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from tilewright.ir.cached import cached_property
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Body, Program
from tilewright.ir.traversal import bodies_of, kinds_in, kinds_of
from tilewright.rewrite.derivation import Recording, Step
from tilewright.rewrite.rule import Declined, Refusal, RewriteError, Rule, Site, body_at, replace_body, resolve

Path: TypeAlias = tuple[tuple[int, int], ...]
Check: TypeAlias = Callable[[Sequence[Step]], None]
LEAST_LIMIT, LIMIT = 1000, 100
"""So often a strategy may fire in one sweep, and so often for each statement: those that end fire far less."""


@dataclass(frozen=True)
class State:
    """A program being rewritten. `site` is the statement in focus; None is the whole program."""

    program: Program
    site: Site | None = None
    steps: tuple[Step, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    def at(self, site: Site | None) -> State:
        """The same with another focus."""
        return State(self.program, site, self.steps, self.refusals)


Strategy: TypeAlias = Callable[[State], State | Declined]


def apply(rule: Rule) -> Strategy:
    """The rule at the statement in focus."""
    return first_of((rule,))


@dataclass(frozen=True)
class FirstOf:
    """The first of several rules that fires at the statement in focus: a `choice` that looks at its kind first."""

    rules: tuple[Rule, ...]

    def __call__(self, state: State) -> State | Declined:
        """The state after the first that fires, or why none does."""
        if state.site is None:
            raise RewriteError(f"the rules {', '.join(one.name for one in self.rules)} need a statement in focus")
        place = resolve(state.program, state.site)
        kind = type(place.expression)
        declined: list[Refusal] = []
        reason = f"no rule is for {kind.__name__}"
        for rule in self._rules_for(kind):
            outcome = rule(place)
            if isinstance(outcome, Declined):
                reason = outcome.reason
                if outcome.near:
                    declined.append(Refusal(rule.name, place.describe_use(place.index), outcome.reason))
                continue
            program = replace_body(place, outcome)
            step = Step(rule.name, state.site, state.program, program)
            return State(program, state.site, (*state.steps, step), state.refusals)
        return Declined(reason, bool(declined), tuple(declined))

    def is_for(self, kinds: frozenset[type]) -> bool:
        """Whether one of the rules looks at one of these kinds of expressions."""
        known = self._known_kinds
        if kinds not in known:
            known[kinds] = any(map(self._rules_for, kinds))
        return known[kinds]

    def _rules_for(self, kind: type) -> tuple[Rule, ...]:
        known = self._known_rules
        if kind not in known:
            known[kind] = tuple(one for one in self.rules if issubclass(kind, one.kinds))
        return known[kind]

    @cached_property
    def _known_kinds(self) -> dict[frozenset[type], bool]:
        return {}

    @cached_property
    def _known_rules(self) -> dict[type, tuple[Rule, ...]]:
        return {}


def first_of(rules: Sequence[Rule]) -> Strategy:
    """The first of several rules that fires at the statement in focus.

    Raises:
        RewriteError: if something is no rule.
    """
    if isinstance(rules, Rule) or not all(isinstance(one, Rule) for one in rules):
        raise RewriteError("first_of is of rules, as in first_of((one, another)) or first_of(rules_of(family))")
    return FirstOf(tuple(rules))


def sequence(*strategies: Strategy) -> Strategy:
    """All of them in order; if one declines, nothing is done."""

    def run(state: State) -> State | Declined:
        for strategy in strategies:
            outcome = strategy(state)
            if isinstance(outcome, Declined):
                return outcome
            state = outcome
        return state

    return run


def choice(*strategies: Strategy) -> Strategy:
    """The first that does not decline."""

    def run(state: State) -> State | Declined:
        declined: list[Declined] = []
        for strategy in strategies:
            outcome = strategy(state)
            if isinstance(outcome, State):
                return outcome
            declined.append(outcome)
        return _all_declined(declined)

    return run


def each(*strategies: Strategy) -> Strategy:
    """All of them in order, without those that decline; declines if all do."""

    def run(state: State) -> State | Declined:
        declined: list[Declined] = []
        for strategy in strategies:
            outcome = strategy(state)
            if isinstance(outcome, Declined):
                declined.append(outcome)
            else:
                state = outcome
        if len(declined) == len(strategies):
            return _all_declined(declined)
        return _with_refusals(state, declined)

    return run


def try_(strategy: Strategy) -> Strategy:
    """The strategy, or nothing if it declines."""

    def run(state: State) -> State:
        outcome = strategy(state)
        return _with_refusals(state, [outcome]) if isinstance(outcome, Declined) else outcome

    return run


def repeat(strategy: Strategy, limit: int = 1000) -> Strategy:
    """The strategy until it declines; of the refusals, those of the last time count.

    Raises:
        RewriteError: if it still fires after `limit` times.
    """

    def run(state: State) -> State:
        refusals = state.refusals
        for _ in range(limit):
            outcome = strategy(state)
            if isinstance(outcome, Declined):
                return _with_refusals(dataclasses.replace(state, refusals=refusals), [outcome])
            state = dataclasses.replace(outcome, refusals=refusals)
        last = ", ".join(step.rule for step in state.steps[-5:])
        raise RewriteError(f"a strategy still fires after {limit} times; its last steps: {last}")

    return run


def _all_declined(declined: Sequence[Declined]) -> Declined:
    refusals = tuple(one for outcome in declined for one in outcome.refusals)
    reasons = dict.fromkeys(outcome.reason for outcome in declined)
    return Declined("; ".join(reasons) or "there is nothing to try", bool(refusals), refusals)


def _with_refusals(state: State, declined: Sequence[Declined]) -> State:
    new = [one for outcome in declined for one in outcome.refusals]
    return dataclasses.replace(state, refusals=tuple(dict.fromkeys((*state.refusals, *new)))) if new else state


# --- where ------------------------------------------------------------------------------------------------------------


def sites(program: Program, path: Path = (), inner_first: bool = False) -> Iterator[Site]:
    """Every statement's site from a body on."""
    for index, statement in enumerate(body_at(program, path).statements):
        if not inner_first:
            yield Site(path, index)
        for number in range(len(bodies_of(statement.expression))):
            yield from sites(program, (*path, (index, number)), inner_first)
        if inner_first:
            yield Site(path, index)


def _at_first(strategy: Strategy, inner_first: bool) -> Strategy:
    def run(state: State) -> State | Declined:
        refusals: list[Refusal] = []
        for site in sites(state.program, _beneath(state), inner_first):
            outcome = strategy(state.at(site))
            if isinstance(outcome, State):
                return outcome.at(state.site)
            refusals.extend(outcome.refusals)
        return Declined("it fires at no statement", bool(refusals), tuple(refusals))

    return run


def top_down(strategy: Strategy) -> Strategy:
    """At the first statement where it fires, a statement before those inside it."""
    return _at_first(strategy, inner_first=False)


def bottom_up(strategy: Strategy) -> Strategy:
    """At the first statement where it fires, a statement after those inside it."""
    return _at_first(strategy, inner_first=True)


once = top_down


def everywhere(strategy: Strategy, backwards: bool = False, limit: int | None = None) -> Strategy:
    """At every statement where it fires, once through the program, a statement before those inside it.

    After a change the sweep goes on at the first statement that the change touched. `backwards`: from the last
    statement to the first. Without a `limit` it is `LEAST_LIMIT`, and `LIMIT` for each statement of the program.

    Raises:
        RewriteError: if it has fired `limit` times in one sweep.
    """

    def run(state: State) -> State | Declined:
        refusals: list[Refusal] = []
        begun = len(state.steps)

        @functools.cache
        def most() -> int:
            return LEAST_LIMIT + LIMIT * sum(1 for _ in sites(state.program)) if limit is None else limit

        def check(steps: Sequence[Step]) -> None:
            if (limit is not None or len(steps) - begun >= LEAST_LIMIT) and len(steps) - begun >= most():
                last = ", ".join(one.rule for one in steps[-5:])
                raise RewriteError(f"a strategy fired {most()} times in one sweep; its last steps: {last}")

        swept = _sweep(state, _beneath(state), strategy, backwards, refusals, check)
        if len(swept.steps) == len(state.steps):
            return Declined("it fires at no statement", bool(refusals), tuple(refusals))
        return _with_refusals(swept.at(state.site), [Declined("", True, tuple(refusals))])

    return run


def _sweep(
    state: State, path: Path, strategy: Strategy, backwards: bool, refusals: list[Refusal], check: Check
) -> State:
    body = body_at(state.program, path)
    if not _may_fire(strategy, kinds_in(body)):
        return state
    index = len(body.statements) - 1 if backwards else 0
    while 0 <= index < len(body.statements):
        if not _may_fire(strategy, kinds_of(body.statements[index])):
            index += -1 if backwards else 1
            continue
        outcome = strategy(state.at(Site(path, index)))
        if isinstance(outcome, Declined):
            refusals.extend(outcome.refusals)
            before = state.program
            for number in range(len(bodies_of(body.statements[index].expression))):
                state = _sweep(state, (*path, (index, number)), strategy, backwards, refusals, check)
            body = body if state.program is before else body_at(state.program, path)
            index += -1 if backwards else 1
            continue
        check(outcome.steps)
        state, old, body = outcome, body, body_at(outcome.program, path)
        first = _first_difference(old, body)
        index = min(index, len(body.statements) - 1) if backwards else min(index, first)
    return state


def _may_fire(strategy: Strategy, kinds: frozenset[type]) -> bool:
    return not isinstance(strategy, FirstOf) or strategy.is_for(kinds)


def _first_difference(old: Body, new: Body) -> int:
    for index, same in enumerate(map(operator.is_, old.statements, new.statements)):
        if not same:
            return index
    return min(len(old.statements), len(new.statements))


def _beneath(state: State) -> Path:
    """The body to traverse: the program's, or the one that the focus is in."""
    return () if state.site is None else state.site.path


def run_strategy(program: Program, strategy: Strategy) -> State:
    """The state after a strategy on a whole program; declining leaves the program as it is."""
    outcome = strategy(State(program))
    return State(program, refusals=outcome.refusals) if isinstance(outcome, Declined) else outcome


def rewritten(program: Program, strategy: Strategy, derivation: Recording | None = None) -> Program:
    """The program after a strategy; the steps, and the reasons for what was declined, are added to `derivation`."""
    state = run_strategy(program, strategy)
    if derivation is not None:
        derivation.add(state.steps, state.refusals)
    return state.program
