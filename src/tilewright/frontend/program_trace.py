"""Tracing a Python function: it is run once on proxies, and what it did is a core program."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.frontend.annotations import Parameter
from tilewright.frontend.einsum_parse import ExtentError
from tilewright.frontend.einsum_path import PathError
from tilewright.frontend.program_tracing import Tracer, atom_of, is_ours, tracing, values_of, wrap
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Program, Type, Variable
from tilewright.ir.scalars import I64, ScalarType
from tilewright.ir.sizes import size
from tilewright.ir.verifier import IRError, verify

_PROXIES = {
    "ArrayProxy": "traced array", "ScalarProxy": "traced scalar", "WeakProxy": "traced scalar",
    "IndexProxy": "traced integer", "DecidedTruth": "traced bool",
}  # fmt: skip
_OF_A_PROXY = re.compile(rf"\b({'|'.join(_PROXIES)})\b")
_LOCATED = (TypeError, ValueError, IndexError, OverflowError, AttributeError, ExtentError, PathError)


@dataclass(frozen=True)
class Traced:
    """A core program, and whether the function gives a tuple."""

    program: Program
    several: bool


def result_of(function: Callable[..., Any], parameters: Sequence[Parameter], values: Sequence[Any]) -> Any:
    """The function called with a value for each parameter."""
    pairs = list(zip(parameters, values, strict=True))
    named = {one.name: value for one, value in pairs if one.keyword_only}
    return function(*(value for one, value in pairs if not one.keyword_only), **named)


def trace_function(
    function: Callable[..., Any], parameters: Sequence[Parameter], types: Sequence[ScalarType]
) -> Traced:
    """Run the function on proxies.

    Raises:
        TypeError: and other errors of what the function does, with file and line.
    """
    name = getattr(function, "__name__", "program")
    tracer = Tracer()
    for one in parameters:
        tracer.names.reserve(one.name)
        for extent in one.annotation.shape:
            for used in extent.names:
                tracer.names.reserve(used)
                if extent == size(used):
                    tracer.extents.add(used)
    variables = [
        Variable(one.name, Type(element, one.annotation.shape)) for one, element in zip(parameters, types, strict=True)
    ]
    with tracing(tracer):
        proxies = [tracer.index_proxy(one) if one.type == Type(I64) else wrap(tracer, one) for one in variables]
        try:
            values, several = values_of(result_of(function, parameters, proxies), "the function")
            results = [atom_of(one) for one in values]
        except _LOCATED as error:
            message = _located(error, name)
            if message is None:
                raise
            raise type(error)(message) from error
    traced = tracer.program(name, variables, results)
    try:
        verify(traced)
    except IRError as error:
        if "cannot be solved for" in str(error):
            raise TypeError(
                f"{error}; write it alone as a dimension of some array, or give it as a parameter of type tw.i64"
            ) from error
        raise TypeError(
            f"program {name}: a value computed inside of a function that is given to map, reduce, loop, cond, ... is "
            f"used outside of it; return it from that function instead ({error})"
        ) from error
    return Traced(traced, several)


def _located(error: Exception, name: str) -> str | None:
    """The message with file and line, of an error that this package has raised while it traced, or Python of what
    proxies do not have; None for others.
    """
    if type(error) not in _LOCATED:
        return None
    import traceback  # which no other call needs

    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not (is_ours(frames[-1].filename) or _OF_A_PROXY.search(str(error))):
        return None
    users = [one for one in frames if not is_ours(one.filename)]
    message = _OF_A_PROXY.sub(lambda found: _PROXIES[found.group()], str(error))  # Python says the names of classes
    if not users:
        return f"program {name}: {message}"
    return f"{os.path.basename(users[-1].filename)}:{users[-1].lineno}: in program {name}: {message}"
