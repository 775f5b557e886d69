"""What `einsum` does with a call that it has not met: reading its arguments, and binding them to a program.

Imported with the compiler, when something has to be compiled.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tilewright.frontend.einsum_arrays import Array, as_array
from tilewright.frontend.einsum_bind import BoundEinsum, bind
from tilewright.frontend.einsum_layout import Signature
from tilewright.frontend.einsum_lists import Label
from tilewright.frontend.einsum_options import EinsumOptions, hashable_tiles
from tilewright.frontend.einsum_parse import ParsedEinsum, parse_interleaved, parse_string, read_term
from tilewright.frontend.einsum_path import hashable_optimize


def epilogue_operands(given: Sequence[Any]) -> tuple[list[Array], tuple[tuple[Label, ...] | None, ...]]:
    """The arrays of an epilogue, and their indices where they are named."""
    if not isinstance(given, Sequence):
        kind = type(given).__name__
        raise TypeError(
            f"epilogue_operands must be a list of arrays or of pairs (array, indices); it is of type {kind}"
        )
    arrays: list[Array] = []
    labels: list[tuple[Label, ...] | None] = []
    for one in given:
        pair = isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], str | list | tuple)
        arrays.append(as_array(one[0] if pair else one, f"einsum: epilogue operand {len(arrays)}"))
        if not pair:
            labels.append(None)
        else:
            labels.append(read_term(one[1], one[1]) if isinstance(one[1], str) else tuple(one[1]))
    return arrays, tuple(labels)


def parsed_expression(expression: Any) -> ParsedEinsum:
    """An expression string, or label lists as `interleaved_key` gives them, parsed."""
    return parse_string(expression) if isinstance(expression, str) else parse_interleaved(*expression)


def bound_call(
    expression: Hashable,
    operand_count: int,
    forms: Sequence[Any],
    out: Any,
    options: dict[str, Any],
    hurried: bool = False,
) -> BoundEinsum:
    """A call bound to its program.

    Args:
        expression: a string, or what `einsum_lists.interleaved` gives.
        operand_count: how many of the arrays are operands; the epilogue's follow.
        forms: dtype, shape and strides of each array.
        out: those of the given result, or None.
        options: the fields of `EinsumOptions`; paths and tiles may be as users write them.
        hurried: contractions of little work get kernels of any shape.
    """
    signatures = [Signature(*one) for one in forms]
    known = options | {
        "optimize": hashable_optimize(options["optimize"]), "tiles": hashable_tiles(options["tiles"]),
    }  # fmt: skip
    return bind(
        parsed_expression(expression),
        signatures[:operand_count],
        signatures[operand_count:],
        None if out is None else Signature(*out),
        EinsumOptions(**known),
        hurried=hurried,
    )
