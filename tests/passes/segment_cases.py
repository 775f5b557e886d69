"""Segmented programs with all sorts of operators, and a way to have a given sharing of their segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilewright.passes.segments import hist as segment_hist
from tilewright.passes.segments import steps as segment_steps
from tilewright.passes.segments.choice import Sharing


@dataclass(frozen=True)
class Operator:
    """Element types, the statements that make r0, r1, ... of a0, ... and b0, ..., neutral elements, random values."""

    types: tuple[str, ...]
    statements: str
    neutral: tuple[str, ...]
    values: Callable[[np.random.Generator, tuple[int, ...]], tuple[Any, ...]]
    commutes: bool = False


def _integers(count: int, dtype: str, low: int = -3, high: int = 4) -> Any:
    return lambda random, shape: tuple(random.integers(low, high, shape).astype(dtype) for _ in range(count))


def _floats(dtype: str) -> Any:
    return lambda random, shape: ((random.integers(-16, 17, shape) / 8).astype(dtype),)


OPERATORS = {
    "sum": Operator(("i64",), "let (r0: i64) = a0 + b0", ("0i64",), _integers(1, "i8"), True),
    "float sum": Operator(("f32",), "let (r0: f32) = a0 + b0", ("0.0f32",), _floats("f4"), True),
    "half sum": Operator(("f16",), "let (r0: f16) = a0 + b0", ("0.0f16",), _floats("f2"), True),
    "any": Operator(("bool",), "let (r0: bool) = or(a0, b0)", ("false",), _integers(1, "?", 0, 2), True),
    "largest and sum": Operator(
        ("i32", "f64"),
        "let (r0: i32) = max(a0, b0)\n let (r1: f64) = a1 + b1",
        ("-2147483648i32", "0.0f64"),
        lambda random, shape: (*_integers(1, "i4")(random, shape), *_floats("f8")(random, shape)),
        True,
    ),
    "parity": Operator(("u64",), "let (r0: u64) = xor(a0, b0)", ("0u64",), _integers(1, "u8", 0, 2**63), True),
    "wrapping sum": Operator(("u8",), "let (r0: u8) = a0 + b0", ("0u8",), _integers(1, "u1", 0, 256), True),
    "carrying sum": Operator(("i64",), "let (r0: i64) = a0 + b0", ("0i64",), _integers(1, "i8", -(2**62), 2**62), True),
    "smallest": Operator(("i16",), "let (r0: i16) = min(a0, b0)", ("32767i16",), _integers(1, "i2", -999, 999), True),
    "affine maps": Operator(
        ("i64", "i64"),
        "let (r0: i64) = a0 * b0\n let (t0: i64) = a1 * b0\n let (r1: i64) = t0 + b1",
        ("1i64", "0i64"),
        _integers(2, "i8"),
    ),
    "first that is not zero": Operator(
        ("i32",),
        "let (t0: bool) = a0 == 0i32\n let (r0: i32) = select(t0, b0, a0)",
        ("0i32",),
        lambda random, shape: (np.where(random.random(shape) < 0.9, 0, random.integers(1, 99, shape)).astype("i4"),),
    ),
    "2x2 matrices": Operator(
        ("u32",) * 4,
        "\n".join(
            f" let (p{o}: u32) = a{2 * (o // 2)} * b{o % 2}\n let (q{o}: u32) = a{2 * (o // 2) + 1} * b{2 + o % 2}\n"
            f" let (r{o}: u32) = p{o} + q{o}"
            for o in range(4)
        ),
        ("1u32", "0u32", "0u32", "1u32"),
        _integers(4, "u4", 0, 5),
    ),
    "complex product": Operator(
        ("c64",),
        "let (r0: c64) = a0 * b0",
        ("c64(1.0, 0.0)",),
        lambda random, shape: (np.exp(1j * random.random(shape) * 6).astype("c8"),),
    ),
}


def random_values(name: str, shape: tuple[int, ...], seed: int, adjacent: bool = False) -> list[Any]:
    """Arrays of the operator's types and this shape, each transposed if `adjacent`."""
    arrays = OPERATORS[name].values(np.random.default_rng(seed), shape)
    types = OPERATORS[name].types
    numpy = {
        "i64": "i8",
        "i32": "i4",
        "u32": "u4",
        "f64": "f8",
        "f32": "f4",
        "f16": "f2",
        "bool": "?",
        "u64": "u8",
        "u8": "u1",
        "i16": "i2",
        "c64": "c8",
    }
    return [
        np.ascontiguousarray(one.T if adjacent else one).astype(numpy[t]) for one, t in zip(arrays, types, strict=True)
    ]


def combine_text(operator: Operator) -> str:
    """The operator as a lambda."""
    parameters = ", ".join(f"{side}{n}: {t}" for side in "ab" for n, t in enumerate(operator.types))
    results = ", ".join(f"r{n}" for n in range(len(operator.types)))
    return f"(\\({parameters}) -> {operator.statements}\n in ({results})) ({', '.join(operator.neutral)})"


