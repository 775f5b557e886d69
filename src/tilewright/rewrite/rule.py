"""Rules: named rewrites of one statement and the body around it, each with its equation.

A rule is a plain function of a `Place` (a statement, the body it stands in, and everything around that). It gives the
body that replaces the place's body, or `Declined` with the reason why it does not fire there:

    @rule("simplification", Rearrange)
    def rearrange_identity(at: Place) -> Body | Declined:
        \"""rearrange (0, 1, ..., n-1) a  =>  a\"""
        expression = at.expect(Rearrange)
        if list(expression.permutation) != sorted(expression.permutation):
            return no_match("the permutation is not the identity")
        return at.bind(expression.array)

Rules never change what the statements outside their body see, so a rewrite is local: the rest of the program is shared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar, get_args

from tilewright.ir.cached import cached_property
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Body, Expression, If, Loop, Program, Statement, Variable
from tilewright.ir.traversal import FreshNames, bodies_of, mentioned
from tilewright.rewrite.names import definitions, replace_names, users, with_body

Kind = TypeVar("Kind")


class RewriteError(ValueError):
    """A rewrite that cannot be done as asked: no such site, a rule that does not fire in a replay, no end in sight."""


@dataclass(frozen=True)
class Site:
    """The address of a statement: the way down to its body as (statement, which of its bodies) pairs, and its index."""

    path: tuple[tuple[int, int], ...]
    index: int

    def __str__(self) -> str:
        return "".join(f"{statement}.{body}/" for statement, body in self.path) + str(self.index)


@dataclass(frozen=True)
class Declined:
    """A rule did not fire. `near` tells a miss that a user may want to know of from a statement of another shape."""

    reason: str
    near: bool = True
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """Which rule declined, at the statement that binds which names, and why."""

    rule: str
    targets: str
    reason: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.targets}: {self.reason}"


def no_match(reason: str) -> Declined:
    """The statement does not have the rule's shape at all."""
    return Declined(reason, near=False)


@dataclass(frozen=True)
class Place:
    """A statement in its surroundings: the bodies around it from the program's own inwards, each with an index."""

    program: Program
    site: Site
    chain: tuple[tuple[Body, int], ...]

    @cached_property
    def body(self) -> Body:
        """The body that the statement stands in."""
        return self.chain[-1][0]

    @cached_property
    def index(self) -> int:
        """The statement's index in its body."""
        return self.chain[-1][1]

    @cached_property
    def statement(self) -> Statement:
        """The statement."""
        return self.body.statements[self.index]

    @cached_property
    def expression(self) -> Expression:
        """The statement's right-hand side."""
        return self.statement.expression

    @property
    def is_on_host(self) -> bool:
        """Whether the host runs the statement: it stands in the program itself, or in ifs and loops of it."""
        return all(isinstance(body.statements[index].expression, If | Loop) for body, index in self.chain[:-1])

    @cached_property
    def names(self) -> FreshNames:
        """A supply of names that the program does not have (the same ones whenever the rule is applied here again)."""
        names = FreshNames()
        names.reserve(*mentioned(self.program))
        return names

    def expect(self, kind: type[Kind]) -> Kind:
        """The expression, known to be of this kind (rules are only called on the kinds that they declare)."""
        if not isinstance(self.expression, kind):
            raise TypeError(f"a rule for {kind.__name__} was applied to {type(self.expression).__name__}")
        return self.expression

    def definition(self, atom: Atom) -> Expression | None:
        """The expression that binds a variable as its only target, if a statement in scope does."""
        if not isinstance(atom, Variable):
            return None
        for body, before in reversed(self.chain):
            index = definitions(body).get(atom.name)
            if index is not None:
                statement = body.statements[index]
                return statement.expression if index < before and len(statement.targets) == 1 else None
        return None

    def uses(self, name: str) -> tuple[int, ...]:
        """The statements of this body that use a name (len(statements): its results)."""
        return users(self.body).get(name, ())

    def describe_use(self, index: int) -> str:
        """A statement of this body in words, for reasons."""
        if index == len(self.body.statements):
            return "the results"
        return ", ".join(one.name for one in self.body.statements[index].targets)

    # what rules give back

    def become(self, expression: Expression) -> Body:
        """The body with another right-hand side here."""
        return self.replace(Statement(self.statement.targets, expression))

    def replace(self, *statements: Statement) -> Body:
        """The body with these statements here."""
        old, i = self.body.statements, self.index
        return Body((*old[:i], *statements, *old[i + 1 :]), self.body.results)

    def bind(self, *values: Atom) -> Body:
        """The body without this statement, its targets replaced by these atoms."""
        return self.splice((), values)

    def splice(self, statements: tuple[Statement, ...], values: tuple[Atom, ...]) -> Body:
        """The body with these statements here and the old targets replaced by atoms that they (or others) bind.

        Raises:
            RewriteError: if there is not one atom for each target.
        """
        targets = self.statement.targets
        if len(values) != len(targets):
            names = self.describe_use(self.index)
            raise RewriteError(f"{len(values)} values for {len(targets)} targets, {names}, at {self.site}")
        return self.substitute({one.name: value for one, value in zip(targets, values, strict=True)}, statements)

    def substitute(self, values: dict[str, Atom], here: tuple[Statement, ...]) -> Body:
        """The body with these statements here, and names replaced in what follows."""
        old, i = self.body.statements, self.index
        rest = (replace_names(one, values) for one in old[i + 1 :])
        return Body((*old[:i], *here, *rest), replace_names(self.body.results, values))


