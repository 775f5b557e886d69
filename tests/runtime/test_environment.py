"""Switches of the environment: what is neither yes nor no is refused, not taken for one of them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime.cache import default_disk_cache
from tilewright.runtime.environment import is_on


@pytest.mark.parametrize(
    ("text", "on"), [("1", True), ("on", True), ("Yes", True), ("0", False), ("off", False), (" false ", False)]
)
def test_switches(monkeypatch: pytest.MonkeyPatch, text: str, on: bool) -> None:
    monkeypatch.setenv("TILEWRIGHT_SWITCH", text)
    assert is_on("TILEWRIGHT_SWITCH", not on) is on


@pytest.mark.parametrize("default", [True, False])
def test_a_switch_that_is_not_there_is_as_ever(monkeypatch: pytest.MonkeyPatch, default: bool) -> None:
    assert is_on("TILEWRIGHT_SWITCH", default) is default
    monkeypatch.setenv("TILEWRIGHT_SWITCH", "")
    assert is_on("TILEWRIGHT_SWITCH", default) is default


def test_the_cache_can_be_switched_off_by_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    assert default_disk_cache().folder is None


@pytest.mark.parametrize("variable", ["TILEWRIGHT_CACHE", "TILEWRIGHT_VERIFY"])
def test_what_is_no_switch_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "maybe")
    with pytest.raises(ValueError, match=f"{variable}='maybe' is neither 1 nor 0"):
        tw.einsum("ij,jk->ik", np.ones((3, 7)), np.ones((7, 2)), epilogue=lambda x: x + 1)
