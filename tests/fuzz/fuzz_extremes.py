"""Trials of numbers at the ends of their types, against NumPy to the last bit.

Programs are lines of text, as those of fuzz_numpy.py, of operations that have one right result: integers that wrap
around, division by zero, shifts by more than the width, the least integer by -1, nan and infinities in minima and
comparisons, -0.0, conversions, places of greatest elements, folds with operators that are not commutative, indices
that are negative, repeated and out of range (fuzz_extreme_lines.py).

The same array may be several arguments, arguments may overlap one another, and results may be written into them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

import fuzz_numpy
import numpy as np
from fuzz_extreme_lines import HERE, LINES, THERE, Extremes
from fuzz_numpy import NumpyTrial
from fuzz_trials import Counts, Failure, laid_out

import tilewright as tw
from tilewright.runtime.devices import Device

TYPES = ("bool_", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "f32", "f64", "c64")
SIZES = (0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127)
LARGE, HUGE = (1000, 4099), (20_011, 100_003)
ONE_BY_ONE = ("integers", "floats", "compared", "chosen", "cast", "logic", "folded", "scanned", "placed")
"""The lines that make no arrays of as many elements as the product of two."""

MOST_ELEMENTS, MOST_LARGE, MOST_PRODUCT = 1500, 400_000, 20_000_000
LINES_TRIED = 14


def make_trial(number: int) -> NumpyTrial:
    """The trial of this number."""
    return written(number)[0]


def written(number: int) -> tuple[NumpyTrial, list[str]]:
    """The trial of this number, and what was refused on the way."""
    random = Random(f"extreme trial {number}")
    names = ("n", "m", "k")
    large = random.random() < 0.2
    kinds = random.sample(TYPES, random.randint(1, 3))
    parameters = []
    for name in "abcde"[: random.randint(2, 5)]:
        sizes = tuple(random.choice((*names, "n", "3")) for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3))))
        parameters.append((name, random.choice(kinds), sizes))
    huge = large and max(len(sizes) for _, _, sizes in parameters) < 2
    arguments = tuple(_arguments(random, parameters, names, large, most) for most in (huge, False))
    shown = tuple((name, kind, tuple(int(s) if s.isdigit() else s for s in sizes)) for name, kind, sizes in parameters)
    trial = NumpyTrial(
        number,
        shown,
        arguments=arguments,
        large=large,
        generic=random.random() < 0.2,
        further=(HERE, THERE),
        exact=True,
    )
    scope, refused = Extremes(random), list[str]()
    others = {name: value for (name, _, _), value in zip(parameters, arguments[1], strict=True)}
    for (name, _, _), value in zip(parameters, arguments[0], strict=True):
        scope.keep(name, value, False)
    lines = [one for one in LINES if one.__name__ in ONE_BY_ONE] if huge else LINES
    for _ in range(random.randint(4, LINES_TRIED)):
        write = random.choice(lines)
        line = write(scope)
        if line is not None and (write.__name__ in ONE_BY_ONE or _is_soon_done(line[0], scope, others)):
            trial = _longer(trial, scope, others, refused, *line)
    made = [one.name for one in scope.known if one.name.startswith("v")] or [parameters[0][0]]
    results = (made[-1], *random.sample(made[:-1], min(len(made) - 1, random.randint(0, 3))))
    unsigned = frozenset(one for one in results if "zero" in scope.marked(one))
    return fuzz_numpy._replaced(trial, results=results, unsigned=unsigned), refused


def _is_soon_done(text: str, scope: Extremes, others: dict[str, Any]) -> bool:
    """Whether NumPy computes in time what may have as many elements as the product of the two largest arrays."""
    if re.search(r"take\(.*, axis=.*mode='wrap'\)", text):
        return False  # NumPy goes one extent at a time to indices, which may be 2^63
    names = set(re.findall(r"\w+", text))
    for values in ({one.name: one.value for one in scope.known}, others):
        *_, second, first = sorted([1, 1, *(np.size(value) for name, value in values.items() if name in names)])
        if first * second > MOST_PRODUCT:
            return False
    return True


def _longer(
    trial: NumpyTrial, scope: Extremes, others: dict[str, Any], refused: list[str], text: str, own: str
) -> NumpyTrial:
    """One more line, if it is one to be kept."""
    name = f"v{len(trial.lines)}"
    here = {one.name: one.value for one in scope.known}
    names = {"np": np, **fuzz_numpy.NUMPYS, **HERE}
    with fuzz_numpy._quiet():
        try:
            value, other = (eval(text, {**names, **values}) for values in (here, others))
        except (ValueError, TypeError, IndexError, OverflowError):
            return trial
    most = MOST_LARGE if trial.large else MOST_ELEMENTS
    kept = [
        np.ndim(one) < 5 and np.size(one) <= most and np.asarray(one).dtype.kind in "biufc" for one in (value, other)
    ]
    if not (all(kept) and np.size(value)):
        return trial
    longer = fuzz_numpy._replaced(trial, lines=(*trial.lines, f"{name} = {text}"), results=(name,))
    try:
        longer.core()
    except (ValueError, TypeError, IndexError, AttributeError, OverflowError) as error:
        refused.append(f"{text}: {type(error).__name__}: {error}")
        return trial
    scope.keep(name, value, False)
    scope.marks[name] = scope.marked(text, own) if np.asarray(value).dtype.kind in "fc" else frozenset()
    others[name] = other
    return longer


def _arguments(
    random: Random, parameters: Sequence[Any], names: Sequence[str], large: bool, huge: bool
) -> tuple[Any, ...]:
    most = max(sum(not one.isdigit() for one in sizes) for _, _, sizes in parameters)
    limit = MOST_LARGE if large else MOST_ELEMENTS
    fewer = [one for one in ((*SIZES, *LARGE) if large else SIZES) if max(one, 1) ** most <= limit]
    values = {name: random.choice(fewer) for name in names}
    if huge:
        values["n"] = random.choice(HUGE)
    found: list[Any] = []
    for _, kind, sizes in parameters:
        shape = tuple(values.get(one, 3) for one in sizes)
        alike = [one for one in found if shape and one.shape == shape and one.dtype == dtype_of(kind)]
        if alike and random.random() < 0.3:
            found.append(random.choice(alike))
        else:
            value = extreme(random, shape, dtype_of(kind))
            found.append(laid_out(value, random) if shape else value[()])
    return tuple(found)


def dtype_of(kind: str) -> np.dtype[Any]:
    """NumPy's name of a type."""
    return np.dtype({"bool_": "bool", "c64": "complex64"}.get(kind, getattr(tw, kind).scalar.numpy))


