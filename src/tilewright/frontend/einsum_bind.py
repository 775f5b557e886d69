"""From an expression and what is known of its operands to something that can be called: `bind`.

Everything that can be decided without the data is decided here once: the result's type, shape and memory order, the
contraction path, the views that stand for diagonals and broadcast dimensions, the program, and its executable.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.frontend.contraction_stored import stored_contraction
from tilewright.frontend.einsum_arrays import (
    Array,
    can_exist,
    empty_result,
    fresh_strides,
    held_by,
    large_result,
    row_major_strides,
)
from tilewright.frontend.einsum_layout import PlainView, Signature, output_axes
from tilewright.frontend.einsum_options import EinsumOptions, check_options, epilogue_of, extra_labels_of, size_tiles
from tilewright.frontend.einsum_parse import BROADCAST, EinsumSpec, Labels, ParsedEinsum, ResolvedEinsum, resolve
from tilewright.frontend.einsum_path import Path, contraction_path
from tilewright.frontend.einsum_program import einsum_program
from tilewright.frontend.einsum_quick import QuickCalls, QuickView
from tilewright.frontend.einsum_singles import Squeezed, marked, needless, without
from tilewright.frontend.einsum_types import check_stored, computed_dtype, conversion, is_unaligned
from tilewright.frontend.named_types import type_named
from tilewright.frontend.semiring import semiring_named
from tilewright.ir.cached import remembered
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Program
from tilewright.ir.scalars import scalar_type_of
from tilewright.runtime.cache import HashedOnce, MemoryCache
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.result_arrays import overlaps_itself

if TYPE_CHECKING:  # the compiler is imported when something is compiled
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.flat_plan import FlatPlan
    from tilewright.runtime.stored_program import StoredProgram

_EXECUTABLES: MemoryCache[Hashable, Callable[..., Any]] = MemoryCache(capacity=1024)
_COMPILED: MemoryCache[Hashable, Executable] = MemoryCache(capacity=1024)


@dataclass(frozen=True)
class _Preparation:
    """What is done to an operand before every call."""

    dtype: np.dtype[Any] | None
    view: PlainView | Squeezed | None

    def __call__(self, array: Array) -> Array:
        if self.dtype is not None:
            array = array.astype(self.dtype)
        return array if self.view is None else self.view(array)


@dataclass(frozen=True)
class BoundEinsum:
    """An einsum for operands of fixed dtypes, shapes and strides.

    Attributes:
        resolved: the expression with its sizes.
        path: the order of contraction.
        program: the core program, None if the result is a view of the operand.
        executable: the compiled program; takes operands, then the epilogue's, then a copy of what `out` held (if beta).
        preparations: what is done to each of these first, None where nothing is.
        shape: the result's shape.
        dtype: the result's dtype.
        axes: the result's axes from the outermost in memory to the innermost.
        order: the memory order that was asked for.
        indirect: `out` has foreign bytes or unaligned elements, so that the result is copied into it.
        quick: short cuts for repeated calls; None where there are none.
        copies_out: whether the program takes what `out` held.
        orders: of the indices of each intermediate, outermost first, where they were chosen.
        squeezed: gives of a result what the program writes, where that has fewer dimensions.
    """

    resolved: ResolvedEinsum
    path: Path
    program: Program | None
    executable: Callable[..., Any] | None
    device: Device | None
    preparations: tuple[_Preparation | None, ...] | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    axes: tuple[int, ...]
    order: str
    indirect: bool
    quick: QuickCalls | QuickView | None = field(default=None, repr=False, compare=False)
    copies_out: bool = False
    orders: tuple[Labels, ...] = ()
    squeezed: Squeezed | None = None

    @property
    def takes_as_they_are(self) -> bool:
        """Whether the program reads the memory of all that it is given."""
        return all(one is None or one.dtype is None for one in self.preparations or ())

    def given(self, arrays: Sequence[Array], out: Array | None) -> Sequence[Array]:
        """The operands, and what `out` held: a copy, as the program may read it after it has begun to write."""
        return (*arrays, held_by(out)) if self.copies_out and out is not None else arrays

    def prepared(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """The operands as the program takes them."""
        if self.preparations is None:
            return arrays
        pairs = zip(arrays, self.preparations, strict=True)
        return [array if prepare is None else prepare(array) for array, prepare in pairs]

    def flat_plan(self, arrays: Sequence[Array], result: Array | None) -> FlatPlan | None:
        """What a call with prepared operands and this result (None: a scalar) does, if that is known and simple."""
        plan_of = getattr(self.executable, "flat_plan", None)  # which views and interpreted programs have not
        if plan_of is None:
            return None
        written = result if result is None or self.squeezed is None else self.squeezed(result)
        plan: FlatPlan | None = plan_of(arrays, written)
        return plan

    def run(self, arrays: Sequence[Array], out: Array | None) -> Any:
        """The result for operands (and epilogue operands) of the bound signatures; `out` has been checked."""
        if self.quick is not None:
            for entry in self.quick.entries:
                found = entry(*arrays, out)
                if found is not None:
                    return found
        if self.executable is None:
            assert out is None, "a view is not written"
            return self._view(arrays[0])
        given = self.given(arrays, out)
        arrays = self.prepared(given)
        if not self.shape:
            value = self._computed(arrays)
            if self.quick is not None:
                self.quick.learn(arrays, None, np.empty((), self.dtype), given)
            if out is None:
                return value
            out[...] = value
            return out
        written = None if self.indirect else out
        result = empty_result(self.shape, self.dtype, self.axes) if written is None else written
        if 0 not in self.shape:
            self._computed(arrays, out=result if self.squeezed is None else self.squeezed(result))
            if self.quick is not None:
                self.quick.learn(arrays, result, None, given)
        if out is None:
            return result
        if written is None:
            out[...] = result
        return out

    def _computed(self, arrays: Sequence[Array], **out: Array) -> Any:
        assert self.executable is not None and self.program is not None
        try:
            return self.executable(*arrays, **out)
        except MemoryError as error:
            if type(error) is not MemoryError:  # of a device, which has its own
                raise
            from tilewright.frontend.einsum_too_large import too_large

            raise MemoryError(too_large(self.resolved, self.program, error)) from error

    def _view(self, array: Array) -> Any:
        spec = self.resolved.spec
        view = PlainView(spec.inputs[0], spec.output)(array)
        return view if self.shape else view[()]


_program = lru_cache(maxsize=1024)(einsum_program)


@contextmanager
def _told_depth(indices: int) -> Iterator[None]:
    """Say what allows for more, where Python does not go as deep as so many nested maps."""
    try:
        yield
    except RecursionError as error:
        raise RecursionError(
            f"einsum: {indices} indices make a nest that is too deep for Python's limit of {sys.getrecursionlimit()} "
            "calls in one another; sys.setrecursionlimit allows more, or fewer indices at a time by a path (optimize)"
        ) from error


_hashed = remembered(HashedOnce)


def executable_of(
    program: Program, device: Device, tiles: tuple[tuple[str, Any], ...] = (), hurried: bool = False
) -> Callable[..., Any]:
    """The program, compiled or from the disk; equal programs on one device are compiled once. See `bind`."""

    key = (_hashed(program), device.name, tiles, hurried)

    def compiled() -> Executable:
        from tilewright.runtime.llvm_library import load_ahead

        if device.name == "cpu":
            load_ahead()
        from tilewright.passes.compile import compile_program

        with _told_depth(len(program.size_names)):
            return _COMPILED.get_or_build(
                key, lambda: compile_program(program, device, tiles=dict(tiles), any_shape=hurried)
            )

    def build() -> Executable | StoredProgram:
        return (None if tiles else stored_contraction(program, device, compiled, hurried)) or compiled()

    return _EXECUTABLES.get_or_build(key, build)


def bind(
    parsed: ParsedEinsum,
    operands: Sequence[Signature],
    extras: Sequence[Signature],
    out: Signature | None,
    options: EinsumOptions,
    out_dtype: Any = None,
    hurried: bool = False,
) -> BoundEinsum:
    """Decide everything about an einsum that does not need the data.

    `hurried`: contractions of little work get kernels of any shape (`einsum_hurried`).

    Raises:
        ValueError: for operands, labels, an output, or option values that do not fit, naming them with their sizes.
        TypeError: for dtypes that are not supported or may not be cast, and operations not defined on them.
    """
    check_options(options)
    semiring = semiring_named(options.semiring)
    resolved = resolve(parsed, [one.shape for one in operands])
    text = parsed.text
    dtype, conversions = computed_dtype(text, operands, options, out)
    extra_labels = extra_labels_of(text, resolved, extras, options.extra_labels)
    sizes_out = resolved.output_shape
    check_result(text, sizes_out, dtype, out)
    path = contraction_path(resolved.spec, resolved.sizes, options.optimize, semiring.distributive)
    if 0 in resolved.sizes:
        # Folds over nothing give the neutral element, which must not meet other factors (0 * inf, or an integer that
        # wraps): one nest, in which it is the start value only.
        semiring = replace(semiring, distributive=False)
        path = (tuple(range(len(operands))),)
    order = "any" if options.order is None else options.order.upper()
    axes = output_axes(order, list(zip(operands, resolved.spec.inputs, strict=True)), resolved.spec.output)
    if out_dtype is None and is_view(resolved.spec, operands[0], dtype, out, options, order):
        if options.target is not None:
            device_for(options.target)  # which refuses what is no device, though none is needed
        quick_view = QuickView(operands[0], resolved.spec.inputs[0], resolved.spec.output) if out is None else None
        return BoundEinsum(resolved, path, None, None, None, None, sizes_out, dtype, axes, order, False, quick_view)
    orders: tuple[Labels, ...] = ()
    if len(path) > 1:
        from tilewright.frontend.einsum_orders import orders_between

        orders = orders_between(resolved, path, operands, axes, dtype.itemsize)
    gone = needless(resolved.spec, resolved.sizes, path, semiring.distributive) if not options.tiles else frozenset()
    spec = without(resolved.spec, gone) if gone else resolved.spec
    extra_labels = [marked(one, gone) for one in extra_labels]
    elements = tuple(
        scalar_type_of(one.dtype if new is None else new) for one, new in zip(operands, conversions, strict=True)
    )
    labels = tuple(PlainView(labels).labels for labels in spec.inputs)
    epilogue = epilogue_of(text, options, semiring, dtype, extras, extra_labels)
    written = partial(
        _program, EinsumSpec(labels, spec.output), elements, scalar_type_of(dtype), semiring=semiring, path=path,
        orders=tuple(tuple(one for one in order if one not in gone) for order in orders), epilogue=epilogue,
    )  # fmt: skip
    wanted = None if out is None else out.dtype
    if wanted is None and out_dtype is not None:
        wanted = type_named(out_dtype, f"einsum {text!r}: out_dtype").numpy
    with _told_depth(len(resolved.sizes) - len(gone)):
        program, stored = _storing(text, written, wanted, options.casting)
    device = device_for(options.target)
    if options.tiles and device.name == "cpu":
        _refuse_tiles(text, options)
    hurried = hurried and device.name == "cpu"
    executable = executable_of(program, device, size_tiles(text, resolved, options.tiles), hurried)
    squeezed = Squeezed(resolved.spec.output, gone) if gone.intersection(resolved.spec.output) else None
    preparations = _preparations(extras, spec.inputs, extra_labels, conversions)
    if options.beta and (squeezed is not None or preparations is not None):
        previous = None if squeezed is None else _Preparation(None, squeezed)
        preparations = (*(preparations or (None,) * (len(operands) + len(extras))), previous)
    stored = _canonical(stored)
    indirect = out is not None and (not out.dtype.isnative or is_unaligned(out))
    bound = BoundEinsum(
        resolved, path, program, executable, device, preparations, sizes_out, stored, axes, order, indirect,
        copies_out=bool(options.beta), orders=orders, squeezed=squeezed,
    )  # fmt: skip
    if indirect or not bound.takes_as_they_are:
        return bound
    return replace(bound, quick=_quick_calls(bound))


def _refuse_tiles(text: str, options: EinsumOptions) -> None:
    from tilewright.passes.tiled.tiling import IllegalTiling

    tiled = ", ".join(str(label) for label, _ in options.tiles)
    raise IllegalTiling(
        f"einsum {text!r}: tiles are given for {tiled}, but on a CPU the register tile is not chosen by hand"
    )


def check_result(text: str, shape: tuple[int, ...], dtype: np.dtype[Any], out: Signature | None) -> None:
    """Refuse a result that cannot be, and an `out` that is not for it. ValueError with shapes or strides."""
    if not can_exist(shape, dtype.itemsize):
        raise ValueError(f"einsum {text!r}: the result would have the shape {shape}, which no array can have")
    if out is None:
        return
    if out.shape != shape:
        raise ValueError(f"einsum {text!r}: out has shape {out.shape}, but the result has shape {shape}")
    if overlaps_itself(out):
        raise ValueError(f"einsum {text!r}: elements of out lie on one another in memory (strides {out.strides})")


def _storing(
    text: str, written: Callable[..., Program], wanted: np.dtype[Any] | None, casting: str
) -> tuple[Program, np.dtype[Any]]:
    """The program that stores its result in a wanted dtype, and that dtype; its own if none is wanted."""
    program = written()
    result = program.body.results[0].type.element.numpy  # an epilogue may give another type than is computed in
    stored = result if wanted is None else wanted
    check_stored(text, result, stored, casting)
    return program if stored == result else written(out=scalar_type_of(stored)), stored


def _canonical(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in native byte order, and as the one object that NumPy's own arrays have: short cuts compare these."""
    native = dtype.newbyteorder("=")
    canonical = np.dtype(native.type)
    return canonical if canonical == native else native


