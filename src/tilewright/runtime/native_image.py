"""Machine code that needs no linker: images, which are copied into memory and run where they lie.

An image is made of an object file once, when a kernel is compiled (`elf_image`): its code and constants in one piece,
with every reference inside it resolved relative to itself. What is left to do in a later process is to copy the piece
to fresh pages, to write down where the functions of the C library are that it calls, and to make the pages executable:
tens of microseconds, without LLVM, whose import alone takes longer than most calculations.

Pages are writable or executable, never both at once. Whoever loads an image vouches for it: images come out of this
process's compiler, or from the disk cache, which checks owner, mode and SHA-256, under a key that names this
processor.

    "TWIMAGE1"  8 bytes
    length      of the directory, 8 bytes, little-endian
    directory   lines of UTF-8: "function NAME OFFSET", "slot NAME OFFSET" (8 bytes that take NAME's address)
    code        from here on offsets count
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

MAGIC = b"TWIMAGE1"
_LIBRARIES = (None, "libm.so.6", "libmvec.so.1", "libgcc_s.so.1")  # None: what the interpreter itself is linked with


class ImageError(Exception):
    """An image is damaged, needs a function that this system has not, or may not be made executable here."""


class NativeKernel(NamedTuple):
    """Machine code of a kernel in this process; it stays loaded as long as this value lives.

    `address` is that of `void (ptr arguments, i64 first_block, i64 last_block, ptr workspace)`. `image` is the image
    that it was loaded from, b"" if there is none.
    """

    name: str
    address: int
    workspace_bytes: int = 0
    engine: Any = None
    image: bytes = b""

    def __repr__(self) -> str:
        return f"NativeKernel({self.name!r}, {self.address:#x}, {self.workspace_bytes} bytes of workspace)"


class LoadedImage:
    """An image in memory; `functions` are the addresses of its functions, valid as long as this value lives."""

    def __init__(self, image: bytes) -> None:
        functions, slots, code = read_image(image)
        addresses = [(offset, library_function(name)) for name, offset in slots]
        self._pages = mmap.mmap(-1, max(1, len(code)), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._pages.write(code)
        for offset, address in addresses:
            self._pages[offset : offset + 8] = address.to_bytes(8, "little")
        self._bytes = (ctypes.c_char * len(self._pages)).from_buffer(self._pages)  # keeps the pages where they are
        start = ctypes.addressof(self._bytes)
        if _protect()(start, len(self._pages), mmap.PROT_READ | mmap.PROT_EXEC):
            raise ImageError(f"memory cannot be made executable (error {ctypes.get_errno()})")
        self.functions = {name: start + offset for name, offset in functions}


def keep_for_ever(code: object) -> None:
    """Never unload code: threads may be in it when the interpreter, with all that it holds, is gone."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))


def load_kernel(image: bytes, name: str, workspace_bytes: int = 0) -> NativeKernel:
    """A kernel of an image.

    Raises:
        ImageError: if it cannot be loaded or does not define the function `name`.
    """
    loaded = LoadedImage(image)
    if name not in loaded.functions:
        raise ImageError(f"the image of {len(image)} bytes does not define the function {name}")
    return NativeKernel(name, loaded.functions[name], workspace_bytes, loaded, image)


def write_image(functions: Sequence[tuple[str, int]], slots: Sequence[tuple[str, int]], code: bytes) -> bytes:
    """An image from the offsets of its functions and slots.

    Example:
        >>> read_image(write_image([("f", 0)], [], b"code"))
        ([('f', 0)], [], b'code')
    """
    lines = [f"function {name} {offset}" for name, offset in functions]
    lines += [f"slot {name} {offset}" for name, offset in slots]
    directory = "\n".join(lines).encode()
    return MAGIC + len(directory).to_bytes(8, "little") + directory + code


def read_image(image: bytes) -> tuple[list[tuple[str, int]], list[tuple[str, int]], bytes]:
    """The functions, slots and code of an image.

    Raises:
        ImageError: if it is none.
    """
    length = int.from_bytes(image[8:16], "little")
    code = image[16 + length :]
    found: dict[str, list[tuple[str, int]]] = {"function": [], "slot": []}
    try:
        if image[:8] != MAGIC or len(image) < 16 + length:
            raise ValueError("they do not begin as an image does, or are cut off")
        for line in image[16 : 16 + length].decode().splitlines():
            kind, name, offset = line.split(" ")
            if not 0 <= int(offset) <= len(code) - (8 if kind == "slot" else 1):
                raise ValueError(f"{kind} {name} lies outside")
            found[kind].append((name, int(offset)))
    except (ValueError, KeyError) as error:
        raise ImageError(f"{len(image)} bytes are no image: {error}") from error
    return found["function"], found["slot"], code


@cache
def _protect() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return library.mprotect


@cache
def _library(name: str | None) -> Any:
    try:
        return ctypes.CDLL(name)
    except OSError:  # another C library; what it would have given is missed by name
        return None


@cache
def library_function(symbol: str) -> int:
    """Where a function of the C library is.

    Raises:
        ImageError: if this system has no function of this name.
    """
    for name in _LIBRARIES:
        library = _library(name)
        if library is not None and hasattr(library, symbol):
            return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
    raise ImageError(f"the libraries of this system have no function {symbol}")
