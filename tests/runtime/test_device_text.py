"""Devices as text."""

from __future__ import annotations

import tilewright as tw


def test_a_device_is_one_line() -> None:
    device = tw.device_for("cpu")
    assert repr(device) == f"<Device {device}>" == f"<Device cpu: {device.description}>"
