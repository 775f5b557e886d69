"""Einsums of many indices, most of which have size 1: at Python's usual limit of calls in one another."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.frontend.einsum_parse import EinsumSpec
from tilewright.frontend.einsum_singles import needless


def of_rank(rank: int, larger: dict[int, int], seed: int = 0) -> Any:
    """An array whose dimensions have size 1 but for a few."""
    shape = tuple(larger.get(axis, 1) for axis in range(rank))
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float64)


@pytest.mark.parametrize("rank", [17, 33, 40, 64])
def test_as_numpy_has_it(rank: int) -> None:
    x = of_rank(rank, {3: 2, 7: 3, rank - 1: 4})
    labels = list(range(rank))
    for output in ([], labels[::-1], labels[5:9], [7], [rank - 1, 0, 3], labels[8:12]):
        wanted = x.transpose([*output, *(one for one in labels if one not in output)])
        wanted = wanted.sum(axis=tuple(range(len(output), rank)))
        for _ in range(4):  # compiled, learned, and by the short cut
            found = tw.einsum(x, labels, output, alpha=2)
            assert np.shape(found) == wanted.shape
            np.testing.assert_array_equal(found, 2 * wanted)
        if output:
            out = np.asfortranarray(np.ones(wanted.shape))
            for step in range(1, 4):
                assert tw.einsum(x, labels, output, out=out, beta=1) is out
                np.testing.assert_array_equal(out, step * wanted + 1)


@pytest.mark.parametrize("semiring", ["plus_times", "min_plus", "max_times"])
def test_products_with_diagonals_and_broadcast_dimensions(semiring: str) -> None:
    labels = list(range(36))
    left, right = of_rank(36, {2: 3, 30: 2, 35: 4}), of_rank(36, {2: 3, 31: 5, 35: 4}, 1)
    right = right.reshape((1, *right.shape[:-1], 4))  # of index 0 a diagonal of size 1, of index 34 one that stays
    terms = [0, *labels]
    output = [31, 5, 30, 34, 2]
    add = {"plus_times": np.sum, "min_plus": np.min, "max_times": np.max}[semiring]
    times = np.add if semiring == "min_plus" else np.multiply
    product = times(left, right[0])
    wanted = add(product, axis=tuple(one for one in labels if one not in output)).transpose(3, 1, 2, 4, 0)
    for _ in range(4):
        found = tw.einsum(left, labels, right, terms, output, semiring=semiring)
        np.testing.assert_array_equal(found, wanted)


def test_epilogues_and_repeated_indices_of_the_result() -> None:
    labels = list(range(35))
    x = of_rank(35, {1: 3, 34: 2})
    bias = np.arange(3.0).reshape(1, 3)
    for _ in range(3):
        found = tw.einsum(
            x, labels, [34, *labels[:34]], epilogue=lambda one, b: one * 2 + b, epilogue_operands=[(bias, [0, 1])]
        )
        np.testing.assert_array_equal(found, np.moveaxis(x, 34, 0) * 2 + bias.reshape((1, 1, 3, *[1] * 32)))
        diagonal = tw.einsum(x, labels, [1, 0, 1, 0])
        np.testing.assert_array_equal(diagonal[:, 0, :, 0], np.diag(x.sum(axis=-1).ravel()))


def test_plans_and_several_operands() -> None:
    labels = list(range(40))
    a, b, c = of_rank(40, {4: 3, 5: 4}), of_rank(40, {5: 4, 6: 2}, 1), of_rank(2, {0: 2, 1: 5}, 2)
    wanted = (a.reshape(3, 4) @ b.reshape(4, 2) @ c).reshape(3, 1, 5)
    planned = tw.plan([labels, labels, [6, 50], [4, 9, 50]], a, b, c)
    for _ in range(4):
        np.testing.assert_array_equal(tw.einsum(a, labels, b, labels, c, [6, 50], [4, 9, 50]), wanted)
        np.testing.assert_array_equal(planned(a, b, c), wanted)
    assert "40" not in repr(planned.shape) and planned.flops == 2 * (3 * 4 * 2 + 3 * 2 * 5)


def test_a_result_of_ones_keeps_a_dimension() -> None:
    spec = EinsumSpec((tuple(range(20)),), (7, 3))
    assert needless(spec, (1,) * 20, ((0,),), True) == frozenset(range(20)) - {7}
    assert not needless(spec, (2,) * 20, ((0,),), True)
    assert not needless(EinsumSpec((tuple(range(16)),), (7, 3)), (1,) * 16, ((0,),), True)


SCRIPT = """
import numpy as np
import tilewright as tw

x = np.full((1,) * 52, 3.0)
for _ in range(3):
    assert tw.einsum(x, list(range(52)), []) == 3
    assert tw.einsum(x, list(range(52)), list(range(52))[::-1], alpha=2).shape == x.shape
print("right")
"""


def test_later_processes_have_them_from_the_disk(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
        assert run.stdout == "right\n", run.stderr


def test_what_is_too_deep_all_the_same_is_told() -> None:
    x = np.broadcast_to(np.float64(1), (2,) * 40)[(slice(1),) * 2]  # 2**38 elements, which are not read
    with pytest.raises(RecursionError, match=r"38 indices make a nest .*sys.setrecursionlimit allows more"):
        tw.einsum(x, list(range(40)), [])
