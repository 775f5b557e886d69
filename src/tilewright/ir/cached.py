"""Properties and answers that are computed once for each object."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Generic, TypeVar, overload

__all__ = ["cached_property", "remembered"]

Node = TypeVar("Node")
Value = TypeVar("Value")


def remembered(function: Callable[[Node], Value]) -> Callable[[Node], Value]:
    """A function of immutable nodes that keeps its answer on the node, where equality, hashing and printing do not see
    it.

    Rules ask the same of every statement over and over; a rewrite leaves most nodes of a program as they are, so that
    answers that are kept with them are still right afterwards.

    Example:
        >>> class Square:
        ...     side = 3
        >>> @remembered
        ... def area(square: Square) -> int:
        ...     print("computed")
        ...     return square.side**2
        >>> square = Square()
        >>> area(square) + area(square)
        computed
        18
    """
    key = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def asked(node: Node) -> Value:
        try:
            answer: Value = node.__dict__[key]
        except KeyError:
            node.__dict__[key] = answer = function(node)
        return answer

    return asked


class cached_property(Generic[Value]):  # as the standard one
    """As `functools.cached_property`, which before Python 3.12 holds one lock for all objects while it computes.

    A process that forks in that moment leaves its child with a lock that nobody will release. Without one, two threads
    may both compute the value, which has to be the same then.

    Example:
        >>> class Square:
        ...     def __init__(self, side: int) -> None:
        ...         self.side = side
        ...
        ...     @cached_property
        ...     def area(self) -> int:
        ...         print("computed")
        ...         return self.side**2
        >>> square = Square(3)
        >>> square.area + square.area
        computed
        18
    """

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object, owner: type) -> Value | cached_property[Value]:
        if instance is None:
            return self
        value = self.function(instance)
        instance.__dict__[self.name] = value  # which is looked at before this descriptor, the next time
        return value
