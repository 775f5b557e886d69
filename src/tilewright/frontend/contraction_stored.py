"""Contractions on the disk that no record of a call serves: plans, trees, epilogues, factors, label lists.

What is compiled of these is a core program, whose text decides everything: an epilogue and the operations of a semiring
have been traced by then. It is kept as a traced program is (`runtime.stored_program`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.ir.nodes import Program
from tilewright.ir.printer import print_program
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.digest import sha256
from tilewright.runtime.environment import is_on
from tilewright.runtime.fingerprint import fingerprint
from tilewright.runtime.stored_program import StoredProgram

if TYPE_CHECKING:  # the compiler is imported when something is compiled
    from tilewright.runtime.executable import Executable


def stored_contraction(
    program: Program, device: Device, compiled: Callable[[], Executable], hurried: bool = False
) -> StoredProgram | None:
    """What earlier processes may have left of a contraction's program; None where nothing is kept.

    That is on other devices than the CPU, without a fingerprint, and while TILEWRIGHT_VERIFY asks for the compiler's
    work to be checked.

    Args:
        program: of an einsum, or of steps of a tree.
        device: where it runs.
        compiled: compiles it.
        hurried: contractions of little work get kernels of any shape.
    """
    print_ = fingerprint()
    if device.name != "cpu" or print_ is None or is_on("TILEWRIGHT_VERIFY", False):
        return None
    machine = "" if device is device_for("cpu") else repr(device.machine)
    parts = (*print_, machine, "any shape" if hurried else "", print_program(program))
    digest = sha256("\0".join(parts).encode()).hexdigest()
    return StoredProgram(program, ("contraction", digest), compiled, lambda executable: True)
