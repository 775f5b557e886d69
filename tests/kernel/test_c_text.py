"""Statements, memory and names in the OpenCL and CUDA texts: run on a CPU, checked by oclgrind, compiled by NVRTC."""

from __future__ import annotations

import re

import numpy as np
import pytest
from c_support import has_opencl
from opencl_runner import run_oclgrind, run_opencl

from tilewright.ir.scalars import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, ScalarType
from tilewright.kernel.c_names import entry_name, is_reserved, safe_name
from tilewright.kernel.cuda import cuda_dynamic_shared_bytes, cuda_text
from tilewright.kernel.ir import (
    Assign,
    Barrier,
    BlockIndex,
    Broadcast,
    Buffer,
    Cast,
    Comment,
    Constant,
    Declare,
    Expression,
    For,
    If,
    Kernel,
    Lane,
    Let,
    Name,
    ScalarParameter,
    Shuffle,
    Space,
    Statement,
    Store,
    ThreadIndex,
    VectorType,
    While,
    add,
    integer,
    load,
    multiply,
    operation,
)
from tilewright.kernel.nvrtc import CudaCompileError, compile_cuda, numbered
from tilewright.kernel.opencl import opencl_text

THREAD, BLOCK = ThreadIndex(), BlockIndex()
F32X4 = VectorType(F32, 4)


def launch(kernel: Kernel, arguments: list[object], blocks: int = 1) -> list[np.ndarray]:
    """Run on the CPU's OpenCL; the CUDA text must compile for both architectures."""
    for architecture in ("sm_80", "sm_90a"):
        compile_cuda(cuda_text(kernel), architecture)
    if not has_opencl():
        pytest.skip("no OpenCL runtime for the CPU")
    return run_opencl(opencl_text(kernel), entry_name(kernel), arguments, blocks, kernel.threads_per_block)


def small_kernel(*body: Statement, **more: object) -> Kernel:
    out = Buffer("out", F32)
    return Kernel("small", (out,), (), (), body, **more)  # type: ignore[arg-type]


def name(text: str, type_: ScalarType | VectorType = I64) -> Name:
    return Name(text, type_)


# --- a tiled matrix product -------------------------------------------------------------------------------------------


def matmul_kernel(tile: int) -> Kernel:
    """C = A B of n x n matrices, n any size: tiles in shared memory, one element per thread, edges padded with 0."""
    a, b, c = (Buffer(text, F32, read_only=text != "c") for text in "abc")
    tiles = tuple(Buffer(text, F32, Space.SHARED, size=tile * tile) for text in ("tile_a", "tile_b"))
    n, across = name("n"), name("across")

    def stage(target: Buffer, source: Buffer, row: Expression, column: Expression) -> tuple[Statement, ...]:
        inside = operation("and", operation("lt", row, n), operation("lt", column, n))
        position = f"at_{source.name}"
        return (
            Let(position, add(multiply(row, n), column)),
            If(
                inside,
                (Store(target, THREAD, load(source, name(position))),),
                (Store(target, THREAD, Constant(0.0, F32)),),
            ),
        )

    product = operation(
        "fma",
        load(tiles[0], add(multiply(name("i"), integer(tile)), name("k"))),
        load(tiles[1], add(multiply(name("k"), integer(tile)), name("j"))),
        name("sum", F32),
    )
    body = (
        Let("across", operation("floordiv", add(n, integer(tile - 1)), integer(tile))),
        Let("i", operation("floordiv", THREAD, integer(tile))),
        Let("j", operation("mod", THREAD, integer(tile))),
        Let("row", add(multiply(operation("floordiv", BLOCK, across), integer(tile)), name("i"))),
        Let("column", add(multiply(operation("mod", BLOCK, across), integer(tile)), name("j"))),
        Declare("sum", Constant(0.0, F32)),
        For(
            "first",
            integer(0),
            n,
            (
                Comment("stage one tile of each operand"),
                *stage(tiles[0], a, name("row"), add(name("first"), name("j"))),
                *stage(tiles[1], b, add(name("first"), name("i")), name("column")),
                Barrier(),
                For("k", integer(0), integer(tile), (Assign("sum", product),), unroll=True),
                Barrier(),
            ),
            step=integer(tile),
        ),
        If(
            operation("and", operation("lt", name("row"), n), operation("lt", name("column"), n)),
            (Store(c, add(multiply(name("row"), n), name("column")), name("sum", F32)),),
        ),
    )
    return Kernel("matmul", (a, b, c), (ScalarParameter("n", I64),), tiles, body, tile * tile)


