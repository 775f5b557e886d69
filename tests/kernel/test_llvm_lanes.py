"""Lanes that a mask picks: packed, and counted."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_support import run

from tilewright.ir.scalars import BOOL, F32, F64, I8, I16, I32, I64, U8, U64, ScalarType
from tilewright.kernel import ir
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.ir import Buffer, Name, integer
from tilewright.kernel.llvm import llvm_text
from tilewright.kernel.llvm_lanes import MOST_BYTES
from tilewright.machine.processors import NAMED_PROCESSORS
from tilewright.report.kernel_text import kernel_text
from tilewright.runtime.cpu_jit import cpu_target, host_cpu, object_file

ELEMENTS = [F32, F64, I8, I16, I32, I64, U8]


def packing(element: ScalarType, lanes: int) -> ir.Kernel:
    """y = the lanes of x where m, count[0] = how many they are."""
    x, y, m, count = (
        Buffer(name, kind) for name, kind in zip(("x", "y", "m", "c"), (element, element, BOOL, I64), strict=True)
    )
    kind, mask = ir.VectorType(element, lanes), Name("mask", ir.VectorType(BOOL, lanes))
    body = (
        ir.Let("mask", ir.Load(m, integer(0), mask.type)),
        ir.Let("packed", ir.PackedLanes(ir.Load(x, integer(0), kind), mask, kind)),
        ir.Store(y, integer(0), Name("packed", kind)),
        ir.Store(count, integer(0), ir.CountLanes(mask)),
    )
    return ir.Kernel("packing", (x, y, m, count), (), (), body)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@given(st.data())
@settings(deadline=None, max_examples=10)
def test_picked_lanes_come_first(element: ScalarType, lanes: int, data: st.DataObject) -> None:
    if lanes * element.bytes > MOST_BYTES:
        with pytest.raises(TypeError, match=r"at most 64 bytes .* are packed, not"):
            llvm_text(packing(element, lanes), host_cpu())
        return
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=lanes, max_size=lanes)))
    x = np.arange(5, 5 + lanes).astype(element.numpy)
    y, count = np.zeros(lanes, element.numpy), np.zeros(1, np.int64)
    run(packing(element, lanes), [x, y, mask, count])
    assert count[0] == mask.sum()
    np.testing.assert_array_equal(y[: count[0]], x[mask])


@pytest.mark.parametrize("name", NAMED_PROCESSORS)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_every_processor_can(name: str, element: ScalarType) -> None:
    cpu = cpu_target(NAMED_PROCESSORS[name])
    assert object_file(llvm_text(packing(element, 64 // max(4, element.bytes)), cpu), "none", cpu)


def test_wrong_masks_are_refused() -> None:
    x, y = Buffer("x", F32), Buffer("y", F32)
    kind, mask = ir.VectorType(F32, 4), ir.Load(Buffer("m", BOOL), integer(0), ir.VectorType(BOOL, 8))
    packed = ir.PackedLanes(ir.Load(x, integer(0), kind), mask, kind)
    with pytest.raises(TypeError, match="a mask of 8 lanes cannot pick lanes of f32x4"):
        kernel = ir.Kernel("wrong", (x, y, Buffer("m", BOOL)), (), (), (ir.Store(y, integer(0), packed),))
        run(kernel, [np.zeros(8, "f4"), np.zeros(8, "f4"), np.zeros(8, bool)])
    counted = ir.Store(Buffer("c", I64), integer(0), ir.CountLanes(ir.Load(x, integer(0), kind)))
    with pytest.raises(TypeError, match="a bool for each of them, not by a value of type f32x4"):
        run(ir.Kernel("wrong", (x, Buffer("c", I64)), (), (), (counted,)), [np.zeros(8, "f4"), np.zeros(1, np.int64)])


def test_kernels_of_gpus_have_none() -> None:
    with pytest.raises(TypeError, match="CPU kernels only"):
        cuda_text(packing(F32, 4))


def test_they_are_shown() -> None:
    text = kernel_text(packing(F32, 4))
    assert "packed(x[0], mask)" in text
    assert "count(mask)" in text


def windowed(element: ScalarType, lanes: int) -> ir.Kernel:
    """y = what is seen of x, two vectors, from lane n[0] on."""
    x, y, n = Buffer("x", element), Buffer("y", element), Buffer("n", I64)
    kind = ir.VectorType(element, lanes)
    first, second = ir.Load(x, integer(0), kind), ir.Load(x, integer(lanes), kind)
    seen = ir.Window(first, second, ir.Load(n, integer(0), I64), kind)
    return ir.Kernel("windowed", (x, y, n), (), (), (ir.Store(y, integer(0), seen),))


@pytest.mark.parametrize("nbytes", [16, 32, 64])
@pytest.mark.parametrize("element", [U8, I16, I32, U64, F32, F64], ids=str)
def test_a_window_shows_neighbouring_lanes_of_two_vectors(element: ScalarType, nbytes: int) -> None:
    lanes = nbytes // element.bytes
    x = np.arange(3, 3 + 2 * lanes).astype(element.numpy)
    kernel = windowed(element, lanes)
    for begin in range(lanes + 1):
        y = np.zeros(lanes, element.numpy)
        run(kernel, [x, y, np.array([begin], np.int64)])
        np.testing.assert_array_equal(y, x[begin : begin + lanes])


@pytest.mark.parametrize("name", NAMED_PROCESSORS)
@pytest.mark.parametrize("element", [U8, I16, I32, U64, F32, F64], ids=str)
def test_every_processor_has_windows(name: str, element: ScalarType) -> None:
    cpu = cpu_target(NAMED_PROCESSORS[name])
    text = llvm_text(windowed(element, 64 // element.bytes), cpu)
    assert object_file(text, "none", cpu)
    assert ("vpermi2var" in text) == (cpu.has({1: "avx512vbmi", 2: "avx512bw"}.get(element.bytes, "avx512f")))


def test_windows_begin_at_an_i64() -> None:
    kernel = windowed(F32, 4)
    (store,) = kernel.body
    assert isinstance(store, ir.Store) and isinstance(store.value, ir.Window)
    begun = replace(store.value, begin=integer(1, I32))
    with pytest.raises(TypeError, match=r"vectors of integers, f32 or f64 and begins at an i64, not .* of type i32"):
        llvm_text(replace(kernel, body=(replace(store, value=begun),)), host_cpu())