def body_at(program: Program, path: tuple[tuple[int, int], ...]) -> Body:
    """The body at the end of a path.

    Raises:
        RewriteError: if the program has no such body.
    """
    body = program.body
    for index, number in path:
        inside = bodies_of(body.statements[index].expression) if 0 <= index < len(body.statements) else ()
        if not 0 <= number < len(inside):
            raise RewriteError(f"program {program.name} has no body {number} in statement {index} on the way {path}")
        body = inside[number]
    return body


def resolve(program: Program, site: Site) -> Place:
    """The place with this address.

    Raises:
        RewriteError: if the program has no such statement.
    """
    around, body = _way_to(program, site.path)
    if not 0 <= site.index < len(body.statements):
        raise RewriteError(f"program {program.name} has no statement at {site}: {len(body.statements)} there")
    return Place(program, site, (*around, (body, site.index)))


def _way_to(program: Program, path: tuple[tuple[int, int], ...]) -> tuple[tuple[tuple[Body, int], ...], Body]:
    """The bodies on a path, each with an index, and the one at its end. The last path is remembered on the program:
    sweeps ask for the statements of a body one after the other.
    """
    known = program.__dict__.get("_way")
    if known is not None and known[0] == path:
        return known[1], known[2]
    around: list[tuple[Body, int]] = []
    body = program.body
    for index, number in path:
        around.append((body, index))
        inside = bodies_of(body.statements[index].expression) if 0 <= index < len(body.statements) else ()
        if not 0 <= number < len(inside):
            body_at(program, path)  # which says what is missing
        body = inside[number]
    program.__dict__["_way"] = path, tuple(around), body
    return tuple(around), body


def replace_body(place: Place, body: Body) -> Program:
    """The program with another body in place of the one that the place is in."""
    for (outer, index), (_, number) in zip(reversed(place.chain[:-1]), reversed(place.site.path), strict=True):
        old = outer.statements[index]
        statement = Statement(old.targets, with_body(old.expression, number, body))
        body = Body((*outer.statements[:index], statement, *outer.statements[index + 1 :]), outer.results)
    return Program(place.program.name, place.program.parameters, body)


_AS_STRATEGY = "a strategy of rules is first_of((one, another)) or apply(one)"
RuleFunction: TypeAlias = Callable[[Place], Body | Declined]


