"""Flat plans on the disk, machine code included, to be used again without compiler and LLVM.

A record is JSON: facts that the caller adds, the plan, and for each kernel its name, workspace and the SHA-256 of its
image (`native_image`), which is an entry of its own: plans for other sizes may share it.

What is read here is going to be run. It comes from the disk cache, which checks owner, mode and SHA-256, under a key
with `fingerprint()` in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tilewright.runtime.cache import DiskCache, MemoryCache
from tilewright.runtime.digest import sha256
from tilewright.runtime.flat_plan import EntryLaunch, FlatPlan
from tilewright.runtime.json_reader import read_json
from tilewright.runtime.native_image import ImageError, NativeKernel, load_kernel

Plan = TypeVar("Plan")
_VERSION = 1
_KERNELS: MemoryCache[tuple[str, int, str], NativeKernel] = MemoryCache(capacity=1024)


def store_plan(disk: DiskCache, key: tuple[str, ...], plan: FlatPlan, facts: dict[str, Any]) -> bool:
    """Store a plan under a key; False if a kernel has no image (LLVM linked it) or the plan holds much memory."""
    kernels = list(dict.fromkeys(one.native for one in plan.launches))
    if not all(one.image for one in kernels):
        return False
    record = {
        "version": _VERSION,
        "facts": facts,
        "masks": plan.masks,
        "temporaries": plan.temporaries,
        "launches": [[kernels.index(one.native), one.blocks, one.buffers, one.scalars] for one in plan.launches],
        "kernels": [kernel_entry(disk, one) for one in kernels],
    }
    import json  # which nothing that reads records needs

    disk.put(key, json.dumps(record).encode())
    return True


def stored_plan(disk: DiskCache, key: tuple[str, ...]) -> tuple[FlatPlan, dict[str, Any]] | None:
    """The plan of a key with its kernels loaded, and the facts; None if there is none that can be used here."""

    def read(record: dict[str, Any]) -> FlatPlan | None:
        kernels = [stored_kernel(disk, *one) for one in record["kernels"]]
        launches = tuple(
            EntryLaunch(kernels[number], int(blocks), _numbers(buffers), _numbers(scalars))
            for number, blocks, buffers, scalars in record["launches"]
        )
        plan = FlatPlan(_numbers(record["masks"]), _numbers(record["temporaries"]), launches)
        arrays = len(plan.masks) + len(plan.temporaries)
        sound = launches and all(0 <= number < arrays for one in launches for number in one.buffers)
        return plan if sound else None

    return stored_record(disk, key, _VERSION, read)


def stored_record(
    disk: DiskCache, key: tuple[str, ...], version: int, read: Callable[[dict[str, Any]], Plan | None]
) -> tuple[Plan, dict[str, Any]] | None:
    """What `read` makes of the record of a key, and the facts; None for one of another version, or evicted in part."""
    data = disk.get(key)
    if data is None:
        return None
    try:
        record = read_json(data)
        plan = read(record) if record["version"] == version else None
        return None if plan is None else (plan, dict(record["facts"]))
    except (ValueError, KeyError, TypeError, IndexError, ImageError):
        return None


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(int(one) for one in values)


def _image_key(digest: str) -> tuple[str, ...]:
    return "kernel image", digest


def kernel_entry(disk: DiskCache, kernel: NativeKernel) -> tuple[str, int, str]:
    """What a record says of a kernel, whose image is stored if it has not been."""
    digest = sha256(kernel.image).hexdigest()
    if disk.get(_image_key(digest)) is None:
        disk.put(_image_key(digest), kernel.image)
    return kernel.name, kernel.workspace_bytes, digest


def stored_kernel(disk: DiskCache, name: str, workspace_bytes: int, digest: str) -> NativeKernel:
    """The kernel that `kernel_entry` told of, loaded once however many plans have it.

    Raises:
        ImageError: if its image is not there any more, or cannot be loaded.
    """

    def load() -> NativeKernel:
        image = disk.get(_image_key(digest))
        if image is None or sha256(image).hexdigest() != digest:
            raise ImageError(f"the image {digest} is not there any more")
        return load_kernel(image, name, workspace_bytes)

    return _KERNELS.get_or_build((name, int(workspace_bytes), digest), load)