def _quick_calls(bound: BoundEinsum) -> QuickCalls | None:
    shape, dtype, axes = bound.shape, bound.dtype, bound.axes
    if 0 in shape or not hasattr(bound.executable, "flat_plan"):
        return None
    large = large_result(shape, dtype, axes)
    points = math.prod(bound.resolved.sizes)
    fresh = fresh_strides(shape, dtype.itemsize, axes)
    return QuickCalls(bound.flat_plan, fresh, points, large, bound.copies_out, bound.copies_out)


def is_view(
    spec: EinsumSpec,
    operand: Signature,
    dtype: np.dtype[Any],
    out: Signature | None,
    options: EinsumOptions,
    order: str,
) -> bool:
    """Whether the result is a view of the one operand, as in NumPy (unless another memory order is asked for)."""
    return (
        len(spec.inputs) == 1
        and out is None
        and options.epilogue is None
        and not options.extra_labels
        and options.alpha == 1
        and not options.beta
        and (operand.dtype if options.dtype is not None else operand.dtype.newbyteorder("=")) == dtype
        and len(set(spec.output)) == len(spec.output)
        and set(spec.output) == set(spec.inputs[0])
        and (order not in "CF" or _lies_as(spec, operand, order))
    )


def _lies_as(spec: EinsumSpec, operand: Signature, order: str) -> bool:
    """Whether the view is in C or F order as it is."""
    probe = np.lib.stride_tricks.as_strided(np.empty((), operand.dtype), operand.shape, operand.strides)
    view = PlainView(spec.inputs[0], spec.output)(probe)
    return bool(view.flags.c_contiguous if order == "C" else view.flags.f_contiguous)


def _preparations(
    extras: Sequence[Signature],
    labels: Sequence[Labels],
    extra_labels: Sequence[Labels],
    conversions: Sequence[np.dtype[Any] | None],
) -> tuple[_Preparation | None, ...] | None:
    prepared = [
        _preparation(new, BROADCAST in mine or len(set(mine)) != len(mine), mine)
        for mine, new in zip(labels, conversions, strict=True)
    ]
    for extra, mine in zip(extras, extra_labels, strict=True):
        prepared.append(_preparation(conversion(extra, extra.dtype), BROADCAST in mine, mine))
    return tuple(prepared) if any(one is not None for one in prepared) else None


def _preparation(dtype: np.dtype[Any] | None, is_viewed: bool, labels: Labels) -> _Preparation | None:
    view = PlainView(labels) if is_viewed else None
    return None if dtype is None and view is None else _Preparation(dtype, view)


def signature_for(dtype: Any, shape: Sequence[int], what: str = "") -> Signature:
    """The signature of a new C-ordered array; `what` it is of begins the errors of `type_named`."""
    element = type_named(dtype, what).numpy
    return Signature(element, tuple(shape), row_major_strides(shape, element.itemsize))
