"""Random contractions over every kind of layout, type, operator and epilogue, and how to run them on a device."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from naive import operands_of, random_buffers

from tilewright.contraction.form import Contraction, Dimension, EpilogueOperand, Kind, Operand
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Atom, Lambda, Literal, Type, Variable
from tilewright.ir.scalars import (
    BOOL,
    C64,
    C128,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    ScalarType,
)  # fmt: skip
from tilewright.ir.sizes import size
from tilewright.kernel.launch import Launch, ScalarReference
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.tiled.tiling import Place, Tiling
from tilewright.runtime import cpu_pool
from tilewright.runtime.cpu_jit import compile_kernel
from tilewright.runtime.memory import aligned_empty

INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
FLOATS = (F16, F32, F64)
COMPLEX = (C64, C128)
_STRUCT = {"bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
           "f32": "f", "f64": "d"}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A contraction, the scalars that it uses, and the seed of its arrays."""

    contraction: Contraction
    scalars: Mapping[str, Any]
    seed: int

    def buffers(self) -> dict[str, np.ndarray]:
        return random_buffers(self.contraction, self.seed)


# --- operators --------------------------------------------------------------------------------------------------------


def binary(scalar: ScalarType, write: Callable[[Builder, Atom, Atom], Atom]) -> Lambda:
    """A function of two scalars."""
    b = Builder()
    return b.function([Type(scalar), Type(scalar)], lambda x, y: write(b, x, y), ("x", "y"))


def sum_of_squares(scalar: ScalarType) -> Lambda:
    """x*x + y*y + 1: never 0 whatever stands for a missing element, so nothing can be padded in."""
    return binary(
        scalar,
        lambda b, x, y: b.apply("add", b.apply("add", b.apply("mul", x, x), b.apply("mul", y, y)), Literal(1, scalar)),
    )


def semirings(scalar: ScalarType) -> dict[str, tuple[Lambda, Lambda, Literal]]:
    """map, combine and neutral element by name, for a type."""
    b = Builder()
    if scalar == BOOL:
        return {
            "or_and": (b.operator("and", BOOL), b.operator("or", BOOL), Literal(False, BOOL)),
            "xor_or": (b.operator("or", BOOL), b.operator("xor", BOOL), Literal(False, BOOL)),
            "unpaddable": (b.operator("ge", BOOL), b.operator("and", BOOL), Literal(True, BOOL)),
        }
    found = {
        "plus_times": (b.operator("mul", scalar), b.operator("add", scalar), Literal(0, scalar)),
        "unpaddable": (sum_of_squares(scalar), b.operator("add", scalar), Literal(0, scalar)),
    }
    if not scalar.is_complex:
        low = np.iinfo(scalar.numpy).min if scalar.is_integer else -math.inf
        high = np.iinfo(scalar.numpy).max if scalar.is_integer else math.inf
        found["min_plus"] = (b.operator("add", scalar), b.operator("min", scalar), Literal(high, scalar))
        found["max_times"] = (b.operator("mul", scalar), b.operator("max", scalar), Literal(low, scalar))
    return found


def with_semiring(contraction: Contraction, scalar: ScalarType, name: str) -> Contraction:
    """The contraction with other operators, named as in `semirings`."""
    function, combine, neutral = semirings(scalar)[name]
    return replace(contraction, map=function, combine=combine, neutral=neutral)


# --- random contractions ----------------------------------------------------------------------------------------------

_SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 32, 37, 67])
_POINTS = 40_000


@st.composite
def layouts(
    draw: st.DrawFn, sizes: list[int], present: list[bool], may_broadcast: bool, dense: bool
) -> tuple[list[int], int]:
    """Strides (0 where not present) and offset of an array.

    A dense one has its dimensions in any order; else there are gaps, negative and, if allowed, zero strides too.
    """
    strides, stride = [0] * len(sizes), 1
    order = draw(st.permutations([p for p, has in enumerate(present) if has]))
    if dense:
        for position in order:
            strides[position] = stride
            stride *= max(1, sizes[position])
        return strides, draw(st.sampled_from([0, 0, 16]))
    offset = draw(st.sampled_from([0, 1, 5, 16]))
    for position in order:
        if may_broadcast and draw(st.integers(0, 7)) == 0:
            continue
        stride *= draw(st.sampled_from([1, 1, 1, 2, 3]))
        strides[position] = stride
        if draw(st.integers(0, 4)) == 0:
            strides[position] = -stride
            offset += max(0, sizes[position] - 1) * stride
        stride *= max(1, sizes[position])
    return strides, offset


