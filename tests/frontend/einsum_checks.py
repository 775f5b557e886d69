"""What the einsum tests share: running through the interpreter or a device, a plain reference, and error bounds.

The reference evaluates the definition: every operand is spread over the whole index space by fancy indexing, the map is
folded over the operands, the combine over the axes that are not in the output, all in a wider type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any
from unittest import mock

import numpy as np

from tilewright.frontend import einsum as einsum_module
from tilewright.frontend import einsum_bind
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Program
from tilewright.ir.verifier import verify
from tilewright.runtime.devices import Device

BACKENDS = ("interpreter", "cpu", "opencl")


class Interpreted:
    """A program as something to call like an executable, run by the reference interpreter after verification."""

    def __init__(self, program: Program) -> None:
        verify(program)
        self.program = program

    def __call__(self, *arguments: Any, out: Any = None) -> Any:
        (result,) = interpret(self.program, [one[()] if np.ndim(one) == 0 else one for one in arguments])
        if out is None:
            return result
        assert out.shape == result.shape and out.dtype == result.dtype
        out[...] = result
        return out

    def explain(self) -> str:
        return "interpreted"


def _interpreted(program: Program, device: Device, tiles: object = (), hurried: bool = False) -> Interpreted:
    return Interpreted(program)


@contextmanager
def backend(name: str) -> Iterator[str]:
    """Inside, `einsum(..., target=...)` with the yielded target runs on the interpreter, the CPU or OpenCL."""
    if name != "interpreter":
        yield name
        return
    caches = mock.patch.multiple(einsum_module, _CALLS={}, _RECENT={}, record_key=lambda *call: None)
    with mock.patch.object(einsum_bind, "executable_of", _interpreted), caches:
        yield "cpu"


_MAPS = {"plus_times": np.multiply, "max_times": np.multiply, "or_and": np.bitwise_and}
_COMBINES = {
    "plus_times": np.add, "min_plus": np.minimum, "max_plus": np.maximum, "max_times": np.maximum,
    "or_and": np.bitwise_or, "log_sum_exp": np.logaddexp,
}  # fmt: skip


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A type in which the reference of this dtype is computed: exact modulo 2**64, or with more digits."""
    if dtype.kind in "iu":
        return np.dtype(np.int64 if dtype.kind == "i" else np.uint64)
    return {"f": np.dtype(np.longdouble), "c": np.dtype(np.clongdouble)}.get(dtype.kind, dtype)


def neutral_of(semiring: str, dtype: np.dtype[Any]) -> Any:
    if semiring in ("plus_times", "or_and"):
        return dtype.type(0)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.max if semiring == "min_plus" else limits.min
    if dtype.kind == "b":
        return semiring == "min_plus"
    return dtype.type(np.inf if semiring == "min_plus" else -np.inf)


def reference(
    inputs: Sequence[str],
    output: str,
    operands: Sequence[np.ndarray],
    dtype: np.dtype[Any],
    semiring: str = "plus_times",
) -> tuple[np.ndarray, np.ndarray]:
    """The result in a wide type; and the same of absolute values, which the error is relative to (0 for integers)."""
    names = sorted(set("".join(inputs)))
    sizes = dict.fromkeys(names, 1)
    for labels, operand in zip(inputs, operands, strict=True):
        for name, extent in zip(labels, operand.shape, strict=True):
            sizes[name] = extent if sizes[name] == 1 else sizes[name]
    grid = dict(zip(names, np.indices([sizes[name] for name in names], sparse=True), strict=True))
    times = _MAPS.get(semiring, np.add)
    elements = []
    for labels, operand in zip(inputs, operands, strict=True):
        index = tuple(0 if extent == 1 else grid[name] for name, extent in zip(labels, operand.shape, strict=True))
        elements.append(operand[index].astype(wide(dtype)))
    shape = [sizes[name] for name in names]
    axes = tuple(n for n, name in enumerate(names) if name not in output)
    kept = "".join(name for name in names if name in output)
    folded = _folded(np.broadcast_to(reduce(times, elements), shape), axes, semiring, dtype)
    expected = _placed(folded, kept, output, neutral_of(semiring, dtype))
    if dtype.kind not in "fc":
        return expected, np.zeros_like(expected)
    sizes_of = np.broadcast_to(reduce(times, map(np.abs, elements)), shape)
    bound = sizes_of.sum(axes) if semiring == "plus_times" else sizes_of.max(axes, initial=0)
    return expected, _placed(bound, kept, output, 0)