def segmented(operator: Operator, kind: str, adjacent: bool, mapped: bool) -> str:
    """A `segred` or `segscan` over (i < n, j < m) of arrays x0, x1, ... ([m][n] if `adjacent`)."""
    shape, at = ("[m][n]", "j, i") if adjacent else ("[n][m]", "i, j")
    parameters = ", ".join(f"x{n}: {shape}{t}" for n, t in enumerate(operator.types))
    inner = "" if kind == "segred" else "[m]"
    targets = [f"y{n}: [n]{inner}{t}" for n, t in enumerate(operator.types)]
    body = "".join(f"\n let (e{n}: {t}) = x{n}[{at}]" for n, t in enumerate(operator.types))
    results = [f"e{n}" for n in range(len(operator.types))]
    names = [f"y{n}" for n in range(len(operator.types))]
    if mapped:
        targets.append("z: [n][m]i64")
        body += "\n let (s: i64) = i * 100i64\n let (w: i64) = s + j"
        results.append("w")
        names.append("z")
    suffix = "_comm" if operator.commutes and kind == "segred" else ""
    return f"""def program ({parameters}) =
 let ({", ".join(targets)}) = {kind}{suffix}@thread (i: i64 < n, j: i64 < m) {combine_text(operator)} do {body}
 in ({", ".join(results)})
 in ({", ".join(names)})
"""


def plain(operator: Operator, kind: str) -> str:
    """A `reduce` or `scan` of arrays x0, x1, ... of n elements."""
    parameters = ", ".join(f"x{n}: [n]{t}" for n, t in enumerate(operator.types))
    shape = "" if kind == "reduce" else "[n]"
    targets = ", ".join(f"y{n}: {shape}{t}" for n, t in enumerate(operator.types))
    names = ", ".join(f"y{n}" for n in range(len(operator.types)))
    arrays = " ".join(f"x{n}" for n in range(len(operator.types)))
    suffix = "_comm" if operator.commutes and kind == "reduce" else ""
    return f"""def program ({parameters}) =
 let ({targets}) = {kind}{suffix} n {combine_text(operator)} {arrays}
 in ({names})
"""


def histogram(operator: Operator, is_segmented: bool) -> str:
    """A `hist` of n values, or a `seghist` of n segments of m values, into k bins."""
    outer = "[n]" if is_segmented else ""
    inner = "[n][m]" if is_segmented else "[n]"
    arrays = ", ".join(f"x{n}: {inner}{t}" for n, t in enumerate(operator.types))
    bins = ", ".join(f"d{n}: {outer}[k]{t}" for n, t in enumerate(operator.types))
    targets = ", ".join(f"y{n}: {outer}[k]{t}" for n, t in enumerate(operator.types))
    given = " ".join(f"d{n}" for n in range(len(operator.types)))
    names = ", ".join(f"y{n}" for n in range(len(operator.types)))
    if is_segmented:
        body = "\n let (p: i64) = at[i, j]" + "".join(
            f"\n let (e{n}: {t}) = x{n}[i, j]" for n, t in enumerate(operator.types)
        )
        results = ", ".join(["p", *(f"e{n}" for n in range(len(operator.types)))])
        rest = f"do {body}\n in ({results})"
        kind = "seghist@thread (i: i64 < n, j: i64 < m)"
    else:
        rest = "at " + " ".join(f"x{n}" for n in range(len(operator.types)))
        kind = "hist"
    return f"""def program (at: {inner}i64, {arrays}, {bins}) =
 let ({targets}) = {kind} ({given.replace(" ", ", ")}) {combine_text(operator)} {rest}
 in ({names})
"""


@contextmanager
def in_pieces(pieces: int, copies: int = 1) -> Iterator[None]:
    """Histograms are cut into so many pieces (fewer where there are not so many rows), with copies of bins on a CPU."""

    def cut(machine: Any, threads: int, segments: int, width: int, bins: int, *_: int) -> tuple[int, int]:
        length = max(1, -(-width // pieces))
        return max(1, -(-width // length)), length

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_hist, "pieces_of_histogram", cut)
        patch.setattr(segment_hist, "copies_of_bins", lambda *_: copies)
        yield


@contextmanager
def shared_out(group: int, chunks: int) -> Iterator[None]:
    """Segments are shared out like this (fewer chunks where there are not so many rows)."""

    def share(machine: Any, threads: int, segments: int, width: int, alone: bool) -> Sharing:
        length = max(1, -(-width // chunks))
        return Sharing(1 if alone else min(group, threads), max(1, -(-width // length)), length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_steps, "share_out", share)
        yield


@contextmanager
def with_tiles_of(rows: int) -> Iterator[None]:
    """A thread has so many rows of a tile in scans that look back at other tiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_steps, "rows_of_tile", lambda *_: rows)
        yield
