"""Runs CUDA texts on the CPU: compiled by g++ behind a small prelude, by one of its threads (cuda_engine.cpp).

The threads of a block run one after the other, unless they share memory: then they are fibers that go on in an order
drawn by chance, and several blocks may be resident, begun in the order of their numbers or from the last one on. The
undefined-behaviour sanitizer watches: it reports signed overflow, bad shifts and misaligned vector accesses. Or that
for threads does: it reports data races, of blocks and in shared memory.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from llvm_support import aligned

_VECTORS = {
    "char": "signed char", "uchar": "unsigned char", "short": "short", "ushort": "unsigned short", "int": "int",
    "uint": "unsigned int", "longlong": "long long", "ulonglong": "unsigned long long", "float": "float",
    "double": "double",
}  # fmt: skip
_SIZES = {"char": 1, "uchar": 1, "short": 2, "ushort": 2, "int": 4, "uint": 4, "float": 4}
_PTX = {
    'asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));': "value = half_to_float(bits);",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));': "bits = float_to_half(value);",
    'asm volatile("st.release.gpu.u32 [%0], %1;" :: "l"(p), "r"(value) : "memory");': (
        "emulated_pause(); __atomic_store_n(p, value, __ATOMIC_RELEASE);"
    ),
    'asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");': (
        "emulated_pause(); value = __atomic_load_n(p, __ATOMIC_ACQUIRE);"
    ),
}
SHARED_BYTES = 256 << 10
FLAGS = ("-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-w", "-g1", "-fPIC")
HERE = Path(__file__).parent
_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _vector_types() -> str:
    lines = []
    for name, element in _VECTORS.items():
        size = _SIZES.get(name, 8)
        for count in (2, 4):
            if size * count > 16:
                continue
            fields = "xyzw"[:count]
            parameters = ", ".join(f"{element} {field}" for field in fields)
            kind = f"{name}{count}"
            lines.append(f"struct __align__({size * count}) {kind} {{ {element} {', '.join(fields)}; }};")
            lines.append(f"static inline {kind} make_{kind}({parameters}) {{ return {{{', '.join(fields)}}}; }}")
    return "\n".join(lines)


def has_compiler() -> bool:
    return shutil.which("g++") is not None


@dataclass(frozen=True)
class Emulated:
    """Several kernels of one compilation."""

    library: ctypes.CDLL

    def run(
        self, name: str, arrays: list[np.ndarray], blocks: int, threads: int, scalars: Sequence[int] = ()
    ) -> list[np.ndarray]:
        """Launch a kernel on buffers, then scalars (their bits); gives the arrays after it (aligned copies)."""
        copies = [aligned(array, 128) for array in arrays]
        self.launch(name, [*(copy.ctypes.data for copy in copies), *scalars], blocks, threads)
        return copies

    def launch(self, name: str, values: Sequence[int], blocks: int, threads: int, residents: int = 1) -> None:
        """Launch a kernel on addresses and bits of scalars, `residents` blocks at a time; negative: the last first."""
        pointers = (ctypes.c_void_p * len(values))(*(value % 2**64 for value in values))
        counts = [ctypes.c_long(one) for one in (blocks, threads, residents)]
        if self.library[f"launch_{name}"](pointers, *counts):
            raise RuntimeError(f"threads of a block of {name} wait at a barrier that others do not come to")


def compile_emulated(texts: dict[str, str], sanitizer: str = "undefined") -> Emulated:
    """Compile CUDA texts, keyed by the names of their kernels, into one library."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernels.so"
        write_library(texts, library, sanitizer)
        return Emulated(ctypes.CDLL(str(library)))


def write_library(texts: dict[str, str], library: Path, sanitizer: str) -> None:
    """The same, to a file."""
    parts = ['#include "prelude.h"']
    for name, text in texts.items():
        for ptx, emulated in _PTX.items():
            text = text.replace(ptx, emulated)
        together = int("__shared__" in text or "__syncthreads" in text or "emulated_pause" in text)
        text, shared_bytes = with_shared_memory(text)
        signature = f'extern "C" int launch_{name}(void** arguments, long blocks, long threads, long residents)'
        launch = f"emulated_launch([](void** given) {{ call({name}, given); }}, arguments, blocks, threads, residents"
        entry = f"{signature} {{ return {launch}, {shared_bytes}, {together}); }}"
        count = f'extern "C" {{ long arguments_{name} = count_of({name}); }}'
        parts.append(f"namespace of_{name} {{\n{text}\n{entry}\n{count}\n}}")
    source = library.with_suffix(".cpp")
    source.write_text("\n".join(parts))
    engine = _engine(sanitizer)
    include = f"-I{engine}"
    _compile([*FLAGS, f"-fsanitize={sanitizer}", include, "-shared", "-o", library, source, engine / "engine.o"])


@cache
def _engine(sanitizer: str) -> Path:
    """A folder, kept as long as the process, with what all libraries share: the prelude and the engine, compiled."""
    folder = tempfile.TemporaryDirectory(prefix="tilewright-emulation-")
    _FOLDERS.append(folder)
    place = Path(folder.name)
    (place / "prelude.h").write_text((HERE / "cuda_prelude.h").read_text() + _vector_types() + "\n")
    _compile([*FLAGS, f"-fsanitize={sanitizer}", "-o", place / "prelude.h.gch", place / "prelude.h"])
    _compile([*FLAGS, "-c", "-o", place / "engine.o", HERE / "cuda_engine.cpp"])
    return place


def _compile(arguments: Sequence[str | Path]) -> None:
    done = subprocess.run(["g++", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


_SHARED = re.compile(r"__shared__ __align__\((\d+)\) (.+?) (\w+)\[(\d+)\];")
_DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) unsigned char (\w+)\[\];")


def with_shared_memory(text: str) -> tuple[str, int]:
    """A text with the shared arrays of its kernel in the memory of the block, and how many bytes that is."""
    end = 0

    def place(match: re.Match[str]) -> str:
        nonlocal end
        alignment, element, name, count = match.groups()
        start = -(-end // max(128, int(alignment))) * max(128, int(alignment))
        end = start + 8 * int(count)
        assert end <= SHARED_BYTES
        return f"{element} (&{name})[{count}] = *({element} (*)[{count}])(emulated_shared + {start});"

    text = _SHARED.sub(place, text)
    text, dynamic = _DYNAMIC.subn(r"unsigned char* const \1 = (unsigned char*)emulated_shared;", text)
    return text, SHARED_BYTES if dynamic else end
