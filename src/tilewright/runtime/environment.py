"""Variables of the environment, read at every call."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def _environment_reader() -> Callable[[bytes], Any]:
    """A function that reads a variable of the environment as `os.environ` has it now.

    Looking it up there by its name as text takes as long as a whole call on small arrays; CPython keeps a dictionary of
    names and values as bytes inside, which is looked at where it is as expected.
    """
    data = getattr(os.environ, "_data", None)
    if type(data) is dict and all(type(name) is bytes for name in data):
        return data.get
    return lambda name: os.environ.get(name.decode())


read_environment = _environment_reader()
"""The value of a variable, whose name is given in bytes, or None; equal values are equal, and nothing else is said."""
