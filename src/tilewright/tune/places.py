"""Where the user's tunings lie, without what reads them."""

from __future__ import annotations

import os

from tilewright.runtime.cache import cache_folder

FILE_VARIABLE = "TILEWRIGHT_TUNINGS"


def store_path() -> str:
    """The file of the user's tunings: what TILEWRIGHT_TUNINGS names, else tunings.sqlite3 in the cache's folder."""
    return os.environ.get(FILE_VARIABLE) or os.path.join(cache_folder(), "tunings.sqlite3")
