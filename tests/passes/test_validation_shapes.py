"""The 38 validation shapes of the thesis with its tile sizes and with the default ones, on an OpenCL device.

In the ordinary run every extent keeps its remainder by its tile and loses most of its whole tiles; the full sizes (up
to 68 GFLOP and 4 GB of output each) are marked slow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contraction_cases import run_gpu
from naive import einsum_contraction
from thesis_facts import SHAPES, tile_sizes

from tilewright.ir.scalars import F32
from tilewright.passes.contractions.contraction_launches import Tiles, tiled_form
from tilewright.passes.tiled.kernel import write_kernel

pytestmark = pytest.mark.opencl


def cases() -> list[Any]:
    found = []
    for einsum, shapes in SHAPES.items():
        for number, shape in enumerate(shapes):
            for which, tiles in enumerate([*tile_sizes(einsum), None]):
                name = f"{einsum}-{number}-{'default' if tiles is None else which}"
                found.append(pytest.param(einsum, shape, tiles, id=name))
    return found


def sizes_of(einsum: str, shape: list[list[int]]) -> dict[str, int]:
    """Extents by label."""
    left, right = einsum.split("->", maxsplit=1)[0].split(",")
    sizes: dict[str, int] = {}
    for labels, extents in ((left, shape[0]), (right, shape[1])):
        for label, extent in zip(labels, extents, strict=True):
            assert sizes.setdefault(label, extent) == extent
    return sizes


def shrunk(sizes: dict[str, int], tiles: Tiles) -> dict[str, int]:
    """Extents of at most two tiles, with the same remainders."""
    found = {}
    for label, extent in sizes.items():
        size = tiles[label]
        step = size if isinstance(size, int) else size[0] * size[1]
        found[label] = extent % step + (step if extent >= step else 0)
    return found


def check(runtime: Any, einsum: str, sizes: dict[str, int], tiles: Tiles | None) -> None:
    contraction = einsum_contraction(einsum, sizes, F32)
    form = tiled_form(contraction, runtime.device.machine, tiles)
    generator = np.random.default_rng(len(einsum))
    left, right = einsum.split("->", maxsplit=1)[0].split(",")
    a, b = (generator.standard_normal([sizes[one] for one in labels], dtype=np.float32) for labels in (left, right))
    shape = [sizes[one] for one in einsum.split("->")[1]]
    c = np.full(int(np.prod(shape)), np.nan, np.float32)
    got = run_gpu(runtime, write_kernel(form), {"A": a.ravel(), "B": b.ravel(), "C": c}, {}).reshape(shape)
    expected = np.einsum(einsum, a, b, optimize=True) if got.size > 1 << 24 else _exact(einsum, a, b)
    bound = 2 * np.finfo(np.float32).eps * (sizes["q"] + 8) * (1 + np.sqrt(sizes["q"]))
    assert np.abs(got - expected).max(initial=0) <= bound


def _exact(einsum: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum(einsum, a.astype(np.float64), b.astype(np.float64), optimize=True)


@pytest.mark.parametrize(("einsum", "shape", "tiles"), cases())
def test_remainders(opencl_runtime: Any, einsum: str, shape: list[list[int]], tiles: Tiles | None) -> None:
    by = tiles if tiles is not None else tile_sizes(einsum)[-1]
    check(opencl_runtime, einsum, shrunk(sizes_of(einsum, shape), by), tiles)


@pytest.mark.slow
@pytest.mark.parametrize(("einsum", "shape", "tiles"), cases())
def test_full_sizes(opencl_runtime: Any, einsum: str, shape: list[list[int]], tiles: Tiles | None) -> None:
    check(opencl_runtime, einsum, sizes_of(einsum, shape), tiles)


def test_there_are_38_shapes_and_five_tilings() -> None:
    assert sum(map(len, SHAPES.values())) == 38
    assert [len(tile_sizes(einsum)) for einsum in SHAPES if len(einsum) < 10] == [5] * 4
