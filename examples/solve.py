"""Many small systems of equations at once, each solved by Gauss and Jordan's elimination in a loop of maps.

python examples/solve.py --size large
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, main, rounding

import tilewright as tw

_SIZES = {"tiny": (7, 3), "small": (500, 6), "medium": (20_000, 6), "large": (100_000, 8)}  # systems, unknowns


@tw.program
def solve(matrices: tw.f64["n", "m", "m"], sides: tw.f64["n", "m"]) -> Any:
    """Without pivoting: for matrices that are positive definite, or have large diagonals."""

    def one(matrix: Any, side: Any) -> Any:
        unknowns = matrix.shape[0]

        def eliminated(pivot: Any, rows: Any, side: Any) -> Any:
            row, value = rows[pivot] / rows[pivot, pivot], side[pivot] / rows[pivot, pivot]
            is_pivot, factors = tw.iota(unknowns) == pivot, rows[:, pivot]
            others = rows - factors[:, None] * row
            return np.where(is_pivot[:, None], row, others), np.where(is_pivot, value, side - factors * value)

        return tw.loop(unknowns, (matrix, side), eliminated)[1]

    return tw.map(one, matrices, sides)


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(*size) for name, size in _SIZES.items()}


def _arguments(systems: int, unknowns: int) -> Arguments:
    rng = np.random.default_rng(9)
    factors = rng.standard_normal((systems, unknowns, unknowns))
    matrices = factors @ factors.transpose(0, 2, 1) + unknowns * np.eye(unknowns)
    return matrices, rng.standard_normal((systems, unknowns))


def work(matrices: Any, _: Any) -> dict[str, float]:
    systems, unknowns, _ = matrices.shape
    return {"flops": 2.0 * systems * unknowns**3}


def reference(matrices: Any, sides: Any) -> Any:
    """LAPACK's, with pivoting; both may be off by some units of rounding times the condition of the matrix."""
    exact = np.linalg.solve(matrices, sides[..., None])[..., 0]
    size = np.linalg.norm(exact, axis=1) * np.linalg.cond(matrices)
    allowed = rounding(8 * matrices.shape[1], np.float64) * size
    return [(exact, np.broadcast_to(allowed[:, None], exact.shape))]


references = {"solve": reference}

if __name__ == "__main__":
    sys.exit(main(globals()))
