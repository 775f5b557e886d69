"""Native code that is the same for all programs (the thread pool's driver, the entries of small calls): one copy each.

It is written as LLVM text. Later processes take it from the disk as an image (`native_image`), without LLVM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tilewright.runtime.cache import default_disk_cache, package_version
from tilewright.runtime.fingerprint import fingerprint
from tilewright.runtime.native_image import ImageError, LoadedImage, keep_for_ever

if TYPE_CHECKING:  # the compiler is imported when something is compiled
    from tilewright.kernel.llvm import CpuTarget


def native_functions(name: str, functions: Sequence[str], text: Callable[[CpuTarget], str]) -> dict[str, int]:
    """The addresses of the functions of an LLVM text.

    Args:
        name: what the text is called on the disk.
        functions: those that are wanted.
        text: gives the text for a processor.
    """
    disk, print_ = default_disk_cache(), fingerprint()
    parts = None if print_ is None else ("native image", name, *print_)
    image = None if parts is None else disk.get(parts)
    if image is not None:
        with suppress(ImageError):  # this system's C library is another one: compiled anew below
            mapped = LoadedImage(image)
            keep_for_ever(mapped)
            return mapped.functions
    code = _object_code(text)
    from tilewright.runtime.cpu_jit import load_code

    loaded = load_code(code)
    keep_for_ever(loaded.kept)
    if parts is not None and loaded.image:
        disk.put(parts, loaded.image)
    return {one: loaded.address(one) for one in functions}


def _object_code(text: Callable[[CpuTarget], str]) -> bytes:
    """The text compiled, or taken from the disk where there are no images."""
    from tilewright.runtime.cpu_jit import compile_text, host_cpu, text_key

    written = text(host_cpu())
    disk = default_disk_cache()
    parts = ("native object", package_version(), text_key(written, "quick"))
    code = disk.get(parts)
    if code is None:
        code = compile_text(written, "quick")
        disk.put(parts, code)
    return code
