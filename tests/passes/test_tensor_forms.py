"""The forms of kernels of tensor operations: register tiles, other machines, and what is shared between operations."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import llvm_support
import numpy as np
import pytest
import tensor_support
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_support import check, random_contraction, random_elementwise

from tilewright.contraction.tensor_operation import TensorDimension, TensorOperation
from tilewright.kernel.ir import Kernel, Let, Shuffle, Store, VectorType
from tilewright.kernel.traversal import walk
from tilewright.machine.named import named_machine
from tilewright.passes.tensor.compile import CompiledTensorOperation
from tilewright.passes.tensor.gemm_form import chunks, gemm_form
from tilewright.passes.tensor.kernel import tensor_launch

WIDE = named_machine("cpu-avx512")


def gemm(m, n, k, in0, in1, out, dtype="f32", **more):
    """A single gemm; (stride of M, of K), (of N, of K), (of M, of N)."""
    dims = (
        TensorDimension("M", "prim", m, in0[0], 0, out[0]),
        TensorDimension("N", "prim", n, 0, in1[0], out[1]),
        TensorDimension("K", "prim", k, in0[1], in1[1], 0),
    )
    return TensorOperation(dtype, "gemm", dims, **more)


def vectors(kernel: Kernel) -> set[int]:
    return {
        one.value.type.lanes
        for one in walk(kernel.body)
        if isinstance(one, Let) and isinstance(one.value.type, VectorType)
    }


@pytest.mark.parametrize("machine", ["cpu-avx2", "cpu-neon"])
@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), dtype=st.sampled_from(["f32", "f64", "c64", "i8"]))
def test_vectors_of_other_machines(machine, seed, dtype):
    """Code for shorter vectors and fewer registers gives the same results; it runs here too."""
    operation = random_contraction(seed, dtype)
    check(operation, CompiledTensorOperation(operation, tensor_launch(operation, named_machine(machine))), seed)
    operation = random_elementwise(seed, "f32", ["transpose", "relu", "sub"][seed % 3])
    check(operation, CompiledTensorOperation(operation, tensor_launch(operation, named_machine(machine))), seed)


@pytest.mark.parametrize("machine", ["cpu-avx512", "cpu-avx2", "cpu-neon"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "c64", "c128"])
def test_tiles_fit_the_registers(machine, dtype):
    """Accumulators, vectors and a broadcast element together."""
    width = 2 if dtype.startswith("c") else 1
    real = 4 if dtype in ("f32", "c64") else 8
    registers = named_machine(machine).vector_registers
    for m in (1, 5, 16, 31, 64, 100):
        for n in (1, 4, 7, 64):
            form = gemm_form(gemm(m, n, 32, (1, m), (32, 1), (1, m), dtype), named_machine(machine), real)
            tile_vectors, rows = form.largest_tile
            assert width * tile_vectors * rows + tile_vectors + width <= registers
            assert sum(one.size * one.repeat for one in form.row_chunks) == form.scalar.size
            covered = sum(one.size * one.repeat for one in form.vector_chunks) * form.lanes
            assert covered - form.lanes < form.vector.size <= covered


@pytest.mark.parametrize(
    ("sizes", "dtype", "tile", "of_few_loads"),
    [
        ((32, 32, 256), "f32", (2, 6), (2, 11)),  # 154 GFLOP/s on a server, then 161
        ((16, 64, 128), "f64", (2, 6), (2, 13)),  # 82, then 87
        ((64, 64, 64), "f32", (4, 6), (4, 6)),  # two by thirteen would be 0.96 times as fast
    ],
)
def test_tiles_of_few_loads_where_these_take_time(sizes, dtype, tile, of_few_loads):
    m, n, k = sizes
    operation = gemm(m, n, k, (1, m), (k, 1), (1, m), dtype)
    server = dataclasses.replace(WIDE, pace=dataclasses.replace(WIDE.pace, hidden_load=0.02))
    for machine, wanted in ((WIDE, tile), (server, of_few_loads)):
        assert gemm_form(operation, machine, int(dtype[1:]) // 8).largest_tile == wanted


def test_chunks_of_overlapping_vectors_hold_two():
    """A vector is only overlapped by one of its own tile, which is read before it is written."""
    for m in range(1, 200):
        form = gemm_form(gemm(m, 6, 32, (1, m), (32, 1), (1, m)), WIDE, 4)
        last = form.vector_chunks[-1]
        assert last.overlaps == (m % form.lanes != 0)
        assert last.size >= 2 or not last.overlaps
        assert all(not one.overlaps for one in form.vector_chunks[:-1])
    assert [(one.size, one.repeat) for one in chunks(23, 6)] == [(5, 1), (6, 3)]


LAYOUTS = {
    "M consecutive everywhere": ((1, 32), (32, 1), (1, 32), "in0", True, True),
    "N consecutive everywhere": ((32, 1), (1, 32), (32, 1), "in1", True, True),
    "out along M, in0 along K": ((32, 1), (32, 1), (1, 32), "in0", False, True),
    "out along N, in1 along K": ((32, 1), (32, 1), (32, 1), "in1", False, True),
    "out strided": ((1, 32), (32, 1), (2, 64), "in0", True, False),
    "all strided": ((2, 64), (64, 2), (2, 64), "in0", False, False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_vector_side_follows_the_strides(name):
    in0, in1, out, array, reads, writes = LAYOUTS[name]
    operation = gemm(32, 32, 32, in0, in1, out, first_touch="zero")
    form = gemm_form(operation, WIDE, 4)
    assert (form.vector_array, form.direct_input, form.direct_output) == (array, reads, writes)
    launch = tensor_launch(operation, WIDE)
    spaces = {re.sub(r"_\d+$", "", one.name) for one in launch.kernel.arrays}
    assert spaces == ({"panel"} if not reads else set()) | ({"tile"} if not writes else set())
    check(operation, operation.compile("cpu"))


def test_a_matrix_vector_product_is_vectorised_along_what_there_is():
    form = gemm_form(gemm(1, 64, 32, (1, 1), (1, 64), (1, 1)), WIDE, 4)
    assert (form.vector_array, form.lanes) == ("in1", 16)


def test_strides_and_outer_sizes_are_parameters():
    """Operations that differ in them only have one kernel."""
    kernels = set()
    for leading, outer in ((64, 3), (80, 5), (1000, 7)):
        block = gemm(64, 32, 16, (1, leading), (99, 1), (1, leading)).dimensions
        loops = (TensorDimension("K", "seq", outer, 10**6, 10**6, 0),)
        shared = (TensorDimension("M", "shared", outer, 10**5, 0, 10**5),)
        launch = tensor_launch(TensorOperation("f32", "gemm", (*shared, *loops, *block), "zero", "relu"), WIDE)
        assert launch.blocks == outer
        kernels.add(launch.kernel)
    assert len(kernels) == 1


def test_rows_use_the_longest_vectors_that_fit():
    for size, lanes in ((128, {16}), (24, {16, 8}), (13, {8, 4}), (3, {2}), (1, set())):
        operation = TensorOperation("f32", "neg", [TensorDimension("C", "prim", size, 1, 0, 1)])
        assert vectors(tensor_launch(operation, WIDE).kernel) == lanes, size
        check(operation, operation.compile("cpu"))


def test_a_transpose_goes_through_registers():
    for rows, columns, lanes in ((64, 64, 16), (20, 64, 16), (9, 40, 8), (3, 40, 2)):
        dims = (TensorDimension("C", "prim", rows, columns, 0, 1), TensorDimension("C", "prim", columns, 1, 0, rows))
        operation = TensorOperation("f32", "transpose", dims)
        kernel = tensor_launch(operation, WIDE).kernel
        shuffles = [one for one in walk(kernel.body) if isinstance(one, Let) and isinstance(one.value, Shuffle)]
        assert vectors(kernel) == {lanes}
        assert len(shuffles) % (lanes * (lanes.bit_length() - 1)) == 0
        assert shuffles
        check(operation, operation.compile("cpu"))


GUARDED = """
import ctypes, mmap, sys
import numpy as np
sys.path[:0] = sys.argv[1:]
from tensor_support import arrays, random_contraction, random_elementwise

