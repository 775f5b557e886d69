"""Runs CUDA texts on the CPU: compiled by g++ behind a small prelude, one block after the other.

The threads of a block run one after the other too, unless they share memory: then each is one of the operating system's
threads, and several blocks may be resident, begun in the order of their numbers or from the last one on; they lose time
where they touch what other blocks see. The undefined-behaviour sanitizer watches: it reports signed overflow, bad
shifts and misaligned vector accesses. Or that for threads does: it reports data races, of blocks and in shared memory.
"""

from __future__ import annotations

import ctypes
import re
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
    'asm volatile("st.release.gpu.u32 [%0], %1;" :: "l"(p), "r"(value) : "memory");': (
        "lose_time(); __atomic_store_n(p, value, __ATOMIC_RELEASE);"
    ),
    'asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");': (
        "lose_time(); value = __atomic_load_n(p, __ATOMIC_ACQUIRE);"
    ),
}
SHARED_BYTES = 256 << 10
_PRELUDE = """
#include <math.h>
#include <string.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#include <atomic>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
struct Block { pthread_barrier_t meeting; alignas(128) char memory[SHARED_BYTES]; };
static thread_local Block* here;
#define __syncthreads() pthread_barrier_wait(&here->meeting)
static thread_local struct { unsigned int x; } threadIdx, blockIdx;
static thread_local unsigned int luck;
static inline void lose_time() {
    luck = luck * 1664525u + 1013904223u;
    if (luck >> 29 == 0) usleep(luck >> 16 & 127); else if (luck >> 31) sched_yield();
}
#define ATOMIC(Name, operation) template <class T> static T atomic##Name(T* p, T value) { \
    lose_time(); return __atomic_fetch_##operation(p, value, __ATOMIC_RELAXED); }
ATOMIC(Add, add) ATOMIC(And, and) ATOMIC(Or, or) ATOMIC(Xor, xor)
#define ATOMIC_CHOICE(Name, sign) template <class T> static T atomic##Name(T* p, T value) { \
    lose_time(); T old = __atomic_load_n(p, __ATOMIC_RELAXED); \
    while (value sign old && !__atomic_compare_exchange_n(p, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
    return old; }
ATOMIC_CHOICE(Min, <) ATOMIC_CHOICE(Max, >)
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
    if constexpr (std::is_pointer_v<P>) return (P)given;
    else { P value; memcpy(&value, &given, sizeof value); return value; }
}
template <class... P> constexpr long count_of(void (*)(P...)) { return sizeof...(P); }
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
static void launch_together(void (*kernel)(P...), void** arguments, long blocks, long threads, long residents) {
    std::atomic<long> begun{0};
    auto multiprocessor = [&] {
        auto block = std::make_unique<Block>();
        pthread_barrier_init(&block->meeting, nullptr, threads);
        for (long number; (number = begun++) < blocks;) {
            std::vector<std::thread> all;
            for (long thread = 0; thread < threads; ++thread)
                all.emplace_back([=, place = block.get()] {
                    here = place, threadIdx.x = thread, luck = number * threads + thread;
                    blockIdx.x = residents < 0 ? blocks - 1 - number : number;
                    run(kernel, arguments, std::index_sequence_for<P...>{});
                });
            for (std::thread& one : all) one.join();
        }
        pthread_barrier_destroy(&block->meeting);
    };
    std::vector<std::thread> all;
    for (long one = 0; one < (residents < 0 ? -residents : residents); ++one) all.emplace_back(multiprocessor);
    for (std::thread& one : all) one.join();
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
        """Launch a kernel on buffers, then scalars (their bits); gives the arrays after it (aligned copies)."""
        copies = [_aligned_copy(array) for array in arrays]
        self.launch(name, [*(copy.ctypes.data for copy in copies), *scalars], blocks, threads)
        return copies

    def launch(self, name: str, values: Sequence[int], blocks: int, threads: int, residents: int = 1) -> None:
        """Launch a kernel on addresses and bits of scalars, `residents` blocks at a time; negative: the last first."""
        pointers = (ctypes.c_void_p * len(values))(*(value % 2**64 for value in values))
        counts = [ctypes.c_long(one) for one in (blocks, threads, residents)]
        self.library[f"launch_{name}"](pointers, *counts)


def _aligned_copy(array: np.ndarray, alignment: int = 128) -> np.ndarray:
    raw = np.empty(array.nbytes + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def compile_emulated(texts: dict[str, str], sanitizer: str = "undefined") -> Emulated:
    """Compile CUDA texts, keyed by the names of their kernels, into one library."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernels.so"
        write_library(texts, library, sanitizer)
        return Emulated(ctypes.CDLL(str(library)))


def write_library(texts: dict[str, str], library: Path, sanitizer: str) -> None:
    """The same, to a file."""
    parts = [_PRELUDE.replace("SHARED_BYTES", str(SHARED_BYTES)), _vector_types()]
    for name, text in texts.items():
        for ptx, emulated in _PTX.items():
            text = text.replace(ptx, emulated)
        signature = f'extern "C" void launch_{name}(void** arguments, long blocks, long threads, long residents)'
        together = "__shared__" in text or "__syncthreads" in text
        launch = f"launch{'_together' if together else ''}({name}, arguments, blocks, threads"
        entry = f"{signature} {{ {launch}{', residents' if together else ''}); }}"
        count = f'extern "C" {{ long arguments_{name} = count_of({name}); }}'
        parts.append(f"namespace of_{name} {{\n{with_shared_memory(text)}\n{entry}\n{count}\n}}")
    source = library.with_suffix(".cpp")
    source.write_text("\n".join(parts))
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", f"-fsanitize={sanitizer}", "-w", "-g1"]
    command = ["g++", *flags, "-shared", "-fPIC", "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


_SHARED = re.compile(r"__shared__ __align__\((\d+)\) (.+?) (\w+)\[(\d+)\];")
_DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) unsigned char (\w+)\[\];")


def with_shared_memory(text: str) -> str:
    """A text with the shared arrays of its kernel in the memory of the block."""
    end = 0

    def place(match: re.Match[str]) -> str:
        nonlocal end
        alignment, element, name, count = match.groups()
        start = -(-end // max(128, int(alignment))) * max(128, int(alignment))
        end = start + 8 * int(count)
        assert end <= SHARED_BYTES
        return f"{element} (&{name})[{count}] = *({element} (*)[{count}])(here->memory + {start});"

    return _DYNAMIC.sub(r"unsigned char* const \1 = (unsigned char*)here->memory;", _SHARED.sub(place, text))
