"""Random contractions: index expressions, operands in memory in all ways, and options.

A contraction is made from its number alone. It decides the indices and sizes (empty ones, of one, around the tiles, of
several blocks), element types, how operands and `out` lie in memory (permuted, turned over, with gaps, repeated, one
element or one byte off their alignment), the order of the result, the semiring, alpha and beta, a wider type to compute
in, an epilogue with operands of permuted indices, a limit of memory, the numbers of threads, and what counts as large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from fuzz_grains import random_grains

DTYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f4", "f8", "f8", "c8", "c16")
SEMIRINGS = {
    "plus_times": "biufc", "min_plus": "biuf", "max_plus": "biuf", "max_times": "biuf", "or_and": "biu",
    "log_sum_exp": "f",
}  # fmt: skip
WITH_EPILOGUES = ("plus_times", "min_plus", "max_plus", "max_times", "or_and")
SMALL_SIZES = (0, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9)
LARGE_SIZES = (1, 3, 8, 12, 16, 17, 24, 31, 33, 48, 64, 65, 100, 129)
LONG_SIZES = (63, 64, 65, 100, 257, 1000, 4099)
BLOCK_SIZES = (1, 2, 7, 16, 33, 65, 130, 257, 300, 513, 700, 1030)
MOST_POINTS = (1500, 200_000, 3_000_000)
"""Of the index space of any expression, of those of two operands, and of those of two that take several blocks."""
WIDER = {"e": "f4", "f": "f8", "b": "i4", "h": "i8", "B": "u4", "F": "c16"}


def halved(c: Any, e: Any) -> Any:
    """An epilogue of floats."""
    return c * 0.5 + e


def added(c: Any, e: Any) -> Any:
    """An epilogue of numbers."""
    return c + e


def scaled(c: Any, e: Any, g: Any) -> Any:
    """An epilogue of three numbers."""
    return c * e + g


def doubled(c: Any) -> Any:
    """An epilogue without operands."""
    return c + c


MAGNITUDES = {halved: lambda c, e: c / 2 + e, added: added, scaled: scaled, doubled: doubled}
"""Epilogues, and what their errors are relative to."""


@dataclass(frozen=True)
class Contraction:
    """What is computed, and how."""

    number: int
    inputs: tuple[str, ...]
    output: str
    operands: tuple[np.ndarray, ...]
    out: np.ndarray | None
    options: dict[str, Any]
    threads: tuple[int, int]
    quick: bool
    held: np.ndarray | None = field(repr=False, default=None)
    grains: tuple[str, ...] = ()

    @property
    def expression(self) -> str:
        return ",".join(self.inputs) + "->" + self.output

    def __str__(self) -> str:
        ways = "\n".join(f"  {_told(one)}" for one in self.operands)
        into = "" if self.out is None else f"\n  into {_told(self.out)}"
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        how = f"threads={self.threads} quick={self.quick} grains={self.grains}"
        return f"contraction {self.number}: {self.expression!r} {options} {how}\n{ways}{into}"


def _told(one: np.ndarray) -> str:
    place = one.__array_interface__["data"][0] % 64
    return f"{one.dtype} {one.shape}, strides {one.strides}, {place} bytes after a multiple of 64"


# --- making trials ----------------------------------------------------------------------------------------------------


def make_trial(number: int) -> Contraction:
    """The contraction of this number."""
    random, values = Random(f"contraction {number}"), np.random.default_rng(number)
    of_two = random.random() < 0.6
    inputs, output, sizes = _of_two(random) if of_two else _of_any(random)
    short = Random(f"short sums {number}")
    if of_two and short.random() < 0.25:
        inputs, output, sizes = _of_records(short)
    elif of_two and short.random() < 0.04:
        inputs, output, sizes = _of_two(short, BLOCK_SIZES, MOST_POINTS[2])
    semiring = random.choice(("plus_times", "plus_times", "plus_times", *SEMIRINGS))
    allowed = [one for one in DTYPES if np.dtype(one).kind in SEMIRINGS[semiring]]
    dtype = random.choice(allowed)
    undefined = of_two and random.random() < 0.15 and semiring in ("plus_times", "min_plus", "max_plus")
    operands = []
    for labels in inputs:
        spread = {name: 1 if random.random() < 0.06 else sizes[name] for name in sorted(set(labels))}
        shape = tuple(spread[name] for name in labels)
        mine = np.dtype(dtype if random.random() < 0.85 else random.choice(allowed))
        elements = _values(values, mine, shape, small=semiring != "plus_times")
        if undefined and mine.kind == "f":
            elements[values.random(shape) < 0.02] = random.choice((np.nan, np.inf, -np.inf))
        operands.append(_placed_in_memory(values, random, elements, repeated=True))
    sizes = extents_of(inputs, operands)
    further = Random(f"further options {number}")
    options: dict[str, Any] = {}
    common = np.result_type(*operands)
    if common.char in WIDER and further.random() < 0.1:
        common = np.dtype(WIDER[common.char])
        options["dtype"] = common
    out = held = None
    if semiring != "plus_times":
        options["semiring"] = semiring
    if len(inputs) > 2:
        options["optimize"] = random.choice((True, False, "greedy"))
    if random.random() < 0.4 and common.kind in SEMIRINGS[semiring]:
        shape = tuple(sizes[name] for name in output)
        held = _values(values, common, shape, small=True)
        out = _placed_in_memory(values, random, held.copy(), repeated=False)
        if semiring == "plus_times" and common.kind != "b" and random.random() < 0.5:
            options["beta"] = random.choice({"u": (1, 2, 3), "i": (1, 2, -1)}.get(common.kind, (1, 0.5, -2.0)))
    elif random.random() < 0.5:
        options["order"] = random.choice("CFKA")
    if semiring == "plus_times" and common.kind in "ifc" and random.random() < 0.15:
        options["alpha"] = random.choice((2, -1, 3) if common.kind == "i" else (2, -0.5, 0.25))
    finite = semiring == "plus_times" or (semiring in WITH_EPILOGUES and all(map(np.size, operands)))
    if finite and not undefined and common.char not in "?e" and len(set(output)) == len(output):
        options |= _with_epilogue(further, values, output, sizes, common) if further.random() < 0.15 else {}
    plain = semiring == "plus_times" and not {"epilogue", "alpha", "beta"} & options.keys()
    if plain and further.random() < 0.1 and len(set(output)) == len(output):
        nbytes = common.itemsize * int(np.prod([max(1, sizes[name]) for name in output], initial=1))
        options["memory_limit"] = int(nbytes * further.choice((0.3, 1, 2, 4, 100)))
    threads = (random.choice((1, 2, 3)), random.choice((1, 2, 3)))
    quick, grains = random.random() < 0.6, random_grains(Random(f"grains {number}"))
    return Contraction(number, inputs, output, tuple(operands), out, options, threads, quick, held, grains)


def _with_epilogue(
    random: Random, values: np.random.Generator, output: str, sizes: dict[str, int], dtype: np.dtype
) -> dict[str, Any]:
    """An epilogue, with operands that have some of the output's indices in any order."""
    function = random.choice((added, scaled, doubled, *((halved,) if dtype.kind in "fc" else ())))
    given = []
    for _ in range(function.__code__.co_argcount - 1):
        labels = "".join(random.sample(output, random.randint(0, len(output))))
        elements = _values(values, dtype, tuple(sizes[name] for name in labels), small=True)
        given.append((_placed_in_memory(values, random, elements, repeated=True), labels))
    return {"epilogue": function, "epilogue_operands": given}


