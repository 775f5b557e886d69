"""Random contractions against the definition, on every backend: all dtypes, semirings, strides, odd and zero sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from einsum_checks import BACKENDS, assert_close, backend, reference, roundings
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.frontend.einsum import einsum

DTYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
SEMIRING_KINDS = {
    "plus_times": "biufc", "min_plus": "biuf", "max_plus": "biuf", "max_times": "biuf", "or_and": "biu",
    "log_sum_exp": "f",
}  # fmt: skip
LARGEST_SPACE = 1500


@dataclass(frozen=True)
class Case:
    inputs: tuple[str, ...]
    output: str
    sizes: dict[str, int]
    operands: list[np.ndarray]
    semiring: str
    optimize: object

    @property
    def expression(self) -> str:
        return ",".join(self.inputs) + "->" + self.output


def _values(random: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...], small: bool) -> np.ndarray:
    if dtype.kind == "b":
        return random.random(shape) < 0.6
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = (max(limits.min, -3), 3) if small else (limits.min, limits.max)
        return random.integers(low, high, shape, dtype, endpoint=True)
    values = random.uniform(-2, 2, shape)
    return (values + 1j * random.uniform(-2, 2, shape)).astype(dtype) if dtype.kind == "c" else values.astype(dtype)


def _strided(random: np.random.Generator, values: np.ndarray, kind: str) -> np.ndarray:
    """The values (or some of them over and over, for stride 0) under other strides."""
    if kind == "permuted":
        order = random.permutation(values.ndim)
        return values.transpose(order).copy().transpose(np.argsort(order))
    if kind == "gaps" and values.ndim:
        steps = random.choice([1, 2, 3, -1, -2], values.ndim)
        spread = np.zeros([extent * abs(step) for extent, step in zip(values.shape, steps, strict=True)], values.dtype)
        view = spread[tuple(slice(None, None, step) for step in steps)]
        view[...] = values
        return view
    if kind == "zero" and values.ndim and 0 not in values.shape:
        axis = int(random.integers(values.ndim))
        return np.broadcast_to(values.take([0], axis), values.shape)
    return values


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = "abcdefgh"[: draw(st.integers(1, 8))]
    sizes = {name: draw(st.sampled_from([0, 1, 2, 2, 3, 3, 5, 7])) for name in names}
    inputs = draw(st.lists(st.lists(st.sampled_from(names), max_size=4).map("".join), min_size=1, max_size=4))
    used = sorted(set("".join(inputs)))
    while np.prod([max(1, sizes[name]) for name in used], initial=1) > LARGEST_SPACE:
        largest = max(used, key=lambda name: sizes[name])
        sizes[largest] = 2 if sizes[largest] > 2 else 1
    output = "".join(draw(st.permutations(used))[: draw(st.integers(0, len(used)))]) if used else ""
    if output and draw(st.integers(0, 9)) == 0:
        output += draw(st.sampled_from(output))
    semiring = draw(st.sampled_from(["plus_times", "plus_times", *SEMIRING_KINDS]))
    allowed = [one for one in DTYPES if np.dtype(one).kind in SEMIRING_KINDS[semiring]]
    dtype = draw(st.sampled_from(allowed))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    operands = []
    for labels in inputs:
        kept = {name: 1 if draw(st.integers(0, 9)) == 0 else sizes[name] for name in set(labels)}
        shape = tuple(kept[name] for name in labels)
        mine = np.dtype(dtype if draw(st.integers(0, 4)) else draw(st.sampled_from(allowed)))
        values = _values(random, mine, shape, small=semiring != "plus_times")
        operands.append(_strided(random, values, draw(st.sampled_from(["plain", "permuted", "gaps", "zero"]))))
    given_sizes = dict.fromkeys(used, 1)
    for labels, operand in zip(inputs, operands, strict=True):
        for name, extent in zip(labels, operand.shape, strict=True):
            given_sizes[name] = extent if extent != 1 else given_sizes[name]
    return Case(tuple(inputs), output, given_sizes, operands, semiring, draw(st.sampled_from([True, False, "greedy"])))


@pytest.mark.parametrize("where", BACKENDS)
@given(cases())
def test_random_contractions(where: str, case: Case) -> None:
    dtype = np.result_type(*(one.dtype for one in case.operands))
    if dtype.kind not in SEMIRING_KINDS[case.semiring]:
        return
    expected, magnitude = reference(case.inputs, case.output, case.operands, dtype, case.semiring)
    with backend(where) as target:
        result = einsum(case.expression, *case.operands, semiring=case.semiring, optimize=case.optimize, target=target)
    assert np.asarray(result).dtype == dtype
    count = roundings(case.inputs, case.output, case.sizes)
    assert_close(result, expected, magnitude, dtype, count, case.semiring)


@st.composite
def larger_cases(draw: st.DrawFn) -> Case:
    """Two operands with every kind of dimension, of sizes around the tiles of the devices."""
    names = draw(st.permutations("abcdef"))[: draw(st.integers(2, 5))]
    sizes = {name: draw(st.sampled_from([3, 16, 17, 31, 64, 65, 100])) for name in names}
    while np.prod(list(sizes.values())) > 400_000:
        sizes[max(sizes, key=lambda name: sizes[name])] = draw(st.sampled_from([2, 5, 9]))
    kinds = {name: draw(st.sampled_from(["M", "N", "K", "K", "C"])) for name in names}
    left, right, output = (
        "".join(draw(st.permutations([name for name in names if kinds[name] in allowed])))
        for allowed in ("MKC", "NKC", "MNC")
    )
    dtype = np.dtype(draw(st.sampled_from(["i1", "i4", "i8", "f2", "f4", "f4", "f8", "c8", "c16"])))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    operands = [
        _strided(
            random,
            _values(random, dtype, tuple(sizes[name] for name in labels), small=False),
            draw(st.sampled_from(["plain", "permuted", "gaps", "zero"])),
        )
        for labels in (left, right)
    ]
    return Case((left, right), output, sizes, operands, "plus_times", True)


@pytest.mark.parametrize("where", BACKENDS[1:])
@settings(max_examples=max(10, settings().max_examples // 4))
@given(larger_cases())
def test_larger_contractions(where: str, case: Case) -> None:
    dtype = case.operands[0].dtype
    wide = {"i": np.int64, "f": np.float64, "c": np.complex128}[dtype.kind]
    expected = np.einsum(case.expression, *(one.astype(wide) for one in case.operands))
    magnitude = np.einsum(case.expression, *(np.abs(one.astype(wide)) for one in case.operands))
    with backend(where) as target:
        result = einsum(case.expression, *case.operands, target=target)
    # The reference is rounded itself, in f64: twice the count allows for that where the result is f64 too.
    count = 2 * roundings(case.inputs, case.output, case.sizes)
    assert_close(result, np.asarray(expected), np.asarray(magnitude), dtype, count, "plus_times")
