"""Contraction paths on the disk.

opt_einsum takes as long to import as all else that a contraction from the disk takes, and a path is needed to know what
has been compiled for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from tilewright.runtime.cache import default_disk_cache
from tilewright.runtime.fingerprint import build_of, fingerprint
from tilewright.runtime.json_reader import read_json

Path: TypeAlias = tuple[tuple[int, ...], ...]


def path_of(asked: tuple[str, ...], search: Callable[[], Path], checked: Callable[[Path], Path]) -> Path:
    """The path that an earlier process has found, or else the one that `search` gives.

    Args:
        asked: all that the search depends on beside the versions of this package and of opt_einsum.
        search: asks opt_einsum.
        checked: gives a path back, and raises `ValueError` for what is none.

    Example:
        >>> path_of(("an example", "ij,jk,kl->il", "8 8 8 8"), lambda: ((0, 1), (0, 1)), lambda path: path)
        ((0, 1), (0, 1))
    """
    print_ = fingerprint()
    if print_ is None:
        return search()
    disk, key = default_disk_cache(), ("path", *print_, build_of("opt_einsum"), *asked)
    data = disk.get(key)
    if data is not None:
        with suppress(ValueError, TypeError):  # of another version
            return checked(tuple(tuple(step) for step in read_json(data)))
    path = search()
    import json  # which nothing that reads paths needs

    disk.put(key, json.dumps(path).encode())
    return path
