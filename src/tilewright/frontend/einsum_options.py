"""The keyword arguments of `einsum`, and what they mean for a resolved expression."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.einsum_layout import Signature
from tilewright.frontend.einsum_lists import Label
from tilewright.frontend.einsum_parse import BROADCAST, Labels, ResolvedEinsum, expand_ellipsis
from tilewright.frontend.einsum_program import Epilogue, size_name
from tilewright.frontend.scalar_constants import constant
from tilewright.frontend.semiring import Semiring
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import ScalarType, compute_type, scalar_type_of
from tilewright.runtime.devices import Device

_CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")
_ORDERS = ("C", "F", "A", "K")


@dataclass(frozen=True)
class EinsumOptions:
    """The keyword arguments of `einsum`, without arrays.

    `extra_labels` are the labels of the epilogue's operands, None for one that is broadcast as in NumPy.
    """

    dtype: Any = None
    order: str | None = None
    casting: str = "safe"
    optimize: Hashable = True
    semiring: str | Semiring = "plus_times"
    epilogue: Callable[..., Any] | None = None
    extra_labels: tuple[tuple[Label, ...] | None, ...] = ()
    alpha: int | float | complex = 1
    beta: int | float | complex = 0
    target: str | Device | None = None
    tiles: tuple[tuple[Label, Any], ...] = ()


def hashable_tiles(tiles: Mapping[Any, Any] | None) -> tuple[tuple[Any, Any], ...]:
    """Tile sizes by index as a hashable value."""
    if tiles is None:
        return ()
    if not isinstance(tiles, Mapping):
        raise TypeError(f"einsum: tiles must map indices to tile sizes, as {{'i': (8, 4), 'k': 16}}, not {tiles!r}")
    return tuple((label, tuple(one) if isinstance(one, list | tuple) else one) for label, one in tiles.items())


def size_tiles(text: str, resolved: ResolvedEinsum, tiles: Sequence[tuple[Label, Any]]) -> tuple[tuple[str, Any], ...]:
    """Tile sizes by the size names of the core program.

    Raises:
        ValueError: for an index that the expression has not, or sizes that are neither Q nor (T, R).
    """
    numbers = {label: number for number, label in enumerate(resolved.labels)}
    found: list[tuple[str, Any]] = []
    for label, one in tiles:
        if label not in numbers:
            raise ValueError(
                f"einsum {text!r}: tiles names index {label!r}; the indices are {', '.join(map(str, numbers))}"
            )
        pair = isinstance(one, tuple) and len(one) == 2 and all(isinstance(part, int) for part in one)
        if not (pair or isinstance(one, int)):
            raise ValueError(
                f"einsum {text!r}: tiles[{label!r}] is {one!r}; it must be (T, R) for an index of the output, Q for a"
                " contracted one"
            )
        found.append((size_name(numbers[label]), one))
    return tuple(found)


def check_options(options: EinsumOptions) -> None:
    """Refuse values that no operands make right.

    Raises:
        ValueError: naming the argument.
    """
    if options.casting not in _CASTINGS:
        raise ValueError(f"casting must be one of {', '.join(map(repr, _CASTINGS))}, not {options.casting!r}")
    order = options.order
    if order is not None and (not isinstance(order, str) or order.upper() not in _ORDERS):
        raise ValueError(f"order must be None or one of {', '.join(map(repr, _ORDERS))}, not {order!r}")


def supported_type(what: str, dtype: np.dtype[Any]) -> ScalarType:
    """The scalar type of a dtype; raises TypeError that begins with `what` if there is none."""
    try:
        return scalar_type_of(dtype)
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from error


def extra_labels_of(
    text: str, resolved: ResolvedEinsum, extras: Sequence[Signature], given: Sequence[tuple[Label, ...] | None]
) -> list[Labels]:
    """The labels of the epilogue's operands, by name, or by NumPy's broadcasting against the output."""
    numbers = {label: number for number, label in enumerate(resolved.labels)}
    output = resolved.spec.output
    result: list[Labels] = []
    for which, (extra, written) in enumerate(zip(extras, given, strict=True)):
        what = f"einsum {text!r}: epilogue operand {which}"
        supported_type(what, extra.dtype)
        rank = len(extra.shape)
        if written is None:
            if rank > len(output):
                raise ValueError(f"{what} has {rank} dimensions, the result only {len(output)}")
            labels = output[len(output) - rank :]
        else:
            expanded = expand_ellipsis(written, max(0, rank - len(written) + 1))
            if len(expanded) != rank:
                raise ValueError(f"{what} has {rank} dimensions, but {len(expanded)} indices")
            for one in expanded:
                if numbers.get(one) not in output:
                    raise ValueError(f"{what}: {str(one)!r} is no index of the output {resolved.text(output)!r}")
            labels = tuple(numbers[one] for one in expanded)
        for one, extent in zip(labels, extra.shape, strict=True):
            if extent not in (1, resolved.sizes[one]):
                raise ValueError(
                    f"{what}: index {resolved.names[one]!r} has size {extent} there, but {resolved.sizes[one]} in the "
                    "result"
                )
        if written is None and len(set(output)) != len(output) and rank > 0 and extra.shape != resolved.output_shape:
            raise ValueError(f"{what} must have the result's shape {resolved.output_shape}, or named indices")
        result.append(
            tuple(
                BROADCAST if extent == 1 != resolved.sizes[one] else one
                for one, extent in zip(labels, extra.shape, strict=True)
            )
        )
    return result


def _check_epilogue(text: str, epilogue: Any, extras: int) -> None:
    """Raises TypeError for an epilogue that cannot be called as it will be."""
    if not callable(epilogue):
        raise TypeError(f"einsum {text!r}: epilogue must be a function of an element, not {epilogue!r}")
    try:
        signature = inspect.signature(epilogue)
    except ValueError:  # functions of NumPy and others in C may have none
        return
    try:
        signature.bind(*range(1 + extras))
    except TypeError as error:
        name = getattr(epilogue, "__name__", repr(epilogue))
        raise TypeError(
            f"einsum {text!r}: the epilogue {name}{signature} is called with an element of the result and one of each "
            f"of {extras} epilogue operands: {error}"
        ) from error


def epilogue_of(
    text: str,
    options: EinsumOptions,
    semiring: Semiring,
    dtype: np.dtype[Any],
    extras: Sequence[Signature],
    labels: Sequence[Labels],
) -> Epilogue:
    """The epilogue of a program, from the options and the labels that `extra_labels_of` gives.

    Raises:
        ValueError: for operands without an epilogue, and alpha or beta with another semiring than plus_times.
        TypeError: for an epilogue that is no function, an alpha or beta that the dtype does not hold, and an operand
            that cannot become it.
    """
    scalar = compute_type(scalar_type_of(dtype))
    if options.epilogue is not None:
        _check_epilogue(text, options.epilogue, len(extras))
    if extras and options.epilogue is None:
        raise ValueError(f"einsum {text!r}: {len(extras)} epilogue operands, but no epilogue")
    if options.alpha != 1 or options.beta != 0:
        if semiring.name != "plus_times" or scalar.kind == "b":
            raise ValueError(
                f"einsum {text!r}: alpha and beta multiply and add numbers; they do not go with the semiring "
                f"{semiring.name} on {dtype}"
            )
        for name, value in (("alpha", options.alpha), ("beta", options.beta)):
            try:
                constant(value, scalar)
            except (TypeError, OverflowError) as error:
                raise TypeError(f"einsum {text!r}: {name} = {value!r} is no {dtype}: {error}") from error
    for which, one in enumerate(extras):
        if not np.can_cast(one.dtype, scalar.numpy, "same_kind"):
            raise TypeError(
                f"einsum {text!r}: epilogue operand {which} of dtype {one.dtype} cannot become {scalar}, "
                "in which the epilogue is computed"
            )
    return Epilogue(
        options.epilogue,
        tuple(tuple(label for label in one if label != BROADCAST) for one in labels),
        tuple(scalar_type_of(one.dtype) for one in extras),
        None if options.alpha == 1 else constant(options.alpha, scalar),
        options.beta,
    )
