"""Tiles are used only where the system has allowed them to this process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilewright.machine import processors
from tilewright.machine.processors import as_permitted, chosen_processor, host_processor, named_processor
from tilewright.machine.tile_permission import tiles_are_permitted
from tilewright.runtime import fingerprint as prints

TILES = named_processor("sapphirerapids")


def test_types_of_tiles_follow_from_features() -> None:
    assert TILES.tiles == ("bf16", "i8") and TILES.dots == ("bf16", "i16", "i8")
    features = TILES.features.replace("+amx-bf16", "-amx-bf16")
    assert processors.Processor(TILES.triple, "of next year", features).tiles == ("i8",)
    assert processors.Processor(TILES.triple, "sapphirerapids", "+amx-bf16,+amx-int8,+avx512f,+avx512bw").tiles == ()
    assert named_processor("znver5").tiles == named_processor("apple-m1").tiles == ()


def test_a_refusal_leaves_all_else_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "tiles_are_permitted", lambda: True)
    assert as_permitted(TILES) is TILES
    monkeypatch.setattr(processors, "tiles_are_permitted", lambda: False)
    refused = as_permitted(TILES)
    assert refused.tiles == () and refused.dots == TILES.dots and refused.known == TILES.known
    assert TILES.enabled - refused.enabled == {"amx-bf16", "amx-int8", "amx-tile"}
    assert chosen_processor(refused, "") == refused
    with pytest.raises(ValueError, match="lacks amx-bf16, amx-int8, amx-tile"):
        chosen_processor(refused, "sapphirerapids")


def test_what_others_stored_with_tiles_is_not_found_without(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for permitted in (True, False):
        monkeypatch.setattr(prints, "tiles_are_permitted", lambda permitted=permitted: permitted)
        found.append(prints.fingerprint.__wrapped__())
    assert found[0] is None or found[0] != found[1]


def test_the_host_has_tiles_if_they_are_allowed() -> None:
    assert not host_processor().tiles or tiles_are_permitted()


SMALL_STACK = """
import ctypes, os
class Stack(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(8192)
stack = Stack(ctypes.addressof(memory), 0, 4096)
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
from tilewright.machine.tile_permission import tiles_are_permitted
import numpy as np, tilewright as tw
a = np.arange(-64, 64, dtype=np.int8).reshape(2, 64).repeat(32, 0)
np.testing.assert_array_equal(tw.einsum("ij,kj->ik", a, a, dtype="i32"), a.astype(np.int32) @ a.T.astype(np.int32))
print(tiles_are_permitted())
"""


@pytest.mark.skipif(not tiles_are_permitted(), reason="there are no tiles, or no process may use them")
def test_a_process_to_which_they_are_refused_computes_without() -> None:
    """Linux refuses them where a thread's stack for signals does not hold their contents."""
    done = subprocess.run([sys.executable, "-c", SMALL_STACK], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False"]
