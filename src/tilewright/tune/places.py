"""Where tunings lie, without what reads them: first calls of programs ask for it."""

from __future__ import annotations

import os

from tilewright.runtime.cache import cache_folder

FILE_VARIABLE = "TILEWRIGHT_TUNINGS"
ENDING = ".tuning"


def store_path() -> str:
    """The file of the user's tunings: what TILEWRIGHT_TUNINGS names, else tunings.sqlite3 in the cache's folder."""
    return os.environ.get(FILE_VARIABLE) or os.path.join(cache_folder(), "tunings.sqlite3")


def path_beside(source: str | os.PathLike[str]) -> str:
    """Where the tunings of the programs of a source file lie: prog.tuning beside prog.py.

    Example:
        >>> path_beside("prog.py")
        'prog.tuning'
    """
    return os.path.splitext(source)[0] + ENDING
