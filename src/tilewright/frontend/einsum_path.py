"""The order in which the operands of an einsum are contracted: paths, and the steps that they mean.

A path is a tuple of steps; each step names positions in the list of operands that are left, takes them out, and puts
its result at the end of the list (the form of `numpy.einsum_path` and opt_einsum).

>>> from tilewright.frontend.einsum_parse import EinsumSpec
>>> spec = EinsumSpec(((0, 1), (1, 2), (2, 3)), (0, 3))
>>> contraction_path(spec, (2, 50, 50, 3))
((0, 1), (0, 1))
>>> [step.output for step in steps_of(spec, ((0, 1), (0, 1)))]
[(0, 2), (0, 3)]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from numbers import Integral
from typing import Any, TypeAlias

from tilewright.frontend.einsum_parse import BROADCAST, EinsumSpec, Labels
from tilewright.ir.dataclass import dataclass

Path: TypeAlias = tuple[tuple[int, ...], ...]


class PathError(RuntimeError, ValueError):
    """A contraction path that does not fit its operands (a RuntimeError too, as in NumPy)."""


@dataclass(frozen=True)
class Step:
    """One contraction: the operands at `positions` with the labels `inputs` become one with the labels `output`.

    Labels are distinct within an operand. `summed` holds for each input the labels that are folded before it meets the
    other inputs (they occur in no other input and not in the output); `contracted` the remaining ones that vanish.
    """

    positions: tuple[int, ...]
    inputs: tuple[Labels, ...]
    summed: tuple[Labels, ...]
    contracted: Labels
    output: Labels


def distinct(labels: Sequence[int]) -> Labels:
    """The labels without repetitions and broadcast ones, in order."""
    return tuple(one for one in dict.fromkeys(labels) if one != BROADCAST)


def hashable_optimize(optimize: Any) -> Hashable:
    """The argument `optimize` in a hashable form: lists become tuples, a tree of cotengra's its path.

    Positions of the types of NumPy become Python's.

    Raises:
        TypeError: for what is nothing that `optimize` takes, such as an array or a set.
    """
    if hasattr(optimize, "get_path") and not callable(optimize):
        optimize = optimize.get_path()
    if isinstance(optimize, list | tuple):
        optimize = tuple(tuple(map(_position, one)) if isinstance(one, list | tuple) else one for one in optimize)
    try:
        hash(optimize)
    except TypeError:
        told = f"{optimize!r} of type {type(optimize).__name__}"
        raise TypeError(f"optimize is {told}; a path is a list of tuples of positions") from None
    return optimize  # type: ignore[no-any-return]


def _position(one: Any) -> Any:
    return int(one) if isinstance(one, Integral) else one


@lru_cache(maxsize=1024)
def contraction_path(
    spec: EinsumSpec, sizes: tuple[int, ...], optimize: Hashable = True, distributive: bool = True
) -> Path:
    """The path to take.

    Args:
        spec: the expression.
        sizes: the size of each label.
        optimize: True (opt_einsum's "auto"), False (one loop nest over all indices), the name of a method of
            opt_einsum, an optimiser of opt_einsum or cotengra (any function of the operands' index sets, the output's,
            the sizes and a memory limit that gives a path; it is asked once for the same expression and sizes),
            (one of these two, largest intermediate in elements), or a path, with or without NumPy's "einsum_path".
        distributive: whether products distribute over sums, so that there is a choice at all.

    Raises:
        PathError: for a path that does not fit, an optimiser's too.
        ValueError: for an unknown method.
    """
    count = len(spec.inputs)
    together: Path = (tuple(range(count)),)
    if isinstance(optimize, tuple) and not (optimize and _is_method(optimize[0])):
        path = _given_path(optimize[1:] if optimize and optimize[0] == "einsum_path" else optimize, count)
        if not distributive and len(path) > 1:
            raise PathError(f"the semiring is not declared distributive, so the only path is {together}, not {path}")
        return path
    method, limit = _method(optimize)
    if count <= 2 or method is None or not distributive:
        return together
    if method != "auto":  # what users write may give another path each time
        return _searched(spec, sizes, method, limit)
    from tilewright.frontend.path_stored import path_of

    asked = (repr(spec.inputs), repr(spec.output), repr(sizes), repr(limit))
    return path_of(asked, lambda: _searched(spec, sizes, method, limit), lambda path: _given_path(path, count))


def _is_method(one: Any) -> bool:
    return callable(one) or (isinstance(one, str) and one != "einsum_path")


def _method(optimize: Hashable) -> tuple[str | Callable[..., Any] | None, int | None]:
    limit: int | None = None
    if isinstance(optimize, tuple):
        given: tuple[Any, ...] = optimize
        if len(given) != 2 or not isinstance(given[1], int | float):
            raise ValueError(f"optimize {given!r}: expected (method, largest intermediate in elements)")
        optimize, limit = given[0], max(1, int(given[1]))  # NumPy allows 0, opt_einsum does not
    if optimize is True or optimize is None:
        return "auto", limit
    if optimize is False:
        return None, limit
    if callable(optimize):
        return optimize, limit
    from opt_einsum.paths import _PATH_OPTIONS as methods

    if not isinstance(optimize, str) or optimize not in methods:
        from difflib import get_close_matches

        near = get_close_matches(str(optimize), methods, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"unknown optimize {optimize!r}; {hint}there are True, False, a path, an optimiser, "
            f"{', '.join(map(repr, methods))}"
        )
    return optimize, limit


def _searched(spec: EinsumSpec, sizes: tuple[int, ...], method: str | Callable[..., Any], limit: int | None) -> Path:
    from opt_einsum import contract_path, get_symbol

    terms = [distinct(labels) for labels in spec.inputs]
    output = distinct(spec.output)
    sizes = tuple(max(1, size) for size in sizes)  # dynamic programming finds no path at a cost of 0
    if callable(method):
        sets = [frozenset(map(get_symbol, labels)) for labels in (*terms, output)]
        of_symbol = {get_symbol(label): sizes[label] for label in distinct([one for term in terms for one in term])}
        steps = [tuple(map(int, step)) for step in method(sets[:-1], sets[-1], of_symbol, limit)]
        return _given_path(steps, len(terms))
    expression = (
        ",".join("".join(map(get_symbol, labels)) for labels in terms) + "->" + "".join(map(get_symbol, output))
    )
    shapes = [tuple(sizes[label] for label in labels) for labels in terms]
    found, _ = contract_path(expression, *shapes, shapes=True, optimize=method, memory_limit=limit)
    return tuple(tuple(sorted(step)) for step in found)


def _given_path(steps: Sequence[Any], count: int) -> Path:
    path: list[tuple[int, ...]] = []
    left = count
    for number, step in enumerate(steps):
        if not isinstance(step, tuple) or not step or not all(isinstance(one, int) for one in step):
            raise PathError(f"path {tuple(steps)}: step {number} is {step!r}; a tuple of positions is needed")
        positions = tuple(sorted(one + left if one < 0 else one for one in step))
        if len(set(positions)) != len(positions):
            raise PathError(f"path {tuple(steps)}: step {number} is {step!r}, which has one position twice")
        if positions[0] < 0 or positions[-1] >= left:
            raise PathError(f"path {tuple(steps)}: step {number} is {step!r}, but {left} operands are left there")
        left += 1 - len(positions)
        path.append(positions)
    if left != 1:
        raise PathError(f"path {tuple(steps)} for {count} operands ends with {left} operands left; 1 is needed")
    return tuple(path)


def steps_of(
    spec: EinsumSpec, path: Path, distributive: bool = True, orders: Sequence[Labels] = ()
) -> tuple[Step, ...]:
    """The contractions that a path means, in order; the last one's output is the expression's.

    `orders` are those of the others' outputs, where they were chosen.
    """
    remaining = [distinct(labels) for labels in spec.inputs]
    wanted = distinct(spec.output)
    steps: list[Step] = []
    for number, positions in enumerate(path):
        inputs = tuple(remaining[position] for position in positions)
        remaining = [labels for position, labels in enumerate(remaining) if position not in positions]
        needed = {label for labels in (*remaining, wanted) for label in labels}
        present = distinct([label for labels in inputs for label in labels])
        if number == len(path) - 1:
            output = wanted
        elif orders:
            output = orders[number]
        else:  # the order of the final output as far as it goes: later steps then write along their inputs
            output = (*(one for one in wanted if one in present),
                      *(one for one in present if one in needed and one not in wanted))  # fmt: skip
        steps.append(_step(positions, inputs, present, output, distributive))
        remaining.append(output)
    return tuple(steps)


def _step(
    positions: tuple[int, ...], inputs: tuple[Labels, ...], present: Labels, output: Labels, distributive: bool
) -> Step:
    summed: tuple[Labels, ...] = tuple(() for _ in inputs)
    if distributive and len(inputs) > 1:
        summed = tuple(
            tuple(
                one
                for one in labels
                if one not in output and not any(one in other for n, other in enumerate(inputs) if n != number)
            )
            for number, labels in enumerate(inputs)
        )
    early = {label for labels in summed for label in labels}
    contracted = tuple(one for one in present if one not in output and one not in early)
    return Step(positions, inputs, summed, contracted, output)
