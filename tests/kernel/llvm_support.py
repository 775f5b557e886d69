"""Run a kernel on NumPy arrays, straight through the calling convention."""

import ctypes
import struct

import numpy as np

from tilewright.kernel.ir import Kernel
from tilewright.runtime.cpu_jit import compile_kernel, load_object

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
FORMATS = {"bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
           "f32": "f", "f64": "d"}  # fmt: skip


def aligned(array: np.ndarray, alignment: int = 64) -> np.ndarray:
    """A copy that starts at a multiple of `alignment` bytes."""
    raw = np.empty(array.nbytes + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def slots(kernel: Kernel, arrays: list[np.ndarray], scalars: tuple = ()) -> ctypes.Array:
    """The argument block: addresses, then each scalar at the start of its 8 bytes; the rest of a slot is garbage."""
    assert len(arrays) == len(kernel.buffers) and len(scalars) == len(kernel.scalars)
    data = b"".join(struct.pack("<q", array.ctypes.data) for array in arrays)
    for parameter, value in zip(kernel.scalars, scalars, strict=True):
        data += struct.pack("<" + FORMATS[parameter.type.name], value).ljust(8, b"\xa5")
    return (ctypes.c_char * max(len(data), 8)).from_buffer_copy(data.ljust(8, b"\0"))


def run(
    kernel: Kernel,
    arrays: list[np.ndarray],
    scalars: tuple = (),
    blocks: int | range = 1,
    optimisation: str = "none",
    code: bytes | None = None,
) -> None:
    """Compile (or take `code`) and run the kernel over its blocks; outputs are written in place."""
    native = (
        compile_kernel(kernel, optimisation) if code is None else load_object(code, kernel.name, kernel.workspace_bytes)
    )
    workspace = aligned(np.zeros(native.workspace_bytes + 64, np.uint8))
    span = blocks if isinstance(blocks, range) else range(blocks)
    ENTRY(native.address)(slots(kernel, arrays, scalars), span.start, span.stop, workspace.ctypes.data)
