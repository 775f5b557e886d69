"""Caches of compiled programs: one on disk that survives the process, one in memory that builds each key once.

The disk cache holds machine code that will be run, so it only uses a folder that nobody else can write. Every entry
carries a checksum. Whatever goes wrong with the disk costs a rebuild and a `CacheWarning`, never an error or a wrong
program.
"""

from __future__ import annotations

import os
import stat
import sys
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import lru_cache
from typing import Generic, TypeVar

from tilewright.machine.forking import ForkSafeLock
from tilewright.runtime.digest import sha256
from tilewright.runtime.environment import byte_count, is_on
from tilewright.runtime.errors import CacheWarning

DEFAULT_LIMIT = 512 << 20
"""Bytes that the disk cache may hold when TILEWRIGHT_CACHE_LIMIT is not set."""

_MAGIC = b"TWCACHE1"
_HEADER = len(_MAGIC) + 32
_TEMPORARY_PREFIX = ".writing-"
_SECONDS_UNTIL_ABANDONED = 3600.0
_PUTS_BETWEEN_SCANS = 64

Key = TypeVar("Key")
Value = TypeVar("Value")
Owner = TypeVar("Owner")


class DiskCache:
    """A content-addressed store of byte strings in a folder, shared safely by threads and processes.

    An entry is written to a temporary file and renamed, so a reader sees all of it or nothing. When the entries exceed
    `limit_bytes`, those used least recently are removed. Folders are made with mode 0700, files with 0600.

    Args:
        folder: where the entries lie; None keeps nothing.
        limit_bytes: total size that the entries may have.

    Example:
        >>> import tempfile
        >>> cache = DiskCache(tempfile.mkdtemp())
        >>> cache.put(("text", "device"), b"program")
        >>> cache.get(("text", "device"))
        b'program'
    """

    def __init__(self, folder: str | os.PathLike[str] | None, limit_bytes: int = DEFAULT_LIMIT) -> None:
        self.folder = None if folder is None else os.fspath(folder)
        self.limit_bytes = limit_bytes
        self._lock = ForkSafeLock()
        self._usable: bool | None = None if folder is not None else False
        self._writable = True
        self._held_bytes: int | None = None
        self._puts = 0

    def get(self, key_parts: tuple[str, ...]) -> bytes | None:
        """The bytes stored under the key, or None. A damaged entry gives a `CacheWarning` and None."""
        path = self._path(key_parts)
        if path is None:
            return None
        try:
            data = _read_owned(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"the cache entry {path} cannot be read ({error}); the program is built again")
            return None
        payload = data[_HEADER:]
        if data[:_HEADER] != _header(os.path.basename(path), payload):
            self._warn(f"the cache entry {path} is damaged; the program is built again")
            _remove(path)
            return None
        with suppress(OSError):  # on a read-only disk nothing will be evicted either
            os.utime(path)  # marks it as used, for the eviction
        return payload

    def put(self, key_parts: tuple[str, ...], data: bytes) -> None:
        """Store bytes under the key, replacing what was there. A disk that cannot be written gives one warning."""
        path = self._path(key_parts)
        if path is None or not self._writable:
            return
        size = _HEADER + len(data)
        if size > self.limit_bytes:
            return
        try:
            _make_folders(os.path.dirname(path))  # all of them again, if somebody has removed the folder meanwhile
            _write_atomically(path, _header(os.path.basename(path), data) + data)
        except OSError as error:
            self._writable = False
            self._warn(f"the program cache in {self.folder} cannot be written ({error}); nothing more is stored there")
            return
        with self._lock:
            self._account(size)

    def clear(self) -> None:
        """Remove every entry."""
        for path, _, _ in self._entries():
            _remove(path)
        with self._lock:
            self._held_bytes = 0

    def size_bytes(self) -> int:
        """Total size of the entries on disk now."""
        return sum(size for _, size, _ in self._entries())

    def _path(self, key_parts: tuple[str, ...]) -> str | None:
        with self._lock:
            if self._usable is None:
                self._usable = self._open_folder()
        if not self._usable or self.folder is None:
            return None
        digest = _digest_of_key(key_parts)
        return os.path.join(self.folder, digest[:2], digest)

    def _open_folder(self) -> bool:
        """Make the folder or check that it is ours alone to write."""
        assert self.folder is not None
        try:
            check_home(self.folder)
            _make_folders(self.folder)
            status = os.stat(self.folder)
        except OSError as error:
            self._warn(f"the program cache folder {self.folder} cannot be made ({error}); working without it")
            return False
        reason = _why_not_private(status)
        if reason:
            self._warn(f"the program cache folder {self.folder} {reason}; working without it")
        return reason is None

    def _account(self, size: int) -> None:
        """Count what was stored; look at the disk now and then, because other processes store there too."""
        self._puts += 1
        if self._held_bytes is None or self._puts % _PUTS_BETWEEN_SCANS == 0:
            self._held_bytes = self.size_bytes()
        else:
            self._held_bytes += size
        if self._held_bytes > self.limit_bytes:
            self._held_bytes = self._evict()

    def _evict(self) -> int:
        """Remove the entries used least recently until a tenth of the limit is free; the bytes that remain."""
        entries = sorted(self._entries(), key=lambda entry: entry[2])
        held = sum(size for _, size, _ in entries)
        for path, size, _ in entries:
            if held <= self.limit_bytes * 9 // 10:
                break
            _remove(path)
            held -= size
        return held

    def _entries(self) -> list[tuple[str, int, int]]:
        """Path, size and time of last use (ns) of every entry; files that a dead writer left are removed."""
        found: list[tuple[str, int, int]] = []
        folders = [] if self.folder is None else [one for one in _listed(self.folder) if len(one.name) == 2]
        for entry in [one for folder in folders for one in _listed(folder.path)]:
            try:
                status = entry.stat()
            except FileNotFoundError:  # removed by another process meanwhile
                continue
            if entry.name.startswith(_TEMPORARY_PREFIX):
                if time.time() - status.st_mtime > _SECONDS_UNTIL_ABANDONED:
                    _remove(entry.path)
                continue
            found.append((entry.path, status.st_size, status.st_mtime_ns))
        return found

    @staticmethod
    def _warn(message: str) -> None:
        warnings.warn(message, CacheWarning, stacklevel=4)


