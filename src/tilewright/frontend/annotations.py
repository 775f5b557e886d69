"""Types in the annotations of traced programs: `tw.f32["n", "m"]` is an array, `tw.f32` a scalar.

>>> print(f32["n", "2*n", 3], integer_["n"], i64)
f32[n, 2*n, 3] integer_[n] i64
>>> f32["n"].accepts
(f32,)

An annotation object stands for its dtype too: `np.zeros(3, tw.f32)`, `x.astype(tw.f32)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.ir.dataclass import dataclass
from tilewright.ir.lexer import ParseError
from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import SCALAR_TYPES, ScalarType
from tilewright.ir.sizes import Size, size
from tilewright.runtime.messages import value_text


@dataclass(frozen=True)
class Annotation:
    """What a parameter may be: `tw.f64` is a scalar, `tw.f64["n", 3]` an array of n rows of 3 elements.

    A name stands for one size in the whole program, whatever it is in a call; `"2*n + 1"` for one that follows from it.

    Raises:
        TypeError, ValueError: for sizes that are neither numbers nor names, or below 0.

    Example:
        >>> f64["n", 3], f64.dtype, float_.is_generic
        (f64[n, 3], dtype('float64'), True)

    Attributes:
        name: as it is written: f32, float_, ...
        accepts: the element types that are meant; of several, the argument's is taken when the program is called.
        shape: the sizes, () for a scalar.
    """

    name: str
    accepts: tuple[ScalarType, ...]
    shape: tuple[Size, ...] = ()

    def __getitem__(self, shape: Any) -> Annotation:
        if self.shape:
            raise TypeError(f"{self} has its sizes already; write all of them in one pair of brackets")
        extents = shape if isinstance(shape, tuple) else (shape,)
        if not extents:
            raise TypeError(f"{self.name}[()]: an array has at least one dimension; a scalar is {self.name}")
        return replace(self, shape=tuple(_extent(self.name, one) for one in extents))

    @property
    def is_generic(self) -> bool:
        """Whether the element type is the argument's."""
        return len(self.accepts) > 1

    @property
    def scalar(self) -> ScalarType:
        """The element type.

        Raises:
            TypeError: for a generic annotation.
        """
        if self.is_generic:
            raise TypeError(f"{self.name} stands for several types ({', '.join(map(str, self.accepts))}), not for one")
        return self.accepts[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        return self.scalar.numpy

    def __str__(self) -> str:
        return self.name + (f"[{', '.join(map(str, self.shape))}]" if self.shape else "")

    __repr__ = __str__

    def __call__(self, *values: Any) -> Any:
        """Refused: NumPy's types convert what they are called with, these do not."""
        raise TypeError(f"tw.{self.name} is a type and converts nothing: write x.astype(tw.{self.name})")


def _extent(name: str, extent: Any) -> Size:
    """A size: a number, a name, or an expression of names as text."""
    if isinstance(extent, Size):
        return extent
    if isinstance(extent, int | np.integer) and not isinstance(extent, bool):
        if extent < 0:
            raise ValueError(f"{name}[{extent}]: a size is not negative")
        return size(int(extent))
    if not isinstance(extent, str):
        raise TypeError(f"{name}[{extent!r}]: a size is a number or a name such as {name}['n']")
    if extent.isidentifier():
        return size(extent)
    try:
        (parsed,) = parse_program(f"def sizes (x: [{extent}]i64) = (x)").parameters[0].type.shape
        return parsed
    except (ParseError, ValueError) as error:
        raise ValueError(f"{name}[{extent!r}]: {extent!r} is no size; write a name or a polynomial, 2*n + 1") from error


def _of_kinds(name: str, kinds: str) -> Annotation:
    return Annotation(name, tuple(one for one in SCALAR_TYPES.values() if one.kind in kinds))


bool_ = Annotation("bool_", (SCALAR_TYPES["bool"],))
i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, c64, c128 = (
    Annotation(name, (SCALAR_TYPES[name],))
    for name in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "c64", "c128")
)
integer_ = _of_kinds("integer_", "iu")
float_ = _of_kinds("float_", "f")
complex_ = _of_kinds("complex_", "c")
any_ = _of_kinds("any_", "biufc")
array = replace(any_, name="array")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a traced function."""

    name: str
    annotation: Annotation
    keyword_only: bool = False


_OF_PYTHON: dict[Any, str] = {bool: "tw.bool_", int: "tw.i64", float: "tw.f64", complex: "tw.c128"}
"""What is written in place of Python's types."""