def matmul_arguments(n: int) -> list[object]:
    random = np.random.default_rng(7)
    a, b = (random.integers(-4, 5, (n, n)).astype(np.float32) for _ in range(2))
    return [a, b, np.full((n, n), np.nan, np.float32), np.int64(n)]


@pytest.mark.opencl
def test_a_tiled_matrix_product() -> None:
    arguments = matmul_arguments(37)
    product = launch(matmul_kernel(8), arguments, blocks=25)[2]
    np.testing.assert_array_equal(product, arguments[0] @ arguments[1])


@pytest.mark.opencl
def test_oclgrind_finds_nothing_in_it() -> None:
    if not has_opencl():
        pytest.skip("no OpenCL runtime for the CPU")
    kernel = matmul_kernel(4)
    arguments = matmul_arguments(7)
    arrays, log = run_oclgrind(opencl_text(kernel), "matmul", arguments, 4, 16)
    assert log == ""
    np.testing.assert_array_equal(arrays[2], arguments[0] @ arguments[1])


@pytest.mark.opencl
def test_oclgrind_finds_a_missing_barrier() -> None:
    if not has_opencl():
        pytest.skip("no OpenCL runtime for the CPU")
    text = opencl_text(matmul_kernel(4)).replace("barrier(CLK_LOCAL_MEM_FENCE);", "")
    assert "data race" in run_oclgrind(text, "matmul", matmul_arguments(7), 4, 16)[1]


def test_the_matrix_product_reads_well(golden) -> None:
    golden("kernel/matmul.cl", opencl_text(matmul_kernel(8)))
    golden("kernel/matmul.cu", cuda_text(matmul_kernel(8)))


def test_resources_are_reported() -> None:
    compiled = compile_cuda(cuda_text(matmul_kernel(8)), "sm_90a")
    assert compiled.cubin[:4] == b"\x7fELF"
    assert compiled.shared_bytes == {"matmul": 512}
    assert compiled.spill_bytes == {"matmul": 0}
    assert 0 < compiled.registers["matmul"] <= 64


# --- memory -----------------------------------------------------------------------------------------------------------

HELD = {BF16: np.dtype(np.uint16), BOOL: np.dtype(np.uint8)}
ELEMENTS = (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64)


def copy_kernel(element: ScalarType, lanes: int, aligned: bool) -> Kernel:
    """Copies through a shared and a private array, all with vectors; unaligned accesses begin one element later."""
    given, out = Buffer("given", element, read_only=True, alignment=64), Buffer("out", element, alignment=64)
    shared = Buffer("shared", element, Space.SHARED, size=8 * lanes + 1)
    private = Buffer("mine", element, Space.PRIVATE, size=lanes + 1)
    first = integer(0 if aligned else 1)
    at, local = (
        add(multiply(index, integer(lanes)), first)
        for index in (add(multiply(BLOCK, integer(8)), THREAD), operation("sub", integer(7), THREAD))
    )
    body = (
        Store(shared, local, load(given, at, lanes, aligned), aligned),
        Barrier(),
        Store(private, first, load(shared, local, lanes, aligned), aligned),
        Store(out, at, load(private, first, lanes, aligned), aligned),
    )
    return Kernel("copy", (given, out), (), (shared, private), body, 8)


@pytest.mark.opencl
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_copies_through_all_spaces(element: ScalarType, lanes: int) -> None:
    dtype = HELD.get(element) or element.numpy
    size = 2 * 8 * lanes + 1
    given = (np.arange(size) % 97).astype(dtype) if element != BOOL else (np.arange(size) % 3 == 0).astype(dtype)
    aligned = lanes in (1, 4, 16)
    kernel = copy_kernel(element, lanes, aligned)
    if lanes == 8:
        compile_cuda(cuda_text(kernel), "sm_80")
    if not has_opencl():
        pytest.skip("no OpenCL runtime for the CPU")
    first = 0 if aligned else 1
    copied = run_opencl(opencl_text(kernel), "copy", [given, np.zeros_like(given)], 2, 8)[1]
    np.testing.assert_array_equal(copied[first : first + size - 1], given[first : first + size - 1])


