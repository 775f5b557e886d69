"""Names in the C-family texts: user names that clash with C, C++, OpenCL or CUDA words get another, unique spelling.

One list serves both dialects, so that a kernel has the same names in both of its texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tilewright.ir.dataclass import dataclass
from tilewright.kernel.ir import AtomicUpdate, Declare, For, Kernel, Let
from tilewright.kernel.traversal import walk

_WORD_LIST = """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    alignas alignof and and_eq asm bitand bitor bool catch char8_t char16_t char32_t class compl concept consteval
    constexpr constinit const_cast co_await co_return co_yield decltype delete dynamic_cast explicit export false
    final friend import module mutable namespace new noexcept not not_eq nullptr operator or or_eq override private
    protected public reinterpret_cast requires static_assert static_cast template this thread_local throw true try
    typeid typename typeof using virtual wchar_t xor xor_eq main std linux unix i386 NULL kernel global local
    constant private generic read_only write_only read_write pipe complex imaginary half quad event_t sampler_t
    image1d_t image2d_t image3d_t queue_t size_t ptrdiff_t intptr_t uintptr_t vec_step printf barrier mem_fence
    read_mem_fence write_mem_fence prefetch async_work_group_copy wait_group_events threadIdx blockIdx blockDim
    gridDim warpSize dim3 cudaError_t clock clock64 assert malloc free memcpy memset acos acosh acospi asin asinh
    asinpi atan atan2 atan2pi atanh atanpi cbrt ceil copysign cos cosh cospi erf erfc exp exp2 exp10 expm1 fabs fdim
    floor fma fmax fmin fmod fract frexp hypot ilogb ldexp lgamma lgamma_r log log2 log10 log1p logb mad maxmag
    minmag modf nan nextafter pow pown powr remainder remquo rint rootn round rsqrt sin sincos sinh sinpi sqrt tan
    tanh tanpi tgamma trunc abs abs_diff add_sat hadd rhadd clamp clz ctz mad_hi mad_sat max min mul_hi rotate
    sub_sat upsample popcount mad24 mul24 degrees mix radians step smoothstep sign cross dot distance length
    normalize fast_distance fast_length fast_normalize isequal isnotequal isgreater isgreaterequal isless
    islessequal islessgreater isfinite isinf isnan isnormal isordered isunordered signbit any all bitselect select
    shuffle shuffle2 INFINITY NAN MAXFLOAT HUGE_VAL HUGE_VALF HUGE HUGE_VALL
"""
_WORDS = frozenset(_WORD_LIST.split())
_MATH_WITH_SUFFIX = frozenset(f"{word}f" for word in _WORDS)
_PATTERNS = re.compile(
    r"""(?x)
    __.* | _[A-Z].* | tw_.* | [iuf](8|16|32|64) | .*_t
    | (u?(char|short|int|long|longlong)|float|double|half|bool|quad|uint)\d*
    | (as|convert|vload|vstore|vloada|vstorea|get|native|half|atom|atomic|cl|CLK|cuda|nv)_.+
    | (read|write)_(image|mem|pipe|channel|only).* | (work|sub)_group_.*
    | v(load|store)a?.* | make_.* | M_.* | (FLT|DBL|HALF|S?CHAR|UCHAR|U?SHRT|U?INT|U?LL?ONG|FP|CHAR|MEMORY|ATOMIC)_.*
    """
)


def is_reserved(word: str) -> bool:
    """True for a word that has, or may have, a meaning of its own in OpenCL C or CUDA C++."""
    return word in _WORDS or word in _MATH_WITH_SUFFIX or _PATTERNS.fullmatch(word) is not None


def safe_name(name: str, taken: Iterable[str] = ()) -> str:
    """An identifier like `name` that is neither reserved nor in `taken`.

    Example:
        >>> safe_name("int"), safe_name("tile.a", {"tile_a"})
        ('int_', 'tile_a_2')
    """
    base = re.sub(r"[^A-Za-z0-9_]", "_", name) or "v"
    base = f"v{base}" if base[0].isdigit() or base[0] == "_" else base
    base = f"v_{base}" if base.startswith("tw_") else base
    while is_reserved(base):
        base = f"v_{base}" if is_reserved(f"{base}_") else f"{base}_"
    unavailable, candidate, count = set(taken), base, 1
    while candidate in unavailable or is_reserved(candidate):
        count += 1
        candidate = f"{base}_{count}"
    return candidate


@dataclass(frozen=True)
class NameTable:
    """The spellings of one kernel's names. `thread` and `block` are the prefixes for the index variables."""

    kernel: str
    buffers: Mapping[str, str]
    values: Mapping[str, str]
    thread: str
    block: str


def name_table(kernel: Kernel) -> NameTable:
    """Choose a spelling for every name of a kernel; names that need no change keep theirs.

    Raises:
        ValueError: if two buffers, or two parameters, have one name.
    """
    buffers = [buffer.name for buffer in (*kernel.buffers, *kernel.arrays)]
    scalars = [scalar.name for scalar in kernel.scalars]
    for kind, names in (("buffers", buffers), ("scalars", scalars)):
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"kernel {kernel.name} has several {kind} named {', '.join(repeated)}")
    bound = dict.fromkeys(scalars)
    for statement in walk(kernel.body):
        match statement:
            case Let(name=name) | Declare(name=name) | For(index=name) | AtomicUpdate(old=name):
                bound[name] = None
    keys = [("kernel", kernel.name), *(("buffer", name) for name in buffers), *(("value", name) for name in bound)]
    spelled = _spell(keys)
    taken = set(spelled.values())
    thread = safe_name("thread", taken)
    return NameTable(
        spelled["kernel", kernel.name],
        {name: spelled["buffer", name] for name in buffers},
        {name: spelled["value", name] for name in bound},
        thread,
        safe_name("block", taken | {thread}),
    )


def _spell(keys: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Names that are safe as they are come first, so that a mangled one never pushes a good one aside."""
    spelled: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for good in (True, False):
        for key in keys:
            name = key[1]
            if key in spelled or (good and (safe_name(name) != name or name in taken)):
                continue
            spelled[key] = safe_name(name, taken)
            taken.add(spelled[key])
    return spelled


def entry_name(kernel: Kernel) -> str:
    """The name under which the kernel's function is found in its OpenCL and CUDA texts."""
    return name_table(kernel).kernel
