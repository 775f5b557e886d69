"""The tuning store and text files: round trips, damage, many threads and processes, who may read."""

from __future__ import annotations

import errno
import math
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.tune.keys import TuningWarning
from tilewright.tune.places import store_path
from tilewright.tune.search import Measured
from tilewright.tune.store import TuningStore
from tilewright.tune.text import (
    Tuning,
    TuningError,
    file_beside,
    parse_tunings,
    read_tunings,
    tuning_text,
    write_tunings,
)

VALUES = {"outer_0": 4096.0, "block_0": math.inf, "outer_1": 0.0}
NAMES = st.from_regex(r"[a-z_]+_[0-9]", fullmatch=True)
NUMBERS = st.one_of(st.floats(0, allow_nan=False), st.integers(0, 2**60).map(float))


@pytest.fixture
def store(tmp_path: Path) -> TuningStore:
    return TuningStore(tmp_path / "folder" / "tunings.sqlite3")


def test_choices_are_kept_by_program_device_and_shapes(store: TuningStore) -> None:
    assert store.get("p", "cpu") == {}
    assert not os.path.exists(store.path), "reading makes no file"
    store.put("p", "cpu", VALUES)
    store.put("p", "gpu", {"outer_0": 1.0})
    store.put("p", "cpu", {"tile": 8.0}, shapes="f4[64,64]")
    assert store.get("p", "cpu") == VALUES
    assert store.get("p", "gpu") == {"outer_0": 1.0}
    assert store.get("p", "cpu", "f4[64,64]") == {"tile": 8.0}
    assert store.get("q", "cpu") == {}
    assert store.devices("p") == ("cpu", "gpu") and store.devices("q") == ()
    store.put("p", "cpu", {"outer_0": 2.0})
    assert TuningStore(store.path).get("p", "cpu") == {"outer_0": 2.0}


@given(st.dictionaries(NAMES, NUMBERS, max_size=5))
def test_any_value_comes_back(values: dict[str, float]) -> None:
    store = TuningStore(os.path.join(os.environ["TILEWRIGHT_CACHE_DIR"], "round.sqlite3"))
    store.put("p", "cpu", values)
    assert store.get("p", "cpu") == values


def test_measurements_are_stored_when_they_are_made(store: TuningStore) -> None:
    settings = {"outer_0": math.inf, "block_0": 4.0}
    number = store.begin("p", "cpu", "small: f8[3]", settings)
    assert store.measurements("p", "cpu") == [], "this process still runs"
    measured = Measured(
        "small: f8[3]", (("outer_0", 3, False), ("block_0", 3, True)), 0.25, "", tuple(settings.items())
    )
    store.finish(number, measured)
    failed = Measured("small: f8[3]", (), math.inf, "MemoryError: too large", tuple(settings.items()))
    store.finish(store.begin("p", "cpu", "small: f8[3]", settings), failed)
    assert TuningStore(store.path).measurements("p", "cpu") == [measured, failed]
    assert store.measurements("p", "gpu") == []
    store.forget("p", "cpu", number)
    assert store.measurements("p", "cpu") == [failed]
    store.forget("p", "cpu")
    assert store.measurements("p", "cpu") == []