def guarded(array, at_end):
    # The array against a page that nobody may touch, behind it or before it.
    if array is None:
        return None
    pages = -(-array.nbytes // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    start = mmap.PAGESIZE if not at_end else (pages + 1) * mmap.PAGESIZE - array.nbytes
    libc = ctypes.CDLL(None, use_errno=True)
    for page in (0, pages + 1):
        address = whole.ctypes.data + page * mmap.PAGESIZE
        assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    copy = whole[start : start + array.nbytes].view(array.dtype)
    copy[:] = array
    return copy

for seed in range(24):
    for operation in (
        random_contraction(seed, ["f32", "c64", "i8", "f64"][seed % 4]),
        random_elementwise(seed, "f32", ["copy", "add", "transpose", "exp"][seed % 4]),
    ):
        compiled = operation.compile("cpu")
        for at_end in (False, True):
            compiled(*(guarded(one, at_end) for one in arrays(operation, seed)))
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by Linux's mprotect")
def test_nothing_outside_the_arrays_is_touched():
    """In a process of its own, since an access to a protected page ends it."""
    command = [sys.executable, "-c", GUARDED, str(Path(tensor_support.__file__).parent)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout == "done\n", (result.returncode, result.stderr[-2000:])


def test_nan_and_infinities():
    """relu and max give nan for nan, as NumPy does; a zero first touch forgets what was there."""
    x = np.array([np.nan, -np.inf, np.inf, -0.0, 1], np.float32)
    line = [TensorDimension("C", "prim", 5, 1, 0, 1)]
    relu = TensorOperation("f32", "relu", line).compile("cpu")(x, None, np.empty_like(x))
    assert np.array_equal(relu, np.maximum(x, 0), equal_nan=True)
    out = np.full(4, np.nan, np.float32)
    product = gemm(2, 2, 2, (1, 2), (2, 1), (1, 2), first_touch="zero").compile("cpu")
    assert product(np.ones(4, np.float32), np.ones(4, np.float32), out).tolist() == [2, 2, 2, 2]


def test_bf16_is_read_as_it_is_and_summed_in_f32():
    """NumPy has no such type: the bits go to the kernel directly."""
    m, n, k = 21, 5, 9
    operation = gemm(m, n, k, (1, m), (k, 1), (1, m), dtype="bf16", last_touch="relu")
    rng = np.random.default_rng(3)
    in0, in1 = (rng.integers(-8, 9, size).astype(np.float32) / 4 for size in (k * m, n * k))
    bits = [(one.view(np.uint32) >> 16).astype(np.uint16) for one in (in0, in1)]
    out = np.ones(n * m, np.float32)
    launch = tensor_launch(operation, WIDE)
    llvm_support.run(launch.kernel, [*bits, out], launch.scalars, launch.blocks)
    want = np.maximum(in1.reshape(n, k) @ in0.reshape(k, m) + 1, 0)
    assert np.array_equal(out.reshape(n, m), want)


def test_vectors_that_lie_far_apart_are_copied_into_panels():
    """Steps along K of a whole page each: told why, and computed right, in pieces and with several batches."""
    far = 5000
    one = gemm(96, 64, 70, (1, far), (70, 1), (1, 96), first_touch="zero", last_touch="relu")
    assert "K has stride 5000 in in0" in gemm_form(one, WIDE, 4).why_panel
    assert not gemm_form(gemm(96, 64, 70, (1, 96), (70, 1), (1, 96)), WIDE, 4).panel  # near
    assert not gemm_form(gemm(96, 6, 70, (1, far), (70, 1), (1, 96)), WIDE, 4).panel  # used by few rows
    check(one, one.compile("cpu"))
    for batches, size in ((3, 70), (40, 40), (2, 700)):
        dims = (TensorDimension("K", "prim", batches, far * size + 3, size + 1, 0), *one.dimensions[:2])
        dims = (*dims, TensorDimension("K", "prim", size, far, 1, 0))
        dims = (dims[0], dims[1], TensorDimension("N", "prim", 64, 0, batches * (size + 1), 96), dims[3])
        many = TensorOperation("f32", "brgemm", dims, "neg", "abs")
        form = gemm_form(many, WIDE, 4)
        assert form.panel
        assert form.batch.size == batches
        check(many, many.compile("cpu"))


@pytest.mark.parametrize("dtype", ["f64", "c64", "c128", "f16", "i8"])
def test_panels_of_other_types(dtype):
    operation = gemm(21, 96, 90, (1, 9000), (90, 1), (1, 21), dtype, first_touch="neg")
    form = gemm_form(operation, WIDE, {"f64": 8, "c128": 8}.get(dtype, 4))
    assert form.panel
    assert form.direct_input
    check(operation, operation.compile("cpu"))


def test_contracted_dimensions_that_are_one_in_memory_are_one():
    dims = (TensorDimension("K", "prim", 5, 64, 6, 0), TensorDimension("M", "prim", 8, 1, 0, 1),
            TensorDimension("N", "prim", 4, 0, 30, 8), TensorDimension("K", "prim", 6, 8, 1, 0))  # fmt: skip
    apart = TensorOperation("f32", "brgemm", dims)
    assert gemm_form(apart, WIDE, 4).batch.size == 5
    one = apart.replace(dimensions=(TensorDimension("K", "prim", 5, 48, 6, 0), *dims[1:]))
    form = gemm_form(one, WIDE, 4)
    assert (form.batch, form.contracted.size) == (None, 30)
    for each in (apart, one):
        check(each, each.compile("cpu"))


TINY = dataclasses.replace(WIDE, name="tiny caches", l2_bytes=1 << 10, l3_bytes=0)


@settings(max_examples=25)
@given(
    rows=st.sampled_from([16, 32, 33, 64, 130, 1040]),
    columns=st.sampled_from([16, 48, 64, 129, 160, 256, 1030]),
    pitch=st.sampled_from([0, 1, 16]),
    shift=st.integers(0, 17),
    kind=st.sampled_from(["turned", "turned relu", "straight", "zero", "in place", "sum", "turned sum"]),
    machine=st.sampled_from([WIDE, TINY]),
)
def test_long_rows_begin_anywhere(rows, columns, pitch, shift, kind, machine):
    """Aligned stores, and stores past the caches, wherever the output begins; nothing around it is written."""
    out_pitch = columns + pitch
    dtype = ["f32", "f64"][shift % 2]
    lists = {"straight": ("copy", out_pitch, 1), "in place": ("neg", out_pitch, 1), "zero": ("zero", 0, 0)}
    main, in_row, in_column = lists.get(kind, ("copy", 1, rows))
    if kind == "turned relu":
        main = "relu"
    if "sum" in kind:
        dims = [TensorDimension("M", "prim", rows, 1 if "turned" in kind else out_pitch, out_pitch, out_pitch),
                TensorDimension("N", "prim", columns, rows if "turned" in kind else 1, 1, 1)]  # fmt: skip
        operation = TensorOperation(dtype, "add", dims)
    else:
        dims = [TensorDimension("C", "prim", rows, in_row, 0, out_pitch),
                TensorDimension("C", "prim", columns, in_column, 0, 1)]  # fmt: skip
        operation = TensorOperation(dtype, main, dims, last_touch="abs" if kind == "turned" else "none")
    in0, in1, out = tensor_support.arrays(operation, rows * columns)
    memory = np.full(out.size + 64, np.nan, out.dtype)
    target = memory[shift : shift + out.size]
    target[:] = out
    first = target if kind == "in place" else in0
    want = tensor_support.expected(operation, first, in1, target.copy())
    compiled = CompiledTensorOperation(operation, tensor_launch(operation, machine))
    compiled(first, in1, target)
    np.testing.assert_allclose(target, want, rtol=1e-6)
    assert np.isnan(memory[:shift]).all()
    assert np.isnan(memory[shift + out.size :]).all()


def test_only_what_leaves_the_caches_is_written_past_them():
    def past(operation, machine):
        return {
            one.nontemporal for one in walk(tensor_launch(operation, machine).kernel.body) if isinstance(one, Store)
        }

    row = TensorOperation("f32", "relu", [TensorDimension("C", "prim", 4096, 1, 0, 1)])
    turned = [TensorDimension("C", "prim", 2048, 2048, 0, 1), TensorDimension("C", "prim", 2048, 1, 0, 2048)]
    for operation in (row, TensorOperation("f32", "transpose", turned)):
        assert past(operation, TINY) == {False, True}
        assert past(operation, dataclasses.replace(WIDE, l3_bytes=1 << 30)) == {False}


def test_a_compiled_operation_explains_itself():
    near = gemm(96, 64, 70, (1, 96), (70, 1), (1, 96)).compile("cpu").explain()
    assert near.startswith("tensor operation on f32\ngemm: out[m0 + 96 n0] +=")
    assert "in0: vectors are read where they lie" in near
    loops = (TensorDimension("M", "seq", 3, 96, 0, 96),)
    far = gemm(96, 64, 70, (1, 50000), (70, 1), (1, 288))
    text = far.replace(dimensions=(*loops, *far.dimensions)).compile("cpu").explain()
    assert "1. merge    for X(a, b*s): prim X(b, s) => prim X(a*b, s)" in text
    assert "in0: copied into panels of up to" in text
    assert "for K has stride 50000 in in0" in text
    turned = [TensorDimension("C", "prim", 64, 64, 0, 1), TensorDimension("C", "prim", 64, 1, 0, 64)]
    assert "turned in registers" in TensorOperation("f32", "transpose", turned).compile("cpu").explain()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("main", "last"), [("exp", "none"), ("sub", "exp")])
def test_exponentials_of_a_long_row_have_the_same_bits_wherever_it_lies(dtype, main, last):
    """What lies before and behind the whole vectors, and so is computed one by one, depends on the output's address."""
    kind, second = ("C", 0) if main == "exp" else ("M", 1)
    run = TensorOperation(dtype, main, (TensorDimension(kind, "prim", 1203, 1, second, 1),), "none", last).compile(
        "cpu"
    )
    element = np.dtype(np.float32 if dtype == "f32" else np.float64)
    room = np.empty(1203 + 16, element)
    nothing = np.zeros(1203, element) if second else None
    for number, value in enumerate(np.random.default_rng(0).uniform(-9, 9, 60)):
        out = room[number % 16 :][:1203]
        run(np.full(1203, value, element), nothing, out)
        assert (out == out[0]).all()
        np.testing.assert_allclose(out[0], np.exp(element.type(value)), rtol=4 * np.finfo(element).eps)
