"""What a tuning belongs to: a program, a device, and sizes of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.nodes import Program
from tilewright.ir.printer import print_program
from tilewright.ir.traversal import canonical
from tilewright.machine.model import power_of_two_at_least
from tilewright.runtime.cpu_pool import get_num_threads
from tilewright.runtime.devices import Device
from tilewright.runtime.digest import sha256

ANY_SHAPE = "*"
"""The shape class of choices that hold for all sizes: thresholds are compared with sizes themselves."""


class TuningWarning(UserWarning):
    """A tuning was not used, or could not be stored; the message says why."""


def program_digest(program: Program) -> str:
    """What a program is, whatever its inner names are: a tuning of another text says nothing about it.

    For a flattened program the text has its thresholds, so that a change of the flattening makes its tunings stale.
    """
    return sha256(print_program(canonical(program)).encode()).hexdigest()[:32]


def device_key(device: Device) -> str:
    """Which device something was measured on: "cpu: AMD EPYC 9354, 2 cores"."""
    machine = device.machine
    return " ".join(f"{machine.kind}: {machine.name}, {machine.cores} cores".split())


def measurements_key(device: Device) -> str:
    """What times of candidates can be compared on: the device, and of a CPU so many threads as are set now.

    What is chosen in the end is the device's, with whatever number of threads it was found: results do not depend on
    how many there are, and so neither does the version that makes them.
    """
    threads = f", {get_num_threads()} threads" if device.machine.kind == "cpu" else ""
    return device_key(device) + threads


def shape_class(arguments: Sequence[Any]) -> str:
    """Element types and sizes of arrays, the sizes rounded up to powers of two.

    >>> shape_class([np.zeros((100, 3)), 5])
    'f8[128,4] int'
    """
    return " ".join(_described(one, power_of_two_at_least) for one in arguments)


def data_key(name: str, arguments: Sequence[Any]) -> str:
    """What a data set is: its name, the types and sizes of its arrays, and its scalars.

    >>> data_key("small", [np.zeros((100, 3)), 5])
    'small: f8[100,3] 5'
    """
    return f"{name}: " + " ".join(_described(one, int, values=True) for one in arguments)


def _described(one: Any, extent: Any, values: bool = False) -> str:
    if isinstance(one, np.ndarray) and one.ndim:
        return f"{one.dtype.kind}{one.dtype.itemsize}[{','.join(str(extent(size)) for size in one.shape)}]"
    return repr(one) if values else type(one).__name__
