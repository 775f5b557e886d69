"""Branches of a kernel that the scalars of a launch decide: only those that it takes need to be compiled for it.

A kernel holds all the ways in which its points may be run, and asks for sizes: points in lanes or one by one, long rows
piece by piece. Of the ways that a launch does not take there may be more code than of the one that it takes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, ScalarType
from tilewright.kernel import ir
from tilewright.kernel.ir import Constant, Expression, Kernel, Name, Statement
from tilewright.kernel.ranges import whole_range
from tilewright.kernel.traversal import bodies, walk, with_bodies

LARGE = 64
"""Statements of a branch that are worth another kernel for the launches that do not take it."""
LOOP = 32
"""Statements that a loop counts as, since compilers copy it: in vectors, several rounds at once, and what is left."""

Body: TypeAlias = tuple[Statement, ...]
Answers: TypeAlias = tuple[tuple[int, bool], ...]
"""Conditions that are decided, by their numbers in a kernel."""


@dataclass(frozen=True)
class Question:
    """A condition with a large branch: the number of its `If` in the kernel, and those that are asked inside.

    `counts` says whether the branch that is left out is large, if the condition is (false, true).
    """

    number: int
    condition: Expression
    counts: tuple[bool, bool]
    then: tuple[Question, ...]
    otherwise: tuple[Question, ...]


@dataclass(frozen=True)
class Questions:
    """What a kernel asks, and the values of the names that it asks about."""

    asked: tuple[Question, ...]
    values: Mapping[str, Expression]

    def answers(self, scalars: Mapping[str, int]) -> Answers:
        """What these scalars of a launch decide."""
        known: dict[str, int | None] = dict(scalars)

        def value(name: str) -> int | None:
            if name not in known:
                known[name] = None  # should it depend on itself
                known[name] = evaluated(self.values[name], value) if name in self.values else None
            return known[name]

        def found(questions: tuple[Question, ...]) -> Iterator[tuple[int, bool]]:
            for one in questions:
                answer = evaluated(one.condition, value)
                if answer is not None and one.counts[bool(answer)]:
                    yield one.number, bool(answer)
                    yield from found(one.then if answer else one.otherwise)
                else:
                    yield from found((*one.then, *one.otherwise))

        return tuple(found(self.asked)) if self.asked else ()


def questions_of(kernel: Kernel) -> Questions:
    """What a kernel asks that the scalars of a launch may decide.

    Example:
        >>> from tilewright.kernel.ir import Constant, If, Let, ScalarParameter, integer, operation
        >>> from tilewright.ir.scalars import I64
        >>> many = operation("ge", Name("n", I64), integer(16))
        >>> vectors, single = (tuple(Let(f"{kind}{k}", integer(k)) for k in range(LARGE)) for kind in "vs")
        >>> kernel = Kernel("both", (), (ScalarParameter("n", I64),), (), (If(many, vectors, single),))
        >>> questions = questions_of(kernel)
        >>> questions.answers({"n": 3}), questions.answers({"n": 16}), questions.answers({})
        (((0, False),), ((0, True),), ())
        >>> len(as_decided(kernel, questions.answers({"n": 3})).body)
        64
    """
    numbers = itertools.count()

    def asked(body: Body) -> Iterator[Question]:
        for one in body:
            if isinstance(one, ir.If):
                number, counts = next(numbers), (_is_large(one.then), _is_large(one.otherwise))
                then, otherwise = tuple(asked(one.then)), tuple(asked(one.otherwise))
                if any(counts):
                    yield Question(number, one.condition, counts, then, otherwise)
            else:
                for part in bodies(one):
                    yield from asked(part)

    found = tuple(asked(kernel.body))
    return Questions(found, _values(kernel) if found else {})


def as_decided(kernel: Kernel, answers: Answers) -> Kernel:
    """The kernel without the branches that are not taken; `answers` are those to its questions."""
    known = dict(answers)
    numbers = itertools.count()

    def rest(body: Body) -> Body:
        return tuple(kept for one in body for kept in kept_of(one))

    def kept_of(one: Statement) -> Body:
        match one:
            case ir.If(then=then, otherwise=otherwise):
                answer = known.get(next(numbers))
                both = rest(then), rest(otherwise)  # both, since their conditions are numbered
                return (replace(one, then=both[0], otherwise=both[1]),) if answer is None else both[not answer]
        return (with_bodies(one, tuple(map(rest, bodies(one)))),)

    return replace(kernel, body=rest(kernel.body)) if answers else kernel


def evaluated(expression: Expression, value: Callable[[str], int | None]) -> int | None:
    """An integer or bool of which some names have known values; None if they do not tell, or it leaves its type."""
    match expression:
        case Constant(value=constant, type=type_) if _is_counted(type_):
            return int(constant)
        case Name(name=name, type=ScalarType() as type_) if _is_counted(type_):
            return value(name)
        case ir.Cast(operand=operand, type=ScalarType() as type_) if _is_counted(type_) and type_ != BOOL:
            return _inside(evaluated(operand, value), type_)
        case ir.Operation(operator=operator, operands=operands, type=ScalarType() as type_) if _is_counted(type_):
            sides = [evaluated(one, value) for one in operands]
            return _inside(_result(operator, sides, type_), type_)
    return None


def _result(operator: str, sides: list[int | None], type_: ScalarType) -> int | None:
    match operator, sides:
        case ("and", [0, _] | [_, 0]) if type_ == BOOL:
            return 0
        case ("or", [1, _] | [_, 1]) if type_ == BOOL:
            return 1
        case "select", [int() as condition, then, otherwise]:
            return then if condition else otherwise
        case "not", [int() as one] if type_ == BOOL:
            return 1 - one
        case _, [int() as left, int() as right] if operator in _MEANINGS:
            return int(_MEANINGS[operator](left, right))
    return None


_MEANINGS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
    "min": min, "max": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


def _is_counted(type_: object) -> bool:
    return isinstance(type_, ScalarType) and type_.kind in "biu"


def _inside(value: int | None, type_: ScalarType) -> int | None:
    least, most = whole_range(type_)
    return value if value is not None and least <= value <= most else None


def _is_large(body: Body) -> bool:
    return sum(LOOP if isinstance(one, ir.For | ir.While) else 1 for one in walk(body)) >= LARGE


def _values(kernel: Kernel) -> dict[str, Expression]:
    """What names are bound to that are bound once, and not changed."""
    found: dict[str, Expression] = {}
    changing: set[str] = set()
    for one in walk(kernel.body):
        match one:
            case ir.Let(name=name, value=value):
                if found.setdefault(name, value) is not value:
                    changing.add(name)
            case ir.For(index=name) | ir.AtomicUpdate(old=name) | ir.Declare(name=name):
                changing.add(name)
    return {name: value for name, value in found.items() if name not in changing}
