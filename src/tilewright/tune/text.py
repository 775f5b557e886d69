"""Tunings as text: a file that can be read, edited, shipped beside a program, and compared by eye.

    # tilewright tuning 1
    program = matmul 5f0c6a3d9b1e47728c05d7a1f3e2b4c6
    device = cpu: AMD EPYC 9354, 2 cores
    outer_0=4096
    block_0=inf

A file may hold several programs and devices: a line `program = ` or `device = ` begins a further part. What follows a
`#` is a comment, but in the name of a device. `program.py` finds `program.tuning` beside itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tilewright.ir.dataclass import dataclass
from tilewright.machine.forking import ForkSafeLock
from tilewright.runtime.messages import brief
from tilewright.tune.places import path_beside

HEADER = "# tilewright tuning 1"
_LOCK = ForkSafeLock()
"""Held from reading a file to replacing it, so that threads that write lose nothing of each other's."""


class TuningError(ValueError):
    """A text is no tuning; the message has file, line and what would be right."""


@dataclass(frozen=True)
class Tuning:
    """The values chosen for a program (its name and digest) on a device (`keys.device_key`)."""

    program: str
    digest: str
    device: str
    values: tuple[tuple[str, float], ...]


def tuning_text(tunings: Iterable[Tuning]) -> str:
    """The text of tunings.

    >>> print(tuning_text([Tuning("dot", "0a1b", "cpu: one, 1 cores", (("outer_0", 32.0),))]), end="")
    # tilewright tuning 1
    program = dot 0a1b
    device = cpu: one, 1 cores
    outer_0=32
    """
    lines = [HEADER]
    for one in tunings:
        lines += [f"program = {one.program} {one.digest}", f"device = {one.device}"]
        lines += [f"{name}={value:.17g}" for name, value in one.values]
    return "\n".join(lines) + "\n"


def parse_tunings(text: str, where: str = "tuning") -> tuple[Tuning, ...]:
    """The tunings of a text.

    Raises:
        TuningError: naming the line that is wrong.
    """
    lines = text.splitlines()
    first = lines[0].strip() if lines else ""
    if first != HEADER:
        other = f", not {brief(first)}: tune again" if first.startswith(HEADER.rstrip("0123456789")) else ""
        raise TuningError(f"{where}: the first line must be {HEADER!r}{other}")
    found: list[tuple[tuple[str, str], str, dict[str, float]]] = []
    program: tuple[str, str] | None = None
    device: str | None = None
    for number, raw in enumerate(lines[1:], 2):
        at = f"{where}, line {number}"
        is_device = raw.partition("=")[0].strip() == "device"  # whose name may have a # in it
        line = (raw if is_device else raw.partition("#")[0]).strip()
        if not line:
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not key:
            raise TuningError(f"{at}: {line!r} is not of the form name=value")
        if key == "program":
            name, _, digest = value.partition(" ")
            if not digest:
                raise TuningError(f"{at}: a program is a name and a digest, not {value!r}")
            program, device = (name, digest.strip()), None
        elif key == "device":
            if program is None:
                raise TuningError(f"{at}: the line 'program = ' must come before the device's")
            device = value
            found.append((program, device, {}))
        elif device is None:
            missing = "program and device" if program is None else f"device: {program[0]} has no line 'device = '"
            raise TuningError(f"{at}: {key} belongs to no {missing}")
        elif key in found[-1][2]:
            raise TuningError(f"{at}: {key} of {found[-1][0][0]} is given twice")
        else:
            found[-1][2][key] = _number(value, at)
    return tuple(Tuning(*program, device, tuple(values.items())) for program, device, values in found)


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not value >= 0:
        raise TuningError(f"{where}: {text!r} is no number of at least 0 (or inf)")
    return value


def read_tunings(path: str | os.PathLike[str]) -> tuple[Tuning, ...]:
    """The tunings in a file.

    Raises:
        TuningError: if it is none.
        OSError: if it cannot be read.
    """
    try:
        return parse_tunings(Path(path).read_text(encoding="utf-8-sig"), os.fspath(path))  # as some editors write it
    except UnicodeDecodeError:
        raise TuningError(f"{os.fspath(path)} is no text") from None


def write_tunings(path: str | os.PathLike[str], tunings: Iterable[Tuning]) -> None:
    """Write tunings to a file; those in it of other programs and devices stay.

    Raises:
        TuningError: if there is a file that is no tuning.
        OSError: if it cannot be written.
    """
    with _LOCK:
        kept = {(one.program, one.device): one for one in (read_tunings(path) if os.path.exists(path) else ())}
        kept.update({(one.program, one.device): one for one in tunings})
        temporary = f"{os.fspath(path)}.{os.getpid()}.new"
        try:
            Path(temporary).write_text(tuning_text(kept.values()), encoding="utf-8")
            os.replace(temporary, path)
        finally:
            with suppress(OSError):  # it is there if it could not be written or put in its place
                os.unlink(temporary)


def file_beside(source: str | os.PathLike[str]) -> Path:
    """Where the tunings of the programs of a source file lie: prog.tuning beside prog.py."""
    return Path(path_beside(source))
