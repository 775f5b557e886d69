"""The caches: round trips, damage, other users, full disks, several processes and threads, eviction."""

import multiprocessing
import os
import stat
import threading
import time
import warnings
from importlib import metadata
from pathlib import Path

import pytest

from tilewright.runtime import cache as cache_module
from tilewright.runtime.cache import DiskCache, MemoryCache, cache_folder, default_disk_cache, package_version
from tilewright.runtime.errors import CacheWarning

KEY = ("some text", "some device")


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("??/*") if path.is_file())


def test_round_trip_and_modes(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "cache"
    cache = DiskCache(folder)
    assert cache.get(KEY) is None
    cache.put(KEY, b"one")
    cache.put(KEY, b"two")
    cache.put(("other",), b"")
    assert DiskCache(folder).get(KEY) == b"two"
    assert cache.get(("other",)) == b""
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in entries(folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    cache.clear()
    assert cache.size_bytes() == 0
    assert cache.get(KEY) is None


def test_key_parts_do_not_run_together(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    cache.put(("a", "bc"), b"1")
    assert cache.get(("ab", "c")) is None
    assert cache.get(("abc",)) is None
    assert cache.get(("a", "bc", "")) is None


def damage_truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def damage_flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_header(path: Path) -> None:
    path.write_bytes(b"X" + path.read_bytes()[1:])


@pytest.mark.parametrize("damage", [damage_truncated, damage_flipped, damage_empty, damage_header])
def test_damage_is_found_and_repaired(tmp_path: Path, damage) -> None:
    cache = DiskCache(tmp_path / "c")
    cache.put(KEY, b"payload")
    damage(entries(tmp_path / "c")[0])
    with pytest.warns(CacheWarning, match="is damaged"):
        assert cache.get(KEY) is None
    assert cache.get(KEY) is None  # gone, and no second warning
    cache.put(KEY, b"payload")
    assert cache.get(KEY) == b"payload"


def test_entry_under_a_wrong_name_is_damaged(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    cache.put(("a",), b"program of a")
    source = entries(tmp_path / "c")[0]
    cache.put(("b",), b"program of b")
    target = next(path for path in entries(tmp_path / "c") if path != source)
    target.write_bytes(source.read_bytes())
    with pytest.warns(CacheWarning, match="is damaged"):
        assert cache.get(("b",)) is None


def test_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    folder.chmod(0o777)
    cache = DiskCache(folder)
    with pytest.warns(CacheWarning, match=r"can be written by other users \(mode 0777\)"):
        cache.put(KEY, b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get(KEY) is None
    assert list(folder.iterdir()) == []


def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DiskCache(tmp_path / "c").put(KEY, b"x")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.warns(CacheWarning, match=f"belongs to user {mine}, not to user {mine + 1}"):
        assert DiskCache(tmp_path / "c").get(KEY) is None


def test_entry_that_others_can_write_is_refused(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    cache.put(KEY, b"x")
    entries(tmp_path / "c")[0].chmod(0o666)
    with pytest.warns(CacheWarning, match="can be written by other users"):
        assert cache.get(KEY) is None


def test_link_in_place_of_an_entry_is_refused(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    cache.put(KEY, b"x")
    path = entries(tmp_path / "c")[0]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(CacheWarning, match="cannot be read"):
        assert cache.get(KEY) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_in_place_of_an_entry_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    cache.put(KEY, b"payload")
    (path,) = entries(tmp_path / "c")
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.warns(CacheWarning, match="cannot be read .it is no regular file"):
        assert cache.get(KEY) is None
    cache.put(KEY, b"again")
    assert cache.get(KEY) == b"again"


def test_full_disk_gives_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path / "c")
    cache.put(KEY, b"x")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(CacheWarning, match="No space left") as caught:
        cache.put(("a",), b"1")
        cache.put(("b",), b"2")
    assert len(caught) == 1
    assert cache.get(KEY) == b"x"  # reading goes on
    assert not list((tmp_path / "c").glob("??/.writing-*"))


@pytest.mark.parametrize("below", [".", "c", "c/d"])
def test_folder_that_cannot_be_made_gives_one_warning(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = DiskCache(tmp_path / "file" / below)
    with pytest.warns(CacheWarning, match="cannot be made") as caught:
        cache.put(KEY, b"x")
        assert cache.get(KEY) is None
    assert len(caught) == 1


def test_eviction_removes_the_least_recently_used(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c", limit_bytes=10_000)
    long_ago = time.time() - 1000
    for number in range(9):
        cache.put((str(number),), bytes(1000))
        newest = max(entries(tmp_path / "c"), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (long_ago + number, long_ago + number))
    assert cache.get(("0",)) is not None  # used now, so number 1 is the oldest
    cache.put(("new",), bytes(1000))
    assert cache.size_bytes() <= 10_000
    kept = {name for name in [*map(str, range(9)), "new"] if cache.get((name,)) is not None}
    assert "1" not in kept
    assert {"0", "8", "new"} <= kept


def test_entry_larger_than_the_limit_is_not_stored(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c", limit_bytes=100)
    cache.put(KEY, bytes(101))
    assert cache.get(KEY) is None
    assert cache.size_bytes() == 0


def test_left_over_temporary_files_are_removed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    cache.put(KEY, b"x")
    old, young = (entries(tmp_path / "c")[0].parent / f".writing-{age}" for age in ("old", "young"))
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.size_bytes()
    assert not old.exists()
    assert young.exists()


def _hammer(folder: str, worker: int, failures: "multiprocessing.Queue[str]") -> None:
    warnings.simplefilter("error")
    try:
        cache = DiskCache(Path(folder), limit_bytes=40_000)
        for step in range(60):
            number = (step * 7 + worker) % 20
            expected = bytes([number]) * (1000 + number)
            cache.put((str(number),), expected)
            found = cache.get((str((step + worker) % 20),))
            if found is not None and found != bytes([found[0]]) * (1000 + found[0]):
                failures.put(f"worker {worker} read a mixture")
    except Exception as error:
        failures.put(f"worker {worker}: {error!r}")


def test_several_processes_share_a_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    workers = [context.Process(target=_hammer, args=(str(tmp_path / "c"), n, failures)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert failures.empty(), failures.get()
    cache = DiskCache(tmp_path / "c")
    assert cache.size_bytes() > 0
    assert any(cache.get((str(number),)) == bytes([number]) * (1000 + number) for number in range(20))


def test_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "named"))
    monkeypatch.setenv("TILEWRIGHT_CACHE_LIMIT", "2M")
    cache = default_disk_cache()
    assert (cache.folder, cache.limit_bytes) == (str(tmp_path / "named"), 2 << 20)
    assert default_disk_cache() is cache
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == str(tmp_path / "xdg" / "tilewright")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == str(tmp_path / "home" / ".cache" / "tilewright")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "~/mine")
    assert cache_folder() == str(tmp_path / "home" / "mine")
    monkeypatch.setenv("TILEWRIGHT_CACHE_LIMIT", "a lot")
    with pytest.raises(ValueError, match="TILEWRIGHT_CACHE_LIMIT='a lot' is not a number of bytes"):
        default_disk_cache()
    monkeypatch.delenv("TILEWRIGHT_CACHE_LIMIT")
    assert default_disk_cache().limit_bytes == cache_module.DEFAULT_LIMIT
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    off = default_disk_cache()
    off.put(KEY, b"x")
    assert off.get(KEY) is None
    assert not (tmp_path / "home").exists()


def test_the_version_is_that_of_the_installed_package() -> None:
    assert package_version() == metadata.version("tilewright")


def test_memory_cache_builds_once_for_many_threads() -> None:
    cache: MemoryCache[str, object] = MemoryCache()
    gate, builds, seen = threading.Barrier(8), [], []

    def build() -> object:
        builds.append(1)
        time.sleep(0.02)
        return object()

    def ask() -> None:
        gate.wait()
        seen.append(cache.get_or_build("key", build))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert len(set(map(id, seen))) == 1
    assert len(seen) == 8
    assert not cache._building


def test_memory_cache_builds_different_keys_side_by_side() -> None:
    cache: MemoryCache[str, str] = MemoryCache()
    both = threading.Barrier(2, timeout=600)  # breaks, and with it the build, if the builds take turns

    def ask(key: str) -> None:
        cache.get_or_build(key, lambda: f"{key}{both.wait() * 0}")

    threads = [threading.Thread(target=ask, args=(key,)) for key in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 2


def test_memory_cache_is_bounded_and_forgets_the_least_recently_used() -> None:
    cache: MemoryCache[int, int] = MemoryCache(capacity=2)
    for key in (1, 2):
        cache.get_or_build(key, lambda: 0)
    cache.get_or_build(1, lambda: 99)
    cache.get_or_build(3, lambda: 0)
    assert cache.get_or_build(1, lambda: 99) == 0
    assert cache.get_or_build(2, lambda: 99) == 99
    assert len(cache) == 2
    cache.clear()
    assert len(cache) == 0
    with pytest.raises(ValueError, match="room for one entry"):
        MemoryCache(capacity=0)


def test_memory_cache_keeps_no_failure() -> None:
    cache: MemoryCache[int, int] = MemoryCache()

    def fail() -> int:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        cache.get_or_build(1, fail)
    assert cache.get_or_build(1, lambda: 5) == 5
