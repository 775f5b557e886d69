"""Variables of the environment: values that are read at every call, switches, and numbers of bytes."""

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


def is_on(variable: str, default: bool) -> bool:
    """Whether a switch of the environment is on: 1, on, yes or true; or 0, off, no or false.

    Raises:
        ValueError: for anything else, naming the variable.
    """
    text = os.environ.get(variable, "").strip()
    if text.lower() in ("1", "on", "yes", "true"):
        return True
    if text.lower() in ("0", "off", "no", "false"):
        return False
    if text:
        raise ValueError(f"{variable}={text!r} is neither 1 nor 0")
    return default


def byte_count(variable: str, default: int) -> int:
    """A number of bytes from the environment, such as 536870912 or 512M; the default where there is none.

    Raises:
        ValueError: for anything else, naming the variable.
    """
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1].upper(), 0)
    digits = text[:-1] if shift else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{variable}={text!r} is not a number of bytes (such as 536870912 or 512M)")
    return int(digits) << shift


read_environment = _environment_reader()
"""The value of a variable, whose name is given in bytes, or None; equal values are equal, and nothing else is said."""