@st.composite
def shapes(draw: st.DrawFn, max_dimensions: int = 7) -> tuple[list[Kind], list[int]]:
    """Kinds (one K at least) and sizes; now and then one is 0."""
    count = draw(st.integers(0, max_dimensions - 1))
    kinds = [draw(st.sampled_from([Kind.M, Kind.N, Kind.K, Kind.C])) for _ in range(count)] + [Kind.K]
    sizes, points = [], 1
    choices = draw(st.sampled_from([_SIZES, st.sampled_from([8, 16, 32, 4])]))
    for _ in kinds:
        extent = draw(choices)
        if points * extent > _POINTS:
            extent = draw(st.sampled_from([1, 2, 3]))
        sizes.append(extent)
        points *= extent
    if draw(st.integers(0, 15)) == 7:
        sizes[draw(st.integers(0, count))] = 0
    return kinds, sizes


@st.composite
def epilogues(
    draw: st.DrawFn, scalar: ScalarType, sizes: list[int], parallel: list[bool]
) -> tuple[Lambda, tuple[EpilogueOperand, ...], tuple[Variable, ...], dict[str, Any]]:
    """accumulator (+ or *) further operands and a scalar, in the accumulator's type."""
    b = Builder()
    count = draw(st.integers(0, 2))
    use_scalar = draw(st.booleans()) or count == 0
    alpha = Variable("alpha", Type(scalar))
    combine = "xor" if scalar == BOOL else draw(st.sampled_from(["add", "mul"]))

    def write(accumulator: Atom, *further: Atom) -> Atom:
        value = accumulator
        for one in (*further, *((alpha,) if use_scalar else ())):
            value = b.apply(combine, value, one)
        return value

    function = b.function([Type(scalar)] * (count + 1), write)
    operands = []
    for number in range(count):
        strides, offset = draw(layouts(sizes, parallel, True, False))
        operands.append(EpilogueOperand(Operand(f"D{number}", scalar, size(offset)), tuple(map(size, strides))))
    value: Any = {"b": True, "c": 0.5 - 0.25j, "f": 0.75}.get(scalar.kind, 3)
    return function, tuple(operands), (alpha,) if use_scalar else (), {"alpha": value} if use_scalar else {}


@st.composite
def cases(
    draw: st.DrawFn, scalar: ScalarType | None = None, semiring: str | None = None, max_dimensions: int = 7
) -> Case:
    """Any contraction."""
    kinds, sizes = draw(shapes(max_dimensions))
    if scalar is None:
        scalar = draw(st.sampled_from([BOOL, *INTEGERS, *FLOATS, *COMPLEX, F32, F64]))
    available = semirings(scalar)
    chosen = semiring if semiring in available else draw(st.sampled_from(sorted(available)))
    function, combine, neutral = available[chosen]
    dense = draw(st.booleans())
    left, left_offset = draw(layouts(sizes, [k is not Kind.N for k in kinds], True, dense))
    right, right_offset = draw(layouts(sizes, [k is not Kind.M for k in kinds], True, dense))
    parallel = [k is not Kind.K for k in kinds]
    out, out_offset = draw(layouts(sizes, parallel, False, dense))
    dimensions = tuple(
        Dimension(f"d{p}", kind, *map(size, (extent, left[p], right[p], out[p])))
        for p, (kind, extent) in enumerate(zip(kinds, sizes, strict=True))
    )
    contraction = Contraction(
        dimensions,
        Operand("A", scalar, size(left_offset)),
        Operand("B", scalar, size(right_offset)),
        Operand("C", scalar, size(out_offset)),
        function,
        combine,
        neutral,
    )
    scalars: dict[str, Any] = {}
    if draw(st.booleans()):
        epilogue, operands, variables, scalars = draw(epilogues(scalar, sizes, parallel))
        contraction = replace(contraction, epilogue=epilogue, epilogue_operands=operands, scalars=variables)
    return Case(contraction, scalars, draw(st.integers(0, 1000)))


