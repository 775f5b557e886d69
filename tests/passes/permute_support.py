"""Copies for tests: arrays of random layouts between guarded bytes, and kernels run on them."""

import ctypes
import mmap
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from tilewright.ir.scalars import scalar_type_of
from tilewright.machine.named import named_machine
from tilewright.passes.permute.choose import permute_form
from tilewright.passes.permute.kernel import permute_launch
from tilewright.runtime import cpu_pool
from tilewright.runtime.backends import argument_block
from tilewright.runtime.cpu_device import compile_for_cpu
from tilewright.runtime.memory import aligned_empty

GUARD = 0xA5
SMALL_CACHES = [replace(named_machine(name), l2_bytes=0, l3_bytes=0) for name in ("cpu-avx512", "cpu-avx2", "cpu-neon")]
"""Machines whose caches hold nothing, so that every target is written past them."""
MACHINES = [*map(named_machine, ("cpu-avx512", "cpu-avx2", "cpu-neon")), *SMALL_CACHES]


def form_of(element, shape, order, machine):
    """The form of a copy of a row-major array to another order of its dimensions."""
    source = np.zeros(shape, np.uint8).transpose(order)
    strides = np.zeros(source.shape, np.uint8).strides
    return permute_form(element, source.shape, source.strides, strides, machine)


def forbidden_around(nbytes, at_end):
    """Bytes between pages that may not be touched, which end where the later one begins, or begin where the earlier one
    ends."""
    page = mmap.PAGESIZE
    whole = -(-nbytes // page) * page
    memory = mmap.mmap(-1, whole + 2 * page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    raw = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    for place in (0, page + whole):
        assert libc.mprotect(ctypes.c_void_p(raw.ctypes.data + place), ctypes.c_size_t(page), 0) == 0
    begin = page + (whole - nbytes if at_end else 0)
    return raw[begin : begin + nbytes]


def source_view(rng, dtype, shape, order, steps, broadcast):
    """Random bits seen with a permuted memory order, steps (negative too) and broadcast dimensions."""
    held = [1 if d in broadcast else n * abs(steps[d]) for d, n in enumerate(shape)]
    memory = forbidden_around(int(np.prod(held)) * dtype.itemsize, at_end=bool(rng.integers(2)))
    memory[:] = rng.integers(0, 256, memory.size, np.uint8)
    if dtype == np.bool_:
        memory &= 1
    base = memory.view(dtype).reshape([held[d] for d in order]).transpose(np.argsort(order))
    view = base[(*(slice(None, None, 1 if d in broadcast else steps[d]) for d in range(len(shape))), ...)]
    return np.broadcast_to(view, shape)


def target_view(dtype, shape, order, steps, shift):
    """Guarded bytes and a view of them that may be written."""
    held = [n * abs(step) for n, step in zip(shape, steps, strict=True)]
    count = int(np.prod(held))
    memory = aligned_empty(((count + 2 * 64 + shift) * dtype.itemsize,), np.dtype(np.uint8))
    memory[:] = GUARD
    inside = memory.view(dtype)[64 + shift : 64 + shift + count]
    base = inside.reshape([held[d] for d in order]).transpose(np.argsort(order))
    return memory, base[(*(slice(None, None, step) for step in steps), ...)]


def drawn_squares(data, dtype, inner, column, shift):
    """A source whose unit stride is the column's, of drawn orders, steps and outer dimensions; guarded bytes and the
    target in them, whose rows `inner` tells from the last dimension on."""
    outer = [data.draw(st.integers(1, 3)) for _ in range(data.draw(st.integers(0, 2)))]
    shape = (*outer, column, *inner[::-1])
    middle = data.draw(st.permutations([*range(len(outer)), *range(len(outer) + 1, len(shape))]))
    steps = [data.draw(st.sampled_from([1, 1, -1])) for _ in shape]
    steps[len(outer)] = 1
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    source = source_view(rng, dtype, shape, (*middle, len(outer)), steps, ())
    return source, *target_view(dtype, shape, range(len(shape)), [1] * len(shape), shift)


def run_copy(source, target, machine, threads=1):
    """target[...] = source, by the kernel."""
    element = scalar_type_of(target.dtype)

    def strides(array):
        return tuple(stride // array.itemsize for stride in array.strides)

    launch = permute_launch(element, target.shape, strides(source), strides(target), (0, 0), machine)
    block = argument_block(launch.kernel, launch.scalars)
    block[0], block[1] = source.ctypes.data, target.ctypes.data
    cpu_pool.launch(compile_for_cpu(launch.kernel), block, launch.blocks, threads)


def bits(array):
    """The array's elements as bytes."""
    return np.ascontiguousarray(array).view(np.uint8)


def check_copy(source, memory, target, machine, threads=1):
    """The copy moves every bit, and touches nothing else."""
    expected = memory.copy()
    offset = target.ctypes.data - memory.ctypes.data
    wanted = np.ndarray(target.shape, target.dtype, expected, offset, target.strides)
    wanted[...] = source
    run_copy(source, target, machine, threads)
    assert np.array_equal(bits(wanted), bits(source))
    assert np.array_equal(memory, expected)
