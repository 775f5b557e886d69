"""Tracing Python functions of scalars: proxies whose operators append core statements.

A `ScalarProxy` is an atom and the builder that its uses are written to. Python operators, the functions of
`scalar_functions` and NumPy's universal functions work on proxies, on numbers and on arrays alike, so that a traced
function can be tried out on plain numbers. Types mix as in NumPy: its scalars have their own; Python numbers take the
type of the proxy that they meet.

>>> from tilewright.ir.nodes import Type
>>> from tilewright.ir.scalars import F32
>>> from tilewright.frontend.scalar_functions import maximum
>>> builder = Builder()
>>> x = builder.variable("x", Type(F32))
>>> result = trace(builder, lambda value: maximum(value + 1, 0), [x])
>>> [str(statement.expression.operator) for statement in builder._scopes[0]]
['add', 'max']
>>> float(maximum(-2.0, 0))
0.0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.frontend import named_types, scalar_integers
from tilewright.frontend.foreign_functions import array_function, array_ufunc, hint_of, torch_function
from tilewright.frontend.scalar_constants import constant, promoted_for_numbers, type_of_numbers, typed_literal
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Apply, Atom, Literal, SizeValue, Variable
from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import BF16, BOOL, F32, F64, I8, I16, I32, I64, U8, U16, U32, ScalarType, scalar_type_of

_LOGIC_OF_BOOL = {"add": "or", "mul": "and"}  # what NumPy's + and * mean on bool
_DEEPEST_SHOWN = 3
_NUMBERS_OF_BOOL = ("pow", "floordiv", "mod", "shl", "shr")  # what NumPy has on bool as on i8
_THROUGH = {I8: I32, I16: I32, U8: I32, U16: I32, U32: I64}


class ScalarProxy:
    """A scalar of the traced program.

    Attributes:
        atom: the variable or literal that it stands for.
        builder: where operations on it are written.
    """

    __slots__ = ("atom", "builder")
    weak = False  # a `WeakProxy`
    known: bool | np.bool_ | None = None  # of a `DecidedTruth` what it is
    ndim, size, shape = 0, 1, ()  # as of NumPy's scalars
    __hash__ = None  # type: ignore[assignment]  # == builds a statement, so proxies cannot be keys

    def __init__(self, atom: Atom, builder: Builder) -> None:
        if atom.type.rank:
            raise TypeError(f"{atom} has type {atom.type}; a scalar is needed")
        self.atom = atom
        self.builder = builder

    @property
    def scalar(self) -> ScalarType:
        """Its type."""
        return self.atom.type.element

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of its type."""
        return self.scalar.numpy

    def astype(self, dtype: object, *, copy: bool = True) -> ScalarProxy:
        """Conversion to another scalar type (`tw.f32`, a NumPy dtype or a name); `copy` has no meaning here.

        Raises:
            ValueError: for "i8" and "u8", which are eight bytes in NumPy.
        """
        return ScalarProxy(convert(self.builder, named_types.type_named(dtype), self.atom), self.builder)

    @property
    def real(self) -> ScalarProxy:
        """The real part (itself for real types)."""
        return self._unary("real") if self.scalar.is_complex else self

    @property
    def imag(self) -> ScalarProxy:
        """The imaginary part (zero for real types)."""
        if self.scalar.is_complex:
            return self._unary("imag")
        return ScalarProxy(constant(0, self.scalar), self.builder)

    def conj(self) -> ScalarProxy:
        """The complex conjugate (itself for real types)."""
        return self._unary("conj") if self.scalar.is_complex else self

    def _unary(self, operator: str) -> ScalarProxy:
        return ScalarProxy(self.builder.apply(operator, self.atom), self.builder)

    def __tilewright_apply__(self, operator: str, operands: Sequence[Any]) -> ScalarProxy:
        return _apply_traced(self.builder, operator, operands)

    __array_ufunc__, __array_function__ = array_ufunc, array_function
    __torch_function__: Any = classmethod(torch_function)

    def shown(self) -> str:
        """How a message names the scalar: a parameter by its name, the result of an operator as that is written."""
        return _shown(self.builder, self.atom, _DEEPEST_SHOWN)

    def __bool__(self) -> bool:
        raise TypeError(
            f"the value of {self.shown()} is not known while the function is traced: write where(condition, a, b) "
            "instead of `if`, & | ~ instead of `and` `or` `not`, and maximum and minimum instead of max() and min(); "
            "in a program also tw.cond instead of `if`, and tw.loop or tw.while_loop instead of `while`"
        )

    def _no_number(self) -> Any:
        raise TypeError(
            f"the value of {self.shown()} is not known while the function is traced, so Python's int(), float(), "
            "range() and the functions of `math` cannot have it; use the functions of tilewright (exp, sqrt, ...), "
            ".astype, and in a program tw.loop"
        )

    __int__ = __float__ = __complex__ = __index__ = _no_number

    def __round__(self, digits: int | None = None) -> Any:
        from tilewright.frontend.scalar_functions import rounded

        return rounded(self, digits)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by protocols, also of a proxy that is being made
            raise AttributeError(name)
        told = self.atom.value if isinstance(self.atom, Literal) else self.atom
        instead = hint_of(name, False) or "the functions of tilewright (exp, sqrt, ...), .astype, .real, .imag"
        raise AttributeError(
            f"the scalar {told} of type {self.scalar} has no attribute {name!r} while the function is traced; use "
            f"{instead}"
        )

    def __format__(self, form: str) -> str:
        return self._no_number() if form else str(self)

    def __repr__(self) -> str:
        name = "" if str(self.atom) in getattr(self.builder, "origins", ()) else f" {self.shown()}"
        return f"<scalar{name} of type {self.scalar}>"

    def __add__(self, other: Any) -> Any:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return apply("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return apply("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return apply("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return apply("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return apply("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return apply("div", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return apply("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return apply("floordiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return apply("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return apply("mod", other, self)

    def __pow__(self, other: Any) -> Any:
        from tilewright.frontend.scalar_powers import power

        return power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return apply("pow", other, self)

    def __and__(self, other: Any) -> Any:
        return apply("and", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return apply("or", self, other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Any:
        return apply("xor", self, other)

    __rxor__ = __xor__

    def __lshift__(self, other: Any) -> Any:
        return apply("shl", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return apply("shl", other, self)

    def __rshift__(self, other: Any) -> Any:
        return apply("shr", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return apply("shr", other, self)

    def __eq__(self, other: Any) -> Any:
        return apply("eq", self, other)

    def __ne__(self, other: Any) -> Any:
        return apply("ne", self, other)

    def __lt__(self, other: Any) -> Any:
        return apply("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return apply("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return apply("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return apply("ge", self, other)

    def __neg__(self) -> Any:
        return apply("neg", self)

    def __pos__(self) -> ScalarProxy:
        return self

    def __abs__(self) -> Any:
        return apply("abs", self)

    def __invert__(self) -> Any:
        return apply("not", self)


def _shown(builder: Builder, atom: Atom, depth: int) -> str:
    """A scalar as it is written, operators within each other up to a depth."""
    from tilewright.ir.printer import print_expression

    if isinstance(atom, Literal):
        return str(atom.value)
    expression = builder.definition(atom)
    if isinstance(expression, SizeValue):
        return str(expression.size)
    if not isinstance(expression, Apply) or not depth:
        return str(getattr(builder, "written", {}).get(str(atom), atom))
    named = [_shown(builder, one, depth - 1) for one in expression.operands]
    nested = [f"({text})" if " " in text and not text.endswith(")") else text for text in named]
    operands = tuple(Variable(text, one.type) for text, one in zip(nested, expression.operands, strict=True))
    return print_expression(replace(expression, operands=operands)).replace("`", "")  # around what is no name


class WeakProxy(ScalarProxy):
    """A scalar that came from a Python number only: like one, it takes the type of the proxies that it meets.

    Results of nothing but weak proxies are weak.
    """

    __slots__ = ()
    weak = True


def meeting_type(proxies: Sequence[ScalarProxy]) -> ScalarType:
    """The common type of proxies, weak ones counting as Python numbers do."""
    strong = [one.scalar for one in proxies if not one.weak]
    weak = [one.scalar for one in proxies if one.weak]
    if not strong:
        return common_type(weak)
    scalar = common_type(strong)
    kinds = ["biufc".index(one.kind.replace("u", "i")) for one in (scalar, *weak)]  # signed and unsigned alike
    return scalar if max(kinds) == kinds[0] else common_type([scalar, *weak])


def common_type(types: Sequence[ScalarType]) -> ScalarType:
    """The type in which scalars of these types meet, by NumPy's rules (bf16 with any other type: as f32)."""
    if all(one == types[0] for one in types):
        return types[0]
    return scalar_type_of(np.result_type(*(F32.numpy if one == BF16 else one.numpy for one in types)))


def convert(builder: Builder, scalar: ScalarType, atom: Atom) -> Atom:
    """Conversion as `numpy.astype` does it: complex to real keeps the real part, to bool asks for "not zero"."""
    source = atom.type.element
    if source == scalar:
        return atom
    if isinstance(atom, Literal) and not source.is_complex and scalar.kind in "fc":
        return constant(atom.value, scalar)
    if isinstance(atom, Literal) and source.kind in "biu" and scalar.kind in "iu":
        return constant(np.array(atom.value, source.numpy).astype(scalar.numpy), scalar)
    if scalar == BOOL:
        return builder.apply("ne", atom, constant(0, source))
    if source.is_complex and not scalar.is_complex:
        atom = builder.apply("real", atom)
    if source.kind in "fc" and scalar in _THROUGH:
        # Out of range the language leaves a float's conversion to each device; through a wider type it wraps around.
        atom = builder.cast(_THROUGH[scalar], atom)
    return builder.cast(scalar, atom)


def apply(operator: str, *operands: Any) -> Any:
    """The scalar operator (a name of `ir.operators`) on proxies, or on numbers and arrays where no operand is traced.

    A type of traced values takes part by a method `__tilewright_apply__(operator, operands)`.
    """
    handler = None
    for one in operands:
        found = getattr(one, "__tilewright_apply__", None)
        if found is not None and (handler is None or isinstance(handler.__self__, ScalarProxy)):
            handler = found
    if handler is not None:
        return handler(operator, operands)
    result = OPERATORS[operator].meaning(*operands)
    return result[()] if isinstance(result, np.ndarray) else result  # of numbers a number, also where NumPy selects


def _apply_traced(builder: Builder, operator: str, operands: Sequence[Any]) -> ScalarProxy:
    operands = [one.known if isinstance(one, ScalarProxy) and one.known is not None else one for one in operands]
    given = operands[1:] if operator == "select" else operands
    values = [_typed(builder, one) for one in given]
    proxies = [one for one in values if isinstance(one, ScalarProxy)]
    is_traced = any(isinstance(one, ScalarProxy) for one in given)
    numbers = [one for one in values if not isinstance(one, ScalarProxy)]
    scalar = promoted_for_numbers(meeting_type(proxies), numbers) if is_traced else type_of_numbers(given)
    if (
        is_traced
        and scalar.kind in "iu"
        and all(one.weak for one in proxies)
        and any(type(one) is float for one in values)
    ):
        scalar = F64  # numbers of Python's both, as a size times 0.5
    if scalar == BOOL:
        operator = _LOGIC_OF_BOOL.get(operator, operator)
        scalar = I8 if operator in _NUMBERS_OF_BOOL else scalar
    if operator == "conj" and not scalar.is_complex:
        return proxies[0]
    if (operator in ("floor", "ceil", "trunc") and scalar.kind in "biu") or (operator == "abs" and scalar == BOOL):
        return proxies[0]
    strong = [one.scalar for one in proxies if not one.weak]
    if operator in scalar_integers.COMPARISONS and scalar_integers.meets_u64(strong):
        sides = [_atom(builder, one, one.scalar) for one in proxies]
        return ScalarProxy(scalar_integers.compared_with_u64(builder, operator, *sides), builder)
    if (always := scalar_integers.compared_out_of_range(operator, values, scalar)) is not None:
        return ScalarProxy(Literal(always, BOOL), builder)
    power_of_integers = operator == "pow" and all(map(scalar_integers.is_whole, values))
    of_integers = scalar.kind in "iu" and (operator in ("shl", "shr") or power_of_integers)
    kinds = OPERATORS[operator].kinds
    if scalar.kind in "biu" and kinds in ("f", "fc") and not of_integers:
        scalar = F64  # division as in NumPy, and all real functions of integers
    atoms = [_atom(builder, one, scalar) for one in values]
    if operator == "select":
        atoms.insert(0, _atom(builder, operands[0], BOOL))
    emit = scalar_integers.apply_to_integers if of_integers else Builder.apply
    result = emit(builder, operator, *atoms)
    weak = result.type.element != BOOL and all(one.weak for one in proxies)
    return (WeakProxy if weak else ScalarProxy)(result, builder)


def _typed(builder: Builder, value: Any) -> Any:
    """NumPy's numbers as scalars of their types; anything else as it is."""
    literal = typed_literal(value)
    return value if literal is None else ScalarProxy(literal, builder)


def _atom(builder: Builder, value: Any, scalar: ScalarType) -> Atom:
    if isinstance(value, ScalarProxy):
        if value.builder is not builder and isinstance(value.atom, Variable):
            raise TypeError(foreign(value.atom))
        return convert(builder, scalar, value.atom)
    return constant(value, scalar)


def foreign(variable: Variable) -> str:
    """What to say of a value that is used where it cannot be known."""
    return (
        f"{variable} of type {variable.type} was made while another program was traced, and is unknown here; hand it "
        "over as an argument"
    )


def trace(
    builder: Builder, function: Callable[..., Any], atoms: Sequence[Atom], result: ScalarType | None = None
) -> Atom:
    """Run `function` on proxies of scalar atoms: its statements go to `builder`, its value comes back as an atom.

    Args:
        builder: where the statements are written.
        function: a Python function of as many scalars as there are `atoms`, that gives one scalar.
        atoms: the arguments.
        result: the type of the value where the function gives a plain number (default: the first argument's).

    Raises:
        TypeError: if the function does not give one scalar.
    """
    value = function(*(ScalarProxy(one, builder) for one in atoms))
    if isinstance(value, ScalarProxy):
        return value.atom
    name = getattr(function, "__name__", repr(function))
    if not isinstance(value, bool | int | float | complex | np.generic):
        raise TypeError(f"the traced function {name} gives a {type(value).__name__}; one scalar is needed")
    return constant(value, result or atoms[0].type.element)


def proxies(builder: Builder, variables: Sequence[Variable]) -> tuple[ScalarProxy, ...]:
    """Proxies of scalar variables."""
    return tuple(ScalarProxy(one, builder) for one in variables)
