"""Numbers that NumPy's functions take in place of arrays, as lists and small arrays of NumPy: arrays of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontend import array_functions
from tilewright.frontend.program_tracing import current, describe_value, is_array, number_type
from tilewright.frontend.scalar_constants import constant
from tilewright.frontend.scalar_tracing import ScalarProxy, common_type

MOST_LISTED = 64
"""A list may have so many elements: each of them is a statement of the program."""


def array_of(what: str, value: Any) -> Any:
    """An array of the program as it is; a list of numbers, or an array of NumPy that is as small, as one.

    Args:
        what: the function and its operand as messages name them, "numpy.interp: xp".
        value: an array, or 1 to `MOST_LISTED` numbers and scalars in lists of equal lengths.

    Raises:
        TypeError: for what is neither, and for more elements.
    """
    found = operand_of(what, value)
    if not is_array(found):
        raise TypeError(f"{what} must be an array or a list of numbers, not {describe_value(value)}")
    return found


def operand_of(what: str, value: Any) -> Any:
    """As `array_of`; a number becomes a scalar of its own type, as it is an array without dimensions in NumPy.

    Raises:
        TypeError: for what is neither, and for more elements.
    """
    if is_array(value) or isinstance(value, ScalarProxy):
        return value
    if isinstance(value, bool | int | float | complex | np.generic):
        return ScalarProxy(constant(value, number_type(value)), current(what))
    if not isinstance(value, list | tuple | np.ndarray):
        raise TypeError(f"{what} must be an array or a list of numbers, not {describe_value(value)}")
    elements, shape = _flat(what, value)
    if not 0 < len(elements) <= MOST_LISTED:
        raise TypeError(
            f"{what} has {len(elements)} constants; 1 to {MOST_LISTED} may be listed in a program: give an array as a "
            "parameter"
        )
    if not shape:
        return operand_of(what, elements[0])
    scalar = common_type([number_type(one) for one in elements])
    vector = array_functions.concat(*(array_functions.replicate(1, one, scalar) for one in elements))
    return vector if len(shape) == 1 else array_functions.reshape(vector, shape)


def _flat(what: str, value: Any) -> tuple[Sequence[Any], tuple[int, ...]]:
    """The elements of lists of lists in C order, and the shape."""
    if isinstance(value, np.ndarray):
        return list(value.ravel()), value.shape
    if not isinstance(value, list | tuple):
        if isinstance(value, bool | int | float | complex | np.generic | ScalarProxy):
            return [value], ()
        raise TypeError(f"{what}: a list has numbers, not {describe_value(value)}")
    rows = [_flat(what, one) for one in value]
    shapes = {shape for _, shape in rows}
    if len(shapes) > 1:
        raise TypeError(f"{what}: the parts of a list have the shapes {', '.join(map(str, sorted(shapes)))}, not one")
    return [one for elements, _ in rows for one in elements], (len(rows), *(shapes.pop() if shapes else ()))
