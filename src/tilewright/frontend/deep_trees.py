"""Functions that go through trees of any depth.

Python allows some thousand calls in one another, which a chain of a few hundred tensors needs where a function calls
itself for every operand. Here such a function is a generator: it asks for what it is of another part of the tree by
`yield`, and what waits for an answer is kept in a list.

>>> def depth(tree):
...     found = 0
...     for one in tree:
...         found = max(found, (yield depth(one)))
...     return found + 1
>>> tree = []
>>> for _ in range(5000):
...     tree = [tree]
>>> answer(depth(tree))
5001
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

Result = TypeVar("Result")
Walk: TypeAlias = Generator[Any, Any, Result]
"""A function of a tree as it runs; it yields those whose results it needs."""


def answer(walk: Walk[Result]) -> Result:
    """The result of a function of a tree."""
    waiting: list[Walk[Any]] = [walk]
    result: Any = None
    while waiting:
        try:
            asked = waiting[-1].send(result)
        except StopIteration as done:
            waiting.pop()
            result = done.value
        else:
            waiting.append(asked)
            result = None
    found: Result = result
    return found
