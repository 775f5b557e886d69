"""Trials of contractions: random ones, by the definition.

Each call is made again, since later ones take short cuts; then on another number of threads, by a plan, and with `out`
over an operand, which must be refused. All of them give the same bits. Errors are bounded as `einsum_checks` says;
operands of two may have infinite and undefined elements. Some are computed in related ways too (`fuzz_related`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from einsum_checks import assert_close, reference, roundings
from fuzz_related import related
from fuzz_trials import Counts, same_bits, surroundings
from random_contractions import MAGNITUDES, SEMIRINGS, Contraction, extents_of, make_trial

import tilewright as tw
from tilewright.runtime.devices import Device

__all__ = ["Contraction", "Failure", "make_trial", "run_trial"]


@dataclass(frozen=True)
class Failure:
    """A way of computing a contraction that went wrong, and how."""

    trial: Contraction
    way: str
    problem: str

    def __str__(self) -> str:
        return f"{self.trial}\n{self.way}: {self.problem}"


def run_trial(trial: Contraction, device: Device, counts: Counts | None = None) -> Failure | None:
    """The first way of computing a contraction that gives an error or too wrong an answer."""
    counts = counts or Counts()
    counts.trials += 1
    semiring = trial.options.get("semiring", "plus_times")
    common = trial.options.get("dtype", np.result_type(*trial.operands))
    refused = common.kind not in SEMIRINGS[semiring]
    counts.refused += refused
    with surroundings(trial.threads[0], trial.quick, further_grains=trial.grains), np.errstate(all="ignore"):
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
        for way, call in related(trial, device):
            counts.versions += 1
            problem = _problem(trial, call(), expected, common, into=False)
            if problem is not None:
                return Failure(trial, f"{device.name}, {way}", problem)
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
    trial: Contraction, result: np.ndarray, expected: tuple[np.ndarray, np.ndarray], dtype: np.dtype, into: bool = True
) -> str | None:
    """What is wrong with a result: its type, its memory, or its elements."""
    if np.asarray(result).dtype != dtype:
        return f"{np.asarray(result).dtype} where {dtype} is expected"
    if into and trial.out is not None and result is not trial.out and trial.out.ndim:
        return "out is not what is returned"
    value, magnitude = expected
    semiring = trial.options.get("semiring", "plus_times")
    sizes = extents_of(trial.inputs, trial.operands)
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
