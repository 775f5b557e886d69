"""Tensor operations as functions of arrays: `TensorOperation.compile`.

Compiled operations are kept on the disk, machine code included, so that later processes run them without compiler and
LLVM: one kernel and the numbers that its launch needs, in a record of `runtime.plan_record`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilewright.contraction.tensor_operation import TensorOperation
from tilewright.contraction.tensor_rules import ARRAYS, check_sizes
from tilewright.machine.model import Machine
from tilewright.runtime import cpu_pool
from tilewright.runtime.cache import default_disk_cache
from tilewright.runtime.cpu_entry import ArrayForm, EntryLaunch, NativeEntry, make_entry
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.digest import sha256
from tilewright.runtime.environment import is_on
from tilewright.runtime.fingerprint import fingerprint
from tilewright.runtime.flat_plan import FlatPlan, address_of
from tilewright.runtime.plan_record import store_plan, stored_plan
from tilewright.runtime.result_arrays import is_masked

if TYPE_CHECKING:  # the compiler is imported when something is compiled
    from tilewright.contraction.tensor_rewrites import TensorDerivation
    from tilewright.kernel.launch import Launch

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_PARALLEL_FLOPS = 1 << 20  # operations that take some 10 microseconds on one core: less is not worth waking others
_PARALLEL_ELEMENTS = 1 << 15  # the same for elements that are only moved

_MOST_ENTRIES = 16  # made for one operation: one that is called with ever new shapes gains nothing by them

_Slots = ctypes.Array[ctypes.c_uint64]


class CompiledTensorOperation:
    """Machine code of a tensor operation: `compiled(in0, in1, out)` computes into `out` and returns it.

    Calls may come from several threads. `set_num_threads` bounds the threads of later calls. Where one thread does all
    the work, repeated calls with arrays of one form are checked and made by native code (`runtime.cpu_entry`). It is
    pickled and copied as the operation, which is compiled anew, or taken from the caches, where it is read.

    Attributes:
        operation: what was compiled.
    """

    def __init__(
        self,
        operation: TensorOperation,
        launch: Launch | None = None,
        machine: Machine | None = None,
        code: EntryLaunch | None = None,
    ) -> None:
        """Of a launch, which is compiled or taken from the caches; or of its code, with the machine it is for."""
        self.operation = operation
        self._launch, self._machine = launch, machine
        self.code = code or _code_of(self.launch)
        types = (operation.dtype.numpy, operation.dtype.numpy, operation.out_dtype.numpy)
        self._arrays = tuple(zip(ARRAYS, types, operation.extents, strict=True))
        self._bytes = tuple(extent * dtype.itemsize for _, dtype, extent in self._arrays)
        work, enough = operation.flops, _PARALLEL_FLOPS if operation.main.family == "ternary" else _PARALLEL_ELEMENTS
        self._is_small = work < enough or self.code.blocks == 1
        self._free: dict[int, list[tuple[_Slots, Callable[[], None]]]] = {}
        self._entry: NativeEntry | None = None
        self._entries_left = _MOST_ENTRIES
        self._needed = tuple(extent > 0 for _, _, extent in self._arrays)
        strides = [one.strides for one in operation.dimensions if one.size > 1]
        elementwise = operation.main.family in ("unary", "binary")
        self._in_place = tuple(
            elementwise and all(each[position] == each[2] for each in strides) for position in range(2)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what was asked for: no code, which another processor may not run."""
        return compile_operation, (self.operation, "cpu")

    def __repr__(self) -> str:
        """The loop nest."""
        return f"compiled {self.operation}"

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
            slots = (ctypes.c_uint64 * (len(self.code.buffers) + len(self.code.scalars)))(
                *(0 for _ in self.code.buffers), *self.code.scalars
            )
            run = cpu_pool.prepare(self.code.native, slots, self.code.blocks, threads)
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
        if self._machine is None:
            return str(self.operation)
        from tilewright.passes.tensor.kernel import describe_primitive

        derivation = _regrouped(self.operation, self._machine)
        steps = [str(derivation), str(derivation.operation)] if derivation.steps else []
        return "\n".join([str(self.operation), *steps, describe_primitive(derivation.operation, self._machine)])

    @property
    def launch(self) -> Launch:
        """The kernel in the kernel language, and its launch parameters; written anew if it came from the disk."""
        if self._launch is None:
            from tilewright.passes.tensor.kernel import tensor_launch

            assert self._machine is not None
            self._launch = tensor_launch(_regrouped(self.operation, self._machine).operation, self._machine)
        return self._launch

    def _entry_for(self, arrays: list[Array]) -> NativeEntry | None:
        """Native code for calls with arrays of the same shapes and strides that do not overlap."""
        spans = [size for size in self._bytes if size]
        forms = [
            ArrayForm(one.dtype, one.shape, one.strides, one.dtype.alignment - 1, (0, span))
            for one, span in zip(arrays, spans, strict=True)
        ]
        return make_entry([self.code], forms[:-1], forms[-1:], makes_results=False)

    def _address(self, array: Array | None, name: str, dtype: np.dtype[Any], needed: int) -> int:
        """The array's address, after checking all that is known of it; 0 for one that the operation does not have."""
        if needed == 0:
            if array is not None:
                raise TypeError(f"{self.operation.main.value} has no {name}; give None instead of an array")
            return 0
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} is {type(array).__name__}; {self.operation.main.value} needs a NumPy array")
        if is_masked(array):
            raise TypeError(f"{name} is a masked array, whose mask would be lost; give its .data, or .filled()")
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
    """Compile a placed operation for the CPU, or take it from the disk; see `TensorOperation.compile`."""
    machine = device_for(target).machine
    key = _record_key(operation, machine)
    found = None if key is None else stored_plan(default_disk_cache(), key)
    if found is not None:
        (code,) = found[0].launches
        return CompiledTensorOperation(operation, machine=machine, code=code)
    compiled = CompiledTensorOperation(operation, machine=machine)
    if key is not None:
        masks = (0,) * len(compiled.code.buffers)
        store_plan(default_disk_cache(), key, FlatPlan(masks, (), (compiled.code,)), {})
    return compiled


def _record_key(operation: TensorOperation, machine: Machine) -> tuple[str, ...] | None:
    """The key of an operation on the disk; None where nothing is kept."""
    print_ = fingerprint()
    if machine.kind != "cpu" or print_ is None or is_on("TILEWRIGHT_VERIFY", False):
        return None
    parts = (*print_, repr(machine), repr(operation))
    return "tensor operation", sha256("\0".join(parts).encode()).hexdigest()


def _code_of(launch: Launch) -> EntryLaunch:
    """The launch, compiled: its buffers are the arrays in their order, its scalars the slots that the kernel reads."""
    from tilewright.runtime.backends import argument_block
    from tilewright.runtime.cpu_device import compile_for_cpu

    values = [value for value in launch.scalars if isinstance(value, int)]
    count = len(launch.buffers)
    slots = argument_block(launch.kernel, values)[count:]
    return EntryLaunch(compile_for_cpu(launch.kernel), launch.blocks, tuple(range(count)), tuple(slots))


def _regrouped(operation: TensorOperation, machine: Machine) -> TensorDerivation:
    from tilewright.passes.tensor.placing import regroup

    return regroup(operation, machine)
