"""What a contraction means: its sum written out over flat arrays, and random contractions to try it on.

`evaluate` gathers the elements of both operands, maps them at every point of the iteration space and folds along the
contracted dimensions in order. It shares nothing with the passes but the table of operators.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import settings

from tilewright.contraction.form import Contraction, Dimension, EpilogueOperand, Kind, Operand
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Alias, Apply, Atom, Cast, If, Lambda, Literal, SizeValue
from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import size

Buffers = Mapping[str, np.ndarray]
AT_ONCE = 1 << 18
"""Points whose terms are computed at once; of more, those of one step of the sum."""
WIDE = {"f2": np.dtype("f8"), "f4": np.dtype("f8"), "c8": np.dtype("c16")}


def examples(count: int) -> int:
    """So many random examples in the ordinary run, in proportion more under HYPOTHESIS_PROFILE=fuzz."""
    return max(1, count * settings.default.max_examples // 40)


def number(value: Any) -> int:
    """A size that is known."""
    assert value.constant is not None, f"{value} is not known"
    return int(value.constant)


def _dtype(scalar: ScalarType, wide: bool) -> np.dtype:
    dtype = scalar.numpy
    return WIDE.get(dtype.str[1:], dtype) if wide else dtype


def call(function: Lambda, arguments: Sequence[Any], scope: Mapping[str, Any], wide: bool) -> Any:
    """The one result of a straight-line function on arrays, elementwise."""
    values: dict[str, Any] = dict(scope) | {p.name: a for p, a in zip(function.parameters, arguments, strict=True)}

    def atom(one: Atom) -> Any:
        return np.asarray(one.value, _dtype(one.scalar, wide)) if isinstance(one, Literal) else values[one.name]

    def run(body: Any) -> list[Any]:
        for statement in body.statements:
            match statement.expression:
                case Alias(one):
                    result = atom(one)
                case Apply(operator, operands):
                    result = OPERATORS[operator].meaning(*map(atom, operands))
                case Cast(scalar, operand):
                    result = np.asarray(atom(operand)).astype(_dtype(scalar, wide))
                case SizeValue(one):
                    result = np.int64(one.evaluate({name: int(values[name]) for name in one.names}))
                case If(condition, then, otherwise):
                    sides = zip(run(then), run(otherwise), strict=True)
                    for target, (yes, no) in zip(statement.targets, sides, strict=True):
                        values[target.name] = np.where(atom(condition), yes, no)
                    continue
                case other:
                    raise AssertionError(f"naive evaluation of {other}")
            (target,) = statement.targets
            values[target.name] = result
        return [atom(one) for one in body.results]

    with np.errstate(all="ignore"):
        return run(function.body)[0]


def flat_index(dimensions: Sequence[Dimension], strides: Sequence[int], offset: int) -> np.ndarray:
    """Flat indices at every point of the iteration space; one for all points along a dimension with stride 0."""
    index = np.full((1,) * len(dimensions), offset, np.int64)
    for axis, (one, stride) in enumerate(zip(dimensions, strides, strict=True)):
        if stride or number(one.size) == 0:
            shape = [1] * len(dimensions)
            shape[axis] = number(one.size)
            index = index + (np.arange(number(one.size)) * stride).reshape(shape)
    return index


def terms(
    contraction: Contraction, buffers: Buffers, scalars: Mapping[str, Any], wide: bool = False
) -> Iterator[np.ndarray]:
    """map(left, right) at every point of the other dimensions, for one point of the contracted ones after another."""
    parallel = [d for d in contraction.dimensions if d.kind is not Kind.K]
    contracted = [d for d in contraction.dimensions if d.kind is Kind.K]
    ordered = [*parallel, *contracted]
    values = []
    for operand, strides in (
        (contraction.left, [number(d.stride_left) for d in ordered]),
        (contraction.right, [number(d.stride_right) for d in ordered]),
    ):
        index = flat_index(ordered, strides, number(operand.offset))
        flat = buffers[operand.buffer]
        assert not index.size or (index.min() >= 0 and index.max() < len(flat)), operand
        values.append(flat[index].astype(_dtype(operand.element, wide), copy=False))
    element = _dtype(contraction.combine.parameters[0].type.element, wide)
    shape, steps = [number(d.size) for d in parallel], [number(d.size) for d in contracted]
    total = math.prod(steps)

    def at(value: np.ndarray, point: Sequence[int]) -> np.ndarray:
        return value[(..., *(min(one, n - 1) for one, n in zip(point, value.shape[len(shape) :], strict=True)))]

    if math.prod(shape) * total <= AT_ONCE:
        result = np.asarray(call(contraction.map, values, scalars, wide)).astype(element, copy=False)
        together = np.broadcast_to(result, [*shape, *steps]).reshape([*shape, total])
        yield from (together[..., k] for k in range(total))
        return
    for point in np.ndindex(*steps):
        result = np.asarray(call(contraction.map, [at(one, point) for one in values], scalars, wide))
        yield np.broadcast_to(result.astype(element, copy=False), shape)


def evaluate(
    contraction: Contraction, buffers: Buffers, scalars: Mapping[str, Any] | None = None, wide: bool = False
) -> np.ndarray:
    """The output's buffer after the contraction; `wide` computes f16, f32 and c64 in double precision."""
    return evaluated(contraction, buffers, scalars or {}, wide)[0]


