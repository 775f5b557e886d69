"""All interleavings of a few threads of a model: what may happen, in whatever order their steps come.

A model's state is a dictionary of hashable values. A thread is a program, a step for each label: a function that
changes the state (a copy) and gives the label that follows, several of them where any may, or None while it cannot go
on. A step is one access to what threads share. `NAME.at` is the label at which the thread NAME is.

Stores that are not ordered with others lie in `NAME.stores` until they reach memory, in any order; an ordered store or
exchange waits until there are none (`ordered`). Loads are in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

State: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[State], str | tuple[str, ...] | None]
Programs: TypeAlias = Mapping[str, Mapping[str, Step]]
END = "end"


class Wrong(AssertionError):
    """A model has done what it must not, or cannot come to its end; the message tells the steps that lead there."""


def store(state: State, thread: str, name: str, value: object) -> None:
    """Store without order."""
    state[f"{thread}.stores"] += ((name, value),)


def ordered(step: Step, thread: str) -> Step:
    """A step that waits until all stores of its thread have reached memory."""
    return lambda state: None if state[f"{thread}.stores"] else step(state)


def explore(start: State, programs: Programs, holds: Callable[[State], object] = lambda state: None) -> int:
    """Look at all states that can be reached, and see that the end can be reached from each; how many there are.

    Args:
        start: the first state; labels and stores are added.
        programs: the threads, by name; all begin at their first label.
        holds: raises AssertionError for states that must not be.

    Raises:
        Wrong: with the steps that lead to the state that is wrong.
    """
    start = {**start, **{f"{name}.stores": () for name in programs}}
    start |= {f"{name}.at": next(iter(program)) for name, program in programs.items()}
    first = _key(start)
    before: dict[Any, tuple[Any, str] | None] = {first: None}
    leads: dict[Any, list[Any]] = {first: []}
    ends, waiting = [], [(first, start)]
    while waiting:
        key, state = waiting.pop()
        if all(state[f"{name}.at"] == END for name in programs):
            ends.append(key)
        try:
            holds(state)
            for what, following in _followers(state, programs):
                other = _key(following)
                if other not in before:
                    before[other] = key, what
                    leads[other] = []
                    waiting.append((other, following))
                leads[other].append(key)
        except AssertionError as error:
            raise Wrong(f"{error}\nafter these steps:\n{_steps(before, key)}") from error
    _all_end(before, leads, ends)
    return len(before)


def _followers(state: State, programs: Programs) -> Iterator[tuple[str, State]]:
    for name, program in programs.items():
        label = state[f"{name}.at"]
        if label != END:
            following = dict(state)
            labels = program[label](following)
            for one in (labels,) if isinstance(labels, str) else labels or ():
                yield f"{name}: {label}", following | {f"{name}.at": one}
        stores = state[f"{name}.stores"]
        for position, (variable, value) in enumerate(stores):
            if variable not in [earlier for earlier, _ in stores[:position]]:
                rest = (*stores[:position], *stores[position + 1 :])
                yield f"{name}: {variable} = {value}", state | {variable: value, f"{name}.stores": rest}


def _all_end(before: Mapping[Any, Any], leads: Mapping[Any, list[Any]], ends: list[Any]) -> None:
    good, waiting = set(ends), list(ends)
    while waiting:
        for one in leads[waiting.pop()]:
            if one not in good:
                good.add(one)
                waiting.append(one)
    for key in before:
        if key not in good:
            raise Wrong(f"the end cannot be reached from here any more\n{_steps(before, key)}")


def _key(state: State) -> Any:
    return tuple(state[name] for name in sorted(state))


def _steps(before: Mapping[Any, tuple[Any, str] | None], key: Any) -> str:
    steps: list[str] = []
    while (found := before[key]) is not None:
        key, what = found
        steps.append(what)
    return "\n".join(reversed(steps))