@dataclass(frozen=True)
class Rule:
    """A named rewrite: `equation` says what it does (before => after), `kinds` which expressions it looks at."""

    name: str
    family: str
    equation: str
    kinds: tuple[type, ...]
    function: RuleFunction

    def __call__(self, place: Place) -> Body | Declined:
        """The new body, or why not.

        Raises:
            RewriteError: if it is not called with a place, or its function gives something else.
        """
        if not isinstance(place, Place):
            raise RewriteError(f"rule {self.name} is for a Place, not for a {type(place).__name__}; {_AS_STRATEGY}")
        if not isinstance(place.expression, self.kinds):
            wanted = " or ".join(kind.__name__ for kind in self.kinds)
            return no_match(f"{type(place.expression).__name__} is not {wanted}")
        outcome = self.function(place)
        if not isinstance(outcome, Body | Declined):
            raise RewriteError(
                f"rule {self.name} gave {type(outcome).__name__} at {place.site}; "
                "it must give a Body, such as at.become(expression), or Declined(why)"
            )
        return outcome

    def __str__(self) -> str:
        return f"{self.name}: {self.equation}"


ANY: tuple[type, ...] = get_args(Expression)
_REGISTRY: dict[str, Rule] = {}


def equation_of(function: Callable[..., object]) -> str:
    """The equation with which the docstring of a rewrite begins, before => after.

    Raises:
        RewriteError: if it begins otherwise.
    """
    if function.__doc__ is None and sys.flags.optimize > 1:
        return f"{function.__name__} (its equation is left out, as all docstrings are, by Python's -OO)"
    equation = " ".join((function.__doc__ or "").strip().split("\n\n")[0].split())
    if "=>" not in equation:
        raise RewriteError(f"rule {function.__name__}: the docstring must begin with its equation, before => after")
    return equation


def _replaces(new: RuleFunction, old: RuleFunction) -> bool:
    """Whether a rule stands for another one of its name: it is that one, imported once more as by a child after a fork,
    or it is written in its module again, where a module has several texts: in a notebook, or at the prompt.
    """
    if new is old or new.__module__ != old.__module__:
        return False
    here, there = new.__code__, old.__code__
    return here.co_filename != there.co_filename or here.co_firstlineno == there.co_firstlineno


def rule(family: str, *kinds: type) -> Callable[[RuleFunction], Rule]:
    """Make a rule of a function whose docstring begins with its equation, `before  =>  after`.

    Raises:
        RewriteError: if the family or a kind is none, the docstring has no equation, or the name is taken.
    """
    if not isinstance(family, str) or not all(isinstance(one, type) for one in kinds):
        raise RewriteError('a rule has a family and kinds of expressions, as in @rule("lessons", Apply)')

    def register(function: RuleFunction) -> Rule:
        name, equation = function.__name__, equation_of(function)
        other = _REGISTRY[name].function if name in _REGISTRY else None
        if other is not None and not _replaces(function, other):
            raise RewriteError(f"there are two rules named {name}")
        _REGISTRY[name] = Rule(name, family, equation, kinds or ANY, function)
        return _REGISTRY[name]

    return register


def rules_of(family: str) -> tuple[Rule, ...]:
    """The rules of a family, in the order in which they are tried.

    Raises:
        RewriteError: if there are none.
    """
    from tilewright.rewrite import rules  # the rules import this module

    rules.load(family)
    found = tuple(one for one in _in_order() if one.family == family)
    if not found:
        known = ", ".join(dict.fromkeys(one.family for one in all_rules()))
        raise RewriteError(f"no rule is of a family {family!r}; there are {known}")
    return found


def rule_named(name: str) -> Rule:
    """The rule of this name.

    Raises:
        RewriteError: if there is none.
    """
    if name not in _REGISTRY:
        from tilewright.rewrite import rules

        rules.load()
    if name not in _REGISTRY:
        raise RewriteError(f"no rule is named {name!r}; there are {', '.join(one.name for one in all_rules())}")
    return _REGISTRY[name]


def all_rules() -> Iterator[Rule]:
    """Every rule."""
    from tilewright.rewrite import rules  # the rules import this module

    rules.load()
    return iter(_in_order())


def _in_order() -> list[Rule]:
    from tilewright.rewrite import rules

    modules = {name: number for number, name in enumerate(rules.MODULES)}
    return sorted(_REGISTRY.values(), key=lambda one: modules.get(one.function.__module__, len(modules)))
