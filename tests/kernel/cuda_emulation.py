"""Runs CUDA texts on the CPU: compiled by g++ behind a small prelude, one block after the other.

The threads of a block run one after the other too, unless they meet at barriers: then each is one of the operating
system's threads. The undefined-behaviour sanitizer watches: it reports signed overflow, bad shifts and misaligned
vector accesses.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_VECTORS = {
    "char": "signed char", "uchar": "unsigned char", "short": "short", "ushort": "unsigned short", "int": "int",
    "uint": "unsigned int", "longlong": "long long", "ulonglong": "unsigned long long", "float": "float",
    "double": "double",
}  # fmt: skip
_SIZES = {"char": 1, "uchar": 1, "short": 2, "ushort": 2, "int": 4, "uint": 4, "float": 4}
_PTX = {
    'asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));': "value = half_to_float(bits);",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));': "bits = float_to_half(value);",
}
_PRELUDE = """
#include <math.h>
#include <string.h>
#include <pthread.h>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))
static pthread_barrier_t meeting;
#define __syncthreads() pthread_barrier_wait(&meeting)
static thread_local struct { unsigned int x; } threadIdx, blockIdx;
template <class To, class From> static To bits_as(From from) { To to; memcpy(&to, &from, sizeof to); return to; }
static inline float __uint_as_float(unsigned int bits) { return bits_as<float>(bits); }
static inline float __int_as_float(int bits) { return bits_as<float>(bits); }
static inline unsigned int __float_as_uint(float value) { return bits_as<unsigned int>(value); }
static inline double __longlong_as_double(long long bits) { return bits_as<double>(bits); }
static inline float half_to_float(unsigned short bits) { return (float)bits_as<_Float16>(bits); }
static inline unsigned short float_to_half(float value) { return bits_as<unsigned short>((_Float16)value); }
static inline float rsqrtf(float value) { return 1 / sqrtf(value); }
static inline double rsqrt(double value) { return 1 / sqrt(value); }
template <class T> static inline void __stcs(T* p, T value) { *p = value; }
template <class P> static P argument(void* given) {
    if constexpr (std::is_pointer_v<P>) return (P)given; else return (P)(long long)given;
}
template <class... P, size_t... I>
static void run(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
    kernel(argument<P>(arguments[I])...);
}
template <class... P>
static void launch(void (*kernel)(P...), void** arguments, long blocks, long threads) {
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x)
            run(kernel, arguments, std::index_sequence_for<P...>{});
}
template <class... P>
static void launch_together(void (*kernel)(P...), void** arguments, long blocks, long threads) {
    pthread_barrier_init(&meeting, nullptr, threads);
    for (long block = 0; block < blocks; ++block) {
        std::vector<std::thread> all;
        for (long thread = 0; thread < threads; ++thread)
            all.emplace_back([=] {
                blockIdx.x = block, threadIdx.x = thread;
                run(kernel, arguments, std::index_sequence_for<P...>{});
            });
        for (std::thread& one : all) one.join();
    }
    pthread_barrier_destroy(&meeting);
}
"""


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
        """Launch a kernel whose parameters are buffers, then integers; gives the arrays after it (aligned copies)."""
        copies = [_aligned_copy(array) for array in arrays]
        values = [*(copy.ctypes.data for copy in copies), *scalars]
        pointers = (ctypes.c_void_p * len(values))(*(value % 2**64 for value in values))
        self.library[f"launch_{name}"](pointers, ctypes.c_long(blocks), ctypes.c_long(threads))
        return copies


def _aligned_copy(array: np.ndarray, alignment: int = 128) -> np.ndarray:
    raw = np.empty(array.nbytes + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def compile_emulated(texts: dict[str, str]) -> Emulated:
    """Compile CUDA texts, keyed by the names of their kernels, into one library."""
    parts = [_PRELUDE, _vector_types()]
    for name, text in texts.items():
        for ptx, emulated in _PTX.items():
            text = text.replace(ptx, emulated)
        signature = f'extern "C" void launch_{name}(void** arguments, long blocks, long threads)'
        launch = "launch_together" if "__syncthreads" in text else "launch"
        entry = f"{signature} {{ {launch}({name}, arguments, blocks, threads); }}"
        parts.append(f"namespace of_{name} {{\n{text}\n{entry}\n}}")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        source.write_text("\n".join(parts))
        flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fsanitize=undefined", "-w"]
        command = ["g++", *flags, "-shared", "-fPIC", "-o", str(library), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return Emulated(ctypes.CDLL(str(library)))
