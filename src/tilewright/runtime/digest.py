"""SHA-256 without the weight of `hashlib`, which loads the whole of OpenSSL: several milliseconds of a first call.

The interpreter's own implementation is what `hashlib` itself falls back on; `random` gets its hash in the same way.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["sha256"]


def _constructor() -> Any:
    for name in ("_sha2", "_sha256", "hashlib"):  # CPython from 3.12 on, CPython before, every Python
        try:
            return import_module(name).sha256
        except (ImportError, AttributeError):
            continue
    raise ImportError("this Python has no SHA-256")


if TYPE_CHECKING:  # the same function
    from hashlib import sha256
else:
    sha256 = _constructor()