def extreme(random: Random, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Numbers of which many are at the ends of their type."""
    draw = np.random.default_rng(random.randrange(2**32))
    if dtype.kind == "b":
        return draw.random(shape) < random.choice((0.02, 0.5, 0.98))
    if dtype.kind == "c":
        return draw.integers(-16, 17, shape).astype(dtype) / 8 + 1j * draw.integers(-16, 17, shape).astype(dtype) / 8
    if dtype.kind in "iu":
        info, bits = np.iinfo(dtype), 8 * dtype.itemsize
        ends = [0, 1, 2, 3, 7, bits - 1, bits, info.min, info.min + 1, info.max, info.max - 1, 2 ** (bits // 2)]
        ends += [2 ** (bits // 2) - 1, 2 ** (bits - 2)] + [-1, -2, -7, -(2 ** (bits // 2))] * (dtype.kind == "i")
        usual: Any = draw.integers(max(info.min, -9), 10, shape).astype(dtype)
    else:
        found = np.finfo(dtype)
        ends = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, found.max, -found.max]
        ends += [found.tiny, -found.tiny, found.eps, 1 + found.eps, 2 / found.eps, 2 / found.eps + 2, 255.5, -129.0]
        usual = (draw.integers(-40, 41, shape) / 8).astype(dtype)
    rare = random.choice((0.0, 0.05, 0.5, 1.0))
    return np.where(draw.random(shape) < rare, draw.choice(np.array(ends, dtype), shape), usual)


# --- running ----------------------------------------------------------------------------------------------------------


def run_trial(trial: NumpyTrial, device: Device, counts: Counts | None = None) -> Failure | None:
    """The first way of running a trial that gives an error or another answer than NumPy."""
    failure = fuzz_numpy.run_trial(trial, device, counts)
    if failure is None and not trial.generic:
        try:
            failure = _into_others(trial, device)
        except Exception as error:
            failure = Failure(trial, "results into arrays", f"{type(error).__name__}: {error}")  # type: ignore[arg-type]
    return failure


def _into_others(trial: NumpyTrial, device: Device) -> Failure | None:
    """What is wrong with calls whose results go into arrays in Fortran's order, turned over, or among the arguments,
    and of which arguments overlap.
    """
    program, random = trial.program(), Random(trial.number)
    for given in trial.arguments:
        for way in ("Fortran's order", "turned over", "into arguments", "overlapping"):
            arguments = _overlapping(given) if way == "overlapping" else tuple(np.copy(one) for one in given)
            with fuzz_numpy._quiet():
                wanted = [np.copy(one) for one in trial.on_arrays(arguments)]
                out = tuple(_place(one, way, arguments, random) for one in wanted)
                if way == "into arguments" and len({id(one) for one in out}) < len(out):
                    continue
                results = program(*arguments, target=device, out=out if len(out) > 1 else out[0])
            results = results if isinstance(results, tuple) else (results,)
            found = [one if place is None else place for one, place in zip(results, out, strict=True)]
            problem = fuzz_numpy._difference(trial, wanted, found)
            if problem is not None:
                return Failure(trial, f"results {way}", problem[1])  # type: ignore[arg-type]
    return None


def _place(wanted: Any, way: str, arguments: Sequence[Any], random: Random) -> Any:
    if not wanted.ndim:
        return None
    if way == "into arguments":
        fits = [one for one in arguments if np.shape(one) == wanted.shape and one.dtype == wanted.dtype]
        if fits:
            return random.choice(fits)
    if way == "turned over":
        return np.empty_like(wanted, order="C")[tuple(slice(None, None, -1) for _ in wanted.shape)]
    return np.empty(wanted.shape, wanted.dtype, order="F")


def _overlapping(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments, those of one type and shape as views of one array, each begun an element or row later."""
    found: list[Any] = []
    for place, one in enumerate(arguments):
        if not np.ndim(one) or not one.size:
            found.append(np.copy(one)[()])
            continue
        alike = [n for n, other in enumerate(arguments) if np.shape(other) == one.shape and other.dtype == one.dtype]
        first = np.concatenate([arguments[alike[0]], one])
        base = found[alike[0]].base if alike[0] < place else first
        found.append(base[alike.index(place) % (len(base) - len(one) + 1) :][: len(one)])
    return tuple(found)
