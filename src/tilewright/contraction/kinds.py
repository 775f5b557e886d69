"""The kinds of dimensions of a contraction, in a module of their own: tensor operations from the disk need no more."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn


def none_of(kind: type[Enum], value: object) -> NoReturn:
    """Refuse a value that an enumeration does not have, naming those that it has."""
    names = ", ".join(str(one.value) for one in kind)
    raise ValueError(f"{value!r} is not a valid {kind.__name__}; there are {names}")


class Kind(Enum):
    """Which arrays have a dimension: M left and out, N right and out, K left and right (contracted), C all three."""

    M = "M"
    N = "N"
    K = "K"
    C = "C"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        none_of(cls, value)
