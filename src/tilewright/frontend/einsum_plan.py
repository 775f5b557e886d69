"""Plans: an einsum compiled ahead of its data, that says what it will do and what that costs.

>>> print(plan("ij,jk,kl->il", (8, 100), (100, 100), (100, 4), dtype="f32").table())  # doctest: +NORMALIZE_WHITESPACE
step  contraction  M      N    K      C  folded  flops   bytes   flop/byte
1     jk,kl->lj    j=100  l=4  k=100  -  -       80.0 k  43.2 k  1.9
2     ij,lj->il    i=8    l=4  j=100  -  -       6.40 k  4.93 k  1.3
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.frontend.einsum_arrays import Array, as_array, as_arrays, can_exist, check_out
from tilewright.frontend.einsum_bind import BoundEinsum, bind, signature_for
from tilewright.frontend.einsum_calls import parsed_expression
from tilewright.frontend.einsum_layout import Signature, signature_of
from tilewright.frontend.einsum_lists import Label, interleaved_key
from tilewright.frontend.einsum_options import EinsumOptions, hashable_tiles
from tilewright.frontend.einsum_parse import Labels, read_term
from tilewright.frontend.einsum_path import Step, hashable_optimize, steps_of
from tilewright.frontend.einsum_program import size_name
from tilewright.frontend.semiring import Semiring, semiring_named
from tilewright.frontend.torch_tensors import are_there, on_arrays
from tilewright.ir.cached import cached_property
from tilewright.ir.dataclass import dataclass
from tilewright.runtime.devices import Device
from tilewright.runtime.result_arrays import check_is_array, overlaps_itself


@dataclass(frozen=True)
class StepCost:
    """One contraction of a plan.

    Attributes:
        contraction: the step as an expression, in the user's letters.
        kinds: the labels that are only in the left operand and the result (M), only in the right one and the result
            (N), contracted (K), in both and the result (C), and folded in one operand before they meet.
        flops: operations of map and combine, counted once per point of the iteration space.
        bytes: of operands and result, each counted once.
    """

    contraction: str
    kinds: dict[str, Labels]
    flops: int
    bytes: int

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True, repr=False)
class EinsumPlan:
    """A compiled einsum, which `plan` makes: call it with arrays of the planned dtypes and shapes (any strides).

    Example:
        >>> from tilewright.frontend.einsum_plan import plan
        >>> product = plan("ij,jk->ik", (2, 3), (3, 4))
        >>> product(np.ones((2, 3)), np.ones((3, 4))).tolist()
        [[3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 3.0, 3.0]]
        >>> product.shape, product.flops
        ((2, 4), 48)

    Attributes:
        expression: in the user's letters.
        steps: what each step of the path does and costs.
        bound: everything that was decided, the core program and its executable among it.
    """

    expression: str
    steps: tuple[StepCost, ...]
    bound: BoundEinsum
    inputs: tuple[Signature, ...]
    operand_count: int
    beta: bool
    tiles: tuple[tuple[str, Any], ...]
    made_from: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what was asked for: it is planned anew, for the device of that name, where it is read."""
        return _made, self.made_from

    def __call__(self, *operands: Any, out: Array | None = None) -> Any:
        """The result for operands, then the epilogue's operands; written into `out` if that is given.

        Raises:
            ValueError, TypeError: if they are not of the planned shapes and dtypes.
        """
        if out is not None and self.bound.executable is None:
            return self.copying(*operands, out=out)
        if self.bound.quick is not None:
            for entry in self.bound.quick.entries:
                found = entry(*operands, out)
                if found is not None:
                    return found
        if are_there(operands, out):
            return on_arrays(self, f"plan {self.expression!r}: operand", operands, out)
        arrays = as_arrays(operands, f"plan {self.expression!r}")
        if len(arrays) != len(self.inputs):
            raise ValueError(f"plan {self.expression!r} takes {len(self.inputs)} arrays, not {len(arrays)}")
        for number, (array, planned) in enumerate(zip(arrays, self.inputs, strict=True)):
            if array.dtype != planned.dtype:
                raise TypeError(f"{self._what(number)} has dtype {array.dtype}, planned was {planned.dtype}")
            if array.shape != planned.shape:
                raise ValueError(f"{self._what(number)} has shape {array.shape}, planned was {planned.shape}")
        if out is None:
            if self.beta:
                raise ValueError(f"plan {self.expression!r}: beta needs out, whose elements it multiplies")
            return self.bound.run(arrays, None)
        check_is_array(out, f"plan {self.expression!r}")
        if overlaps_itself(out):
            raise ValueError(
                f"plan {self.expression!r}: elements of out lie on one another in memory (strides {out.strides})"
            )
        if out.dtype != self.bound.dtype:
            raise TypeError(f"plan {self.expression!r}: out has dtype {out.dtype}, the result {self.bound.dtype}")
        if out.shape != self.bound.shape:
            raise ValueError(f"plan {self.expression!r}: out has shape {out.shape}, the result {self.bound.shape}")
        check_out(out, arrays, self.operand_count)
        return self.bound.run(arrays, out)

    @cached_property
    def copying(self) -> EinsumPlan:
        """The same, compiled to write into `out`, where the result is a view of the operand without one."""
        expression, operands, extras, options, out_dtype = self.made_from
        out = signature_for(self.dtype, self.shape)
        return _made(expression, operands, extras, options, out_dtype, out)

    def _what(self, number: int) -> str:
        return f"plan {self.expression!r}: {_operand_name(number, self.operand_count)}"

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return self.bound.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The result's dtype."""
        return self.bound.dtype

    @property
    def flops(self) -> int:
        """Operations of all steps, additions and multiplications by themselves."""
        return sum(one.flops for one in self.steps)

    def explain(self) -> str:
        """How each statement of the program was compiled, with the reasons for what was not done.

        Contractions are explained as `tilewright explain` does: their dimensions after fusion, the bound that memory
        and arithmetic set, tiles, occupancy and memory of the chosen form, and why each missing optimisation is.
        """
        from tilewright.contraction.form import Contraction  # not needed to make a plan and to call it
        from tilewright.passes.pipelines import run_pipeline
        from tilewright.report.contractions import contractions_of
        from tilewright.report.explain import explain_contraction

        bound = self.bound
        if bound.executable is None or bound.program is None or bound.device is None:
            return "a view of the operand; nothing runs but for an out, into which it is copied"
        resolved = bound.resolved
        known = {size_name(label): extent for label, extent in enumerate(resolved.sizes)}
        letters = {size_name(label): name for label, name in enumerate(resolved.names)}
        parts = [_in_letters(bound.executable.explain(), letters, known)]  # type: ignore[attr-defined]
        machine = bound.device.machine
        if 0 not in resolved.sizes:
            products = not machine.is_gpu_like
            for one in contractions_of(run_pipeline(bound.program), known, letters, products)[1]:
                if isinstance(one, Contraction):
                    names = {d.name for d in one.dimensions}
                    tiles = {name: sizes for name, sizes in self.tiles if name in names}
                    parts.append(str(explain_contraction(one, machine, tiles)))
        return "\n\n".join(parts)

    def table(self) -> str:
        """The steps with their dimensions and costs, as text."""
        resolved = self.bound.resolved
        rows: list[tuple[str, ...]] = [("step", "contraction", *_KINDS, "flops", "bytes", "flop/byte")]
        for number, one in enumerate(self.steps, start=1):
            kinds = (
                " ".join(f"{resolved.names[label]}={resolved.sizes[label]}" for label in one.kinds[kind]) or "-"
                for kind in _KINDS
            )
            costs = (_amount(one.flops), _amount(one.bytes), f"{one.intensity:.1f}")
            rows.append((str(number), one.contraction, *kinds, *costs))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        where = "" if self.bound.device is None else f" on {self.bound.device}"
        head = f"EinsumPlan {self.expression}  {self.bound.dtype}{list(self.bound.shape)}{where}"
        return "\n".join([head, self.table(), self.explain()])


