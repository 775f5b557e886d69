"""Tensor operations: a loop nest over the dimensions of up to three tensors around one primitive [S1 5.1-5.4, 5.6].

    for every shared dimension, in parallel:
        for every seq dimension, in order:
            first touch    on the block of the output, where no contracted loop has begun
            main           copy, relu, ... (unary) | add, mul, ... (binary) | gemm, brgemm (ternary)
            last touch     on the block of the output, where every contracted loop is at its end

A tensor is flat memory: where an element lies is told by the strides of the dimensions, in elements. A gemm or brgemm
adds to what is in the output, unless the first touch is zero. A brgemm sums over two dimensions K.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.contraction.tensor_primitives import RESULTS, Execution, Primitive, TensorDimension
from tilewright.contraction.tensor_rules import TensorOperationError, check_lengths, check_operation
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import ScalarType, scalar_type_of

if TYPE_CHECKING:
    from tilewright.passes.tensor.compile import CompiledTensorOperation
    from tilewright.runtime.devices import Device

__all__ = ["Execution", "Primitive", "TensorDimension", "TensorOperation", "TensorOperationError"]

_FIELDS = ("dtype", "first_touch", "main", "last_touch", "clamp", "dimensions")
_DIMENSION_FIELDS = ("kind", "execution", "size", "stride_in0", "stride_in1", "stride_out")


@dataclass(frozen=True)
class TensorOperation:
    """What is done to which dimensions, and in which order. Checked when it is made (rules: `tensor_rules`).

    Args:
        dtype: element type of the inputs: f32 or f64; contractions also take c64, c128, f16 and bf16 (summed and stored
            in f32) and i8 (summed and stored in i32).
        main: the primitive, or its name.
        dimensions: `TensorDimension`s, outermost first: shared, then seq, then prim. Without any prim dimension the
            operation is unplaced: `optimise` finds primitives for it.
        first_touch, last_touch: primitives that change a block of the output before the first and after the last main
            primitive works on it; "none", "zero", "relu", ...
        clamp: (lower, upper) of the primitive clamp.

    Example:
        >>> matmul = TensorOperation("f32", "gemm", (
        ...     TensorDimension("M", "prim", 32, 1, 0, 1),
        ...     TensorDimension("N", "prim", 32, 0, 32, 32),
        ...     TensorDimension("K", "prim", 32, 32, 1, 0)), first_touch="zero")
        >>> print(matmul)
        tensor operation on f32
        zero: out[m0 + 32 n0] = 0    for m0 < 32, n0 < 32
        gemm: out[m0 + 32 n0] += in0[m0 + 32 k0] * in1[32 n0 + k0]    for m0 < 32, n0 < 32, k0 < 32

    Raises:
        TensorOperationError: naming every rule that is broken.
        TypeError: if a field has no value of its type.
    """

    dtype: ScalarType
    main: Primitive
    dimensions: tuple[TensorDimension, ...]
    first_touch: Primitive
    last_touch: Primitive
    clamp: tuple[float, float] | None

    def __init__(
        self,
        dtype: ScalarType | str,
        main: Primitive | str,
        dimensions: Sequence[TensorDimension],
        first_touch: Primitive | str = Primitive.NONE,
        last_touch: Primitive | str = Primitive.NONE,
        clamp: tuple[float, float] | None = None,
    ) -> None:
        """Primitives and types may be given by their names."""
        if isinstance(dimensions, TensorDimension) or not isinstance(dimensions, Iterable):
            raise TypeError(f"the dimensions of a tensor operation are {dimensions!r}, not a list of TensorDimensions")
        given = tuple(dimensions)
        for number, one in enumerate(given):
            if not isinstance(one, TensorDimension):
                raise TypeError(f"dimension {number} of a tensor operation is {one!r}, which is no TensorDimension")
        bounds = None if clamp is None else _bounds(clamp)
        for name, value in (
            ("dtype", scalar_type_of(dtype)),
            ("main", Primitive(main)),
            ("dimensions", given),
            ("first_touch", Primitive(first_touch)),
            ("last_touch", Primitive(last_touch)),
            ("clamp", bounds),
        ):
            object.__setattr__(self, name, value)
        check_operation(self)

    @classmethod
    def from_lists(
        cls,
        dtype: ScalarType | str,
        main: Primitive | str,
        dim_types: Sequence[str],
        exec_types: Sequence[str],
        dim_sizes: Sequence[int],
        strides_in0: Sequence[int],
        strides_in1: Sequence[int],
        strides_out: Sequence[int],
        first_touch: Primitive | str = Primitive.NONE,
        last_touch: Primitive | str = Primitive.NONE,
        clamp: tuple[float, float] | None = None,
    ) -> TensorOperation:
        """An operation from one list per property, as in [S1 5.3]; `dim_types` may be a string such as "MNK".

        Raises:
            TensorOperationError: if the lists differ in length, or another rule is broken.

        Example:
            >>> relu = TensorOperation.from_lists(
            ...     "f32", "relu", "CC", ("shared", "prim"), (8, 64), (64, 1), (0, 0), (64, 1))
            >>> relu.extents
            (512, 0, 512)
        """
        lists = {
            "dim_types": dim_types, "exec_types": exec_types, "dim_sizes": dim_sizes, "strides_in0": strides_in0,
            "strides_in1": strides_in1, "strides_out": strides_out,
        }  # fmt: skip
        check_lengths({name: len(values) for name, values in lists.items()})
        dimensions = tuple(TensorDimension(*values) for values in zip(*lists.values(), strict=True))
        return cls(dtype, main, dimensions, first_touch, last_touch, clamp)

    @property
    def out_dtype(self) -> ScalarType:
        """Element type of the output."""
        return RESULTS.get(self.dtype, self.dtype)

    @property
    def is_placed(self) -> bool:
        """Whether some dimension is prim, so that the operation can be compiled."""
        return any(one.execution is Execution.PRIM for one in self.dimensions)

    @property
    def extents(self) -> tuple[int, int, int]:
        """How many elements of in0, in1 and out the operation reaches; 0 for an array that it does not have."""
        reach = [1 + sum((one.size - 1) * one.strides[array] for one in self.dimensions) for array in range(3)]
        used = (self.main is not Primitive.ZERO, self.main.family in ("binary", "ternary"), True)
        return (reach[0] * used[0], reach[1] * used[1], reach[2])

    @property
    def flops(self) -> int:
        """Floating-point operations of the main primitive: two per product of a contraction (eight if complex)."""
        points = math.prod(one.size for one in self.dimensions)
        if self.main.family != "ternary":
            return points
        return points * (8 if self.dtype.is_complex else 2)

    def of_execution(self, execution: Execution) -> tuple[TensorDimension, ...]:
        """The dimensions of one kind of execution, in order."""
        return tuple(one for one in self.dimensions if one.execution is execution)

    def replace(self, **changes: Any) -> TensorOperation:
        """The operation with some fields changed, checked again."""
        return dataclasses.replace(self, **changes)

    def optimise(
        self, min_kernel_size: int | None = None, max_kernel_size: int | None = None, thread_target: int = 1024
    ) -> TensorOperation:
        """The same operation with its dimensions fused, split, given primitives, shared among threads and ordered.

        Args:
            min_kernel_size, max_kernel_size: limits of the primitive's dimensions, 16 and 1024 if only one is given.
                Without limits, sizes are chosen for this computer's CPU.
            thread_target: at most so many blocks are shared among threads.

        See `tensor_rewrites.optimise` with limits and `passes/tensor/placing.py` without; `tensor_rewrites.derive` and
        `tensor_placing.place` also tell each step.

        Raises:
            ValueError: unless 1 <= min_kernel_size <= max_kernel_size and 1 <= thread_target.
            TypeError: unless they are integers.
        """
        from tilewright.contraction.tensor_rewrites import optimise
        from tilewright.passes.tensor.placing import place  # a pass, and so above this folder
        from tilewright.runtime.devices import device_for

        limits = {"min_kernel_size": min_kernel_size, "max_kernel_size": max_kernel_size}
        given = {name: limit for name, limit in limits.items() if limit is not None} | {"thread_target": thread_target}
        for name, value in given.items():
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError(f"{name} of optimise is {value!r}, not an integer")
        if min_kernel_size is None and max_kernel_size is None:
            return place(self, device_for("cpu").machine, thread_target).operation
        least = min(16, max_kernel_size or 16) if min_kernel_size is None else min_kernel_size
        most = max(1024, least) if max_kernel_size is None else max_kernel_size
        return optimise(self, least, most, thread_target)

    def compile(self, target: str | Device | None = None) -> CompiledTensorOperation:
        """Machine code of the operation, as a function `compiled(in0, in1, out)` of arrays.

        Args:
            target: the CPU, by name or as a `Device`; None for the default target, which must be the CPU.

        Raises:
            ValueError: if the operation is unplaced, or the target is no CPU.

        Example:
            >>> import numpy as np
            >>> one = TensorDimension("C", "prim", 4, 1, 0, 1)
            >>> x, y = np.array([-1, 2, -3, 4], np.float32), np.empty(4, np.float32)
            >>> TensorOperation("f32", "relu", (one,)).compile("cpu")(x, None, y).tolist()
            [0.0, 2.0, 0.0, 4.0]
        """
        from tilewright.passes.tensor.compile import compile_operation  # a pass, and so above this folder

        return compile_operation(self, target)

    # --- text ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The operation as JSON text; `from_json` reads it back."""
        import json  # which operations that are only run do without

        return json.dumps(
            {
                "dtype": str(self.dtype),
                "first_touch": self.first_touch.value,
                "main": self.main.value,
                "last_touch": self.last_touch.value,
                "clamp": self.clamp,
                "dimensions": [
                    {"kind": one.kind.value, "execution": one.execution.value}
                    | dict(zip(_DIMENSION_FIELDS[2:], (one.size, *one.strides), strict=True))
                    for one in self.dimensions
                ],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> TensorOperation:
        """The operation that `to_json` wrote.

        Raises:
            ValueError: if the text is not JSON or lacks a field or has one too many.
            TypeError: if it is no text, or a field has no value of its type.
            TensorOperationError: if the operation breaks a rule.
        """
        import json

        if not isinstance(text, str | bytes | bytearray):
            raise TypeError(f"a tensor operation is read from text as to_json gives it, not from {text!r}")

        try:
            found = json.loads(text)
        except RecursionError:
            raise ValueError("the text nests brackets too deeply to be a tensor operation") from None
        except json.JSONDecodeError as error:
            raise ValueError(f"the text of a tensor operation is not JSON: {error}") from None
        content = _fields(found, _FIELDS, "a tensor operation")
        if not isinstance(content["dimensions"], list):
            raise ValueError(f"the dimensions of a tensor operation are {content['dimensions']!r}, not a list")
        dimensions = [
            TensorDimension(**_fields(one, _DIMENSION_FIELDS, f"dimension {number}"))
            for number, one in enumerate(content["dimensions"])
        ]
        bounds = content["clamp"]
        if bounds is not None and not (isinstance(bounds, list) and len(bounds) == 2):
            raise ValueError(f"the bounds of a clamp are {bounds!r}, not two numbers")
        return cls(
            content["dtype"],
            content["main"],
            dimensions,
            content["first_touch"],
            content["last_touch"],
            None if bounds is None else (bounds[0], bounds[1]),
        )

    def __str__(self) -> str:
        """The loop nest."""
        from tilewright.contraction.tensor_printer import print_operation

        return print_operation(self)


def _bounds(clamp: tuple[float, float]) -> tuple[float, float]:
    """The bounds of a clamp as floats; a ValueError or TypeError if they are no two numbers."""
    try:
        lower, upper = clamp
        for bound in (lower, upper):  # a text that float() can read is no number, nor is a truth value
            if isinstance(bound, str | bytes):
                raise ValueError(f"{bound!r} is a text")
            if isinstance(bound, bool | np.bool_):
                raise TypeError(f"{bound!r} is a truth value")
        return float(lower), float(upper)
    except (TypeError, ValueError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"the bounds of a clamp are {clamp!r}, not two numbers: {error}") from None


def _fields(value: object, names: tuple[str, ...], what: str) -> Mapping[str, Any]:
    """A JSON object with exactly these fields."""
    if not isinstance(value, dict) or set(value) != set(names):
        got = (", ".join(map(str, value)) or "none") if isinstance(value, dict) else repr(value)
        raise ValueError(f"{what} has the fields {', '.join(names)}; the text gives {got}")
    return value
