"""Which tuning a compiled program gets: from a file that is given, the one beside its source, or the user's store.

An entry counts only for the very program (its digest) and device that it was measured with. What is left out, and why,
is told in a `TuningWarning`; a program without any tuning keeps the values of the machine's model, silently.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.runtime.executable import Executable
from tilewright.runtime.thresholds import check_values, threshold_of
from tilewright.tune.keys import TuningWarning, device_key, program_digest
from tilewright.tune.store import TuningStore
from tilewright.tune.text import Tuning, TuningError, file_beside, read_tunings


def tuned(executable: Executable, source: str | None, given: str | os.PathLike[str] | None = None) -> Executable:
    """The executable with tuned thresholds, where there are some for it.

    Args:
        executable: as compiled; one without thresholds stays as it is.
        source: the source file of the program, beside which a tuning may lie.
        given: a file of tunings to be used instead.

    Raises:
        TuningError: if a given file is no tuning.
        OSError: if a given file cannot be read.
    """
    if not executable.has_versions:
        return executable
    values: Mapping[str, float] | None = None
    if given is not None:
        values = _from_tunings(executable, read_tunings(given), os.fspath(given))
    elif source is not None and (beside := file_beside(source)).is_file() and beside != Path(source):
        try:
            values = _from_tunings(executable, read_tunings(beside), str(beside))
        except (TuningError, OSError) as error:
            _warn(f"{beside} is not used: {error}")
    device, store = device_key(executable.device), TuningStore()
    if values is None and store.has_titled(executable.name, device):  # else its versions need not be made
        values = _known(executable, store.get(program_digest(executable.program), device))
    return executable.with_thresholds(values) if values else executable


def _from_tunings(executable: Executable, tunings: Sequence[Tuning], where: str) -> dict[str, float] | None:
    """The values in a file for this program and device; None, with a warning, if there are none."""
    name, device = executable.name, device_key(executable.device)
    named = [one for one in tunings if one.program == name]
    here = [one for one in named if one.device == device]
    fitting = [one for one in here if one.digest == program_digest(executable.program)]
    if fitting:
        return _known(executable, dict(fitting[-1].values), where)
    if here:
        _warn(f"{where}: the tuning of {name} is stale: it was made for another text of the program; tune it again")
    elif named:
        others = "; ".join(sorted({one.device for one in named}))
        _warn(f"{where}: the tuning of {name} is not for this device: it was made on {others}, this is {device}")
    return None


def _known(executable: Executable, values: Mapping[str, float], where: str = "the tuning store") -> dict[str, float]:
    """The values of thresholds that the program has and can take; what else somebody has written is told."""
    unknown = [one for one in values if threshold_of(one) not in executable.thresholds]
    if unknown:
        known = ", ".join(executable.thresholds)
        _warn(f"{where}: {executable.name} has no threshold {', '.join(unknown)}; it has {known}")
    kept: dict[str, float] = {}
    for name, value in values.items():
        if name in unknown:
            continue
        try:
            check_values(executable.name, executable.thresholds, {name: value})
            kept[name] = value
        except ValueError as error:
            _warn(f"{where}: {error}; the model's value is taken")
    return kept


def _warn(message: str) -> None:
    warnings.warn(message, TuningWarning, stacklevel=5)
