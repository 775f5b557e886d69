"""Which dtype an einsum computes in, and what of its operands and its result may be cast.

>>> computed_dtype("i,i->i", [Signature(np.dtype(one), (3,), (8,)) for one in ("f4", "i4")], EinsumOptions(), None)[0]
dtype('float64')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontend.einsum_layout import Signature
from tilewright.frontend.einsum_options import EinsumOptions, supported_type
from tilewright.frontend.named_types import type_named
from tilewright.ir.scalars import scalar_type_of


def computed_dtype(
    text: str, operands: Sequence[Signature], options: EinsumOptions, out: Signature | None
) -> tuple[np.dtype[Any], list[np.dtype[Any] | None]]:
    """The dtype that is computed in, and for each operand the one to convert it to beforehand, if any.

    As in NumPy, an `out` takes part: sums of small integers into a wider one do not wrap around. Not so with an
    epilogue, whose result `out` holds.

    Raises:
        TypeError: for a dtype that is not supported, that operands may not be cast to, and for none in which they meet.
        ValueError: for a name whose meaning is not NumPy's.
    """
    if options.dtype is not None:
        dtype = type_named(options.dtype, f"einsum {text!r}").numpy
    else:
        meeting = [(f"operand {number}", one.dtype) for number, one in enumerate(operands)]
        if out is not None and options.epilogue is None:
            meeting.append(("out", out.dtype))
        for what, one in meeting:
            supported_type(f"einsum {text!r}: {what}", one)
        dtype = met_dtype(f"einsum {text!r}", meeting).newbyteorder("=")
        supported_type(f"einsum {text!r}: the result", dtype)
    conversions: list[np.dtype[Any] | None] = []
    for number, operand in enumerate(operands):
        if not np.can_cast(operand.dtype, dtype, options.casting):  # type: ignore[arg-type]
            wider = [one for one in ("safe", "same_kind", "unsafe") if np.can_cast(operand.dtype, dtype, one)]
            raise TypeError(
                f"einsum {text!r}: operand {number} of dtype {operand.dtype} may not be cast to {dtype} "
                f"by the rule {options.casting!r}; casting={' or '.join(map(repr, wider))} allows it"
            )
        conversions.append(conversion(operand, dtype))
    return dtype, conversions


def met_dtype(what: str, meeting: Sequence[tuple[str, np.dtype[Any]]]) -> np.dtype[Any]:
    """The dtype in which arrays meet, as NumPy has it; `meeting` has what each one is called, and its dtype.

    Raises:
        TypeError: where there is none, as for bf16 and f16, naming two that do not meet, and what to write.
    """
    dtypes = [one for _, one in meeting]
    try:
        return np.result_type(*dtypes)
    except np.exceptions.DTypePromotionError as error:
        first, second = _apart(meeting)
        wide = [one for one in ("f4", "f8", "c16") if all(np.can_cast(each, one) for each in dtypes)]
        instead = f"dtype={wide[0]!r}, to which all of them may be cast" if wide else "a dtype to compute in, dtype="
        raise TypeError(
            f"{what}: {first[0]} of dtype {first[1]} and {second[0]} of dtype {second[1]} have no dtype in common in "
            f"NumPy; give {instead}"
        ) from error


def _apart(meeting: Sequence[tuple[str, np.dtype[Any]]]) -> tuple[tuple[str, np.dtype[Any]], ...]:
    """Two whose dtypes do not meet."""
    for number, second in enumerate(meeting):
        for first in meeting[:number]:
            try:
                np.result_type(first[1], second[1])
            except np.exceptions.DTypePromotionError:
                return first, second
    return meeting[0], meeting[-1]  # only all of them together have none


def check_stored(text: str, result: np.dtype[Any], stored: np.dtype[Any], casting: str) -> None:
    """Refuse to store a result in a dtype that it may not be cast to. TypeError with both."""
    if not np.can_cast(result, stored, casting):  # type: ignore[arg-type]
        raise TypeError(
            f"einsum {text!r}: the result has dtype {result}, which may not be cast to out's dtype {stored} "
            f"by the rule {casting!r}"
        )


def conversion(operand: Signature, dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The dtype to convert an operand to before a call: where the language has not its dtype, or it lies unaligned."""
    try:
        native = scalar_type_of(operand.dtype).numpy
    except TypeError:
        return dtype
    return native if is_unaligned(operand) or not operand.dtype.isnative else None


def is_unaligned(array: Signature) -> bool:
    """Whether elements lie where no element of an aligned array would."""
    return any(stride % array.dtype.itemsize for stride in array.strides)
