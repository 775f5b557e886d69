"""Programs from the disk run without a description of this machine, and what decides without it is in their key."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.frontend import program_stored
from tilewright.frontend.program_options import ProgramOptions
from tilewright.runtime.cpu_jit import host_cpu
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.stored_program import StoredProgram

# ruff: noqa: F821, UP037
pytestmark = pytest.mark.skipif(not host_cpu().is_x86, reason="images are made for 64-bit x86")

SCRIPT = """
import sys
import numpy as np
import tilewright as tw

@tw.program
def shifted(xs: tw.f64["n"]):
    return tw.map(lambda x: x + 1, xs)

assert shifted(np.ones(3)).tolist() == [2, 2, 2]
print(*sorted(sys.modules))
"""


def test_a_later_process_does_not_describe_its_machine(tmp_path: Path) -> None:
    script = tmp_path / "calls.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    later: list[str] = []
    for _ in range(4):  # a process whose sources change meanwhile stores nothing
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False, timeout=200
        )
        assert done.returncode == 0, done.stderr
        later = done.stdout.split()
        if "llvmlite" not in later:
            break
    assert not [one for one in later if one in ("llvmlite", "tilewright.machine.model", "tilewright.machine.detect")]


@tw.program
def doubled(xs: tw.f64["n"]) -> Any:
    return tw.map(lambda x: x * 2, xs)


def stored_on(device: Device) -> StoredProgram:
    def compiled() -> Any:
        raise AssertionError("nothing is compiled here")

    found = program_stored.stored_program(doubled.trace(), ProgramOptions(), device, None, compiled)
    assert found is not None
    return found


def test_cores_and_other_machines_have_keys_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_stored, "fingerprint", lambda: ("this version",))
    host = device_for("cpu")
    key = stored_on(host)._key
    assert stored_on(host)._key == key
    other = Device("cpu", replace(host.machine, l2_bytes=1 << 15), host.description)
    assert stored_on(other)._key != key
    monkeypatch.setattr(program_stored, "usable_cores", lambda: 77)
    assert stored_on(host)._key != key


def test_devices_are_told_apart_by_all_that_they_have() -> None:
    host = device_for("cpu")
    other = Device("cpu", replace(host.machine, l2_bytes=1 << 15), host.description)
    assert hash(host) == hash(other) and host != other and len({host, other}) == 2
    np.testing.assert_array_equal(doubled(np.ones(3), target=host), [2, 2, 2])
