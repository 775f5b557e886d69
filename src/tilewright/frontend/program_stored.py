"""Traced programs on the disk: what decides how one is compiled, as the key of what is kept of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.frontend.program_options import ProgramOptions
from tilewright.ir.nodes import Program
from tilewright.ir.printer import print_program
from tilewright.ir.traversal import all_statements
from tilewright.machine.cores import usable_cores
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.digest import sha256
from tilewright.runtime.environment import is_on
from tilewright.runtime.fingerprint import fingerprint
from tilewright.tune.places import path_beside, store_path

if TYPE_CHECKING:  # imported where a program may be on the disk
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.stored_program import StoredProgram


def stored_program(
    program: Program, options: ProgramOptions, device: Device, source: str | None, compiled: Callable[[], Executable]
) -> StoredProgram | None:
    """What earlier processes may have left of a program; None where nothing is kept.

    That is on other devices than the CPU, without a fingerprint, and while TILEWRIGHT_VERIFY asks for the compiler's
    work to be checked.

    Args:
        program: as it was traced.
        options: of the user.
        device: where it runs.
        source: its file, beside which a tuning may lie.
        compiled: compiles it.
    """
    print_ = fingerprint()
    is_host = device is device_for("cpu")  # whose machine follows from the fingerprint, and takes long to describe
    if options.tiles or print_ is None or not (is_host or device.machine.kind == "cpu"):
        return None
    if is_on("TILEWRIGHT_VERIFY", False):
        return None
    try:
        tuning, stored = _tuning_text(options.tuning, source), _stamp(store_path())
    except OSError:  # which the compiler tells of
        return None

    def keeps(executable: Executable) -> bool:
        # A tuning that was not used has been warned of, as in every process that compiles the program.
        return not tuning or not executable.has_versions or bool(executable.given and not options.thresholds)

    machine = f"{usable_cores()} cores" if is_host else repr(device.machine)
    parts = (
        *print_, machine, print_program(program), *_lines(program),
        repr((options.flattening, options.contractions, options.unchecked, sorted(options.thresholds.items()))),
        tuning, stored,
    )  # fmt: skip
    from tilewright.runtime.stored_program import StoredProgram

    digest = sha256("\0".join(parts).encode()).hexdigest()
    return StoredProgram(program, ("program", digest), compiled, keeps)


def _lines(program: Program) -> list[str]:
    """Where the user wrote what may fail, and whether that is checked: no part of a program's text."""
    expressions: list[Any] = [one.expression for one in all_statements(program.body)]
    return [f"{one.line} {one.checked}" for one in expressions if hasattr(one, "line")]


def _tuning_text(given: str | os.PathLike[str] | None, source: str | None) -> str:
    """The file of tunings that counts for a program; nothing if there is none.

    Raises:
        OSError: if it cannot be read.
    """
    beside = None if source is None else path_beside(source)
    path = given if given is not None else beside
    if path is None or (given is None and (not os.path.isfile(path) or os.fspath(path) == source)):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return f"tuning: {file.read()}"


def _stamp(path: str) -> str:
    """Size and time of a file; nothing if it does not exist."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"
