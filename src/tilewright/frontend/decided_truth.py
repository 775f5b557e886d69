"""Comparisons that are decided while a function is traced: Python may branch on them, and they are traced values, too.

Whether two sizes are equal is often known before there are any arrays: `x.shape[0] == x.shape[0]` is true. Such a
result takes part in arithmetic as the number that NumPy would have there: one of Python's where sizes were compared,
which are Python's numbers, and one of NumPy's where a parameter took part.

>>> decided = DecidedTruth(True, Builder())
>>> bool(decided), decided.dtype.name, bool(~decided), int(decided + 1)
(True, 'bool', False, 2)
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.scalar_tracing import ScalarProxy, apply
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Literal
from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import BOOL

_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": operators.add, "sub": operators.sub, "mul": operators.mul, "div": operators.truediv,
    "floordiv": operators.floordiv, "mod": operators.mod, "pow": operators.pow, "and": operators.and_,
    "or": operators.or_, "xor": operators.xor, "shl": operators.lshift, "shr": operators.rshift, "eq": operators.eq,
    "ne": operators.ne, "lt": operators.lt, "le": operators.le, "gt": operators.gt, "ge": operators.ge,
    "neg": operators.neg, "abs": operators.abs, "not": operators.not_,
}  # fmt: skip


class DecidedTruth(ScalarProxy):
    """A bool that is known while the function is traced.

    Attributes:
        known: what it is; a bool of Python's where only sizes and numbers of Python's were compared.
    """

    __slots__ = ("known", "weak")
    known: bool | np.bool_

    def __init__(self, known: bool | np.bool_, builder: Builder) -> None:
        super().__init__(Literal(bool(known), BOOL), builder)
        self.known = known
        self.weak = isinstance(known, bool)

    def __tilewright_apply__(self, operator: str, operands: Sequence[Any]) -> Any:
        values = [plain(one) for one in operands]
        alone = not any(hasattr(one, "__tilewright_apply__") for one in values)
        if alone and OPERATORS[operator].kinds in ("f", "fc") and operator not in _OF_NUMBERS:
            return super().__tilewright_apply__(operator, values)  # of NumPy's bools these are of f16
        if not alone or operator not in _OF_NUMBERS:
            return apply(operator, *values)
        result = _OF_NUMBERS[operator](*values)
        if operator == "not" and not self.weak:
            result = np.bool_(result)
        return self._traced(result)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return self._traced(getattr(ufunc, method)(*map(plain, inputs), **options))

    def __array_function__(self, function: Any, _: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        # The function asks what else there is for its own meaning of it, an array of the program for instance.
        named = {name: _plain_items(one) for name, one in options.items()}
        return self._traced(function(*map(_plain_items, arguments), **named))

    def _traced(self, result: Any) -> Any:
        return DecidedTruth(result, self.builder) if isinstance(result, bool | np.bool_) else result

    def __bool__(self) -> bool:
        return bool(self.known)

    def __index__(self) -> int:
        return int(self.known)

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.known)

    def __complex__(self) -> complex:
        return complex(self.known)

    def __hash__(self) -> int:  # type: ignore[override]  # others have none
        return hash(bool(self.known))

    def __format__(self, form: str) -> str:
        return format(self.known, form)

    def __repr__(self) -> str:
        return str(bool(self.known))


def plain(value: Any) -> Any:
    """A value as it is, but what is decided as a bool.

    >>> plain(DecidedTruth(True, Builder())), plain(1.5)
    (True, 1.5)
    """
    return value.known if isinstance(value, DecidedTruth) else value


def _plain_items(value: Any) -> Any:
    """`plain` of an argument of NumPy's, or of each item of a list."""
    return type(value)(map(_plain_items, value)) if type(value) in (list, tuple) else plain(value)


def is_surely(value: Any) -> bool:
    """Whether a comparison is known to hold.

    >>> is_surely(True), is_surely(DecidedTruth(False, Builder()))
    (True, False)
    """
    known = plain(value)
    return isinstance(known, bool | np.bool_) and bool(known)
