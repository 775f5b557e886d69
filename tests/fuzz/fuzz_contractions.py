"""Trials of contractions: random index expressions, operands in memory in all ways and all options, by the definition.

A trial is made from its number alone. It decides the indices and sizes (empty ones, of one, around the tiles), element
types, how operands and `out` lie in memory (permuted, turned over, with gaps, repeated, one element or one byte off
their alignment), the order of the result, the semiring, alpha and beta, a wider type to compute in, an epilogue with
operands of permuted indices, a limit of memory, and the numbers of threads. Each call is made again, since later ones
take short cuts; then on another number of threads, by a plan, and with `out` over an operand, which must be refused.
All of them give the same bits. Errors are bounded as `einsum_checks` says; operands of two may have infinite and
undefined elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from einsum_checks import assert_close, reference, roundings
from fuzz_trials import Counts, same_bits, surroundings

import tilewright as tw
from tilewright.runtime.devices import Device

DTYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f4", "f8", "f8", "c8", "c16")
SEMIRINGS = {
    "plus_times": "biufc", "min_plus": "biuf", "max_plus": "biuf", "max_times": "biuf", "or_and": "biu",
    "log_sum_exp": "f",
}  # fmt: skip
SMALL_SIZES = (0, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9)
LARGE_SIZES = (1, 3, 8, 12, 16, 17, 24, 31, 33, 48, 64, 65, 100, 129)
MOST_POINTS = (1500, 200_000)
"""Of the index space of any expression, and of those of two operands."""
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

    @property
    def expression(self) -> str:
        return ",".join(self.inputs) + "->" + self.output

    def __str__(self) -> str:
        ways = "\n".join(f"  {_told(one)}" for one in self.operands)
        into = "" if self.out is None else f"\n  into {_told(self.out)}"
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        how = f"threads={self.threads} quick={self.quick}"
        return f"contraction {self.number}: {self.expression!r} {options} {how}\n{ways}{into}"


@dataclass(frozen=True)
class Failure:
    """A way of computing a contraction that went wrong, and how."""

    trial: Contraction
    way: str
    problem: str

    def __str__(self) -> str:
        return f"{self.trial}\n{self.way}: {self.problem}"


def _told(one: np.ndarray) -> str:
    place = one.__array_interface__["data"][0] % 64
    return f"{one.dtype} {one.shape}, strides {one.strides}, {place} bytes after a multiple of 64"


# --- making trials ----------------------------------------------------------------------------------------------------


def make_trial(number: int) -> Contraction:
    """The contraction of this number."""
    random, values = Random(f"contraction {number}"), np.random.default_rng(number)
    of_two = random.random() < 0.6
    inputs, output, sizes = _of_two(random) if of_two else _of_any(random)
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
    sizes = _extents(inputs, operands)
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
    if semiring == "plus_times" and common.char not in "?e" and len(set(output)) == len(output):
        options |= _with_epilogue(further, values, output, sizes, common) if further.random() < 0.15 else {}
    if semiring == "plus_times" and not {"epilogue", "alpha", "beta"} & options.keys() and further.random() < 0.1:
        nbytes = common.itemsize * int(np.prod([max(1, sizes[name]) for name in output], initial=1))
        options["memory_limit"] = int(nbytes * further.choice((0.3, 1, 2, 4, 100)))
    threads = (random.choice((1, 2, 3)), random.choice((1, 2, 3)))
    return Contraction(number, inputs, output, tuple(operands), out, options, threads, random.random() < 0.6, held)


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


def _extents(inputs: Sequence[str], operands: Sequence[np.ndarray]) -> dict[str, int]:
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


def _of_two(random: Random) -> tuple[tuple[str, ...], str, dict[str, int]]:
    """Two operands with every kind of dimension, of sizes around the tiles of the devices."""
    names = random.sample("abcdef", random.randint(1, 6))
    kinds = {name: random.choice("MNKKC") for name in names}
    sizes = {name: random.choice(LARGE_SIZES if random.random() < 0.95 else (0,)) for name in names}
    left, right, output = (
        "".join(random.sample(chosen, len(chosen)))
        for chosen in ([name for name in names if kinds[name] in allowed] for allowed in ("MKC", "NKC", "MNC"))
    )
    return (left, right), output, _bounded(sizes, MOST_POINTS[1])


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


# --- running trials ---------------------------------------------------------------------------------------------------


def run_trial(trial: Contraction, device: Device, counts: Counts | None = None) -> Failure | None:
    """The first way of computing a contraction that gives an error or too wrong an answer."""
    counts = counts or Counts()
    counts.trials += 1
    semiring = trial.options.get("semiring", "plus_times")
    common = trial.options.get("dtype", np.result_type(*trial.operands))
    refused = common.kind not in SEMIRINGS[semiring]
    counts.refused += refused
    with surroundings(trial.threads[0], trial.quick), np.errstate(all="ignore"):
        if refused:
            return _must_raise(trial, device, TypeError, trial.options, "a type that the semiring is not for")
        expected = _expected(trial, common)
        first: np.ndarray | None = None
        for way, call in _ways(trial, device):
            counts.versions += 1
            try:
                result = call()
            except MemoryError:
                if "memory_limit" not in trial.options:
                    raise
                counts.refused += 1
                return None
            except Exception as error:
                return Failure(trial, f"{device.name}, {way}", f"{type(error).__name__}: {error}")
            problem = _problem(trial, result, expected, common) or _beside(trial)
            if problem is None and first is not None and not same_bits(result, first):
                problem = "other bits than of the first call"
            if problem is not None:
                return Failure(trial, f"{device.name}, {way}", problem)
            first = np.copy(result) if first is None else first
        return _overlapping(trial, device) if "memory_limit" not in trial.options else None


def _ways(trial: Contraction, device: Device) -> Any:
    options = trial.options | {"target": device}

    def compute(threads: int) -> np.ndarray:
        if trial.out is not None:
            trial.out[...] = trial.held
        with tw.num_threads(threads):
            return tw.einsum(trial.expression, *trial.operands, out=trial.out, **options)

    def by_plan() -> np.ndarray:
        named = {"compute_dtype" if name == "dtype" else name: value for name, value in options.items()}
        planned = tw.plan(trial.expression, *trial.operands, out_dtype=None, **named)
        if trial.out is not None:
            trial.out[...] = trial.held
        extras = [one for one, _ in options.get("epilogue_operands", ())]
        return planned(*trial.operands, *extras, out=trial.out)

    first, other = trial.threads
    yield "the first call", lambda: compute(first)
    yield "the second call", lambda: compute(first)
    yield f"a call on {other} threads", lambda: compute(other)
    if "memory_limit" not in options:
        yield "by a plan", by_plan


def _expected(trial: Contraction, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The result, and the magnitude that its error is relative to."""
    semiring = trial.options.get("semiring", "plus_times")
    expected, magnitude = reference(trial.inputs, trial.output, trial.operands, dtype, semiring)
    empty = any(0 in one.shape for one in trial.operands)  # such sums are the neutral element, whatever else is there
    if dtype.kind in "fc" and not empty and not all(np.isfinite(one).all() for one in trial.operands):
        expected, _ = reference(*_folded_alone(trial, dtype, semiring), dtype, semiring)
    alpha, beta = trial.options.get("alpha", 1), trial.options.get("beta", 0)
    if alpha != 1:
        expected, magnitude = alpha * expected, abs(alpha) * magnitude
    if "epilogue" in trial.options:
        expected, magnitude = _after(trial, expected, magnitude)
    if beta:
        assert trial.held is not None
        held = trial.held.astype(expected.dtype)
        expected, magnitude = expected + beta * held, magnitude + (abs(beta) * abs(held) if dtype.kind in "fc" else 0)
    return np.asarray(expected), np.asarray(magnitude)