def test_aligned_vectors_are_one_access_in_cuda() -> None:
    assert "reinterpret_cast<const float4*>(p)[0]" in cuda_text(copy_kernel(F32, 4, True))
    assert "reinterpret_cast<const uint4*>(p)[0]" in cuda_text(copy_kernel(F16, 8, True))
    assert "reinterpret_cast<const double2*>(p)[1]" in cuda_text(copy_kernel(F64, 4, True))


def test_wide_aligned_vectors_align_shared_arrays_in_opencl() -> None:
    assert "shared[129] __attribute__((aligned(128)))" in opencl_text(copy_kernel(F64, 16, True))
    assert "shared[33] __attribute__((aligned(16)))" in opencl_text(copy_kernel(F64, 4, False))
    assert "vload_half4(0, (const half*)mine)" in opencl_text(copy_kernel(F16, 4, True))


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_wide_copies_compile_for_cuda(element: ScalarType) -> None:
    for lanes in (1, 4):
        compile_cuda(cuda_text(copy_kernel(element, lanes, lanes == 4)), "sm_90a")


def bf16_of(values: np.ndarray) -> np.ndarray:
    """f32 to the bits of bf16, to nearest even, by arithmetic."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), (bits >> 16).astype(np.uint16) | 0x40, rounded)


def convert_kernel(element: ScalarType, lanes: int) -> Kernel:
    """Halves f32 values into `element`s, and doubles those again into f32."""
    given, out, back = Buffer("given", F32, read_only=True), Buffer("out", element), Buffer("back", F32)
    at = multiply(BLOCK, integer(lanes))
    type_ = VectorType(F32, lanes) if lanes > 1 else F32

    def scaled(value: Expression, factor: float) -> Expression:
        constant: Expression = Constant(factor, F32)
        return operation("mul", value, Broadcast(constant, type_) if isinstance(type_, VectorType) else constant)

    body = (
        Store(out, at, scaled(load(given, at, lanes), 0.5)),
        Barrier(),
        Store(back, at, scaled(load(out, at, lanes), 2.0)),
    )
    return Kernel("convert", (given, out, back), (), (), body)


@pytest.mark.opencl
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("element", [F16, BF16], ids=str)
def test_half_types_round_to_nearest_even(element: ScalarType, lanes: int) -> None:
    special = [0.0, -0.0, 1.0, 65504.0, 65519.9, 65520.0, 1e-7, 6e-8, 3e-8, np.inf, -np.inf, np.nan, 1.00390625, 3.4e38]
    random = np.random.default_rng(3).standard_normal(50)
    with np.errstate(all="ignore"):
        given = (np.array([*special, *random]) * 2).astype(np.float32)
        half = given * np.float32(0.5)
        expected = half.astype(np.float16) if element == F16 else bf16_of(half)
        wide = expected.astype(np.float32) if element == F16 else (expected.astype(np.uint32) << 16).view(np.float32)
    kernel = convert_kernel(element, lanes)
    _, out, back = launch(kernel, [given, np.zeros_like(expected), np.zeros_like(given)], given.size // lanes)
    if element == F16:
        np.testing.assert_array_equal(out, expected)
    else:
        np.testing.assert_array_equal(out[~np.isnan(given)], expected[~np.isnan(given)])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(back, wide * np.float32(2))


@pytest.mark.opencl
def test_private_vectors_lanes_and_shuffles() -> None:
    given, out = Buffer("given", F32, read_only=True), Buffer("out", F32)
    rows = Buffer("rows", F32, Space.PRIVATE, size=12)
    v, w = name("v", F32X4), name("w", F32X4)
    body = (
        Store(rows, integer(0), load(given, integer(0), 4)),
        Store(rows, integer(8), load(given, integer(4), 4)),
        Let("v", load(rows, integer(0), 4)),
        Let("w", load(rows, integer(8), 4)),
        Store(out, integer(0), Shuffle(v, w, (0, 4, 1, 5), F32X4)),
        Store(out, integer(4), Broadcast(Lane(w, 3, F32), F32X4)),
        Store(out, integer(8), operation("select", operation("lt", v, Broadcast(Constant(2.0, F32), F32X4)), v, w)),
        Store(out, integer(12), Shuffle(v, w, (7, 0), VectorType(F32, 2))),
    )
    kernel = Kernel("lanes", (given, out), (), (rows,), body)
    found = launch(kernel, [np.arange(1, 9, dtype=np.float32), np.zeros(14, np.float32)])[1]
    np.testing.assert_array_equal(found, [1, 5, 2, 6, 8, 8, 8, 8, 1, 6, 7, 8, 8, 1])


def test_large_shared_memory_is_dynamic_in_cuda() -> None:
    arrays = (
        Buffer("first", F32, Space.SHARED, size=3),
        Buffer("second", F64, Space.SHARED, size=8000),
        Buffer("third", F16, Space.SHARED, size=64, alignment=128),
    )
    body = (Store(arrays[1], THREAD, Constant(1.0, F64)), Store(arrays[2], THREAD, Constant(1.0, F32)))
    kernel = Kernel("large", (), (), arrays, body, 64)
    text = cuda_text(kernel)
    assert "tw_shared + 16)" in text
    assert "tw_shared + 64128)" in text
    assert "__launch_bounds__(64)" in text
    assert cuda_dynamic_shared_bytes(kernel) == 64128 + 128
    assert compile_cuda(text, "sm_90a").shared_bytes == {"large": 0}
    assert cuda_dynamic_shared_bytes(matmul_kernel(8)) == 0


# --- control flow -----------------------------------------------------------------------------------------------------


@pytest.mark.opencl
def test_while_loops_with_a_prelude() -> None:
    """Collatz: how many steps each number takes to 1."""
    out, given = Buffer("out", I32), Buffer("given", I64, read_only=True)
    x = name("x")
    halved, tripled = operation("floordiv", x, integer(2)), add(multiply(x, integer(3)), integer(1))
    odd = operation("eq", operation("mod", x, integer(2)), integer(1))
    body = (
        Declare("x", load(given, THREAD)),
        Declare("steps", Constant(0, I32)),
        While(
            (Let("going", operation("gt", x, integer(1))),),
            name("going", BOOL),
            (
                If(odd, (Assign("x", tripled),), (Assign("x", halved),)),
                Assign("steps", add(name("steps", I32), Constant(1, I32))),
            ),
        ),
        While((), operation("lt", name("steps", I32), Constant(3, I32)), (Assign("steps", Constant(3, I32)),)),
        Store(out, THREAD, name("steps", I32)),
    )
    kernel = Kernel("collatz", (given, out), (), (), body, 4)
    found = launch(kernel, [np.array([1, 6, 27, 8]), np.zeros(4, np.int32)])[1]
    assert found.tolist() == [3, 8, 111, 3]


@pytest.mark.opencl
def test_the_stop_of_a_loop_is_taken_before_it() -> None:
    out = Buffer("out", I64)
    m = name("m")
    body = (
        Declare("m", integer(3)),
        For("i", integer(0), m, (Assign("m", add(m, integer(1))),)),
        For("j", Constant(0, I32), Constant(10, I32), (Assign("m", add(m, integer(10))),), Constant(4, I64)),
        Store(out, integer(0), m),
    )
    assert launch(Kernel("stops", (out,), (), (), body), [np.zeros(1, np.int64)])[0].tolist() == [36]


@pytest.mark.opencl
def test_scalars_of_every_type() -> None:
    types = (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64)
    scalars = tuple(ScalarParameter(f"s_{type_}", type_) for type_ in types)
    out, truth = Buffer("out", F64), Buffer("truth", BOOL)
    stores = [Store(out, integer(i), Cast(name(scalar.name, scalar.type), F64)) for i, scalar in enumerate(scalars)]
    flag = name("s_bool", BOOL)
    kernel = Kernel("scalars", (out, truth), scalars, (), (*stores, Store(truth, integer(0), operation("not", flag))))
    values = [np.uint8(1), *(type_.numpy.type(np.iinfo(type_.numpy).max // 3) for type_ in types[1:-2])]
    values += [np.float32(0.25), np.float64(-1.5)]
    found, inverted = launch(kernel, [np.zeros(len(types)), np.ones(1, bool), *values])
    assert found.tolist() == [float(value) for value in values]
    assert not inverted[0]


@pytest.mark.opencl
def test_literals_are_exact() -> None:
    floats = [0.1, 1e-45, 3.4e38, 1e300, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -7.25, 2.0**-1074]
    integers = [0, -1, 7, -(2**63), 2**63 - 1, -(2**31), 2**31, 2**64 - 1]
    outputs = [Buffer(f"to_{type_}", type_) for type_ in (F32, F64, I8, I32, I64, U8, U32, U64)]
    body: list[Statement] = []
    for out in outputs:
        values = floats if out.element.is_float else integers
        body.extend(Store(out, integer(i), Constant(value, out.element)) for i, value in enumerate(values))
    arguments = [np.ones(11 if out.element.is_float else 8, out.element.numpy) for out in outputs]
    found = launch(Kernel("literals", tuple(outputs), (), (), tuple(body)), arguments)
    for out, array in zip(outputs, found, strict=True):
        with np.errstate(all="ignore"):
            if out.element.is_float:
                expected = np.array(floats).astype(out.element.numpy)
                np.testing.assert_array_equal(np.signbit(array[:7]), np.signbit(expected[:7]))
            else:
                bits = out.element.bits
                unsigned = np.array([value % 2**bits for value in integers], np.dtype(f"u{bits // 8}"))
                expected = unsigned.view(out.element.numpy)
        np.testing.assert_array_equal(array, expected)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.opencl
def test_names_that_clash_with_the_languages() -> None:
    words = [
        "int",
        "half",
        "float4",
        "exp",
        "thread",
        "block",
        "tw_min_i64",
        "u32",
        "__shared__",
        "class",
        "tile.x",
        "3d",
    ]
    out, kernel_word = Buffer("kernel", F64), Buffer("local", F64, read_only=True)
    shared = Buffer("barrier", F64, Space.SHARED, size=4)
    lets: list[Statement] = [Let(word, integer(2**i)) for i, word in enumerate(words)]
    total: Expression = integer(0)
    for word in words:
        total = add(total, operation("min", name(word), integer(1 << 20)))
    loop = For("for", integer(0), integer(2), (Assign("sum", add(name("sum"), name("for"))),))
    body = (
        *lets,
        Declare("sum", total),
        loop,
        Store(shared, THREAD, operation("exp", load(kernel_word, integer(0)))),
        Barrier(),
        Store(out, THREAD, add(Cast(name("sum"), F64), load(shared, THREAD))),
    )
    kernel = Kernel("double", (kernel_word, out), (), (shared,), body, 4)
    assert entry_name(kernel) == "double_"
    found = launch(kernel, [np.zeros(1), np.zeros(4)])[1]
    assert found.tolist() == [2.0 ** len(words) + 1] * 4


def test_safe_names_are_unique_and_idempotent() -> None:
    for word in ("int", "__x", "_Y", "tw_a", "a.b", "9", "", "sinf", "get_local_id", "uint16", "M_PI", "x_t"):
        safe = safe_name(word)
        assert re.fullmatch(r"[A-Za-z]\w*", safe)
        assert not is_reserved(safe)
        assert safe_name(safe) == safe
        assert safe_name(word, {safe}) != safe
    assert all(safe_name(word) == word for word in ("a", "row_2", "A", "acc", "tile_a", "n", "index"))


# --- texts ------------------------------------------------------------------------------------------------------------


def test_arithmetic_that_cannot_overflow_prints_plainly() -> None:
    out = Buffer("out", I64)
    index = add(multiply(operation("floordiv", THREAD, integer(8)), integer(33)), operation("mod", THREAD, integer(8)))
    text = opencl_text(Kernel("plain", (out,), (), (), (Store(out, index, integer(1)),), 64))
    assert "out[thread / 8L * 33L + thread % 8L] = 1L;" in text
    n = name("n")
    body = (Store(out, add(multiply(n, integer(3)), n), integer(1)),)
    text = opencl_text(Kernel("wraps", (out,), (ScalarParameter("n", I64),), (), body))
    assert "out[(long)((ulong)n * 3UL + (ulong)n)] = 1L;" in text


def test_f64_is_enabled_only_where_it_is_used() -> None:
    assert "cl_khr_fp64" not in opencl_text(small_kernel(Store(Buffer("out", F32), THREAD, Constant(1.0, F32))))
    wide = Cast(Cast(load(Buffer("out", F32), THREAD), F64), F32)
    assert "cl_khr_fp64" in opencl_text(small_kernel(Store(Buffer("out", F32), THREAD, wide)))


def test_comments_cannot_escape() -> None:
    text = opencl_text(
        small_kernel(Comment("one\nbarrier(0); \\"), Store(Buffer("out", F32), THREAD, Constant(1.0, F32)))
    )
    assert "    // one\n    // barrier(0);\n    out[thread] = 1.0f;" in text


@pytest.mark.parametrize("printer", [opencl_text, cuda_text])
def test_what_cannot_be_printed_is_refused(printer) -> None:
    out, constant = Buffer("out", F32), Buffer("fixed", F32, read_only=True)
    one = Constant(1.0, F32)
    cases: list[tuple[Kernel, type[Exception], str]] = [
        (small_kernel(Store(out, THREAD, name("missing", F32))), ValueError, "missing as f32, but it is not bound"),
        (small_kernel(Let("x", one), Assign("x", one)), ValueError, "assigns to x"),
        (small_kernel(If(Constant(True, BOOL), (Let("x", one),)), Let("y", name("x", F32))), ValueError, "not bound"),
        (small_kernel(Store(Buffer("other", F32), THREAD, one)), ValueError, "none of its buffers"),
        (small_kernel(Store(out, THREAD, Constant(1.0, F64))), TypeError, "holds f32 values"),
        (small_kernel(Let("x", Constant(1.0, F16))), TypeError, "f16 do not exist"),
        (small_kernel(Let("x", load(out, THREAD, 3))), TypeError, "2, 4, 8 or 16 lanes"),
        (small_kernel(Let("x", Constant(1.5, I32))), TypeError, "1.5 is not of the integer type"),
        (Kernel("k", (constant,), (), (), (Store(constant, THREAD, one),)), ValueError, "read-only"),
        (Kernel("k", (), (), (Buffer("w", F32, Space.WORKSPACE, size=4),), ()), TypeError, "no workspace arrays"),
        (Kernel("k", (), (), (Buffer("s", F32, Space.SHARED),), ()), ValueError, "positive size"),
        (Kernel("k", (out, out), (), (), ()), ValueError, "several buffers named out"),
    ]
    for kernel, error, message in cases:
        with pytest.raises(error, match=message):
            printer(kernel)


def test_compile_errors_show_the_source() -> None:
    with pytest.raises(CudaCompileError, match=r"(?s)identifier .nonsense. is undefined.*   2 \|     nonsense;"):
        compile_cuda('extern "C" __global__ void k() {\n    nonsense;\n}')
    with pytest.raises(CudaCompileError, match="sm_1"):
        compile_cuda("", "sm_1")
    assert numbered("a\nb") == "   1 | a\n   2 | b"


def test_both_parts_of_a_complex_element_are_read_at_once_in_opencl() -> None:
    source, other = Buffer("source", F64, read_only=True), Buffer("other", F64, read_only=True)
    target, at = Buffer("target", F64), Name("at", I64)
    begin = Let("at", multiply(BlockIndex(), integer(2)))

    def sums(second: Buffer, step: int) -> str:
        parts = Let("re", load(source, at)), Let("im", load(second, add(at, integer(step))))
        stores = (Store(target, BlockIndex(), add(Name("re", F64), Name("im", F64))),)
        return opencl_text(Kernel("sums", (source, other, target), (), (), (begin, *parts, *stores)))

    assert "vload2(0, source + at)" in sums(source, 1)
    assert "vload2" not in sums(source, 2) + sums(other, 1)


def test_an_architecture_that_the_compiler_does_not_know() -> None:
    with pytest.raises(CudaCompileError, match=r"makes no code for sm_20, but for sm_\d+, .*sm_90"):
        compile_cuda('extern "C" __global__ void k() {}', "sm_20")
