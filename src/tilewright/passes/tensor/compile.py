"""Tensor operations as functions of arrays: `TensorOperation.compile`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tilewright.contraction.tensor_operation import TensorOperation
from tilewright.contraction.tensor_rules import ARRAYS, check_sizes
from tilewright.kernel.launch import Launch
from tilewright.passes.tensor.kernel import describe_primitive, tensor_launch
from tilewright.passes.tensor.placing import regroup
from tilewright.runtime import cpu_pool
from tilewright.runtime.backends import argument_block
from tilewright.runtime.cpu_device import compile_for_cpu
from tilewright.runtime.cpu_entry import ArrayForm, EntryLaunch, NativeEntry, make_entry
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.flat_plan import address_of

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_PARALLEL_FLOPS = 1 << 20  # operations that take some 10 microseconds on one core: less is not worth waking others
_PARALLEL_ELEMENTS = 1 << 15  # the same for elements that are only moved

_MOST_ENTRIES = 16  # made for one operation: one that is called with ever new shapes gains nothing by them

_Slots = ctypes.Array[ctypes.c_uint64]


class CompiledTensorOperation:
    """Machine code of a tensor operation: `compiled(in0, in1, out)` computes into `out` and returns it.

    Calls may come from several threads. `set_num_threads` bounds the threads of later calls. Where one thread does all
    the work, repeated calls with arrays of one form are checked and made by native code (`runtime.cpu_entry`).

    Attributes:
        operation: what was compiled.
        launch: the kernel in the kernel language, and its launch parameters.
    """

    def __init__(self, operation: TensorOperation, launch: Launch, notes: str = "") -> None:
        """Compile, or take the code from the caches; `notes` tell how the launch came about."""
        self.operation = operation
        self._notes = notes
        self.launch = launch
        self._native = compile_for_cpu(launch.kernel)
        types = (operation.dtype.numpy, operation.dtype.numpy, operation.out_dtype.numpy)
        self._arrays = tuple(zip(ARRAYS, types, operation.extents, strict=True))
        self._bytes = tuple(extent * dtype.itemsize for _, dtype, extent in self._arrays)
        work, enough = operation.flops, _PARALLEL_FLOPS if operation.main.family == "ternary" else _PARALLEL_ELEMENTS
        self._is_small = work < enough or launch.blocks == 1
        self._free: dict[int, list[tuple[_Slots, Callable[[], None]]]] = {}
        self._entry: NativeEntry | None = None
        self._entries_left = _MOST_ENTRIES
        self._needed = tuple(extent > 0 for _, _, extent in self._arrays)
        strides = [one.strides for one in operation.dimensions if one.size > 1]
        elementwise = operation.main.family in ("unary", "binary")
        self._in_place = tuple(
            elementwise and all(each[position] == each[2] for each in strides) for position in range(2)
        )

    def __call__(self, in0: Array | None, in1: Array | None, out: Array) -> Array:
        """Run the operation.

        Args:
            in0, in1: the inputs; None for one that the operation does not have.
            out: written into, and returned.

        Arrays are flat memory with the operation's strides: any shape is taken, if the array is contiguous, of the
        right type and long enough. An input of a unary or binary operation may be the output itself, if it has the
        same strides.

        Raises:
            TypeError: if an array is missing or needless, or has another type.
            ValueError: if an array is not contiguous, aligned or writable, or the output overlaps an input.
            TensorOperationError: if an array is too short.
        """
        threads = 1 if self._is_small else cpu_pool.get_num_threads()
        if threads == 1 and self._entry is not None and (self._needed[1] or in1 is None):
            if self._needed[1]:
                done = self._entry(in0, in1, out)
            elif self._needed[0]:
                done = self._entry(in0, out)
            else:
                done = self._entry(out) if in0 is None else None
            if done is not None:
                return out
        first, second, third = self._arrays
        addresses = (self._address(in0, *first), self._address(in1, *second), self._address(out, *third))
        self._check_overlap(addresses)
        free = self._free.setdefault(threads, [])
        try:
            slots, run = free.pop()
        except IndexError:
            slots = argument_block(self.launch.kernel, self._scalars())
            run = cpu_pool.prepare(self._native, slots, self.launch.blocks, threads)
        position = 0
        for address in addresses:
            if address:
                slots[position] = address
                position += 1
        run()
        free.append((slots, run))
        if self._entries_left and threads == 1:
            self._entries_left -= 1
            self._entry = self._entry_for([one for one in (in0, in1, out) if one is not None])
        return out

    def explain(self) -> str:
        """The loop nest, what compiling changed in it, and what its primitive does on this machine.

        Example:
            >>> from tilewright.contraction.tensor_operation import TensorDimension
            >>> relu = TensorOperation("f32", "relu", (TensorDimension("C", "prim", 4, 1, 0, 1),))
            >>> print(relu.compile("cpu").explain())
            tensor operation on f32
            relu: out[c0] = relu(in0[c0])    for c0 < 4
            in0: in vectors of 4
            out: in the caches
        """
        return f"{self.operation}\n{self._notes}".rstrip()

    def _entry_for(self, arrays: list[Array]) -> NativeEntry | None:
        """Native code for calls with arrays of the same shapes and strides that do not overlap."""
        count = len(arrays)
        slots = argument_block(self.launch.kernel, self._scalars())[count:]
        spans = [size for size in self._bytes if size]
        forms = [
            ArrayForm(one.dtype, one.shape, one.strides, one.dtype.alignment - 1, (0, span))
            for one, span in zip(arrays, spans, strict=True)
        ]
        launch = EntryLaunch(self._native, self.launch.blocks, tuple(range(count)), tuple(slots))
        return make_entry([launch], forms[:-1], forms[-1:], makes_results=False)

    def _scalars(self) -> list[int]:
        return [value for value in self.launch.scalars if isinstance(value, int)]

    def _address(self, array: Array | None, name: str, dtype: np.dtype[Any], needed: int) -> int:
        """The array's address, after checking all that is known of it; 0 for one that the operation does not have."""
        if needed == 0:
            if array is not None:
                raise TypeError(f"{self.operation.main.value} has no {name}; give None instead of an array")
            return 0
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} is {type(array).__name__}; {self.operation.main.value} needs a NumPy array")
        if array.dtype != dtype:
            raise TypeError(f"{name} has dtype {array.dtype}; the operation needs {dtype}")
        flags = array.flags
        if not (flags.forc and flags.aligned):
            raise ValueError(
                f"{name} of shape {array.shape} with strides {array.strides} is not contiguous, aligned memory; give "
                "the array that it is a view of, and its strides to the operation"
            )
        if name == "out" and not flags.writeable:
            raise ValueError(f"out of shape {array.shape} is read-only")
        if array.size < needed:
            check_sizes(self.operation, {name: array.size})
        return address_of(array)

    def _check_overlap(self, addresses: tuple[int, int, int]) -> None:
        begin = addresses[2]
        end = begin + self._bytes[2]
        for position in (0, 1):
            start = addresses[position]
            if start < end and begin < start + self._bytes[position]:
                if start == begin and self._in_place[position]:
                    continue
                raise ValueError(
                    f"{ARRAYS[position]} and out overlap in memory; {self.operation.main.value} with these strides "
                    "needs them apart"
                )


def compile_operation(operation: TensorOperation, target: str | Device | None = None) -> CompiledTensorOperation:
    """Compile a placed operation for the CPU; see `TensorOperation.compile`."""
    device = device_for(target)
    derivation = regroup(operation, device.machine)
    launch = tensor_launch(derivation.operation, device.machine)
    steps = f"{derivation}\n{derivation.operation}\n" if derivation.steps else ""
    notes = steps + describe_primitive(derivation.operation, device.machine)
    return CompiledTensorOperation(operation, launch, notes)
