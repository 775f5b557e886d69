"""Tile sizes that the user fixes: right answers, and one clear error for each limit that they break."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.passes.tiled.tiling import IllegalTiling


def _operands() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    return generator.random((37, 29)), generator.random((29, 41))


def _multiply(tiles: object, **keywords: object) -> np.ndarray:
    return tw.einsum("ij,jk->ik", *_operands(), target="opencl", tiles=tiles, **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tiles", [{"i": (16, 2), "k": (16, 2), "j": 8}, {"i": (15, 3), "k": (5, 3), "j": 7}, {"k": (8, 1)}]
)
def test_given_tiles_give_right_answers(tiles: dict[str, object], opencl_runtime: object) -> None:
    a, b = _operands()
    np.testing.assert_allclose(_multiply(tiles), a @ b, rtol=1e-13)


@pytest.mark.parametrize(
    ("tiles", "message"),
    [
        ({"i": (256, 1), "k": (256, 1)}, r"65536 threads per block; .* allows"),
        ({"i": (64, 16), "k": (64, 16), "j": 64}, r"bytes of shared memory per block; .* has"),
        ({"i": (1, 64), "k": (1, 64)}, r"4096 accumulators per thread; at most 1024"),
        ({"i": (0, 1)}, r"T = .* must all be at least 1"),
        ({"j": (4, 4)}, r"dimension .* is contracted and has one tile size Q"),
        ({"i": 4}, r"dimension .* is parallel and has two tile sizes \(T, R\)"),
    ],
)
def test_an_illegal_tile_names_its_limit(tiles: dict[str, object], message: str, opencl_runtime: object) -> None:
    out = np.full((37, 41), 7.0)
    with pytest.raises(IllegalTiling, match=message):
        _multiply(tiles, out=out)
    assert (out == 7).all()
    a, b = _operands()
    np.testing.assert_allclose(tw.einsum("ij,jk->ik", a, b, target="opencl"), a @ b, rtol=1e-13)


def test_tiles_of_an_unknown_index_or_form_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tiles names index 'z'; the indices are"):
        _multiply({"z": (1, 1)})
    with pytest.raises(ValueError, match=r"tiles\['i'\] is 'big'"):
        _multiply({"i": "big"})


def test_a_cpu_has_no_tiles_to_fix() -> None:
    a, b = _operands()
    with pytest.raises(IllegalTiling, match="not chosen by hand"):
        tw.einsum("ij,jk->ik", a, b, target="cpu", tiles={"i": (4, 4)})


def test_a_plan_explains_the_given_tiles(opencl_runtime: object) -> None:
    text = repr(tw.plan("ij,jk->ik", (64, 64), (64, 64), target="opencl", tiles={"i": (16, 2), "k": (8, 4), "j": 4}))
    rows = {line.split()[1]: line.split()[-3:] for line in text.splitlines() if line.startswith(("  M", "  N", "  K"))}
    assert rows == {"i": ["16", "2", "-"], "k": ["8", "4", "-"], "j": ["-", "-", "4"]}