class HashedOnce:
    """A key that is hashed when it is made, and not at each look-up: of a long program that takes milliseconds.

    Example:
        >>> HashedOnce((1, "a")) == HashedOnce((1, "a")), hash(HashedOnce(2)) == hash(2)
        (True, True)
    """

    __slots__ = ("_hash", "value")

    def __init__(self, value: Hashable) -> None:
        self.value, self._hash = value, hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashedOnce) and self._hash == other._hash and self.value == other.value


class _Build:
    """Of a key whose value is being built: the lock, and how many hold or await it."""

    def __init__(self) -> None:
        self.lock = ForkSafeLock()
        self.users = 0


class MemoryCache(Generic[Key, Value]):
    """A bounded map from keys to built values that builds each key once, however many threads ask at the same time.

    Different keys build side by side. A build that raises stores nothing; the next thread that asks tries again.

    Example:
        >>> squares: MemoryCache[int, int] = MemoryCache(capacity=2)
        >>> squares.get_or_build(3, lambda: 9)
        9
        >>> squares.get_or_build(3, lambda: 0)
        9
    """

    def __init__(self, capacity: int = 256) -> None:
        if capacity < 1:
            raise ValueError(f"a cache needs room for one entry at least, not {capacity}")
        self.capacity = capacity
        self._lock = ForkSafeLock()
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._building: dict[Key, _Build] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get_or_build(self, key: Key, build: Callable[[], Value]) -> Value:
        """The value of `key`, built by `build()` if it is not there; raises what `build` raises."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            own = self._building.setdefault(key, _Build())
            own.users += 1
        try:
            with own.lock:
                with self._lock:
                    if key in self._values:
                        return self._values[key]
                value = build()
                with self._lock:
                    self._values[key] = value
                    while len(self._values) > self.capacity:
                        self._values.popitem(last=False)
                return value
        finally:
            with self._lock:
                own.users -= 1
                if own.users <= 0:
                    self._building.pop(key, None)

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()


class IdentityCache(Generic[Owner, Value]):
    """What was built of an object, found by the object itself: neither hashed nor compared, however large it is.

    The object is kept with the value, so that its place in memory is not another's meanwhile.

    Example:
        >>> lengths: IdentityCache[tuple[int, ...], int] = IdentityCache()
        >>> owner = (1, 2, 3)
        >>> [lengths.get_or_build(owner, len), lengths.get_or_build(owner, lambda _: 0)]
        [3, 3]
    """

    def __init__(self, capacity: int = 256) -> None:
        self._built: MemoryCache[int, tuple[Owner, Value]] = MemoryCache(capacity)

    def get_or_build(self, owner: Owner, build: Callable[[Owner], Value]) -> Value:
        """The value of an object, `build(owner)` if it is not there; raises what `build` raises."""
        return self._built.get_or_build(id(owner), lambda: (owner, build(owner)))[1]


def default_disk_cache() -> DiskCache:
    """The cache in the user's cache folder, as the environment says at the time of the call.

    TILEWRIGHT_CACHE_DIR names the folder (default: XDG_CACHE_HOME/tilewright or ~/.cache/tilewright),
    TILEWRIGHT_CACHE_LIMIT its size in bytes (a suffix K, M or G is allowed), and TILEWRIGHT_CACHE=0 switches it off.

    Raises:
        ValueError: if TILEWRIGHT_CACHE_LIMIT is not a size, or TILEWRIGHT_CACHE no yes or no.
    """
    if not is_on("TILEWRIGHT_CACHE", True):
        return _disk_cache(None, 0)
    return _disk_cache(cache_folder(), byte_count("TILEWRIGHT_CACHE_LIMIT", DEFAULT_LIMIT))


def cache_folder() -> str:
    """The folder of the user's caches (see `default_disk_cache`); it may not exist yet."""
    named = os.environ.get("TILEWRIGHT_CACHE_DIR")
    if named:
        return os.path.expanduser(named)  # no shell has seen a ~ that stands between quotes or in a container's file
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "tilewright")