def _folded(values: np.ndarray, axes: tuple[int, ...], semiring: str, dtype: np.dtype[Any]) -> np.ndarray:
    combine = _COMBINES[semiring]
    if dtype.kind == "b":
        combine = np.logical_and if semiring == "min_plus" else np.logical_or
    for axis in sorted(axes, reverse=True):
        values = combine.reduce(values, axis=axis, initial=neutral_of(semiring, dtype))
    return np.asarray(values, dtype=wide(dtype))


def _placed(values: np.ndarray, kept: str, output: str, fill: Any) -> np.ndarray:
    """The axes in the output's order, repeated output letters as diagonals."""
    distinct = "".join(dict.fromkeys(output))
    values = values.transpose([kept.index(name) for name in distinct])
    if distinct == output:
        return values
    sizes = dict(zip(distinct, values.shape, strict=True))
    placed = np.full([sizes[name] for name in output], fill, values.dtype)
    grid = dict(zip(distinct, np.indices(values.shape), strict=True))
    placed[tuple(grid[name] for name in output)] = values
    return placed


def roundings(inputs: Sequence[str], output: str, sizes: dict[str, int]) -> int:
    """An upper bound of the roundings between any operand's element and the result.

    A product of N factors is rounded N - 1 times. A fold over k terms rounds any of them at most k times, in whatever
    order; folds nested in one another, or spread over the steps of a path, have sizes whose product is the number K of
    contracted points, and whose sum is so at most K plus the number of folds.
    """
    contracted = [sizes[name] for name in set("".join(inputs)) if name not in output]
    return int(np.prod(contracted, initial=1)) + len(contracted) + len(inputs)


def assert_close(
    result: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, dtype: np.dtype[Any], count: int, semiring: str
) -> None:
    """Exact for integers; |result - expected| <= gamma(count) * magnitude + half an ulp of the stored type otherwise.

    gamma(n) = n u / (1 - n u) with the unit roundoff u of the type that is accumulated in (f32 for f16). A complex
    product is off by at most sqrt(5) u in modulus, so complex counts are tripled.
    """
    result = np.asarray(result)
    assert result.shape == expected.shape
    if dtype.kind in "biu":
        np.testing.assert_array_equal(result, expected.astype(dtype))
        return
    real = np.dtype({"c": dtype.char.lower()}.get(dtype.kind, dtype.char))
    unit = np.finfo(np.float32 if real == np.float16 else real).eps / 2
    times = {"c": 3, "f": 1}[dtype.kind] * count
    bound = times * unit / (1 - times * unit) * magnitude
    if semiring == "log_sum_exp":
        # Each logaddexp adds a few ulp of its result or of 1 (log, exp and log1p of the device are good to 4 ulp).
        bound = 16 * times * unit * (magnitude + np.log(count) + 1)
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = np.asarray(expected, dtype=dtype)
        parts = (
            (wanted.real, result.real),
            (wanted.imag, result.imag),
        )  # an infinite one may stand by an undefined one
        same = np.logical_and.reduce([(one == other) | (np.isnan(one) & np.isnan(other)) for one, other in parts])
        stored = np.finfo(real).eps * np.abs(expected) + np.finfo(real).smallest_subnormal
        close = np.abs(result.astype(expected.dtype) - expected) <= bound + stored
    assert np.all(close | same), f"off by {np.abs(result - expected)}, allowed {bound + stored}"