def parameters_of(function: Callable[..., Any], around: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """The parameters of a function with their annotations; `around` has the local names where it is defined.

    Raises:
        TypeError: for what is no function, a parameter without an annotation, or with one that is none of ours, and
            for *args and **keywords.
    """
    if not callable(function):
        raise TypeError(f"tw.program needs a function, not {value_text(function)}")
    name = getattr(function, "__name__", repr(function))
    signature = inspect.signature(function)
    annotations = _annotations(function, around)
    found = []
    for one in signature.parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise TypeError(f"program {name}: a program has a fixed number of parameters, not {one}")
        if one.name in ("out", "target"):
            raise TypeError(f"program {name}: no parameter can be called {one.name}, which is an option of every call")
        annotation = annotations.get(one.name)
        if isinstance(annotation, ScalarType):
            annotation = Annotation(annotation.name, (annotation,))
        if not isinstance(annotation, Annotation):
            if one.name in ("self", "cls") and annotation is None:
                raise TypeError(
                    f"program {name}: a program is a function of arrays and scalars, not a method: write it outside of "
                    f"the class, or as a @staticmethod, with what it needs of {one.name} as parameters"
                )
            said = "has no annotation" if annotation is None else f"is annotated with {annotation!r}"
            if isinstance(annotation, type) and annotation in _OF_PYTHON:
                raise TypeError(
                    f"program {name}: parameter {one.name} {said}; write {one.name}: {_OF_PYTHON[annotation]}"
                )
            raise TypeError(
                f"program {name}: parameter {one.name} {said}; write its type, such as {one.name}: tw.f32['n', 'm'] "
                f"for an array, {one.name}: tw.f32 for a scalar, {one.name}: tw.array['n'] for any dtype"
            )
        if annotation.name == "array" and not annotation.shape:
            raise TypeError(f"program {name}: parameter {one.name}: tw.array needs sizes, tw.array['n']")
        found.append(Parameter(one.name, annotation, one.kind is one.KEYWORD_ONLY))
    _check_names(name, found)
    return tuple(found)


def _annotations(function: Callable[..., Any], around: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations; where they are text (`from __future__ import annotations`), what they mean in their place."""
    try:
        return inspect.get_annotations(function, eval_str=True, locals={**around, **_enclosed(function)})
    except (NameError, SyntaxError, AttributeError) as error:
        name = getattr(function, "__name__", repr(function))
        hint = "; names of sizes are text, tw.f64['n']" if isinstance(error, NameError) else ""
        raise TypeError(f"program {name}: an annotation cannot be read: {error}{hint}") from error


def _enclosed(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function takes from functions around it, without what is bound there only later, such as itself."""
    found: dict[str, Any] = {}
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # empty yet
            continue
    return found


def _check_names(name: str, parameters: list[Parameter]) -> None:
    kinds = {one.name: one.annotation for one in parameters}
    for one in parameters:
        for extent in one.annotation.shape:
            for used in sorted(extent.names & kinds.keys()):
                if kinds[used] != i64:
                    raise TypeError(
                        f"program {name}: the size {extent} of parameter {one.name} mentions parameter {used}, which "
                        f"is {kinds[used]}; a size is made of names of sizes and of parameters annotated tw.i64: "
                        "give the size another name"
                    )
