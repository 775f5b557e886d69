"""Masked accesses of the LLVM form: what the mask leaves out is neither read nor written."""

import ctypes
import mmap
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from llvm_support import run

from tilewright.ir.scalars import BF16, BOOL, F16, F32, F64, I8, I64, compute_type
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.ir import (
    Buffer,
    Cast,
    FirstLanes,
    Kernel,
    Let,
    Load,
    Name,
    Prefetch,
    ScalarParameter,
    Store,
    VectorType,
    integer,
    operation,
)
from tilewright.report.kernel_text import kernel_text

LANES = 8
MASKS = VectorType(BOOL, LANES)
N = Name("n", I64)


@pytest.fixture
def page() -> Iterator[np.ndarray]:
    """The bytes of a page after which nothing may be touched."""
    if not sys.platform.startswith("linux"):
        pytest.skip("pages are protected as on Linux")
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    pages = np.frombuffer(memory, np.uint8)
    guard, library = ctypes.c_void_p(pages.ctypes.data + mmap.PAGESIZE), ctypes.CDLL(None, use_errno=True)
    size = ctypes.c_size_t(mmap.PAGESIZE)
    assert library.mprotect(guard, size, 0) == 0
    yield pages[: mmap.PAGESIZE]
    assert library.mprotect(guard, size, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def copy_kernel(element, mask) -> Kernel:
    """y = x and z = x where the mask is true; elsewhere y = 0 and z stays."""
    x, y, z = Buffer("x", element), Buffer("y", element), Buffer("z", element)
    value = Name("value", VectorType(compute_type(element), LANES))
    body = (
        Let("mask", mask),
        Let("value", Load(x, integer(0), value.type, mask=Name("mask", MASKS))),
        Store(y, integer(0), value),
        Store(z, integer(0), value, mask=Name("mask", MASKS)),
        Store(x, integer(0), value, mask=Name("mask", MASKS)),
    )
    return Kernel("masked", (x, y, z), (ScalarParameter("n", I64),), (), body)


@pytest.mark.parametrize("count", [0, 1, 5, 8])
@pytest.mark.parametrize("element", [F32, I8, F64, BOOL, F16, BF16], ids=str)
def test_nothing_past_the_mask_is_touched(page: np.ndarray, element, count: int) -> None:
    stored = np.uint16 if element in (F16, BF16) else element.numpy
    x = page[len(page) - count * element.bytes :].view(stored)
    x[...] = (np.arange(count) % 2).astype(stored) if element == BOOL else np.arange(2, 2 + count).astype(stored)
    before = x.copy()
    y, z = np.ones(LANES, stored), np.ones(LANES, stored)
    run(copy_kernel(element, FirstLanes(N, MASKS)), [x, y, z], (count,))
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(y, np.concatenate([before, np.zeros(LANES - count, stored)]))
    np.testing.assert_array_equal(z, np.concatenate([before, np.ones(LANES - count, stored)]))


def gather_kernel(element, index=I64) -> Kernel:
    """y = x at the places, where the mask is true, and 0 elsewhere."""
    x, y, at = Buffer("x", element, read_only=True), Buffer("y", element), Buffer("at", index)
    value, places = VectorType(compute_type(element), LANES), VectorType(index, LANES)
    body = (
        Let("mask", FirstLanes(N, MASKS)),
        Let("places", Load(at, integer(0), places)),
        Store(y, integer(0), Load(x, Name("places", places), value, mask=Name("mask", MASKS))),
    )
    return Kernel("gathered", (x, y, at), (ScalarParameter("n", I64),), (), body)


@pytest.mark.parametrize("count", [0, 1, 5, 8])
@pytest.mark.parametrize("element", [F32, I8, F64, BOOL, F16, BF16], ids=str)
def test_lanes_past_the_mask_gather_nothing(page: np.ndarray, element, count: int) -> None:
    stored = np.uint16 if element in (F16, BF16) else element.numpy
    x = page[len(page) - LANES * element.bytes :].view(stored)
    x[...] = (np.arange(LANES) % 2).astype(stored) if element == BOOL else np.arange(2, 2 + LANES).astype(stored)
    places = np.random.default_rng(count).permutation(LANES)
    expected = np.concatenate([x[places[:count]], np.zeros(LANES - count, stored)])
    places[count:] = 10**14  # far outside
    y = np.ones(LANES, stored)
    run(gather_kernel(element), [x, y, places], (count,))
    np.testing.assert_array_equal(y, expected)


def test_gathers_are_at_wide_indices_and_on_cpus() -> None:
    with pytest.raises(TypeError, match="cannot be gathered from buffer x at indices of type"):
        run(gather_kernel(F32, I8), [np.ones(8, "f4")] * 2 + [np.ones(8, "i1")], (8,))
    x, y, places = Buffer("x", F32), Buffer("y", F32), Name("places", VectorType(I64, 4))
    store = Store(y, integer(0), Load(x, places, VectorType(F32, 4)))
    body = (Let("places", Load(Buffer("at", I64), integer(0), places.type)), store)
    with pytest.raises(TypeError, match="elements of buffer x are gathered, in CPU kernels only"):
        cuda_text(Kernel("gathered", (x, y, Buffer("at", I64)), (), (), body))


def test_masks_are_bools_like_others() -> None:
    """Lanes 3 and 4 of the first 5: without the first 3."""
    mask = operation("and", FirstLanes(integer(5), MASKS), operation("not", FirstLanes(N, MASKS)))
    x, y, z = np.arange(1, 9, dtype=np.float32), np.zeros(8, np.float32), np.full(8, -1, np.float32)
    run(copy_kernel(F32, mask), [x, y, z], (3,))
    np.testing.assert_array_equal(y, [0, 0, 0, 4, 5, 0, 0, 0])
    np.testing.assert_array_equal(z, [-1, -1, -1, 4, 5, -1, -1, -1])


def test_masks_of_another_width_are_refused() -> None:
    narrow = FirstLanes(N, VectorType(BOOL, 4))
    x = Buffer("x", F32)
    value = Load(x, integer(0), VectorType(F32, LANES), mask=narrow)
    with pytest.raises(TypeError, match="an access of f32x8 to buffer x has a mask of type boolx4"):
        run(Kernel("wrong", (x,), (), (), (Store(x, integer(0), value),)), [np.zeros(8, np.float32)])
    counted = FirstLanes(Cast(N, BOOL), MASKS)
    with pytest.raises(TypeError, match="counted by an i64"):
        run(copy_kernel(F32, counted), [np.zeros(8, np.float32)] * 3, (1,))


@pytest.mark.parametrize("store", [False, True])
def test_gpus_have_no_masks(store: bool) -> None:
    x = Buffer("x", F32)
    value, mask = VectorType(F32, 4), FirstLanes(integer(3), VectorType(BOOL, 4))
    if store:
        body = (Store(x, integer(0), Load(x, integer(0), value), mask=mask),)
    else:
        body = (Store(x, integer(0), Load(x, integer(0), value, mask=mask)),)
    with pytest.raises(TypeError, match="masked, in CPU kernels only"):
        cuda_text(Kernel("masked", (x,), (), (), body))


def test_prefetches_may_lie_outside() -> None:
    x, y = Buffer("x", F32), Buffer("y", F32)
    body = (Prefetch(x, integer(1 << 40)), Prefetch(x, N), Store(y, integer(0), Load(x, integer(0), F32)))
    kernel = Kernel("ahead", (x, y), (ScalarParameter("n", I64),), (), body)
    out = np.zeros(1, np.float32)
    run(kernel, [np.ones(1, np.float32), out], (-5,))
    assert out == 1
    assert "prefetch x[n]" in kernel_text(kernel)
    with pytest.raises(TypeError, match="prefetched, in CPU kernels only"):
        cuda_text(kernel)


def test_masks_are_shown() -> None:
    text = kernel_text(copy_kernel(F32, FirstLanes(N, MASKS)))
    assert "let mask = first(n)" in text
    assert "let value = x[0] where mask" in text
    assert "z[0] = value where mask" in text
