"""Scalar values in kernels: how each scalar of the core language is held, and what its operators become.

A core scalar is a `Value`: a tuple of kernel expressions, one component for a real, integer or bool, two (real part,
imaginary part) for a complex number, whose arithmetic is expanded into real arithmetic here. f16 and bf16 are carried
in f32.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TypeAlias

from tilewright.ir.operators import result_type
from tilewright.ir.scalars import BOOL, ScalarType, compute_type, real_of
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Constant, Expression, Name, Statement, add, integer, multiply

Value: TypeAlias = tuple[Expression, ...]


class LoweringError(ValueError):
    """A program that the lowering at hand cannot translate; the message names the construct and the reason."""


class KernelBuilder:
    """Collects kernel statements; every name that it gives out is unique in the kernel and an identifier in C.

    Attributes:
        values: the kernel value of each core scalar in scope, by its core name.

    Example:
        >>> from tilewright.ir.scalars import I64
        >>> emit = KernelBuilder()
        >>> emit.let(add(Name("a", I64), Constant(1, I64)), "b").name
        'b_1'
    """

    def __init__(self, unknown: Callable[[str], Value | None] | None = None) -> None:
        """`unknown` is asked for the value of a free name (a launch parameter, say); None means that it has none."""
        self.values: dict[str, Value] = {}
        self._unknown = unknown
        self._scopes: list[list[Statement]] = [[]]
        self._counters: dict[str, int] = {}

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What has been collected in the current scope."""
        return tuple(self._scopes[-1])

    def value_of(self, name: str) -> Value:
        """The value of a core name.

        Raises:
            LoweringError: if it has none.
        """
        found = self.values.get(name)
        if found is None and self._unknown is not None:
            found = self._unknown(name)
        if found is None:
            raise LoweringError(f"{name} has no value in this kernel")
        self.values[name] = found
        return found

    def name(self, hint: str) -> str:
        """A new name that resembles `hint`."""
        stem = re.sub(r"\W", "_", hint, flags=re.ASCII).rstrip("0123456789_").lstrip("_")
        stem = "v" + stem if not stem[:1].isalpha() else stem
        self._counters[stem] = count = self._counters.get(stem, 0) + 1
        return f"{stem}_{count}"

    def emit(self, statement: Statement) -> None:
        """Append a statement."""
        self._scopes[-1].append(statement)

    @contextmanager
    def scope(self) -> Iterator[list[Statement]]:
        """Statements emitted inside go into the list instead of the surrounding body."""
        statements: list[Statement] = []
        self._scopes.append(statements)
        try:
            yield statements
        finally:
            self._scopes.pop()

    @property
    def depth(self) -> int:
        """How many scopes there are around what is emitted next."""
        return len(self._scopes)

    def let(self, value: Expression, hint: str = "t") -> Name | Constant:
        """Bind an expression to a new name; names and constants are returned as they are."""
        if isinstance(value, Name | Constant):
            return value
        name = Name(self.name(hint), value.type)
        self.emit(kernel.Let(name.name, value))
        return name

    def snapshot(self, value: Expression, hint: str = "t") -> Name | Constant:
        """Like `let`, but names are bound anew, so that later assignments to them do not show."""
        if isinstance(value, Constant):
            return value
        name = Name(self.name(hint), value.type)
        self.emit(kernel.Let(name.name, value))
        return name

    def declare(self, value: Expression, hint: str = "t") -> Name:
        """A new variable that may be assigned."""
        name = Name(self.name(hint), value.type)
        self.emit(kernel.Declare(name.name, value))
        return name

    def assign(self, variable: Name, value: Expression) -> None:
        """Change a declared variable."""
        self.emit(kernel.Assign(variable.name, value))

    def when(
        self, condition: Expression, then: Callable[[], None], otherwise: Callable[[], None] = lambda: None
    ) -> None:
        """if condition: what `then` emits, else what `otherwise` emits."""
        with self.scope() as yes:
            then()
        with self.scope() as no:
            otherwise()
        self.emit(kernel.If(condition, tuple(yes), tuple(no)))

    def loop(
        self,
        hint: str,
        start: Expression,
        stop: Expression,
        write: Callable[[Name], None],
        step: Expression | int = 1,
        independent: bool = False,
        unroll: bool = False,
    ) -> None:
        """for index in start .. stop by step: what `write(index)` emits; the index has the type of `start`."""
        index = Name(self.name(hint), start.type)
        with self.scope() as body:
            write(index)
        by = integer(step, kernel.element_of(start.type)) if isinstance(step, int) else step
        self.emit(kernel.For(index.name, start, stop, tuple(body), by, unroll=unroll, independent=independent))


# --- types, constants, memory -----------------------------------------------------------------------------------------


@cache
def component_types(scalar: ScalarType) -> tuple[ScalarType, ...]:
    """The kernel types of a value's components."""
    part = compute_type(real_of(scalar))
    return (part, part) if scalar.is_complex else (part,)


