"""The CPU's machine is asked for when it is needed first; until then a device is its name."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest

from tilewright.frontend.contraction_stored import stored_contraction
from tilewright.ir.parser import parse_program
from tilewright.runtime.devices import device_for

SCRIPT = """
import sys
from tilewright.runtime.devices import device_for
device = device_for("cpu")
assert device.name == "cpu" and "tilewright.machine.detect" not in sys.modules
assert device.machine.kind == "cpu" and device.description.startswith(device.machine.name)
assert "tilewright.machine.detect" in sys.modules
"""


def test_a_device_is_asked_for_by_name_without_its_machine() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_copies_are_the_same_device() -> None:
    device = device_for("cpu")
    for one in (pickle.loads(pickle.dumps(device)), copy.copy(device), copy.deepcopy(device)):
        assert one == device
        assert hash(one) == hash(device)
    assert dataclasses.replace(device, name="another") != device


def test_there_is_nothing_else() -> None:
    with pytest.raises(AttributeError, match="a Device has no cores"):
        device_for("cpu").cores  # noqa: B018


def test_another_machine_has_entries_of_its_own() -> None:
    device = device_for("cpu")
    other = dataclasses.replace(device, machine=dataclasses.replace(device.machine, l1_bytes=1 << 14))
    program = parse_program("def f (x: [n]f32) = let (y: [n]f32) = copy x in (y)")
    one, another, again = (stored_contraction(program, where, pytest.fail) for where in (device, other, device))
    assert one is not None and another is not None and again is not None
    assert one._key == again._key != another._key