def extents_of(inputs: Sequence[str], operands: Sequence[np.ndarray]) -> dict[str, int]:
    """The size of every index: that of the operands that do not repeat a dimension of size 1 along it."""
    sizes: dict[str, int] = {}
    for labels, one in zip(inputs, operands, strict=True):
        for label, extent in zip(labels, one.shape, strict=True):
            sizes[label] = extent if sizes.get(label, 1) == 1 else sizes[label]
    return sizes


def _of_any(random: Random) -> tuple[tuple[str, ...], str, dict[str, int]]:
    """One to four operands with any indices, diagonals and repeated output indices among them."""
    names = "abcdefgh"[: random.randint(1, 8)]
    sizes = {name: random.choice(SMALL_SIZES) for name in names}
    inputs = tuple("".join(random.choices(names, k=random.randint(0, 4))) for _ in range(random.randint(1, 4)))
    used = sorted(set("".join(inputs)))
    output = "".join(random.sample(used, random.randint(0, len(used))))
    if output and random.random() < 0.1:
        output += random.choice(output)
    return inputs, output, _bounded({name: sizes[name] for name in used}, MOST_POINTS[0])


def _of_two(
    random: Random, large: Sequence[int] = LARGE_SIZES, most: int = MOST_POINTS[1]
) -> tuple[tuple[str, ...], str, dict[str, int]]:
    """Two operands with every kind of dimension, of sizes around the tiles of the devices."""
    names = random.sample("abcdef", random.randint(1, 6))
    kinds = {name: random.choice("MNKKC") for name in names}
    sizes = {name: random.choice(large if random.random() < 0.95 else (0,)) for name in names}
    left, right, output = (
        "".join(random.sample(chosen, len(chosen)))
        for chosen in ([name for name in names if kinds[name] in allowed] for allowed in ("MKC", "NKC", "MNC"))
    )
    return (left, right), output, _bounded(sizes, most)


