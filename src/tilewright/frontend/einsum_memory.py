"""`einsum` within a limit of memory: of its record on the disk, or as a contraction tree (`einsum_slices`).

>>> import numpy as np
>>> a, b, c = np.ones((30, 40)), np.ones((40, 50)), np.ones((50, 20))
>>> float(einsum_within("ij,jk,kl->", (a, b, c), memory_limit=2000)[()])  # ik would take 12000 bytes
1200000.0
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.einsum_arrays import Array, as_arrays
from tilewright.frontend.tree_stored import StoredTree, record_of, stored_tree
from tilewright.runtime.collecting import collection_later, imported
from tilewright.runtime.environment import read_environment

_FOUND: dict[Hashable, StoredTree | None] = {}  # by what was asked, None where there was no record
_MOST_FOUND = 1024
_TARGET = b"TILEWRIGHT_TARGET"
_ELSEWHERE = ("dtype", "target")  # which a record tells of in another place


def einsum_within(
    expression: Hashable, operands: Sequence[Any], memory_limit: int, out: Array | None = None, **options: Any
) -> Any:
    """`einsum` with `memory_limit` (which see). Of the options only a few may have other than their default values.

    Raises:
        ValueError: for other options, an output index that repeats, an `out` of another dtype than is computed in, and
            all that `einsum` refuses.
        TypeError: for casts that are not allowed, and all that `einsum` refuses.
        MemoryError: if no slices keep the limit, with the expression's peak and the least that slices reach.
    """
    arrays = as_arrays(operands)

    def compiled(*given: Array, out: Array | None, record: tuple[str, ...] | None = None) -> Any:
        return imported("tilewright.frontend.einsum_slices").computed(
            expression, given, memory_limit, out, record, **options
        )

    if type(out) not in (np.ndarray, type(None)):
        return compiled(*arrays, out=out)
    target = options.get("target")
    place = read_environment(_TARGET) if target is None else target
    forms = [(one.dtype, one.shape, one.strides) for one in (arrays if out is None else (*arrays, out))]
    key = (expression, *forms, out is None, repr((place, memory_limit, options)))
    if key in _FOUND:
        return (_FOUND.get(key) or compiled)(*arrays, out=out)
    with collection_later():
        asked = (expression, memory_limit, {name: one for name, one in options.items() if name not in _ELSEWHERE})
        record = record_of("einsum within a limit", asked, arrays, out, options.get("dtype"), place)
        found = None if record is None else stored_tree(record, lambda: compiled)
    if found is not None:
        result = found(*arrays, out=out)
    else:
        result = compiled(*arrays, out=out, record=record)
        found = None if record is None else stored_tree(record, lambda: compiled)
    if len(_FOUND) >= _MOST_FOUND:
        _FOUND.clear()
    _FOUND[key] = found
    return result
