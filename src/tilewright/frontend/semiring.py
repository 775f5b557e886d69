"""Semirings: what an einsum multiplies and adds with.

>>> semiring_named("min_plus").name
'min_plus'
>>> manhattan = Semiring(lambda a, b: abs(a - b), lambda a, b: a + b, 0, name="manhattan")
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.frontend.scalar_constants import neutral_constant
from tilewright.frontend.scalar_functions import exp, log1p, maximum, minimum, where
from tilewright.frontend.scalar_tracing import trace
from tilewright.ir.builder import Builder
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Lambda, Literal, Type
from tilewright.ir.scalars import ScalarType
from tilewright.runtime.messages import value_text


@dataclass(frozen=True)
class Semiring:
    """The two operations of a contraction: out[...] = combine over the contracted indices of map(map(a, b), ...).

    Attributes:
        map: takes the place of *; a function of two scalars, traced.
        combine: takes the place of +; an associative function of two scalars, traced. It is taken for commutative,
            unless `commutative` says that it is not.
        neutral: combine's neutral element: a number (an infinite one stands for the extreme value of an integer
            type), or a function of the NumPy dtype that gives it.
        name: for messages.
        distributive: map distributes over combine and is itself associative and commutative, so that expressions of
            several operands may be computed pairwise and sums drawn out of products. Without it, an expression of more
            than two operands is one loop nest over all of its indices. Of the named ones this is a law for finite
            elements and the neutral one. Where it is none, an index that only one operand has is folded in it before
            the product: of min_plus, min([inf, 0]) + -inf is -inf, though inf + -inf is undefined; of plus_times,
            (2 - 1) * inf is inf, as for `numpy.einsum` with `optimize`.
        commutative: combine is commutative, so that elements may be combined in any order; give False for one like
            "the last that is not 0". Nothing finds that out.

    Raises:
        TypeError: for a `map` or `combine` that is no function.

    Example:
        >>> import numpy as np
        >>> Semiring(lambda a, b: (a - b) ** 2, lambda a, b: a + b, 0).name
        'custom'
    """

    map: Callable[..., Any]
    combine: Callable[..., Any]
    neutral: Any
    name: str = "custom"
    distributive: bool = False
    commutative: bool = True

    def __post_init__(self) -> None:
        for what, function in (("map", self.map), ("combine", self.combine)):
            if not callable(function):
                raise TypeError(f"semiring {self.name}: {what} must be a function of two scalars, not {function!r}")


def _log_add_exp(left: Any, right: Any) -> Any:
    # Equal operands apart: the difference of two infinite ones would be nan. Not -abs(left - right): Intel's OpenCL
    # compiler for CPUs makes nan of its exponential where `left` is the neutral element, known to be infinite.
    greater = maximum(left, right)
    apart = greater + log1p(exp(minimum(left, right) - greater))
    return where(left == right, left + math.log(2.0), apart)


def _times(left: Any, right: Any) -> Any:
    return left * right


def _plus(left: Any, right: Any) -> Any:
    return left + right


def _or(left: Any, right: Any) -> Any:
    return left | right


def _and(left: Any, right: Any) -> Any:
    return left & right


PLUS_TIMES = Semiring(_times, _plus, 0, "plus_times", distributive=True)

SEMIRINGS: dict[str, Semiring] = {
    one.name: one
    for one in (
        PLUS_TIMES,
        Semiring(_plus, minimum, math.inf, "min_plus", distributive=True),
        Semiring(_plus, maximum, -math.inf, "max_plus", distributive=True),
        Semiring(_times, maximum, -math.inf, "max_times"),  # negative factors turn max into min: not distributive
        Semiring(_and, _or, 0, "or_and", distributive=True),
        Semiring(_plus, _log_add_exp, -math.inf, "log_sum_exp", distributive=True),
    )
}
"""The named semirings. On bool + is `or`, * is `and`; `or_and` is bitwise on integers."""


def semiring_named(semiring: str | Semiring) -> Semiring:
    """A semiring by its name, or the semiring itself.

    Raises:
        ValueError: for an unknown name, with the names there are.
        TypeError: for anything else.
    """
    if isinstance(semiring, Semiring):
        return semiring
    if not isinstance(semiring, str):
        raise TypeError(f"semiring must be a name or a tw.Semiring, not {value_text(semiring)}")
    if semiring not in SEMIRINGS:
        from difflib import get_close_matches

        near = get_close_matches(semiring, SEMIRINGS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown semiring {semiring!r}; {hint}there are {', '.join(SEMIRINGS)}")
    return SEMIRINGS[semiring]


def neutral_literal(semiring: Semiring, scalar: ScalarType) -> Literal:
    """The neutral element in a scalar type; infinities become the extremes of integer types.

    Raises:
        TypeError: if the type cannot hold it, naming the semiring.
    """
    value = semiring.neutral(scalar.numpy) if callable(semiring.neutral) else semiring.neutral
    try:
        return neutral_constant(value, scalar)
    except (TypeError, OverflowError) as error:
        raise TypeError(f"semiring {semiring.name}: its neutral element is no {scalar}: {error}") from error


def map_atoms(builder: Builder, semiring: Semiring, left: Atom, right: Atom) -> Atom:
    """map(left, right), written to the builder.

    Raises:
        TypeError: if the semiring is not defined on the type of the operands.
    """
    return _traced(builder, semiring, "map", semiring.map, left, right)


def combine_lambda(builder: Builder, semiring: Semiring, scalar: ScalarType) -> Lambda:
    """combine as a lambda of two scalars.

    Raises:
        TypeError: if the semiring is not defined on the type.
    """

    def write(left: Atom, right: Atom) -> Atom:
        return _traced(builder, semiring, "combine", semiring.combine, left, right)

    return builder.function([Type(scalar), Type(scalar)], write, ("a", "b"))


def _traced(
    builder: Builder, semiring: Semiring, what: str, function: Callable[..., Any], left: Atom, right: Atom
) -> Atom:
    scalar = left.type.element
    try:
        result = trace(builder, function, [left, right])
    except TypeError as error:
        raise TypeError(f"semiring {semiring.name} is not defined on {scalar}: its {what}: {error}") from error
    if result.type != left.type:
        raise TypeError(
            f"semiring {semiring.name} is not defined on {scalar}: its {what} of two {scalar} gives {result.type}"
        )
    return result