def evaluated(
    contraction: Contraction, buffers: Buffers, scalars: Mapping[str, Any], wide: bool
) -> tuple[np.ndarray, float]:
    """The same, and the largest sum of absolute values of what any element of the output is made of."""
    parallel = [d for d in contraction.dimensions if d.kind is not Kind.K]
    shape = [number(d.size) for d in parallel]
    neutral = contraction.neutral
    total: Any = np.full(shape, neutral.value, _dtype(neutral.scalar, wide))
    sizes = np.zeros(shape)
    for term in terms(contraction, buffers, scalars, wide):
        total = call(contraction.combine, [total, term], scalars, wide)
        sizes += np.abs(term if term.dtype.kind in "fc" else term.astype("f8"))
    if contraction.epilogue is not None:
        positions = [contraction.dimensions.index(d) for d in parallel]
        further = []
        for one in contraction.epilogue_operands:
            strides = [number(one.strides[p]) for p in positions]
            index = flat_index(parallel, strides, number(one.operand.offset))
            further.append(buffers[one.operand.buffer][index].astype(_dtype(one.operand.element, wide)))
        total = call(contraction.epilogue, [total, *further], scalars, wide)
    out = np.asarray(buffers[contraction.out.buffer])
    result = out.astype(_dtype(contraction.out.element, wide))
    where = flat_index(parallel, [number(d.stride_out) for d in parallel], number(contraction.out.offset))
    assert not where.size or (where.min() >= 0 and where.max() < len(out)), "the output does not fit its buffer"
    assert len(np.unique(where)) == math.prod(shape), "the output's elements overlap"
    result[where] = total
    return result, float(sizes.max(initial=0.0))


# --- contractions to try ----------------------------------------------------------------------------------------------


def operator(name: str, scalar: ScalarType) -> Lambda:
    """A binary operator."""
    return Builder().operator(name, scalar)


def _strides(labels: str, sizes: Mapping[str, int]) -> dict[str, int]:
    strides, total = {}, 1
    for label in reversed(labels):
        strides[label] = total
        total *= sizes[label]
    return strides


def einsum_contraction(
    text: str,
    sizes: Mapping[str, int],
    scalar: ScalarType,
    map_name: str = "mul",
    combine_name: str = "add",
    neutral: Any = 0,
) -> Contraction:
    """The contraction of a two-operand einsum on dense row-major arrays A, B, C."""
    inputs, output = text.split("->")
    left, right = inputs.split(",")
    of_left, of_right, of_out = (_strides(labels, sizes) for labels in (left, right, output))
    dimensions = []
    for label in [*output, *(one for one in dict.fromkeys(left + right) if one not in output)]:
        if label not in output:
            kind = Kind.K
        elif label in left:
            kind = Kind.C if label in right else Kind.M
        else:
            kind = Kind.N
        strides = (of_left.get(label, 0), of_right.get(label, 0), of_out.get(label, 0))
        dimensions.append(Dimension(label, kind, size(sizes[label]), *map(size, strides)))
    return Contraction(
        tuple(dimensions),
        Operand("A", scalar, size(0)),
        Operand("B", scalar, size(0)),
        Operand("C", scalar, size(0)),
        operator(map_name, scalar),
        operator(combine_name, scalar),
        Literal(neutral, scalar),
    )


