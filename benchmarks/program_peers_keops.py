"""The example of n-body as a reduction of KeOps [Charlier et al., Kernel Operations on the GPU, JMLR 2021].

KeOps compiles a formula with the C++ compiler at hand and shares out the points to OpenMP's threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

FORMULA = "(m * Pow(Rsqrt(SqDist(x, y) + e), 3)) * (y - x)"
VARIABLES = ["x = Vi(3)", "y = Vj(3)", "m = Vj(1)", "e = Pm(1)"]


def nbody(xs: Any, ys: Any, zs: Any, masses: Any, softening: Any) -> Callable[[], Any]:
    """The call; its result is cut into the three coordinates."""
    from pykeops.numpy import Genred

    pull = Genred(FORMULA, VARIABLES, reduction_op="Sum", axis=1)
    places = np.ascontiguousarray(np.stack((xs, ys, zs), axis=1))
    column, given = np.ascontiguousarray(masses[:, None]), np.array([softening], masses.dtype)

    def call() -> Any:
        found = pull(places, places, column, given, backend="CPU")
        return found[:, 0], found[:, 1], found[:, 2]

    return call


def keops_peers() -> dict[str, Callable[..., Callable[[], Any]]]:
    """The programs by name.

    Raises:
        ImportError: if pykeops is not installed.
    """
    import pykeops.numpy  # noqa: F401

    return {"nbody": nbody}
