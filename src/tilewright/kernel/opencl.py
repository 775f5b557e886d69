"""Kernels as OpenCL C 1.2, without half arithmetic and subgroups, so that every OpenCL device takes them.

f16 buffers are `half` pointers (arrays: ushort) accessed with vload_half and vstore_half_rte, bf16 buffers are ushort
with bit manipulation, bool is held as uchar. Shared memory is `__local`. The device's compiler may contract a*b + c
(OpenCL's default) and is given no licence beyond that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir.scalars import BF16, BOOL, F16, F32, ScalarType
from tilewright.kernel.c_dialect import EQUALITY, UNARY, Access, Dialect, Helpers, Piece, listed
from tilewright.kernel.c_names import NameTable
from tilewright.kernel.c_operators import call
from tilewright.kernel.c_text import print_body, uses_f64, widest_access
from tilewright.kernel.complex_pairs import paired_complex_loads
from tilewright.kernel.ir import Buffer, Kernel, Space, VectorType

_TYPES = {
    "bool": "bool", "i8": "char", "i16": "short", "i32": "int", "i64": "long",
    "u8": "uchar", "u16": "ushort", "u32": "uint", "u64": "ulong", "f32": "float", "f64": "double",
}  # fmt: skip
_SPACES = {Space.GLOBAL: "__global ", Space.SHARED: "__local ", Space.PRIVATE: ""}

_FROM_BF16 = """float{n} tw_from_bf16{x}(ushort{n} bits) {{
    return as_float{n}({wide} << 16);
}}"""
_TO_BF16 = """ushort tw_to_bf16(float value) {
    const uint bits = as_uint(value);
    if (isnan(value)) return (ushort)((bits >> 16) | 0x40u);
    return (ushort)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);  // to nearest, ties to even
}"""

# OpenCL C 1.2 orders nothing between work-groups by the letter; devices do as it says here.
_ORDERED = {
    "tw_publish": """void tw_publish(volatile __global uint* p, uint value) {
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    atomic_xchg(p, value);
}""",
    "tw_observe": """uint tw_observe(volatile __global uint* p) {
    const uint value = atomic_or(p, 0u);
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    return value;
}""",
}


def opencl_text(kernel: Kernel) -> str:
    """The kernel as a complete OpenCL C 1.2 source; its function is named `c_names.entry_name(kernel)`.

    Arguments are the buffers in their order, then the scalars (bool as uchar); launch it with work-groups of
    `kernel.threads_per_block`.

    Raises:
        TypeError: for what a GPU kernel cannot hold (complex or half values, workspace arrays, vectors of 3 lanes).
        ValueError: for names that are used where they are not bound, or stores to a read-only buffer.

    Example:
        >>> from tilewright.kernel.ir import Kernel
        >>> print(opencl_text(Kernel("nothing", (), (), (), ())))
        __kernel __attribute__((reqd_work_group_size(1, 1, 1)))
        void nothing(void)
        {
        }
        <BLANKLINE>
    """
    kernel = paired_complex_loads(kernel)  # Intel's compiler for CPUs crashes on loops of strided loads and calls
    text = print_body(kernel, OPENCL)
    parts = ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] if uses_f64(kernel) else []
    parts.extend(text.helpers.values())
    arrays = [f"    {_array(array, text.names, widest_access(kernel, array))};" for array in kernel.arrays]
    parts.append("\n".join([_signature(kernel, text.names), "{", *arrays, *text.lines, "}"]))
    return "\n\n".join(parts) + "\n"


def _signature(kernel: Kernel, names: NameTable) -> str:
    parameters = [_parameter(buffer, names) for buffer in kernel.buffers]
    for scalar in kernel.scalars:
        spelled = "uchar" if scalar.type == BOOL else OPENCL.type_name(scalar.type)
        parameters.append(f"const {spelled} {names.values[scalar.name]}")
    inside = "void" if not parameters else "\n    " + ",\n    ".join(parameters)
    threads = kernel.threads_per_block
    return f"__kernel __attribute__((reqd_work_group_size({threads}, 1, 1)))\nvoid {names.kernel}({inside})"


def _parameter(buffer: Buffer, names: NameTable) -> str:
    constant = "const " if buffer.read_only else ""
    return f"__global {constant}{_held(buffer)}* restrict {names.buffers[buffer.name]}"


def _held(buffer: Buffer) -> str:
    """The element type in memory."""
    if buffer.element == BOOL:
        return "uchar"
    if buffer.element == BF16:
        return "ushort"
    if buffer.element == F16:  # without an extension `half` may only be pointed to
        return "half" if buffer.space is Space.GLOBAL else "ushort"
    return OPENCL.type_name(buffer.element)


def _array(array: Buffer, names: NameTable, widest: int) -> str:
    declared = f"{_SPACES[array.space]}{_held(array)} {names.buffers[array.name]}[{array.size}]"
    if array.space is Space.SHARED:
        declared += f" __attribute__((aligned({max(16, array.alignment, widest)})))"
    return declared


# --- values -----------------------------------------------------------------------------------------------------------


def _special(value: float, scalar: ScalarType) -> Piece:
    macro = "NAN" if math.isnan(value) else "INFINITY"
    piece = Piece(macro) if scalar == F32 else Piece(f"(double){macro}", UNARY)
    return Piece(f"-{piece.code}", UNARY) if value < 0 else piece


def _vector_name(vector: VectorType) -> str:
    return f"{'uchar' if vector.element == BOOL else _TYPES[vector.element.name]}{vector.lanes}"


def _lane(code: str, lane: int, element: ScalarType) -> Piece:
    read = f"{code}.s{lane:x}"
    return Piece(f"{read} != 0", EQUALITY) if element == BOOL else Piece(read)


def _vector(vector: VectorType, parts: Sequence[Piece]) -> Piece:
    return Piece(f"({_vector_name(vector)})({listed([part.code for part in parts])})", UNARY)


# --- memory -----------------------------------------------------------------------------------------------------------


def _from_bf16(helpers: Helpers, lanes: int) -> str:
    tag = f"x{lanes}" if lanes > 1 else ""
    # Of one lane no call: Intel's compiler for CPUs crashes on unrolled sums of what functions give.
    wide = f"convert_uint{lanes}(bits)" if lanes > 1 else "(uint)bits"
    helpers.setdefault(f"tw_from_bf16{tag}", _FROM_BF16.format(n=lanes if lanes > 1 else "", x=tag, wide=wide))
    return f"tw_from_bf16{tag}"


def _to_bf16(helpers: Helpers, lanes: int) -> str:
    helpers.setdefault("tw_to_bf16", _TO_BF16)
    if lanes == 1:
        return "tw_to_bf16"
    name = f"tw_to_bf16x{lanes}"
    parts = listed([f"tw_to_bf16(value.s{lane:x})" for lane in range(lanes)])
    helpers.setdefault(name, f"ushort{lanes} {name}(float{lanes} value) {{\n    return (ushort{lanes})({parts});\n}}")
    return name


def _half_pointer(access: Access, constant: str) -> str:
    buffer = access.buffer
    if buffer.space is Space.GLOBAL:
        return access.name
    return f"({_SPACES[buffer.space]}{constant}half*){access.name}"


def _load(helpers: Helpers, access: Access) -> Piece:
    element, index = access.buffer.element, access.index
    if not isinstance(access.type, VectorType):
        plain = Piece(f"{access.name}[{index.code}]")
        if element == F16:
            return call("vload_half", [index, Piece(_half_pointer(access, "const "))])
        if element == BF16:
            return call(_from_bf16(helpers, 1), [plain])
        return Piece(f"{plain.code} != 0", EQUALITY) if element == BOOL else plain
    lanes = access.type.lanes
    if element == F16:
        function = f"vload{'a' if _promised(access) else ''}_half{lanes}"
        return Piece(f"{function}(0, {_offset(_half_pointer(access, 'const '), access)})")
    whole = _whole(access, "const ", lanes) or Piece(f"vload{lanes}(0, {access.pointer})")
    return call(_from_bf16(helpers, lanes), [whole]) if element == BF16 else whole


def _offset(pointer: str, access: Access) -> str:
    return access.pointer.replace(access.name, pointer, 1)


def _promised(access: Access) -> bool:
    """True if a vector lies at a multiple of its size; private arrays begin where their elements may."""
    return access.aligned and access.buffer.space is not Space.PRIVATE


def _whole(access: Access, constant: str, lanes: int) -> Piece | None:
    """An aligned vector in global or shared memory, dereferenced as one, which the device reads in one access."""
    if not _promised(access):
        return None
    kind = f"{_SPACES[access.buffer.space]}{constant}{_held(access.buffer)}{lanes}*"
    return Piece(f"*({kind})({access.pointer})", UNARY)


def _store(helpers: Helpers, access: Access, value: Piece) -> str:
    element, index = access.buffer.element, access.index
    if not isinstance(access.type, VectorType):
        if element == F16:
            return f"vstore_half_rte({value.code}, {index.code}, {_half_pointer(access, '')});"
        stored = f"{_to_bf16(helpers, 1)}({value.code})" if element == BF16 else value.code
        return f"{access.name}[{index.code}] = {stored};"
    lanes = access.type.lanes
    if element == F16:
        function = f"vstore{'a' if _promised(access) else ''}_half{lanes}_rte"
        return f"{function}({value.code}, 0, {_offset(_half_pointer(access, ''), access)});"
    stored = f"{_to_bf16(helpers, lanes)}({value.code})" if element == BF16 else value.code
    whole = _whole(access, "", lanes)
    return f"{whole.code} = {stored};" if whole else f"vstore{lanes}({stored}, 0, {access.pointer});"


OPENCL = Dialect(
    name="OpenCL",
    types=_TYPES,
    function="",
    suffixes={"u32": "u", "i64": "L", "u64": "UL"},
    float_suffix="",
    special=_special,
    vector_name=_vector_name,
    lane=_lane,
    vector=_vector,
    native_vectors=True,
    own_extrema=True,
    unrolls_calls=False,  # Intel's compiler for CPUs crashes on unrolled sums of what functions give
    load=_load,
    store=_store,
    thread="get_local_id(0)",
    block="get_group_id(0)",
    # Intel's compiler for CPUs lets reads pass the stores before a barrier of few threads unless a fence stands by it.
    barrier="barrier(CLK_LOCAL_MEM_FENCE); mem_fence(CLK_LOCAL_MEM_FENCE)",
    atomic=lambda operator: f"atomic_{operator}",
    coherent=lambda buffer: f"volatile __global {_held(buffer)}*",
    ordered=_ORDERED,
)
