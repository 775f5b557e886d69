"""Arguments of traced programs: what element types they give, and what does not fit a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontend.annotations import Annotation, Parameter
from tilewright.frontend.array_proxy import ArrayProxy
from tilewright.frontend.einsum_arrays import readable
from tilewright.frontend.program_tracing import describe_value
from tilewright.ir.scalars import ScalarType, scalar_type_of
from tilewright.ir.sizes import Size, size
from tilewright.runtime.messages import value_text
from tilewright.runtime.result_arrays import is_masked


def as_array(program: str, parameter: Parameter, argument: Any) -> Any:
    """An argument for an array parameter as a NumPy array.

    Raises:
        TypeError: for what is no array, naming the parameter.
        RuntimeError: for tensors that do not give NumPy their memory, such as those that require a gradient.
    """
    try:
        return _as_array(parameter.annotation, argument)
    except (RuntimeError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else RuntimeError
        raise kind(f"program {program}: parameter {parameter.name}: {error}") from error


def _as_array(annotation: Annotation, argument: Any) -> Any:
    if hasattr(argument, "__dlpack__") and not hasattr(argument, "__array__"):
        return np.from_dlpack(argument)
    if is_masked(argument):
        raise TypeError(
            f"{annotation} does not take a masked array, whose mask would be lost; give its .data, or .filled() with a "
            "value"
        )
    if hasattr(argument, "__array__"):
        return np.asarray(readable(argument))
    raise TypeError(f"{annotation} needs an array, not {value_text(argument)}")


def accepted(
    program: str, parameter: Parameter, argument: Any, preferred: ScalarType | None = None, dtype: bool = False
) -> ScalarType:
    """The element type that an argument (or a dtype) gives a parameter."""
    annotation = parameter.annotation
    if dtype or hasattr(argument, "dtype"):
        try:
            is_class = dtype and isinstance(argument, type)  # of NumPy's scalars, whose `dtype` is a descriptor
            scalar = scalar_type_of(argument if is_class else getattr(argument, "dtype", argument))
        except TypeError as error:
            raise TypeError(f"program {program}: parameter {parameter.name}: {error}") from error
    elif preferred in annotation.accepts and isinstance(argument, bool | int | float | complex):
        order = [bool, int, float, complex].index(type(argument))
        scalar = preferred if order <= "bifc".index(preferred.kind.replace("u", "i")) else scalar_of_number(argument)
    else:
        try:
            scalar = scalar_of_number(argument)
        except TypeError:  # text, None, and integers beyond 64 bits
            raise TypeError(
                f"program {program}: parameter {parameter.name}: {annotation} does not take {value_text(argument)}"
            ) from None
    if scalar not in annotation.accepts:
        raise TypeError(
            f"program {program}: parameter {parameter.name}: {annotation} does not take dtype {scalar}"
            + (_what_it_takes(annotation) if annotation.is_generic else "")
        )
    return scalar


def _what_it_takes(annotation: Annotation) -> str:
    """The end of a message: convert to which types, or annotate how."""
    types = ", ".join(map(str, annotation.accepts))
    every = "array" if annotation.shape else "any_"
    return f" but {types}: convert it, or write tw.{every}, which takes all types, in place of tw.{annotation.name}"


def element_types(program: str, parameters: Sequence[Parameter], arguments: Sequence[Any]) -> tuple[ScalarType, ...]:
    """The element types of a call; plain numbers follow the first generic array where they can."""
    types = [one.annotation.accepts[0] for one in parameters]
    generic = _generic(parameters)
    arrays = [n for n in generic if parameters[n].annotation.shape]
    for n in arrays:
        types[n] = accepted(program, parameters[n], arguments[n])
    preferred = types[arrays[0]] if arrays else None
    for n in generic:
        if n not in arrays:
            types[n] = accepted(program, parameters[n], arguments[n], preferred)
    return tuple(types)


def given_types(program: str, parameters: Sequence[Parameter], dtypes: Sequence[Any]) -> tuple[ScalarType, ...]:
    """The element types that dtypes for each generic parameter give, or for each of all.

    Raises:
        TypeError: for another number of dtypes, and one that a parameter does not take.
    """
    types = [one.annotation.accepts[0] for one in parameters]
    generic = _generic(parameters)
    places = generic if len(dtypes) == len(generic) else list(range(len(parameters)))
    if len(dtypes) != len(places):
        names = ", ".join(parameters[n].name for n in generic) or "none"
        raise TypeError(
            f"program {program}: {len(dtypes)} dtypes; one is needed for each generic parameter ({names}) or for each "
            f"of the {len(parameters)} parameters"
        )
    for n, one in zip(places, dtypes, strict=True):
        types[n] = accepted(program, parameters[n], one, dtype=True)
    return tuple(types)


def _generic(parameters: Sequence[Parameter]) -> list[int]:
    return [n for n, one in enumerate(parameters) if one.annotation.is_generic]


def scalar_of_number(number: Any) -> ScalarType:
    """The type of a Python number: bool, i64, f64, c128."""
    return scalar_type_of(np.asarray(number).dtype)


def check_inner(what: str, annotation: Annotation, argument: Any, sizes: dict[str, Size]) -> None:
    """Whether a traced array fits a parameter; `sizes` collects what the names stand for."""
    if not isinstance(argument, ArrayProxy):
        raise TypeError(f"{what} needs an array, not {describe_value(argument)}")
    type_ = argument.variable.type
    if type_.rank != len(annotation.shape) or type_.element not in annotation.accepts:
        raise TypeError(f"{what} does not take {argument.variable} of type {type_}")
    for expected, extent in zip(annotation.shape, type_.shape, strict=True):
        if len(expected.names) == 1 and expected == size(name := next(iter(expected.names))):
            sizes.setdefault(name, extent)
        known = expected.substitute(sizes)
        if expected.names <= sizes.keys() and known != extent:
            raise TypeError(f"{what} does not take {argument.variable} of type {type_}: {expected} is {known} here")
