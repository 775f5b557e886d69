"""Tracing Python functions of arrays: what stands for arrays and indices, and how functions become lambdas.

While a program is traced, a `Tracer` (the builder that statements go to) is current. An `ArrayProxy` stands for an
array variable; scalars are the proxies of `scalar_tracing`. An `IndexProxy` stands for an i64 that sizes are made of
(`x.shape[0]`, a loop's index, an i64 parameter, an element of an iota): its sums and products are kept as size
polynomials, so that `x[i : i + 3]` is known to have 3 elements.
"""

from __future__ import annotations

import inspect
import operator as operators
import os
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

import tilewright
from tilewright.frontend.decided_truth import DecidedTruth, plain
from tilewright.frontend.scalar_constants import constant
from tilewright.frontend.scalar_tracing import ScalarProxy, common_type, convert, foreign
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Atom, Body, Lambda, Type, Variable, atom_size
from tilewright.ir.scalars import BOOL, C128, F64, I64, ScalarType, scalar_type_of
from tilewright.ir.sizes import Size, SizeFunction, exact_quotient, size, size_function
from tilewright.ir.traversal import bound_variables
from tilewright.runtime.messages import value_text

_NOT_USERS = (os.path.dirname(tilewright.__file__), os.path.dirname(np.__file__))  # NumPy hands its functions to us
_CURRENT: ContextVar[Tracer | None] = ContextVar("tilewright_tracer", default=None)
_RING: dict[str, Callable[[Size, Size], Size]] = {"add": Size.__add__, "sub": Size.__sub__, "mul": Size.__mul__}
_POLYNOMIAL = {*_RING, "neg", "min", "max", "floordiv", "mod"}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    name: getattr(operators, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_QUOTIENTS = ("floordiv", "mod")
_FLAT: dict[type, str] = {
    **dict.fromkeys((tuple, list), ": tuples of tuples do not exist here; give one of all values, `a, b, c`"),
    dict: ": give a tuple of its values, and make the dict of what the call returns",
}
_LARGEST_COEFFICIENT = 2**31
_LARGEST_COUNT = 2**63 - 1
_LARGEST_DEGREE = 4


class Tracer(Builder):
    """The builder of the program that is being traced.

    Attributes:
        indices: i64 variables by name that `IndexProxy`s are made of.
        counters: the names of those that count from 0, as the indices of loops; sizes and parameters do not.
        extents: the names that are sizes of arguments.
        origins: for messages, which construct at which line has given each variable.
        written: for messages, elements of arrays as the user has written them.
        parts_of: for messages, of which array and which of its dimensions a variable is that the user has no name for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.indices: dict[str, Variable] = {}
        self.counters: set[str] = set()
        self.extents: set[str] = set()
        self.origins: dict[str, str] = {}
        self.written: dict[str, str] = {}
        self.parts_of: dict[str, tuple[str, tuple[int, ...]]] = {}

    def index_proxy(self, variable: Variable, weak: bool = False) -> IndexProxy:
        """The proxy of an i64 variable that sizes may be made of."""
        self.indices[variable.name] = variable
        return IndexProxy(size(variable.name), self, weak)

    def counter_proxy(self, variable: Variable, weak: bool = False) -> IndexProxy:
        """The `index_proxy` of a variable that counts from 0."""
        self.counters.add(variable.name)
        return self.index_proxy(variable, weak)

    def may_wrap(self, extent: Size) -> bool:
        """Whether a polynomial may be beyond i64: one of parameters may, while sizes and counters are far from that."""
        safe = self.counters | self.extents
        return any(name in self.indices and name not in safe for name in extent.names)

    def describe(self, variable: Variable) -> str:
        """An array as messages name it."""
        origin = self.origins.get(variable.name)
        return f"{variable} ({origin})" if origin else str(variable)


@contextmanager
def tracing(tracer: Tracer) -> Iterator[Tracer]:
    """Make a tracer the current one."""
    token = _CURRENT.set(tracer)
    try:
        yield tracer
    finally:
        _CURRENT.reset(token)


active_tracer: Callable[[], Tracer | None] = _CURRENT.get
"""The current tracer, if a program is being traced."""


def current(what: str) -> Tracer:
    """The current tracer.

    Raises:
        TypeError: if no program is being traced.
    """
    tracer = _CURRENT.get()
    if tracer is None:
        raise TypeError(f"tw.{what} has a meaning only while a function decorated with @tw.program is traced")
    return tracer


def is_ours(filename: str) -> bool:
    """Whether a source file is one of this package, or of NumPy, whose functions call it."""
    return filename.startswith(_NOT_USERS)


def user_location() -> str:
    """file:line of the innermost caller outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


# --- indices ----------------------------------------------------------------------------------------------------------


class IndexProxy(ScalarProxy):
    """An i64 scalar that is known as a size.

    Sizes of arrays and indices of loops are weak, as they are Python numbers in NumPy programs: an f32 times
    `x.shape[0]` is an f32. Of a slice that may end before it begins the extent is below 0 then, while as a scalar its
    size is 0 (`value`).
    """

    __slots__ = ("extent", "value", "weak")
    builder: Tracer

    def __init__(self, extent: Size, tracer: Tracer, weak: bool = False, value: Size | None = None) -> None:
        self.extent = extent
        self.value = extent if value is None else value
        self.builder = tracer
        self.weak = weak

    @property
    def atom(self) -> Atom:  # type: ignore[override]  # made when it is needed
        """The scalar; a statement that computes it is written now unless it is a variable or a constant."""
        variable = self.builder.indices.get(str(self.value))
        return variable if variable is not None else self.builder.size_value(self.value)

    @property
    def scalar(self) -> ScalarType:
        """i64."""
        return I64

    def __tilewright_apply__(self, operator: str, operands: Sequence[Any]) -> Any:
        sizes = [one for one in map(_as_size, operands) if one is not None]
        if len(sizes) == len(operands):
            tracer = self.builder
            weak = all(isinstance(one, int) or (isinstance(one, IndexProxy) and one.weak) for one in operands)
            if operator in _POLYNOMIAL and (result := _size_operation(operator, sizes, tracer.counters)) is not None:
                if operator in _QUOTIENTS and _differs(tracer, operator, sizes, result):
                    atom = super().__tilewright_apply__(operator, operands).atom
                    if isinstance(atom, Variable):
                        tracer.indices[atom.name] = atom
                    return IndexProxy(result, tracer, weak, atom_size(atom))
                values = [one.value if isinstance(one, IndexProxy) else size(int(one)) for one in operands]
                if values == sizes:
                    return IndexProxy(result, tracer, weak)
                if (value := _size_operation(operator, values, tracer.counters)) is not None:
                    return IndexProxy(result, tracer, weak, value)
            if operator in _COMPARISONS and _can_be_decided(tracer, operator, operands, sizes):
                known = _COMPARISONS[operator]((sizes[0] - sizes[1]).constant or 0, 0)  # Python's `if` may go by it
                return DecidedTruth(known if weak else np.bool_(known), tracer)
        return super().__tilewright_apply__(operator, operands)

    def __index__(self) -> int:
        if self.extent.constant is None:
            raise TypeError(
                f"the value of {self.extent} is not known while the function is traced, so range() and other functions "
                "of Python and NumPy cannot have it; use tw.loop, tw.map over tw.iota, or tw.replicate"
            )
        return self.extent.constant

    def __repr__(self) -> str:
        return f"<integer {self.extent}>"


def _as_size(value: Any) -> Size | None:
    if isinstance(value, IndexProxy):
        return value.extent
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return size(int(value)) if whole else None


def _size_operation(operator: str, sizes: Sequence[Size], counters: Set[str]) -> Size | None:
    """The size that an operator gives on sizes; None where it is better left to i64 arithmetic."""
    if operator == "neg":
        result = -sizes[0]
    elif operator in _RING:
        result = _RING[operator](*sizes)
    else:
        # Sizes are undefined for divisors of zero, scalars are not: only where the divisor is surely positive, or one
        # by which sizes are divided; a counter is 0 in its first round.
        divides = operator in ("floordiv", "mod") and not (sizes[1].constant or 0) > 0
        if divides and (exact_quotient(*sizes) is None or (operator == "floordiv" and sizes[1].names & counters)):
            return None
        result = size_function(operator, *sizes)
    # Polynomials do not wrap around; what grows large (a hash, say) is i64 arithmetic, which does.
    small = all(abs(factor) < _LARGEST_COEFFICIENT and len(names) <= _LARGEST_DEGREE for names, factor in result.terms)
    return result if small else None


def _differs(tracer: Tracer, operator: str, sizes: Sequence[Size], result: Size) -> bool:
    """Whether a quotient or remainder that polynomials have made simpler could be another number as i64 arithmetic: by
    0, by which sizes are not divided, and of sums and products of parameters that wrap around.
    """
    if result == Size((((SizeFunction(operator, *sizes),), 1),)):
        return False
    return sizes[1].constant is None or tracer.may_wrap(sizes[0])


def _can_be_decided(tracer: Tracer, operator: str, operands: Sequence[Any], sizes: Sequence[Size]) -> bool:
    """Whether a comparison has one result for all sizes and parameters: also for those at the ends of i64."""
    apart = (sizes[0] - sizes[1]).constant
    if apart is None or any(
        isinstance(one, IndexProxy) and not one.weak and one.value != one.extent for one in operands
    ):
        return False
    return apart == 0 or operator in ("eq", "ne") or not any(map(tracer.may_wrap, sizes))


def size_of(value: Any, what: str) -> Size:
    """A count or an extent given as a number or an integer proxy.

    Raises:
        TypeError: for anything else.
        ValueError: for a negative number, and one beyond i64.
    """
    known = _as_size(value)
    if known is not None:
        if known.constant is not None and known.constant < 0:
            raise ValueError(f"{what} is {known}; it cannot be negative")
        if known.constant is not None and known.constant > _LARGEST_COUNT:
            raise ValueError(f"{what} is {known}; the greatest that there is is {_LARGEST_COUNT}")
        return known
    if isinstance(value, ScalarProxy) and value.scalar.is_integer:
        return atom_size(convert(value.builder, I64, value.atom))
    raise TypeError(f"{what} must be an integer, such as x.shape[0], not {describe_value(value)}")


def index_size(value: Any, extent: Size, what: str) -> Size:
    """An index as a size; a negative constant counts from the end."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return size(int(value)) if value >= 0 else extent + int(value)
    if isinstance(value, ScalarProxy) and value.scalar.is_integer:
        return value.extent if isinstance(value, IndexProxy) else atom_size(convert(value.builder, I64, value.atom))
    raise TypeError(f"{what} must be an integer, not {describe_value(value)}")


# --- values -----------------------------------------------------------------------------------------------------------


def is_array(value: Any) -> bool:
    """Whether a value is an `ArrayProxy`."""
    return getattr(value, "__tilewright_array__", False) is True


def describe_value(value: Any) -> str:
    """What a value is, for messages."""
    if isinstance(value, ScalarProxy):
        return f"a traced {value.scalar}"
    if is_array(value):
        return f"the array {value.variable} of type {value.variable.type}"
    if isinstance(value, np.ndarray):
        return (
            f"a NumPy array of shape {value.shape}: arrays that a program works on are its parameters, they cannot be "
            "constants of the function"
        )
    return f"{value_text(value)}"


def wrap(tracer: Tracer, atom: Atom) -> Any:
    """The proxy of an atom."""
    if isinstance(atom, Variable) and atom.type.rank:
        from tilewright.frontend.array_proxy import ArrayProxy

        return ArrayProxy(atom, tracer)
    return ScalarProxy(atom, tracer)


def wrap_results(tracer: Tracer, targets: Sequence[Variable], several: bool, what: str) -> Any:
    """Proxies of what a statement has bound: a tuple, or the one value."""
    origin = f"{what} at {user_location()}"
    for one in targets:
        tracer.origins[one.name] = origin
    values = tuple(wrap(tracer, one) for one in targets)
    return values if several else values[0]


def values_of(value: Any, what: str) -> tuple[list[Any], bool]:
    """The values that a function has given, and whether they came as a tuple (or a list)."""
    values = [plain(one) for one in value] if isinstance(value, tuple | list) else [plain(value)]
    for number, one in enumerate(values):
        is_constant = isinstance(one, bool | int | float | complex | np.generic)
        if not (is_constant or isinstance(one, ScalarProxy) or is_array(one)):
            gives = "no value (is a `return` missing?)" if one is None else describe_value(one)
            place = f" as value {number} of a {type(value).__name__}" if one is not value else ""
            raise TypeError(
                f"{what} gives {gives}{place}; scalars and arrays of the program, or a tuple of them, are needed"
                f"{_FLAT.get(type(one), '')}"
            )
    if not values:
        raise TypeError(f"{what} gives an empty tuple; at least one value is needed")
    return values, isinstance(value, tuple | list)


def is_number(value: Any) -> bool:
    """Whether a value is a plain number, or a proxy that came from nothing but those."""
    return not is_array(value) and (not isinstance(value, ScalarProxy) or value.weak)


def number_type(value: Any, preferred: ScalarType | None = None) -> ScalarType:
    """The scalar type of a plain number: a NumPy scalar's own; the preferred one if it is of that kind; or 64 bits."""
    if isinstance(value, ScalarProxy):
        return value.scalar
    if isinstance(value, np.generic):
        return scalar_type_of(value.dtype)
    if isinstance(value, bool):
        return BOOL
    kinds, default = {int: ("iufc", I64), float: ("fc", F64)}.get(type(value), ("c", C128))
    return preferred if preferred is not None and preferred.kind in kinds else default


def type_of(value: Any) -> Type:
    """The type of an array or scalar proxy."""
    if is_array(value):
        found: Type = value.variable.type
        return found
    return Type(value.scalar)


def atom_of(value: Any, preferred: ScalarType | None = None) -> Atom:
    """The atom of a value of `values_of`; numbers become literals."""
    if is_array(value):
        variable: Variable = value.variable
        return variable
    if isinstance(value, ScalarProxy):
        if active_tracer() not in (value.builder, None) and isinstance(value.atom, Variable):
            raise TypeError(foreign(value.atom))
        return value.atom
    return constant(value, number_type(value, preferred))


def as_element(tracer: Tracer, value: Any, scalar: ScalarType, what: str) -> Atom:
    """A number or a scalar as one of a certain type; conversions that lose the kind must be written out.

    Raises:
        TypeError: for arrays, and for scalars that a same-kind cast does not convert.
    """
    if not isinstance(value, ScalarProxy | int | float | complex | np.generic):
        raise TypeError(f"{what} must be a scalar of type {scalar}, not {describe_value(value)}")
    if not isinstance(value, ScalarProxy):
        return constant(value, scalar)
    if value.scalar != scalar and common_type([value.scalar, scalar]).kind != scalar.kind:
        raise TypeError(f"{what} must be {scalar}, not {value.scalar}; convert it with .astype(tw.{scalar})")
    return convert(tracer, scalar, value.atom)


# --- functions --------------------------------------------------------------------------------------------------------


def name_of(function: Any) -> str:
    """A function as messages name it."""
    name = getattr(function, "__name__", repr(function))
    return "the lambda" if name == "<lambda>" else f"the function {name}"


def parameter_names(function: Any) -> list[str]:
    """The names of a function's positional parameters, [] where Python does not know them (ufuncs)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def traced_lambda(
    tracer: Tracer, parameters: Sequence[Variable], write: Callable[[], Sequence[Atom]], what: str
) -> Lambda:
    """The lambda of what `write` emits.

    Raises:
        TypeError: if the size of a result is known inside only.
    """
    with tracer.scope() as statements:
        atoms = tuple(write())
    function = Lambda(tuple(parameters), Body(tuple(statements), atoms))
    check_regular(function, atoms, what)
    return function


def check_regular(node: object, results: Sequence[Atom], what: str) -> None:
    """Refuse results whose sizes depend on what is bound inside `node`: arrays of them would be irregular."""
    if not any(extent.names for one in results for extent in one.type.shape):
        return
    bound = {one.name for one in bound_variables(node)}
    for one in results:
        for extent in one.type.shape:
            if not bound.isdisjoint(extent.names):
                raise TypeError(
                    f"{what} gives an array of type {one.type}, whose size {extent} is computed inside of it and could "
                    "differ from one time to the next; only regular arrays exist: give all rows one size, and say "
                    "which elements count"
                )


def fresh_parameters(tracer: Tracer, types: Sequence[Type], hints: Sequence[str]) -> list[Variable]:
    """New variables for a lambda's parameters, named after the Python function's."""
    return [tracer.variable(hints[i] if i < len(hints) else "x", one) for i, one in enumerate(types)]