_KINDS = ("M", "N", "K", "C", "folded")
_DIMENSION = re.compile(r"\b(\w+):([CMNK])\[\1\]")


def _in_letters(text: str, letters: Mapping[str, str], sizes: Mapping[str, int]) -> str:
    """How statements were compiled, whose dimensions have the names of sizes of a program, in the user's letters."""

    def dimension(found: re.Match[str]) -> str:
        name, kind = found.groups()
        return f"{letters[name]}:{kind}[{sizes[name]}]" if name in letters else found[0]

    return _DIMENSION.sub(dimension, text)


def _operand_name(number: int, operand_count: int) -> str:
    return f"operand {number}" if number < operand_count else f"epilogue operand {number - operand_count}"


def _amount(value: float) -> str:
    """A number with three digits and a prefix: 1.23 M."""
    if value < 1000:
        return str(int(value))
    exponent = min(int(math.log10(value)) // 3, 5)
    return f"{value / 1000**exponent:#.3g}".rstrip(".") + " " + " kMGTP"[exponent]


def plan(
    expression: Any,
    *operands: Any,
    dtype: Any = "f64",
    out_dtype: Any = None,
    compute_dtype: Any = None,
    order: str | None = None,
    casting: str = "safe",
    optimize: Any = True,
    semiring: str | Semiring = "plus_times",
    epilogue: Callable[..., Any] | None = None,
    epilogue_operands: Sequence[Any] = (),
    alpha: int | float | complex = 1,
    beta: int | float | complex = 0,
    target: str | Device | None = None,
    tiles: Mapping[Any, Any] | None = None,
) -> EinsumPlan:
    """Compile an einsum for operands of given shapes.

    Args:
        expression: as for `einsum`, or a list of label lists with the output's last.
        *operands: for each operand its shape, a tuple (`(3,)` of a vector, `()` of a number), or an array whose shape
            and dtype are meant.
        dtype: the dtype of operands that are given as shapes; one for all or a list. A dtype of NumPy or one of this
            package's names ("f32", "bf16"); "i8" and "u8" are refused as by `einsum`, which are eight bytes
            in NumPy and eight bits as `tw.i8` and `tw.u8`: write "int8" or "int64".
        out_dtype: the dtype of the result, if not the computed one.
        compute_dtype: `dtype` of `einsum`.
        order, casting, optimize, semiring, epilogue, epilogue_operands, alpha, beta, target, tiles: as for
            `einsum`; the epilogue's operands may be shapes too.

    Returns:
        A callable whose `repr` tells its steps, sizes, costs and how each was compiled.

    Raises:
        ValueError, TypeError: as `einsum` does.

    Example:
        >>> import numpy as np
        >>> product = plan("ij,jk->ik", (2, 3), (3, 4))
        >>> product.flops
        48
    """
    key: Hashable = expression if isinstance(expression, str) else _label_lists(expression)
    types = dtype if isinstance(dtype, list | tuple) else [dtype] * len(operands)
    if len(types) != len(operands):
        raise ValueError(f"plan {expression!r}: {len(types)} dtypes for {len(operands)} operands")
    signatures = [
        _signature(one, type_, f"plan {expression!r}: operand {number}")
        for number, (one, type_) in enumerate(zip(operands, types, strict=True))
    ]
    extras, labels = _extras(epilogue_operands, types[0] if types else "f64")
    options = EinsumOptions(
        compute_dtype, order, casting, hashable_optimize(optimize), semiring, epilogue, labels, alpha, beta, target,
        hashable_tiles(tiles),
    )  # fmt: skip
    return _made(key, tuple(signatures), tuple(extras), options, out_dtype)


def _made(
    expression: Hashable,
    operands: tuple[Signature, ...],
    extras: tuple[Signature, ...],
    options: EinsumOptions,
    out_dtype: Any,
    out: Signature | None = None,
) -> EinsumPlan:
    bound = bind(parsed_expression(expression), operands, extras, out, options, out_dtype=out_dtype)
    resolved = bound.resolved
    named = options if bound.device is None else replace(options, target=bound.device.name)
    return EinsumPlan(
        resolved.expression,
        _costs(bound, operands, semiring_named(options.semiring)),
        bound,
        (*operands, *extras),
        len(operands),
        bool(options.beta),
        tuple((resolved.names[resolved.labels.index(label)], one) for label, one in options.tiles),
        (expression, operands, extras, named, out_dtype),
    )


def _label_lists(expression: Any) -> Hashable:
    lists = list(expression)
    interleaved = [part for labels in lists[:-1] for part in (None, labels)]
    return interleaved_key([*interleaved, lists[-1]])


def _signature(operand: Any, dtype: Any, which: str) -> Signature:
    """That of an operand, which is given as an array or by its shape. TypeError, naming it, if it is neither."""
    if isinstance(operand, int | np.integer) and not isinstance(operand, bool):  # a size more often than an operand
        raise TypeError(
            f"{which} is {operand}; a shape is a tuple, ({operand},) of a vector and () of a number, whose value a "
            "plan does not need"
        )
    if isinstance(operand, tuple | list) and all(isinstance(one, int | np.integer) for one in operand):
        signature = signature_for(dtype, [int(one) for one in operand], which)
        if not can_exist(signature.shape, signature.dtype.itemsize):
            raise ValueError(f"{which} has the shape {signature.shape}, which no array can have")
        return signature
    if isinstance(operand, tuple):
        raise TypeError(f"{which} has the shape {operand!r}, whose sizes are not all integers")
    return signature_of(as_array(operand, which))


def _extras(given: Sequence[Any], dtype: Any) -> tuple[list[Signature], tuple[tuple[Label, ...] | None, ...]]:
    signatures: list[Signature] = []
    labels: list[tuple[Label, ...] | None] = []
    for one in given:
        pair = isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], str | list | tuple)
        which = f"plan: epilogue operand {len(signatures)}"
        signatures.append(_signature(one[0] if pair else one, dtype, which))
        text = one[1] if pair else None
        labels.append(read_term(text, text) if isinstance(text, str) else None if text is None else tuple(text))
    return signatures, tuple(labels)


