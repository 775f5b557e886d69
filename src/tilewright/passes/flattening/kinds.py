"""The kinds of flattening that a user may ask for, by name; the passes that do it are imported when they are used."""

from __future__ import annotations

from typing import Literal, TypeAlias

Flattening: TypeAlias = Literal["incremental", "full", "outer"]
FLATTENINGS: tuple[Flattening, ...] = ("incremental", "full", "outer")


def check_flattening(flattening: str) -> None:
    """Refuse a flattening that does not exist.

    Raises:
        ValueError: naming those that there are.
    """
    if flattening not in FLATTENINGS:
        raise ValueError(f"flattening={flattening!r}; there are 'incremental', 'full', 'outer', and None for none")
