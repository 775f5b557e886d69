"""How far a result may be from the interpreter's.

The interpreter adds from the first to the last and rounds every element of every array to its type; compiled programs
add in trees and may keep what is never stored in f32. Programs are tame: their functions are continuous, with bounded
values, so results of f32 and f64 agree up to a few thousand roundings. Of narrow types that is too coarse a measure:
there, what the roundings can do to a result is found by running the same program with f32 in place of f16 and bf16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program

_RELATIVE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-4, "float64": 1e-9, "complex64": 1e-4}
_NARROW = {"f16": "float16", "bf16": "bfloat16"}
_FURTHER = 6.0
"""Roundings in another order do at most so many times what they do in the interpreter's order."""


@dataclass(frozen=True)
class Tolerance:
    """Of one result: relative to the value, and absolute."""

    relative: float = 0.0
    absolute: float = 0.0


def tolerances(program: Program, arguments: Sequence[Any], expected: Sequence[Any]) -> list[Tolerance]:
    """The tolerance of every result."""
    narrow = "f16" in print_program(program)
    wide = _widened(program, arguments) if narrow else expected
    found = []
    for one, other in zip(expected, wide, strict=True):
        name = np.asarray(one).dtype.name
        if np.asarray(one).dtype.kind in "biu":
            found.append(Tolerance())
            continue
        relative = _RELATIVE.get(name, 1e-9)
        if not narrow:
            found.append(Tolerance(relative, relative / 10))
            continue
        relative = max(relative, _RELATIVE["float16"])
        with np.errstate(invalid="ignore"):  # infinite minus infinite
            gaps = np.abs(np.asarray(one, np.complex128) - np.asarray(other, np.complex128))
        gaps = gaps[np.isfinite(gaps)]
        found.append(Tolerance(relative, 2 * relative + _FURTHER * float(gaps.max(initial=0.0))))
    return found


def _widened(program: Program, arguments: Sequence[Any]) -> Sequence[Any]:
    """The results of the same program with f32 in place of the narrow types."""
    wide = parse_program(print_program(program).replace("bf16", "f32").replace("f16", "f32"))
    values = [
        np.asarray(one).astype(np.float32)[()] if np.asarray(one).dtype.name in _NARROW.values() else one
        for one in arguments
    ]
    return interpret(wide, values)


def difference(actual: Any, expected: Any, tolerance: Tolerance) -> str | None:
    """What differs, or None: shapes and types are the same, values up to the tolerance."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype} {actual.shape} where {expected.dtype} {expected.shape} is expected"
    if expected.dtype.kind in "biu":
        wrong = actual != expected
    else:
        kind = np.complex128 if expected.dtype.kind == "c" else np.float64
        a, b = actual.astype(kind), expected.astype(kind)
        with np.errstate(invalid="ignore"):  # infinite minus infinite
            close = np.abs(a - b) <= tolerance.absolute + tolerance.relative * np.abs(b)
        wrong = ~(close | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return None
    place = tuple(int(one) for one in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ, first at {place}: {actual[place]!r} where "
        f"{expected[place]!r} is expected (tolerance {tolerance.relative:g} relative, {tolerance.absolute:g} absolute)"
    )
