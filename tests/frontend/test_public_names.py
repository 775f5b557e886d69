"""The package's names are there, and cost nothing until they are used."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import tilewright


@pytest.mark.parametrize("name", tilewright.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(tilewright, name) is not None
    assert name in dir(tilewright)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tilewright' has no attribute 'einsumm'"):
        tilewright.einsumm  # noqa: B018


def test_the_import_loads_nothing_else() -> None:
    code = (
        "import sys, tilewright; print(*(m for m in ('numpy', 'llvmlite', 'opt_einsum', 'rich') if m in sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_the_package_says_what_it_has() -> None:
    told = set(re.findall(r"\w+", tilewright.__doc__ or ""))
    assert sorted(set(tilewright.__all__) - {"__version__"} - told) == []
