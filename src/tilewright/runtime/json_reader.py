"""JSON read without the weight of `json`, whose import takes longer than reading most records of compiled programs.

The interpreter's own scanner is what `json` itself reads with.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any


def read_json(text: bytes) -> Any:
    """The value that a JSON text stands for, as `json.loads` gives it.

    Raises:
        ValueError: if the text is none.

    Example:
        >>> read_json(b'{"shape": [2, 3], "name": null}')
        {'shape': [2, 3], 'name': None}
    """
    decoded = text.decode()
    scan = None if "json" in sys.modules else _scanner()
    if scan is None:
        import json

        return json.loads(decoded)
    try:
        value, end = scan(decoded, 0)
    except StopIteration as error:
        raise ValueError(f"{len(decoded)} characters are no JSON from place {error.value} on") from None
    if end != len(decoded):
        raise ValueError(f"{len(decoded)} characters are JSON up to place {end} only")
    return value


def _scanner() -> Any:
    """What takes a text and a place in it, and gives the value there and where it ends; None where there is none."""
    try:
        scan = import_module("_json").make_scanner(_OPTIONS)  # of CPython
        return scan if scan("[1.5]", 0) == ([1.5], 5) else None
    except (ImportError, AttributeError, TypeError):
        return None


_OPTIONS = SimpleNamespace(
    strict=True, object_hook=None, object_pairs_hook=None, array_hook=None, parse_float=float, parse_int=int,
    parse_constant=float, memo={},
)  # fmt: skip