def constant(number: bool | int | float | complex, scalar: ScalarType) -> Value:
    """A constant of a core scalar type."""
    kernel_type = component_types(scalar)[0]
    if scalar.is_complex:
        whole = complex(number)
        return Constant(whole.real, kernel_type), Constant(whole.imag, kernel_type)
    if isinstance(number, complex):
        raise LoweringError(f"the constant {number} is not of type {scalar}")
    if scalar == BOOL:
        return (Constant(bool(number), BOOL),)
    return (Constant(float(number) if scalar.is_float else int(number), kernel_type),)


def memory_element(scalar: ScalarType) -> ScalarType:
    """The element type of a buffer that holds such values: complex arrays are reals of twice the length."""
    return real_of(scalar)


def load_element(buffer: Buffer, scalar: ScalarType, index: Expression, emit: KernelBuilder, hint: str = "e") -> Value:
    """The element at `index` (counted in elements of `scalar`)."""
    types = component_types(scalar)
    if len(types) == 1:
        return (emit.let(kernel.Load(buffer, index, types[0]), hint),)
    first = emit.let(multiply(index, Constant(2, index.type)), "at")  # type: ignore[arg-type]
    second = add(first, Constant(1, index.type))  # type: ignore[arg-type]
    return (
        emit.let(kernel.Load(buffer, first, types[0]), hint + "_re"),
        emit.let(kernel.Load(buffer, second, types[1]), hint + "_im"),
    )


def store_element(buffer: Buffer, scalar: ScalarType, index: Expression, value: Value, emit: KernelBuilder) -> None:
    """Write the element at `index` (counted in elements of `scalar`)."""
    if not scalar.is_complex:
        emit.emit(kernel.Store(buffer, index, value[0]))
        return
    first = emit.let(multiply(index, Constant(2, index.type)), "at")  # type: ignore[arg-type]
    emit.emit(kernel.Store(buffer, first, value[0]))
    emit.emit(kernel.Store(buffer, add(first, Constant(1, index.type)), value[1]))  # type: ignore[arg-type]


# --- operators --------------------------------------------------------------------------------------------------------


def apply_operator(operator: str, types: Sequence[ScalarType], operands: Sequence[Value], emit: KernelBuilder) -> Value:
    """An operator of the core language on values of these types, each step bound to a name.

    Raises:
        LoweringError: for a complex operator that has no expansion.
    """
    scalar = types[-1]
    if scalar.is_complex:
        return tuple(emit.let(part) for part in _apply_complex(operator, operands, emit))
    parts = [value[0] for value in operands]
    if scalar == BOOL and operator in _BOOLEAN:
        return (emit.let(_BOOLEAN[operator](*parts)),)
    result = component_types(result_type(operator, tuple(types)))[0]
    return (emit.let(kernel.Operation(operator, tuple(parts), result)),)


def cast_value(value: Value, source: ScalarType, target: ScalarType, emit: KernelBuilder) -> Value:
    """Conversion as in C; a real becomes a complex number with imaginary part 0."""
    if source.is_complex and not target.is_complex:
        raise LoweringError(f"no cast from {source} to {target}: take the real or imaginary part")
    types = component_types(target)
    parts = tuple(emit.let(_cast(part, kernel_type)) for part, kernel_type in zip(value, types, strict=False))
    return parts if len(parts) == len(types) else (*parts, Constant(0.0, types[1]))


def _cast(part: Expression, target: ScalarType) -> Expression:
    if part.type == target:
        return part
    if isinstance(part, Constant) and isinstance(part.type, ScalarType) and part.type.is_integer and target.is_float:
        return Constant(float(part.value), target)
    return kernel.Cast(part, target)


def _op(operator: str, *operands: Expression) -> Expression:
    result = BOOL if operator in kernel.PREDICATES else operands[-1].type
    return kernel.Operation(operator, operands, result)


def _not(operand: Expression) -> Expression:
    return _op("not", operand)


_BOOLEAN: dict[str, Callable[..., Expression]] = {
    "min": lambda a, b: _op("and", a, b),
    "max": lambda a, b: _op("or", a, b),
    "eq": lambda a, b: _not(_op("xor", a, b)),
    "ne": lambda a, b: _op("xor", a, b),
    "lt": lambda a, b: _op("and", _not(a), b),
    "le": lambda a, b: _op("or", _not(a), b),
    "gt": lambda a, b: _op("and", a, _not(b)),
    "ge": lambda a, b: _op("or", a, _not(b)),
}


def _apply_complex(operator: str, operands: Sequence[Value], emit: KernelBuilder) -> Value:
    if operator == "select":
        condition, then, otherwise = operands
        return tuple(_op("select", condition[0], a, b) for a, b in zip(then, otherwise, strict=True))
    (a, b), *rest = operands
    if len(rest) == 1:
        (c, d) = rest[0]
        match operator:
            case "add" | "sub":
                return _op(operator, a, c), _op(operator, b, d)
            case "mul":
                # Spelled as fma, since Intel's OpenCL compiler for CPUs contracts a*c - b*d into wrong code at times.
                return (_op("fma", a, c, _op("neg", _op("mul", b, d))), _op("fma", a, d, _op("mul", b, c)))
            case "div":
                return _complex_divide(a, b, c, d, emit)
            case "eq":
                return (_op("and", _op("eq", a, c), _op("eq", b, d)),)
            case "ne":
                return (_op("or", _op("ne", a, c), _op("ne", b, d)),)
    match operator:
        case "neg":
            return _op("neg", a), _op("neg", b)
        case "conj":
            return a, _op("neg", b)
        case "real":
            return (a,)
        case "imag":
            return (b,)
        case "abs":
            return (_hypotenuse(a, b, emit),)
        case "exp":
            return _complex_exp(a, b, emit)
        case "sqrt":
            return _complex_sqrt(a, b, emit)
    raise LoweringError(f"operator {operator} is not defined on complex numbers")