def test_a_run_that_ended_its_process_is_a_failure(store: TuningStore) -> None:
    script = (
        "import os, sys; from tilewright.tune.store import TuningStore\n"
        "TuningStore(sys.argv[1]).begin('p', 'cpu', 'd', {'outer_0': 3.0}); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script, store.path], check=False).returncode == 9
    (found,) = store.measurements("p", "cpu")
    assert found.failure == "the process ended while it ran" and math.isinf(found.seconds)
    assert found.is_for({"outer_0": 3.0}) and not found.is_for({"outer_0": 4.0})


def test_only_the_owner_reads_the_file(store: TuningStore) -> None:
    store.put("p", "cpu", VALUES)
    assert stat.S_IMODE(os.stat(store.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(store.path)).st_mode) == 0o700
    os.chmod(store.path, 0o666)
    with pytest.warns(TuningWarning, match="can be written by other users"):
        assert store.get("p", "cpu") == {}


@pytest.mark.parametrize("content", [b"no database" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_set_aside(store: TuningStore, content: bytes) -> None:
    store.put("p", "cpu", VALUES)
    Path(store.path).write_bytes(content)
    with pytest.warns(TuningWarning, match=r"is damaged .*set aside"):
        assert store.get("p", "cpu") == {}
    assert Path(f"{store.path}.damaged").read_bytes() == content
    store.put("p", "cpu", VALUES)
    assert store.get("p", "cpu") == VALUES


def test_a_file_that_may_only_be_read_is_read(store: TuningStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a folder of another user, or of a file system that nobody can write; whoever runs the tests can."""
    store.put("p", "cpu", VALUES, title="mine")
    number = store.begin("p", "cpu", "d", VALUES)
    store.finish(number, Measured("d", (), 1.0))
    access, connect = os.access, sqlite3.connect

    def connect_to_read(address: str, **options: Any) -> sqlite3.Connection:
        if not address.endswith("mode=ro"):
            raise OSError(errno.EROFS, "Read-only file system")
        connection: sqlite3.Connection = connect(address, **options)
        return connection

    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    monkeypatch.setattr(sqlite3, "connect", connect_to_read)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.get("p", "cpu") == VALUES and store.has_titled("mine", "cpu")
        assert [one.seconds for one in store.measurements("p", "cpu")] == [1.0]
    with pytest.warns(TuningWarning, match="Read-only file system"):
        store.put("p", "cpu", {"outer_0": 1.0})
    assert store.get("p", "cpu") == VALUES


def test_another_version_of_the_format_is_left_alone(store: TuningStore) -> None:
    store.put("p", "cpu", VALUES)
    with sqlite3.connect(store.path) as connection:
        connection.execute("pragma user_version = 7")
    with pytest.warns(TuningWarning, match="version 7 of the format"):
        assert store.get("p", "cpu") == {}
    with pytest.warns(TuningWarning, match="version 7 of the format"):
        store.put("p", "cpu", {})
    with sqlite3.connect(store.path) as connection:
        assert connection.execute("select count(*) from choices").fetchone() == (3,)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("compared", "nonsense"),
        ("compared", '[["outer_0", Infinity, true]]'),
        ("compared", "[" * 100_000),
        ("settings", "[" * 100_000),
        ("data", b"d"),
        ("seconds", "long"),
        ("seconds", -1.0),
        ("failure", None),
    ],
)
def test_rows_that_cannot_be_read_are_left_out(store: TuningStore, column: str, value: Any) -> None:
    store.finish(store.begin("p", "cpu", "d", {}), Measured("d", (), 1.0))
    with sqlite3.connect(store.path) as connection:
        connection.execute(f"update measurements set {column} = ?", (value,))
    assert store.measurements("p", "cpu") == []


@pytest.mark.parametrize("process", [None, "x", 2**62])
def test_runs_of_what_is_no_process_are_left_out(store: TuningStore, process: Any) -> None:
    store.begin("p", "cpu", "d", {})
    with sqlite3.connect(store.path) as connection:
        connection.execute("update measurements set process = ?", (process,))
    assert store.measurements("p", "cpu") == []


def test_a_place_that_cannot_be_written_costs_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = TuningStore(tmp_path / "file" / "tunings.sqlite3")
    with pytest.warns(TuningWarning, match="cannot be used"):
        store.put("p", "cpu", VALUES)
    with pytest.warns(TuningWarning):
        assert store.begin("p", "cpu", "d", {}) == 0


def test_threads_and_processes_store_at_the_same_time(store: TuningStore) -> None:
    script = (
        "import sys; from tilewright.tune.store import TuningStore; from tilewright.tune.search import Measured\n"
        "store = TuningStore(sys.argv[1])\n"
        "for n in range(10):\n"
        "    store.finish(store.begin('p', 'cpu', sys.argv[2], {'t': n}), Measured('', (), float(n)))\n"
        "    store.put('p' + sys.argv[2], 'cpu', {'t': float(n)})\n"
    )
    processes = [subprocess.Popen([sys.executable, "-W", "error", "-c", script, store.path, str(n)]) for n in range(2)]

    def work(name: str) -> None:
        for n in range(10):
            store.finish(store.begin("p", "cpu", name, {"t": n}), Measured(name, (), float(n)))

    threads = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(3)]
    for one in threads:
        one.start()
    for thread in threads:
        thread.join()
    assert [process.wait() for process in processes] == [0, 0]
    assert len(store.measurements("p", "cpu")) == 50
    assert store.get("p0", "cpu") == store.get("p1", "cpu") == {"t": 9.0}


def test_a_thread_that_reads_leaves_the_lock_of_another_alone(store: TuningStore) -> None:
    """POSIX drops the locks of a whole process when any descriptor of the file is closed."""
    store.put("p", "cpu", VALUES)
    script = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('begin immediate')"
    with closing(sqlite3.connect(store.path)) as writing:
        writing.execute("begin immediate")
        assert store.get("p", "cpu") == VALUES
        other = subprocess.run([sys.executable, "-c", script, store.path], capture_output=True, text=True, check=False)
        assert "database is locked" in other.stderr


def test_no_file_but_the_stores_is_left_and_links_are_not_followed(store: TuningStore, tmp_path: Path) -> None:
    store.put("p", "cpu", VALUES)
    assert os.listdir(os.path.dirname(store.path)) == ["tunings.sqlite3"]
    assert stat.S_IMODE(os.stat(store.path).st_mode) == 0o600
    link = tmp_path / "link.sqlite3"
    link.symlink_to(store.path)
    with pytest.warns(TuningWarning, match="no regular file"):
        assert TuningStore(link).get("p", "cpu") == {}


def test_where_the_store_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_path() == os.path.join(os.environ["TILEWRIGHT_CACHE_DIR"], "tunings.sqlite3")
    monkeypatch.setenv("TILEWRIGHT_TUNINGS", "elsewhere")
    assert TuningStore().path == "elsewhere"


# --- text -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(NAMES, st.dictionaries(NAMES, NUMBERS, max_size=4)), max_size=3))
def test_text_round_trip(parts: list[tuple[str, dict[str, float]]]) -> None:
    tunings = tuple(
        Tuning(name, "0a1b", f"cpu: some processor #{n}, 2 = {n} cores", tuple(values.items()))
        for n, (name, values) in enumerate(parts)
    )
    assert parse_tunings(tuning_text(tunings)) == tunings


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the first line must be '# tilewright tuning 1'"),
        ("outer_0=3", "the first line must be '# tilewright tuning 1'$"),
        ("# tilewright tuning 27\n", "the first line must be .* 1', not '# tilewright tuning 27': tune again"),
        ("# tilewright tuning 1\nouter_0=3", "line 2: outer_0 belongs to no program and device"),
        ("# tilewright tuning 1\nprogram = f", "line 2: a program is a name and a digest, not 'f'"),
        ("# tilewright tuning 1\ndevice = cpu", "line 2: the line 'program = ' must come before"),
        ("# tilewright tuning 1\nprogram = f 0\n\ndevice = cpu\nouter_0", "line 5: 'outer_0' is not of the form"),
        ("# tilewright tuning 1\nprogram = f 0\ndevice = cpu\nouter_0=many", "line 4: 'many' is no number"),
        ("# tilewright tuning 1\nprogram = f 0\ndevice = cpu\nouter_0=-1", "line 4: '-1' is no number of at least 0"),
        ("# tilewright tuning 1\nprogram = f 0\ndevice = cpu\nouter_0=nan", "line 4: 'nan' is no number"),
        ("# tilewright tuning 1\nprogram = f 0\ndevice = cpu\n=3", "line 4: '=3' is not of the form name=value"),
        (
            "# tilewright tuning 1\nprogram = f 0\ndevice = cpu\nouter_0=3\nouter_0=4",
            "line 5: outer_0 of f is given tw",
        ),
        (
            "# tilewright tuning 1\nprogram = f 0\ndevice = cpu\nprogram = g 1\nouter_0=3",
            "line 5: outer_0 belongs to no device: g has no line 'device = '",
        ),
    ],
)
def test_what_is_no_tuning_is_told(text: str, reason: str) -> None:
    with pytest.raises(TuningError, match=reason):
        parse_tunings(text)


def test_many_values_are_read_in_no_time() -> None:
    values = tuple((f"outer_0@{most}", 1.0) for most in range(20_000))
    began = time.process_time()
    assert parse_tunings(tuning_text([Tuning("f", "0", "cpu", values)]))[0].values == values
    assert time.process_time() - began < 5  # it was the square of their number: 10 s here


def test_files_keep_what_belongs_to_others(tmp_path: Path) -> None:
    path = tmp_path / "prog.tuning"
    cpu, gpu = Tuning("f", "0", "cpu", (("outer_0", 3.0),)), Tuning("f", "0", "gpu", (("outer_0", math.inf),))
    write_tunings(path, [cpu])
    write_tunings(path, [gpu])
    newer = Tuning("f", "1", "cpu", (("outer_0", 5.0),))
    write_tunings(path, [newer])
    assert read_tunings(path) == (newer, gpu)
    assert [one.name for one in tmp_path.iterdir()] == ["prog.tuning"]
    path.write_bytes("\ufeff".encode() + path.read_bytes())
    assert read_tunings(path) == (newer, gpu)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TuningError, match="is no text"):
        write_tunings(path, [cpu])
    assert file_beside("folder/prog.py") == Path("folder/prog.tuning")


def test_threads_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "prog.tuning"
    failed: list[OSError] = []

    def write(thread: int) -> None:
        try:
            for number in range(10):
                write_tunings(path, [Tuning("f", "0", f"cpu {thread}.{number}", ())])
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed and len(read_tunings(path)) == 80


def test_a_file_that_cannot_be_replaced_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EACCES, "refused")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="refused"):
        write_tunings(tmp_path / "prog.tuning", [Tuning("f", "0", "cpu", ())])
    assert not list(tmp_path.iterdir())
