"""When two functions mean the same: a lambda in a loop is a new function in each round, and need not be traced anew."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

import numpy as np

_EXACT = (int, bool, str, bytes, type(None))
_PACKAGES = ("tilewright", "numpy", "math", "cmath", "operator", "builtins", "torch")
"""Whose names are taken for what they are bound to for ever."""
_DEEPEST = 3  # functions that call others


def function_key(function: Hashable) -> Hashable:
    """What is equal for functions of one code that find the same numbers, texts, packages and functions outside of it;
    the function itself where it finds anything else there, which may change its mind (arrays, lists, objects).

    Example:
        >>> def scaled(factor):
        ...     return lambda x: factor * x
        >>> function_key(scaled(2.0)) == function_key(scaled(2.0))
        True
        >>> function_key(scaled(2.0)) == function_key(scaled(3.0))
        False
        >>> weights = np.ones(2)
        >>> function_key(scaled(weights)) == function_key(scaled(weights))
        False
    """
    key = _key_of(function, 0) if isinstance(function, FunctionType) else None
    return function if key is None else key


def _key_of(function: FunctionType, depth: int) -> Hashable | None:
    """The code with what it finds; None if that may change."""
    found = []
    for value in _outside(function):
        key = _fixed(value, depth)
        if key is None:
            return None
        found.append(key)
    return function.__code__, *found


def _outside(function: FunctionType) -> Iterator[Hashable]:
    """What a function finds in its scope, in the same order whenever it is asked."""
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).items()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            yield ...
    yield from map(function.__globals__.get, _names(function.__code__))  # of attributes, variables called like them


def _names(code: CodeType) -> Iterator[str]:
    """Names of variables and attributes in a code and those of functions that it makes."""
    yield from code.co_names
    for one in code.co_consts:
        if type(one) is CodeType:
            yield from _names(one)


def _fixed(value: Hashable, depth: int) -> Hashable | None:
    """What is equal for values that are and stay the same; None for those that may change."""
    kind = type(value)
    if kind in _EXACT:
        return kind, value
    if kind is float or kind is complex or isinstance(value, np.number | np.bool_):
        return kind, repr(value)  # 0.0 and -0.0 are equal, and not the same
    if isinstance(value, ModuleType):
        return value if value.__name__.partition(".")[0] in _PACKAGES else None
    if isinstance(value, tuple):
        found = tuple(_fixed(one, depth) for one in value)
        return None if None in found else (kind, *found)
    if kind is BuiltinFunctionType or kind is np.ufunc or kind is type:
        return value if str(getattr(value, "__module__", "") or "numpy").partition(".")[0] in _PACKAGES else None
    if isinstance(value, FunctionType):
        if (value.__module__ or "").partition(".")[0] in _PACKAGES:
            return value
        return _key_of(value, depth + 1) if depth < _DEEPEST else None
    return None
