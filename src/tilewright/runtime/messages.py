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


_OF_OTHERS = {
    **dict.fromkeys(("jit", "njit", "compile", "function"), "the decorator tw.program"),
    "vmap": "tw.map in a program, or one more index of tw.einsum",
    **dict.fromkeys(("fori_loop", "scan_loop", "for_loop"), "tw.loop"),
    **dict.fromkeys(("filter", "compress"), "tw.scatter, as examples/filter.py does"),
    **dict.fromkeys(("zeros", "ones", "full"), "tw.replicate in a program, or np.zeros_like(x)"),
    "arange": "tw.iota in a program",
    "matmul": "x @ y in a program, or tw.einsum",
    "softmax": "e / e.sum(axis=-1, keepdims=True) of e = np.exp(x - x.max(axis=-1, keepdims=True)) in a program",
    **{name: f"np.{name} of an array in a program" for name in (
        "sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin", "cumsum", "cumprod", "dot",
        "stack", "concatenate", "take", "pad", "diff", "outer", "inner", "tril", "triu", "flip", "broadcast_to",
    )},
}  # fmt: skip


def instead_of(name: str) -> str:
    """What a message says is written in place of a name that other packages have and this one has not.

    Example:
        >>> instead_of("vmap"), instead_of("einsumm")
        ('; use tw.map in a program, or one more index of tw.einsum', '')
    """
    return f"; use {_OF_OTHERS[name]}" if name in _OF_OTHERS else ""
