"""Tiled streams and streams in lanes of vectors, against the interpreter."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from lowering_checks import assert_close, compiled
from stream_programs import (
    BOXES,
    FIRST,
    FLAT,
    NBODY,
    PAIRS,
    SEGMENTED,
    StreamProgram,
    boxes_arguments,
    boxes_reference,
    floats,
    nbody_arguments,
    nbody_reference,
    pairs_reference,
    stream_programs,
)

from tilewright.ir.interpreter import interpret
from tilewright.ir.parser import parse_program
from tilewright.ir.verifier import verify
from tilewright.passes.compile import compile_program
from tilewright.runtime.devices import Device, DeviceError, device_for
from tilewright.runtime.executable import Executable

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]


def streamed(program: str, arguments: list[Any], device: str, expected: tuple[Any, ...], banks: int = 0) -> Executable:
    """Run a program, compare, and demand that its nest is lowered as one of streams, with banks of shared memory."""
    run = compiled(program, device, optimise=True)
    if banks:
        run = compile_program(parse_program(program), with_limits(shared_banks=banks))
    for _ in range(2):
        results = run(*arguments)
        results = results if len(expected) > 1 else (results,)
        for actual, wanted in zip(results, expected, strict=True):
            assert_close(actual, wanted)
    assert " points: " in lowered(run)
    return run


def lowered(run: Executable) -> str:
    """How the last statement was lowered."""
    return str(run.notes[-1].lowered)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [1, 8, 15, 16, 17, 31, 33, 100, 127, 128, 129, 256, 257, 700])
def test_bodies(device: str, n: int) -> None:
    arguments = nbody_arguments(n)
    streamed(NBODY, arguments, device, nbody_reference(*arguments))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 16, 2), (2, 33, 3), (5, 64, 4), (2, 130, 1), (3, 300, 0), (2, 0, 2)])
def test_boxes_picked_by_a_loaded_index(device: str, sizes: tuple[int, int, int]) -> None:
    arguments = boxes_arguments(*sizes)
    streamed(BOXES, arguments, device, boxes_reference(*arguments))


@pytest.mark.parametrize("device", DEVICES)
def test_an_index_out_of_range_is_reported(device: str) -> None:
    places, near = boxes_arguments(3, 140, 2)
    near[1, 1] = 7
    with pytest.raises(IndexError, match="index 7 of places is out of range"):
        compiled(BOXES, device, optimise=True)(places, near)


@pytest.mark.opencl
@pytest.mark.parametrize("sizes", [(16, 16, 16), (1, 1, 1), (40, 9, 20), (17, 33, 5), (64, 48, 35), (8, 8, 0)])
def test_pairs_are_tiled_in_two_dimensions(sizes: tuple[int, int, int]) -> None:
    n, m, q = sizes
    arguments = [floats(n, q), floats(m, q, seed=1), floats(q, seed=2)]
    run = streamed(PAIRS, arguments, "opencl", pairs_reference(*arguments), banks=32)
    assert "of n x " in lowered(run) and "of m points" in lowered(run)
    arguments = [floats(q, n).T, floats(m, q, seed=1)[::-1], floats(2 * q, seed=2)[::2]]
    streamed(PAIRS, arguments, "opencl", pairs_reference(*arguments), banks=32)


@pytest.mark.opencl
@pytest.mark.parametrize("sizes", [(5, 130, 9), (3, 200, 150), (2, 64, 1)])
def test_the_block_extends_along_the_dimension_of_the_reuse(sizes: tuple[int, int, int]) -> None:
    n, m, q = sizes
    xs, ys = floats(n, q), floats(m, seed=1)
    differences = xs[None] - ys[:, None, None]
    run = streamed(FIRST, [xs, ys], "opencl", ((differences**2).max(-1), differences.min(-1)))
    assert "of m points stage" in lowered(run)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [(3, 40, 9), (2, 300, 600), (5, 7, 3)])
def test_a_stream_shared_by_all_points_of_two_dimensions(device: str, sizes: tuple[int, int, int]) -> None:
    n, m, q = sizes
    xs, ys = floats(n, m), floats(q, seed=1)
    differences = ys - xs[..., None]
    streamed(FLAT, [xs, ys], device, ((differences**2).max(-1), differences.min(-1)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [(3, 40, 9), (2, 300, 70), (5, 7, 3), (4, 16, 1)])
def test_a_segmented_map(device: str, sizes: tuple[int, int, int]) -> None:
    n, m, q = sizes
    for xs in (floats(n, m), floats(m, n).T):
        ys, zs = floats(q, seed=1), floats(n, seed=2)
        moved = (ys - xs[..., None]) * np.arange(m, dtype=np.float32)[:, None]
        streamed(SEGMENTED, [xs, ys, zs], device, (moved.max(-1), (moved + zs[:, None, None]).min(-1)))


def with_limits(**limits: int) -> Device:
    """The OpenCL device, taken for one with other limits."""
    try:
        found = device_for("opencl")
    except DeviceError as error:
        pytest.skip(str(error))
    return dataclasses.replace(found, machine=dataclasses.replace(found.machine, **limits))


@pytest.mark.parametrize("on", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
@settings(max_examples=60)
@given(program=stream_programs())
def test_random_streams(on: str, program: StreamProgram) -> None:
    parsed = parse_program(program.text)
    verify(parsed)
    run = compile_program(
        parsed, device_for("cpu") if on == "cpu" else with_limits(max_threads_per_block=16, shared_banks=32)
    )
    expected = interpret(parsed, program.arguments)
    results = run(*program.arguments)
    for actual, wanted in zip(results if len(expected) > 1 else (results,), expected, strict=True):
        assert_close(actual, wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("place", [lambda x: x[::-1], lambda x: np.repeat(x, 2)[::2]], ids=["backwards", "spread"])
def test_strided_arguments(device: str, place: Callable[[Any], Any]) -> None:
    x, y, m, eps = nbody_arguments(145)
    streamed(NBODY, [place(x), place(y), place(m), eps], device, nbody_reference(*map(place, (x, y, m)), eps))