def check_home(path: str) -> None:
    """Refuse a path that begins with a home folder that nobody knows: it would be made where the process is.

    Raises:
        FileNotFoundError: then; containers run as users that the system has not heard of.
    """
    if path.startswith("~"):
        raise FileNotFoundError(f"no home folder is known for {path.partition(os.sep)[0]}")


def package_version() -> str:
    """The version of this package, a part of every key: another version may generate and call code differently."""
    version: str = sys.modules[__name__.partition(".")[0]].__version__  # of the metadata, which take long to read
    return version


@lru_cache(maxsize=8)
def _disk_cache(folder: str | None, limit_bytes: int) -> DiskCache:
    return DiskCache(folder, limit_bytes)


def _digest_of_key(key_parts: tuple[str, ...]) -> str:
    digest = sha256()
    for part in key_parts:  # the length in front keeps ("a", "bc") and ("ab", "c") apart
        encoded = part.encode("utf-8", "surrogatepass")  # what users wrote need not be text that can be encoded
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()


def _header(name: str, payload: bytes) -> bytes:
    """Magic and checksum; the checksum covers the name, so that an entry under a wrong name is damaged too."""
    return _MAGIC + sha256(name.encode() + payload).digest()


def _why_not_private(status: os.stat_result) -> str | None:
    """Why machine code from a file or folder of this status must not be run, or None."""
    if not hasattr(os, "geteuid"):  # systems without POSIX owners
        return None
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to user {os.geteuid()}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by other users (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _read_owned(path: str) -> bytes:
    """The content of a regular file that only this user can write; OSError otherwise."""
    flags = (getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))
    descriptor = os.open(path, sum(flags, os.O_RDONLY))  # a pipe is opened without waiting for who writes to it
    try:
        status = os.fstat(descriptor)
        reason = _why_not_private(status) if stat.S_ISREG(status.st_mode) else "is no regular file"
        if reason:
            raise PermissionError(f"it {reason}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _write_atomically(path: str, data: bytes) -> None:
    temporary = os.path.join(os.path.dirname(path), _TEMPORARY_PREFIX + os.urandom(8).hex())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise


def _remove(path: str) -> None:
    with suppress(OSError):  # a disk that became read-only: the entry stays and is found damaged or old again
        os.unlink(path)


def _make_folders(path: str) -> None:
    """Make a folder for this user alone, and those above it where they are missing."""
    above = os.path.dirname(path)
    if above and not os.path.isdir(above):
        _make_folders(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def _listed(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # it is not there yet, or is no folder
        return []