def _costs(bound: BoundEinsum, operands: Sequence[Signature], semiring: Semiring) -> tuple[StepCost, ...]:
    resolved = bound.resolved
    if bound.executable is None:
        return ()
    widths = [one.dtype.itemsize for one in operands]
    costs: list[StepCost] = []
    for step in steps_of(resolved.spec, bound.path, semiring.distributive, bound.orders):
        volumes = [_volume(resolved.sizes, labels) for labels in (*step.inputs, step.output)]
        inner = [widths[position] for position in step.positions]
        widths = [one for position, one in enumerate(widths) if position not in step.positions]
        widths.append(bound.dtype.itemsize)
        moved = sum(count * width for count, width in zip(volumes, [*inner, widths[-1]], strict=True))
        text = ",".join(map(resolved.text, step.inputs)) + "->" + resolved.text(step.output)
        costs.append(StepCost(text, _kinds(step), _flops(step, resolved.sizes), moved))
    return tuple(costs)


def _volume(sizes: Sequence[int], labels: Labels) -> int:
    return math.prod(sizes[label] for label in labels)


def _flops(step: Step, sizes: Sequence[int]) -> int:
    maps = len(step.inputs) - 1
    points = _volume(sizes, (*step.output, *step.contracted))
    early = sum(_volume(sizes, labels) for labels, gone in zip(step.inputs, step.summed, strict=True) if gone)
    return points * (maps + bool(step.contracted)) + early


def _kinds(step: Step) -> dict[str, Labels]:
    left, right = set(step.inputs[0]), {label for labels in step.inputs[1:] for label in labels}
    return {
        "M": tuple(one for one in step.output if one in left and one not in right),
        "N": tuple(one for one in step.output if one in right and one not in left),
        "K": step.contracted,
        "C": tuple(one for one in step.output if one in left and one in right),
        "folded": tuple(one for labels in step.summed for one in labels),
    }