def _after(trial: Contraction, expected: np.ndarray, magnitude: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The result after the epilogue."""
    function = trial.options["epilogue"]
    extras = []
    for one, labels in trial.options["epilogue_operands"]:
        kept = [name for name in trial.output if name in labels]
        moved = one.transpose([labels.index(name) for name in kept]).astype(expected.dtype)
        sizes = dict(zip(kept, moved.shape, strict=True))
        extras.append(moved.reshape([sizes.get(name, 1) for name in trial.output]))
    value = np.broadcast_to(function(expected, *extras), expected.shape)
    if magnitude.dtype.kind not in "f":
        return value, magnitude
    return value, np.broadcast_to(MAGNITUDES[function](magnitude, *map(np.abs, extras)), expected.shape)


def _folded_alone(
    trial: Contraction, dtype: np.dtype, semiring: str
) -> tuple[tuple[str, ...], str, tuple[np.ndarray, ...]]:
    """The trial once each operand is folded over the indices that no other has, as `Semiring` says."""
    of_size = [
        {label for label, extent in zip(labels, one.shape, strict=True) if extent > 1}
        for labels, one in zip(trial.inputs, trial.operands, strict=True)
    ]
    inputs, operands = [], []
    for number, (labels, one) in enumerate(zip(trial.inputs, trial.operands, strict=True)):
        others = set(trial.output).union(*of_size[:number], *of_size[number + 1 :])
        kept = "".join(label for label in labels if label in others)
        operands.append(reference((labels,), kept, (one,), dtype, semiring)[0])
        inputs.append(kept)
    return tuple(inputs), trial.output, tuple(operands)


def _problem(
    trial: Contraction, result: np.ndarray, expected: tuple[np.ndarray, np.ndarray], dtype: np.dtype
) -> str | None:
    """What is wrong with a result: its type, its memory, or its elements."""
    if np.asarray(result).dtype != dtype:
        return f"{np.asarray(result).dtype} where {dtype} is expected"
    if trial.out is not None and result is not trial.out and trial.out.ndim:
        return "out is not what is returned"
    value, magnitude = expected
    semiring = trial.options.get("semiring", "plus_times")
    sizes = _extents(trial.inputs, trial.operands)
    count = roundings(trial.inputs, trial.output, sizes) + 3
    actual = np.asarray(result)
    if actual.shape != value.shape:
        return f"{actual.shape} where {value.shape} is expected"
    if dtype.kind == "f":
        special = ~np.isfinite(value)
        alike = (actual == value.astype(dtype)) | (np.isnan(actual) & np.isnan(value))
        if not np.all(alike[special]):
            return f"{actual[special]} where {value[special]} is expected"
        actual, value, magnitude = (np.where(special, 0, one) for one in (actual, value, magnitude))
    try:
        assert_close(actual, value, magnitude, dtype, count, semiring)
    except AssertionError as error:
        return str(error)
    return None


def _beside(trial: Contraction) -> str | None:
    """Whether the memory around and between the elements of `out`, which is zero, was written to."""
    if trial.out is None:
        return None
    kept, memory = trial.out.copy(), trial.out
    trial.out[...] = 0
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    written = bool(memory.any())
    trial.out[...] = kept
    return "elements beside out were written" if written else None


# --- calls that must be refused ---------------------------------------------------------------------------------------


def _overlapping(trial: Contraction, device: Device) -> Failure | None:
    """`out` in an operand's memory: it would be written while that is read."""
    result = tw.einsum(trial.expression, *trial.operands, **(trial.options | {"beta": 0}))
    for number, one in enumerate(trial.operands):
        if one.flags.c_contiguous and 0 < np.asarray(result).nbytes <= one.nbytes:
            memory = one.reshape(-1).view(np.uint8)
            start = (trial.number % (one.nbytes - result.nbytes + 1)) // result.itemsize * result.itemsize
            out = memory[start : start + result.nbytes].view(result.dtype).reshape(np.shape(result))
            options = {name: value for name, value in trial.options.items() if name != "order"} | {"out": out}
            return _must_raise(trial, device, ValueError, options, f"out in the memory of operand {number}")
    return None


def _must_raise(
    trial: Contraction, device: Device, kind: type[Exception], options: dict[str, Any], what: str
) -> Failure | None:
    try:
        tw.einsum(trial.expression, *trial.operands, **options, target=device)
    except kind:
        return None
    except Exception as error:
        return Failure(trial, f"{device.name}, {what}", f"{type(error).__name__}: {error}")
    return Failure(trial, f"{device.name}, {what}", "was not refused")
