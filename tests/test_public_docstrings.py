"""What `help` says of the public names: what each is for, with an example that `test_docstrings.py` runs."""

from __future__ import annotations

import inspect

import pytest

import tilewright as tw
from tilewright.frontend.annotations import Annotation

NAMES = [name for name in tw.__all__ if name != "__version__" and not isinstance(getattr(tw, name), Annotation)]


@pytest.mark.parametrize("name", [*NAMES, "f32"])
def test_a_public_name_has_an_example(name: str) -> None:
    text = inspect.getdoc(getattr(tw, name)) or ""
    if name == "DeviceMemoryError":  # no allocation fails on every machine
        assert "bytes" in text
        return
    assert ">>> " in text, f"help(tw.{name}) has no example"


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isclass(getattr(tw, name))])
def test_public_methods_say_what_they_are_for(name: str) -> None:
    kind = getattr(tw, name)
    bare = [one for one, method in vars(kind).items() if not one.startswith("_") and callable(method)
            and not inspect.getdoc(method)]  # fmt: skip
    assert bare == []
