"""What stands in messages: values that users gave, told so briefly that a list of a million is one line.

>>> value_text([1.5, 2])
'[1.5, 2] of type list'
"""

from __future__ import annotations

from reprlib import Repr
from typing import Any

_BRIEF = Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80


def value_text(value: Any) -> str:
    """A value and its type; of an array its shape and dtype, of a long list how it begins.

    Example:
        >>> value_text(range(3)), value_text(list(range(1000)))
        ('range(0, 3) of type range', '[0, 1, 2, 3, 4, 5, ...] of type list')
    """
    if getattr(value, "shape", ()) and hasattr(value, "dtype"):
        return f"an array of shape {tuple(value.shape)} and dtype {value.dtype}"
    return f"{brief(value)} of type {type(value).__name__}"


def brief(value: Any) -> str:
    """A value as `repr` gives it, or how that begins.

    Example:
        >>> brief(list(range(1000)))
        '[0, 1, 2, 3, 4, 5, ...]'
    """
    return _BRIEF.repr(value)