def extent(contraction: Contraction, operand: Operand, strides: Sequence[int]) -> int:
    """Elements that an operand's buffer needs."""
    reach = number(operand.offset)
    for one, stride in zip(contraction.dimensions, strides, strict=True):
        reach += max(0, number(one.size) - 1) * max(0, stride)
    return reach + 1


def operands_of(contraction: Contraction) -> list[tuple[Operand, list[int]]]:
    """Every array with its strides along the contraction's dimensions."""
    return [
        (contraction.left, [number(d.stride_left) for d in contraction.dimensions]),
        (contraction.right, [number(d.stride_right) for d in contraction.dimensions]),
        (contraction.out, [number(d.stride_out) for d in contraction.dimensions]),
        *((one.operand, [number(s) for s in one.strides]) for one in contraction.epilogue_operands),
    ]


def random_values(generator: np.random.Generator, scalar: ScalarType, count: int) -> np.ndarray:
    """Values of a type; floating-point ones in [-1, 1]."""
    dtype = scalar.numpy
    if scalar.is_complex:
        return (generator.uniform(-1, 1, count) + 1j * generator.uniform(-1, 1, count)).astype(dtype)
    if scalar.is_float:
        return generator.uniform(-1, 1, count).astype(dtype)
    if scalar.is_integer:
        limits = np.iinfo(dtype)
        small = generator.integers(max(limits.min, -9), 10, count).astype(dtype)
        large = generator.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
        return np.where(generator.random(count) < 0.9, small, large)
    return generator.random(count) < 0.4


def random_buffers(contraction: Contraction, seed: int) -> dict[str, np.ndarray]:
    """Arrays of the right lengths (16-byte aligned or not, as NumPy gives them), filled at random."""
    generator = np.random.default_rng(seed)
    needed: dict[str, tuple[int, ScalarType]] = {}
    for operand, strides in operands_of(contraction):
        length = max(extent(contraction, operand, strides), needed.get(operand.buffer, (1, operand.element))[0])
        needed[operand.buffer] = (length, operand.element)
    return {name: random_values(generator, scalar, length + 3) for name, (length, scalar) in needed.items()}


def assert_close(contraction: Contraction, got: np.ndarray, buffers: Buffers, scalars: Mapping[str, Any]) -> None:
    """Equal to the naive evaluation: exactly for integers and bool, else within rounding errors that grow with K."""
    expected, largest = evaluated(contraction, buffers, scalars, wide=True)
    assert got.dtype == contraction.out.element.numpy
    if not (contraction.out.element.is_float or contraction.out.element.is_complex):
        np.testing.assert_array_equal(got, expected)
        return
    count = math.prod(number(d.size) for d in contraction.dimensions if d.kind is Kind.K)
    accumulator = contraction.combine.parameters[0].type.element.numpy
    accumulator = np.dtype("f4") if accumulator == np.dtype("f2") else accumulator
    rounding = 8 * (count + 8) * float(np.finfo(accumulator).eps) * (largest + 4)
    stored = 2 * float(np.finfo(got.dtype).eps) * np.abs(expected)
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(got - expected) <= rounding + stored) | (got == expected))
    assert not wrong.any(), (
        f"{int(wrong.sum())} of {wrong.size} elements are off; first: {got[wrong][0]} instead of {expected[wrong][0]},"
        f" allowed {rounding}"
    )


def all_points(*extents: int) -> list[tuple[int, ...]]:
    """Index tuples in row-major order."""
    return list(itertools.product(*map(range, extents)))


__all__ = [
    "EpilogueOperand",
    "all_points",
    "assert_close",
    "call",
    "einsum_contraction",
    "evaluate",
    "examples",
    "extent",
    "number",
    "operands_of",
    "operator",
    "random_buffers",
    "random_values",
]
