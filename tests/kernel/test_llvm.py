"""Statements, memory spaces and the calling convention of the LLVM form."""

import re

import numpy as np
import pytest
from llvm_support import aligned, run

from tilewright.ir.scalars import BF16, BOOL, F32, F64, I8, I32, I64, U8, ScalarType
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
    For,
    If,
    Kernel,
    Lane,
    Let,
    Name,
    Operation,
    ScalarParameter,
    Shuffle,
    Space,
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
from tilewright.kernel.llvm import CpuTarget, llvm_text
from tilewright.kernel.opencl import opencl_text
from tilewright.runtime.cpu_jit import JitError, assembly, compile_kernel, host_cpu, load_object, object_for, text_key

BOTH = pytest.mark.parametrize("optimisation", ["none", "full"])
X86 = CpuTarget("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx,+avx2,+fma,+f16c")
i, j, k = (Name(name, I64) for name in "ijk")


def kernel_of(buffers, body, scalars=(), arrays=(), name="kernel", **options) -> Kernel:
    return Kernel(name, tuple(buffers), tuple(scalars), tuple(arrays), tuple(body), **options)


@BOTH
def test_matrix_product_with_nested_loops_and_a_variable(optimisation):
    a, b, c = Buffer("a", F64, read_only=True), Buffer("b", F64, read_only=True), Buffer("c", F64)
    rows, columns, depth = 5, 7, 11
    product = operation(
        "mul", load(a, add(multiply(BlockIndex(), integer(depth)), k)), load(b, add(multiply(k, integer(columns)), j))
    )
    body = (
        For("j", integer(0), integer(columns), (
            Declare("sum", Constant(0.0, F64)),
            For("k", integer(0), Name("depth", I64), (Assign("sum", operation("add", Name("sum", F64), product)),)),
            Store(c, add(multiply(BlockIndex(), integer(columns)), j), Name("sum", F64)),
        )),
    )  # fmt: skip
    generator = np.random.default_rng(0)
    left, right = generator.standard_normal((rows, depth)), generator.standard_normal((depth, columns))
    out = np.zeros((rows, columns))
    kernel = kernel_of((a, b, c), body, (ScalarParameter("depth", I64),))
    run(kernel, [left, right, out], (depth,), rows, optimisation)
    np.testing.assert_allclose(out, left @ right, rtol=1e-13)


@BOTH
def test_a_body_that_asks_for_the_last_block_runs_once_for_all(optimisation):
    """y[first] = the block after the last one, z[0] = how many calls there were."""
    y, z = Buffer("y", I64), Buffer("z", I64)
    body = [
        Let("after", BlockIndex(after=True)),
        If(operation("lt", BlockIndex(), Name("after", I64)), (Store(y, BlockIndex(), Name("after", I64)),)),
        Store(z, integer(0), add(load(z, integer(0)), integer(1))),
    ]
    kernel = kernel_of((y, z), body)
    out, calls = np.zeros(10, np.int64), np.zeros(1, np.int64)
    run(kernel, [out, calls], (), range(3, 6), optimisation)
    run(kernel, [out, calls], (), range(8, 9), optimisation)
    run(kernel, [out, calls], (), range(4, 4), optimisation)
    np.testing.assert_array_equal(out, [0, 0, 0, 6, 0, 0, 0, 0, 9, 0])
    assert calls == [3]
    with pytest.raises(TypeError, match="CPU kernels only"):
        opencl_text(kernel)


@BOTH
def test_only_the_asked_blocks_run(optimisation):
    y = Buffer("y", I64)
    kernel = kernel_of((y,), (Store(y, BlockIndex(), add(BlockIndex(), integer(1))),))
    out = np.zeros(10, np.int64)
    run(kernel, [out], (), range(3, 6), optimisation)
    np.testing.assert_array_equal(out, [0, 0, 0, 4, 5, 6, 0, 0, 0, 0])
    run(kernel, [out], (), range(4, 4), optimisation)
    run(kernel, [out], (), range(9, 2), optimisation)
    np.testing.assert_array_equal(out, [0, 0, 0, 4, 5, 6, 0, 0, 0, 0])