def _of_records(random: Random) -> tuple[tuple[str, ...], str, dict[str, int]]:
    """Two operands with one long index, which is the first or the last one, and up to four of few places."""
    names = "abcd"[: random.randint(1, 4)]
    sizes = {name: random.choice((2, 2, 3, 3, 4, 5, 8)) for name in names} | {"n": random.choice(LONG_SIZES)}
    kinds = {name: random.choice("MNKKC") for name in names} | {"n": random.choice("MNCC")}

    def labels(allowed: str) -> str:
        chosen = [name for name in names if kinds[name] in allowed]
        random.shuffle(chosen)
        return "".join(chosen if kinds["n"] not in allowed else random.choice((["n", *chosen], [*chosen, "n"])))

    return (labels("MKC"), labels("NKC")), labels("MNC"), _bounded(sizes, MOST_POINTS[1])


def _bounded(sizes: dict[str, int], most: int) -> dict[str, int]:
    while np.prod([max(1, one) for one in sizes.values()], initial=1) > most:
        largest = max(sizes, key=lambda name: sizes[name])
        sizes[largest] = sizes[largest] // 2 or 1
    return sizes


def _values(random: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...], small: bool) -> np.ndarray:
    if dtype.kind == "b":
        return np.asarray(random.random(shape) < 0.6)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = (max(limits.min, -3), 3) if small else (limits.min, limits.max)
        return np.asarray(random.integers(low, high, shape, dtype, endpoint=True))
    real = random.uniform(-2, 2, shape)
    return np.asarray(real + 1j * random.uniform(-2, 2, shape) if dtype.kind == "c" else real).astype(dtype)


def _placed_in_memory(values: np.random.Generator, random: Random, one: np.ndarray, repeated: bool) -> np.ndarray:
    """The same elements (or, `repeated`, some of them over and over) elsewhere and otherwise in memory."""
    way = random.choice(("plain", "plain", "permuted", "gaps", "shifted", "shifted", "unaligned", "padded", "repeated"))
    if not one.ndim or way == "plain":
        return one
    if way == "repeated":
        if not repeated or 0 in one.shape:
            return one
        axis = random.randrange(one.ndim)
        if axis and axis == one.ndim - 1:  # windows that overlap
            long = np.concatenate([one[..., 0, :], one[..., 1:, 0]], -1)
            return np.lib.stride_tricks.sliding_window_view(long, one.shape[-1], -1)
        return np.broadcast_to(one.take([0], axis), one.shape)
    if way in ("permuted", "shifted", "unaligned"):
        order = list(range(one.ndim))
        if way == "permuted" or random.random() < 0.5:
            random.shuffle(order)
        inner = one.transpose(order)
        bytes_off = {"permuted": 0, "shifted": random.choice((16, 32, one.itemsize)), "unaligned": 1}[way]
        memory = np.zeros(one.nbytes + 128, np.uint8)
        start = -memory.__array_interface__["data"][0] % 64 + bytes_off
        place = memory[start : start + one.nbytes].view(one.dtype).reshape(inner.shape).transpose(np.argsort(order))
    elif way == "padded":
        place = np.zeros((*one.shape[:-1], one.shape[-1] + random.choice((1, 3, 16))), one.dtype)[..., : one.shape[-1]]
    else:
        steps = values.choice([1, 2, 3, -1, -2], one.ndim)
        spread = np.zeros([extent * abs(step) for extent, step in zip(one.shape, steps, strict=True)], one.dtype)
        place = spread[tuple(slice(None, None, int(step)) for step in steps)]
    place[...] = one
    return place