def _number(value: float, like: Expression) -> Constant:
    assert isinstance(like.type, ScalarType)
    return Constant(value, like.type)


def _complex_divide(a: Expression, b: Expression, c: Expression, d: Expression, emit: KernelBuilder) -> Value:
    """(a + bi) / (c + di) by Smith's method, which divides by the larger of c and d first and so does not overflow."""
    swap = emit.let(_op("lt", _op("abs", c), _op("abs", d)), "swap")
    large, small = emit.let(_op("select", swap, d, c)), emit.let(_op("select", swap, c, d))
    x, y = emit.let(_op("select", swap, b, a)), emit.let(_op("select", swap, a, b))
    zero = _number(0.0, c)
    ratio = emit.let(_op("select", _op("eq", large, zero), zero, _op("div", small, large)), "ratio")
    denominator = emit.let(_op("add", large, _op("mul", small, ratio)), "denominator")
    imaginary = emit.let(_op("sub", y, _op("mul", x, ratio)))
    signed = emit.let(_op("select", swap, _op("neg", imaginary), imaginary))
    real = emit.let(_op("add", x, _op("mul", y, ratio)))
    return _op("div", real, denominator), _op("div", signed, denominator)


def _hypotenuse(a: Expression, b: Expression, emit: KernelBuilder) -> Expression:
    """sqrt(a*a + b*b), scaled so that the squares do not overflow."""
    left, right = emit.let(_op("abs", a)), emit.let(_op("abs", b))
    large, small = emit.let(_op("max", left, right)), emit.let(_op("min", left, right))
    zero, one = _number(0.0, large), _number(1.0, large)
    ratio = emit.let(_op("select", _op("eq", large, zero), zero, _op("div", small, large)), "ratio")
    length = emit.let(_op("mul", large, _op("sqrt", _op("add", one, _op("mul", ratio, ratio)))))
    infinite = emit.let(_op("or", _op("isinf", left), _op("isinf", right)))
    return emit.let(_op("select", infinite, _number(float("inf"), large), length))


def _complex_exp(a: Expression, b: Expression, emit: KernelBuilder) -> Value:
    scale = emit.let(_op("exp", a))
    on_axis = emit.let(_op("eq", b, _number(0.0, b)))  # there inf * sin 0 would be nan
    real = emit.let(_op("mul", scale, _op("cos", b)))
    imaginary = emit.let(_op("mul", scale, _op("sin", b)))
    return _op("select", on_axis, scale, real), _op("select", on_axis, b, imaginary)


def _complex_sqrt(a: Expression, b: Expression, emit: KernelBuilder) -> Value:
    """The root with a non-negative real part; t = sqrt((|a| + |a+bi|) / 2), computed on eighths against overflow, and
    below 1 on so many times a and b that subnormal numbers become normal ones: half a power of four in either case.
    """
    assert isinstance(a.type, ScalarType)
    bits = 13 if a.type.bytes == 4 else 28
    below = emit.let(_op("lt", _op("max", _op("abs", a), _op("abs", b)), _number(1.0, a)), "below")
    scale = emit.let(_op("select", below, _number(2.0 ** (2 * bits - 1), a), _number(0.125, a)), "scale")
    unscale = emit.let(_op("select", below, _number(2.0**-bits, a), _number(2.0, a)), "unscale")
    scaled_a, scaled_b = emit.let(_op("mul", a, scale)), emit.let(_op("mul", b, scale))
    length = _hypotenuse(scaled_a, scaled_b, emit)
    two, zero = _number(2.0, a), _number(0.0, a)
    infinite = emit.let(_op("isinf", b))  # then so are both parts, whatever a is
    root = _op("mul", unscale, _op("sqrt", _op("add", _op("abs", scaled_a), length)))
    t = emit.let(_op("select", infinite, _op("abs", b), root), "root")
    known = emit.let(_op("or", infinite, _op("eq", t, zero)))
    other = emit.let(_op("select", known, t, _op("div", _op("abs", b), _op("mul", two, t))))
    minus_zero = _op("and", _op("eq", b, zero), _op("lt", _op("div", _number(1.0, b), b), zero))
    negative = emit.let(_op("or", _op("lt", b, zero), minus_zero))
    left = emit.let(_op("lt", a, zero))
    real = emit.let(_op("select", left, other, t))
    imaginary = emit.let(_op("select", left, t, other))
    return real, _op("select", negative, _op("neg", imaginary), imaginary)
