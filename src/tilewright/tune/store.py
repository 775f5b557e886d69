"""The tuning store: what was measured and what was chosen, in an SQLite file of the user.

Every measurement is stored as soon as it is made, so that a search that was stopped goes on where it was. The file lies
beside the program cache and is readable by its owner only. It may be used by several threads and processes at once:
each operation is one transaction on a connection of its own, one thread of a process after the other, and a fork waits
for the one under way (a child has the connections of its parent, but none of their locks, which SQLite does not know).
A damaged file is set aside with a `TuningWarning`. A file that may only be read is read.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tilewright.machine.forking import ForkSafeLock, hold_at_fork
from tilewright.runtime.cache import check_home
from tilewright.tune.keys import ANY_SHAPE, TuningWarning
from tilewright.tune.places import store_path
from tilewright.tune.search import Measured

VERSION = 1
_SECONDS_TO_WAIT = 30.0
_TABLES = """
create table if not exists choices (
    program text, device text, shapes text, name text, value text, title text, saved real,
    primary key (program, device, shapes, name)
);
create table if not exists measurements (
    id integer primary key, program text, device text, data text, settings text, compared text, seconds real,
    failure text, process integer
);
create index if not exists measured on measurements (program, device);
"""
_LOCK = ForkSafeLock()
Result = TypeVar("Result")

hold_at_fork(lambda: _LOCK)


class TuningStore:
    """Choices and measurements by program (`keys.program_digest`), device (`keys.device_key`) and shape class.

    Args:
        path: the file; None for `store_path()`.

    Example:
        >>> import tempfile
        >>> store = TuningStore(os.path.join(tempfile.mkdtemp(), "tunings.sqlite3"))
        >>> store.put("0a1b", "cpu", {"outer_0": 4096.0})
        >>> store.get("0a1b", "cpu")
        {'outer_0': 4096.0}
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = store_path() if path is None else os.fspath(path)

    # --- choices

    def get(self, program: str, device: str, shapes: str = ANY_SHAPE) -> dict[str, float]:
        """The values chosen for a program on a device; nothing if there are none. What is no number is nan."""
        query = "select name, value from choices where program = ? and device = ? and shapes = ? order by rowid"
        rows = self._rows(query, program, device, shapes)
        return {str(name): _number(value) for name, value in rows}

    def put(
        self, program: str, device: str, values: Mapping[str, float], shapes: str = ANY_SHAPE, title: str = ""
    ) -> None:
        """Store values, in place of all that were there for this program, device and shape class."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("delete from choices where program = ? and device = ? and shapes = ?",
                               (program, device, shapes))  # fmt: skip
            rows = [(program, device, shapes, one, repr(float(value)), title, time.time())
                    for one, value in values.items()]  # fmt: skip
            connection.executemany("insert into choices values (?, ?, ?, ?, ?, ?, ?)", rows)

        self._attempt(write, None)

    def has_titled(self, title: str, device: str) -> bool:
        """Whether anything was chosen on a device for a program with this title, whatever its text was."""
        query = "select 1 from choices where title = ? and device = ? limit 1"
        return bool(self._rows(query, title, device))

    def shapes(self, program: str, device: str) -> tuple[str, ...]:
        """The shape classes that a program has choices for on a device."""
        query = "select distinct shapes from choices where program = ? and device = ? order by shapes"
        return tuple(row[0] for row in self._rows(query, program, device))

    def devices(self, program: str) -> tuple[str, ...]:
        """The devices on which a program has been tuned."""
        query = "select distinct device from choices where program = ? order by device"
        return tuple(row[0] for row in self._rows(query, program))

    # --- measurements

    def measurements(self, program: str, device: str) -> list[Measured]:
        """What has been measured, oldest first.

        A run that began in a process that is no more has ended that process, and is a failure.
        """
        query = (
            "select data, settings, compared, seconds, failure, process from measurements"
            " where program = ? and device = ? order by id"
        )
        rows = self._rows(query, program, device)
        return [one for row in rows if (one := _read_measurement(*row)) is not None]

    def begin(self, program: str, device: str, data: str, settings: Mapping[str, float]) -> int:
        """Note that a run begins; the number by which `finish` or `forget` knows it (0: the store is not usable)."""
        row = (program, device, data, json.dumps(dict(settings)), "[]", None, "", os.getpid())
        query = (
            "insert into measurements (program, device, data, settings, compared, seconds, failure, process)"
            " values (?, ?, ?, ?, ?, ?, ?, ?)"
        )
        return self._attempt(lambda c: c.execute(query, row).lastrowid or 0, 0)

    def finish(self, number: int, measured: Measured) -> None:
        """Store what a run gave."""
        query = "update measurements set compared = ?, seconds = ?, failure = ? where id = ?"
        seconds = None if measured.failure else measured.seconds
        row = (json.dumps(measured.compared), seconds, measured.failure, number)
        self._attempt(lambda c: c.execute(query, row), None)

    def forget(self, program: str, device: str, number: int | None = None) -> None:
        """Drop the measurements of a program on a device, or one of them."""
        query = "delete from measurements where program = ? and device = ?"
        query += "" if number is None else f" and id = {number:d}"
        self._attempt(lambda c: c.execute(query, (program, device)), None)

    def forget_begun(self, program: str, device: str) -> None:
        """Drop what this process has begun and not finished."""
        query = "delete from measurements where program = ? and device = ? and process = ?"
        query += " and seconds is null and failure = ''"
        self._attempt(lambda c: c.execute(query, (program, device, os.getpid())), None)

    # --- the file

    def _rows(self, query: str, *values: str) -> list[Any]:
        if not os.path.exists(self.path):
            return []
        folder = os.path.dirname(os.path.abspath(self.path))
        only = not (os.access(self.path, os.W_OK) and os.access(folder, os.W_OK))
        return self._attempt(lambda one: one.execute(query, values).fetchall(), list[Any](), only)

    def _attempt(
        self, work: Callable[[sqlite3.Connection], Result], otherwise: Result, only_read: bool = False
    ) -> Result:
        """One transaction; a damaged file is set aside and a new one begun."""
        for again in (True, False):
            file = -1, -1
            try:
                with _LOCK:
                    file = self._make_private_file(only_read)
                    with self._connection(only_read) as connection:
                        return work(connection)
            except sqlite3.OperationalError as error:  # locked for long, a full disk, no permission
                self._warn(f"cannot be used ({error})")
                return otherwise
            except sqlite3.DatabaseError as error:
                self._warn(f"is damaged ({error}); it is set aside as {self._aside}")
                self._set_aside(file)
                if not again:
                    return otherwise
            except OSError as error:
                self._warn(f"cannot be used ({error})")
                return otherwise
        return otherwise

    @property
    def _aside(self) -> str:
        return f"{self.path}.damaged"

    def _set_aside(self, file: tuple[int, int]) -> None:
        """Rename a damaged file, unless another thread or process was first and this is a new one, or it must stay."""
        with suppress(OSError):
            if _identity(os.lstat(self.path)) == file:
                os.replace(self.path, self._aside)
                os.replace(f"{self.path}-journal", f"{self._aside}-journal")

    @contextmanager
    def _connection(self, only_read: bool) -> Iterator[sqlite3.Connection]:
        address = f"{Path(self.path).absolute().as_uri()}?mode={'ro' if only_read else 'rw'}"
        with closing(sqlite3.connect(address, timeout=_SECONDS_TO_WAIT, uri=True)) as connection, connection:
            version = connection.execute("pragma user_version").fetchone()[0]
            if version == 0 and not only_read:
                connection.executescript(_TABLES)
                connection.execute(f"pragma user_version = {VERSION}")
            elif version != VERSION:
                raise OSError(f"it has version {version} of the format, this package knows version {VERSION}")
            yield connection

    def _make_private_file(self, only_read: bool) -> tuple[int, int]:
        """Make the file for this user alone, or check that nobody else can write it; which file it is.

        Once made, it is never opened but by SQLite: POSIX drops all locks of a process on a file as soon as the process
        closes any descriptor of it, so that one thread would take away the lock of another in a transaction.
        """
        folder = os.path.dirname(os.path.abspath(self.path))
        if not only_read:
            check_home(self.path)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if not os.path.lexists(self.path):
                with suppress(FileExistsError):  # another process was first
                    os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        status = os.lstat(self.path)
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError("it is no regular file")
        if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            raise PermissionError(f"it belongs to user {status.st_uid}, not to user {os.geteuid()}")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"it can be written by other users (mode {stat.S_IMODE(status.st_mode):04o})")
        return _identity(status)

    def _warn(self, what: str) -> None:
        warnings.warn(
            f"the tuning store {self.path} {what}", TuningWarning, stacklevel=1
        )  # the place that all share: told once


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:  # written by something else
        return float("nan")


def _read_measurement(
    data: Any, settings: Any, compared: Any, seconds: Any, failure: Any, process: Any
) -> Measured | None:
    """A row as it was written; None for a run that is in progress, and for what something else has written."""
    try:
        given = tuple((str(name), float(value)) for name, value in json.loads(settings).items())
        seen = tuple((str(name), int(value), bool(answer)) for name, value, answer in json.loads(compared))
        taken = math.inf if seconds is None else float(seconds)
        if seconds is None and not failure:
            if _is_running(int(process)):
                return None
            failure = "the process ended while it ran"
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    if not (isinstance(data, str) and isinstance(failure, str) and taken >= 0):
        return None
    return Measured(data, seen, taken, failure, given)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
