"""Numbers and tables as text, the same everywhere in reports."""

from __future__ import annotations

from collections.abc import Sequence

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(value: float, unit: str = "") -> str:
    """A number with a decimal prefix.

    Example:
        >>> amount(68719476736, "flop")
        '68.7 Gflop'
    """
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def byte_amount(value: int) -> str:
    """Bytes with a binary prefix.

    Example:
        >>> byte_amount(4096), byte_amount(100)
        ('4 KiB', '100 B')
    """
    for shift, prefix in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if value >= 1 << shift:
            return f"{value / (1 << shift):.4g} {prefix}B"
    return f"{value} B"


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    Example:
        >>> duration(0.00001234), duration(2.5)
        ('12.3 us', '2.5 s')
    """
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def table(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Lines with the columns aligned on the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]