@st.composite
def tilings(draw: st.DrawFn, contraction: Contraction) -> Tiling:
    """T, R and Q at random, with few threads and registers so that kernels stay small; operands anywhere."""
    threads, registers, thread, register, sequential = 256, 16, [], [], []
    staged = 512
    for one in contraction.dimensions:
        if one.kind is Kind.K:
            sequential.append(draw(st.sampled_from([q for q in (1, 2, 3, 4, 8, 16) if q <= staged])))
            staged //= sequential[-1]
            continue
        thread.append(draw(st.sampled_from([t for t in (1, 2, 3, 4, 5, 8, 16, 32) if t <= threads])))
        register.append(draw(st.sampled_from([r for r in (1, 2, 3, 4) if r <= registers])))
        threads //= thread[-1]
        registers //= register[-1]
    places = st.sampled_from(Place)
    return Tiling(tuple(thread), tuple(register), tuple(sequential), draw(places), draw(places))


# --- running ----------------------------------------------------------------------------------------------------------


def scalar_values(launch: Launch, scalars: Mapping[str, Any]) -> list[Any]:
    """The launch's scalars, references looked up."""

    def value(one: Any) -> Any:
        if not isinstance(one, ScalarReference):
            return one
        found = scalars[one.name]
        return complex(found).imag if one.component else found.real if isinstance(found, complex) else found

    return [value(one) for one in launch.scalars]


def run_gpu(runtime: Any, launch: Launch, buffers: Mapping[str, np.ndarray], scalars: Mapping[str, Any]) -> np.ndarray:
    """The output's buffer after a launch on an OpenCL or CUDA device."""
    output = buffers[launch.buffers[2]].copy()
    held = {name: runtime.upload(array) for name, array in buffers.items() if name != launch.buffers[2]}
    held[launch.buffers[2]] = runtime.upload(output, writable=True)
    types = [parameter.type for parameter in launch.kernel.scalars]
    compiled = runtime.compile(launch.kernel)
    arguments = list(zip(scalar_values(launch, scalars), types, strict=True))
    runtime.launch(compiled, launch.blocks, [held[name] for name in launch.buffers], arguments)
    runtime.synchronise()
    runtime.download(held[launch.buffers[2]], output)
    for buffer in held.values():
        runtime.release(buffer)
    return output


def run_cpu(
    launch: Launch,
    buffers: Mapping[str, np.ndarray],
    scalars: Mapping[str, Any],
    threads: int = 1,
    aligned: bool = False,
    shift: int = 0,
) -> np.ndarray:
    """The output's buffer after a launch on the CPU; `aligned` buffers begin `shift` elements after a cache line."""
    arrays = {name: _aligned(array, shift) if aligned else array.copy() for name, array in buffers.items()}
    native = compile_kernel(launch.kernel, "none")
    data = b"".join(struct.pack("<q", arrays[name].ctypes.data) for name in launch.buffers)
    for parameter, value in zip(launch.kernel.scalars, scalar_values(launch, scalars), strict=True):
        data += struct.pack("<" + _STRUCT[parameter.type.name], value).ljust(8, b"\0")
    block = (ctypes.c_char * len(data)).from_buffer_copy(data)
    cpu_pool.launch(native, ctypes.addressof(block), launch.blocks, threads)
    return arrays[launch.buffers[2]]


def _aligned(array: np.ndarray, shift: int) -> np.ndarray:
    copy = aligned_empty((array.size + shift,), array.dtype)[shift:].reshape(array.shape)
    copy[...] = array
    return copy


__all__ = ["Case", "cases", "component_types", "operands_of", "run_cpu", "run_gpu", "semirings", "tilings"]
