"""Flat plans: kernels launched one after the other on arrays, and nothing else.

Most einsums are no more than that once their shapes are known. Such a plan can be repeated by native code
(`cpu_entry`), and kept on the disk for later processes (`plan_record`); here Python repeats it, on as many threads as
there are.

Arrays are numbered: the operands, the result, then the temporary ones.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tilewright.runtime import cpu_pool
from tilewright.runtime.native_image import NativeKernel
from tilewright.runtime.recycling import LARGE

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_DATA_FIELD = object.__basicsize__  # in NumPy's C interface the address is an array's first field after the header
_ALIGNMENT = 128  # of temporary arrays
ANY_SHAPE = "contraction_of_any_shape"
"""The name of kernels for all sizes and strides, which computations may have for the time being."""
IN_PLACE = "contraction_in_place"
"""The name of kernels whose epilogue may read the result itself: each element is read, if it is, right before it is
written, and written once."""


def _address_from_interface(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _address_from_field(array: Array) -> int:
    return ctypes.c_size_t.from_address(id(array) + _DATA_FIELD).value


def _choose_address() -> Callable[[Array], int]:
    """The fast way if it is right in this interpreter (the interface costs a microsecond)."""
    probes: list[Array] = [np.arange(10), np.zeros((3, 4), np.float32)[1:, ::2]]
    if all(_address_from_field(one) == _address_from_interface(one) for one in probes):
        return _address_from_field
    return _address_from_interface


address_of = _choose_address()


class Unfit(Exception):
    """The arguments cannot be used as they are (misaligned, overlapping); the run must be done step by step."""


class EntryLaunch(NamedTuple):
    """A kernel to run.

    Attributes:
        native: the kernel.
        blocks: how many.
        buffers: for each buffer the number of its array.
        scalars: the slots of the argument block after the buffers, as unsigned numbers.
        given: of the scalars, by position, those that are an operand, with its number.
    """

    native: NativeKernel
    blocks: int
    buffers: tuple[int, ...]
    scalars: tuple[int, ...]
    given: tuple[tuple[int, int], ...] = ()


class FlatPlan(NamedTuple):
    """Launches on arrays.

    Attributes:
        masks: for each operand, then for the result, the bits that must be 0 in its address.
        temporaries: sizes in bytes of arrays that live between launches.
        launches: in their order.
    """

    masks: tuple[int, ...]
    temporaries: tuple[int, ...]
    launches: tuple[EntryLaunch, ...]


def updating(plan: FlatPlan) -> FlatPlan | None:
    """The plan that reads where the result lies what its last operand is a copy of, and takes the other operands; None
    if that might be overwritten before.

    Args:
        plan: takes what the result held, laid out alike, as its last operand.
    """
    if len(plan.launches) != 1 or plan.launches[0].native.name != IN_PLACE:
        return None
    (launch,) = plan.launches
    *masks, copy, result = plan.masks
    number = len(masks)  # of the copy; then of the result
    buffers = tuple(one - (one > number) for one in launch.buffers)
    return FlatPlan((*masks, copy | result), plan.temporaries, (launch._replace(buffers=buffers),))


def span_of(array: Array | None) -> tuple[int, int]:
    """The bytes that an array covers, from its first element's address on: [low, high)."""
    if array is None or not array.size:
        return 0, 0
    reaches = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    return sum(r for r in reaches if r < 0), sum(r for r in reaches if r > 0) + array.itemsize


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a row-major array."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


FlatRunner: TypeAlias = Callable[[Sequence[Array]], None]


def flat_runner(plan: FlatPlan, arrays: Sequence[Array]) -> FlatRunner:
    """The plan as a function of operands and result, of the shapes and strides that `arrays` have.

    The function raises Unfit, and has done nothing, for arrays that are misaligned, or of which an operand may share
    memory with the result. It may be called by several threads.
    """
    launches = [_Launch(one) for one in plan.launches]
    spans = [span_of(one) for one in arrays]
    low, high = spans.pop()

    def run(arrays: Sequence[Array]) -> None:
        addresses = [address_of(one) for one in arrays]
        result = addresses[-1]
        for address, mask in zip(addresses, plan.masks, strict=True):
            if address & mask:
                raise Unfit
        for address, (other_low, other_high) in zip(addresses, spans, strict=False):
            if address + other_low < result + high and result + low < address + other_high:
                raise Unfit
        temporaries = [_temporary(size) for size in plan.temporaries]
        addresses += [address_of(one) for one in temporaries]
        for launch in launches:
            launch(addresses)

    return run


class _Launch:
    """One launch, with argument blocks for as many calls as are under way."""

    def __init__(self, launch: EntryLaunch) -> None:
        self._launch = launch
        self._free = [self._make()]

    def _make(self) -> tuple[Any, Callable[[], None]]:
        launch = self._launch
        block = (ctypes.c_uint64 * (len(launch.buffers) + len(launch.scalars)))(*launch.buffers, *launch.scalars)
        return block, cpu_pool.prepare(launch.native, block, launch.blocks)

    def __call__(self, addresses: Sequence[int]) -> None:
        try:
            entry = self._free.pop()
        except IndexError:
            entry = self._make()
        block, run = entry
        for position, number in enumerate(self._launch.buffers):
            block[position] = addresses[number]
        run()
        self._free.append(entry)


def _temporary(nbytes: int) -> Array:
    if nbytes >= LARGE:
        from tilewright.runtime.memory import aligned_empty

        return aligned_empty((nbytes,), np.dtype(np.uint8), "a temporary array")
    raw: Array = np.empty(nbytes + _ALIGNMENT, np.uint8)
    return raw[-address_of(raw) % _ALIGNMENT :]
