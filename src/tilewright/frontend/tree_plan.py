"""Plans of trees: everything that can be decided without the data, and how it is run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from tilewright.frontend.einsum_arrays import Array, as_arrays, can_exist, empty_result, fresh_strides, large_result
from tilewright.frontend.einsum_bind import executable_of
from tilewright.frontend.einsum_parse import Labels
from tilewright.frontend.einsum_quick import QuickCalls
from tilewright.frontend.torch_tensors import are_there, on_arrays
from tilewright.frontend.tree_layout import choose_orders
from tilewright.frontend.tree_memory import MemoryPlan, Schedule, Widths, plan_memory
from tilewright.frontend.tree_parse import TreeError
from tilewright.frontend.tree_program import operands_of, tree_program
from tilewright.frontend.tree_steps import ResolvedTree
from tilewright.frontend.tree_text import describe, too_large
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Program
from tilewright.ir.scalars import ScalarType, compute_type
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.flat_plan import FlatPlan
from tilewright.runtime.memory import aligned_empty
from tilewright.runtime.result_arrays import check_is_array, overlaps_itself, share_elements

_Index = tuple[slice, ...]

_KEPT_BYTES = 1 << 16
"""Native code keeps all arrays until it is done, where programs use their memory again: so much more than the peak is
worth its short cuts."""


@dataclass(frozen=True)
class CompiledPart:
    """Some steps of a tree as one program: what it computes, from which values, and the program itself."""

    value: int
    operands: tuple[int, ...]
    program: Program
    executable: Callable[..., Any]


@dataclass(frozen=True, repr=False)
class TreePlan:
    """A compiled contraction tree, which `plan_tree` makes; call it with the input arrays.

    Its `repr` shows the tree and what it costs.

    Example:
        >>> from tilewright.frontend.tree import plan_tree
        >>> product = plan_tree("[0,1],[1,2]->[0,2]", (2, 3, 4))
        >>> product(np.ones((2, 3)), np.ones((3, 4))).shape, product.flops, product.peak_bytes
        ((2, 4), 48, 64)

    Attributes:
        resolved: the steps that the tree comes to.
        memory: their order, the slices, and the peak of the memory for arrays.
        orders: for every value (inputs first, then the steps' results) its indices in the order of its dimensions in
            memory, outermost first; for inputs in the order of the tree.
        inputs: the inputs' element types.
        dtype: the element type of the result.
        first: what is computed once before the slices.
        main: the program of the whole tree, or of one slice.
        made_from: the arguments of `make_plan`, the device by its name.
        quick: short cuts for repeated calls; None where there are none.
    """

    resolved: ResolvedTree
    memory: MemoryPlan
    orders: tuple[Labels, ...]
    inputs: tuple[ScalarType, ...]
    dtype: ScalarType
    device: Device
    first: tuple[CompiledPart, ...]
    main: CompiledPart
    made_from: tuple[Any, ...]
    quick: QuickCalls | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what was asked for: it is planned anew, for the device of that name, where it is read."""
        return _made, self.made_from

    def __call__(self, *arrays: Array, out: Array | None = None) -> Any:
        """The result for input arrays of the planned shapes and dtypes; written into `out` if that is given.

        Raises:
            ValueError: for another number of arrays or another shape, and an `out` that cannot be written to.
            TypeError: for another dtype; `out` may be of foreign byte order.
            MemoryError: if the host has too little memory.
        """
        if self.quick is not None:
            for entry in self.quick.entries:
                found = entry(*arrays, out)
                if found is not None:
                    return found
        if are_there(arrays, out):
            return on_arrays(self, f"tree {self.resolved.tree}: input", arrays, out)
        arrays = as_arrays(arrays, f"tree {self.resolved.tree}", "input")
        self._check(arrays)
        if out is not None:
            self._check_out(out, arrays)
        shape = self.shape
        if 0 in shape:
            return np.empty(shape, self.dtype.numpy) if out is None else out
        run = self._sliced if self.memory.pieces else self._whole
        if out is None or out.dtype.isnative:
            return run(arrays, out)
        out[...] = run(arrays, None)
        return out

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return tuple(self.resolved.sizes[label] for label in self.resolved.output)

    @property
    def peak_bytes(self) -> int:
        """Bytes for intermediates and the result at the worst moment."""
        return self.memory.peak

    @property
    def flops(self) -> int:
        """Operations of all steps, with what slices repeat."""
        return self.memory.flops

    @property
    def slices(self) -> int:
        """How many slices are computed one after another."""
        return self.memory.slices(self.resolved)

    def explain(self) -> str:
        """How each statement of the programs was compiled."""
        return "\n".join(str(part.executable.explain()) for part in (*self.first, self.main))  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return describe(self.resolved, self.memory, self.orders, self.dtype, str(self.device))

    # --- checks

    def _check(self, arrays: Sequence[Array]) -> None:
        tree = self.resolved
        if len(arrays) != len(tree.inputs):
            raise ValueError(f"tree {tree.tree} has {len(tree.inputs)} inputs; {len(arrays)} arrays were given")
        for number, (array, labels, element) in enumerate(zip(arrays, tree.inputs, self.inputs, strict=True)):
            shape = tuple(tree.sizes[label] for label in labels)
            if array.shape != shape:
                raise ValueError(
                    f"tree {tree.tree}: input {number} {tree.text(labels)} has shape {array.shape}, the sizes of its "
                    f"indices are {shape}"
                )
            if array.dtype != element.numpy:
                raise TypeError(f"tree {tree.tree}: input {number} has dtype {array.dtype}, planned was {element}")

    def _check_out(self, out: Array, arrays: Sequence[Array]) -> None:
        check_is_array(out, f"tree {self.resolved.tree}")
        text = f"tree {self.resolved.tree}: out"
        if out.shape != self.shape:
            raise ValueError(f"{text} has shape {out.shape}, the result has {self.shape}")
        if out.dtype.newbyteorder("=") != self.dtype.numpy:
            raise TypeError(f"{text} has dtype {out.dtype}, the result has {self.dtype.numpy}")
        if not out.flags.writeable:
            raise ValueError(f"{text} is read-only")
        if overlaps_itself(out):
            raise ValueError(f"{text} has elements that lie on one another in memory (strides {out.strides})")
        for number, array in enumerate(arrays):
            if share_elements(out, array):
                raise ValueError(f"{text} shares memory with input {number}, which is read while out is written")

    # --- running

    def _run(self, part: CompiledPart, arrays: Sequence[Array], **out: Array) -> Any:
        """A part's result. A program knows its intermediates by names of its own; the plan, by their indices."""
        try:
            return part.executable(*arrays, **out)
        except MemoryError as error:
            if type(error) is not MemoryError:  # of a device, which has its own
                raise
            raise MemoryError(too_large(self.resolved, self.memory, self.orders, error)) from error

    def _in_memory_order(self, out: Array) -> Array:
        """The view of a result with the dimensions in the order in which the program writes them."""
        return out.transpose(self.axes)

    def _whole(self, arrays: Sequence[Array], out: Array | None) -> Any:
        given = [arrays[one] for one in self.main.operands]
        if not self.shape:
            value = self._run(self.main, given)
            if self.quick is not None:
                self.quick.learn(given, None, np.empty((), self.dtype.numpy))
            if out is None:
                return value
            out[...] = value
            return out
        if out is None and self.quick is None:  # the result is made last
            made = self._run(self.main, given)
            return made.transpose([self.axes.index(axis) for axis in range(made.ndim)])
        result = out if out is not None else empty_result(self.shape, self.dtype.numpy, self.axes)
        self._run(self.main, given, out=self._in_memory_order(result))
        if self.quick is not None:
            self.quick.learn(given, result)
        return result

    @property
    def axes(self) -> tuple[int, ...]:
        """The result's axes from the outermost in memory to the innermost."""
        return tuple(self.resolved.output.index(label) for label in self.orders[self.resolved.root])

    def native(self, arrays: Sequence[Array]) -> list[Array]:
        """The arrays, those of another dtype or byte order as copies of the planned one."""
        return [
            array if array.dtype == element.numpy and array.dtype.isnative else array.astype(element.numpy)
            for array, element in zip(arrays, self.inputs, strict=True)
        ]

    def flat_plan(self, arrays: Sequence[Array], result: Array | None) -> FlatPlan | None:
        """What a call with arrays of this form does (`flat_plan`), if one has been made and was simple."""
        plan_of = getattr(self.main.executable, "flat_plan", None)
        if plan_of is None or self.memory.pieces:
            return None
        plan: FlatPlan | None = plan_of(arrays, None if result is None else self._in_memory_order(result))
        return plan

    def with_short_cuts(self, given: bool, limit: int | None) -> TreePlan:
        """The plan with short cuts for repeated calls, if it runs as one program on all of its inputs.

        `given`: the caller brings the memory of the result. `limit`: bytes that he allows.
        """
        tree, dtype = self.resolved, self.dtype
        intermediates = sum(tree.volume(one.output) for one in tree.steps[:-1]) * compute_type(dtype).bytes
        made = 0 if given else math.prod(self.shape) * dtype.bytes
        too_much = intermediates + made > (self.peak_bytes + _KEPT_BYTES if limit is None else limit)
        if not hasattr(self.main.executable, "flat_plan") or self.memory.pieces or 0 in self.shape or too_much:
            return self
        strides = fresh_strides(self.shape, dtype.bytes, self.axes)
        large = large_result(self.shape, dtype.numpy, self.axes)
        return replace(self, quick=QuickCalls(self.flat_plan, strides, self.flops, large))

    def _sliced(self, arrays: Sequence[Array], out: Array | None) -> Any:
        values: dict[int, Any] = dict(enumerate(arrays))
        for part in self.first:
            values[part.value] = self._run(part, [values[one] for one in part.operands])
        result = out if out is not None else aligned_empty(self.shape, self.dtype.numpy, f"tree {self.resolved.tree}")
        if self.memory.accumulates:
            self._add_slices(values, result)
        else:
            target = self._in_memory_order(result)
            for piece in self._slices():
                place = target[self._index(self.resolved.root, piece)]
                self._run(self.main, self._views(values, piece), out=place)
        return result if self.shape or out is not None else result[()]

    def _add_slices(self, values: Mapping[int, Any], result: Array) -> None:
        inner = compute_type(self.dtype).numpy
        total = result if result.dtype == inner else aligned_empty(self.shape, inner, "partial sums of slices")
        total[...] = 0
        target = self._in_memory_order(total) if self.shape else total
        for piece in self._slices():
            part = self._run(self.main, self._views(values, piece))
            place = target[self._index(self.resolved.root, piece)] if self.shape else total
            np.add(place, part, out=place)
        if total is not result:
            result[...] = total

    def _slices(self) -> Iterator[Mapping[int, slice]]:
        ranges = [
            [slice(start, min(start + piece, extent)) for start in range(0, extent, piece)]
            for label, piece in self.memory.pieces
            for extent in [self.resolved.sizes[label]]
        ]
        labels = [label for label, _ in self.memory.pieces]
        for chosen in itertools.product(*ranges):
            yield dict(zip(labels, chosen, strict=True))

    def _index(self, value: int, piece: Mapping[int, slice]) -> _Index:
        return tuple(piece.get(label, slice(None)) for label in self.orders[value])

    def _views(self, values: Mapping[int, Any], piece: Mapping[int, slice]) -> list[Any]:
        return [values[one][self._index(one, piece)] if self.orders[one] else values[one] for one in self.main.operands]


def make_plan(
    tree: ResolvedTree,
    inputs: Sequence[ScalarType],
    input_orders: Sequence[Labels],
    dtype: ScalarType,
    device: Device,
    *,
    output_order: Labels | None = None,
    given: bool = False,
    limit: int | None = None,
) -> TreePlan:
    """Decide and compile.

    Args:
        tree: the steps.
        inputs: the inputs' element types.
        input_orders: the indices of each input from the outermost in memory to the innermost.
        dtype: the type to compute in.
        device: where it runs.
        output_order: the order in which the result's dimensions are to lie (default: row-major).
        given: the caller brings the memory of the result.
        limit: bytes for intermediates and result.

    Raises:
        MemoryError: if the limit cannot be met.
        TreeError: for an input, a result or (in slices, where there are some) an intermediate that no array can hold.
        TypeError: if an activation is not defined on the type.
    """
    inner = compute_type(dtype)
    widths = Widths(inner.bytes, dtype.bytes, given)
    _check_arrays(tree, inputs, dtype)
    memory = plan_memory(tree, widths, limit)
    pieces = dict(memory.pieces)
    sizes = tuple(pieces.get(label, extent) for label, extent in enumerate(tree.sizes))
    for step in tree.steps[:-1]:
        _check_shape(tree, "the intermediate", step.output, sizes, inner)
    chosen = choose_orders(tree, input_orders, output_order or tree.output, sizes, inner.bytes)
    orders = (*tree.inputs, *chosen)
    stored = inner if memory.accumulates else dtype

    def part(schedule: Schedule, result: ScalarType) -> CompiledPart:
        program = tree_program(tree, schedule.order, orders, inputs, dtype, result)
        return CompiledPart(
            schedule.order[-1], operands_of(tree, schedule.order), program, executable_of(program, device)
        )

    first = tuple(part(schedule, inner) for _, schedule in memory.first)
    made_from = (tree, tuple(inputs), tuple(input_orders), dtype, device.name, output_order, given, limit)
    main = part(memory.main, stored)
    plan = TreePlan(tree, memory, orders, tuple(inputs), dtype, device, first, main, made_from)
    return plan.with_short_cuts(given, limit)


def _check_arrays(tree: ResolvedTree, inputs: Sequence[ScalarType], dtype: ScalarType) -> None:
    for number, (labels, element) in enumerate(zip(tree.inputs, inputs, strict=True)):
        _check_shape(tree, f"input {number}", labels, tree.sizes, element)
    _check_shape(tree, "the result", tree.output, tree.sizes, dtype)


def _check_shape(tree: ResolvedTree, what: str, labels: Labels, sizes: Sequence[int], element: ScalarType) -> None:
    """Refuse an array of which not even the shape can exist; a TreeError with its name and shape."""
    shape = tuple(sizes[label] for label in labels)
    if not can_exist(shape, element.bytes):
        raise TreeError(
            f"tree {tree.tree}: {what} {tree.text(labels)} of {element} would have the shape {shape}, which no array "
            "can have: its bytes do not fit 64 bits"
        )


def _made(
    tree: ResolvedTree,
    inputs: Sequence[ScalarType],
    input_orders: Sequence[Labels],
    dtype: ScalarType,
    device: str,
    output_order: Labels | None,
    given: bool,
    limit: int | None,
) -> TreePlan:
    return make_plan(
        tree, inputs, input_orders, dtype, device_for(device), output_order=output_order, given=given, limit=limit
    )


def memory_order(array: Array, labels: Labels) -> Labels:
    """The indices of an array from the outermost in memory to the innermost."""
    axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]) if array.shape[axis] > 1 else -math.inf)
    return tuple(labels[axis] for axis in axes)