def test_scalar_parameters_of_every_type():
    types = [BOOL, I8, U8, I32, I64, F32, F64]
    outputs = [Buffer(f"y{number}", type_) for number, type_ in enumerate(types)]
    scalars = [ScalarParameter(f"s{number}", type_) for number, type_ in enumerate(types)]
    body = [Store(y, BlockIndex(), Name(s.name, s.type)) for y, s in zip(outputs, scalars, strict=True)]
    arrays = [np.zeros(1, type_.numpy) for type_ in types]
    values = (True, -7, 200, -(1 << 31), (1 << 63) - 1, 1.5, -2.25)
    run(kernel_of(outputs, body, scalars), arrays, values)
    assert tuple(array[0] for array in arrays) == values


@BOTH
def test_while_with_a_prelude_and_if(optimisation):
    """Collatz steps until 1."""
    x, y = Buffer("x", I64, read_only=True), Buffer("y", I64)
    value, steps = Name("value", I64), Name("steps", I64)
    body = (
        Declare("value", load(x, BlockIndex())),
        Declare("steps", integer(0)),
        While(
            (Let("more", operation("gt", value, integer(1))),),
            Name("more", BOOL),
            (
                If(
                    operation("eq", operation("mod", value, integer(2)), integer(0)),
                    (Assign("value", operation("floordiv", value, integer(2))),),
                    (Assign("value", add(multiply(value, integer(3)), integer(1))),),
                ),
                If(operation("ge", value, integer(0)), (Assign("steps", add(steps, integer(1))),)),
            ),
        ),
        Comment("two lines\nof words"),
        Store(y, BlockIndex(), steps),
    )
    numbers = np.arange(1, 30, dtype=np.int64)
    out = np.zeros_like(numbers)
    run(kernel_of((x, y), body), [numbers, out], (), numbers.size, optimisation)

    def collatz(value):
        steps = 0
        while value > 1:
            value, steps = (value // 2 if value % 2 == 0 else 3 * value + 1), steps + 1
        return steps

    np.testing.assert_array_equal(out, [collatz(int(number)) for number in numbers])


@BOTH
def test_loop_bounds_steps_and_index_types(optimisation):
    """Empty loops do nothing; the step may be larger than the range; i32 loops take an i64 step constant."""
    y = Buffer("y", I64)
    count = Name("count", I64)

    def counting(start, stop, step, name):
        return For(name, start, stop, (Assign("count", add(count, integer(1))),), step)

    m = Name("m", I32)
    loops = (
        counting(integer(3), integer(3), integer(1), "l0"),
        counting(integer(5), integer(3), integer(1), "l1"),
        counting(integer(0), integer(10), integer(3), "l2"),  # 4
        counting(integer(0), Cast(m, I64), integer(100), "l3"),  # 1 if m > 0
        counting(Constant(-2, I32), m, integer(1), "l4"),  # m + 2
        counting(Constant(0, U8), Cast(m, U8), Constant(1, U8), "l5"),  # m
    )
    body = (Declare("count", integer(0)), *loops, Store(y, integer(0), count))
    for limit, expected in ((4, 4 + 1 + 6 + 4), (0, 4 + 2), (-5, 4 + 251)):
        out = np.zeros(1, np.int64)
        run(kernel_of((y,), body, (ScalarParameter("m", I32),)), [out], (limit,), 1, optimisation)
        assert out[0] == expected


@BOTH
@pytest.mark.parametrize("space", [Space.PRIVATE, Space.WORKSPACE, Space.SHARED])
@pytest.mark.parametrize("element", [F32, BF16, BOOL, I8], ids=str)
def test_local_arrays(space, element, optimisation):
    """Reverse 5 numbers through two arrays (the second checks that they do not overlap)."""
    x, y = Buffer("x", element, read_only=True), Buffer("y", element)
    first, second = Buffer("first", element, space, 5), Buffer("second", element, space, 5)
    at = multiply(BlockIndex(), integer(5))
    body = (
        For("i", integer(0), integer(5), (Store(first, i, load(x, add(at, i))),), unroll=True),
        For("i2", integer(0), integer(5), (Store(second, Name("i2", I64), load(first, integer(2))),)),
        For("i3", integer(0), integer(5), (
            Let("back", operation("sub", integer(4), Name("i3", I64))),
            Store(y, add(at, Name("i3", I64)), load(first, Name("back", I64))),
        )),
    )  # fmt: skip
    numbers = np.arange(15, dtype=np.uint8)
    data = numbers.astype(bool) if element == BOOL else numbers.astype(np.uint16) << 8
    data = data.astype(np.float32) if element == F32 else numbers.view(np.int8) if element == I8 else data
    out = np.zeros_like(data)
    kernel = kernel_of((x, y), body, arrays=(first, second))
    run(kernel, [data, out], (), 3, optimisation)
    np.testing.assert_array_equal(out, data.reshape(3, 5)[:, ::-1].ravel())


def test_shuffle_lane_broadcast_and_vector_select():
    x, y, z = Buffer("x", I32, read_only=True), Buffer("y", I32), Buffer("z", I32)
    four = VectorType(I32, 4)
    a, b = load(x, integer(0), 4), load(x, integer(4), 4)
    body = (
        Let("mixed", Shuffle(a, b, (7, 0, 3, 4, 4, 1), VectorType(I32, 6))),
        Store(y, integer(0), Name("mixed", VectorType(I32, 6))),
        Let("third", Lane(a, 2, I32)),
        Store(y, integer(6), Broadcast(Name("third", I32), VectorType(I32, 2))),
        Store(z, integer(0), Operation("select", (Operation("lt", (a, b), VectorType(BOOL, 4)), a, b), four)),
        Store(z, integer(4), Operation("select", (Constant(False, BOOL), a, b), four)),
    )
    out, other = np.zeros(8, np.int32), np.zeros(8, np.int32)
    data = np.array([10, 60, 12, 13, 20, 21, 22, 3], np.int32)
    run(kernel_of((x, y, z), body), [data, out, other])
    np.testing.assert_array_equal(out, [3, 10, 13, 20, 20, 60, 12, 12])
    np.testing.assert_array_equal(other, [10, 21, 12, 3, 20, 21, 22, 3])


@BOTH
def test_aligned_and_nontemporal_stores(optimisation):
    x, y = Buffer("x", F32, read_only=True, alignment=64), Buffer("y", F32, alignment=64)
    at = multiply(BlockIndex(), integer(16))
    kernel = kernel_of((x, y), (Store(y, at, load(x, at, 16, aligned=True), aligned=True, nontemporal=True),))
    data = aligned(np.arange(64, dtype=np.float32))
    out = aligned(np.zeros(64, np.float32))
    run(kernel, [data, out], (), 4, optimisation)
    np.testing.assert_array_equal(out, data)
    text = llvm_text(kernel, host_cpu())
    assert "align 64, !nontemporal" in text
    if host_cpu().is_x86:
        assert "sfence" in text and "movntps" in assembly(kernel, "none")
    scalar = kernel_of((x, y), (Store(y, BlockIndex(), load(x, BlockIndex()), nontemporal=True),))
    assert "nontemporal" not in llvm_text(scalar, host_cpu())


def saxpy(independent: bool) -> Kernel:
    x, y = Buffer("x", F32, read_only=True), Buffer("y", F32)
    value = operation("add", operation("mul", load(x, i), Constant(2.0, F32)), load(y, i))
    loop = For("i", integer(0), Name("n", I64), (Store(y, i, value),), independent=independent)
    return kernel_of((x, y), (loop,), (ScalarParameter("n", I64),), name="saxpy")


def test_independent_loops_are_vectorised():
    x, y = np.arange(37, dtype=np.float32), np.ones(37, np.float32)
    run(saxpy(True), [x, y], (37,), 1, "full")
    np.testing.assert_array_equal(y, 2 * np.arange(37) + 1)
    assert "llvm.loop.parallel_accesses" in llvm_text(saxpy(True), X86)
    assert "llvm.loop" not in llvm_text(saxpy(False), X86)
    if host_cpu().is_x86:
        assert re.search(r"v?(mul|add|fmadd\w+)ps", assembly(saxpy(True), "full"))


def test_a_promise_of_independence_removes_the_check_of_dependences():
    """y[index[i]] += 1: only the promise lets LLVM use vectors."""
    index, y = Buffer("index", I64, read_only=True), Buffer("y", F32)
    target = load(index, i)

    def scatter(independent):
        body = (Let("at", target), Store(y, Name("at", I64), operation("sqrt", load(y, Name("at", I64)))))
        loop = For("i", integer(0), integer(4096), body, independent=independent)
        return kernel_of((index, y), (loop,))

    order = np.random.default_rng(3).permutation(4096)
    out = np.arange(4096, dtype=np.float32)
    run(scatter(True), [order, out], (), 1, "full")
    np.testing.assert_array_equal(out, np.sqrt(np.arange(4096, dtype=np.float32)))
    if host_cpu().has("avx512f"):
        assert "vsqrtps" in assembly(scatter(True), "full")
        assert "vsqrtps" not in assembly(scatter(False), "full")


def test_unrolling_is_full():
    y = Buffer("y", F32)
    array = Buffer("array", F32, Space.PRIVATE, 8)
    body = (
        For("i", integer(0), integer(8), (Store(array, i, Cast(i, F32)),), unroll=True),
        For("j", integer(0), integer(8), (Store(y, j, load(array, j)),), unroll=True),
    )
    kernel = kernel_of((y,), body, arrays=(array,))
    out = np.zeros(8, np.float32)
    run(kernel, [out])
    np.testing.assert_array_equal(out, np.arange(8))
    if host_cpu().is_x86:
        text = assembly(kernel, "none")
        assert "cvtsi2ss" not in text  # all values became constants
        assert text.count("rsp") <= 2  # and the array lives in no memory


def test_beta_accumulation_reads_the_output():
    """An input that is the output, element by element."""
    old, y = Buffer("old", F32, read_only=True), Buffer("y", F32)
    value = operation("add", load(old, i), load(old, i))
    loop = For("i", integer(0), integer(100), (Store(y, i, value),), independent=True)
    data = np.arange(100, dtype=np.float32)
    run(kernel_of((old, y), (loop,)), [data, data], (), 1, "full")
    np.testing.assert_array_equal(data, 2 * np.arange(100))


def micro_kernel(vectors: int, columns: int, lanes: int, element: ScalarType, unrolled: bool) -> Kernel:
    """C[columns, rows] = sum over k of A[k, rows] * B[k, columns] with all of C in registers."""
    vector = VectorType(element, lanes)
    rows = vectors * lanes
    a, b = (Buffer(name, element, read_only=True, alignment=64) for name in "ab")
    c = Buffer("c", element)
    tile = Buffer("tile", element, Space.PRIVATE, vectors * columns * lanes)

    def times(name: str, count: int, body) -> tuple:
        if unrolled:
            return tuple(s for number in range(count) for s in body(integer(number), f"_{number}"))
        return (For(name, integer(0), integer(count), body(Name(name, I64), ""), unroll=True),)

    def column(n, tag):
        value = Name(f"b{tag}", vector)

        def cell(m, _):
            at = multiply(add(multiply(n, integer(vectors)), m), integer(lanes))
            a_at = add(multiply(k, integer(rows)), multiply(m, integer(lanes)))
            total = operation("fma", load(a, a_at, lanes, True), value, load(tile, at, lanes, True))
            return (Store(tile, at, total, aligned=True),)

        let = Let(value.name, Broadcast(load(b, add(multiply(k, integer(columns)), n)), vector))
        return (let, *times("m", vectors, cell))

    def write(cell, _):
        at = add(multiply(BlockIndex(), integer(rows * columns)), multiply(cell, integer(lanes)))
        return (Store(c, at, load(tile, multiply(cell, integer(lanes)), lanes, True)),)

    zero = Broadcast(Constant(0.0, element), vector)
    body = (
        *times(
            "z", vectors * columns, lambda cell, _: (Store(tile, multiply(cell, integer(lanes)), zero, aligned=True),)
        ),
        For("k", integer(0), Name("depth", I64), times("n", columns, column)),
        *times("o", vectors * columns, write),
    )
    return kernel_of((a, b, c), body, (ScalarParameter("depth", I64),), (tile,), name="micro")


@pytest.mark.parametrize("unrolled", [True, False], ids=["unrolled by the producer", "unrolled by LLVM"])
@pytest.mark.parametrize(("vectors", "columns", "lanes", "element"), [(4, 6, 16, F32), (3, 8, 8, F64)])
def test_micro_kernel(vectors, columns, lanes, element, unrolled):
    kernel = micro_kernel(vectors, columns, lanes, element, unrolled)
    generator = np.random.default_rng(1)
    depth, rows = 19, vectors * lanes
    a = aligned(generator.standard_normal((depth, rows)).astype(element.numpy))
    b = aligned(generator.standard_normal((depth, columns)).astype(element.numpy))
    out = np.zeros((2, columns, rows), element.numpy)
    run(kernel, [a, b, out], (depth,), 2)
    expected = np.broadcast_to(b.T @ a, out.shape)
    np.testing.assert_allclose(out, expected, rtol=1e-4 if element == F32 else 1e-12, atol=1e-5)


@pytest.mark.parametrize("unrolled", [True, False])
def test_the_accumulators_of_a_micro_kernel_stay_in_registers(unrolled):
    if host_cpu().vector_bits != 512:
        pytest.skip("the tile is made for 32 registers of 512 bits")
    text = assembly(micro_kernel(4, 6, 16, F32, unrolled), "none")
    assert text.count("vfmadd") == 24
    blocks = [block for block in re.split(r"^\.LBB\d+_\d+:", text, flags=re.M) if "vfmadd" in block]
    assert len(blocks) == 1
    loop = blocks[0].split("\tj")[0]
    assert loop.count("vfmadd") == 24
    assert "rsp" not in loop and "rbp" not in loop


# --- errors -----------------------------------------------------------------------------------------------------------

Y, R = Buffer("y", F32), Buffer("r", F32, read_only=True)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (kernel_of((Y,), (), threads_per_block=32), "32 threads per block"),
        (kernel_of((Y,), (Barrier(),)), "no barriers"),
        (kernel_of((Y,), (Store(Y, integer(0), Constant(1.0, F64)),)), "buffer y of f32 cannot be accessed as f64"),
        (kernel_of((Y,), (Store(Y, Constant(0.0, F32), Constant(1.0, F32)),)), "index into buffer y has type f32"),
        (kernel_of((Y,), (Assign("z", integer(0)),)), "'z' is assigned"),
        (kernel_of((Y,), (Store(Y, integer(0), Name("z", F32)),)), "'z' is used"),
        (kernel_of((Y,), (Declare("z", integer(0)), Assign("z", Constant(0.0, F32)))), "z of type i64 is assigned"),
        (kernel_of((Y,), (Let("z", operation("add", integer(0), Constant(0.0, F32))),)), "one type, got i64, f32"),
        (kernel_of((Y,), (Let("z", Operation("shl", (Constant(0.0, F32),) * 2, F32)),)), "shl is not defined on f32"),
        (kernel_of((Y,), (If(integer(1), ()),)), "condition has type i64"),
        (kernel_of((Y,), (For("i", integer(0), Constant(4, I32), ()),)), "loop i runs from i64 to i32"),
        (kernel_of((Y,), (For("i", integer(0), integer(4), (), integer(0)),)), "step 0"),
        (kernel_of((Y,), (Let("z", Lane(load(Y, integer(0), 4), 4, F32)),)), "lane 4"),
        (kernel_of((), (), (ScalarParameter("h", BF16),)), "bf16"),
        (kernel_of((R,), (Store(R, integer(0), Constant(0.0, F32)),)), "r is read-only"),
    ],
)  # fmt: skip
def test_ill_formed_kernels_are_refused(kernel, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        llvm_text(kernel, X86)


def test_limits_and_names_are_checked():
    huge = Buffer("huge", F64, Space.PRIVATE, 1 << 20)
    with pytest.raises(ValueError, match="8388608 bytes"):
        llvm_text(kernel_of((Y,), (), arrays=(huge,)), X86)
    with pytest.raises(ValueError, match="kernel exp has the name"):
        llvm_text(kernel_of((Y,), (), name="exp"), X86)


def test_object_code_can_be_kept_and_loaded():
    kernel = saxpy(True)
    code = object_for(kernel, "full")
    assert isinstance(code, bytes) and len(text_key(llvm_text(kernel, host_cpu()), "full")) == 64
    assert len({text_key("text", "full"), text_key("other", "full"), text_key("text", "none")}) == 3
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    run(kernel, [x, y], (5,), code=code)
    np.testing.assert_array_equal(y, 2 * x)
    with pytest.raises(JitError, match="does not define the function other"):
        load_object(code, "other")
    with pytest.raises(JitError, match="cannot load 7 bytes"):
        load_object(b"garbage", "saxpy")


def test_a_thread_index_is_zero_and_block_index_may_be_narrow():
    y = Buffer("y", I32)
    value = operation("add", BlockIndex(I32), ThreadIndex(I32))
    out = np.zeros(3, np.int32)
    run(kernel_of((y,), (Store(y, BlockIndex(I32), value),), index_type=I32), [out], (), 3)
    np.testing.assert_array_equal(out, [0, 1, 2])


def test_the_compiled_kernel_says_what_it_is():
    native = compile_kernel(saxpy(True))
    assert native.name == "saxpy" and native.address > 0 and native.workspace_bytes == 0


def test_an_unknown_optimisation_is_refused():
    with pytest.raises(ValueError, match="'O4'"):
        object_for(saxpy(True), "O4")  # type: ignore[arg-type]


def test_the_package_imports_without_llvmlite():
    import subprocess
    import sys

    code = "import tilewright.runtime.cpu_jit, tilewright.runtime.cpu_pool, sys; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
