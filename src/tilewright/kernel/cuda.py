"""Kernels as CUDA C++ that NVRTC compiles without any header.

f16 and bf16 buffers are u16 (conversions: PTX `cvt`, and shifts), bool is held as u8. Vectors are structs of lanes;
aligned vector accesses go through CUDA's own vector types, or through words where those have no such type.
Shared memory is static up to 48 KiB and dynamic above; the launcher asks `cuda_dynamic_shared_bytes`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence

from tilewright.ir.scalars import BF16, BOOL, F16, F32, ScalarType
from tilewright.kernel.c_dialect import EQUALITY, UNARY, Access, Dialect, Helpers, Piece, cast_piece, listed
from tilewright.kernel.c_names import NameTable
from tilewright.kernel.c_operators import call
from tilewright.kernel.c_text import print_body
from tilewright.kernel.ir import Kernel, Space, VectorType

STATIC_SHARED_BYTES = 48 * 1024
_FUNCTION = "static __device__ __forceinline__ "
_TYPES = {name: name for name in ("i8", "i16", "i64", "u8", "u16", "u32", "u64", "bool")} | {
    "i32": "int", "f32": "float", "f64": "double",
}  # fmt: skip
_DEFINITIONS = {
    "i8": "signed char", "i16": "short", "i64": "long long",
    "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned int", "u64": "unsigned long long",
}  # fmt: skip
# CUDA's vector types by the element type in memory; they exist for 2 and 4 elements of at most 16 bytes together.
_BUILTIN = {
    "i8": "char", "i16": "short", "i32": "int", "i64": "longlong", "u8": "uchar", "u16": "ushort", "u32": "uint",
    "u64": "ulonglong", "float": "float", "double": "double", "int": "int",
}  # fmt: skip
_CONVERSIONS = {
    "tw_from_f16": """float tw_from_f16(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}""",
    "tw_to_f16": """u16 tw_to_f16(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}""",
    "tw_from_bf16": """float tw_from_bf16(u16 bits) {
    return __uint_as_float((u32)bits << 16);
}""",
    "tw_to_bf16": """u16 tw_to_bf16(float value) {
    const u32 bits = __float_as_uint(value);
    if (value != value) return (u16)((bits >> 16) | 0x40u);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);  // to nearest, ties to even
}""",
}

_ORDERED = {
    "tw_publish": """void tw_publish(volatile u32* p, u32 value) {
    asm volatile("st.release.gpu.u32 [%0], %1;" :: "l"(p), "r"(value) : "memory");
}""",
    "tw_observe": """u32 tw_observe(volatile u32* p) {
    u32 value;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
    return value;
}""",
}


def cuda_text(kernel: Kernel) -> str:
    """The kernel as a complete CUDA C++ source; its function is named `c_names.entry_name(kernel)`, not mangled.

    Arguments are the buffers in their order, then the scalars (bool as one byte); launch it with blocks of
    `kernel.threads_per_block` threads and `cuda_dynamic_shared_bytes(kernel)` bytes of dynamic shared memory.

    Raises:
        TypeError: for what a GPU kernel cannot hold (complex or half values, workspace arrays, vectors of 3 lanes).
        ValueError: for names that are used where they are not bound, or stores to a read-only buffer.

    Example:
        >>> from tilewright.kernel.ir import Kernel
        >>> print(cuda_text(Kernel("nothing", (), (), (), ())))
        extern "C" __global__ void __launch_bounds__(1)
        nothing()
        {
        }
        <BLANKLINE>
    """
    text = print_body(kernel, CUDA)
    body = "\n".join([_signature(kernel, text.names), "{", *_arrays(kernel, text.names), *text.lines, "}"])
    parts = [*text.helpers.values(), body]
    structs = _structs("\n".join(parts))
    typedefs = _typedefs("\n".join([*structs, *parts]))
    groups = ["\n".join(typedefs), "\n".join(structs)]
    return "\n\n".join([*(group for group in groups if group), *parts]) + "\n"


def cuda_dynamic_shared_bytes(kernel: Kernel) -> int:
    """The dynamic shared memory with which the kernel must be launched, in bytes; 0 where the static kind suffices."""
    total = _offsets(kernel)[1]
    return total if total > STATIC_SHARED_BYTES else 0


def _offsets(kernel: Kernel) -> tuple[dict[str, int], int]:
    """Where each shared array begins if all lie one behind the other, and the size of all."""
    offsets, end = {}, 0
    for array in kernel.arrays:
        if array.space is Space.SHARED:
            alignment = max(16, array.alignment)
            offsets[array.name] = -(-end // alignment) * alignment
            end = offsets[array.name] + (array.size or 0) * array.element.bytes
    return offsets, end


def _structs(text: str) -> list[str]:
    found = sorted(set(re.findall(r"\btw_(bool|[iuf]\d+)x(\d+)\b", text)))
    return [f"struct tw_{name}x{lanes} {{ {_TYPES[name]} s[{lanes}]; }};" for name, lanes in found]


def _typedefs(text: str) -> list[str]:
    words = set(re.findall(r"\b[iu]\d+\b", text))
    return [f"typedef {meaning} {name};" for name, meaning in _DEFINITIONS.items() if name in words]


def _signature(kernel: Kernel, names: NameTable) -> str:
    parameters = []
    for buffer in kernel.buffers:
        constant = "const " if buffer.read_only else ""
        parameters.append(f"{constant}{_held(buffer.element)}* __restrict__ {names.buffers[buffer.name]}")
    for scalar in kernel.scalars:
        spelled = "u8" if scalar.type == BOOL else CUDA.type_name(scalar.type)
        parameters.append(f"const {spelled} {names.values[scalar.name]}")
    inside = "\n    " + ",\n    ".join(parameters) if parameters else ""
    bounds = f"__launch_bounds__({kernel.threads_per_block})"
    return f'extern "C" __global__ void {bounds}\n{names.kernel}({inside})'


def _arrays(kernel: Kernel, names: NameTable) -> list[str]:
    dynamic = cuda_dynamic_shared_bytes(kernel) > 0
    offsets = _offsets(kernel)[0]
    shared = [array for array in kernel.arrays if array.space is Space.SHARED]
    lines = []
    if dynamic:
        alignment = max(16, *(array.alignment for array in shared))
        lines.append(f"extern __shared__ __align__({alignment}) unsigned char tw_shared[];")
    for array in kernel.arrays:
        name, held = names.buffers[array.name], _held(array.element)
        if array.space is Space.PRIVATE:
            lines.append(f"{held} {name}[{array.size}];")
        elif dynamic:
            lines.append(f"{held}* const {name} = reinterpret_cast<{held}*>(tw_shared + {offsets[array.name]});")
        else:
            lines.append(f"__shared__ __align__({max(16, array.alignment)}) {held} {name}[{array.size}];")
    return [f"    {line}" for line in lines]


def _held(element: ScalarType) -> str:
    """The element type in memory."""
    return {BOOL: "u8", F16: "u16", BF16: "u16"}.get(element) or CUDA.type_name(element)


# --- values -----------------------------------------------------------------------------------------------------------


def _special(value: float, scalar: ScalarType) -> Piece:
    """Infinities and nans by their bits."""
    value = math.nan if math.isnan(value) else value
    if scalar == F32:
        return Piece(f"__int_as_float(0x{struct.unpack('<I', struct.pack('<f', value))[0]:08x})")
    return Piece(f"__longlong_as_double(0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}ll)")


def _vector_name(vector: VectorType) -> str:
    return f"tw_{vector}"


def _lane(code: str, lane: int, element: ScalarType) -> Piece:
    return Piece(f"{code}.s[{lane}]")


def _vector(vector: VectorType, parts: Sequence[Piece]) -> Piece:
    if vector.element.is_integer and vector.element.bits < 32:  # C++ forbids narrowing between braces
        parts = [cast_piece(CUDA, vector.element, part) for part in parts]
    return Piece(f"{_vector_name(vector)}{{{{{listed([part.code for part in parts])}}}}}")


# --- memory -----------------------------------------------------------------------------------------------------------


def _widened(helpers: Helpers, element: ScalarType, stored: Piece) -> Piece:
    """An element in memory as a value."""
    if element in (F16, BF16):
        return call(_conversion(helpers, f"tw_from_{element}"), [stored])
    return Piece(f"{stored.code} != 0", EQUALITY) if element == BOOL else stored


def _narrowed(helpers: Helpers, element: ScalarType, value: Piece) -> Piece:
    """A value as an element in memory."""
    return call(_conversion(helpers, f"tw_to_{element}"), [value]) if element in (F16, BF16) else value


def _conversion(helpers: Helpers, name: str) -> str:
    helpers.setdefault(name, _FUNCTION + _CONVERSIONS[name])
    return name


def _transfer(element: ScalarType, lanes: int) -> tuple[str, int]:
    """The type of one machine access and how many elements it moves: CUDA's own vector types, else words."""
    count = min(lanes, 16 // element.bytes)
    if count <= 4:
        return f"{_BUILTIN[_held(element)]}{count}", count
    return f"uint{count * element.bytes // 4}", count


def _load(helpers: Helpers, access: Access) -> Piece:
    element = access.buffer.element
    if not isinstance(access.type, VectorType):
        return _widened(helpers, element, Piece(f"{access.name}[{access.index.code}]"))
    lanes = access.type.lanes
    whole = access.aligned and access.buffer.space is not Space.PRIVATE
    name = f"tw_load{'' if whole else '_lanes'}_{element}x{lanes}"
    if name not in helpers:
        held = _held(element)
        lines, parts = [], [Piece(f"p[{lane}]") for lane in range(lanes)]
        if whole:
            kind, count = _transfer(element, lanes)
            for step in range(lanes // count):
                lines.append(f"const {kind} r{step} = reinterpret_cast<const {kind}*>(p)[{step}];")
            parts = [_unpacked(element, f"r{lane // count}", lane % count, count) for lane in range(lanes)]
        values = [_widened(helpers, element, part) for part in parts]
        lines.append(f"return {_vector(access.type, values).code};")
        body = "\n".join(f"    {line}" for line in lines)
        helpers[name] = f"{_FUNCTION}{_vector_name(access.type)} {name}(const {held}* p) {{\n{body}\n}}"
    return call(name, [Piece(access.pointer)])


def _unpacked(element: ScalarType, register: str, lane: int, count: int) -> Piece:
    """One element of what one access brought."""
    if count <= 4:
        return Piece(f"{register}.{'xyzw'[lane]}")
    byte = lane * element.bytes
    word = f"{register}.{'xyzw'[byte // 4]}"
    return Piece(f"({_held(element)})({word} >> {byte % 4 * 8})" if byte % 4 else f"({_held(element)}){word}", UNARY)


def _store(helpers: Helpers, access: Access, value: Piece) -> str:
    element = access.buffer.element
    if not isinstance(access.type, VectorType):
        return f"{access.name}[{access.index.code}] = {_narrowed(helpers, element, value).code};"
    lanes = access.type.lanes
    whole = access.aligned and access.buffer.space is not Space.PRIVATE
    name = f"tw_store{'' if whole else '_lanes'}_{element}x{lanes}"
    if name not in helpers:
        parts = [_narrowed(helpers, element, Piece(f"v.s[{lane}]")).code for lane in range(lanes)]
        held = _held(element)
        kind, count = _transfer(element, lanes) if whole else (held, 1)
        target = f"reinterpret_cast<{kind}*>(p)" if whole else "p"
        lines = []
        for step in range(lanes // count):
            some = parts[step * count : (step + 1) * count]
            lines.append(f"{target}[{step}] = {_packed(element, kind, some) if whole else some[0]};")
        body = "\n".join(f"    {line}" for line in lines)
        helpers[name] = f"{_FUNCTION}void {name}({held}* p, {_vector_name(access.type)} v) {{\n{body}\n}}"
    return f"{name}({access.pointer}, {value.code});"


def _packed(element: ScalarType, kind: str, parts: Sequence[str]) -> str:
    """The elements of one access, as its type."""
    if len(parts) > 4:
        each = 4 // element.bytes
        bits = f"u{element.bits}" if element != BOOL else "u8"
        words = [parts[start : start + each] for start in range(0, len(parts), each)]
        parts = [
            " | ".join(
                f"(u32)({bits}){part}" + (f" << {place * element.bytes * 8}" if place else "")
                for place, part in enumerate(word)
            )
            for word in words
        ]
    return f"make_{kind}({listed(parts)})"


CUDA = Dialect(
    name="CUDA",
    types=_TYPES,
    function=_FUNCTION,
    suffixes={"u32": "u", "i64": "ll", "u64": "ull"},
    float_suffix="f",
    special=_special,
    vector_name=_vector_name,
    lane=_lane,
    vector=_vector,
    native_vectors=False,
    own_extrema=False,
    unrolls_calls=True,
    load=_load,
    store=_store,
    thread="threadIdx.x",
    block="blockIdx.x",
    barrier="__syncthreads()",
    atomic=lambda operator: f"atomic{operator.capitalize()}",
    coherent=lambda buffer: f"volatile {_held(buffer.element)}*",
    ordered=_ORDERED,
)
